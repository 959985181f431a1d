// SPDX-License-Identifier: Apache-2.0
//! The ways a boot ends, and what flatboot then says.

use super::step::Step;

/// `EXIT_SIGNAL + n` is death by signal n.
const EXIT_SIGNAL: u8 = 128;
const SIGTERM: u8 = 15;
const SIGKILL: u8 = 9;

/// How a boot ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guest powers off.
    PowerOff,
    /// It resets, which ends its VM.
    Reset,
    /// The same, by the keyboard controller.
    KeyboardReset,
    /// It panics.
    Panic,
    /// Its init exits, which is a panic.
    InitExits,
    /// It resets by a triple fault.
    TripleFault,
    /// It does nothing, flatboot is sent SIGTERM.
    Terminated,
    /// Twice.
    TerminatedTwice,
    /// After so many milliseconds, whatever the guest has come to.
    TerminatedEarly(u64),
    /// The same with SIGKILL.
    Killed(u64),
    /// The guest resets and is started again, some times, then flatboot is killed.
    RestartsKilled,
    /// The same with SIGTERM.
    RestartsTerminated,
    /// The same with vmm.shutdown.
    RestartsShutdown,
    /// vmm.shutdown while the guest runs.
    Shutdown,
    /// vm.power-button, which the tiny init does not heed, then vmm.shutdown.
    PowerButton,
    /// vm.reboot, then vmm.shutdown.
    Rebooted,
    /// vm.delete, then vmm.shutdown.
    Deleted,
}

/// Ends that are there with any API or none.
pub(super) const GUEST: &[End] =
    &[End::PowerOff, End::Reset, End::KeyboardReset, End::Panic, End::InitExits, End::TripleFault];
/// Ends from outside, by signals.
pub(super) const SIGNALS: &[End] = &[End::Terminated, End::TerminatedTwice, End::TerminatedEarly(0), End::Killed(0)];
/// Ends of a VM that is started again, without an API.
pub(super) const RESTARTS: &[End] = &[End::RestartsKilled, End::RestartsTerminated];
/// Ends by requests.
pub(super) const REQUESTS: &[End] =
    &[End::Shutdown, End::PowerButton, End::Rebooted, End::Deleted, End::RestartsShutdown];

impl End {
    /// What the guest is told on its command line.
    pub(super) fn cmdline(self) -> &'static str {
        match self {
            Self::PowerOff => "flatboot.end=poweroff",
            Self::Reset | Self::RestartsKilled | Self::RestartsTerminated | Self::RestartsShutdown => {
                "flatboot.end=reboot"
            }
            Self::KeyboardReset => "flatboot.end=reboot reboot=k",
            Self::TripleFault => "flatboot.end=reboot reboot=t",
            Self::Panic => "flatboot.end=panic",
            Self::InitExits => "flatboot.end=exit",
            _ => "flatboot.end=hang",
        }
    }

    /// What is done to the VM, or to flatboot.
    pub(super) fn steps(self) -> Vec<Step> {
        let put = |what: &str| Step::Put(what.to_owned());
        let (term, kill) = (Step::Signal(SIGTERM.into()), Step::Signal(SIGKILL.into()));
        match self {
            _ if self.is_the_guests() => vec![],
            Self::Terminated => vec![Step::Inits(1), term],
            Self::TerminatedTwice => vec![Step::Inits(1), term.clone(), Step::Sleep(50), term],
            Self::TerminatedEarly(ms) => vec![Step::Sleep(ms), term],
            Self::Killed(ms) => vec![Step::Sleep(ms), kill],
            Self::RestartsKilled => vec![Step::Inits(2), kill],
            Self::RestartsTerminated => vec![Step::Inits(2), term],
            Self::RestartsShutdown => vec![Step::Inits(2), put("vmm.shutdown")],
            Self::PowerButton => vec![Step::Inits(1), put("vm.power-button"), put("vmm.shutdown")],
            Self::Rebooted => vec![Step::Inits(1), put("vm.reboot"), Step::Inits(2), put("vmm.shutdown")],
            Self::Deleted => vec![Step::Inits(1), put("vm.delete"), put("vmm.shutdown")],
            _ => vec![Step::Inits(1), put("vmm.shutdown")],
        }
    }

    /// Exit codes that are right, each with what flatboot says of the end, or nothing.
    pub(super) fn ways(self) -> &'static [(u8, &'static str)] {
        const TERMINATED: u8 = EXIT_SIGNAL + SIGTERM;
        const KILLED: u8 = EXIT_SIGNAL + SIGKILL;
        match self {
            Self::PowerOff => &[(0, "guest powered off")],
            Self::Reset | Self::KeyboardReset => &[(0, "guest asked for a reset")],
            Self::Panic | Self::InitExits => &[(3, "panicked")],
            Self::TripleFault => &[(4, "triple fault")],
            Self::Terminated => &[(6, "did not power off within 1 s")],
            Self::TerminatedTwice => &[(6, "guest stopped")],
            // Before there is a VM the signal ends flatboot as it would any program.
            Self::TerminatedEarly(_) => &[(6, "did not power off within 1 s"), (TERMINATED, "")],
            Self::Killed(_) | Self::RestartsKilled => &[(KILLED, "")],
            // Whatever the guest was about just then; it may have been between two lives.
            Self::RestartsTerminated => {
                &[(0, "guest asked for a reset"), (6, "did not power off within 1 s"), (TERMINATED, "")]
            }
            Self::Shutdown | Self::PowerButton | Self::Rebooted | Self::Deleted | Self::RestartsShutdown => &[(0, "")],
        }
    }

    /// Whether the guest ends by itself, and nobody has to see when.
    pub(super) fn is_the_guests(self) -> bool {
        GUEST.contains(&self)
    }

    /// Whether a guest that resets is to come up again.
    pub(super) fn restarts(self) -> bool {
        matches!(self, Self::RestartsKilled | Self::RestartsTerminated | Self::RestartsShutdown)
    }

    /// Whether init has come up and has done its checks by then.
    pub(super) fn comes_up(self) -> bool {
        !matches!(self, Self::TerminatedEarly(_) | Self::Killed(_))
    }

    /// Whether flatboot dies without a chance to tidy up.
    pub(super) fn kills(self) -> bool {
        matches!(self, Self::Killed(_) | Self::RestartsKilled)
    }

    /// Whether flatboot lives to write the timeline of a guest that came up.
    pub(super) fn writes_timeline(self) -> bool {
        self.is_the_guests() || matches!(self, Self::Terminated | Self::TerminatedTwice)
    }
}
