/** @file
  What memory which processor has backed by the host.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibInternal.h"

/**
  Says what memory a processor is to have backed by the host before the kernel starts.

  That is the first FLATBOOT_HANDOFF_ARENA_ALIGN bytes of each arena, where the kernel's first struct pages go: one section's
  memmap, one huge page of the host. Arenas whose memory is there already (in a BACKED region, or PREINIT) are left alone. The
  pieces are dealt out in turn: all processors' shares together are all pieces, each once.

  @param[in]  Table       A table that keeps every rule.
  @param[in]  Processor   Which processor, counted from 0.
  @param[in]  Processors  How many processors share the work, more than Processor.
  @param[in]  Index       Which piece of this processor's share, counted from 0.
  @param[out] Range       The piece.

  @retval RETURN_SUCCESS    Range is that piece.
  @retval RETURN_NOT_FOUND  This processor's share has no more than Index pieces.
**/
RETURN_STATUS
EFIAPI
FlatbootBackingShare (
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Table,
  IN  UINTN                          Processor,
  IN  UINTN                          Processors,
  IN  UINTN                          Index,
  OUT FLATBOOT_RANGE                 *Range
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Home;
  CONST FLATBOOT_HANDOFF_ARENA   *Arena;
  CONST FLATBOOT_HANDOFF_ARENA   *End;
  UINTN                          Piece;

  ASSERT (Table != NULL);
  ASSERT (Processor < Processors);
  ASSERT (Range != NULL);

  Home  = FLATBOOT_HANDOFF_REGIONS (Table);
  Piece = 0;
  End   = FLATBOOT_HANDOFF_ARENAS (Table) + Table->ArenaCount;
  for (Arena = FLATBOOT_HANDOFF_ARENAS (Table); Arena < End; Arena++) {
    //
    // Both lists are sorted, and each arena is inside a region.
    //
    while (Home->Base + Home->Length <= Arena->Base) {
      Home++;
    }

    if (((Home->Flags & FLATBOOT_HANDOFF_REGION_BACKED) != 0) || ((Arena->Flags & FLATBOOT_HANDOFF_ARENA_PREINIT) != 0)) {
      continue;
    }

    if ((Piece % Processors == Processor) && (Piece / Processors == Index)) {
      Range->Base   = Arena->Base;
      Range->Length = FLATBOOT_HANDOFF_ARENA_ALIGN;
      return RETURN_SUCCESS;
    }

    Piece++;
  }

  return RETURN_NOT_FOUND;
}
