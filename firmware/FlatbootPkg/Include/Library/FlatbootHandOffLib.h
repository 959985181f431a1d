/** @file
  From a UEFI memory map and the VMM's plan to the memory hand-off.

  Pure functions: no services, no allocation, no state. They run anywhere, on any processor. Nothing that they are given is
  trusted: what breaks a rule comes back as a FLATBOOT_FINDING, which FlatbootFindingToAscii() puts into words.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef FLATBOOT_HAND_OFF_LIB_H_
#define FLATBOOT_HAND_OFF_LIB_H_

#include <Uefi.h>
#include <Guid/FlatbootHandOff.h>

///
/// Memory below belongs to the PC's firmware: without a plan, no region begins below. 1 MiB.
///
#define FLATBOOT_LOWEST_REGION  0x100000ULL

///
/// Bytes that hold any line of FlatbootFindingToAscii().
///
#define FLATBOOT_FINDING_TEXT_SIZE  192

///
/// The regions and the arenas of a table that keeps every rule; both are sorted by base.
///
#define FLATBOOT_HANDOFF_REGIONS(Table) \
  ((CONST FLATBOOT_HANDOFF_REGION *)((CONST FLATBOOT_HANDOFF_HEADER *)(Table) + 1))
#define FLATBOOT_HANDOFF_ARENAS(Table) \
  ((CONST FLATBOOT_HANDOFF_ARENA *)(FLATBOOT_HANDOFF_REGIONS (Table) + (Table)->RegionCount))

///
/// The rules: those for tables in the order in which they are checked, those for memory maps, those for both together.
///
typedef enum {
  FlatbootRuleNone,
  FlatbootRuleTruncated,
  FlatbootRuleMagic,
  FlatbootRuleVersion,
  FlatbootRuleHeaderLength,
  FlatbootRuleReserved,
  FlatbootRuleRegionCount,
  FlatbootRuleArenaCount,
  FlatbootRuleLength,
  FlatbootRuleCrc,
  FlatbootRuleArenaReserved,
  FlatbootRuleEmpty,
  FlatbootRuleEnd,
  FlatbootRuleOrder,
  FlatbootRuleFlags,
  FlatbootRulePageAlignment,
  FlatbootRuleHeldFlags,
  FlatbootRuleHeldAlignment,
  FlatbootRuleHeldOrder,
  FlatbootRuleSectionAlignment,
  FlatbootRuleSharedSection,
  FlatbootRuleArenaAlignment,
  FlatbootRuleOutside,

  FlatbootRuleMapStride,
  FlatbootRuleMapSize,
  FlatbootRuleMapAlignment,
  FlatbootRuleMapEnd,
  FlatbootRuleMapOverlap,

  FlatbootRuleNoMemory,
  FlatbootRuleNotMemory,
  FlatbootRuleMax
} FLATBOOT_RULE;

///
/// What kind of entry breaks a rule.
///
typedef enum {
  FlatbootEntryNone,
  FlatbootEntryRegion,
  FlatbootEntryArena,
  FlatbootEntryDescriptor
} FLATBOOT_ENTRY;

///
/// Which rule is broken, by what.
///
typedef struct {
  FLATBOOT_RULE     Rule;
  FLATBOOT_ENTRY    Entry;
  ///
  /// Which entry of that kind, counted from 0; 0 with FlatbootEntryNone.
  ///
  UINTN             Index;
  ///
  /// What is wrong, and what it should be: the numbers of the rule's line, in its order.
  ///
  UINT64            Values[3];
} FLATBOOT_FINDING;

///
/// A range of physical addresses, in bytes.
///
typedef struct {
  UINT64    Base;
  UINT64    Length;
} FLATBOOT_RANGE;

///
/// Whose a span of memory is.
///
typedef enum {
  ///
  /// No memory. No span that a function returns is of that use.
  ///
  FlatbootUseNone,
  ///
  /// Memory that the OS cannot use at once: the firmware keeps it, or the OS must do something first.
  ///
  FlatbootUseOwned,
  ///
  /// Memory that the OS can use from ExitBootServices() on.
  ///
  FlatbootUseFree
} FLATBOOT_USE;

///
/// A range of memory of one use: base and length are multiples of 4 KiB, it ends at or below FLATBOOT_HANDOFF_MAX_ADDRESS.
///
typedef struct {
  UINT64          Base;
  UINT64          Length;
  FLATBOOT_USE    Use;
} FLATBOOT_SPAN;

///
/// What a hand-off follows from.
///
typedef struct {
  ///
  /// Memory, as FlatbootNormalizeMemoryMap() returns it.
  ///
  CONST FLATBOOT_SPAN     *Spans;
  UINTN                   SpanCount;
  ///
  /// The VMM's plan, 8-byte aligned, and the bytes that are there; NULL and 0 if there is none.
  ///
  CONST VOID              *Plan;
  UINTN                   PlanSize;
  ///
  /// Ranges that nobody has written to since the VMM started: what the caller took hold of before anybody could. In any
  /// order, may touch or overlap.
  ///
  CONST FLATBOOT_RANGE    *Untouched;
  UINTN                   UntouchedCount;
} FLATBOOT_HAND_OFF_INPUT;

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
  );

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
  );

/**
  Puts a finding into one line of ASCII without a line end, in the contract's words: "plan: region 3: length 0: must not be
  empty".

  @param[in]  Finding  What to put into words.
  @param[out] Text     The line, NUL-terminated, cut if it does not fit.
  @param[in]  Size     Bytes that Text has room for; FLATBOOT_FINDING_TEXT_SIZE holds every line.

  @return Characters in Text without the NUL; 0 for FlatbootRuleNone.
**/
UINTN
EFIAPI
FlatbootFindingToAscii (
  IN  CONST FLATBOOT_FINDING  *Finding,
  OUT CHAR8                   *Text,
  IN  UINTN                   Size
  );

