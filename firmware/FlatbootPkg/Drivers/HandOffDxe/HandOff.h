/** @file
  The hand-off's driver: what its parts share.

  In the order of a boot: Plan.c reads what the VMM planned and takes hold of memory that is known to be zero; Backing.c has
  all processors touch what the kernel touches first; Table.c makes the hand-off, once before a loader is started and once
  more when it takes over.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef FLATBOOT_HAND_OFF_H_
#define FLATBOOT_HAND_OFF_H_

#include <PiDxe.h>
#include <FlatbootMarks.h>
#include <Library/FlatbootHandOffLib.h>

///
/// What the VMM planned.
///
typedef struct {
  ///
  /// A table that keeps every rule, 8-byte aligned; NULL if there is none, or none that does.
  ///
  FLATBOOT_HANDOFF_HEADER    *Table;
  ///
  /// Bytes of it.
  ///
  UINTN                      Size;
  ///
  /// Its ZEROED regions that nobody but this driver has been able to allocate.
  ///
  FLATBOOT_RANGE             *Untouched;
  UINTN                      UntouchedCount;
} PLAN;

/**
  Writes a boot mark.

  @param[in] Code  One of FLATBOOT_MARK_*.
**/
VOID
Mark (
  IN UINT8  Code
  );

/**
  Says on the serial port that the plan is ignored and why, and writes the mark for that.

  @param[in] Finding  What is wrong with it.
**/
VOID
RefusePlan (
  IN CONST FLATBOOT_FINDING  *Finding
  );

/**
  Reads the plan from fw_cfg and takes hold of its ZEROED regions.

  To be called before any driver allocates memory. What is held is EfiLoaderData: the OS may use it from ExitBootServices () on,
  and until then nobody else gets it, so that it stays zero. Loaders have the memory below 4 GiB, and regions that are not
  ZEROED.

  @param[out] Plan  The plan; all zero if there is none, or none that keeps the rules.
**/
VOID
ReadPlan (
  OUT PLAN  *Plan
  );

/**
  Has memory that the kernel touches first backed by the host, by all processors, as soon as they can be started.

  @param[in] Plan  The plan; stays where it is.
**/
VOID
BackMemory (
  IN CONST PLAN  *Plan
  );

/**
  Makes the hand-off and installs it, and sees to it that it is made anew at ExitBootServices ().

  Without a plan, or if the plan does not fit the memory, it follows from the memory map alone.

  @param[in] Plan  The plan; stays where it is.

  @retval EFI_SUCCESS  The configuration table is installed.
  @return              Why there is none.
**/
EFI_STATUS
InstallTable (
  IN PLAN  *Plan
  );

#endif
