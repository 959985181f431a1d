/** @file
  What is booted, and where it can be read.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef FLATBOOT_BDS_H_
#define FLATBOOT_BDS_H_

#include <PiDxe.h>

/**
  Makes the serial port the console of the system table: input, output and errors.

  Without a serial port the console stays as it is, NULL: whoever prints has to look.
**/
VOID
ConnectConsole (
  VOID
  );

/**
  Prints to the console, if there is one.

  @param[in] Format  As of Print ().
**/
VOID
EFIAPI
Say (
  IN CONST CHAR16  *Format,
  ...
  );

/**
  Starts an image: everything that is to happen right before it does.

  @param[in] Image  A loaded image.

  @return  What the image returned: it was no OS, or it failed.
**/
typedef
EFI_STATUS
(*START_IMAGE) (
  IN EFI_HANDLE  Image
  );

/**
  Boots from the disks: of each, in the order of their slots, the loader that removable media have (UEFI specification,
  section 3.5.1.1).

  Returns only if none of them has one that stays.

  @param[in]  Start        Starts a loader.
  @param[out] Disks        How many disks there are.
  @param[out] FileSystems  How many file systems on them can be read.
  @param[out] Loaders      How many of those had a loader.
**/
VOID
BootFromDisks (
  IN  START_IMAGE  Start,
  OUT UINTN        *Disks,
  OUT UINTN        *FileSystems,
  OUT UINTN        *Loaders
  );

#endif
