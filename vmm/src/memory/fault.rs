// SPDX-License-Identifier: Apache-2.0
//! SIGBUS: the host cannot give a page that it has promised, because the memory is damaged (hwpoison), or a pool of huge pages or
//! a file behind it has nothing left. SIGSEGV: a device was at work on held memory that its guest has given back meanwhile. Without a
//! word the process would be gone and the terminal raw.
#![expect(unsafe_code, reason = "the faulting address is in a union of siginfo_t; the default action must be put back")]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::signal::register_signal_handler;

use super::region::{GuestMemory, Region};
use crate::line::Line;

/// A piece of guest memory: where it is in this process, its length, and where the guest has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapped {
    host: u64,
    length: u64,
    guest: u64,
}

/// The same, where a signal handler can read it while another thread changes it. It is empty while its length is 0.
struct Place {
    host: AtomicU64,
    length: AtomicU64,
    guest: AtomicU64,
}

/// Most pieces that are known: a memory with the most holes has no more.
const PLACES: usize = 128;

/// What the handler knows of the VM that is there.
static WATCHED: [Place; PLACES] = [const { Place::empty() }; PLACES];
/// What the handler calls.
static RESTORE: OnceLock<fn()> = OnceLock::new();
/// What was to be done about SIGSEGV before: the standard library says that a stack has overflowed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl Place {
    const fn empty() -> Self {
        Self { host: AtomicU64::new(0), length: AtomicU64::new(0), guest: AtomicU64::new(0) }
    }

    fn set(&self, piece: Option<Mapped>) {
        self.length.store(0, Ordering::SeqCst);
        if let Some(Mapped { host, length, guest }) = piece {
            self.host.store(host, Ordering::SeqCst);
            self.guest.store(guest, Ordering::SeqCst);
            self.length.store(length, Ordering::SeqCst);
        }
    }

    fn get(&self) -> Mapped {
        let length = self.length.load(Ordering::SeqCst);
        Mapped { host: self.host.load(Ordering::SeqCst), length, guest: self.guest.load(Ordering::SeqCst) }
    }
}

/// From now on a SIGBUS says where in `memory` it struck, calls `restore`, and ends the process as it would have. Another memory
/// takes the place of the one before; `restore` stays the first. It must be safe in a signal handler: no memory is to be
/// allocated and no lock to be waited for.
pub fn watch(memory: &GuestMemory, restore: fn()) -> io::Result<()> {
    let pieces = memory.iter().map(|region| Mapped {
        host: region.as_ptr() as u64,
        length: region.len(),
        guest: region.start_addr().raw_value(),
    });
    let pieces = pieces.map(Some).chain(std::iter::repeat(None));
    WATCHED.iter().zip(pieces).for_each(|(place, piece)| place.set(piece));
    RESTORE.get_or_init(|| restore);
    register_signal_handler(libc::SIGBUS, on_sigbus).map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    if memory.iter().any(Region::is_held) { watch_held() } else { Ok(()) }
}

/// From now on a SIGSEGV in memory that is watched says where. It is handled on the stack that the standard library has for it.
fn watch_held() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: zeroes are a value of the structure, which is integers and a pointer that may be null.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigsegv as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both pointers are to structures of that type; the handler is safe to call at any time.
    if unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    BEFORE.get_or_init(|| before);
    Ok(())
}

extern "C" fn on_sigsegv(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: as for SIGBUS.
    let address = unsafe { info.as_ref() }.map_or(0, |info| unsafe { info.si_addr() } as u64);
    let Some(guest) = guest_address(WATCHED.iter().map(Place::get), address) else {
        if let Some(before) = BEFORE.get() {
            // SAFETY: the structure is what sigaction(2) has given; it is safe in a handler. The access is tried again, for the other
            // handler to see.
            unsafe { libc::sigaction(libc::SIGSEGV, before, std::ptr::null_mut()) };
        }
        return;
    };
    let mut line = Line::default();
    line.text("flatboot: error: the guest has given back memory that a device is still using (SIGSEGV), at guest physical address ");
    line.hexadecimal(guest);
    line.text("\n");
    // SAFETY: as for SIGBUS.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    say(&line);
}

/// Gives the terminal its mode back, and writes `line`. For signal handlers.
fn say(line: &Line) {
    if let Some(restore) = RESTORE.get() {
        restore();
    }
    // SAFETY: the pointer and the length are those of initialized bytes; write(2) is safe in a handler.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.bytes().as_ptr().cast(), line.bytes().len()) };
}

