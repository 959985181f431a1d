/** @file
  Tests of FlatbootBuildHandOff() with a plan.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"
#include "ContractTables.h"

///
/// A plan of two nodes.
///
STATIC CONST FLATBOOT_HANDOFF_REGION  mRegions[] = {
  { MIB,      GIB - MIB,  0, 0      },
  { 4 * GIB,  4 * GIB,    0, ZEROED },
  { 8 * GIB,  2 * GIB,    1, ZEROED },
  { 11 * GIB, GIB + PAGE, 1, ZEROED }
};

STATIC CONST FLATBOOT_HANDOFF_ARENA  mArenas[] = {
  { 6 * GIB,              16 * ARENA, 0, 0 },
  { 6 * GIB + 16 * ARENA, 8 * ARENA,  0, 0 },
  { 9 * GIB,              16 * ARENA, 1, 0 },
  { 11 * GIB,             4 * ARENA,  1, 0 }
};

///
/// Memory that holds it, free all of it but some below 1 GiB.
///
STATIC CONST MAP_ENTRY  mMemory[] = {
  { EfiConventionalMemory,  0,         0xA0000         },
  { EfiBootServicesCode,    MIB,       512 * MIB       },
  { EfiRuntimeServicesCode, 512 * MIB, 513 * MIB       },
  { EfiLoaderData,          513 * MIB, GIB             },
  { EfiConventionalMemory,  4 * GIB,   10 * GIB        },
  { EfiConventionalMemory,  11 * GIB,  12 * GIB + PAGE }
};

///
/// All of it.
///
STATIC CONST FLATBOOT_RANGE  mAll[] = {
  { 0, TOP }
};

/**
  Makes what a hand-off follows from: the plan above in the memory above with a range of some other type in it.

  @param[in]  Type            The range's type.
  @param[in]  Base            Its first address.
  @param[in]  Length          Bytes in it; 0 if there is none.
  @param[in]  Untouched       What is untouched.
  @param[in]  UntouchedCount  How many ranges that are.
  @param[out] Input           What the hand-off follows from.

  @return What FlatbootNormalizeMemoryMap() returned.
**/
STATIC
RETURN_STATUS
MakeInput (
  IN  UINT32                   Type,
  IN  UINT64                   Base,
  IN  UINT64                   Length,
  IN  CONST FLATBOOT_RANGE     *Untouched  OPTIONAL,
  IN  UINTN                    UntouchedCount,
  OUT FLATBOOT_HAND_OFF_INPUT  *Input
  )
{
  FLATBOOT_HANDOFF_HEADER  *Plan;
  MAP_ENTRY                Map[ARRAY_SIZE (mMemory) + 2];
  RETURN_STATUS            Status;
  UINTN                    Index;
  UINTN                    Count;

  Count = 0;
  for (Index = 0; Index < ARRAY_SIZE (mMemory); Index++) {
    Map[Count] = mMemory[Index];
    if ((Length != 0) && (mMemory[Index].Base <= Base) && (Base < mMemory[Index].End)) {
      Map[Count].End = Base;
      Count++;
      Map[Count].Type = Type;
      Map[Count].Base = Base;
      Map[Count].End  = Base + Length;
      Count++;
      Map[Count].Type = mMemory[Index].Type;
      Map[Count].Base = Base + Length;
      Map[Count].End  = mMemory[Index].End;
    }

    Count++;
  }

  Plan                  = MakeTable (mRegions, ARRAY_SIZE (mRegions), mArenas, ARRAY_SIZE (mArenas));
  Status                = MakeMemory (Map, Count, Input);
  Input->Plan           = Plan;
  Input->PlanSize       = Plan->Length;
  Input->Untouched      = Untouched;
  Input->UntouchedCount = UntouchedCount;
  return Status;
}

