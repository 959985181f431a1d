/** @file
  Tests of FlatbootNormalizeMemoryMap().

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibUnitTest.h"

#define OWNED  FlatbootUseOwned
#define FREE   FlatbootUseFree

///
/// What firmware of a PC with 3 GiB reports, 1 GiB of them above 4 GiB: its own ranges are scattered, and the flash is no memory.
/// Not sorted.
///
STATIC CONST MAP_ENTRY  mPc[] = {
  { EfiConventionalMemory,  4 * GIB,          5 * GIB          },
  { EfiBootServicesCode,    0,                0x1000           },
  { EfiConventionalMemory,  0x1000,           0xA0000          },
  { EfiConventionalMemory,  MIB,              8 * MIB          },
  { EfiACPIMemoryNVS,       8 * MIB,          8 * MIB + 0x8000 },
  { EfiConventionalMemory,  8 * MIB + 0x8000, 0x7E000000       },
  { EfiBootServicesData,    0x7E000000,       0x7E800000       },
  { EfiRuntimeServicesData, 0x7E800000,       0x7E900000       },
  { EfiRuntimeServicesCode, 0x7E900000,       0x7EA00000       },
  { EfiReservedMemoryType,  0x7EA00000,       0x7EB00000       },
  { EfiACPIReclaimMemory,   0x7EB00000,       0x7EC00000       },
  { EfiACPIMemoryNVS,       0x7EC00000,       0x7F000000       },
  { EfiLoaderCode,          0x7F000000,       0x7F100000       },
  { EfiLoaderData,          0x7F100000,       0x7F200000       },
  { EfiBootServicesCode,    0x7F200000,       0x80000000       },
  { EfiMemoryMappedIO,      0xFFC00000,       0x100000000ULL   }
};

STATIC CONST FLATBOOT_SPAN  mPcSpans[] = {
  { 0,                0xA0000,                       FREE  },
  { MIB,              7 * MIB,                       FREE  },
  { 8 * MIB,          0x8000,                        OWNED },
  { 8 * MIB + 0x8000, 0x7E800000 - 8 * MIB - 0x8000, FREE  },
  { 0x7E800000,       0x800000,                      OWNED },
  { 0x7F000000,       0x1000000,                     FREE  },
  { 4 * GIB,          GIB,                           FREE  }
};

/**
  Compares spans.

  @param[in] Input  The spans that there are.
  @param[in] Spans  The spans that there must be.
  @param[in] Count  How many.

  @retval TRUE   They are the same.
  @retval FALSE  They are not.
**/
STATIC
BOOLEAN
SameSpans (
  IN CONST FLATBOOT_HAND_OFF_INPUT  *Input,
  IN CONST FLATBOOT_SPAN            *Spans,
  IN UINTN                          Count
  )
{
  UINTN  Index;

  if (Input->SpanCount != Count) {
    UT_LOG_ERROR ("%d spans: must be %d\n", Input->SpanCount, Count);
    return FALSE;
  }

  for (Index = 0; Index < Count; Index++) {
    if ((Input->Spans[Index].Base != Spans[Index].Base) || (Input->Spans[Index].Length != Spans[Index].Length) ||
        (Input->Spans[Index].Use != Spans[Index].Use))
    {
      UT_LOG_ERROR (
        "span %d: 0x%lx, 0x%lx bytes, use %d\n",
        Index,
        Input->Spans[Index].Base,
        Input->Spans[Index].Length,
        Input->Spans[Index].Use
        );
      return FALSE;
    }
  }

  return TRUE;
}

/**
  Normalizes a map that breaks a rule.

  @param[in]  Map             The map; NULL if it is Count descriptors of nothing.
  @param[in]  Size            Bytes of it.
  @param[in]  DescriptorSize  Bytes of a descriptor.
  @param[out] Finding         Which rule.

  @return What FlatbootNormalizeMemoryMap() returned.
**/
STATIC
RETURN_STATUS
Normalize (
  IN  CONST VOID        *Map,
  IN  UINTN             Size,
  IN  UINTN             DescriptorSize,
  OUT FLATBOOT_FINDING  *Finding
  )
{
  FLATBOOT_SPAN  Spans[8];
  UINTN          Count;

  Count = ARRAY_SIZE (Spans);
  return FlatbootNormalizeMemoryMap (Map, Size, DescriptorSize, Spans, &Count, Finding);
}

