/** @file
  Tests of FlatbootValidateTable() and FlatbootSealTable(): they are the contract's, to the byte and to the word.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"
#include "ContractTables.h"

/**
  Copies the sample table.

  @param[in] Bytes  How many bytes of it, at most all.

  @return The copy: as many bytes, and no byte after them.
**/
STATIC
VOID *
CopySample (
  IN UINTN  Bytes
  )
{
  return CopyMem (TestAllocate (Bytes), mSampleTable, Bytes);
}

/**
  Tables that the VMM encoded keep every rule, whatever follows them.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
TakesWhatTheVmmEncodes (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  UINT8             *Longer;

  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (mSmallestTable, sizeof (mSmallestTable), &Finding), RETURN_SUCCESS);
  UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (mSampleTable, sizeof (mSampleTable), &Finding), RETURN_SUCCESS);
  UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);

  Longer = TestAllocate (sizeof (mSampleTable) + 1);
  CopyMem (Longer, mSampleTable, sizeof (mSampleTable));
  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Longer, sizeof (mSampleTable) + 1, &Finding), RETURN_SUCCESS);
  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (mSampleTable, MAX_UINTN, &Finding), RETURN_SUCCESS);
  return UNIT_TEST_PASSED;
}

/**
  The same entries become the same bytes as in the VMM, whatever the header held before.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SealsAsTheVmmDoes (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HANDOFF_HEADER        *Table;
  CONST FLATBOOT_HANDOFF_HEADER  *Sample;

  Sample = (CONST FLATBOOT_HANDOFF_HEADER *)mSampleTable;
  Table  = CopySample (sizeof (mSampleTable));
  SetMem (Table, sizeof (*Table), 0xA5);
  Table->RegionCount = Sample->RegionCount;
  Table->ArenaCount  = Sample->ArenaCount;
  UT_ASSERT_EQUAL (FlatbootSealTable (Table), sizeof (mSampleTable));
  UT_ASSERT_MEM_EQUAL (Table, mSampleTable, sizeof (mSampleTable));

  Sample = (CONST FLATBOOT_HANDOFF_HEADER *)mSmallestTable;
  Table  = MakeTable (FLATBOOT_HANDOFF_REGIONS (Sample), 1, NULL, 0);
  UT_ASSERT_EQUAL (Table->Length, sizeof (mSmallestTable));
  UT_ASSERT_MEM_EQUAL (Table, mSmallestTable, sizeof (mSmallestTable));
  return UNIT_TEST_PASSED;
}

/**
  Entries are where the VMM puts them: the sample's have the values that it gave them.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsEntriesWhereTheyAre (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  CONST FLATBOOT_HANDOFF_HEADER  *Table;
  CONST FLATBOOT_HANDOFF_REGION  *Regions;
  CONST FLATBOOT_HANDOFF_ARENA   *Arenas;

  Table   = (CONST FLATBOOT_HANDOFF_HEADER *)mSampleTable;
  Regions = FLATBOOT_HANDOFF_REGIONS (Table);
  Arenas  = FLATBOOT_HANDOFF_ARENAS (Table);
  UT_ASSERT_EQUAL (Table->RegionCount, 8);
  UT_ASSERT_EQUAL (Table->ArenaCount, 3);
  UT_ASSERT_EQUAL (Table->Length, sizeof (mSampleTable));
  UT_ASSERT_EQUAL (Regions[0].Base, MIB);
  UT_ASSERT_EQUAL (Regions[0].Length, 4 * SECTION - MIB);
  UT_ASSERT_EQUAL (Regions[0].Flags, 0);
  UT_ASSERT_EQUAL (Regions[5].Base, 80 * SECTION + 4 * PAGE);
  UT_ASSERT_EQUAL (Regions[5].Node, 1);
  UT_ASSERT_EQUAL (Regions[7].Flags, FLATBOOT_HANDOFF_REGION_HELD);
  UT_ASSERT_EQUAL (Arenas[1].Base, 33 * SECTION + 4 * ARENA);
  UT_ASSERT_EQUAL (Arenas[1].Length, 2 * ARENA);
  UT_ASSERT_EQUAL (Arenas[2].Node, 1);
  return UNIT_TEST_PASSED;
}

/**
  The table with the most entries keeps every rule, and its checksum is the VMM's.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
TakesTheLargestTable (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HANDOFF_REGION  *Regions;
  FLATBOOT_HANDOFF_ARENA   *Arenas;
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_FINDING         Finding;
  UINTN                    Index;

  Regions = AllocateZeroPool (FLATBOOT_HANDOFF_MAX_REGIONS * sizeof (*Regions));
  Arenas  = AllocateZeroPool (FLATBOOT_HANDOFF_MAX_ARENAS * sizeof (*Arenas));
  UT_ASSERT_TRUE ((Regions != NULL) && (Arenas != NULL));
  for (Index = 0; Index < FLATBOOT_HANDOFF_MAX_REGIONS; Index++) {
    Regions[Index].Base   = Index * SECTION;
    Regions[Index].Length = SECTION;
  }

  for (Index = 0; Index < FLATBOOT_HANDOFF_MAX_ARENAS; Index++) {
    Arenas[Index].Base   = Index * ARENA;
    Arenas[Index].Length = ARENA;
  }

  Table = MakeTable (Regions, FLATBOOT_HANDOFF_MAX_REGIONS, Arenas, FLATBOOT_HANDOFF_MAX_ARENAS);
  FreePool (Regions);
  FreePool (Arenas);
  UT_ASSERT_EQUAL (Table->Length, 40 + 4096 * 24 + 4096 * 24);
  UT_ASSERT_EQUAL (Table->Crc32c, LARGEST_TABLE_CRC);
  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Table, Table->Length, &Finding), RETURN_SUCCESS);
  return UNIT_TEST_PASSED;
}

/**
  Each field of a table, set to wrong values and to right ones, has the contract's verdict, in the contract's words; and every
  rule for tables is broken by one of them.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
JudgesAsTheContractDoes (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  CONST CONTRACT_CASE      *Case;
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_FINDING         Finding;
  RETURN_STATUS            Status;
  CHAR8                    Text[FLATBOOT_FINDING_TEXT_SIZE];
  BOOLEAN                  Broken[FlatbootRuleMax];
  UINTN                    Index;
  UINTN                    Edit;

  ZeroMem (Broken, sizeof (Broken));
  for (Index = 0; Index < ARRAY_SIZE (mContractCases); Index++) {
    Case  = &mContractCases[Index];
    Table = CopySample (sizeof (mSampleTable));
    for (Edit = 0; Edit < ARRAY_SIZE (Case->Edits); Edit++) {
      CopyMem ((UINT8 *)Table + Case->Edits[Edit].Offset, &Case->Edits[Edit].Value, Case->Edits[Edit].Size);
    }

    Status = FlatbootValidateTable (Table, sizeof (mSampleTable), &Finding);
    if (Case->Sealed && (Finding.Rule == FlatbootRuleCrc)) {
      Table->Crc32c = (UINT32)Finding.Values[1];
    }

    Table  = CopyMem (TestAllocate (Case->Bytes), Table, Case->Bytes);
    Status = FlatbootValidateTable (Table, Case->Bytes, &Finding);
    FlatbootFindingToAscii (&Finding, Text, sizeof (Text));
    if (Case->Verdict == NULL) {
      if (RETURN_ERROR (Status) || (Finding.Rule != FlatbootRuleNone)) {
        UT_LOG_ERROR ("case %d: must be taken: %a\n", Index, Text);
      }

      UT_ASSERT_STATUS_EQUAL (Status, RETURN_SUCCESS);
      UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
    } else {
      if (AsciiStrCmp (Text + AsciiStrLen ("plan: "), Case->Verdict) != 0) {
        UT_LOG_ERROR ("case %d: must be: %a\n  and is: %a\n", Index, Case->Verdict, Text);
      }

      UT_ASSERT_STATUS_EQUAL (Status, RETURN_COMPROMISED_DATA);
      UT_ASSERT_EQUAL (AsciiStrnCmp (Text, "plan: ", AsciiStrLen ("plan: ")), 0);
      UT_ASSERT_EQUAL (AsciiStrCmp (Text + AsciiStrLen ("plan: "), Case->Verdict), 0);
      Broken[Finding.Rule] = TRUE;
    }
  }

  for (Index = FlatbootRuleTruncated; Index <= FlatbootRuleOutside; Index++) {
    UT_ASSERT_TRUE (Broken[Index]);
  }

  return UNIT_TEST_PASSED;
}

/**
  A table with any one bit turned over breaks a rule.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsEveryTurnedBit (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  UINT8             *Table;
  UINTN             Bit;

  Table = CopySample (sizeof (mSampleTable));
  for (Bit = 0; Bit < 8 * sizeof (mSampleTable); Bit++) {
    Table[Bit / 8] ^= (UINT8)(1 << Bit % 8);
    UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Table, sizeof (mSampleTable), &Finding), RETURN_COMPROMISED_DATA);
    UT_ASSERT_NOT_EQUAL (Finding.Rule, FlatbootRuleNone);
    Table[Bit / 8] ^= (UINT8)(1 << Bit % 8);
  }

  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Table, sizeof (mSampleTable), &Finding), RETURN_SUCCESS);
  return UNIT_TEST_PASSED;
}

/**
  A table that is cut off anywhere is truncated, and nothing behind its end is looked at.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsEveryCut (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  UINTN             Bytes;

  for (Bytes = 0; Bytes < sizeof (mSampleTable); Bytes++) {
    UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (CopySample (Bytes), Bytes, &Finding), RETURN_COMPROMISED_DATA);
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleTruncated);
    UT_ASSERT_EQUAL (Finding.Values[0], Bytes);
    UT_ASSERT_EQUAL (Finding.Values[1], (Bytes < 40) ? 40 : sizeof (mSampleTable));
  }

  return UNIT_TEST_PASSED;
}

/**
  What cannot be a table by its address is the caller's mistake, not the table's.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
RefusesUnalignedTables (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  UINT8             *Table;
  UINTN             Shift;

  for (Shift = 1; Shift < 8; Shift++) {
    Table = TestAllocate (Shift + sizeof (mSampleTable));
    CopyMem (Table + Shift, mSampleTable, sizeof (mSampleTable));
    SetMem (&Finding, sizeof (Finding), 0xA5);
    UT_ASSERT_STATUS_EQUAL (
      FlatbootValidateTable (Table + Shift, sizeof (mSampleTable), &Finding),
      RETURN_INVALID_PARAMETER
      );
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
  }

  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (NULL, 0, &Finding), RETURN_INVALID_PARAMETER);
  return UNIT_TEST_PASSED;
}

/**
  Adds the tests of this file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddTableTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  )
{
  AddTest (Suite, "tables that the VMM encodes are taken", "VmmTables", TakesWhatTheVmmEncodes);
  AddTest (Suite, "sealed tables have the VMM's bytes", "Seal", SealsAsTheVmmDoes);
  AddTest (Suite, "entries are where the VMM puts them", "Entries", FindsEntriesWhereTheyAre);
  AddTest (Suite, "the largest table is taken", "Largest", TakesTheLargestTable);
  AddTest (Suite, "each changed field has the contract's verdict", "Contract", JudgesAsTheContractDoes);
  AddTest (Suite, "every turned bit is found", "Bits", FindsEveryTurnedBit);
  AddTest (Suite, "every cut is found", "Cuts", FindsEveryCut);
  AddTest (Suite, "unaligned tables are refused", "Alignment", RefusesUnalignedTables);
}
