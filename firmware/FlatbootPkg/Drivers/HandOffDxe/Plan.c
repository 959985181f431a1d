/** @file
  The VMM's plan.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOff.h"

#include <Library/BaseLib.h>
#include <Library/BaseMemoryLib.h>
#include <Library/MemoryAllocationLib.h>
#include <Library/QemuFwCfgLib.h>
#include <Library/SerialPortLib.h>
#include <Library/UefiBootServicesTableLib.h>

///
/// No plan is larger.
///
#define MAX_PLAN_SIZE \
  (sizeof (FLATBOOT_HANDOFF_HEADER) + \
   FLATBOOT_HANDOFF_MAX_REGIONS * sizeof (FLATBOOT_HANDOFF_REGION) + \
   FLATBOOT_HANDOFF_MAX_ARENAS * sizeof (FLATBOOT_HANDOFF_ARENA))

VOID
RefusePlan (
  IN CONST FLATBOOT_FINDING  *Finding
  )
{
  STATIC CONST CHAR8  Prefix[] = "flatboot: ignored: ";
  CHAR8               Text[FLATBOOT_FINDING_TEXT_SIZE];
  UINTN               Length;

  // The console comes later, and this driver's lines are to be seen in release builds, too.
  Length = FlatbootFindingToAscii (Finding, Text, sizeof (Text));
  SerialPortInitialize ();
  SerialPortWrite ((UINT8 *)Prefix, sizeof (Prefix) - 1);
  SerialPortWrite ((UINT8 *)Text, Length);
  SerialPortWrite ((UINT8 *)"\r\n", 2);
  Mark (FLATBOOT_MARK_FIRMWARE_PLAN_INVALID);
}

/**
  Takes hold of every ZEROED region of the plan, so that it stays zero.

  @param[in,out] Plan  The plan.
**/
STATIC
VOID
HoldZeroedRegions (
  IN OUT PLAN  *Plan
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Regions;
  EFI_PHYSICAL_ADDRESS           Base;
  UINTN                          Index;

  Plan->Untouched = AllocatePool (Plan->Table->RegionCount * sizeof (*Plan->Untouched));
  if (Plan->Untouched == NULL) {
    return;
  }

  Regions = FLATBOOT_HANDOFF_REGIONS (Plan->Table);
  for (Index = 0; Index < Plan->Table->RegionCount; Index++) {
    if ((Regions[Index].Flags & FLATBOOT_HANDOFF_REGION_ZEROED) == 0) {
      continue;
    }

    Base = Regions[Index].Base;
    if (!EFI_ERROR (gBS->AllocatePages (AllocateAddress, EfiLoaderData, EFI_SIZE_TO_PAGES (Regions[Index].Length), &Base))) {
      Plan->Untouched[Plan->UntouchedCount].Base   = Regions[Index].Base;
      Plan->Untouched[Plan->UntouchedCount].Length = Regions[Index].Length;
      Plan->UntouchedCount++;
    }
  }
}

VOID
ReadPlan (
  OUT PLAN  *Plan
  )
{
  FIRMWARE_CONFIG_ITEM  Item;
  FLATBOOT_FINDING      Finding;
  VOID                  *Bytes;
  UINTN                 Size;

  ZeroMem (Plan, sizeof (*Plan));
  if (RETURN_ERROR (QemuFwCfgFindFile (FLATBOOT_PLAN_FW_CFG_FILE, &Item, &Size))) {
    return;
  }

  // What is longer than any table is looked at as far as a table can go: its header will say another length.
  Size  = MIN (Size, MAX_PLAN_SIZE);
  Bytes = AllocatePool (MAX (Size, sizeof (FLATBOOT_HANDOFF_HEADER)));
  if (Bytes == NULL) {
    return;
  }

  QemuFwCfgSelectItem (Item);
  QemuFwCfgReadBytes (Size, Bytes);
  if (RETURN_ERROR (FlatbootValidateTable (Bytes, Size, &Finding))) {
    RefusePlan (&Finding);
    FreePool (Bytes);
    return;
  }

  Plan->Table = Bytes;
  Plan->Size  = Size;
  HoldZeroedRegions (Plan);
}
