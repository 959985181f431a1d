/** @file
  The serial port as the console.

  Only one terminal: OVMF's console splitter, its HII database and its variables are for machines with several.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "Bds.h"

#include <Library/BaseLib.h>
#include <Library/MemoryAllocationLib.h>
#include <Library/PrintLib.h>
#include <Library/UefiBootServicesTableLib.h>
#include <Library/UefiLib.h>
#include <Protocol/SerialIo.h>
#include <Protocol/SimpleTextIn.h>
#include <Protocol/SimpleTextOut.h>

/**
  Connects the driver of terminals to every serial port.
**/
STATIC
VOID
ConnectTerminals (
  VOID
  )
{
  EFI_STATUS  Status;
  EFI_HANDLE  *Handles;
  UINTN       Count;
  UINTN       Index;

  Status = gBS->LocateHandleBuffer (ByProtocol, &gEfiSerialIoProtocolGuid, NULL, &Count, &Handles);
  if (EFI_ERROR (Status)) {
    return;
  }

  for (Index = 0; Index < Count; Index++) {
    gBS->ConnectController (Handles[Index], NULL, NULL, TRUE);
  }

  FreePool (Handles);
}

VOID
ConnectConsole (
  VOID
  )
{
  EFI_STATUS                       Status;
  EFI_HANDLE                       *Handles;
  UINTN                            Count;
  EFI_SIMPLE_TEXT_INPUT_PROTOCOL   *Input;
  EFI_SIMPLE_TEXT_OUTPUT_PROTOCOL  *Output;

  ConnectTerminals ();
  Status = gBS->LocateHandleBuffer (ByProtocol, &gEfiSimpleTextOutProtocolGuid, NULL, &Count, &Handles);
  if (EFI_ERROR (Status)) {
    return;
  }

  if (!EFI_ERROR (gBS->HandleProtocol (Handles[0], &gEfiSimpleTextOutProtocolGuid, (VOID **)&Output)) &&
      !EFI_ERROR (gBS->HandleProtocol (Handles[0], &gEfiSimpleTextInProtocolGuid, (VOID **)&Input)))
  {
    gST->ConsoleInHandle     = Handles[0];
    gST->ConIn               = Input;
    gST->ConsoleOutHandle    = Handles[0];
    gST->ConOut              = Output;
    gST->StandardErrorHandle = Handles[0];
    gST->StdErr              = Output;
    gST->Hdr.CRC32           = 0;
    gBS->CalculateCrc32 (gST, gST->Hdr.HeaderSize, &gST->Hdr.CRC32);
  }

  FreePool (Handles);
}

VOID
EFIAPI
Say (
  IN CONST CHAR16  *Format,
  ...
  )
{
  CHAR16   Line[160];
  VA_LIST  Arguments;

  if (gST->ConOut == NULL) {
    return;
  }

  VA_START (Arguments, Format);
  UnicodeVSPrint (Line, sizeof (Line), Format, Arguments);
  VA_END (Arguments);
  gST->ConOut->OutputString (gST->ConOut, Line);
}
