/** @file
  The hand-off itself.

  It is made twice. Once before a loader is started, with everything that has to be allocated for it; and once more, in
  place and without allocating anything, when the loader has called ExitBootServices (): then it is known which memory the firmware
  keeps for good.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOff.h"

#include <Library/BaseLib.h>
#include <Library/BaseMemoryLib.h>
#include <Library/MemoryAllocationLib.h>
#include <Library/UefiBootServicesTableLib.h>

///
/// Descriptors that the memory map may grow by until ExitBootServices (): each allocation adds two at most, and loaders make
/// few that stay.
///
#define SPARE_DESCRIPTORS  512

typedef struct {
  PLAN                     *Plan;
  ///
  /// The memory map, and what it comes to.
  ///
  EFI_MEMORY_DESCRIPTOR    *Map;
  UINTN                    MapRoom;
  FLATBOOT_SPAN            *Spans;
  UINTN                    SpanRoom;
  ///
  /// The hand-off: EfiACPIReclaimMemory, as the UEFI specification (section 4.6) has it for tables that the OS reads once.
  ///
  FLATBOOT_HANDOFF_HEADER    *Table;
  UINTN                      TableRoom;
} HAND_OFF;

STATIC HAND_OFF  mHandOff;

/**
  Makes the hand-off of the memory map of now.

  @param[in]  HandOff    What it is made with; its table is overwritten.
  @param[out] TableSize  Bytes of the hand-off, or that it needs.
  @param[out] Finding    What is wrong with plan or memory map, if anything.

  @return  As of FlatbootBuildHandOff (), or why the memory map could not be had.
**/
STATIC
EFI_STATUS
MakeTable (
  IN  CONST HAND_OFF    *HandOff,
  OUT UINTN             *TableSize,
  OUT FLATBOOT_FINDING  *Finding
  )
{
  EFI_STATUS               Status;
  FLATBOOT_HAND_OFF_INPUT  Input;
  UINTN                    MapSize;
  UINTN                    MapKey;
  UINTN                    DescriptorSize;
  UINT32                   DescriptorVersion;

  ZeroMem (Finding, sizeof (*Finding));
  MapSize = HandOff->MapRoom;
  Status  = gBS->GetMemoryMap (&MapSize, HandOff->Map, &MapKey, &DescriptorSize, &DescriptorVersion);
  if (EFI_ERROR (Status)) {
    return Status;
  }

  Input.Spans     = HandOff->Spans;
  Input.SpanCount = HandOff->SpanRoom;
  Status          = FlatbootNormalizeMemoryMap (HandOff->Map, MapSize, DescriptorSize, HandOff->Spans, &Input.SpanCount, Finding);
  if (EFI_ERROR (Status)) {
    return Status;
  }

  Input.Plan           = HandOff->Plan->Table;
  Input.PlanSize       = HandOff->Plan->Size;
  Input.Untouched      = HandOff->Plan->Untouched;
  Input.UntouchedCount = HandOff->Plan->UntouchedCount;
  *TableSize           = HandOff->TableRoom;
  return FlatbootBuildHandOff (&Input, HandOff->Table, TableSize, Finding);
}

/**
  Makes the hand-off anew: the memory map is final.

  No memory may be allocated or freed here (UEFI specification, section 7.4.6).

  @param[in] Event    The event.
  @param[in] Context  NULL.
**/
STATIC
VOID
EFIAPI
OnExitBootServices (
  IN EFI_EVENT  Event,
  IN VOID       *Context
  )
{
  FLATBOOT_FINDING  Finding;
  UINTN             Size;

  if (EFI_ERROR (MakeTable (&mHandOff, &Size, &Finding))) {
    // The one of before may promise what is no longer true. An OS turns this one down.
    ZeroMem (mHandOff.Table, sizeof (*mHandOff.Table));
    Mark (FLATBOOT_MARK_FIRMWARE_PLAN_INVALID);
  }

  Mark (FLATBOOT_MARK_FIRMWARE_END);
}

