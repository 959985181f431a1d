/** @file
  Boot device selection: a kernel that the VMM offers, else the first disk with a boot loader.

  No menu, no delay, no boot variables: those would not outlive the VM anyway. What cannot be booted ends the VM, with a
  line on the console that says why and a mark; it never waits for somebody to come by.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "Bds.h"

#include <FlatbootMarks.h>
#include <Guid/EventGroup.h>
#include <Library/BaseLib.h>
#include <Library/IoLib.h>
#include <Library/QemuLoadImageLib.h>
#include <Library/UefiBootServicesTableLib.h>
#include <Library/UefiDriverEntryPoint.h>
#include <Library/UefiLib.h>
#include <Library/UefiRuntimeServicesTableLib.h>
#include <Protocol/Bds.h>

STATIC BOOLEAN  mReadyToBoot = FALSE;

/**
  Writes a boot mark.

  @param[in] Code  One of FLATBOOT_MARK_*.
**/
STATIC
VOID
Mark (
  IN UINT8  Code
  )
{
  IoWrite8 (FLATBOOT_MARK_PORT, Code);
}

/**
  Ends the VM: the mark tells the VMM why.

  @param[in] Code  FLATBOOT_MARK_FIRMWARE_NO_LOADER or FLATBOOT_MARK_FIRMWARE_FAILED.
**/
STATIC
VOID
GiveUp (
  IN UINT8  Code
  )
{
  Mark (Code);
  gRT->ResetSystem (EfiResetShutdown, EFI_NOT_FOUND, 0, NULL);
  CpuDeadLoop ();
}

/**
  Signals that something is about to be booted, once: after that no driver comes any more.
**/
STATIC
VOID
ReadyToBoot (
  VOID
  )
{
  if (!mReadyToBoot) {
    mReadyToBoot = TRUE;
    EfiSignalEventReadyToBoot ();
  }

  Mark (FLATBOOT_MARK_FIRMWARE_LOADER);
}

/**
  Starts a boot loader.

  @param[in] Image  The loader.

  @return  What it returned.
**/
STATIC
EFI_STATUS
StartLoader (
  IN EFI_HANDLE  Image
  )
{
  ReadyToBoot ();
  return gBS->StartImage (Image, NULL, NULL);
}

/**
  Boots the kernel that the VMM offers, if it offers one. Ends the VM if that fails: a user who asks for a kernel does not
  want another one.
**/
STATIC
VOID
BootOfferedKernel (
  VOID
  )
{
  EFI_STATUS  Status;
  EFI_HANDLE  Image;

  Status = QemuLoadKernelImage (&Image);
  if (Status == EFI_NOT_FOUND) {
    return;
  }

  if (!EFI_ERROR (Status)) {
    ReadyToBoot ();
    Status = QemuStartKernelImage (&Image);
  }

  Say (
    L"flatboot: the kernel that the VMM offers: %r%s\r\n",
    Status,
    Status == EFI_UNSUPPORTED ? L"; it must be an EFI application (CONFIG_EFI_STUB)" : L""
    );
  GiveUp (FLATBOOT_MARK_FIRMWARE_FAILED);
}

/**
  Boots. To be called by the DXE core when all drivers are loaded; never returns.

  @param[in] This  The protocol.
**/
STATIC
VOID
EFIAPI
BdsEntry (
  IN EFI_BDS_ARCH_PROTOCOL  *This
  )
{
  UINTN  Disks;
  UINTN  FileSystems;
  UINTN  Loaders;

  Mark (FLATBOOT_MARK_FIRMWARE_BDS);
  EfiEventGroupSignal (&gEfiEndOfDxeEventGroupGuid);
  ConnectConsole ();

  BootOfferedKernel ();
  BootFromDisks (StartLoader, &Disks, &FileSystems, &Loaders);

  Say (
    L"flatboot: nothing to boot: %d disks, %d file systems that firmware can read, %d boot loaders (%s)\r\n",
    Disks,
    FileSystems,
    Loaders,
    EFI_REMOVABLE_MEDIA_FILE_NAME_X64
    );
  GiveUp (FLATBOOT_MARK_FIRMWARE_NO_LOADER);
}

STATIC EFI_BDS_ARCH_PROTOCOL  mBds = { BdsEntry };

/**
  Installs boot device selection.

  @param[in] ImageHandle  The driver's.
  @param[in] SystemTable  The system table.

  @return  As of InstallMultipleProtocolInterfaces ().
**/
EFI_STATUS
EFIAPI
BdsEntryPoint (
  IN EFI_HANDLE        ImageHandle,
  IN EFI_SYSTEM_TABLE  *SystemTable
  )
{
  EFI_HANDLE  Handle;

  Handle = NULL;
  return gBS->InstallMultipleProtocolInterfaces (&Handle, &gEfiBdsArchProtocolGuid, &mBds, NULL);
}
