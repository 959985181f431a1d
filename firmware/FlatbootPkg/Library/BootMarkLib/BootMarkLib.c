/** @file
  Writes a boot mark when the module that it is linked to starts.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include <Base.h>
#include <FlatbootMarks.h>
#include <Library/IoLib.h>
#include <Library/PcdLib.h>

/**
  Writes the module's mark.

  @retval RETURN_SUCCESS  Always: a mark that nobody listens to does no harm.
**/
RETURN_STATUS
EFIAPI
BootMarkLibConstructor (
  VOID
  )
{
  if (PcdGet8 (PcdBootMark) != 0) {
    IoWrite8 (FLATBOOT_MARK_PORT, PcdGet8 (PcdBootMark));
  }

  return RETURN_SUCCESS;
}
