/** @file
  What breaks a rule, in words.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibInternal.h"

///
/// The line of a rule. In it stand: %e for the entry; %x, %u and %c for the finding's next number, in hexadecimal, in decimal, as
/// a checksum; %X and %U for the line's own next number.
///
typedef struct {
  FLATBOOT_RULE    Rule;
  CONST CHAR8      *Template;
  UINT64           Numbers[3];
} RULE_LINE;

STATIC CONST RULE_LINE  mLines[] = {
  {
    FlatbootRuleTruncated,
    "plan: %u bytes: must be at least %u"
  },
  {
    FlatbootRuleMagic,
    "plan: magic %x: must be %X (\"FLATBOOT\")",
    { FLATBOOT_HANDOFF_MAGIC }
  },
  {
    FlatbootRuleVersion,
    "plan: version %u: must be %U",
    { FLATBOOT_HANDOFF_VERSION }
  },
  {
    FlatbootRuleHeaderLength,
    "plan: header length %u: must be %U",
    { FLATBOOT_HANDOFF_HEADER_SIZE }
  },
  {
    FlatbootRuleReserved,
    "plan: reserved field %x: must be 0"
  },
  {
    FlatbootRuleRegionCount,
    "plan: %u regions: must be 1 to %U",
    { FLATBOOT_HANDOFF_MAX_REGIONS }
  },
  {
    FlatbootRuleArenaCount,
    "plan: %u arenas: must be at most %U",
    { FLATBOOT_HANDOFF_MAX_ARENAS }
  },
  {
    FlatbootRuleLength,
    "plan: length %u: must be %u (%U + %U a region + %U an arena)",
    { FLATBOOT_HANDOFF_HEADER_SIZE, FLATBOOT_HANDOFF_REGION_SIZE, FLATBOOT_HANDOFF_ARENA_SIZE }
  },
  {
    FlatbootRuleCrc,
    "plan: CRC-32C %c: must be %c"
  },
  {
    FlatbootRuleArenaReserved,
    "plan: %e: reserved field %x: must be 0"
  },
  {
    FlatbootRuleEmpty,
    "plan: %e: length 0: must not be empty"
  },
  {
    FlatbootRuleEnd,
    "plan: %e: base %x, length %x: must end at or below %X",
    { FLATBOOT_HANDOFF_MAX_ADDRESS }
  },
  {
    FlatbootRuleOrder,
    "plan: %e: base %x: must not be below the end of the one before, %x"
  },
  {
    FlatbootRuleFlags,
    "plan: %e: flags %x: must have no bit outside %x"
  },
  {
    FlatbootRulePageAlignment,
    "plan: %e: base %x, length %x: must be multiples of %X",
    { FLATBOOT_HANDOFF_PAGE_SIZE }
  },
  {
    FlatbootRuleHeldFlags,
    "plan: %e: flags %x: a held region must have no flag but %X",
    { FLATBOOT_HANDOFF_REGION_HELD }
  },
  {
    FlatbootRuleHeldAlignment,
    "plan: %e: base %x, length %x: must be multiples of %X, as it is held",
    { FLATBOOT_HANDOFF_SECTION_SIZE }
  },
  {
    FlatbootRuleHeldOrder,
    "plan: %e: follows a held region: must be held, too"
  },
  {
    FlatbootRuleSectionAlignment,
    "plan: %e: base %x, length %x: must be multiples of %X unless it is node %u's first or last",
    { FLATBOOT_HANDOFF_SECTION_SIZE }
  },
  {
    FlatbootRuleSharedSection,
    "plan: %e: shares a section with the one of node %u before it: must begin in another section"
  },
  {
    FlatbootRuleArenaAlignment,
    "plan: %e: base %x, length %x: must be multiples of %X",
    { FLATBOOT_HANDOFF_ARENA_ALIGN }
  },
  {
    FlatbootRuleOutside,
    "plan: %e: %x to %x, node %u: must be inside one region of its node that is not held"
  },
  {
    FlatbootRuleMapStride,
    "memory map: descriptors of %u bytes: must be a multiple of %U, at least %U",
    { TABLE_ALIGN, sizeof (EFI_MEMORY_DESCRIPTOR) }
  },
  {
    FlatbootRuleMapSize,
    "memory map: %u bytes: must be whole descriptors of %u bytes"
  },
  {
    FlatbootRuleMapAlignment,
    "memory map: %e: base %x: must be a multiple of %X",
    { FLATBOOT_HANDOFF_PAGE_SIZE }
  },
  {
    FlatbootRuleMapEnd,
    "memory map: %e: base %x, %u pages: must end in 64 bits"
  },
  {
    FlatbootRuleMapOverlap,
    "memory map: base %x: must not be below the end of the range before, %x"
  },
  {
    FlatbootRuleNoMemory,
    "memory map: must have memory at or above %X",
    { FLATBOOT_LOWEST_REGION }
  },
  {
    FlatbootRuleNotMemory,
    "plan: %e: base %x, length %x: must be memory, %x is not"
  }
};

STATIC_ASSERT (ARRAY_SIZE (mLines) == FlatbootRuleMax - 1, "every rule has its line");

///
/// Text as far as it is written.
///
typedef struct {
  CHAR8    *Text;
  ///
  /// Bytes that Text has room for, and characters in it; one byte stays for the NUL.
  ///
  UINTN    Size;
  UINTN    Length;
} LINE;

/**
  Appends a character, unless the line is full.

  @param[in,out] Line       The line.
  @param[in]     Character  What is appended.
**/
STATIC
VOID
AppendCharacter (
  IN OUT LINE  *Line,
  IN CHAR8     Character
  )
{
  if (Line->Length + 1 < Line->Size) {
    Line->Text[Line->Length++] = Character;
  }
}