/**
  Builds a hand-off and says which of the plan's statements are left.

  @param[in]  Input   What it follows from; its plan is the one above.
  @param[out] Zeroed  A bit for each region that is ZEROED, bit 0 for the first.
  @param[out] Arenas  A bit for each arena that is left.

  @retval TRUE   All that must not change is as the plan has it, and the hand-off keeps every rule.
  @retval FALSE  It is not.
**/
STATIC
BOOLEAN
Left (
  IN  CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  OUT UINT32                         *Zeroed,
  OUT UINT32                         *Arenas
  )
{
  FLATBOOT_HANDOFF_HEADER       *Table;
  FLATBOOT_HANDOFF_REGION       Region;
  CONST FLATBOOT_HANDOFF_ARENA  *Arena;
  FLATBOOT_FINDING              Finding;
  UINTN                         Index;
  UINTN                         Planned;

  *Zeroed = 0;
  *Arenas = 0;
  if (RETURN_ERROR (Build (Input, &Table, &Finding)) || (Finding.Rule != FlatbootRuleNone) ||
      RETURN_ERROR (FlatbootValidateTable (Table, Table->Length, &Finding)) ||
      (Table->RegionCount != ARRAY_SIZE (mRegions)))
  {
    return FALSE;
  }

  for (Index = 0; Index < Table->RegionCount; Index++) {
    Region        = FLATBOOT_HANDOFF_REGIONS (Table)[Index];
    *Zeroed      |= ((Region.Flags & ZEROED) != 0) ? 1U << Index : 0;
    Region.Flags |= mRegions[Index].Flags & ZEROED;
    if (CompareMem (&Region, &mRegions[Index], sizeof (Region)) != 0) {
      return FALSE;
    }
  }

  for (Index = 0; Index < Table->ArenaCount; Index++) {
    Arena = &FLATBOOT_HANDOFF_ARENAS (Table)[Index];
    for (Planned = 0; (Planned < ARRAY_SIZE (mArenas)) && (mArenas[Planned].Base != Arena->Base); Planned++) {
    }

    if ((Planned == ARRAY_SIZE (mArenas)) || (CompareMem (Arena, &mArenas[Planned], sizeof (*Arena)) != 0)) {
      return FALSE;
    }

    *Arenas |= 1U << Planned;
  }

  return TRUE;
}

