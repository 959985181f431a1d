/** @file
  What memory which processor has backed by the host.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibInternal.h"

/**
  Says what memory a processor is to have backed by the host before the kernel starts.

  That is the first FLATBOOT_HANDOFF_ARENA_ALIGN bytes of each arena, where the kernel's first struct pages go: one section's
  memmap, one huge page of the host. The pieces are dealt out in turn: all processors' shares together are all pieces, each
  once.

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
  UINTN  Piece;

  ASSERT (Table != NULL);
  ASSERT (Processor < Processors);
  ASSERT (Range != NULL);

  //
  // Divided, not multiplied: Index may be any number.
  //
  if (Index > Table->ArenaCount / Processors) {
    return RETURN_NOT_FOUND;
  }

  Piece = Index * Processors + Processor;
  if (Piece >= Table->ArenaCount) {
    return RETURN_NOT_FOUND;
  }

  Range->Base   = FLATBOOT_HANDOFF_ARENAS (Table)[Piece].Base;
  Range->Length = FLATBOOT_HANDOFF_ARENA_ALIGN;
  return RETURN_SUCCESS;
}