/**
  An empty map has no memory.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
TakesAnEmptyMap (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_FINDING  Finding;
  FLATBOOT_SPAN     Span;
  UINTN             Count;

  Count = 1;
  UT_ASSERT_STATUS_EQUAL (
    FlatbootNormalizeMemoryMap (NULL, 0, sizeof (EFI_MEMORY_DESCRIPTOR), &Span, &Count, &Finding),
    RETURN_SUCCESS
    );
  UT_ASSERT_EQUAL (Count, 0);
  UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
  return UNIT_TEST_PASSED;
}

/**
  The memory of a PC's map is sorted, and joined where it touches and has the same use.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
NormalizesThatOfAPc (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HAND_OFF_INPUT  Input;

  UT_ASSERT_STATUS_EQUAL (MakeMemory (mPc, ARRAY_SIZE (mPc), &Input), RETURN_SUCCESS);
  UT_ASSERT_TRUE (SameSpans (&Input, mPcSpans, ARRAY_SIZE (mPcSpans)));
  return UNIT_TEST_PASSED;
}

/**
  The order of descriptors does not matter: each rotation of a map, forwards and backwards, has the same memory.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
TakesAnyOrder (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HAND_OFF_INPUT  Input;
  MAP_ENTRY                Turned[ARRAY_SIZE (mPc)];
  UINTN                    Turn;
  UINTN                    Index;

  for (Turn = 0; Turn < 2 * ARRAY_SIZE (mPc); Turn++) {
    for (Index = 0; Index < ARRAY_SIZE (mPc); Index++) {
      Turned[Index] = mPc[((Turn % 2 == 0 ? Index : ARRAY_SIZE (mPc) - Index) + Turn / 2) % ARRAY_SIZE (mPc)];
    }

    UT_ASSERT_STATUS_EQUAL (MakeMemory (Turned, ARRAY_SIZE (mPc), &Input), RETURN_SUCCESS);
    UT_ASSERT_TRUE (SameSpans (&Input, mPcSpans, ARRAY_SIZE (mPcSpans)));
  }

  return UNIT_TEST_PASSED;
}

/**
  Each memory type is free, owned or no memory, by what an OS may do with it.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
KnowsTheTypes (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    UINT32          Type;
    FLATBOOT_USE    Use;
  } Types[] = {
    { EfiReservedMemoryType,      OWNED           },
    { EfiLoaderCode,              FREE            },
    { EfiLoaderData,              FREE            },
    { EfiBootServicesCode,        FREE            },
    { EfiBootServicesData,        FREE            },
    { EfiRuntimeServicesCode,     OWNED           },
    { EfiRuntimeServicesData,     OWNED           },
    { EfiConventionalMemory,      FREE            },
    { EfiUnusableMemory,          FlatbootUseNone },
    { EfiACPIReclaimMemory,       OWNED           },
    { EfiACPIMemoryNVS,           OWNED           },
    { EfiMemoryMappedIO,          FlatbootUseNone },
    { EfiMemoryMappedIOPortSpace, FlatbootUseNone },
    { EfiPalCode,                 FlatbootUseNone },
    { EfiPersistentMemory,        FlatbootUseNone },
    { EfiUnacceptedMemoryType,    OWNED           },
    { EfiMaxMemoryType,           FlatbootUseNone },
    { 0x6FFFFFFF,                 FlatbootUseNone },
    { 0x70000000,                 OWNED           },
    { 0x7FFFFFFF,                 OWNED           },
    { 0x80000000,                 OWNED           },
    { 0xFFFFFFFF,                 OWNED           }
  };
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_SPAN            Span;
  MAP_ENTRY                Entry;
  UINTN                    Index;

  for (Index = 0; Index < ARRAY_SIZE (Types); Index++) {
    Entry.Type  = Types[Index].Type;
    Entry.Base  = GIB;
    Entry.End   = 2 * GIB;
    Span.Base   = GIB;
    Span.Length = GIB;
    Span.Use    = Types[Index].Use;
    UT_ASSERT_STATUS_EQUAL (MakeMemory (&Entry, 1, &Input), RETURN_SUCCESS);
    UT_ASSERT_TRUE (SameSpans (&Input, &Span, (Span.Use == FlatbootUseNone) ? 0 : 1));
  }

  return UNIT_TEST_PASSED;
}

/**
  What cannot be cached is no memory, of whatever type; memory for a special purpose is owned.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
LooksAtAttributes (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST UINT32    Types[] = { EfiReservedMemoryType, EfiConventionalMemory, EfiRuntimeServicesData, 0x80000001 };
  EFI_MEMORY_DESCRIPTOR  *Map;
  FLATBOOT_FINDING       Finding;
  FLATBOOT_SPAN          Spans[1];
  MAP_ENTRY              Entry;
  UINTN                  Index;
  UINTN                  Count;

  for (Index = 0; Index < ARRAY_SIZE (Types); Index++) {
    Entry.Type     = Types[Index];
    Entry.Base     = GIB;
    Entry.End      = 2 * GIB;
    Map            = MakeMap (&Entry, 1);
    Map->Attribute = ~(UINT64)EFI_MEMORY_WB;
    Count          = 1;
    UT_ASSERT_STATUS_EQUAL (
      FlatbootNormalizeMemoryMap (Map, sizeof (*Map), sizeof (*Map), Spans, &Count, &Finding),
      RETURN_SUCCESS
      );
    UT_ASSERT_EQUAL (Count, 0);
  }

  Entry.Type     = EfiConventionalMemory;
  Map            = MakeMap (&Entry, 1);
  Map->Attribute = EFI_MEMORY_WB | EFI_MEMORY_SP;
  Count          = 1;
  UT_ASSERT_STATUS_EQUAL (
    FlatbootNormalizeMemoryMap (Map, sizeof (*Map), sizeof (*Map), Spans, &Count, &Finding),
    RETURN_SUCCESS
    );
  UT_ASSERT_EQUAL (Count, 1);
  UT_ASSERT_EQUAL (Spans[0].Use, OWNED);
  return UNIT_TEST_PASSED;
}

/**
  Ranges that overlap make a map worthless, even if one of them is no memory.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsOverlaps (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    MAP_ENTRY    Map[3];
    UINT64       Base;
    UINT64       End;
  } Overlaps[] = {
    {
      { { EfiConventionalMemory, GIB, 2 * GIB }, { EfiLoaderData, 2 * GIB - PAGE, 3 * GIB } },
      2 * GIB - PAGE, 2 * GIB
    },
    {
      { { EfiLoaderData, 2 * GIB - PAGE, 3 * GIB }, { EfiConventionalMemory, GIB, 2 * GIB } },
      2 * GIB - PAGE, 2 * GIB
    },
    {
      { { EfiConventionalMemory, GIB, 2 * GIB }, { EfiConventionalMemory, GIB, 2 * GIB } },
      GIB, 2 * GIB
    },
    {
      { { EfiConventionalMemory, 0, 4 * GIB }, { EfiMemoryMappedIO, 3 * GIB, 3 * GIB + PAGE } },
      3 * GIB, 4 * GIB
    },
    {
      { { EfiMemoryMappedIO, 0, 4 * GIB }, { EfiMemoryMappedIO, 3 * GIB, 3 * GIB + PAGE } },
      3 * GIB, 4 * GIB
    },
    {
      { { EfiLoaderData, 0, GIB }, { EfiLoaderData, GIB, 2 * GIB }, { EfiLoaderData, GIB + PAGE, GIB + 2 * PAGE } },
      GIB + PAGE, 2 * GIB
    }
  };
  FLATBOOT_FINDING  Finding;
  UINTN             Index;
  UINTN             Count;

  for (Index = 0; Index < ARRAY_SIZE (Overlaps); Index++) {
    Count = (Overlaps[Index].Map[2].End == 0) ? 2 : 3;
    UT_ASSERT_STATUS_EQUAL (
      Normalize (
        MakeMap (Overlaps[Index].Map, Count),
        Count * sizeof (EFI_MEMORY_DESCRIPTOR),
        sizeof (EFI_MEMORY_DESCRIPTOR),
        &Finding
        ),
      RETURN_COMPROMISED_DATA
      );
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleMapOverlap);
    UT_ASSERT_EQUAL (Finding.Values[0], Overlaps[Index].Base);
    UT_ASSERT_EQUAL (Finding.Values[1], Overlaps[Index].End);
  }

  return UNIT_TEST_PASSED;
}

/**
  Descriptors may be longer than this version of UEFI knows them: what is behind each is not looked at.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
TakesLongerDescriptors (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  FLATBOOT_HAND_OFF_INPUT  Input;
  EFI_MEMORY_DESCRIPTOR    *Map;
  FLATBOOT_FINDING         Finding;
  FLATBOOT_SPAN            *Spans;
  UINT8                    *Longer;
  UINTN                    Stride;
  UINTN                    Index;

  Map = MakeMap (mPc, ARRAY_SIZE (mPc));
  for (Stride = sizeof (*Map); Stride <= 2 * sizeof (*Map); Stride += 8) {
    Longer = TestAllocate (ARRAY_SIZE (mPc) * Stride);
    for (Index = 0; Index < ARRAY_SIZE (mPc); Index++) {
      CopyMem (Longer + Index * Stride, &Map[Index], sizeof (*Map));
    }

    Spans           = TestAllocate (ARRAY_SIZE (mPc) * sizeof (*Spans));
    Input.Spans     = Spans;
    Input.SpanCount = ARRAY_SIZE (mPc);
    UT_ASSERT_STATUS_EQUAL (
      FlatbootNormalizeMemoryMap (
        (EFI_MEMORY_DESCRIPTOR *)Longer,
        ARRAY_SIZE (mPc) * Stride,
        Stride,
        Spans,
        &Input.SpanCount,
        &Finding
        ),
      RETURN_SUCCESS
      );
    UT_ASSERT_TRUE (SameSpans (&Input, mPcSpans, ARRAY_SIZE (mPcSpans)));
  }

  return UNIT_TEST_PASSED;
}

/**
  Descriptors that are too short or unaligned, and maps that end in the middle of one, are no maps.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsWrongSizes (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST UINTN     Strides[] = { 0, 1, 8, 32, 39, 41, 44, 47, 52 };
  EFI_MEMORY_DESCRIPTOR  *Map;
  FLATBOOT_FINDING       Finding;
  UINTN                  Index;

  Map = MakeMap (mPc, 2);
  for (Index = 0; Index < ARRAY_SIZE (Strides); Index++) {
    UT_ASSERT_STATUS_EQUAL (Normalize (Map, sizeof (*Map), Strides[Index], &Finding), RETURN_COMPROMISED_DATA);
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleMapStride);
    UT_ASSERT_EQUAL (Finding.Values[0], Strides[Index]);
  }

  for (Index = 1; Index < 2 * sizeof (*Map); Index++) {
    if (Index != sizeof (*Map)) {
      UT_ASSERT_STATUS_EQUAL (Normalize (Map, Index, sizeof (*Map), &Finding), RETURN_COMPROMISED_DATA);
      UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleMapSize);
      UT_ASSERT_EQUAL (Finding.Values[0], Index);
      UT_ASSERT_EQUAL (Finding.Values[1], sizeof (*Map));
    }
  }

  UT_ASSERT_STATUS_EQUAL (Normalize (NULL, sizeof (*Map), sizeof (*Map), &Finding), RETURN_INVALID_PARAMETER);
  UT_ASSERT_STATUS_EQUAL (Normalize ((UINT8 *)Map + 4, sizeof (*Map), sizeof (*Map), &Finding), RETURN_INVALID_PARAMETER);
  return UNIT_TEST_PASSED;
}

/**
  A descriptor of no pages describes nothing, wherever it is.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SkipsEmptyDescriptors (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MAP_ENTRY  Map[] = {
    { EfiLoaderData,         GIB + MIB, GIB + MIB },
    { EfiConventionalMemory, GIB,       2 * GIB   },
    { EfiMemoryMappedIO,     GIB,       GIB       }
  };
  STATIC CONST FLATBOOT_SPAN  Spans[] = {
    { GIB, GIB, FREE }
  };
  FLATBOOT_HAND_OFF_INPUT     Input;

  UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, ARRAY_SIZE (Map), &Input), RETURN_SUCCESS);
  UT_ASSERT_TRUE (SameSpans (&Input, Spans, ARRAY_SIZE (Spans)));
  return UNIT_TEST_PASSED;
}

/**
  A range that does not begin with a page is named.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsUnalignedRanges (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  EFI_MEMORY_DESCRIPTOR  *Map;
  FLATBOOT_FINDING       Finding;

  Map                   = MakeMap (mPc, 3);
  Map[2].PhysicalStart += 0x800;
  UT_ASSERT_STATUS_EQUAL (Normalize (Map, 3 * sizeof (*Map), sizeof (*Map), &Finding), RETURN_COMPROMISED_DATA);
  UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleMapAlignment);
  UT_ASSERT_EQUAL (Finding.Entry, FlatbootEntryDescriptor);
  UT_ASSERT_EQUAL (Finding.Index, 2);
  UT_ASSERT_EQUAL (Finding.Values[0], 0x1800);
  return UNIT_TEST_PASSED;
}

/**
  A range that goes past 64 bits is named, whether its length wraps or its end; one that ends there is taken.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
FindsRangesThatWrap (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST struct {
    UINT64     Base;
    UINT64     Pages;
    BOOLEAN    Sound;
  } Ranges[] = {
    { MAX_UINT64 - PAGE + 1, 1,                       TRUE  },
    { MAX_UINT64 - PAGE + 1, 2,                       FALSE },
    { 0,                     (MAX_UINT64 >> 12) + 1,  TRUE  },
    { 0,                     (MAX_UINT64 >> 12) + 2,  FALSE },
    { PAGE,                  (MAX_UINT64 >> 12) + 1,  FALSE },
    { PAGE,                  MAX_UINT64 >> 12,        TRUE  },
    { GIB,                   MAX_UINT64,              FALSE },
    { GIB,                   BIT52 - (GIB >> 12) + 1, FALSE },
    { GIB,                   BIT52,                   FALSE }
  };
  EFI_MEMORY_DESCRIPTOR  *Map;
  FLATBOOT_FINDING       Finding;
  UINTN                  Index;

  Map = MakeMap (mPc, 2);
  for (Index = 0; Index < ARRAY_SIZE (Ranges); Index++) {
    Map[0].NumberOfPages = 0;
    Map[1].Type          = EfiMemoryMappedIO;
    Map[1].PhysicalStart = Ranges[Index].Base;
    Map[1].NumberOfPages = Ranges[Index].Pages;
    UT_ASSERT_STATUS_EQUAL (
      Normalize (Map, 2 * sizeof (*Map), sizeof (*Map), &Finding),
      Ranges[Index].Sound ? RETURN_SUCCESS : RETURN_COMPROMISED_DATA
      );
    UT_ASSERT_EQUAL (Finding.Rule, Ranges[Index].Sound ? FlatbootRuleNone : FlatbootRuleMapEnd);
    UT_ASSERT_EQUAL (Finding.Index, Ranges[Index].Sound ? 0 : 1);
  }

  return UNIT_TEST_PASSED;
}

/**
  Memory ends where the contract's addresses do.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
EndsWhereAddressesDo (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST MAP_ENTRY  Map[] = {
    { EfiConventionalMemory, TOP + GIB, TOP + 2 * GIB },
    { EfiConventionalMemory, TOP - GIB, TOP + GIB     }
  };
  STATIC CONST FLATBOOT_SPAN  Spans[] = {
    { TOP - GIB, GIB, FREE }
  };
  FLATBOOT_HAND_OFF_INPUT     Input;

  UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, ARRAY_SIZE (Map), &Input), RETURN_SUCCESS);
  UT_ASSERT_TRUE (SameSpans (&Input, Spans, ARRAY_SIZE (Spans)));
  return UNIT_TEST_PASSED;
}

/**
  A caller with too little room learns how much is needed, and none of it is written to.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
SaysHowMuchRoomItNeeds (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  EFI_MEMORY_DESCRIPTOR  *Map;
  FLATBOOT_FINDING       Finding;
  FLATBOOT_SPAN          *Spans;
  UINTN                  Room;
  UINTN                  Count;

  Map = MakeMap (mPc, ARRAY_SIZE (mPc));
  for (Room = 0; Room < ARRAY_SIZE (mPc); Room++) {
    Spans = TestAllocate (Room * sizeof (*Spans));
    Count = Room;
    UT_ASSERT_STATUS_EQUAL (
      FlatbootNormalizeMemoryMap (Map, ARRAY_SIZE (mPc) * sizeof (*Map), sizeof (*Map), Spans, &Count, &Finding),
      RETURN_BUFFER_TOO_SMALL
      );
    UT_ASSERT_EQUAL (Count, ARRAY_SIZE (mPc));
    UT_ASSERT_EQUAL (Finding.Rule, FlatbootRuleNone);
    UT_ASSERT_TRUE ((Room == 0) || (*(UINT8 *)Spans == 0xA5));
  }

  return UNIT_TEST_PASSED;
}

/**
  Maps of 200 descriptors in any order have the memory that was dealt out.

  @param[in] Context  Not used.

  @return The test's verdict.
**/
STATIC
UNIT_TEST_STATUS
EFIAPI
NormalizesLargeMaps (
  IN UNIT_TEST_CONTEXT  Context
  )
{
  STATIC CONST UINT32      Types[]  = { EfiMemoryMappedIO, EfiReservedMemoryType, EfiConventionalMemory, EfiLoaderData };
  STATIC CONST FLATBOOT_USE  Uses[] = { FlatbootUseNone, OWNED, FREE, FREE };
  FLATBOOT_HAND_OFF_INPUT  Input;
  FLATBOOT_SPAN            Expected[200];
  MAP_ENTRY                Map[200];
  MAP_ENTRY                Entry;
  RANDOM                   Random;
  UINT64                   At;
  UINTN                    Round;
  UINTN                    Index;
  UINTN                    Other;
  UINTN                    Count;

  Random.State = 200;
  for (Round = 0; Round < 100; Round++) {
    At    = 0;
    Count = 0;
    for (Index = 0; Index < ARRAY_SIZE (Map); Index++) {
      //
      // A hole every fourth time.
      //
      At             += (NextRandom (&Random, 4) == 0) ? PAGE * (1 + NextRandom (&Random, 1 << 20)) : 0;
      Other           = NextRandom (&Random, ARRAY_SIZE (Types));
      Map[Index].Type = Types[Other];
      Map[Index].Base = At;
      Map[Index].End  = At + PAGE * (1 + NextRandom (&Random, 1 << 16));
      if ((Count > 0) && (Expected[Count - 1].Use == Uses[Other]) &&
          (Expected[Count - 1].Base + Expected[Count - 1].Length == At))
      {
        Expected[Count - 1].Length += Map[Index].End - At;
      } else if (Uses[Other] != FlatbootUseNone) {
        Expected[Count].Base   = At;
        Expected[Count].Length = Map[Index].End - At;
        Expected[Count].Use    = Uses[Other];
        Count++;
      }

      At = Map[Index].End;
    }

    for (Index = ARRAY_SIZE (Map) - 1; Index > 0; Index--) {
      Other      = NextRandom (&Random, Index + 1);
      Entry      = Map[Index];
      Map[Index] = Map[Other];
      Map[Other] = Entry;
    }

    UT_ASSERT_STATUS_EQUAL (MakeMemory (Map, ARRAY_SIZE (Map), &Input), RETURN_SUCCESS);
    UT_ASSERT_TRUE (SameSpans (&Input, Expected, Count));
  }

  return UNIT_TEST_PASSED;
}

