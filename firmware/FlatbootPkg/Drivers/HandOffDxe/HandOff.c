/** @file
  The hand-off's driver: when what happens.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOff.h"

#include <Library/IoLib.h>
#include <Library/UefiBootServicesTableLib.h>
#include <Library/UefiDriverEntryPoint.h>
#include <Library/UefiLib.h>

STATIC PLAN  mPlan;

VOID
Mark (
  IN UINT8  Code
  )
{
  IoWrite8 (FLATBOOT_MARK_PORT, Code);
}

/**
  Installs the hand-off: a loader is about to be started, and looks at configuration tables from now on.

  @param[in] Event    The event.
  @param[in] Context  NULL.
**/
STATIC
VOID
EFIAPI
OnReadyToBoot (
  IN EFI_EVENT  Event,
  IN VOID       *Context
  )
{
  gBS->CloseEvent (Event);
  if (EFI_ERROR (InstallTable (&mPlan))) {
    // The OS boots all the same, as on firmware that knows of no hand-off.
    Mark (FLATBOOT_MARK_FIRMWARE_PLAN_INVALID);
  }
}

/**
  The driver's entry point.

  @param[in] ImageHandle  The driver's.
  @param[in] SystemTable  The system table.

  @retval EFI_SUCCESS  Whatever the plan is like: a VM without a hand-off boots, too.
**/
EFI_STATUS
EFIAPI
HandOffEntryPoint (
  IN EFI_HANDLE        ImageHandle,
  IN EFI_SYSTEM_TABLE  *SystemTable
  )
{
  EFI_EVENT  Event;

  ReadPlan (&mPlan);
  Mark (FLATBOOT_MARK_FIRMWARE_PLAN);
  BackMemory (&mPlan);
  return EfiCreateEventReadyToBootEx (TPL_CALLBACK, OnReadyToBoot, NULL, &Event);
}
