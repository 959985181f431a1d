/** @file
  Sections that are stored as they are.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include <PiPei.h>
#include <Library/ExtractGuidedSectionLib.h>

extern EFI_GUID  gFlatbootStoredSectionGuid;

/**
  Finds a section's data: what follows its header (PI specification, volume 3, section 3.2.5.7).

  @param[in]  Section  The section.
  @param[out] Data     Its data, in place.
  @param[out] Size     Bytes of it.

  @retval RETURN_SUCCESS            There is data.
  @retval RETURN_INVALID_PARAMETER  The header's sizes contradict each other.
**/
STATIC
RETURN_STATUS
FindData (
  IN  CONST VOID  *Section,
  OUT VOID        **Data,
  OUT UINT32      *Size
  )
{
  UINT32  Offset;
  UINT32  Length;

  if (IS_SECTION2 (Section)) {
    Offset = ((CONST EFI_GUID_DEFINED_SECTION2 *)Section)->DataOffset;
    Length = SECTION2_SIZE (Section);
  } else {
    Offset = ((CONST EFI_GUID_DEFINED_SECTION *)Section)->DataOffset;
    Length = SECTION_SIZE (Section);
  }

  if (Offset > Length) {
    return RETURN_INVALID_PARAMETER;
  }

  *Data = (UINT8 *)Section + Offset;
  *Size = Length - Offset;
  return RETURN_SUCCESS;
}

/**
  Says how much memory decoding takes: what comes out is what is there.

  @param[in]  InputSection        The section.
  @param[out] OutputBufferSize    Bytes of its data.
  @param[out] ScratchBufferSize   0.
  @param[out] SectionAttribute    0: nothing has to be processed.

  @return  As of FindData ().
**/
STATIC
RETURN_STATUS
EFIAPI
GetInfo (
  IN  CONST VOID  *InputSection,
  OUT UINT32      *OutputBufferSize,
  OUT UINT32      *ScratchBufferSize,
  OUT UINT16      *SectionAttribute
  )
{
  VOID  *Data;

  *ScratchBufferSize = 0;
  *SectionAttribute  = 0;
  return FindData (InputSection, &Data, OutputBufferSize);
}

/**
  "Decodes" a section: its data stays where it is.

  @param[in]     InputSection          The section.
  @param[in,out] OutputBuffer          Out: the data, in place; the caller's buffer is not used.
  @param[in]     ScratchBuffer         Not used.
  @param[out]    AuthenticationStatus  0: nothing is signed.

  @return  As of FindData ().
**/
STATIC
RETURN_STATUS
EFIAPI
Decode (
  IN     CONST VOID  *InputSection,
  IN OUT VOID        **OutputBuffer,
  IN     VOID        *ScratchBuffer         OPTIONAL,
  OUT    UINT32      *AuthenticationStatus
  )
{
  UINT32  Size;

  *AuthenticationStatus = 0;
  return FindData (InputSection, OutputBuffer, &Size);
}

/**
  Registers what handles these sections.

  @return  As of ExtractGuidedSectionRegisterHandlers ().
**/
RETURN_STATUS
EFIAPI
StoredSectionLibConstructor (
  VOID
  )
{
  return ExtractGuidedSectionRegisterHandlers (&gFlatbootStoredSectionGuid, GetInfo, Decode);
}
