// SPDX-License-Identifier: Apache-2.0
//! The main thread while the guest runs: devices' queues and the end.

use std::sync::{Arc, Mutex};

use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberOps};
use vmm_sys_util::epoll::EventSet;

use crate::ending::{Ending, EndingSink};

/// Anything that wants the loop's attention.
pub type Subscriber = Arc<Mutex<dyn MutEventSubscriber + Send>>;

/// The loop cannot run: out of file descriptors or memory.
#[derive(Debug, thiserror::Error)]
#[error("event loop: {0}")]
pub struct EventError(String);

impl From<event_manager::Error> for EventError {
    fn from(error: event_manager::Error) -> Self {
        Self(format!("{error:?}"))
    }
}

/// Serves `subscribers` until the VM has ended.
pub fn run_until_end(subscribers: Vec<Subscriber>, sink: &EndingSink) -> Result<Ending, EventError> {
    let mut manager: EventManager<Subscriber> = EventManager::new()?;
    for subscriber in subscribers {
        manager.add_subscriber(subscriber);
    }
    manager.add_subscriber(Arc::new(Mutex::new(Wake(sink.clone()))));
    loop {
        if let Some(ending) = sink.get() {
            return Ok(ending.clone());
        }
        manager.run()?;
    }
}

/// Ends the wait when the VM has ended.
struct Wake(EndingSink);

impl MutEventSubscriber for Wake {
    fn process(&mut self, _events: Events, _ops: &mut EventOps<'_>) {
        // Non-blocking: another wake-up may have been read already.
        let _ = self.0.wake_fd().read();
    }

    fn init(&mut self, ops: &mut EventOps<'_>) {
        if let Err(error) = ops.add(Events::new(self.0.wake_fd(), EventSet::IN)) {
            self.0.end(Ending::Stopped { why: format!("event loop: {error:?}") });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_loop_ends_when_another_thread_reports_the_end() {
        let sink = EndingSink::new().unwrap();
        let reporter = sink.clone();
        let thread = thread::spawn(move || reporter.end(Ending::PowerOff));
        assert_eq!(run_until_end(Vec::new(), &sink).unwrap(), Ending::PowerOff);
        thread.join().unwrap();
    }
}
