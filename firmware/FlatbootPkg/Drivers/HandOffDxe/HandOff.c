#include <PiDxe.h>
#include <FlatbootMarks.h>
#include <Library/IoLib.h>
EFI_STATUS EFIAPI HandOffEntryPoint (IN EFI_HANDLE ImageHandle, IN EFI_SYSTEM_TABLE *SystemTable)
{
  IoWrite8 (FLATBOOT_MARK_PORT, FLATBOOT_MARK_FIRMWARE_PLAN);
  return EFI_SUCCESS;
}
