/** @file
  Boot mark codes: one byte written to an I/O port.

  Generated from vmm/handoff, do not edit.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef FLATBOOT_MARKS_H_
#define FLATBOOT_MARKS_H_

///
/// The I/O port.
///
#define FLATBOOT_MARK_PORT  0x80

///
/// The firmware's C code begins, without memory of its own.
///
#define FLATBOOT_MARK_FIRMWARE_ENTRY  0x01

///
/// The firmware has unpacked itself and looks for memory.
///
#define FLATBOOT_MARK_FIRMWARE_PEI  0x02

///
/// The firmware has memory and loads its drivers.
///
#define FLATBOOT_MARK_FIRMWARE_DXE  0x03

///
/// The firmware has read the VMM's plan, or found that there is none.
///
#define FLATBOOT_MARK_FIRMWARE_PLAN  0x04

///
/// All drivers are loaded: the firmware looks for something to boot.
///
#define FLATBOOT_MARK_FIRMWARE_BDS  0x05

///
/// All processors have backed the memory that the kernel touches first.
///
#define FLATBOOT_MARK_FIRMWARE_BACKED  0x06

///
/// The firmware starts a boot loader, or a kernel that is its own.
///
#define FLATBOOT_MARK_FIRMWARE_LOADER  0x07

///
/// The loader takes over from the firmware (ExitBootServices).
///
#define FLATBOOT_MARK_FIRMWARE_END  0x08

///
/// The firmware found nothing to boot and gives up.
///
#define FLATBOOT_MARK_FIRMWARE_NO_LOADER  0x1d

///
/// The VMM's plan breaks a rule and is ignored.
///
#define FLATBOOT_MARK_FIRMWARE_PLAN_INVALID  0x1e

///
/// The firmware cannot go on.
///
#define FLATBOOT_MARK_FIRMWARE_FAILED  0x1f

#endif // FLATBOOT_MARKS_H_
