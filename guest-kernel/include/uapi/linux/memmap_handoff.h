/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* The memmap hand-off table, little-endian. Generated, do not edit. */
#ifndef _UAPI_LINUX_MEMMAP_HANDOFF_H
#define _UAPI_LINUX_MEMMAP_HANDOFF_H

#include <linux/types.h>

/* The setup_data node type that carries a table. */
#define SETUP_MEMMAP_HANDOFF		0x4d4d4150
/* The EFI configuration table that is a table. */
#define MEMMAP_HANDOFF_EFI_GUID		\
	EFI_GUID(0x7117910f, 0xe8ce, 0x4928, 0xb5, 0xd9, 0x7d, 0xd8, 0x8c, 0x38, 0xe0, 0x31)
/* The file of QEMU's fw_cfg that is a table. */
#define MEMMAP_HANDOFF_FW_CFG_FILE	"opt/org.flatboot/memmap-handoff"

/* The bytes "FLATBOOT". */
#define MEMMAP_HANDOFF_MAGIC		0x544f4f4254414c46ULL
#define MEMMAP_HANDOFF_VERSION		2
#define MEMMAP_HANDOFF_MAX_REGIONS	4096
#define MEMMAP_HANDOFF_MAX_ARENAS	4096

/*
 * Alignment of region bounds, of arena bounds, and of where a node's first and
 * last region begin and end, in bytes.
 */
#define MEMMAP_HANDOFF_SECTION_SIZE	0x8000000ULL
#define MEMMAP_HANDOFF_ARENA_ALIGN	0x200000ULL
#define MEMMAP_HANDOFF_PAGE_SIZE	0x1000ULL
/* No region ends above this physical address. */
#define MEMMAP_HANDOFF_MAX_ADDRESS	0x10000000000000ULL

/* Region flags. */
#define MEMMAP_HANDOFF_REGION_ZEROED	0x1
#define MEMMAP_HANDOFF_REGION_HELD	0x2
#define MEMMAP_HANDOFF_REGION_FLAGS	0x3

struct memmap_handoff_header {
	__le64 magic;
	__le32 version;
	__le32 length;
	__le32 region_count;
	__le32 arena_count;
	__le32 crc32c;
	__le32 header_length;
	__le64 reserved;
};

struct memmap_handoff_region {
	__le64 base;
	__le64 length;
	__le32 node;
	__le32 flags;
};

struct memmap_handoff_arena {
	__le64 base;
	__le64 length;
	__le32 node;
	__le32 reserved;
};

#define MEMMAP_HANDOFF_HEADER_SIZE	40
#define MEMMAP_HANDOFF_REGION_SIZE	24
#define MEMMAP_HANDOFF_ARENA_SIZE	24

#endif /* _UAPI_LINUX_MEMMAP_HANDOFF_H */
