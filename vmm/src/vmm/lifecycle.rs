// SPDX-License-Identifier: Apache-2.0
//! The states of a VM, and what leads from one to another.

use std::fmt;

/// Where a VM is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it is there; no vCPU has run. Until then, what boots it has it.
    Created,
    /// vCPUs run.
    Running,
    /// No vCPU runs, and no device works.
    Paused,
    /// It is over.
    Ended,
}

/// What happens to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It runs, for the first time or again.
    Resume,
    /// It rests.
    Pause,
    /// It ends, by itself or from outside.
    End,
}

/// A step that the VM cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the VM is {state}: must be {must}")]
pub struct NotNow {
    /// What it is.
    pub state: State,
    /// What it would have to be.
    pub must: &'static str,
}

impl State {
    /// The state behind `step`.
    pub const fn after(self, step: Step) -> Result<Self, NotNow> {
        match (self, step) {
            (Self::Created | Self::Paused, Step::Resume) => Ok(Self::Running),
            (Self::Running, Step::Pause) => Ok(Self::Paused),
            (Self::Created | Self::Running | Self::Paused, Step::End) => Ok(Self::Ended),
            (state, Step::Resume) => Err(NotNow { state, must: "created or paused" }),
            (state, Step::Pause) => Err(NotNow { state, must: "running" }),
            (state, Step::End) => Err(NotNow { state, must: "there" }),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "over",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_from_every_state() {
        use State::{Created, Ended, Paused, Running};
        for (state, resume, pause, end) in [
            (Created, Some(Running), None, Some(Ended)),
            (Running, None, Some(Paused), Some(Ended)),
            (Paused, Some(Running), None, Some(Ended)),
            (Ended, None, None, None),
        ] {
            let after = [Step::Resume, Step::Pause, Step::End].map(|step| state.after(step).ok());
            assert_eq!(after, [resume, pause, end], "{state}");
        }
        assert_eq!(Created.after(Step::Pause).unwrap_err().to_string(), "the VM is created: must be running");
        assert_eq!(Ended.after(Step::Resume).unwrap_err().to_string(), "the VM is over: must be created or paused");
    }
}
