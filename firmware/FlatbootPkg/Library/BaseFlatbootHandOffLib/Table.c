/** @file
  The rules of the contract, and the checksum.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibInternal.h"

/**
  Computes the CRC-32C of a table with its checksum field taken as zero.

  @param[in] Table  The table; Length bytes of it are there.

  @return The checksum.
**/
STATIC
UINT32
TableCrc (
  IN CONST FLATBOOT_HANDOFF_HEADER  *Table
  )
{
  CONST UINT32  Zero = 0;
  UINTN         After;
  UINT32        Crc;

  After = OFFSET_OF (FLATBOOT_HANDOFF_HEADER, Crc32c) + sizeof (Table->Crc32c);
  Crc   = CalculateCrc32c (Table, OFFSET_OF (FLATBOOT_HANDOFF_HEADER, Crc32c), 0);
  Crc   = CalculateCrc32c (&Zero, sizeof (Zero), Crc);
  return CalculateCrc32c ((CONST UINT8 *)Table + After, Table->Length - After, Crc);
}

/**
  Computes how many bytes a table has.

  @param[in] RegionCount  Its regions, at most FLATBOOT_HANDOFF_MAX_REGIONS.
  @param[in] ArenaCount   Its arenas, at most FLATBOOT_HANDOFF_MAX_ARENAS.

  @return Bytes of the header and of both.
**/
STATIC
UINT32
TableLength (
  IN UINT32  RegionCount,
  IN UINT32  ArenaCount
  )
{
  return (UINT32)sizeof (FLATBOOT_HANDOFF_HEADER) + RegionCount * (UINT32)sizeof (FLATBOOT_HANDOFF_REGION) +
         ArenaCount * (UINT32)sizeof (FLATBOOT_HANDOFF_ARENA);
}

