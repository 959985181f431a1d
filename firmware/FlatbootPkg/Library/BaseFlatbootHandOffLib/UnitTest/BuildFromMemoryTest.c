/** @file
  Tests of FlatbootBuildHandOff() without a plan.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"

///
/// Most entries of a map here, and most regions that are made of it.
///
#define MOST_ENTRIES  6
#define MOST_REGIONS  4

///
/// A map, and the regions that must be made of it: entries that end at 0 and regions of length 0 are none.
///
typedef struct {
  MAP_ENTRY                  Map[MOST_ENTRIES];
  FLATBOOT_HANDOFF_REGION    Regions[MOST_REGIONS];
} MEMORY_CASE;

/**
  Builds hand-offs from maps and compares their regions.

  @param[in] Cases  Maps and regions.
  @param[in] Count  How many.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
HaveRegions (
  IN CONST MEMORY_CASE  *Cases,
  IN UINTN              Count
  )
{
  FLATBOOT_HANDOFF_HEADER  *Expected;
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  UINT32                   Regions;
  UINTN                    Entries;
  UINTN                    Index;

  for (Index = 0; Index < Count; Index++) {
    for (Entries = 0; (Entries < MOST_ENTRIES) && (Cases[Index].Map[Entries].End != 0); Entries++) {
    }

    for (Regions = 0; (Regions < MOST_REGIONS) && (Cases[Index].Regions[Regions].Length != 0); Regions++) {
    }

    UT_ASSERT_STATUS_EQUAL (MakeMemory (Cases[Index].Map, Entries, &Input), RETURN_SUCCESS);
    UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_SUCCESS);
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
    Expected = MakeTable (Cases[Index].Regions, Regions, NULL, 0);
    UT_ASSERT_EQUAL (Table->Length, Expected->Length);
    UT_ASSERT_MEM_EQUAL (Table, Expected, Expected->Length);
  }

  return UNIT_TEST_PASSED;
}

/**
  A PC's memory becomes the regions of a direct boot, from 1 MiB up, wherever the firmware sits in it.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
HasTheRegionsOfADirectBoot (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MEMORY_CASE  Cases[] = {
    {
      {
        { EfiConventionalMemory, 0,       0xA0000   },
        { EfiConventionalMemory, MIB,     512 * MIB },
        { EfiConventionalMemory, 4 * GIB, 68 * GIB  }
      },
      {
        { MIB,     511 * MIB, 0, 0 },
        { 4 * GIB, 64 * GIB,  0, 0 }
      }
    },
    {
      {
        { EfiBootServicesData,    0,         8 * MIB   },
        { EfiACPIMemoryNVS,       8 * MIB,   9 * MIB   },
        { EfiConventionalMemory,  9 * MIB,   500 * MIB },
        { EfiReservedMemoryType,  500 * MIB, 501 * MIB },
        { EfiRuntimeServicesCode, 501 * MIB, 512 * MIB },
        { EfiMemoryMappedIO,      512 * MIB, 4 * GIB   }
      },
      {
        { MIB,                    511 * MIB, 0, 0 }
      }
    },
    {
      {
        { EfiConventionalMemory,  4 * GIB,   5 * GIB   }
      },
      {
        { 4 * GIB,                GIB,       0, 0 }
      }
    }
  };

  return HaveRegions (Cases, ARRAY_SIZE (Cases));
}

/**
  A single MiB of high memory is a region too: the last may end within a section.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
KeepsOneMebibyteOfHighMemory (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MEMORY_CASE  Cases[] = {
    {
      {
        { EfiConventionalMemory, 0,       3 * GIB       },
        { EfiConventionalMemory, 4 * GIB, 4 * GIB + MIB }
      },
      {
        { MIB,     3 * GIB - MIB, 0, 0 },
        { 4 * GIB, MIB,           0, 0 }
      }
    }
  };

  return HaveRegions (Cases, ARRAY_SIZE (Cases));
}

/**
  Between the first and the last region there are only whole sections; what has none of them is left out.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
CutsTheMiddleToSections (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MEMORY_CASE  Cases[] = {
    {
      {
        { EfiConventionalMemory, MIB,            GIB - MIB      },
        { EfiConventionalMemory, 2 * GIB - MIB,  3 * GIB + MIB  },
        { EfiConventionalMemory, 4 * GIB - PAGE, 5 * GIB + PAGE }
      },
      {
        { MIB,            GIB - 2 * MIB,  0, 0 },
        { 2 * GIB,        GIB,            0, 0 },
        { 4 * GIB - PAGE, GIB + 2 * PAGE, 0, 0 }
      }
    },
    {
      {
        { EfiConventionalMemory, MIB,            GIB                          },
        { EfiConventionalMemory, 2 * GIB + PAGE, 2 * GIB + 2 * SECTION - PAGE },
        { EfiConventionalMemory, 4 * GIB,        5 * GIB                      }
      },
      {
        { MIB,     GIB - MIB, 0, 0 },
        { 4 * GIB, GIB,       0, 0 }
      }
    }
  };

  return HaveRegions (Cases, ARRAY_SIZE (Cases));
}

/**
  No section is shared: a region begins in another one than that in which the region before it ends.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SharesNoSection (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MEMORY_CASE  Cases[] = {
    //
    // The second begins where the first one's last section ends.
    //
    {
      {
        { EfiConventionalMemory, MIB,           GIB + MIB },
        { EfiConventionalMemory, GIB + 2 * MIB, 2 * GIB   }
      },
      {
        { MIB,           GIB,           0, 0 },
        { GIB + SECTION, GIB - SECTION, 0, 0 }
      }
    },
    //
    // All of the last is in the section where the one before ends, which is the last, and may end within a section, then.
    //
    {
      {
        { EfiConventionalMemory, MIB,               GIB               },
        { EfiConventionalMemory, 2 * GIB,           3 * GIB + MIB     },
        { EfiConventionalMemory, 3 * GIB + 2 * MIB, 3 * GIB + SECTION }
      },
      {
        { MIB,     GIB - MIB, 0, 0 },
        { 2 * GIB, GIB + MIB, 0, 0 }
      }
    },
    //
    // All are in one section.
    //
    {
      {
        { EfiConventionalMemory, MIB,     2 * MIB },
        { EfiConventionalMemory, 3 * MIB, 4 * MIB },
        { EfiConventionalMemory, 5 * MIB, 6 * MIB },
        { EfiConventionalMemory, 7 * MIB, SECTION }
      },
      {
        { MIB,                   MIB,               0, 0 }
      }
    },
    //
    // The one between is left out, and the last keeps off the first one's section nevertheless.
    //
    {
      {
        { EfiConventionalMemory, MIB,       100 * MIB },
        { EfiConventionalMemory, 101 * MIB, 110 * MIB },
        { EfiConventionalMemory, 111 * MIB, GIB       }
      },
      {
        { MIB,     99 * MIB,      0, 0 },
        { SECTION, GIB - SECTION, 0, 0 }
      }
    }
  };

  return HaveRegions (Cases, ARRAY_SIZE (Cases));
}

/**
  Without memory from 1 MiB up there is no hand-off, and the finding says so.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
NeedsMemory (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MAP_ENTRY   Maps[][2] = {
    {
      { EfiConventionalMemory, 0,   0xA0000 }, { EfiReservedMemoryType, 0xA0000, MIB     }
    },
    {
      { EfiMemoryMappedIO,     GIB, 2 * GIB }, { EfiUnusableMemory,     2 * GIB, 3 * GIB }
    }
  };
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  UINTN                    Index;

  for (Index = 0; Index < ARRAY_SIZE (Maps); Index++) {
    UT_ASSERT_STATUS_EQUAL (MakeMemory (Maps[Index], 2, &Input), RETURN_SUCCESS);
    UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_NOT_FOUND);
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNoMemory);
    UT_ASSERT_EQUAL (Table, NULL);
  }

  ZeroMem (&Input, sizeof (Input));
  UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_NOT_FOUND);
  UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNoMemory);
  return UNIT_TEST_PASSED;
}

/**
  Of more ranges than a table can hold, the lowest become regions.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
KeepsTheLowestRegions (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  MAP_ENTRY                *Map;
  UINTN                    Count;
  UINTN                    Index;

  Count = FLATBOOT_HANDOFF_MAX_REGIONS + 100;
  Map   = TestAllocate (Count * sizeof (*Map));
  for (Index = 0; Index < Count; Index++) {
    Map[Index].Type = EfiConventionalMemory;
    Map[Index].Base = GIB * (Index + 1);
    Map[Index].End  = GIB * (Index + 1) + SECTION + PAGE;
  }

  UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, Count, &Input), RETURN_SUCCESS);
  UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_SUCCESS);
  UT_ASSERT_EQUAL (Table->RegionCount, FLATBOOT_HANDOFF_MAX_REGIONS);
  for (Index = 0; Index < FLATBOOT_HANDOFF_MAX_REGIONS; Index++) {
    UT_ASSERT_EQUAL (FLATBOOT_HANDOFF_REGIONS (Table)[Index].Base, GIB * (Index + 1));
    UT_ASSERT_EQUAL (
      FLATBOOT_HANDOFF_REGIONS (Table)[Index].Length,
      ((Index == 0) || (Index == FLATBOOT_HANDOFF_MAX_REGIONS - 1)) ? SECTION + PAGE : SECTION
      );
  }

  return UNIT_TEST_PASSED;
}

/**
  Memory up to where addresses end is a region.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
ReachesTheTop (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MEMORY_CASE  Cases[] = {
    {
      {
        { EfiConventionalMemory, TOP - GIB - PAGE, TOP + GIB }
      },
      {
        { TOP - GIB - PAGE,      GIB + PAGE,       0, 0 }
      }
    }
  };

  return HaveRegions (Cases, ARRAY_SIZE (Cases));
}

/**
  A buffer that is too small is not written to, and the caller learns which size holds the hand-off.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SaysHowLargeItIs (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  //
  // Two regions, one of which the firmware has a part of.
  //
  STATIC CONST MAP_ENTRY   Map[] = {
    { EfiConventionalMemory, MIB,       512 * MIB },
    { EfiACPIMemoryNVS,      512 * MIB, 513 * MIB },
    { EfiConventionalMemory, 513 * MIB, GIB       },
    { EfiConventionalMemory, 4 * GIB,   5 * GIB   }
  };
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  UINT8                    *Buffer;
  UINTN                    Needed;
  UINTN                    Room;
  UINTN                    Size;
  UINTN                    Index;

  Needed = sizeof (FLATBOOT_HANDOFF_HEADER) + 2 * sizeof (FLATBOOT_HANDOFF_REGION);
  UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, ARRAY_SIZE (Map), &Input), RETURN_SUCCESS);
  for (Room = 0; Room < Needed; Room++) {
    Buffer = TestAllocate (Room);
    Size   = Room;
    UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_BUFFER_TOO_SMALL);
    UT_ASSERT_EQUAL (Size, Needed);
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
    for (Index = 0; Index < Room; Index++) {
      UT_ASSERT_EQUAL (Buffer[Index], 0xA5);
    }
  }

  for (Room = Needed; Room < Needed + 16; Room++) {
    Buffer = TestAllocate (Room);
    Size   = Room;
    UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_SUCCESS);
    UT_ASSERT_EQUAL (Size, Needed);
    for (Index = Needed; Index < Room; Index++) {
      UT_ASSERT_EQUAL (Buffer[Index], 0xA5);
    }
  }

  Buffer = TestAllocate (Needed + 8);
  Size   = Needed;
  UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer + 4, &Size, &Finding), RETURN_INVALID_PARAMETER);
  Size = Needed;
  UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, NULL, &Size, &Finding), RETURN_INVALID_PARAMETER);
  return UNIT_TEST_PASSED;
}

/**
  Says whether a region holds a section.

  @param[in] Table  A valid table.
  @param[in] Base   The section's first address.

  @retval TRUE   One does.
  @retval FALSE  None does.
**/
STATIC
BOOLEAN
HoldsSection (
  IN CONST FLATBOOT_HANDOFF_HEADER  *Table,
  IN UINT64                         Base
  )
{
  CONST FLATBOOT_HANDOFF_REGION  *Region;
  UINTN                          Index;

  for (Index = 0; Index < Table->RegionCount; Index++) {
    Region = &FLATBOOT_HANDOFF_REGIONS (Table)[Index];
    if ((Region->Base <= Base) && (Base + SECTION <= Region->Base + Region->Length)) {
      return TRUE;
    }
  }

  return FALSE;
}