/**
  Appends text, as much of it as fits.

  @param[in,out] Line  The line.
  @param[in]     Text  What is appended, NUL-terminated.
**/
STATIC
VOID
AppendText (
  IN OUT LINE         *Line,
  IN     CONST CHAR8  *Text
  )
{
  while (*Text != '\0') {
    AppendCharacter (Line, *Text++);
  }
}

/**
  Appends a number.

  @param[in,out] Line     The line.
  @param[in]     Number   What is appended.
  @param[in]     Radix    10, or 16: "0x" and lower-case digits.
  @param[in]     Minimum  Digits at least, 1 to 20: zeroes fill them up.
**/
STATIC
VOID
AppendNumber (
  IN OUT LINE    *Line,
  IN     UINT64  Number,
  IN     UINT32  Radix,
  IN     UINTN   Minimum
  )
{
  CHAR8   Digits[20];
  UINTN   Count;
  UINT32  Digit;

  ASSERT ((Minimum >= 1) && (Minimum <= ARRAY_SIZE (Digits)));
  Count = 0;
  do {
    Number          = DivU64x32Remainder (Number, Radix, &Digit);
    Digits[Count++] = "0123456789abcdef"[Digit];
  } while ((Number != 0) || (Count < Minimum));

  if (Radix == 16) {
    AppendText (Line, "0x");
  }

  while (Count > 0) {
    AppendCharacter (Line, Digits[--Count]);
  }
}

/**
  Appends the name of an entry: "region 3".

  @param[in,out] Line     The line.
  @param[in]     Finding  The finding that names the entry.
**/
STATIC
VOID
AppendEntry (
  IN OUT LINE                    *Line,
  IN     CONST FLATBOOT_FINDING  *Finding
  )
{
  switch (Finding->Entry) {
    case FlatbootEntryRegion:
      AppendText (Line, "region ");
      break;
    case FlatbootEntryArena:
      AppendText (Line, "arena ");
      break;
    case FlatbootEntryDescriptor:
      AppendText (Line, "descriptor ");
      break;
    default:
      AppendText (Line, "entry ");
      break;
  }

  AppendNumber (Line, Finding->Index, 10, 1);
}

/**
  Appends the line of a rule.

  @param[in,out] Line     The line.
  @param[in]     Rule     The rule.
  @param[in]     Finding  The finding, which breaks that rule.
**/
STATIC
VOID
AppendRule (
  IN OUT LINE                    *Line,
  IN     CONST RULE_LINE         *Rule,
  IN     CONST FLATBOOT_FINDING  *Finding
  )
{
  CONST CHAR8   *At;
  CONST UINT64  *Value;
  CONST UINT64  *Number;

  Value  = Finding->Values;
  Number = Rule->Numbers;
  for (At = Rule->Template; *At != '\0'; At++) {
    if (*At != '%') {
      AppendCharacter (Line, *At);
      continue;
    }

    At++;
    switch (*At) {
      case 'e':
        AppendEntry (Line, Finding);
        break;
      case 'x':
        AppendNumber (Line, *Value++, 16, 1);
        break;
      case 'u':
        AppendNumber (Line, *Value++, 10, 1);
        break;
      case 'c':
        AppendNumber (Line, *Value++, 16, 8);
        break;
      case 'X':
        AppendNumber (Line, *Number++, 16, 1);
        break;
      case 'U':
        AppendNumber (Line, *Number++, 10, 1);
        break;
      default:
        ASSERT (FALSE);
        return;
    }
  }
}

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
  )
{
  LINE   Line;
  UINTN  Index;

  ASSERT (Finding != NULL);
  ASSERT (Text != NULL);
  if (Size == 0) {
    return 0;
  }

  Line.Text   = Text;
  Line.Size   = Size;
  Line.Length = 0;
  for (Index = 0; Index < ARRAY_SIZE (mLines); Index++) {
    if (mLines[Index].Rule == Finding->Rule) {
      AppendRule (&Line, &mLines[Index], Finding);
    }
  }

  Line.Text[Line.Length] = '\0';
  return Line.Length;
}

/**
  Clears a finding: no rule is broken.

  @param[out] Finding  What is cleared.
**/
VOID
ClearFinding (
  OUT FLATBOOT_FINDING  *Finding
  )
{
  ZeroMem (Finding, sizeof (*Finding));
}

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
  )
{
  Finding->Rule      = Rule;
  Finding->Entry     = Entry;
  Finding->Index     = Index;
  Finding->Values[0] = First;
  Finding->Values[1] = Second;
  Finding->Values[2] = Third;
  return RETURN_COMPROMISED_DATA;
}