extern "C" fn on_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t to a handler that was installed with SA_SIGINFO, and nobody else has it.
    let Some(info) = (unsafe { info.as_ref() }) else { return };
    // SAFETY: for SIGBUS, the union has an address in it.
    let address = unsafe { info.si_addr() } as u64;
    let mut line = Line::default();
    if was_sent(info.si_code) {
        line.text("flatboot: error: somebody has sent SIGBUS, which ends the VM\n");
    } else {
        line.text("flatboot: error: the host cannot give memory (SIGBUS) at ");
        let guest = guest_address(WATCHED.iter().map(Place::get), address);
        line.text(if guest.is_some() { "guest physical address " } else { "host address " });
        line.hexadecimal(guest.unwrap_or(address));
        line.text(reason(info.si_code));
    }
    // SAFETY: SIG_DFL for SIGBUS has no further conditions; signal(2) is safe in a handler. When this returns, the access is tried
    // again and ends the process, as it would have without us.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    say(&line);
    if was_sent(info.si_code) || info.si_code == libc::BUS_MCEERR_AO {
        // There is no access that would be tried again. It waits until this returns: the signal is blocked here.
        // SAFETY: raise(3) is safe in a handler.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

/// Whether a process has sent the signal (sigaction(2)): then there is no address.
fn was_sent(code: libc::c_int) -> bool {
    code <= 0
}

/// Where the guest has the byte that this process has at `address`.
fn guest_address(mut pieces: impl Iterator<Item = Mapped>, address: u64) -> Option<u64> {
    let holds = |piece: &Mapped| address.checked_sub(piece.host).is_some_and(|offset| offset < piece.length);
    pieces.find(holds).map(|piece| piece.guest + (address - piece.host))
}

/// The rest of the line, with its end.
fn reason(code: libc::c_int) -> &'static str {
    match code {
        libc::BUS_MCEERR_AR | libc::BUS_MCEERR_AO => ": its hardware is damaged there; see its kernel log\n",
        _ => ": its page pool is exhausted, or the file behind it has shrunk\n",
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::memory::held::HeldMemory;
    use crate::memory::{Backing, GpaRange, Slot, guest};

    const ROLE: &str = "FLATBOOT_TEST_SIGBUS";
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_fault_is_named_by_the_guests_address() {
        let pieces = [Mapped { host: 1000, length: 10, guest: 5 }, Mapped { host: 2000, length: 10, guest: 1 << 32 }];
        for (host, guest) in [(999, None), (1000, Some(5)), (1009, Some(14)), (1010, None), (2003, Some((1 << 32) + 3))]
        {
            assert_eq!(guest_address(pieces.into_iter(), host), guest);
        }
    }

    /// What comes of the test `role` in a process of its own, which it ends.
    fn played(role: &str) -> Output {
        let test = format!("memory::fault::tests::{role}");
        let mut me = Command::new(env::current_exe().unwrap());
        me.args(["--exact", "--nocapture", &test]).env(ROLE, "1").output().unwrap()
    }

    #[test]
    fn a_lost_page_is_said_and_ends_the_process_as_before() {
        let output = played("play_the_victim");
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = "flatboot: error: the host cannot give memory (SIGBUS) at guest physical address 0x100300000: ";
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("restored"), "{said}");
    }

    #[test]
    fn a_signal_that_was_sent_ends_the_process() {
        let output = played("play_the_addressee");
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("somebody has sent SIGBUS") && said.contains("restored"), "{said}");
    }

    /// No test of its own: it runs in another process, which it ends.
    #[test]
    fn play_the_addressee() {
        if env::var_os(ROLE).is_none() {
            return;
        }
        let memory = guest::map(&[Slot::new(GpaRange::of(0, MIB), Backing::default())]).unwrap();
        watch(&memory, || eprintln!("restored")).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
        unreachable!("it lives on");
    }

    /// Of held memory that a device has hold of, all else is refused to it.
    #[test]
    fn what_a_guest_gives_back_under_a_device_is_said_and_ends_the_process() {
        let output = played("play_the_device");
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = "still using (SIGSEGV), at guest physical address 0x100100000\n";
        assert!(said.contains(expected) && said.contains("restored"), "{said}");
    }

    /// No test of its own: it runs in another process, which it ends.
    #[test]
    fn play_the_device() {
        if env::var_os(ROLE).is_none() {
            return;
        }
        let slots = [Slot::new(GpaRange::of(0, MIB), Backing::default())];
        let memory = guest::map_and_reserve(&slots, Some(GpaRange::of(1 << 32, 4 * MIB))).unwrap();
        watch(&memory, || eprintln!("restored")).unwrap();
        let held = HeldMemory::of(&memory).unwrap();
        held.grow(2 * MIB).unwrap();
        let slice = memory.get_slice(GuestAddress((1 << 32) + MIB), 8).unwrap();
        slice.write_obj(1u8, 0).unwrap();
        held.shrink(MIB).unwrap();
        assert_eq!(slice.read_obj::<u8>(0).unwrap(), 0);
        let _ = slice.write_obj(1u8, 0);
        unreachable!("the page is not there");
    }

    /// No test of its own: it runs in another process, which it ends.
    #[test]
    fn play_the_victim() {
        if env::var_os(ROLE).is_none() {
            return;
        }
        let slots = [GpaRange::of(0, MIB), GpaRange::of(1 << 32, 4 * MIB)];
        let backing = Backing { shared: true, ..Backing::default() };
        let memory = guest::map(&slots.map(|range| Slot::new(range, backing))).unwrap();
        watch(&memory, || eprintln!("restored")).unwrap();
        let region = memory.find_region(GuestAddress(1 << 32)).unwrap();
        region.file_offset().unwrap().file().set_len(0).unwrap();
        let _ = memory.read_obj::<u8>(GuestAddress((1 << 32) + 3 * MIB));
        unreachable!("the page is not there");
    }
}