/**
  Turns a UEFI memory map (UEFI specification, section 7.2, GetMemoryMap()) into sorted spans of memory.

  Memory is what a processor can use as RAM, whoever uses it: it is described as write-back cacheable, and its type is one
  that RAM has. Reserved types count only by that attribute: firmware reserves RAM for itself, and, uncached, the address space
  of devices. Memory whose use the OS must ask for (EFI_MEMORY_SP), accept or keep is owned, not free. What is
  broken (EfiUnusableMemory) or outlives a boot (EfiPersistentMemory) is no memory here. Descriptors may be in any order; what
  touches and has the same use becomes one span; no two spans overlap. What is above FLATBOOT_HANDOFF_MAX_ADDRESS is left out.

  @param[in]     MemoryMap       The descriptors, 8-byte aligned; may be NULL if MapSize is 0.
  @param[in]     MapSize         Bytes of the map.
  @param[in]     DescriptorSize  Bytes from one descriptor to the next.
  @param[out]    Spans           Memory, sorted by base. Its first SpanCount entries may be overwritten whatever is returned.
  @param[in,out] SpanCount       In: entries that Spans has room for, at least one a descriptor. Out: spans, at most that many.
  @param[out]    Finding         FlatbootRuleNone, or the rule that is broken first.

  @retval RETURN_SUCCESS            Spans holds the map's memory, which may be none.
  @retval RETURN_INVALID_PARAMETER  MemoryMap is NULL or not 8-byte aligned; Finding is FlatbootRuleNone.
  @retval RETURN_BUFFER_TOO_SMALL   SpanCount is how many entries are needed; Finding is FlatbootRuleNone.
  @retval RETURN_COMPROMISED_DATA   Finding says what is wrong with the map.
**/
RETURN_STATUS
EFIAPI
FlatbootNormalizeMemoryMap (
  IN     CONST EFI_MEMORY_DESCRIPTOR  *MemoryMap  OPTIONAL,
  IN     UINTN                        MapSize,
  IN     UINTN                        DescriptorSize,
  OUT    FLATBOOT_SPAN                *Spans,
  IN OUT UINTN                        *SpanCount,
  OUT    FLATBOOT_FINDING             *Finding
  );

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
  );

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
  );

#endif // FLATBOOT_HAND_OFF_LIB_H_
