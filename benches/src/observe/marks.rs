// SPDX-License-Identifier: Apache-2.0
//! Marks of a boot, from the mark port as they come or from flatboot's timeline afterwards, on one axis.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flatboot_handoff::marks as codes;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::time::{ClockId, clock_gettime};

use crate::guest;
use crate::results::Mark;

/// A guest may write marks without end; this many are kept.
const MARKS_MAX: usize = 1024;

/// All that was reported, and what it says of init.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// In time order.
    pub(super) marks: Vec<Mark>,
    /// When the kernel was about to execute init, or else init's own first mark.
    pub(super) init_ns: Option<u64>,
    /// When the first vCPU began to run the guest.
    pub(super) first_instruction_ns: Option<u64>,
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Reported {
    fn of(mut marks: Vec<Mark>, first_run: &str) -> Self {
        marks.sort_by_key(|mark| mark.ns);
        let at =
            |name: &str, guest| marks.iter().find(|mark| mark.name == name && mark.guest == guest).map(|mark| mark.ns);
        let named = |code| codes::Mark::of(code).and_then(|mark| at(mark.name, true));
        Self {
            init_ns: named(codes::INIT_EXEC).or_else(|| named(codes::USER_START)),
            first_instruction_ns: at(first_run, false),
            marks,
        }
    }
}

/// Reads the timeline in `path`, with times since `zero_ns` on `CLOCK_MONOTONIC`.
pub(super) fn from_timeline(path: &Path, zero_ns: u64) -> io::Result<Reported> {
    let timeline: guest::Timeline = serde_json::from_slice(&fs::read(path)?)?;
    let offset = timeline.zero_monotonic_ns.saturating_sub(zero_ns);
    let mark = |mark: guest::Mark| Mark { ns: mark.ns + offset, guest: mark.is_of_guest(), name: mark.name };
    Ok(Reported::of(timeline.marks.into_iter().map(mark).collect(), "first KVM_RUN"))
}

/// Takes the time of every byte of the mark port.
#[derive(Debug)]
pub(super) struct PortReader {
    bytes: Arc<Mutex<Vec<(u64, u8)>>>,
    /// A writer of our own: without it the FIFO would be at its end before the VMM opens it.
    keeper: File,
    /// Disconnected once the FIFO has been read to its end.
    end: Receiver<()>,
}

impl PortReader {
    /// Makes the FIFO `path` and reads it from now on.
    pub(super) fn start(path: &Path) -> io::Result<Self> {
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        // In this order and not blocking, for each end waits for the other one to be opened.
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let fifo = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
        let keeper = OpenOptions::new().write(true).open(path)?;
        fcntl_setfl(&fifo, OFlags::empty())?;
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (running, end) = mpsc::channel();
        let reader = Self { bytes: Arc::clone(&bytes), keeper, end };
        thread::spawn(move || {
            read(fifo, &bytes);
            drop(running);
        });
        Ok(reader)
    }

    /// All that has come by the time the VMM has ended, with times since `zero_ns`.
    pub(super) fn finish(self, zero_ns: u64) -> Reported {
        drop(self.keeper);
        // The end comes at once, unless a process that the VMM has left behind holds the FIFO open.
        let _ = self.end.recv_timeout(Duration::from_secs(2));
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mark = |(ns, code): (u64, u8)| {
            let name = codes::Mark::of(code).map_or_else(|| format!("code {code:#04x}"), |mark| mark.name.to_owned());
            Mark { ns: ns.saturating_sub(zero_ns), name, guest: true }
        };
        Reported::of(bytes.into_iter().map(mark).collect(), "")
    }
}

fn read(mut fifo: File, bytes: &Mutex<Vec<(u64, u8)>>) {
    let mut chunk = [0; 64];
    while let Ok(n @ 1..) = fifo.read(&mut chunk) {
        let ns = now_ns();
        let mut kept = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MARKS_MAX.saturating_sub(kept.len());
        kept.extend(chunk[..n].iter().take(room).map(|byte| (ns, *byte)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_timeline_is_moved_to_the_observers_axis() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let json = r#"{"version":1,"zero_monotonic_ns":1500,"init_ns":70,"marks":[
            {"ns":20,"host_faults":1,"source":"vmm","name":"first KVM_RUN"},
            {"ns":90,"host_faults":2,"source":"guest","code":96,"name":"user-start"},
            {"ns":70,"host_faults":2,"source":"guest","code":65,"name":"init-exec"}]}"#;
        file.write_all(json.as_bytes()).unwrap();
        let reported = from_timeline(file.path(), 1000).unwrap();
        assert_eq!(reported.init_ns, Some(570));
        assert_eq!(reported.first_instruction_ns, Some(520));
        assert_eq!(reported.marks.iter().map(|mark| mark.ns).collect::<Vec<_>>(), [520, 570, 590]);
        assert_eq!(reported.marks.iter().map(|mark| mark.guest).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn port_bytes_are_timed_as_they_come() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marks");
        let zero = now_ns();
        let reader = PortReader::start(&path).unwrap();
        let mut port = OpenOptions::new().write(true).open(&path).unwrap();
        port.write_all(&[codes::KERNEL_ENTRY]).unwrap();
        while reader.bytes.lock().unwrap().is_empty() {
            thread::yield_now();
        }
        // What is still in the FIFO when the last writer is gone counts, too.
        port.write_all(&[codes::USER_START, 0xfe]).unwrap();
        drop(port);
        let reported = reader.finish(zero);
        let names: Vec<_> = reported.marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["kernel-entry", "user-start", "code 0xfe"]);
        assert!(reported.marks[0].ns < reported.marks[1].ns);
        assert_eq!(reported.init_ns, Some(reported.marks[1].ns));
    }
}
