/** @file
  Tests of FlatbootFindingToAscii(). That the words are the contract's is tested with the tables.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"

/**
  Makes the finding with the longest line of a rule.

  @param[out] Finding  The finding.
  @param[in]  Rule     The rule.
**/
STATIC
VOID
LongestFinding (
  OUT FLATBOOT_FINDING  *Finding,
  IN  FLATBOOT_RULE     Rule
  )
{
  SetMem (Finding, sizeof (*Finding), 0xFF);
  Finding->Rule  = Rule;
  Finding->Entry = FlatbootEntryDescriptor;
}

/**
  The line of every rule fits the size that callers are told, whatever its numbers.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FitsTheSizeThatCallersAreTold (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  CHAR8             Text[2 * FLATBOOT_FINDING_TEXT_SIZE];
  UINTN             Length;
  UINT32            Rule;

  for (Rule = FlatbootRuleNone + 1; Rule < FlatbootRuleMax; Rule++) {
    LongestFinding (&Finding, (FLATBOOT_RULE)Rule);
    Length = FlatbootFindingToAscii (&Finding, Text, sizeof (Text));
    UT_ASSERT_TRUE (Length > AsciiStrLen ("plan: "));
    UT_ASSERT_TRUE (Length < FLATBOOT_FINDING_TEXT_SIZE);
    UT_ASSERT_EQUAL (AsciiStrLen (Text), Length);
    UT_ASSERT_EQUAL (AsciiStrStr (Text, "%"), NULL);
    UT_ASSERT_EQUAL (AsciiStrStr (Text, "\n"), NULL);
  }

  return UNIT_TEST_PASSED;
}

/**
  No two rules have the same line, so a line names the rule.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SaysEachRuleInItsOwnWords (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  CHAR8             Lines[FlatbootRuleMax][FLATBOOT_FINDING_TEXT_SIZE];
  UINT32            Rule;
  UINT32            Other;

  for (Rule = FlatbootRuleNone + 1; Rule < FlatbootRuleMax; Rule++) {
    LongestFinding (&Finding, (FLATBOOT_RULE)Rule);
    FlatbootFindingToAscii (&Finding, Lines[Rule], FLATBOOT_FINDING_TEXT_SIZE);
    for (Other = FlatbootRuleNone + 1; Other < Rule; Other++) {
      UT_ASSERT_NOT_EQUAL (AsciiStrCmp (Lines[Rule], Lines[Other]), 0);
    }
  }

  return UNIT_TEST_PASSED;
}

/**
  A line that does not fit is cut and ends with a NUL, and nothing behind it is written to.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
CutsWhatDoesNotFit (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  CHAR8             Whole[FLATBOOT_FINDING_TEXT_SIZE];
  CHAR8             *Cut;
  UINTN             Length;
  UINTN             Size;

  LongestFinding (&Finding, FlatbootRuleSectionAlignment);
  Length = FlatbootFindingToAscii (&Finding, Whole, sizeof (Whole));
  for (Size = 1; Size <= Length + 1; Size++) {
    Cut = TestAllocate (Size);
    UT_ASSERT_EQUAL (FlatbootFindingToAscii (&Finding, Cut, Size), Size - 1);
    UT_ASSERT_EQUAL (Cut[Size - 1], '\0');
    UT_ASSERT_MEM_EQUAL (Cut, Whole, Size - 1);
  }

  Cut = TestAllocate (1);
  UT_ASSERT_EQUAL (FlatbootFindingToAscii (&Finding, Cut, 0), 0);
  UT_ASSERT_EQUAL ((UINT8)*Cut, 0xA5);
  return UNIT_TEST_PASSED;
}

/**
  Where no rule is broken, or one that does not exist, there is nothing to say.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SaysNothingOfNothing (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  CHAR8             Text[FLATBOOT_FINDING_TEXT_SIZE];

  LongestFinding (&Finding, FlatbootRuleNone);
  UT_ASSERT_EQUAL (FlatbootFindingToAscii (&Finding, Text, sizeof (Text)), 0);
  UT_ASSERT_EQUAL (Text[0], '\0');
  LongestFinding (&Finding, FlatbootRuleMax);
  UT_ASSERT_EQUAL (FlatbootFindingToAscii (&Finding, Text, sizeof (Text)), 0);
  UT_ASSERT_EQUAL (Text[0], '\0');
  return UNIT_TEST_PASSED;
}

/**
  What only the firmware finds names the thing, the value and what would be right.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SaysWhatIsWrongWithMemory (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    FLATBOOT_FINDING    Finding;
    CONST CHAR8         *Line;
  } Lines[] = {
    {
      { FlatbootRuleMapStride, FlatbootEntryNone, 0, { 39 } },
      "memory map: descriptors of 39 bytes: must be a multiple of 8, at least 40"
    },
    {
      { FlatbootRuleMapSize, FlatbootEntryNone, 0, { 100, 48 } },
      "memory map: 100 bytes: must be whole descriptors of 48 bytes"
    },
    {
      { FlatbootRuleMapAlignment, FlatbootEntryDescriptor, 7, { 0x1001 } },
      "memory map: descriptor 7: base 0x1001: must be a multiple of 0x1000"
    },
    {
      { FlatbootRuleMapEnd, FlatbootEntryDescriptor, 0, { 0x1000, MAX_UINT64 } },
      "memory map: descriptor 0: base 0x1000, 18446744073709551615 pages: must end in 64 bits"
    },
    {
      { FlatbootRuleMapOverlap, FlatbootEntryNone, 0, { 0x3000, 0x4000 } },
      "memory map: base 0x3000: must not be below the end of the range before, 0x4000"
    },
    {
      { FlatbootRuleNoMemory, FlatbootEntryNone, 0, { 0 } },
      "memory map: must have memory at or above 0x100000"
    },
    {
      { FlatbootRuleNotMemory, FlatbootEntryRegion, 3, { 0x8000000, 0x8000000, 0x9000000 } },
      "plan: region 3: base 0x8000000, length 0x8000000: must be memory, 0x9000000 is not"
    }
  };
  CHAR8  Text[FLATBOOT_FINDING_TEXT_SIZE];
  UINTN  Index;

  for (Index = 0; Index < ARRAY_SIZE (Lines); Index++) {
    FlatbootFindingToAscii (&Lines[Index].Finding, Text, sizeof (Text));
    UT_ASSERT_EQUAL (AsciiStrCmp (Text, Lines[Index].Line), 0);
  }

  return UNIT_TEST_PASSED;
}

/**
  Adds the tests of this file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddFindingTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  )
{
  AddTest (Suite, "every line fits the size that callers are told", "Size", FitsTheSizeThatCallersAreTold);
  AddTest (Suite, "no two rules have the same line", "Words", SaysEachRuleInItsOwnWords);
  AddTest (Suite, "lines that do not fit are cut", "Cut", CutsWhatDoesNotFit);
  AddTest (Suite, "where there is no finding there is no line", "None", SaysNothingOfNothing);
  AddTest (Suite, "lines about memory name thing, value and what is right", "Memory", SaysWhatIsWrongWithMemory);
}
