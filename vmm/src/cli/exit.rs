// SPDX-License-Identifier: Apache-2.0
//! How flatboot ends.

use std::fmt::Write;
use std::process::ExitCode;

use crate::ending::Ending;

/// The status that flatboot ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// What was asked for is done; a guest has powered off or reset.
    Done = 0,
    /// What was asked for is impossible: a file, this host, an image.
    Error = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The guest's kernel has panicked.
    Panic = 3,
    /// A vCPU has met a triple fault.
    TripleFault = 4,
    /// KVM has failed to run the guest.
    Kvm = 5,
    /// The guest was asked to power off and has not in time.
    Timeout = 6,
    /// Firmware has found nothing to boot, or has given up.
    Firmware = 7,
    /// A part of flatboot has failed.
    Internal = 8,
}

impl ExitStatus {
    /// Every status, by number.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Error,
        Self::Usage,
        Self::Panic,
        Self::TripleFault,
        Self::Kvm,
        Self::Timeout,
        Self::Firmware,
        Self::Internal,
    ];

    /// What it means, for the help.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "the guest has powered off or reset; check: guests can run; map: printed",
            Self::Error => "error: a file, an image or this host cannot be used",
            Self::Usage => "the command line is wrong",
            Self::Panic => "the guest's kernel has panicked",
            Self::TripleFault => "a vCPU has met a triple fault",
            Self::Kvm => "KVM has failed to run the guest",
            Self::Timeout => "the guest was ended from outside, by Ctrl-A x or after --shutdown-timeout",
            Self::Firmware => "firmware has found nothing to boot, or has given up",
            Self::Internal => "flatboot itself has failed: please report what it says",
        }
    }

    /// The part of the help that lists them.
    pub(super) fn help() -> String {
        Self::ALL.iter().fold("Exit status:\n".to_owned(), |mut help, status| {
            // Writing to a String cannot fail.
            let _ = writeln!(help, "  {}  {}", *status as u8, status.meaning());
            help
        })
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}

impl From<&Ending> for ExitStatus {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::PowerOff | Ending::Reset => Self::Done,
            Ending::Panic => Self::Panic,
            Ending::NoLoader | Ending::FirmwareFailed => Self::Firmware,
            Ending::TripleFault { .. } => Self::TripleFault,
            Ending::Kvm { .. } => Self::Kvm,
            Ending::Internal { .. } => Self::Internal,
            Ending::Stopped { .. } => Self::Timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_of_a_filter_is_a_fault_of_flatboots() {
        assert_eq!(crate::sandbox::STATUS, ExitStatus::Internal as i32);
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
            assert!(ExitStatus::from(&ending) as u8 > ExitStatus::Usage as u8, "{ending}");
        }
        assert_eq!([Ending::PowerOff, Ending::Reset].each_ref().map(ExitStatus::from), [ExitStatus::Done; 2]);
    }
}