/**
  Checks the header: all but the checksum, which covers bytes that a wrong length would miss.

  @param[in]  Header   The header; all of it is there.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           Length is what the counts make it.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckHeader (
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Header,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  UINT32  Expected;

  if (Header->Magic != FLATBOOT_HANDOFF_MAGIC) {
    return Report (Finding, FlatbootRuleMagic, FlatbootEntryNone, 0, Header->Magic, 0, 0);
  }

  if (Header->Version != FLATBOOT_HANDOFF_VERSION) {
    return Report (Finding, FlatbootRuleVersion, FlatbootEntryNone, 0, Header->Version, 0, 0);
  }

  if (Header->HeaderLength != sizeof (*Header)) {
    return Report (Finding, FlatbootRuleHeaderLength, FlatbootEntryNone, 0, Header->HeaderLength, 0, 0);
  }

  if (Header->Reserved != 0) {
    return Report (Finding, FlatbootRuleReserved, FlatbootEntryNone, 0, Header->Reserved, 0, 0);
  }

  if ((Header->RegionCount == 0) || (Header->RegionCount > FLATBOOT_HANDOFF_MAX_REGIONS)) {
    return Report (Finding, FlatbootRuleRegionCount, FlatbootEntryNone, 0, Header->RegionCount, 0, 0);
  }

  if (Header->ArenaCount > FLATBOOT_HANDOFF_MAX_ARENAS) {
    return Report (Finding, FlatbootRuleArenaCount, FlatbootEntryNone, 0, Header->ArenaCount, 0, 0);
  }

  Expected = TableLength (Header->RegionCount, Header->ArenaCount);
  if (Header->Length != Expected) {
    return Report (Finding, FlatbootRuleLength, FlatbootEntryNone, 0, Header->Length, Expected, 0);
  }

  return RETURN_SUCCESS;
}

/**
  Checks that a range holds something, ends in the address space, and begins at or after the end of the one before.

  @param[in]     Entry    Region or arena.
  @param[in]     Index    Which one.
  @param[in]     Base     Its first address.
  @param[in]     Length   Bytes.
  @param[in,out] End      In: the end of the one before, 0 if there is none. Out: the range's own, if it is sound.
  @param[out]    Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           The range is sound.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckRange (
  IN     FLATBOOT_ENTRY    Entry,
  IN     UINTN             Index,
  IN     UINT64            Base,
  IN     UINT64            Length,
  IN OUT UINT64            *End,
  OUT    FLATBOOT_FINDING  *Finding
  )
{
  if (Length == 0) {
    return Report (Finding, FlatbootRuleEmpty, Entry, Index, 0, 0, 0);
  }

  if ((Length > FLATBOOT_HANDOFF_MAX_ADDRESS) || (Base > FLATBOOT_HANDOFF_MAX_ADDRESS - Length)) {
    return Report (Finding, FlatbootRuleEnd, Entry, Index, Base, Length, 0);
  }

  if (Base < *End) {
    return Report (Finding, FlatbootRuleOrder, Entry, Index, Base, *End, 0);
  }

  *End = Base + Length;
  return RETURN_SUCCESS;
}

/**
  Checks a region by itself.

  @param[in]  Region   A region whose range is sound.
  @param[in]  Index    Which one.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           Flags and alignment are right.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckRegion (
  IN  CONST FLATBOOT_HANDOFF_REGION  *Region,
  IN  UINTN                          Index,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  if ((Region->Flags & ~FLATBOOT_HANDOFF_REGION_FLAGS) != 0) {
    return Report (
             Finding,
             FlatbootRuleFlags,
             FlatbootEntryRegion,
             Index,
             Region->Flags,
             FLATBOOT_HANDOFF_REGION_FLAGS,
             0
             );
  }

  if (!IS_MULTIPLE (Region->Base | Region->Length, FLATBOOT_HANDOFF_PAGE_SIZE)) {
    return Report (
             Finding,
             FlatbootRulePageAlignment,
             FlatbootEntryRegion,
             Index,
             Region->Base,
             Region->Length,
             0
             );
  }

  return RETURN_SUCCESS;
}

/**
  Checks the rules for held regions: they are whole sections, have no other flag, and only held ones follow them.

  @param[in]  Region       A region that is right by itself.
  @param[in]  Index        Which one.
  @param[in]  FollowsHeld  Whether the one before it is held.
  @param[out] Finding      The broken rule, if there is one.

  @retval RETURN_SUCCESS           They are kept.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckHeld (
  IN  CONST FLATBOOT_HANDOFF_REGION  *Region,
  IN  UINTN                          Index,
  IN  BOOLEAN                        FollowsHeld,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  if (!IS_HELD (Region)) {
    if (FollowsHeld) {
      return Report (Finding, FlatbootRuleHeldOrder, FlatbootEntryRegion, Index, 0, 0, 0);
    }

    return RETURN_SUCCESS;
  }

  if (Region->Flags != FLATBOOT_HANDOFF_REGION_HELD) {
    return Report (Finding, FlatbootRuleHeldFlags, FlatbootEntryRegion, Index, Region->Flags, 0, 0);
  }

  if (!IS_MULTIPLE (Region->Base | Region->Length, FLATBOOT_HANDOFF_SECTION_SIZE)) {
    return Report (
             Finding,
             FlatbootRuleHeldAlignment,
             FlatbootEntryRegion,
             Index,
             Region->Base,
             Region->Length,
             0
             );
  }

  return RETURN_SUCCESS;
}

/**
  Looks for a region of a node that is not held.

  @param[in] Regions  The regions.
  @param[in] From     The first one to look at.
  @param[in] To       The one after the last one to look at.
  @param[in] Node     The node.

  @return The first such region, or To if there is none.
**/
STATIC
UINTN
FindNode (
  IN CONST FLATBOOT_HANDOFF_REGION  *Regions,
  IN UINTN                          From,
  IN UINTN                          To,
  IN UINT32                         Node
  )
{
  while ((From < To) && ((Regions[From].Node != Node) || IS_HELD (&Regions[From]))) {
    From++;
  }

  return From;
}

/**
  Checks that only the first and the last region of a node begin or end within a section: two in the middle could share it.
  Held regions, which are whole sections, make no other one a region in the middle.

  @param[in]  Regions  Regions that are right by themselves, sorted.
  @param[in]  Count    How many.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           Every other region is whole sections.
  @retval RETURN_COMPROMISED_DATA  Finding says which one is not.
**/
STATIC
RETURN_STATUS
CheckSections (
  IN  CONST FLATBOOT_HANDOFF_REGION  *Regions,
  IN  UINTN                          Count,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Region;
  UINTN                          Index;

  for (Index = 0; Index < Count; Index++) {
    Region = &Regions[Index];
    if (!IS_MULTIPLE (Region->Base | Region->Length, FLATBOOT_HANDOFF_SECTION_SIZE) &&
        (FindNode (Regions, Index + 1, Count, Region->Node) < Count) &&
        (FindNode (Regions, 0, Index, Region->Node) < Index))
    {
      return Report (
               Finding,
               FlatbootRuleSectionAlignment,
               FlatbootEntryRegion,
               Index,
               Region->Base,
               Region->Length,
               Region->Node
               );
    }
  }

  return RETURN_SUCCESS;
}

