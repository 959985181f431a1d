// SPDX-License-Identifier: Apache-2.0
//! The VM that others are restored from: booted until its guest waits for a line, paused, saved, ended.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::api::put;
use super::order::{INIT_LINE, Order, Template};
use super::vmm::{Interrupted, LOOK, Vmm};

/// What the guest says when it waits: its check `echo`.
const WAITS: &str = "\"ready\":true";
/// What is sent to it, once it is restored.
pub(super) const LINE: &[u8] = b"go on\n";

/// A snapshot, which is there until this is dropped.
pub(super) struct Saved(PathBuf);

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes the snapshot; an error is why there is none.
pub(super) fn make(order: &Order, template: &Template, interrupted: &Interrupted) -> Result<Saved, String> {
    let failed = |error: io::Error| format!("the VM to be saved: {error}");
    let saved = Saved(template.directory.clone());
    // What an earlier sample has left.
    let _ = fs::remove_file(&template.socket);
    let _ = fs::remove_dir_all(&template.directory);
    let mut command = Command::new(&order.program);
    command.args(&template.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut vmm = Vmm(command.spawn().map_err(failed)?);
    let lines = lines(&mut vmm);
    let deadline = Instant::now() + Duration::from_millis(order.limit_ms);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if interrupted.load(Ordering::SeqCst) {
            return Err("interrupted".to_owned());
        }
        match lines.recv_timeout(left.min(LOOK)) {
            Ok(line) if line.contains(INIT_LINE) && line.contains(WAITS) => break,
            Ok(_) | Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            _ => return Err("the VM to be saved did not get ready".to_owned()),
        }
    }
    put(&template.socket, "vm.pause", "")?;
    let url = format!("file://{}", template.directory.display());
    put(&template.socket, "vm.snapshot", &format!("{{\"destination_url\": \"{url}\"}}"))?;
    Ok(saved)
}

/// The lines of its console.
fn lines(Vmm(child): &mut Vmm) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            lines.map(|line| String::from_utf8_lossy(&line).into_owned()).try_for_each(|line| sender.send(line).ok())
        });
    }
    lines
}
