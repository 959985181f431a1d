// SPDX-License-Identifier: Apache-2.0
//! QEMU's monitor, as far as a virtio-mem device needs it (docs/interop/qmp-spec.rst of QEMU).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// How often the size is looked at: QEMU tells of changes once a second.
const LOOK: Duration = Duration::from_millis(2);

/// For how long QEMU may say nothing to what it answers at once.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection.
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
    /// The device's path.
    path: String,
}

impl Qmp {
    /// Connects, for the device with that `id`.
    pub(super) fn connect(socket: &Path, device: &str) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| format!("{}", socket.display()))?;
        stream.set_read_timeout(Some(SILENCE))?;
        let mut qmp = Self { stream: BufReader::new(stream), path: format!("/machine/peripheral/{device}") };
        qmp.read()?;
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Asks for `bytes`, and returns when the guest has as many.
    pub(super) fn resize(&mut self, bytes: u64, limit: Duration) -> Result<()> {
        let set = json!({ "path": self.path, "property": "requested-size", "value": bytes });
        self.execute("qom-set", &set)?;
        let since = Instant::now();
        loop {
            let size = self.execute("qom-get", &json!({ "path": self.path, "property": "size" }))?;
            if size == bytes {
                return Ok(());
            }
            ensure!(since.elapsed() < limit, "virtio-mem: {size} instead of {bytes} bytes in time");
            thread::sleep(LOOK);
        }
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        writeln!(self.stream.get_mut(), "{}", json!({ "execute": command, "arguments": arguments }))?;
        loop {
            let mut said = self.read()?;
            if let Some(error) = said.get("error") {
                bail!("{command}: {error}");
            }
            // Events come in between.
            if said.get("return").is_some() {
                return Ok(said["return"].take());
            }
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "QEMU has closed its monitor");
        serde_json::from_str(&line).with_context(|| line)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_size_is_asked_for_until_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut heard = Vec::new();
            writeln!(stream, "{{\"QMP\": {{}}}}").unwrap();
            for answer in ["{}", "{}", "5", "6"] {
                let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
                heard.push(format!("{} {}", line["execute"], line["arguments"]["value"]));
                writeln!(stream, "{{\"event\": \"X\"}}\n{{\"return\": {answer}}}").unwrap();
            }
            lines.next().unwrap().unwrap();
            writeln!(stream, "{{\"error\": {{\"desc\": \"no\"}}}}").unwrap();
            heard
        });
        let mut qmp = Qmp::connect(&path, "vm0").unwrap();
        qmp.resize(6, Duration::from_secs(60)).unwrap();
        let error = qmp.resize(7, Duration::from_secs(60)).unwrap_err().to_string();
        assert_eq!(error, "qom-set: {\"desc\":\"no\"}");
        let heard = server.join().unwrap();
        assert_eq!(heard, ["\"qmp_capabilities\" null", "\"qom-set\" 6", "\"qom-get\" null", "\"qom-get\" null"]);
    }
}
