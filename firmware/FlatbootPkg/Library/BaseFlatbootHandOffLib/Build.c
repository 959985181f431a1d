/** @file
  The hand-off: from the VMM's plan, or from the memory map alone.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibInternal.h"

/**
  Says how far memory goes without a gap.

  @param[in] Input     The memory.
  @param[in] Address   Where to begin.
  @param[in] FreeOnly  Whether memory that is owned counts as a gap.

  @return The first address from Address on that is no such memory.
**/
STATIC
UINT64
MemoryEnd (
  IN CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  IN UINT64                         Address,
  IN BOOLEAN                        FreeOnly
  )
{
  CONST FLATBOOT_SPAN  *Span;
  UINTN                Index;

  for (Index = 0; Index < Input->SpanCount; Index++) {
    Span = &Input->Spans[Index];
    if ((Span->Base <= Address) && (Address < Span->Base + Span->Length) &&
        ((Span->Use == FlatbootUseFree) || !FreeOnly))
    {
      Address = Span->Base + Span->Length;
    }
  }

  return Address;
}

/**
  Says whether nobody has written to a range.

  @param[in] Input   What is untouched.
  @param[in] Base    The range's first address.
  @param[in] Length  Bytes in it.

  @retval TRUE   The untouched ranges together hold all of it.
  @retval FALSE  They do not.
**/
STATIC
BOOLEAN
IsUntouched (
  IN CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  IN UINT64                         Base,
  IN UINT64                         Length
  )
{
  CONST FLATBOOT_RANGE  *Range;
  UINT64                End;
  UINTN                 Index;

  //
  // They come in any order: from each range found, all are looked through again for one that goes on.
  //
  End   = Base + Length;
  Index = 0;
  while ((Base < End) && (Index < Input->UntouchedCount)) {
    Range = &Input->Untouched[Index++];
    if ((Range->Base <= Base) && (Base - Range->Base < Range->Length)) {
      if (End - Range->Base <= Range->Length) {
        return TRUE;
      }

      Base  = Range->Base + Range->Length;
      Index = 0;
    }
  }

  return FALSE;
}

/**
  Says whether a range is as the VMM left it: untouched, and nobody's.

  A range of which the firmware owns a part was written to, whatever the caller says.

  @param[in] Input   Memory, and what of it is untouched.
  @param[in] Base    The range's first address.
  @param[in] Length  Bytes in it.

  @retval TRUE   What the VMM says of its content holds.
  @retval FALSE  It may not hold.
**/
STATIC
BOOLEAN
IsAsPlanned (
  IN CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  IN UINT64                         Base,
  IN UINT64                         Length
  )
{
  return (BOOLEAN)((MemoryEnd (Input, Base, TRUE) >= Base + Length) && IsUntouched (Input, Base, Length));
}

/**
  Checks that all regions of the plan are memory, but for those that are held.

  @param[in]  Input    The memory.
  @param[in]  Plan     A plan that keeps every rule.
  @param[out] Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           They are.
  @retval RETURN_COMPROMISED_DATA  Finding says which one is not, and where.
**/
STATIC
RETURN_STATUS
CheckPlan (
  IN  CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Plan,
  OUT FLATBOOT_FINDING               *Finding
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Region;
  UINT64                         End;
  UINTN                          Index;

  for (Index = 0; Index < Plan->RegionCount; Index++) {
    Region = &FLATBOOT_HANDOFF_REGIONS (Plan)[Index];
    if (IS_HELD (Region)) {
      continue;
    }

    End = MemoryEnd (Input, Region->Base, FALSE);
    if (End < Region->Base + Region->Length) {
      return Report (
               Finding,
               FlatbootRuleNotMemory,
               FlatbootEntryRegion,
               Index,
               Region->Base,
               Region->Length,
               End
               );
    }
  }

  return RETURN_SUCCESS;
}

