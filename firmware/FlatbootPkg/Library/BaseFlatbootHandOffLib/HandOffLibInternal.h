/** @file
  What the files of the library share.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#ifndef HAND_OFF_LIB_INTERNAL_H_
#define HAND_OFF_LIB_INTERNAL_H_

#include <Uefi.h>
#include <Library/BaseLib.h>
#include <Library/BaseMemoryLib.h>
#include <Library/DebugLib.h>
#include <Library/FlatbootHandOffLib.h>

///
/// Alignment of tables and memory maps, in bytes: that of their widest field.
///
#define TABLE_ALIGN  sizeof (UINT64)

///
/// Whether Value, an address or a length in bytes, is a multiple of Align, a power of two.
///
#define IS_MULTIPLE(Value, Align)  (((Value) & ((Align) - 1)) == 0)

///
/// Whether a region is only planned: no memory until the VMM releases it.
///
#define IS_HELD(Region)  (((Region)->Flags & FLATBOOT_HANDOFF_REGION_HELD) != 0)

/**
  Clears a finding: no rule is broken.

  @param[out] Finding  What is cleared.
**/
VOID
ClearFinding (
  OUT FLATBOOT_FINDING  *Finding
  );

/**
  Fills a finding.

  @param[out] Finding  What is filled.
  @param[in]  Rule     The broken rule.
  @param[in]  Entry    What kind of entry breaks it.
  @param[in]  Index    Which entry of that kind; 0 if there is none.
  @param[in]  First    The first number of the rule's line; 0 if the line has none. Second and Third alike.
  @param[in]  Second   The second.
  @param[in]  Third    The third.

  @return RETURN_COMPROMISED_DATA, which is what findings are returned with.
**/
RETURN_STATUS
Report (
  OUT FLATBOOT_FINDING  *Finding,
  IN  FLATBOOT_RULE     Rule,
  IN  FLATBOOT_ENTRY    Entry,
  IN  UINTN             Index,
  IN  UINT64            First,
  IN  UINT64            Second,
  IN  UINT64            Third
  );

#endif // HAND_OFF_LIB_INTERNAL_H_
