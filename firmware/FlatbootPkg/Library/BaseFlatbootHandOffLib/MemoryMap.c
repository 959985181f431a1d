/** @file
  From a UEFI memory map to sorted spans of memory.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include "HandOffLibInternal.h"

///
/// The memory types of OEMs and, above, of OS loaders (UEFI specification, section 7.2, AllocatePages()).
///
#define LOWEST_CUSTOM_MEMORY_TYPE  0x70000000

/**
  Says whose the memory of a descriptor is.

  @param[in] Descriptor  The descriptor.

  @return Its use; FlatbootUseNone if it describes no memory.
**/
STATIC
FLATBOOT_USE
DescriptorUse (
  IN CONST EFI_MEMORY_DESCRIPTOR  *Descriptor
  )
{
  //
  // RAM can be cached. What cannot is a device's, whatever its type: reserved ranges above all, which PCI's configuration
  // space is one of.
  //
  if ((Descriptor->Attribute & EFI_MEMORY_WB) == 0) {
    return FlatbootUseNone;
  }

  switch (Descriptor->Type) {
    case EfiConventionalMemory:
    case EfiLoaderCode:
    case EfiLoaderData:
    case EfiBootServicesCode:
    case EfiBootServicesData:
      //
      // Memory for a special purpose is not for an OS that does not know the purpose.
      //
      return ((Descriptor->Attribute & EFI_MEMORY_SP) == 0) ? FlatbootUseFree : FlatbootUseOwned;

    case EfiReservedMemoryType:
    case EfiRuntimeServicesCode:
    case EfiRuntimeServicesData:
    case EfiACPIReclaimMemory:
    case EfiACPIMemoryNVS:
    case EfiUnacceptedMemoryType:
      return FlatbootUseOwned;

    default:
      //
      // Custom types are what AllocatePages() was asked for, and that hands out RAM. All others are no RAM, may not be used
      // as such, or have no meaning yet.
      //
      return (Descriptor->Type >= LOWEST_CUSTOM_MEMORY_TYPE) ? FlatbootUseOwned : FlatbootUseNone;
  }
}

/**
  Turns a descriptor into a span, cut at FLATBOOT_HANDOFF_MAX_ADDRESS.

  @param[in]  Descriptor  The descriptor.
  @param[in]  Index       Which one.
  @param[out] Span        The span; its length is 0 if nothing is left of it. Its use may be FlatbootUseNone.
  @param[out] Finding     The broken rule, if there is one.

  @retval RETURN_SUCCESS           Span is what the descriptor describes.
  @retval RETURN_COMPROMISED_DATA  Finding says what is wrong.
**/
STATIC
RETURN_STATUS
DescriptorSpan (
  IN  CONST EFI_MEMORY_DESCRIPTOR  *Descriptor,
  IN  UINTN                        Index,
  OUT FLATBOOT_SPAN                *Span,
  OUT FLATBOOT_FINDING             *Finding
  )
{
  UINT64  Base;
  UINT64  Pages;

  Base  = Descriptor->PhysicalStart;
  Pages = Descriptor->NumberOfPages;
  if (!IS_MULTIPLE (Base, EFI_PAGE_SIZE)) {
    return Report (Finding, FlatbootRuleMapAlignment, FlatbootEntryDescriptor, Index, Base, 0, 0);
  }

  //
  // A device may end where 64 bits do. Counted in pages, its end is a number.
  //
  if (Pages > RShiftU64 (MAX_UINT64 - Base, EFI_PAGE_SHIFT) + 1) {
    return Report (Finding, FlatbootRuleMapEnd, FlatbootEntryDescriptor, Index, Base, Pages, 0);
  }

  Span->Base   = Base;
  Span->Length = 0;
  Span->Use    = DescriptorUse (Descriptor);
  if (Base < FLATBOOT_HANDOFF_MAX_ADDRESS) {
    Pages        = MIN (Pages, RShiftU64 (FLATBOOT_HANDOFF_MAX_ADDRESS - Base, EFI_PAGE_SHIFT));
    Span->Length = LShiftU64 (Pages, EFI_PAGE_SHIFT);
  }

  return RETURN_SUCCESS;
}