/**
  Allocates room for the memory map and for what it comes to.

  @param[in,out] HandOff  Where to put it.

  @retval EFI_SUCCESS           There is room.
  @retval EFI_OUT_OF_RESOURCES  There is none, or the firmware does not say how much is needed.
**/
STATIC
EFI_STATUS
AllocateMap (
  IN OUT HAND_OFF  *HandOff
  )
{
  EFI_STATUS  Status;
  UINTN       MapSize;
  UINTN       MapKey;
  UINTN       DescriptorSize;
  UINT32      DescriptorVersion;

  MapSize = 0;
  Status  = gBS->GetMemoryMap (&MapSize, NULL, &MapKey, &DescriptorSize, &DescriptorVersion);
  if (Status != EFI_BUFFER_TOO_SMALL) {
    return EFI_OUT_OF_RESOURCES;
  }

  HandOff->MapRoom  = MapSize + SPARE_DESCRIPTORS * DescriptorSize;
  HandOff->SpanRoom = HandOff->MapRoom / DescriptorSize;
  HandOff->Map      = AllocatePool (HandOff->MapRoom);
  HandOff->Spans    = AllocatePool (HandOff->SpanRoom * sizeof (*HandOff->Spans));
  return (HandOff->Map != NULL) && (HandOff->Spans != NULL) ? EFI_SUCCESS : EFI_OUT_OF_RESOURCES;
}

/**
  Makes the hand-off for the first time, in memory allocated for it.

  @param[in,out] HandOff  What it is made with.
  @param[out]    Finding  What is wrong with plan or memory map, if anything.

  @return  As of MakeTable ().
**/
STATIC
EFI_STATUS
MakeFirstTable (
  IN OUT HAND_OFF          *HandOff,
  OUT    FLATBOOT_FINDING  *Finding
  )
{
  EFI_STATUS            Status;
  EFI_PHYSICAL_ADDRESS  Base;
  UINTN                 Size;

  HandOff->Table     = NULL;
  HandOff->TableRoom = 0;
  Status             = MakeTable (HandOff, &Size, Finding);
  if (Status != EFI_BUFFER_TOO_SMALL) {
    return Status;
  }

  Status = gBS->AllocatePages (AllocateAnyPages, EfiACPIReclaimMemory, EFI_SIZE_TO_PAGES (Size), &Base);
  if (EFI_ERROR (Status)) {
    return Status;
  }

  HandOff->Table     = (VOID *)(UINTN)Base;
  HandOff->TableRoom = EFI_PAGES_TO_SIZE (EFI_SIZE_TO_PAGES (Size));
  return MakeTable (HandOff, &Size, Finding);
}

EFI_STATUS
InstallTable (
  IN PLAN  *Plan
  )
{
  EFI_STATUS        Status;
  FLATBOOT_FINDING  Finding;
  EFI_EVENT         Event;

  mHandOff.Plan = Plan;
  Status        = AllocateMap (&mHandOff);
  if (EFI_ERROR (Status)) {
    return Status;
  }

  Status = MakeFirstTable (&mHandOff, &Finding);
  if ((Status == EFI_COMPROMISED_DATA) && (Plan->Table != NULL)) {
    RefusePlan (&Finding);
    ZeroMem (Plan, sizeof (*Plan));
    Status = MakeFirstTable (&mHandOff, &Finding);
  }

  if (EFI_ERROR (Status)) {
    return Status;
  }

  Status = gBS->CreateEvent (EVT_SIGNAL_EXIT_BOOT_SERVICES, TPL_NOTIFY, OnExitBootServices, NULL, &Event);
  if (EFI_ERROR (Status)) {
    return Status;
  }

  return gBS->InstallConfigurationTable (&gFlatbootHandOffGuid, mHandOff.Table);
}
