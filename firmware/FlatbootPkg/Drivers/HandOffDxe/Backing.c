/** @file
  Has the host back memory before the kernel touches it.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOff.h"

#include <Library/BaseLib.h>
#include <Library/SynchronizationLib.h>
#include <Library/UefiBootServicesTableLib.h>
#include <Library/UefiLib.h>
#include <Protocol/MpService.h>

///
/// What every processor reads.
///
typedef struct {
  EFI_MP_SERVICES_PROTOCOL    *Mp;
  CONST PLAN                  *Plan;
  UINTN                       Processors;
} BACKING;

STATIC BACKING  mBacking;

/**
  Says whether a range is held for the OS: of any other, the firmware may have made pages read-only, or be using them.

  @param[in] Range  The range.

  @return  Whether it is.
**/
STATIC
BOOLEAN
IsHeld (
  IN CONST FLATBOOT_RANGE  *Range
  )
{
  CONST FLATBOOT_RANGE  *Held;
  UINTN                 Index;

  for (Index = 0; Index < mBacking.Plan->UntouchedCount; Index++) {
    Held = &mBacking.Plan->Untouched[Index];
    if ((Range->Base >= Held->Base) && (Range->Base + Range->Length <= Held->Base + Held->Length)) {
      return TRUE;
    }
  }

  return FALSE;
}

/**
  Touches every page of a range without changing it.

  @param[in] Range  The range; it is mapped.
**/
STATIC
VOID
Touch (
  IN CONST FLATBOOT_RANGE  *Range
  )
{
  UINT64  Offset;

  for (Offset = 0; Offset < Range->Length; Offset += EFI_PAGE_SIZE) {
    // A write to the host, which would only show its page of zeros to a read.
    InterlockedCompareExchange32 ((UINT32 *)(UINTN)(Range->Base + Offset), 0, 0);
  }
}

/**
  Touches this processor's share.

  @param[in] Buffer  NULL.
**/
STATIC
VOID
EFIAPI
TouchShare (
  IN VOID  *Buffer
  )
{
  FLATBOOT_RANGE  Range;
  UINTN           Processor;
  UINTN           Index;

  if (EFI_ERROR (mBacking.Mp->WhoAmI (mBacking.Mp, &Processor)) || (Processor >= mBacking.Processors)) {
    return;
  }

  for (Index = 0; ; Index++) {
    if (RETURN_ERROR (FlatbootBackingShare (mBacking.Plan->Table, Processor, mBacking.Processors, Index, &Range))) {
      break;
    }

    if (IsHeld (&Range)) {
      Touch (&Range);
    }
  }
}

/**
  Has all processors touch their shares: the others first, at once, then this one.

  @param[in] Event    Signalled when the MP services are there.
  @param[in] Context  NULL.
**/
STATIC
VOID
EFIAPI
OnMpServices (
  IN EFI_EVENT  Event,
  IN VOID       *Context
  )
{
  UINTN  Enabled;

  if (EFI_ERROR (gBS->LocateProtocol (&gEfiMpServiceProtocolGuid, NULL, (VOID **)&mBacking.Mp))) {
    return;
  }

  gBS->CloseEvent (Event);
  if (EFI_ERROR (mBacking.Mp->GetNumberOfProcessors (mBacking.Mp, &mBacking.Processors, &Enabled))) {
    return;
  }

  // With one processor there is no other to start, which is an error to this service and none to us.
  mBacking.Mp->StartupAllAPs (mBacking.Mp, TouchShare, FALSE, NULL, 0, NULL, NULL);
  TouchShare (NULL);
  Mark (FLATBOOT_MARK_FIRMWARE_BACKED);
}

VOID
BackMemory (
  IN CONST PLAN  *Plan
  )
{
  FLATBOOT_RANGE  Range;
  VOID            *Registration;

  // Starting all processors is not worth it for nothing.
  if ((Plan->UntouchedCount == 0) || RETURN_ERROR (FlatbootBackingShare (Plan->Table, 0, 1, 0, &Range))) {
    return;
  }

  mBacking.Plan = Plan;
  EfiCreateProtocolNotifyEvent (&gEfiMpServiceProtocolGuid, TPL_CALLBACK, OnMpServices, NULL, &Registration);
}
