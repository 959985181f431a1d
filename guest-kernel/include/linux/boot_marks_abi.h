/* SPDX-License-Identifier: GPL-2.0-only */
/* Boot mark codes: one byte written to an I/O port. Generated, do not edit. */
#ifndef _LINUX_BOOT_MARKS_ABI_H
#define _LINUX_BOOT_MARKS_ABI_H

#define BOOT_MARK_PORT			0x80

/* Written by the kernel: 0x40 to 0x5f. */
#define BOOT_MARK_KERNEL_ENTRY		0x40
#define BOOT_MARK_INIT_EXEC		0x41
#define BOOT_MARK_MEMORY_MAP_READY	0x42
#define BOOT_MARK_MEMMAP_BEGIN		0x43
#define BOOT_MARK_MEMMAP_END		0x44
#define BOOT_MARK_SMP_BEGIN		0x45
#define BOOT_MARK_SMP_END		0x46
#define BOOT_MARK_DEFERRED_BEGIN	0x47
#define BOOT_MARK_DEFERRED_END		0x48
#define BOOT_MARK_PANIC			0x5f

/* Written by user space: 0x60 to 0x7f. */
#define BOOT_MARK_USER_START		0x60
#define BOOT_MARK_USER_READY		0x61
#define BOOT_MARK_USER_FAILED		0x62

#endif /* _LINUX_BOOT_MARKS_ABI_H */
