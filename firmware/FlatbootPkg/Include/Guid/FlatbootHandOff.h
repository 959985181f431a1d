/** @file
  The memory hand-off table, little-endian: header, regions, arenas, without padding.

  Generated from vmm/handoff, do not edit.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef FLATBOOT_HAND_OFF_GUID_H_
#define FLATBOOT_HAND_OFF_GUID_H_

///
/// The EFI configuration table that holds the hand-off (UEFI specification, section 4.6).
///
#define FLATBOOT_HANDOFF_GUID \
  { 0x7117910f, 0xe8ce, 0x4928, { 0xb5, 0xd9, 0x7d, 0xd8, 0x8c, 0x38, 0xe0, 0x31 } }

///
/// Name of the fw_cfg file that holds the VMM's plan.
///
#define FLATBOOT_PLAN_FW_CFG_FILE  "opt/org.flatboot/plan"

///
/// The bytes "FLATBOOT", and the version of the table.
///
#define FLATBOOT_HANDOFF_MAGIC    0x544f4f4254414c46ULL
#define FLATBOOT_HANDOFF_VERSION  2

///
/// The most entries of a table.
///
#define FLATBOOT_HANDOFF_MAX_REGIONS  4096
#define FLATBOOT_HANDOFF_MAX_ARENAS   4096

///
/// Alignment of region bounds, of arena bounds, and of where a node's first and last region begin and end, in bytes.
///
#define FLATBOOT_HANDOFF_SECTION_SIZE  0x8000000ULL
#define FLATBOOT_HANDOFF_ARENA_ALIGN   0x200000ULL
#define FLATBOOT_HANDOFF_PAGE_SIZE     0x1000ULL

///
/// No region ends above this physical address.
///
#define FLATBOOT_HANDOFF_MAX_ADDRESS  0x10000000000000ULL

///
/// Region flags.
///
#define FLATBOOT_HANDOFF_REGION_ZEROED  0x1
#define FLATBOOT_HANDOFF_REGION_HELD    0x2
#define FLATBOOT_HANDOFF_REGION_FLAGS   0x3

typedef struct {
  ///
  /// "FLATBOOT".
  ///
  UINT64    Magic;
  ///
  /// 2.
  ///
  UINT32    Version;
  ///
  /// Bytes of the whole table, this header included.
  ///
  UINT32    Length;
  ///
  /// 1 to 4096.
  ///
  UINT32    RegionCount;
  ///
  /// 0 to 4096.
  ///
  UINT32    ArenaCount;
  ///
  /// CRC-32C of the whole table with this field zero.
  ///
  UINT32    Crc32c;
  ///
  /// 40.
  ///
  UINT32    HeaderLength;
  ///
  /// 0.
  ///
  UINT64    Reserved;
} FLATBOOT_HANDOFF_HEADER;

typedef struct {
  ///
  /// Guest physical address, in bytes.
  ///
  UINT64    Base;
  ///
  /// Bytes.
  ///
  UINT64    Length;
  ///
  /// NUMA node.
  ///
  UINT32    Node;
  ///
  /// Region flags.
  ///
  UINT32    Flags;
} FLATBOOT_HANDOFF_REGION;

typedef struct {
  ///
  /// Guest physical address, in bytes.
  ///
  UINT64    Base;
  ///
  /// Bytes.
  ///
  UINT64    Length;
  ///
  /// NUMA node.
  ///
  UINT32    Node;
  ///
  /// 0.
  ///
  UINT32    Reserved;
} FLATBOOT_HANDOFF_ARENA;

///
/// Sizes of the structures, in bytes.
///
#define FLATBOOT_HANDOFF_HEADER_SIZE  40
#define FLATBOOT_HANDOFF_REGION_SIZE  24
#define FLATBOOT_HANDOFF_ARENA_SIZE   24

STATIC_ASSERT (sizeof (FLATBOOT_HANDOFF_HEADER) == FLATBOOT_HANDOFF_HEADER_SIZE, "FLATBOOT_HANDOFF_HEADER has padding");
STATIC_ASSERT (sizeof (FLATBOOT_HANDOFF_REGION) == FLATBOOT_HANDOFF_REGION_SIZE, "FLATBOOT_HANDOFF_REGION has padding");
STATIC_ASSERT (sizeof (FLATBOOT_HANDOFF_ARENA) == FLATBOOT_HANDOFF_ARENA_SIZE, "FLATBOOT_HANDOFF_ARENA has padding");

extern EFI_GUID  gFlatbootHandOffGuid;

#endif // FLATBOOT_HAND_OFF_GUID_H_
