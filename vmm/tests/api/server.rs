// SPDX-License-Identifier: Apache-2.0
//! flatboot as a server, and requests to it by hand.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::FLATBOOT;
use super::usage::Usage;

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A server, which is gone with this.
pub(crate) struct Server {
    child: Child,
    /// Where its socket is, and what else a test has.
    pub(crate) directory: TempDir,
}

impl Server {
    /// One without a VM.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        Self::writing(options, Stdio::null())
    }

    /// One whose standard output is `stdout`.
    pub(crate) fn writing(options: &[&str], stdout: Stdio) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(FLATBOOT);
        command.args(options).current_dir(directory.path()).args(["--api-socket", "path=socket"]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(stdout).spawn().unwrap();
        let mut server = Self { child, directory };
        server.wait_for("no socket", |server| UnixStream::connect(server.socket()).is_ok());
        // The last of what it has from the beginning.
        server.wait_for("no signals", |server| server.has_thread("signals"));
        server
    }

    fn has_thread(&self, name: &str) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.into_iter().any(|found| found.trim() == name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Waits until `holds`.
    pub(crate) fn wait_for(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "{what}: flatboot has ended: {}", self.said());
            assert!(start.elapsed() < LONG, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; the status, and what it said.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LONG, "flatboot does not end");
            thread::sleep(Duration::from_millis(5));
        };
        let said = self.said();
        (status, said)
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut said).unwrap();
        }
        said
    }

    /// One request; the status and the body.
    pub(crate) fn ask(&self, verb: &str, name: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let length = body.len();
        let path = if name.starts_with('/') { name.to_owned() } else { format!("/api/v1/{name}") };
        let head =
            format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close");
        // The server may have answered before it has read all.
        let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
        answer(&mut stream)
    }

    pub(crate) fn put(&self, name: &str) -> u16 {
        self.ask("PUT", name, "").0
    }

    /// What vm.info says.
    pub(crate) fn info(&self) -> Value {
        let (status, body) = self.ask("GET", "vm.info", "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// What it has of the host.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.pid())
    }

    /// Waits until it has no more of the host than it had `before`.
    pub(crate) fn is_back_at(&mut self, before: &Usage) {
        let what = format!("more than {before:?}: {:?}", self.usage());
        self.wait_for(&what, |server| server.usage().is_back_at(before));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended needs neither.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first answer on a connection that ends with it: status and body. 0 if there is none.
pub(crate) fn answer(stream: &mut UnixStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}