/**
  If the firmware has touched nothing, the plan is the hand-off, to the byte; with its held regions, which are no memory.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
HandsOnWhatIsUntouched (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MAP_ENTRY   All = { EfiConventionalMemory, 0, 90 * SECTION };
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;

  UT_ASSERT_STATUS_EQUAL (MakeMemory (&All, 1, &Input), RETURN_SUCCESS);
  Input.Plan           = mSampleTable;
  Input.PlanSize       = sizeof (mSampleTable);
  Input.Untouched      = mAll;
  Input.UntouchedCount = 1;
  UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_SUCCESS);
  UT_ASSERT_EQUAL (Table->Length, sizeof (mSampleTable));
  UT_ASSERT_MEM_EQUAL (Table, mSampleTable, sizeof (mSampleTable));
  return UNIT_TEST_PASSED;
}

/**
  Content is taken back where nobody says that it is untouched; nothing else of a region is.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
TakesBackContent (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HAND_OFF_INPUT  Input;
  UINT32                   Zeroed;
  UINT32                   Arenas;

  UT_ASSERT_STATUS_EQUAL (MakeInput (0, 0, 0, NULL, 0, &Input), RETURN_SUCCESS);
  UT_ASSERT_TRUE (Left (&Input, &Zeroed, &Arenas));
  UT_ASSERT_EQUAL (Zeroed, 0);
  UT_ASSERT_EQUAL (Arenas, 0xF);
  return UNIT_TEST_PASSED;
}

/**
  A region stays ZEROED if ranges that touch or overlap, in whatever order, are all of it together.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
KeepsContentThatIsUntouched (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    FLATBOOT_RANGE    Untouched[4];
    UINT32            Zeroed;
  } Cases[] = {
    { { { 0, TOP } }, 0xE },
    { { { 0, MAX_UINT64 } }, 0xE },
    { { { GIB, MAX_UINT64 } }, 0xE },
    { { { 4 * GIB, 4 * GIB } }, 0x2 },
    { { { 8 * GIB, 2 * GIB } }, 0x4 },
    { { { 11 * GIB, GIB + PAGE } }, 0x8 },
    { { { 11 * GIB, GIB } }, 0x0 },
    { { { 4 * GIB + PAGE, 4 * GIB } }, 0x0 },
    { { { 4 * GIB, 4 * GIB - 1 } }, 0x0 },
    {
      { { 6 * GIB, 2 * GIB }, { 5 * GIB, GIB }, { 4 * GIB, GIB } },
      0x2
    },
    {
      { { 6 * GIB, 2 * GIB }, { 4 * GIB, GIB }, { 4 * GIB, 2 * GIB + PAGE } },
      0x2
    },
    {
      { { 6 * GIB, 2 * GIB }, { 5 * GIB + PAGE, GIB }, { 4 * GIB, GIB } },
      0x0
    },
    {
      { { 5 * GIB, 5 * GIB }, { 4 * GIB, 0 }, { 0, 4 * GIB }, { 4 * GIB, GIB } },
      0x6
    },
    {
      { { 6 * GIB, ARENA * 20 }, { 6 * GIB + ARENA * 20, ARENA * 4 } },
      0x0
    },
    {
      { { 6 * GIB + ARENA * 17, ARENA * 20 } },
      0x0
    }
  };
  FLATBOOT_HAND_OFF_INPUT  Input;
  UINT32                   Zeroed;
  UINT32                   Arenas;
  UINTN                    Index;

  for (Index = 0; Index < ARRAY_SIZE (Cases); Index++) {
    UT_ASSERT_STATUS_EQUAL (MakeInput (0, 0, 0, Cases[Index].Untouched, 4, &Input), RETURN_SUCCESS);
    UT_ASSERT_TRUE (Left (&Input, &Zeroed, &Arenas));
    UT_ASSERT_EQUAL (Zeroed, Cases[Index].Zeroed);
    UT_ASSERT_EQUAL (Arenas, 0xF);
  }

  return UNIT_TEST_PASSED;
}

/**
  What the firmware owns it has written to, whatever the caller believes: one page costs the region its ZEROED.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
BelievesTheMapMoreThanTheCaller (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    UINT64    Base;
    UINT32    Zeroed;
  } Pages[] = {
    { 4 * GIB + PAGE,     0xC },
    { 8 * GIB - 2 * PAGE, 0xC },
    { 9 * GIB - PAGE,     0xA },
    { 12 * GIB - PAGE,    0x6 }
  };
  FLATBOOT_HAND_OFF_INPUT  Input;
  UINT32                   Zeroed;
  UINT32                   Arenas;
  UINTN                    Index;

  for (Index = 0; Index < ARRAY_SIZE (Pages); Index++) {
    UT_ASSERT_STATUS_EQUAL (MakeInput (EfiACPIMemoryNVS, Pages[Index].Base, PAGE, mAll, 1, &Input), RETURN_SUCCESS);
    UT_ASSERT_TRUE (Left (&Input, &Zeroed, &Arenas));
    UT_ASSERT_EQUAL (Zeroed, Pages[Index].Zeroed);
    UT_ASSERT_EQUAL (Arenas, 0xF);
  }

  return UNIT_TEST_PASSED;
}

/**
  An arena of which the firmware keeps a page is dropped, and the others stay.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
DropsArenasThatAreNotFree (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    UINT64    Base;
    UINT32    Arenas;
  } Pages[] = {
    { 6 * GIB + PAGE,                  0xE },
    { 6 * GIB + 16 * ARENA - PAGE,     0xE },
    { 6 * GIB + 16 * ARENA + PAGE,     0xD },
    { 9 * GIB + PAGE,                  0xB },
    { 9 * GIB + 16 * ARENA,            0xF },
    { 11 * GIB + PAGE,                 0x7 },
    { 6 * GIB + 16 * ARENA - 2 * PAGE, 0xE }
  };
  STATIC CONST UINT32      Types[] = { EfiRuntimeServicesData, EfiACPIReclaimMemory, EfiReservedMemoryType, 0x80000000 };
  FLATBOOT_HAND_OFF_INPUT  Input;
  UINT32                   Zeroed;
  UINT32                   Arenas;
  UINTN                    Index;
  UINTN                    Type;

  for (Index = 0; Index < ARRAY_SIZE (Pages); Index++) {
    for (Type = 0; Type < ARRAY_SIZE (Types); Type++) {
      UT_ASSERT_STATUS_EQUAL (MakeInput (Types[Type], Pages[Index].Base, PAGE, mAll, 1, &Input), RETURN_SUCCESS);
      UT_ASSERT_TRUE (Left (&Input, &Zeroed, &Arenas));
      UT_ASSERT_EQUAL (Arenas, Pages[Index].Arenas);
    }

    //
    // What the OS has back at once costs nothing.
    //
    UT_ASSERT_STATUS_EQUAL (MakeInput (EfiBootServicesData, Pages[Index].Base, PAGE, mAll, 1, &Input), RETURN_SUCCESS);
    UT_ASSERT_TRUE (Left (&Input, &Zeroed, &Arenas));
    UT_ASSERT_EQUAL (Arenas, 0xF);
  }

  //
  // Two arenas at once.
  //
  UT_ASSERT_STATUS_EQUAL (
    MakeInput (EfiACPIMemoryNVS, 6 * GIB + 16 * ARENA - PAGE, 2 * PAGE, mAll, 1, &Input),
    RETURN_SUCCESS
    );
  UT_ASSERT_TRUE (Left (&Input, &Zeroed, &Arenas));
  UT_ASSERT_EQUAL (Arenas, 0xC);
  return UNIT_TEST_PASSED;
}

/**
  A region with a hole in it, or with something that is no memory, does not fit: the finding says where.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsRegionsThatAreNoMemory (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    UINT64    Base;
    UINTN     Region;
  } Pages[] = {
    { MIB + PAGE,      0 },
    { GIB - 2 * PAGE,  0 },
    { 4 * GIB + PAGE,  1 },
    { 8 * GIB - PAGE,  1 },
    { 8 * GIB,         2 },
    { 11 * GIB + PAGE, 3 },
    { 12 * GIB - PAGE, 3 }
  };
  STATIC CONST UINT32      Types[] = { EfiMemoryMappedIO, EfiUnusableMemory, EfiPersistentMemory };
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  UINTN                    Index;
  UINTN                    Type;

  for (Index = 0; Index < ARRAY_SIZE (Pages); Index++) {
    for (Type = 0; Type < ARRAY_SIZE (Types); Type++) {
      UT_ASSERT_STATUS_EQUAL (MakeInput (Types[Type], Pages[Index].Base, PAGE, mAll, 1, &Input), RETURN_SUCCESS);
      UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_COMPROMISED_DATA);
      UT_ASSERT_EQUAL (Table, NULL);
      UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNotMemory);
      UT_ASSERT_EQUAL (Finding.Entry, FlatbootEntryRegion);
      UT_ASSERT_EQUAL (Finding.Index, Pages[Index].Region);
      UT_ASSERT_EQUAL (Finding.Values[0], mRegions[Pages[Index].Region].Base);
      UT_ASSERT_EQUAL (Finding.Values[1], mRegions[Pages[Index].Region].Length);
      UT_ASSERT_EQUAL (Finding.Values[2], Pages[Index].Base);
    }
  }

  return UNIT_TEST_PASSED;
}

/**
  A region that begins before memory does, ends after it, or has none, does not fit.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsRegionsPastMemory (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    MAP_ENTRY    Last;
    UINTN        Count;
    UINTN        Region;
    UINT64       Address;
  } Cases[] = {
    { { EfiConventionalMemory, 11 * GIB,        12 * GIB + 2 * PAGE }, 6, 4, 0                },
    { { EfiConventionalMemory, 11 * GIB,        12 * GIB            }, 6, 3, 12 * GIB         },
    { { EfiConventionalMemory, 11 * GIB + PAGE, 12 * GIB + PAGE     }, 6, 3, 11 * GIB         },
    { { EfiConventionalMemory, 20 * GIB,        21 * GIB            }, 6, 3, 11 * GIB         },
    { { EfiConventionalMemory, 4 * GIB,         10 * GIB            }, 5, 3, 11 * GIB         },
    { { EfiConventionalMemory, 4 * GIB,         9 * GIB             }, 5, 2, 9 * GIB          },
    { { EfiConventionalMemory, 4 * GIB,         5 * GIB             }, 5, 1, 5 * GIB          },
    { { EfiConventionalMemory, 0,               0xA0000             }, 1, 0, MIB              }
  };
  FLATBOOT_HANDOFF_HEADER  *Plan;
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  MAP_ENTRY                Map[ARRAY_SIZE (mMemory)];
  UINTN                    Index;

  Plan = MakeTable (mRegions, ARRAY_SIZE (mRegions), mArenas, ARRAY_SIZE (mArenas));
  for (Index = 0; Index < ARRAY_SIZE (Cases); Index++) {
    CopyMem (Map, mMemory, sizeof (Map));
    Map[Cases[Index].Count - 1] = Cases[Index].Last;
    UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, Cases[Index].Count, &Input), RETURN_SUCCESS);
    Input.Plan     = Plan;
    Input.PlanSize = Plan->Length;
    if (Cases[Index].Region == ARRAY_SIZE (mRegions)) {
      UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_SUCCESS);
    } else {
      UT_ASSERT_STATUS_EQUAL (Build (&Input, &Table, &Finding), RETURN_COMPROMISED_DATA);
      UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNotMemory);
      UT_ASSERT_EQUAL (Finding.Index, Cases[Index].Region);
      UT_ASSERT_EQUAL (Finding.Values[2], Cases[Index].Address);
    }
  }

  return UNIT_TEST_PASSED;
}

/**
  A plan that breaks a rule is refused by that rule, before anything is written.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
RefusesBrokenPlans (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  FLATBOOT_FINDING         Expected;
  UINT8                    *Buffer;
  UINT8                    *Plan;
  UINTN                    Size;
  UINTN                    Byte;
  UINTN                    Index;

  UT_ASSERT_STATUS_EQUAL (MakeInput (0, 0, 0, mAll, 1, &Input), RETURN_SUCCESS);
  Plan   = CopyMem (TestAllocate (Input.PlanSize), Input.Plan, Input.PlanSize);
  Buffer = TestAllocate (Input.PlanSize);
  for (Byte = 0; Byte < Input.PlanSize; Byte++) {
    Plan[Byte] ^= 0x10;
    Input.Plan  = Plan;
    Size        = Input.PlanSize;
    UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Plan, Size, &Expected), RETURN_COMPROMISED_DATA);
    UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_COMPROMISED_DATA);
    UT_ASSERT_EQUAL (Finding.Rule, Expected.Rule);
    UT_ASSERT_EQUAL (Size, Input.PlanSize);
    for (Index = 0; Index < Size; Index++) {
      UT_ASSERT_EQUAL (Buffer[Index], 0xA5);
    }

    Plan[Byte] ^= 0x10;
  }

  Input.PlanSize = Size - 1;
  UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_COMPROMISED_DATA);
  UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleTruncated);
  Input.Plan = Plan + 1;
  UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_INVALID_PARAMETER);
  return UNIT_TEST_PASSED;
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
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  UINT8                    *Buffer;
  UINTN                    Room;
  UINTN                    Size;
  UINTN                    Index;

  UT_ASSERT_STATUS_EQUAL (MakeInput (EfiACPIMemoryNVS, 9 * GIB, PAGE, mAll, 1, &Input), RETURN_SUCCESS);
  for (Room = 0; Room < Input.PlanSize; Room++) {
    Buffer = TestAllocate (Room);
    Size   = Room;
    UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_BUFFER_TOO_SMALL);
    UT_ASSERT_EQUAL (Size, Input.PlanSize);
    for (Index = 0; Index < Room; Index++) {
      UT_ASSERT_EQUAL (Buffer[Index], 0xA5);
    }
  }

  //
  // The hand-off has an arena less than the plan.
  //
  Buffer = TestAllocate (Input.PlanSize);
  Size   = Input.PlanSize;
  UT_ASSERT_STATUS_EQUAL (FlatbootBuildHandOff (&Input, Buffer, &Size, &Finding), RETURN_SUCCESS);
  UT_ASSERT_EQUAL (Size, Input.PlanSize - sizeof (FLATBOOT_HANDOFF_ARENA));
  UT_ASSERT_EQUAL (((FLATBOOT_HANDOFF_HEADER *)Buffer)->Length, Size);
  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Buffer, Size, &Finding), RETURN_SUCCESS);
  return UNIT_TEST_PASSED;
}

/**
  Plans with fields of any value, in any memory, are refused with a finding or become a hand-off that keeps every rule.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SurvivesAnyPlan (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST UINT32  Types[] = { EfiConventionalMemory, EfiConventionalMemory, EfiACPIMemoryNVS, EfiMemoryMappedIO };
  STATIC CONST UINT64  Steps[] = { 1, PAGE, ARENA, SECTION, GIB };
  FLATBOOT_HANDOFF_HEADER  *Plan;
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_FINDING         Finding;
  FLATBOOT_RANGE           Range;
  RETURN_STATUS            Status;
  MAP_ENTRY                Map[24];
  RANDOM                   Random;
  UINT64                   At;
  UINTN                    Outcomes[3];
  UINTN                    Round;
  UINTN                    Index;

  Random.State = 52;
  ZeroMem (Outcomes, sizeof (Outcomes));
  for (Round = 0; Round < 20000; Round++) {
    At = 0;
    for (Index = 0; Index < ARRAY_SIZE (Map); Index++) {
      Map[Index].Type = Types[NextRandom (&Random, ARRAY_SIZE (Types) - Round % 2)];
      Map[Index].Base = At;
      At             += SECTION * (1 + NextRandom (&Random, 12));
      Map[Index].End  = At;
    }

    UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, ARRAY_SIZE (Map), &Input), RETURN_SUCCESS);
    Plan = CopyMem (TestAllocate (sizeof (mSampleTable)), mSampleTable, sizeof (mSampleTable));
    for (Index = NextRandom (&Random, 3); Index > 0; Index--) {
      At                    = NextRandom (&Random, sizeof (mSampleTable) / 4);
      ((UINT32 *)Plan)[At] += (UINT32)(Steps[NextRandom (&Random, ARRAY_SIZE (Steps))] * (NextRandom (&Random, 5) - 2));
    }

    Input.Plan           = Plan;
    Input.PlanSize       = sizeof (mSampleTable);
    Range.Base           = SECTION * NextRandom (&Random, 100);
    Range.Length         = SECTION * NextRandom (&Random, 100);
    Input.Untouched      = &Range;
    Input.UntouchedCount = 1;
    Status               = FlatbootValidateTable (Plan, Input.PlanSize, &Finding);
    if (Finding.Rule == FlatbootRuleCrc) {
      Plan->Crc32c = (UINT32)Finding.Values[1];
    }

    Status = Build (&Input, &Table, &Finding);
    if (Status == RETURN_COMPROMISED_DATA) {
      UT_ASSERT_NOT_EQUAL (Finding.Rule, FlatbootRuleNone);
      Outcomes[(Finding.Rule == FlatbootRuleNotMemory) ? 1 : 2]++;
    } else {
      UT_ASSERT_STATUS_EQUAL (Status, RETURN_SUCCESS);
      UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Table, Table->Length, &Finding), RETURN_SUCCESS);
      UT_ASSERT_EQUAL (Table->RegionCount, Plan->RegionCount);
      UT_ASSERT_TRUE (Table->ArenaCount <= Plan->ArenaCount);
      Outcomes[0]++;
    }
  }

  //
  // Each of the three comes up: taken, not memory, broken.
  //
  for (Index = 0; Index < ARRAY_SIZE (Outcomes); Index++) {
    UT_ASSERT_TRUE (Outcomes[Index] > 100);
  }

  return UNIT_TEST_PASSED;
}

/**
  Adds the tests of this file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddBuildFromPlanTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  )
{
  AddTest (Suite, "an untouched plan is handed on to the byte", "Untouched", HandsOnWhatIsUntouched);
  AddTest (Suite, "content that may be touched is taken back", "Touched", TakesBackContent);
  AddTest (Suite, "content that is untouched is kept", "Kept", KeepsContentThatIsUntouched);
  AddTest (Suite, "what the firmware owns is touched", "Owned", BelievesTheMapMoreThanTheCaller);
  AddTest (Suite, "arenas that are not free are dropped", "Arenas", DropsArenasThatAreNotFree);
  AddTest (Suite, "a region over a hole does not fit", "Hole", FindsRegionsThatAreNoMemory);
  AddTest (Suite, "a region past memory does not fit", "Past", FindsRegionsPastMemory);
  AddTest (Suite, "broken plans are refused", "Broken", RefusesBrokenPlans);
  AddTest (Suite, "small buffers are not written to", "Size", SaysHowLargeItIs);
  AddTest (Suite, "any plan in any memory has an outcome", "Random", SurvivesAnyPlan);
}