/**
  Makes the hand-off of a plan: takes back what the firmware's own work has made untrue.

  @param[in]  Input   Memory, and what of it is untouched.
  @param[in]  Plan    A plan that keeps every rule and fits the memory.
  @param[out] Header  The hand-off, not yet sealed; there is room for Plan's length.
**/
STATIC
VOID
AdaptPlan (
  IN  CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  IN  CONST FLATBOOT_HANDOFF_HEADER  *Plan,
  OUT FLATBOOT_HANDOFF_HEADER        *Header
  )
{
  FLATBOOT_HANDOFF_REGION  *Regions;
  FLATBOOT_HANDOFF_ARENA   *Arenas;
  FLATBOOT_HANDOFF_ARENA   Arena;
  UINTN                    Index;

  CopyMem (Header, Plan, Plan->Length);
  Regions = (FLATBOOT_HANDOFF_REGION *)(Header + 1);
  for (Index = 0; Index < Header->RegionCount; Index++) {
    if (!IsAsPlanned (Input, Regions[Index].Base, Regions[Index].Length)) {
      Regions[Index].Flags &= ~(UINT32)FLATBOOT_HANDOFF_REGION_ZEROED;
    }
  }

  Arenas             = (FLATBOOT_HANDOFF_ARENA *)(Regions + Header->RegionCount);
  Header->ArenaCount = 0;
  for (Index = 0; Index < Plan->ArenaCount; Index++) {
    Arena = Arenas[Index];
    if (MemoryEnd (Input, Arena.Base, TRUE) < Arena.Base + Arena.Length) {
      continue;
    }

    Arenas[Header->ArenaCount++] = Arena;
  }
}

/**
  Writes one region for each range of memory from FLATBOOT_LOWEST_REGION up, as it is, on node 0.

  @param[in]  Input    The memory.
  @param[out] Regions  The regions, sorted; NULL if they are only to be counted.

  @return How many regions there are: at most FLATBOOT_HANDOFF_MAX_REGIONS, the lowest ones. Failing over a map of that
          many gaps would take the hand-off from all regions; this way the kernel makes the rest by itself.
**/
STATIC
UINT32
RegionsFromMemory (
  IN  CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  OUT FLATBOOT_HANDOFF_REGION        *Regions  OPTIONAL
  )
{
  UINT64  Base;
  UINT64  End;
  UINT32  Count;
  UINTN   Index;

  End   = 0;
  Count = 0;
  for (Index = 0; (Index < Input->SpanCount) && (Count < FLATBOOT_HANDOFF_MAX_REGIONS); Index++) {
    Base = MAX (MAX (Input->Spans[Index].Base, End), FLATBOOT_LOWEST_REGION);
    if (Base >= Input->Spans[Index].Base + Input->Spans[Index].Length) {
      continue;
    }

    End = MemoryEnd (Input, Base, FALSE);
    if (Regions != NULL) {
      Regions[Count].Base   = Base;
      Regions[Count].Length = End - Base;
      Regions[Count].Node   = 0;
      Regions[Count].Flags  = 0;
    }

    Count++;
  }

  return Count;
}

/**
  Cuts regions so that they keep the contract's rules for one node: sections are shared by none, and only the first and the
  last region begin or end within one.

  @param[in,out] Regions  Regions of one node, sorted, none of them empty.
  @param[in]     Count    How many there are, at least 1.

  @return How many are left, at least 1.
**/
STATIC
UINT32
CutToSections (
  IN OUT FLATBOOT_HANDOFF_REGION  *Regions,
  IN     UINT32                   Count
  )
{
  UINT64  Base;
  UINT64  End;
  UINT64  KeptEnd;
  UINT32  Last;
  UINT32  Index;
  UINT32  Kept;

  //
  // A last region all of which is in the section where the one before ends has to go. That one is the last then.
  //
  for (Last = Count - 1; Last > 0; Last--) {
    Base = ALIGN_VALUE (Regions[Last - 1].Base + Regions[Last - 1].Length, FLATBOOT_HANDOFF_SECTION_SIZE);
    if (Regions[Last].Base + Regions[Last].Length > Base) {
      break;
    }
  }

  KeptEnd = 0;
  Kept    = 0;
  for (Index = 0; Index <= Last; Index++) {
    //
    // The first begins where it does, the others not in the section where the one before them ends. The first and the last
    // end where they do.
    //
    Base = MAX (Regions[Index].Base, ALIGN_VALUE (KeptEnd, FLATBOOT_HANDOFF_SECTION_SIZE));
    End  = Regions[Index].Base + Regions[Index].Length;
    if ((Index != 0) && (Index != Last)) {
      Base = ALIGN_VALUE (Base, FLATBOOT_HANDOFF_SECTION_SIZE);
      End  = End - (End & (FLATBOOT_HANDOFF_SECTION_SIZE - 1));
    }

    if (Base < End) {
      Regions[Kept].Base   = Base;
      Regions[Kept].Length = End - Base;
      Regions[Kept].Node   = Regions[Index].Node;
      Regions[Kept].Flags  = Regions[Index].Flags;
      KeptEnd = End;
      Kept++;
    }
  }

  return Kept;
}

