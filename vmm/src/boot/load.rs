// SPDX-License-Identifier: Apache-2.0
//! What the guest finds in its memory besides the kernel: initramfs, command line, page tables, zero page, hand-off, ACPI.

use flatboot_handoff::{SETUP_DATA_TYPE, TableError};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryError, ReadVolatile};

use crate::acpi::{self, AcpiError};
use crate::bits::{index, low32};
use crate::config::{Cmdline, HandOff, InputFile};
use crate::cpu::registers;
use crate::kernel::{Image, zero_page};
use crate::layout;
use crate::memory::{GpaRange, GuestMemory, MemoryPlan};

/// Why guest memory could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file changed or could not be read.
    #[error("{what} {path}: cannot be read into guest memory at {range}")]
    Copy {
        /// What it is to the guest.
        what: &'static str,
        /// The file.
        path: String,
        /// Where it goes.
        range: GpaRange,
        /// Why.
        source: GuestMemoryError,
    },
    /// A boot structure is outside of guest memory.
    #[error("boot tables cannot be written to guest memory")]
    Write(#[from] GuestMemoryError),
    /// The plan breaks the hand-off's own rules.
    #[error("memory hand-off")]
    HandOff(#[from] TableError),
    /// The hand-off has no room.
    #[error("memory hand-off needs {needed} bytes, {room} are reserved for it; use fewer memory holes")]
    HandOffTooLarge {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that the layout reserves.
        room: u64,
    },
    /// ACPI.
    #[error(transparent)]
    Acpi(#[from] AcpiError),
}

/// What the tables follow from.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) cmdline: &'a Cmdline,
    pub(super) hand_off: &'a HandOff,
    pub(super) plan: &'a MemoryPlan,
    pub(super) image: &'a Image,
    pub(super) acpi: acpi::Machine<'a>,
}

/// Reads the initramfs, if there is one, into its place.
pub(super) fn initramfs(
    memory: &GuestMemory,
    file: Option<&InputFile>,
    range: Option<GpaRange>,
) -> Result<(), LoadError> {
    let (Some(file), Some(range)) = (file, range) else {
        return Ok(());
    };
    copy("initramfs", file, memory, GuestAddress(range.start()))
}

/// Writes everything that the kernel reads before it owns its memory.
pub(super) fn tables(memory: &GuestMemory, tables: &Tables<'_>) -> Result<(), LoadError> {
    let Tables { cmdline, hand_off, plan, image, ref acpi } = *tables;
    registers::write_tables(memory)?;

    memory.write_slice(&cmdline.to_bytes_with_nul(), GuestAddress(layout::CMDLINE.start))?;

    let setup_data = write_hand_off(memory, hand_off, plan)?;
    let (header, initramfs) = (image.setup_header(), plan.initramfs());
    let params = zero_page::build(header, cmdline.as_str().len(), setup_data, initramfs, plan.e820());
    memory.write_obj(params, GuestAddress(layout::ZERO_PAGE.start))?;

    Ok(acpi::write(memory, acpi)?)
}

/// Writes the hand-off; returns its GPA, 0 if there is none.
fn write_hand_off(memory: &GuestMemory, hand_off: &HandOff, plan: &MemoryPlan) -> Result<u64, LoadError> {
    match hand_off {
        HandOff::Planned => {
            let table = plan.hand_off()?;
            let length = table.len() as u64;
            if length > layout::HANDOFF_MAX {
                return Err(LoadError::HandOffTooLarge { needed: length, room: layout::HANDOFF_MAX });
            }
            memory.write_slice(&table, setup_data(memory, length)?)?;
        }
        HandOff::Off => return Ok(0),
        // Opening it has checked that there is room.
        HandOff::File(file) => copy("hand-off", file, memory, setup_data(memory, file.length())?)?,
    }
    Ok(layout::HANDOFF.start)
}

/// The header of the only `struct setup_data` (`Documentation/arch/x86/boot.rst`); returns where its `length` bytes go.
fn setup_data(memory: &GuestMemory, length: u64) -> Result<GuestAddress, LoadError> {
    let base = layout::HANDOFF.start;
    memory.write_obj(0u64, GuestAddress(base))?;
    memory.write_obj(SETUP_DATA_TYPE, GuestAddress(base + 8))?;
    memory.write_obj(low32(length), GuestAddress(base + 12))?;
    Ok(GuestAddress(base + layout::SETUP_DATA_HEADER))
}

/// What is read at once: Linux reads less than 2 GiB however much it is asked for.
const PIECE: u64 = 1 << 30;

/// Reads all of `file`, which is the guest's `what`, to `address`.
fn copy(what: &'static str, file: &InputFile, memory: &GuestMemory, address: GuestAddress) -> Result<(), LoadError> {
    read(&mut file.file(), memory, address, file.length(), PIECE).map_err(|source| LoadError::Copy {
        what,
        path: file.path().display().to_string(),
        range: GpaRange::of(address.0, file.length()),
        source,
    })
}

/// Reads `length` bytes to `address`, at most `piece` at a time.
fn read(
    file: &mut impl ReadVolatile,
    memory: &GuestMemory,
    address: GuestAddress,
    length: u64,
    piece: u64,
) -> Result<(), GuestMemoryError> {
    let mut done = 0;
    while done < length {
        let part = piece.min(length - done);
        memory.read_exact_volatile_from(address.unchecked_add(done), file, index(part))?;
        done += part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::memory::{AddressWidth, MemorySize, PayloadKind, PlanInput};

    const BASE: GuestAddress = GuestAddress(layout::HANDOFF.start);

    #[test]
    fn a_file_is_read_in_pieces() {
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let content: Vec<u8> = (0..=255).cycle().take(10_001).collect();
        for piece in [1000, 10_001, 1 << 30] {
            read(&mut content.as_slice(), &memory, GuestAddress(4096), 10_001, piece).unwrap();
            let mut found = vec![0; content.len()];
            memory.read_slice(&mut found, GuestAddress(4096)).unwrap();
            assert!(found == content, "pieces of {piece}");
            memory.write_slice(&vec![0; content.len()], GuestAddress(4096)).unwrap();
        }
        assert!(read(&mut content.as_slice(), &memory, GuestAddress(0), 10_002, 1000).is_err(), "it is shorter");
    }

    fn plan() -> MemoryPlan {
        let size = MemorySize::try_from(64 << 20).unwrap();
        MemoryPlan::new(&PlanInput::new(size), PayloadKind::Firmware, AddressWidth::reported(40)).unwrap()
    }

    /// Guest memory after `which` was handed off, and the zero page's pointer to it.
    fn written(which: &HandOff) -> (GuestMemory, u64) {
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let address = write_hand_off(&memory, which, &plan()).unwrap();
        (memory, address)
    }

    /// The payload of the `setup_data` node, whose header is checked.
    fn payload(memory: &GuestMemory) -> Vec<u8> {
        let header: [u32; 4] = memory.read_obj(BASE).unwrap();
        assert_eq!(header[..3], [0, 0, SETUP_DATA_TYPE]);
        let mut payload = vec![0; header[3] as usize];
        memory.read_slice(&mut payload, GuestAddress(BASE.0 + 16)).unwrap();
        payload
    }

    #[test]
    fn the_planned_table_is_a_node() {
        let (memory, address) = written(&HandOff::Planned);
        assert_eq!(address, BASE.0);
        assert_eq!(payload(&memory), plan().hand_off().unwrap());
    }

    #[test]
    fn without_a_table_there_is_no_node() {
        let (memory, address) = written(&HandOff::Off);
        assert_eq!(address, 0);
        assert_eq!(memory.read_obj::<[u64; 2]>(BASE).unwrap(), [0, 0]);
    }

    #[test]
    fn a_file_is_handed_over_as_it_is() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"no table").unwrap();
        let input = InputFile::open(crate::config::HANDOFF_FILE, file.path()).unwrap();
        let (memory, address) = written(&HandOff::File(input));
        assert_eq!((address, payload(&memory)), (BASE.0, b"no table".to_vec()));
    }

    #[test]
    fn a_file_that_has_shrunk_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"no table").unwrap();
        let input = InputFile::open(crate::config::HANDOFF_FILE, file.path()).unwrap();
        file.as_file().set_len(3).unwrap();
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let error = write_hand_off(&memory, &HandOff::File(input), &plan()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("hand-off {}: cannot be read into guest memory at 0x30010..0x30018", file.path().display())
        );
    }
}
