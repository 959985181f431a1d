/** @file
  Runs the tests of FlatbootHandOffLib, and has what they share.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"

#define TEST_NAME     "FlatbootHandOffLib"
#define TEST_VERSION  "1.0"

///
/// What the test that runs has allocated: each block begins with a pointer to the one before.
///
STATIC VOID  **mBlocks = NULL;

/**
  Frees what the test has allocated.

  @param[in] Context  Not used.
**/
STATIC
VOID
EFIAPI
FreeBlocks (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  VOID  **Block;

  while (mBlocks != NULL) {
    Block   = mBlocks;
    mBlocks = *Block;
    FreePool (Block);
  }
}

/**
  Allocates memory that lives until the test ends. Its end is the end of what may be touched, to the byte.

  @param[in] Size  Bytes.

  @return The memory, filled with 0xA5.
**/
VOID *
TestAllocate (
  IN UINTN  Size
  )
{
  VOID  **Block;

  //
  // Two words, so that the memory is aligned as the block is.
  //
  Block = AllocatePool (2 * sizeof (*Block) + Size);
  if (Block == NULL) {
    ASSERT (Block != NULL);
    CpuDeadLoop ();
  }

  Block[0] = mBlocks;
  mBlocks  = Block;
  return (Size == 0) ? Block + 2 : SetMem (Block + 2, Size, 0xA5);
}

/**
  Makes the next number: xorshift64*.

  @param[in,out] Random  Where it comes from.
  @param[in]     Limit   What it is below, at least 1.

  @return The number.
**/
UINT64
NextRandom (
  IN OUT RANDOM  *Random,
  IN     UINT64  Limit
  )
{
  Random->State ^= Random->State >> 12;
  Random->State ^= Random->State << 25;
  Random->State ^= Random->State >> 27;
  return (Random->State * 0x2545f4914f6cdd1dULL >> 32) % Limit;
}

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
  )
{
  EFI_MEMORY_DESCRIPTOR  *Map;
  UINTN                  Index;

  Map = TestAllocate (Count * sizeof (*Map));
  for (Index = 0; Index < Count; Index++) {
    Map[Index].Type          = Entries[Index].Type;
    Map[Index].PhysicalStart = Entries[Index].Base;
    Map[Index].VirtualStart  = 0;
    Map[Index].NumberOfPages = (Entries[Index].End - Entries[Index].Base) / PAGE;
    Map[Index].Attribute     = EFI_MEMORY_UC | EFI_MEMORY_WC | EFI_MEMORY_WT | EFI_MEMORY_WB;
  }

  return Map;
}

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
  )
{
  EFI_MEMORY_DESCRIPTOR  *Map;
  FLATBOOT_SPAN          *Spans;
  FLATBOOT_FINDING       Finding;

  Map   = MakeMap (Entries, Count);
  Spans = TestAllocate (Count * sizeof (*Spans));
  ZeroMem (Input, sizeof (*Input));
  Input->Spans     = Spans;
  Input->SpanCount = Count;
  return FlatbootNormalizeMemoryMap (
           Map,
           Count * sizeof (*Map),
           sizeof (*Map),
           Spans,
           &Input->SpanCount,
           &Finding
           );
}

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
  )
{
  FLATBOOT_HANDOFF_HEADER  *Table;
  UINTN                    RegionBytes;
  UINTN                    ArenaBytes;

  RegionBytes        = RegionCount * sizeof (*Regions);
  ArenaBytes         = ArenaCount * sizeof (*Arenas);
  Table              = TestAllocate (sizeof (*Table) + RegionBytes + ArenaBytes);
  Table->RegionCount = RegionCount;
  Table->ArenaCount  = ArenaCount;
  CopyMem (Table + 1, Regions, RegionBytes);
  CopyMem ((UINT8 *)(Table + 1) + RegionBytes, Arenas, ArenaBytes);
  FlatbootSealTable (Table);
  return Table;
}

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
  )
{
  RETURN_STATUS  Status;
  UINTN          Size;

  Size   = 0;
  *Table = NULL;
  Status = FlatbootBuildHandOff (Input, NULL, &Size, Finding);
  if (Status != RETURN_BUFFER_TOO_SMALL) {
    return Status;
  }

  *Table = TestAllocate (Size);
  return FlatbootBuildHandOff (Input, *Table, &Size, Finding);
}

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
  )
{
  EFI_STATUS  Status;

  Status = AddTestCase (Suite, Text, Name, Test, NULL, FreeBlocks, NULL);
  ASSERT_EFI_ERROR (Status);
}

/**
  Makes a suite of the tests of one file.

  @param[in] Framework  The framework.
  @param[in] Title      What the suite tests.
  @param[in] Name       Its name, without spaces.
  @param[in] AddTests   The function that adds the tests.

  @return What CreateUnitTestSuite() returned.
**/
STATIC
EFI_STATUS
AddSuite (
  IN UNIT_TEST_FRAMEWORK_HANDLE  Framework,
  IN CHAR8                       *Title,
  IN CHAR8                       *Name,
  IN VOID                        (*AddTests)(UNIT_TEST_SUITE_HANDLE)
  )
{
  UNIT_TEST_SUITE_HANDLE  Suite;
  EFI_STATUS              Status;

  Status = CreateUnitTestSuite (&Suite, Framework, Title, Name, NULL, NULL);
  if (!EFI_ERROR (Status)) {
    AddTests (Suite);
  }

  return Status;
}

/**
  Runs all tests. Their verdicts are what the framework prints.

  @param[in] ArgumentCount  Not used.
  @param[in] Arguments      Not used.

  @retval 0  The tests ran.
  @retval 1  They did not.
**/
int
main (
  int   ArgumentCount,
  char  *Arguments[]
  )
{
  UNIT_TEST_FRAMEWORK_HANDLE  Framework;
  EFI_STATUS                  Status;

  Framework = NULL;
  Status    = InitUnitTestFramework (&Framework, TEST_NAME, gEfiCallerBaseName, TEST_VERSION);
  if (EFI_ERROR (Status)) {
    return 1;
  }

  Status = AddSuite (Framework, "Tables", "Table", AddTableTests);
  if (!EFI_ERROR (Status)) {
    Status = AddSuite (Framework, "Findings", "Finding", AddFindingTests);
  }

  if (!EFI_ERROR (Status)) {
    Status = AddSuite (Framework, "Memory maps", "MemoryMap", AddMemoryMapTests);
  }

  if (!EFI_ERROR (Status)) {
    Status = AddSuite (Framework, "Hand-offs from memory", "BuildFromMemory", AddBuildFromMemoryTests);
  }

  if (!EFI_ERROR (Status)) {
    Status = AddSuite (Framework, "Hand-offs from a plan", "BuildFromPlan", AddBuildFromPlanTests);
  }

  if (!EFI_ERROR (Status)) {
    Status = AddSuite (Framework, "Shares", "Backing", AddBackingTests);
  }

  if (!EFI_ERROR (Status)) {
    Status = RunAllTestSuites (Framework);
  }

  FreeUnitTestFramework (Framework);
  return EFI_ERROR (Status) ? 1 : 0;
}