/**
  Adds the tests of this file to a suite.

  @param[in] Suite  The suite.
**/
VOID
AddMemoryMapTests (
  IN UNIT_TEST_SUITE_HANDLE  Suite
  )
{
  AddTest (Suite, "an empty map has no memory", "Empty", TakesAnEmptyMap);
  AddTest (Suite, "a PC's map is sorted and joined", "Pc", NormalizesThatOfAPc);
  AddTest (Suite, "the order of descriptors does not matter", "Order", TakesAnyOrder);
  AddTest (Suite, "each type is free, owned or no memory", "Types", KnowsTheTypes);
  AddTest (Suite, "attributes say what is memory", "Attributes", LooksAtAttributes);
  AddTest (Suite, "overlaps are found", "Overlaps", FindsOverlaps);
  AddTest (Suite, "descriptors may be longer", "Stride", TakesLongerDescriptors);
  AddTest (Suite, "wrong sizes are found", "Sizes", FindsWrongSizes);
  AddTest (Suite, "empty descriptors are skipped", "Nothing", SkipsEmptyDescriptors);
  AddTest (Suite, "unaligned ranges are found", "Alignment", FindsUnalignedRanges);
  AddTest (Suite, "ranges that wrap are found", "Wrap", FindsRangesThatWrap);
  AddTest (Suite, "memory ends where addresses do", "Top", EndsWhereAddressesDo);
  AddTest (Suite, "the room that is needed is said", "Room", SaysHowMuchRoomItNeeds);
  AddTest (Suite, "200 descriptors in any order", "Large", NormalizesLargeMaps);
}
