// SPDX-License-Identifier: Apache-2.0
//! How a VM ends, and how the rest of the process learns of it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::cli::ExitStatus;
use crate::devices::bus::GuestRequest;

/// Why the VM is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest powered itself off.
    PowerOff,
    /// The guest asked for a reset.
    Reset,
    /// The guest's kernel panicked and said so.
    Panic,
    /// Firmware found nothing to boot and said so.
    NoLoader,
    /// Firmware said that it cannot go on.
    FirmwareFailed,
    /// A vCPU triple-faulted.
    TripleFault {
        /// Its index.
        vcpu: u8,
    },
    /// KVM cannot go on.
    Kvm {
        /// The vCPU that it happened on.
        vcpu: u8,
        /// What KVM said.
        what: String,
    },
    /// A part of flatboot has failed: a fault in it.
    Internal {
        /// Which, and how.
        what: String,
    },
    /// The guest was asked to power off and did not in time, or the user asked twice.
    Stopped {
        /// What happened.
        why: String,
    },
}

impl Ending {
    /// The process's exit status.
    #[must_use]
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::PowerOff | Self::Reset => ExitStatus::Done,
            Self::Panic => ExitStatus::Panic,
            Self::NoLoader | Self::FirmwareFailed => ExitStatus::Firmware,
            Self::TripleFault { .. } => ExitStatus::TripleFault,
            Self::Kvm { .. } => ExitStatus::Kvm,
            Self::Internal { .. } => ExitStatus::Internal,
            Self::Stopped { .. } => ExitStatus::Timeout,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerOff => write!(f, "guest powered off"),
            Self::Reset => write!(f, "guest asked for a reset"),
            Self::Panic => write!(f, "guest kernel panicked; its console says why"),
            Self::NoLoader => write!(f, "firmware found nothing to boot; its console says where it looked"),
            Self::FirmwareFailed => write!(f, "firmware cannot go on; its console says why"),
            Self::TripleFault { vcpu } => write!(f, "guest triple fault on vCPU {vcpu}"),
            Self::Kvm { vcpu, what } => write!(f, "KVM cannot go on with vCPU {vcpu}: {what}"),
            Self::Internal { what } => write!(f, "flatboot itself has failed: {what}"),
            Self::Stopped { why } => write!(f, "guest stopped: {why}"),
        }
    }
}

impl From<GuestRequest> for Ending {
    fn from(request: GuestRequest) -> Self {
        match request {
            GuestRequest::PowerOff => Self::PowerOff,
            GuestRequest::Reset => Self::Reset,
            GuestRequest::Panic => Self::Panic,
            GuestRequest::NoLoader => Self::NoLoader,
            GuestRequest::FirmwareFailed => Self::FirmwareFailed,
        }
    }
}

/// Where any thread reports the end; the first report wins.
#[derive(Debug, Clone, Default)]
pub struct EndingSink(Arc<Report>);

#[derive(Debug, Default)]
struct Report {
    ending: Mutex<Option<Ending>>,
    there: Condvar,
}

impl EndingSink {
    /// A sink that nothing has been reported to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports `ending`, unless an earlier one was.
    pub fn end(&self, ending: Ending) {
        let mut first = self.0.ending.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(ending);
        self.0.there.notify_all();
    }

    /// Waits for the end. Whoever waits here does nothing else: the end must be noticed whatever any device waits for.
    #[must_use]
    pub fn wait(&self) -> Ending {
        let mut ending = self.0.ending.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ending) = &*ending {
                return ending.clone();
            }
            ending = self.0.there.wait(ending).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Reports an ending if the thread that has it panics: without that thread the VM would be for ever what it is then. Of use only
/// where panics unwind; release builds abort.
#[derive(Debug)]
pub struct PanicGuard {
    sink: EndingSink,
    of: String,
}

impl PanicGuard {
    /// A guard for the thread that serves `of`.
    #[must_use]
    pub fn new(sink: &EndingSink, of: String) -> Self {
        Self { sink: sink.clone(), of }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.sink.end(Ending::Internal { what: format!("the thread of {} has panicked", self.of) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ending_wins() {
        let sink = EndingSink::new();
        sink.end(Ending::Panic);
        sink.end(Ending::Reset);
        assert_eq!(sink.wait(), Ending::Panic);
    }

    #[test]
    fn the_wait_is_over_when_another_thread_reports() {
        let sink = EndingSink::new();
        let reporter = sink.clone();
        let thread = thread::spawn(move || reporter.end(Ending::PowerOff));
        assert_eq!(sink.wait(), Ending::PowerOff);
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_panics_is_the_end_and_one_that_returns_is_not() {
        let sink = EndingSink::new();
        for (of, panics) in [("disk", false), ("vCPU 7", true)] {
            let guard = PanicGuard::new(&sink, of.to_owned());
            let thread = thread::spawn(move || {
                let _guard = guard;
                assert!(!panics, "on purpose");
            });
            assert_eq!(thread.join().is_err(), panics);
        }
        assert_eq!(sink.wait(), Ending::Internal { what: "the thread of vCPU 7 has panicked".to_owned() });
    }

    #[test]
    fn only_wanted_endings_exit_with_zero() {
        let unwanted = [
            Ending::Panic,
            Ending::NoLoader,
            Ending::FirmwareFailed,
            Ending::TripleFault { vcpu: 0 },
            Ending::Kvm { vcpu: 0, what: String::new() },
            Ending::Internal { what: String::new() },
            Ending::Stopped { why: String::new() },
        ];
        for ending in unwanted {
            assert!(ending.exit_status() as u8 > ExitStatus::Usage as u8, "{ending}");
        }
        assert_eq!((Ending::PowerOff.exit_status(), Ending::Reset.exit_status()), (ExitStatus::Done, ExitStatus::Done));
    }
}
