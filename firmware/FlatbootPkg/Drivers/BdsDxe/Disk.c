/** @file
  Boot loaders on disks.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "Bds.h"

#include <Library/BaseLib.h>
#include <Library/DevicePathLib.h>
#include <Library/MemoryAllocationLib.h>
#include <Library/UefiBootServicesTableLib.h>
#include <Protocol/SimpleFileSystem.h>
#include <Protocol/VirtioDevice.h>
#include <IndustryStandard/Virtio.h>

/**
  Connects the drivers of every virtio disk, and of the partitions and file systems on it.

  @return  How many disks there are.
**/
STATIC
UINTN
ConnectDisks (
  VOID
  )
{
  EFI_STATUS              Status;
  EFI_HANDLE              *Handles;
  VIRTIO_DEVICE_PROTOCOL  *Device;
  UINTN                   Count;
  UINTN                   Index;
  UINTN                   Disks;

  Disks  = 0;
  Status = gBS->LocateHandleBuffer (ByProtocol, &gVirtioDeviceProtocolGuid, NULL, &Count, &Handles);
  if (EFI_ERROR (Status)) {
    return Disks;
  }

  for (Index = 0; Index < Count; Index++) {
    Status = gBS->HandleProtocol (Handles[Index], &gVirtioDeviceProtocolGuid, (VOID **)&Device);
    if (!EFI_ERROR (Status) && (Device->SubSystemDeviceId == VIRTIO_SUBSYSTEM_BLOCK_DEVICE)) {
      gBS->ConnectController (Handles[Index], NULL, NULL, TRUE);
      Disks++;
    }
  }

  FreePool (Handles);
  return Disks;
}

/**
  Loads the boot loader of a file system.

  @param[in]  FileSystem  Its handle.
  @param[out] Image       The loader, loaded.

  @retval EFI_SUCCESS    Loaded.
  @retval EFI_NOT_FOUND  There is none.
  @return                Why it could not be loaded.
**/
STATIC
EFI_STATUS
LoadLoader (
  IN  EFI_HANDLE  FileSystem,
  OUT EFI_HANDLE  *Image
  )
{
  EFI_STATUS                Status;
  EFI_DEVICE_PATH_PROTOCOL  *Path;

  Path = FileDevicePath (FileSystem, EFI_REMOVABLE_MEDIA_FILE_NAME_X64);
  if (Path == NULL) {
    return EFI_OUT_OF_RESOURCES;
  }

  *Image = NULL;
  Status = gBS->LoadImage (FALSE, gImageHandle, Path, NULL, 0, Image);
  if ((Status == EFI_SECURITY_VIOLATION) && (*Image != NULL)) {
    gBS->UnloadImage (*Image);
  }

  FreePool (Path);
  return Status;
}

VOID
BootFromDisks (
  IN  START_IMAGE  Start,
  OUT UINTN        *Disks,
  OUT UINTN        *FileSystems,
  OUT UINTN        *Loaders
  )
{
  EFI_STATUS  Status;
  EFI_HANDLE  *Handles;
  EFI_HANDLE  Image;
  UINTN       Index;

  *FileSystems = 0;
  *Loaders     = 0;
  *Disks       = ConnectDisks ();
  Status       = gBS->LocateHandleBuffer (ByProtocol, &gEfiSimpleFileSystemProtocolGuid, NULL, FileSystems, &Handles);
  if (EFI_ERROR (Status)) {
    *FileSystems = 0;
    return;
  }

  for (Index = 0; Index < *FileSystems; Index++) {
    Status = LoadLoader (Handles[Index], &Image);
    if (Status == EFI_NOT_FOUND) {
      continue;
    }

    (*Loaders)++;
    if (!EFI_ERROR (Status)) {
      Status = Start (Image);
    }

    Say (L"flatboot: file system %d: %s: %r\r\n", Index, EFI_REMOVABLE_MEDIA_FILE_NAME_X64, Status);
  }

  FreePool (Handles);
}
