// SPDX-License-Identifier: Apache-2.0
//! The one who owns a running VM: it alone starts, pauses, resumes and ends it, in the thread that waits for the end.
//!
//! That thread does no I/O. Whatever a device or a vCPU waits for, an end is heard; what does not come to rest in time is named,
//! or left to the end of the process.

mod handle;
mod lifecycle;

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::devices::virtio::{Running, WorkerError};
use crate::ending::Ending;
use crate::vcpu::{Threads, VcpuError};

use handle::Request;
pub use handle::{Handle, PanicGuard, Requests, channel_to_vm};
pub use lifecycle::{NotNow, State, Step};

/// How long vCPUs and devices may take to rest. A disk may take longer; then there is no pause.
const REST: Duration = Duration::from_secs(5);
/// How long vCPUs may take to end. Nothing depends on that they have.
const FINISH: Duration = Duration::from_millis(500);

/// Why a request cannot be granted.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    /// The VM is in another state.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// A vCPU does not come to rest.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    /// A device does not come to rest.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// There is no VM any more.
    #[error("the VM is over")]
    Gone,
}

/// A VM whose vCPUs run.
#[derive(Debug)]
pub struct Vmm {
    state: State,
    vcpus: Threads,
    workers: Vec<Running>,
    requests: Requests,
}

impl Vmm {
    /// Takes over what has just been started.
    #[must_use]
    pub fn new(vcpus: Threads, workers: Vec<Running>, requests: Requests) -> Self {
        Self { state: State::Running, vcpus, workers, requests }
    }

    /// Does what it is asked until the VM is over. No vCPU runs when this returns, unless one waits for whoever reads its output.
    #[must_use]
    pub fn serve(mut self) -> Ending {
        let mut last: Option<(Instant, Ending)> = None;
        let ending = loop {
            match self.requests.next(last.as_ref().map(|(at, _)| *at)) {
                Ok(Request::End(ending)) => break ending,
                Ok(Request::EndAt(at, ending)) => drop(last.get_or_insert((at, ending))),
                Ok(Request::Pause(answer)) => drop(answer.send(self.pause())),
                Ok(Request::Resume(answer)) => drop(answer.send(self.resume())),
                // The time is up; or the vCPUs' threads, which have handles as long as they are there, are gone.
                Err(gone) => {
                    break last.filter(|_| gone == RecvTimeoutError::Timeout).map_or_else(lost, |(_, ending)| ending);
                }
            }
        };
        self.vcpus.finish(FINISH);
        ending
    }

    /// vCPUs first: then nobody gives devices more to do.
    fn pause(&mut self) -> Result<(), VmmError> {
        let paused = self.state.after(Step::Pause)?;
        self.vcpus.pause(REST)?;
        self.workers.iter().for_each(Running::ask_to_pause);
        if let Err(error) = self.workers.iter().try_for_each(|worker| worker.await_pause(REST)) {
            self.go_on();
            return Err(error.into());
        }
        self.state = paused;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), VmmError> {
        self.state = self.state.after(Step::Resume)?;
        self.go_on();
        Ok(())
    }

    /// Devices first: they must be there for what vCPUs ask.
    fn go_on(&self) {
        self.workers.iter().for_each(Running::resume);
        self.vcpus.resume();
    }
}

/// What is left to say when nobody has said anything.
fn lost() -> Ending {
    Ending::Internal { what: "every thread of the VM has gone without a word".to_owned() }
}
