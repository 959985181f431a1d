/** @file
  What the tests of FlatbootHandOffLib share.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef HAND_OFF_LIB_UNIT_TEST_H_
#define HAND_OFF_LIB_UNIT_TEST_H_

#include <Uefi.h>
#include <Library/BaseLib.h>
#include <Library/BaseMemoryLib.h>
#include <Library/DebugLib.h>
#include <Library/FlatbootHandOffLib.h>
#include <Library/MemoryAllocationLib.h>
#include <Library/UnitTestLib.h>

#define PAGE     FLATBOOT_HANDOFF_PAGE_SIZE
#define MIB      BIT20
#define GIB      ((UINT64)BIT30)
#define ARENA    FLATBOOT_HANDOFF_ARENA_ALIGN
#define SECTION  FLATBOOT_HANDOFF_SECTION_SIZE
#define TOP      FLATBOOT_HANDOFF_MAX_ADDRESS

#define ZEROED   FLATBOOT_HANDOFF_REGION_ZEROED

///
/// A field of a table that is set to a value: offset and size in bytes; size 0 changes nothing.
///
typedef struct {
  UINT32    Offset;
  UINT32    Size;
  UINT64    Value;
} CONTRACT_EDIT;

///
/// A changed table, and what the contract says of it.
///
typedef struct {
  CONTRACT_EDIT    Edits[2];
  ///
  /// Whether the checksum is made right again.
  ///
  BOOLEAN          Sealed;
  ///
  /// How many bytes of the table are there.
  ///
  UINTN            Bytes;
  ///
  /// The rule that it breaks, in words; NULL if it keeps every rule.
  ///
  CONST CHAR8      *Verdict;
} CONTRACT_CASE;

///
/// A range of a memory map, write-back cacheable unless attributes say otherwise.
///
typedef struct {
  UINT32    Type;
  UINT64    Base;
  UINT64    End;
} MAP_ENTRY;

///
/// Numbers that look random and are the same in each run.
///
typedef struct {
  UINT64    State;
} RANDOM;

/**
  Allocates memory that lives until the test ends. Its end is the end of what may be touched, to the byte.

  @param[in] Size  Bytes.

  @return The memory, filled with 0xA5.
**/
VOID *
TestAllocate (
  IN UINTN  Size
  );

/**
  Makes the next number.

  @param[in,out] Random  Where it comes from.
  @param[in]     Limit   What it is below, at least 1.

  @return The number.
**/
UINT64
NextRandom (
  IN OUT RANDOM  *Random,
  IN     UINT64  Limit
  );

/**
  Makes a memory map whose descriptors are all write-back cacheable.

  @param[in] Entries  What is in it, in that order.
  @param[in] Count    How many entries.

  @return The map: Count descriptors without anything between them.
**/
EFI_MEMORY_DESCRIPTOR *
MakeMap (
  IN CONST MAP_ENTRY  *Entries,
  IN UINTN            Count
  );

/**
  Makes the memory of a memory map whose descriptors are all write-back cacheable.

  @param[in]  Entries  What is in it, in that order.
  @param[in]  Count    How many entries.
  @param[out] Input    Its spans; no plan, nothing untouched.

  @return What FlatbootNormalizeMemoryMap() returned.
**/
RETURN_STATUS
MakeMemory (
  IN  CONST MAP_ENTRY          *Entries,
  IN  UINTN                    Count,
  OUT FLATBOOT_HAND_OFF_INPUT  *Input
  );

/**
  Makes a sealed table, whatever its entries hold.

  @param[in] Regions      The regions.
  @param[in] RegionCount  How many.
  @param[in] Arenas       The arenas; may be NULL if there is none.
  @param[in] ArenaCount   How many.

  @return The table; its header says how long it is.
**/
FLATBOOT_HANDOFF_HEADER *
MakeTable (
  IN CONST FLATBOOT_HANDOFF_REGION  *Regions,
  IN UINT32                         RegionCount,
  IN CONST FLATBOOT_HANDOFF_ARENA   *Arenas  OPTIONAL,
  IN UINT32                         ArenaCount
  );

/**
  Builds a hand-off in a buffer of exactly the size that FlatbootBuildHandOff() asks for.

  @param[in]  Input    What it follows from.
  @param[out] Table    The hand-off; NULL if there is none.
  @param[out] Finding  What FlatbootBuildHandOff() found.

  @return What FlatbootBuildHandOff() returned at last.
**/
RETURN_STATUS
Build (
  IN  CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  OUT FLATBOOT_HANDOFF_HEADER        **Table,
  OUT FLATBOOT_FINDING               *Finding
  );

/**
  Adds a test case that frees what TestAllocate() gave it.

  @param[in] Suite  The suite.
  @param[in] Text   What holds if the test passes.
  @param[in] Name   Its name, without spaces.
  @param[in] Test   The test.
**/
VOID
AddTest (
  IN UNIT_TEST_SUITE_HANDLE  Suite,
  IN CHAR8                   *Text,
  IN CHAR8                   *Name,
  IN UNIT_TEST_FUNCTION      Test
  );

/**
  Adds the tests of one file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddTableTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  );

/// As AddTableTests().
VOID
AddFindingTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  );

/// As AddTableTests().
VOID
AddMemoryMapTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  );

/// As AddTableTests().
VOID
AddBuildFromMemoryTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  );

/// As AddTableTests().
VOID
AddBuildFromPlanTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  );

/// As AddTableTests().
VOID
AddBackingTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  );

#endif // HAND_OFF_LIB_UNIT_TEST_H_