/**
  Checks that a section belongs to one region of its node: a section is what one of the kernel's threads fills.

  @param[in]  Regions  Regions that are right by themselves, sorted.
  @param[in]  Count    How many.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           No two regions of a node share a section.
  @retval RETURN_COMPROMISED_DATA  Finding says which one shares a section with one before it.
**/
STATIC
RETURN_STATUS
CheckSharedSections (
  IN  CONST FLATBOOT_HANDOFF_REGION  *Regions,
  IN  UINTN                          Count,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  UINTN   Index;
  UINTN   Other;
  UINT64  SectionEnd;

  for (Index = 0; Index < Count; Index++) {
    SectionEnd = ALIGN_VALUE (Regions[Index].Base + Regions[Index].Length, FLATBOOT_HANDOFF_SECTION_SIZE);
    for (Other = Index + 1; (Other < Count) && (Regions[Other].Base < SectionEnd); Other++) {
      if (Regions[Other].Node == Regions[Index].Node) {
        return Report (Finding, FlatbootRuleSharedSection, FlatbootEntryRegion, Other, Regions[Other].Node, 0, 0);
      }
    }
  }

  return RETURN_SUCCESS;
}

/**
  Checks an arena by itself.

  @param[in]  Arena    An arena whose range is sound.
  @param[in]  Index    Which one.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           Its alignment is right.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckArena (
  IN  CONST FLATBOOT_HANDOFF_ARENA  *Arena,
  IN  UINTN                         Index,
  OUT FLATBOOT_FINDING              *Finding
  )
{
  if (!IS_MULTIPLE (Arena->Base | Arena->Length, FLATBOOT_HANDOFF_ARENA_ALIGN)) {
    return Report (
             Finding,
             FlatbootRuleArenaAlignment,
             FlatbootEntryArena,
             Index,
             Arena->Base,
             Arena->Length,
             0
             );
  }

  return RETURN_SUCCESS;
}

/**
  Checks the fields of a table that mean nothing: those of its arenas.

  @param[in]  Table    A table whose header and checksum are right.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           They are all 0.
  @retval RETURN_COMPROMISED_DATA  Finding says which one is not.
**/
STATIC
RETURN_STATUS
CheckReserved (
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Table,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  CONST FLATBOOT_HANDOFF_ARENA  *Arenas;
  UINTN                         Index;

  Arenas = FLATBOOT_HANDOFF_ARENAS (Table);
  for (Index = 0; Index < Table->ArenaCount; Index++) {
    if (Arenas[Index].Reserved != 0) {
      return Report (Finding, FlatbootRuleArenaReserved, FlatbootEntryArena, Index, Arenas[Index].Reserved, 0, 0);
    }
  }

  return RETURN_SUCCESS;
}

