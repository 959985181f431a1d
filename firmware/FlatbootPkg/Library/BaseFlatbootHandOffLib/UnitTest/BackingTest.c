/** @file
  Tests of FlatbootBackingShare().

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"

STATIC CONST FLATBOOT_HANDOFF_REGION  mRegions[] = {
  { MIB,      GIB - MIB, 0, 0      },
  { 4 * GIB,  4 * GIB,   0, ZEROED },
  { 12 * GIB, 4 * GIB,   1, 0      }
};

STATIC CONST FLATBOOT_HANDOFF_ARENA  mArenas[] = {
  { 4 * GIB,  ARENA,      0, 0 },
  { 5 * GIB,  64 * ARENA, 0, 0 },
  { 12 * GIB, 2 * ARENA,  1, 0 },
  { 13 * GIB, 2 * ARENA,  1, 0 },
  { 14 * GIB, 2 * ARENA,  1, 0 }
};

STATIC CONST UINT64  mPieces[] = { 4 * GIB, 5 * GIB, 12 * GIB, 13 * GIB, 14 * GIB };

/**
  The shares of any number of processors are all pieces together, each piece is in one, and they differ by one at most.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
DealsOutEachPieceOnce (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_FINDING         Finding;
  FLATBOOT_RANGE           Range;
  UINTN                    Seen[ARRAY_SIZE (mPieces)];
  UINTN                    Processors;
  UINTN                    Processor;
  UINTN                    Index;
  UINTN                    Piece;

  Table = MakeTable (mRegions, ARRAY_SIZE (mRegions), mArenas, ARRAY_SIZE (mArenas));
  UT_ASSERT_STATUS_EQUAL (FlatbootValidateTable (Table, Table->Length, &Finding), RETURN_SUCCESS);
  for (Processors = 1; Processors <= 64; Processors++) {
    ZeroMem (Seen, sizeof (Seen));
    for (Processor = 0; Processor < Processors; Processor++) {
      for (Index = 0; !RETURN_ERROR (FlatbootBackingShare (Table, Processor, Processors, Index, &Range)); Index++) {
        UT_ASSERT_EQUAL (Range.Length, 2 * MIB);
        for (Piece = 0; (Piece < ARRAY_SIZE (mPieces)) && (mPieces[Piece] != Range.Base); Piece++) {
        }

        UT_ASSERT_TRUE (Piece < ARRAY_SIZE (mPieces));
        Seen[Piece]++;
      }

      UT_ASSERT_TRUE (Index >= ARRAY_SIZE (mPieces) / Processors);
      UT_ASSERT_TRUE (Index <= (ARRAY_SIZE (mPieces) + Processors - 1) / Processors);
    }

    for (Piece = 0; Piece < ARRAY_SIZE (mPieces); Piece++) {
      UT_ASSERT_EQUAL (Seen[Piece], 1);
    }
  }

  return UNIT_TEST_PASSED;
}

/**
  A share that has ended stays so, and what it is asked for is not written to.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
EndsAtItsEnd (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_RANGE           Range;

  Table      = MakeTable (mRegions, ARRAY_SIZE (mRegions), mArenas, ARRAY_SIZE (mArenas));
  Range.Base = 1;
  UT_ASSERT_STATUS_EQUAL (FlatbootBackingShare (Table, 0, 1, ARRAY_SIZE (mPieces), &Range), RETURN_NOT_FOUND);
  UT_ASSERT_STATUS_EQUAL (FlatbootBackingShare (Table, 1, 2, MAX_UINTN, &Range), RETURN_NOT_FOUND);
  UT_ASSERT_STATUS_EQUAL (FlatbootBackingShare (Table, 5, 6, 0, &Range), RETURN_NOT_FOUND);
  UT_ASSERT_EQUAL (Range.Base, 1);
  return UNIT_TEST_PASSED;
}

/**
  Without arenas there is nothing to do.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
HasNothingToDoWithoutArenas (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HANDOFF_HEADER  *Table;
  FLATBOOT_RANGE           Range;

  Table = MakeTable (mRegions, ARRAY_SIZE (mRegions), NULL, 0);
  UT_ASSERT_STATUS_EQUAL (FlatbootBackingShare (Table, 0, 1, 0, &Range), RETURN_NOT_FOUND);
  return UNIT_TEST_PASSED;
}

/**
  Adds the tests of this file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddBackingTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  )
{
  AddTest (Suite, "each piece is in one share", "Once", DealsOutEachPieceOnce);
  AddTest (Suite, "a share that has ended stays so", "End", EndsAtItsEnd);
  AddTest (Suite, "without arenas there is nothing to do", "Nothing", HasNothingToDoWithoutArenas);
}
