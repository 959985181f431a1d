// SPDX-License-Identifier: Apache-2.0
//! Chromium without a window, driven through its `DevTools` protocol.
//!
//! `--remote-debugging-pipe` takes JSON messages on file descriptor 3 and answers on 4, each ended by a zero byte: that needs no
//! port, no driver program and no crate.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far more than anything takes here, on a machine that does something else besides.
const PATIENCE: Duration = Duration::from_secs(120);

/// Moves the pipes to where Chromium expects them, and its chatter to a file.
const LAUNCH: &str = r#"log=$1; shift; exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>"$log""#;

const FLAGS: [&str; 9] = [
    "--headless",
    // Chromium's own sandbox refuses to run as root; the pages here are ours.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
];

/// A running Chromium with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    target: Option<String>,
    /// What the page reported since it was opened.
    events: Vec<Value>,
    profile: TempDir,
}

/// The Chromium of this machine.
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("chromium")).find(|file| file.is_file())
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Result<Self, Failed> {
        let profile = tempfile::tempdir()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LAUNCH, "sh"]).arg(profile.path().join("log")).arg(program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        // A group of its own: its helpers end with it.
        let mut child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = child.stdin.take().ok_or("no pipe to chromium")?;
        let mut answers = BufReader::new(child.stdout.take().ok_or("no pipe from chromium")?);
        let (give, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                let value = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
                if value.ok().is_none_or(|value| give.send(value).is_err()) {
                    return;
                }
                message.clear();
            }
        });
        Ok(Self { child, to, from, sent: 0, session: None, target: None, events: Vec::new(), profile })
    }

    /// Calls a method of the protocol and gives its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value, Failed> {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.to.write_all(&bytes)?;
        let id = self.sent;
        let mut answer = self.wait(method, |message| message["id"] == json!(id))?;
        if answer.get("error").is_some() {
            return Err(format!("{method}: {}", answer["error"]["message"]).into());
        }
        Ok(answer["result"].take())
    }

    /// The next message that is `wanted`; events before it are kept.
    fn wait(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left).map_err(|why| {
                let log = fs::read_to_string(self.profile.path().join("log")).unwrap_or_default();
                format!("{what}: no answer from chromium: {why}\n{log}")
            })?;
            if wanted(&message) {
                return Ok(message);
            }
            if message.get("method").is_some() {
                self.events.push(message);
            }
        }
    }

    /// Opens `file` in a new page, as wide as a desktop's window; earlier pages are closed.
    pub(crate) fn open(&mut self, file: &Path) -> Result<(), Failed> {
        self.session = None;
        if let Some(target) = self.target.take() {
            self.call("Target.closeTarget", &json!({ "targetId": target }))?;
        }
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }))?["targetId"].take();
        let attached = self.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }))?;
        self.target = target.as_str().map(str::to_owned);
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Accessibility"] {
            self.call(&format!("{domain}.enable"), &json!({}))?;
        }
        // They would take a different width from each picture.
        self.call("Emulation.setScrollbarsHidden", &json!({ "hidden": true }))?;
        self.events.clear();
        self.resize(1200, 900, false)?;
        self.call("Page.navigate", &json!({ "url": url(file) }))?;
        self.wait("load", |message| message["method"] == json!("Page.loadEventFired"))?;
        Ok(())
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32, mobile: bool) -> Result<(), Failed> {
        let scale = if mobile { 2 } else { 1 };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", &metrics).map(drop)
    }

    /// On `screen` or in `print`, for a user who prefers `light` or `dark`.
    pub(crate) fn scheme(&mut self, media: &str, scheme: &str) -> Result<(), Failed> {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "media": media, "features": features })).map(drop)
    }

    /// Value of a JavaScript expression.
    pub(crate) fn eval(&mut self, expression: &str) -> Result<Value, Failed> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", &params)?;
        match result.get("exceptionDetails") {
            Some(details) => Err(format!("{expression}: {details}").into()),
            None => Ok(result["result"]["value"].take()),
        }
    }

    /// Presses and releases the left button in the middle of the element.
    pub(crate) fn click(&mut self, element: &str) -> Result<(), Failed> {
        let centre = self.eval(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{ block: 'center', inline: 'center' }});
                const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": centre[0], "y": centre[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event)?;
        }
        Ok(())
    }

    /// Presses and releases a key: its name, the character that it types if any, and its number.
    pub(crate) fn press(&mut self, (key, text, code): (&str, &str, u32)) -> Result<(), Failed> {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    /// A PNG of the page's first `height` pixels, of the whole page if there is no limit.
    pub(crate) fn picture(&mut self, height: Option<u64>, file: &Path) -> Result<(), Failed> {
        let size = self.eval("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")?;
        let height = height.map_or(size[1].clone(), |height| json!(height));
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
        let params = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let png = bytes(&self.call("Page.captureScreenshot", &params)?)?;
        Ok(fs::write(file, png)?)
    }

    /// The page as a PDF.
    pub(crate) fn print(&mut self) -> Result<Vec<u8>, Failed> {
        bytes(&self.call("Page.printToPDF", &json!({ "printBackground": false }))?)
    }

    /// What the page reported by `method`, what has come until now included.
    pub(crate) fn events(&mut self, method: &str) -> Result<Vec<&Value>, Failed> {
        // Answers come in order: all events of before are there when this one is.
        self.eval("0")?;
        Ok(self.events.iter().filter(|event| event["method"] == json!(method)).map(|event| &event["params"]).collect())
    }
}

/// Address of a file whose path is plain.
pub(crate) fn url(file: &Path) -> String {
    format!("file://{}", file.display())
}

fn bytes(result: &Value) -> Result<Vec<u8>, Failed> {
    Ok(STANDARD.decode(result["data"].as_str().ok_or("no data")?)?)
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