/**
  Checks every rule that concerns regions.

  @param[in]  Table    A table whose header and checksum are right.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           The regions are right.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckRegions (
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Table,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Regions;
  RETURN_STATUS                  Status;
  UINT64                         End;
  UINTN                          Index;

  Regions = FLATBOOT_HANDOFF_REGIONS (Table);
  End     = 0;
  for (Index = 0; Index < Table->RegionCount; Index++) {
    Status = CheckRange (FlatbootEntryRegion, Index, Regions[Index].Base, Regions[Index].Length, &End, Finding);
    if (!RETURN_ERROR (Status)) {
      Status = CheckRegion (&Regions[Index], Index, Finding);
    }

    if (!RETURN_ERROR (Status)) {
      Status = CheckHeld (&Regions[Index], Index, (BOOLEAN)((Index > 0) && IS_HELD (&Regions[Index - 1])), Finding);
    }

    if (RETURN_ERROR (Status)) {
      return Status;
    }
  }

  Status = CheckSections (Regions, Table->RegionCount, Finding);
  if (RETURN_ERROR (Status)) {
    return Status;
  }

  return CheckSharedSections (Regions, Table->RegionCount, Finding);
}

/**
  Checks every rule that concerns arenas.

  @param[in]  Table    A table whose regions are right.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           The arenas are right.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
CheckArenas (
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Table,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Home;
  CONST FLATBOOT_HANDOFF_REGION  *LastHome;
  CONST FLATBOOT_HANDOFF_ARENA   *Arenas;
  RETURN_STATUS                  Status;
  UINT64                         End;
  UINTN                          Index;

  //
  // Both lists are sorted, so the search for an arena's region goes on where the last one ended.
  //
  Home     = FLATBOOT_HANDOFF_REGIONS (Table);
  LastHome = Home + Table->RegionCount - 1;
  Arenas   = FLATBOOT_HANDOFF_ARENAS (Table);
  End      = 0;
  for (Index = 0; Index < Table->ArenaCount; Index++) {
    Status = CheckRange (FlatbootEntryArena, Index, Arenas[Index].Base, Arenas[Index].Length, &End, Finding);
    if (!RETURN_ERROR (Status)) {
      Status = CheckArena (&Arenas[Index], Index, Finding);
    }

    if (RETURN_ERROR (Status)) {
      return Status;
    }

    while ((Home < LastHome) && (Home->Base + Home->Length <= Arenas[Index].Base)) {
      Home++;
    }

    if ((Arenas[Index].Base < Home->Base) || (End > Home->Base + Home->Length) || (Arenas[Index].Node != Home->Node) ||
        IS_HELD (Home))
    {
      return Report (
               Finding,
               FlatbootRuleOutside,
               FlatbootEntryArena,
               Index,
               Arenas[Index].Base,
               End,
               Arenas[Index].Node
               );
    }
  }

  return RETURN_SUCCESS;
}

/**
  Checks that a table keeps every rule of the contract, in the contract's order, and says which one it breaks.

  The same tables pass, and fail by the same rule, as in the VMM and in the kernel. What follows the table is not looked at.

  @param[in]  Table      What might be a table, 8-byte aligned.
  @param[in]  TableSize  Bytes that are there.
  @param[out] Finding    FlatbootRuleNone, or the rule that is broken first.

  @retval RETURN_SUCCESS            The table keeps every rule.
  @retval RETURN_INVALID_PARAMETER  Table is NULL or not 8-byte aligned; Finding is FlatbootRuleNone.
  @retval RETURN_COMPROMISED_DATA   Finding says what is wrong.
**/
RETURN_STATUS
EFIAPI
FlatbootValidateTable (
  IN  CONST VOID        *Table,
  IN  UINTN             TableSize,
  OUT FLATBOOT_FINDING  *Finding
  )
{
  CONST FLATBOOT_HANDOFF_HEADER  *Header;
  RETURN_STATUS                  Status;
  UINT32                         Crc;

  ASSERT (Finding != NULL);
  ClearFinding (Finding);
  if ((Table == NULL) || !IS_MULTIPLE ((UINTN)Table, TABLE_ALIGN)) {
    return RETURN_INVALID_PARAMETER;
  }

  Header = Table;
  if (TableSize < sizeof (*Header)) {
    return Report (Finding, FlatbootRuleTruncated, FlatbootEntryNone, 0, TableSize, sizeof (*Header), 0);
  }

  Status = CheckHeader (Header, Finding);
  if (RETURN_ERROR (Status)) {
    return Status;
  }

  if (TableSize < Header->Length) {
    return Report (Finding, FlatbootRuleTruncated, FlatbootEntryNone, 0, TableSize, Header->Length, 0);
  }

  Crc = TableCrc (Header);
  if (Header->Crc32c != Crc) {
    return Report (Finding, FlatbootRuleCrc, FlatbootEntryNone, 0, Header->Crc32c, Crc, 0);
  }

  Status = CheckReserved (Header, Finding);
  if (!RETURN_ERROR (Status)) {
    Status = CheckRegions (Header, Finding);
  }

  if (RETURN_ERROR (Status)) {
    return Status;
  }

  return CheckArenas (Header, Finding);
}

/**
  Completes a table whose counts and entries are in place: all other header fields, the checksum last.

  The bytes are those that the VMM's encoder makes of the same entries. No rule is checked but that the counts are in range.

  @param[in,out] Table  The table, 8-byte aligned; RegionCount and ArenaCount say how many entries follow.

  @return The table's length in bytes.
**/
UINT32
EFIAPI
FlatbootSealTable (
  IN OUT FLATBOOT_HANDOFF_HEADER  *Table
  )
{
  ASSERT (Table != NULL);
  ASSERT (Table->RegionCount <= FLATBOOT_HANDOFF_MAX_REGIONS);
  ASSERT (Table->ArenaCount <= FLATBOOT_HANDOFF_MAX_ARENAS);

  Table->Magic        = FLATBOOT_HANDOFF_MAGIC;
  Table->Version      = FLATBOOT_HANDOFF_VERSION;
  Table->Length       = TableLength (Table->RegionCount, Table->ArenaCount);
  Table->HeaderLength = sizeof (*Table);
  Table->Reserved     = 0;
  Table->Crc32c       = TableCrc (Table);
  return Table->Length;
}
