// SPDX-License-Identifier: Apache-2.0
//! What happens to VMs, as JSON for whoever watches: one object for each event, in Cloud Hypervisor's format.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Events that wait for a reader who is slow. More are lost: nobody waits for a reader.
const WAITING_MAX: usize = 1024;
/// How long the reader has for the last ones.
const LAST: Duration = Duration::from_millis(500);
/// Stack of the thread that writes.
const STACK: usize = 64 << 10;

/// Where events go; nowhere by default.
#[derive(Debug, Clone, Default)]
pub struct Events(Option<Arc<Open>>);

#[derive(Debug)]
struct Open {
    start: Instant,
    lines: SyncSender<String>,
}

/// The thread that writes.
#[derive(Debug)]
pub struct Monitor(Receiver<()>);

/// One event.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the format's")]
struct Event<'a> {
    /// Since the start of the VMM.
    timestamp: Duration,
    source: &'a str,
    event: &'a str,
    properties: Option<BTreeMap<&'a str, &'a str>>,
}

impl Events {
    /// Events go to `file`, by a thread of its own; `start` is when the VMM began. `begin` is the first that the thread does; it ends
    /// if there is nothing to keep.
    pub fn to<G>(
        file: File,
        start: Instant,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> io::Result<(Self, Monitor)> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let (done, monitor) = channel();
        let builder = thread::Builder::new().name("events".to_owned()).stack_size(STACK);
        builder.spawn(move || {
            if let Some(_kept) = begin() {
                write_all(&waiting, file, &done);
            }
        })?;
        Ok((Self(Some(Arc::new(Open { start, lines }))), Monitor(monitor)))
    }

    /// Something has happened to the VMM.
    pub fn vmm(&self, event: &str) {
        self.say("vmm", event, None);
    }

    /// Something has happened to the VM.
    pub fn vm(&self, event: &str) {
        self.say("vm", event, None);
    }

    /// The VM has come to have `bytes` of memory, as somebody wanted.
    pub fn resized(&self, bytes: u64) {
        self.say("vm", "resized", Some(BTreeMap::from([("memory_actual_size", bytes.to_string().as_str())])));
    }

    /// What was begun with the VM has failed, which is `event`, and why.
    pub fn failed(&self, event: &str, why: &str) {
        self.say("vm", event, Some(BTreeMap::from([("reason", why)])));
    }

    /// The VM is over, and why.
    pub fn shutdown(&self, why: &str) {
        self.say("vm", "shutdown", Some(BTreeMap::from([("reason", why)])));
    }

    fn say(&self, source: &str, event: &str, properties: Option<BTreeMap<&str, &str>>) {
        let Some(open) = &self.0 else { return };
        let event = Event { timestamp: open.start.elapsed(), source, event, properties };
        if let Ok(json) = serde_json::to_string_pretty(&event) {
            // A full queue loses it, as does a reader that has gone.
            let _ = open.lines.try_send(json + "\n\n");
        }
    }
}

fn write_all(lines: &Receiver<String>, mut file: File, _done: &Sender<()>) {
    for line in lines {
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "--event-monitor: nothing more is written");
            return;
        }
    }
}

impl Monitor {
    /// Waits until what has been said is written, if the reader is not too slow. All that said it must be gone.
    pub fn finish(self) {
        if self.0.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("--event-monitor: nobody has read the last events in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::Value;

    use super::*;

    #[test]
    fn each_event_is_one_object() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let (events, monitor) = Events::to(file, Instant::now(), || Some(())).unwrap();
        events.vmm("starting");
        events.vm("booted");
        events.shutdown("guest powered off");
        drop(events);
        monitor.finish();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let said: Vec<Value> = text.split_terminator("\n\n").map(|one| serde_json::from_str(one).unwrap()).collect();
        let brief: Vec<_> = said.iter().map(|one| (one["source"].as_str(), one["event"].as_str())).collect();
        let expected = [("vmm", "starting"), ("vm", "booted"), ("vm", "shutdown")];
        assert_eq!(brief, expected.map(|(source, event)| (Some(source), Some(event))));
        assert!(said[0]["timestamp"]["secs"].is_u64() && said[0]["timestamp"]["nanos"].is_u64());
        assert_eq!(said[0]["properties"], Value::Null);
        assert_eq!(said[2]["properties"]["reason"], "guest powered off");
    }

    #[test]
    fn nobody_waits_for_a_reader() {
        let (reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let (events, monitor) = Events::to(file, Instant::now(), || Some(())).unwrap();
        for _ in 0..10 * WAITING_MAX {
            events.vm("booting");
        }
        drop(events);
        monitor.finish();
        drop(reader);
    }
}