/**
  Puts a span where it belongs among sorted ones. Maps are sorted more often than not, so that is the end, most of the time.

  @param[in,out] Spans  Spans sorted by base, with room for one more.
  @param[in]     Count  How many there are.
  @param[in]     Span   The span to put in; not one of Spans.
**/
STATIC
VOID
InsertSpan (
  IN OUT FLATBOOT_SPAN        *Spans,
  IN     UINTN                Count,
  IN     CONST FLATBOOT_SPAN  *Span
  )
{
  while ((Count > 0) && (Spans[Count - 1].Base > Span->Base)) {
    Spans[Count] = Spans[Count - 1];
    Count--;
  }

  Spans[Count] = *Span;
}

/**
  Joins what touches and has the same use, and leaves out what is no memory.

  @param[in,out] Spans    Spans sorted by base, none of them empty.
  @param[in,out] Count    How many there are, before and after.
  @param[out]    Finding  The broken rule, if there is one.

  @retval RETURN_SUCCESS           Spans is what FlatbootNormalizeMemoryMap() returns.
  @retval RETURN_COMPROMISED_DATA  Two spans overlap: Finding says where.
**/
STATIC
RETURN_STATUS
JoinSpans (
  IN OUT FLATBOOT_SPAN     *Spans,
  IN OUT UINTN             *Count,
  OUT    FLATBOOT_FINDING  *Finding
  )
{
  UINT64  End;
  UINTN   Index;
  UINTN   Kept;

  End  = 0;
  Kept = 0;
  for (Index = 0; Index < *Count; Index++) {
    if (Spans[Index].Base < End) {
      return Report (Finding, FlatbootRuleMapOverlap, FlatbootEntryNone, 0, Spans[Index].Base, End, 0);
    }

    End = Spans[Index].Base + Spans[Index].Length;
    if (Spans[Index].Use == FlatbootUseNone) {
      continue;
    }

    if ((Kept > 0) && (Spans[Kept - 1].Use == Spans[Index].Use) &&
        (Spans[Kept - 1].Base + Spans[Kept - 1].Length == Spans[Index].Base))
    {
      Spans[Kept - 1].Length += Spans[Index].Length;
    } else {
      Spans[Kept++] = Spans[Index];
    }
  }

  *Count = Kept;
  return RETURN_SUCCESS;
}

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
  )
{
  CONST UINT8    *Descriptor;
  RETURN_STATUS  Status;
  FLATBOOT_SPAN  Span;
  UINTN          Descriptors;
  UINTN          Index;
  UINTN          Count;

  ASSERT (Spans != NULL);
  ASSERT (SpanCount != NULL);
  ASSERT (Finding != NULL);
  ClearFinding (Finding);
  if (((MemoryMap == NULL) && (MapSize != 0)) || !IS_MULTIPLE ((UINTN)MemoryMap, TABLE_ALIGN)) {
    return RETURN_INVALID_PARAMETER;
  }

  if ((DescriptorSize < sizeof (*MemoryMap)) || !IS_MULTIPLE (DescriptorSize, TABLE_ALIGN)) {
    return Report (Finding, FlatbootRuleMapStride, FlatbootEntryNone, 0, DescriptorSize, 0, 0);
  }

  if (MapSize % DescriptorSize != 0) {
    return Report (Finding, FlatbootRuleMapSize, FlatbootEntryNone, 0, MapSize, DescriptorSize, 0);
  }

  Descriptors = MapSize / DescriptorSize;
  if (*SpanCount < Descriptors) {
    *SpanCount = Descriptors;
    return RETURN_BUFFER_TOO_SMALL;
  }

  Count      = 0;
  Descriptor = (CONST UINT8 *)MemoryMap;
  for (Index = 0; Index < Descriptors; Index++) {
    Status = DescriptorSpan ((CONST EFI_MEMORY_DESCRIPTOR *)Descriptor, Index, &Span, Finding);
    if (RETURN_ERROR (Status)) {
      return Status;
    }

    if (Span.Length != 0) {
      InsertSpan (Spans, Count++, &Span);
    }

    Descriptor += DescriptorSize;
  }

  Status = JoinSpans (Spans, &Count, Finding);
  if (!RETURN_ERROR (Status)) {
    *SpanCount = Count;
  }

  return Status;
}