/**
  Builds the hand-off.

  With a plan, its regions stay what they are, so that a kernel works in the same units whatever way it was booted; each that
  is not held must be memory, no matter whose. ZEROED stays only where the whole region is untouched and free. An arena that is not free as a
  whole is dropped, the others stay.

  Without a plan, regions follow from the memory map: one a range of memory, from FLATBOOT_LOWEST_REGION up, on node 0, without
  arenas and without any flag. Only the first and the last may begin or end within a section, so those between are cut to
  whole sections; no two share a section. What is left out by that, or because a table is full, is memory like any other: the
  kernel makes regions of its own for it, and filling them costs it some parallelism.

  The table keeps every rule that FlatbootValidateTable() checks.

  @param[in]     Input      What the hand-off follows from.
  @param[out]    Table      The hand-off, 8-byte aligned; overlaps no input. May be NULL if TableSize is 0.
  @param[in,out] TableSize  In: bytes that Table has room for. Out: bytes of the hand-off; with RETURN_BUFFER_TOO_SMALL, bytes
                            that surely hold it.
  @param[out]    Finding    FlatbootRuleNone, or the rule that is broken first.

  @retval RETURN_SUCCESS            The hand-off is in Table.
  @retval RETURN_INVALID_PARAMETER  Table is NULL, or Table or Plan is not 8-byte aligned; Finding is FlatbootRuleNone.
  @retval RETURN_BUFFER_TOO_SMALL   TableSize is how many bytes are needed; Finding is FlatbootRuleNone.
  @retval RETURN_COMPROMISED_DATA   The plan breaks a rule or does not fit the memory: Finding says how.
  @retval RETURN_NOT_FOUND          There is no plan and no memory to make a region of: Finding says so.
**/
RETURN_STATUS
EFIAPI
FlatbootBuildHandOff (
  IN     CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  OUT    VOID                           *Table  OPTIONAL,
  IN OUT UINTN                          *TableSize,
  OUT    FLATBOOT_FINDING               *Finding
  )
{
  CONST FLATBOOT_HANDOFF_HEADER  *Plan;
  FLATBOOT_HANDOFF_HEADER        *Header;
  RETURN_STATUS                  Status;
  UINTN                          Needed;

  ASSERT (Input != NULL);
  ASSERT (TableSize != NULL);
  ASSERT (Finding != NULL);
  ClearFinding (Finding);

  Plan = Input->Plan;
  if (Plan != NULL) {
    Status = FlatbootValidateTable (Plan, Input->PlanSize, Finding);
    if (!RETURN_ERROR (Status)) {
      Status = CheckPlan (Input, Plan, Finding);
    }

    if (RETURN_ERROR (Status)) {
      return Status;
    }

    Needed = Plan->Length;
  } else {
    Needed = RegionsFromMemory (Input, NULL);
    if (Needed == 0) {
      Report (Finding, FlatbootRuleNoMemory, FlatbootEntryNone, 0, 0, 0, 0);
      return RETURN_NOT_FOUND;
    }

    Needed = sizeof (*Header) + Needed * sizeof (FLATBOOT_HANDOFF_REGION);
  }

  if (*TableSize < Needed) {
    *TableSize = Needed;
    return RETURN_BUFFER_TOO_SMALL;
  }

  if ((Table == NULL) || !IS_MULTIPLE ((UINTN)Table, TABLE_ALIGN)) {
    return RETURN_INVALID_PARAMETER;
  }

  Header = Table;
  if (Plan != NULL) {
    AdaptPlan (Input, Plan, Header);
  } else {
    Header->RegionCount = RegionsFromMemory (Input, (FLATBOOT_HANDOFF_REGION *)(Header + 1));
    Header->RegionCount = CutToSections ((FLATBOOT_HANDOFF_REGION *)(Header + 1), Header->RegionCount);
    Header->ArenaCount  = 0;
  }

  *TableSize = FlatbootSealTable (Header);
  return FlatbootValidateTable (Header, *TableSize, Finding);
}