/**
  Whatever the memory is, regions are nothing but memory, and each section that is all memory is in one.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
HasAllWholeSections (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  //
  // A map of pieces of 32 MiB: 4 a section, 64 sections.
  //
  STATIC CONST UINT64            Piece = SECTION / 4;
  BOOLEAN                        Memory[256];
  FLATBOOT_HANDOFF_HEADER        *Table;
  CONST FLATBOOT_HANDOFF_REGION  *Region;
  FLATBOOT_HAND_OFF_INPUT        Input;
  FLATBOOT_FINDING               Finding;
  MAP_ENTRY                      Map[ARRAY_SIZE (Memory)];
  RANDOM                         Random;
  UINT64                         Odds;
  UINTN                          Round;
  UINTN                          Index;
  UINTN                          At;
  UINTN                          Count;

  Random.State = 32;
  for (Round = 0; Round < 300; Round++) {
    //
    // A change of use every 2nd to every 40th piece.
    //
    Odds  = 2 + NextRandom (&Random, 39);
    Count = 0;
    for (Index = 0; Index < ARRAY_SIZE (Memory); Index++) {
      if ((Index == 0) || (NextRandom (&Random, Odds) == 0)) {
        Memory[Index] = (BOOLEAN)(NextRandom (&Random, 3) != 0);
      } else {
        Memory[Index] = Memory[Index - 1];
      }

      if (Memory[Index]) {
        Map[Count].Type = (NextRandom (&Random, 2) == 0) ? EfiRuntimeServicesData : EfiConventionalMemory;
        Map[Count].Base = GIB + Index * Piece;
        Map[Count].End  = GIB + (Index + 1) * Piece;
        Count++;
      }
    }

    if (Count == 0) {
      continue;
    }

    UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, Count, &Input), RETURN_SUCCESS);
    UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_SUCCESS);
    UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Table, Table->Length, &Finding), RETURN_SUCCESS);
    for (Index = 0; Index < Table->RegionCount; Index++) {
      Region = &FLATBOOT_HANDOFF_REGIONS (Table)[Index];
      UT_ASSERT_EQUAL (Region->Node, 0);
      UT_ASSERT_EQUAL (Region->Flags, 0);
      for (At = (UINTN)((Region->Base - GIB) / Piece); At < (Region->Base + Region->Length - GIB) / Piece; At++) {
        UT_ASSERT_TRUE (Memory[At]);
      }
    }

    for (Index = 0; Index < ARRAY_SIZE (Memory); Index += 4) {
      if (Memory[Index] && Memory[Index + 1] && Memory[Index + 2] && Memory[Index + 3]) {
        UT_ASSERT_TRUE (HoldsSection (Table, GIB + Index * Piece));
      }
    }
  }

  return UNIT_TEST_PASSED;
}

/**
  Adds the tests of this file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddBuildFromMemoryTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  )
{
  AddTest (Suite, "a PC has the regions of a direct boot", "Pc", HasTheRegionsOfADirectBoot);
  AddTest (Suite, "1 MiB of high memory is a region", "High", KeepsOneMebibyteOfHighMemory);
  AddTest (Suite, "the middle is cut to sections", "Middle", CutsTheMiddleToSections);
  AddTest (Suite, "no section is shared", "Shared", SharesNoSection);
  AddTest (Suite, "without memory there is no hand-off", "NoMemory", NeedsMemory);
  AddTest (Suite, "a full table has the lowest regions", "Most", KeepsTheLowestRegions);
  AddTest (Suite, "memory up to the top is a region", "Top", ReachesTheTop);
  AddTest (Suite, "small buffers are not written to", "Size", SaysHowLargeItIs);
  AddTest (Suite, "each whole section is in a region", "Random", HasAllWholeSections);
}
