// SPDX-License-Identifier: Apache-2.0
//! Lines on the console.

use std::io::{self, Write};

use serde_json::{Value, json};

/// First on every line that is meant for a program, so that it is told from the kernel's log.
const PREFIX: &str = "FLATBOOT ";

/// Prints one object. A console that is not there is no error: the marks remain.
pub(crate) fn print(object: &Value) {
    let mut console = io::stdout().lock();
    // In one write, with a new line first: the kernel may be in the middle of one of its own.
    let _ = console.write_all(format!("\n{PREFIX}{object}\n").as_bytes()).and_then(|()| console.flush());
}

/// The first line: user space runs.
pub(crate) fn start(dev: rustix::io::Result<()>, marked: &io::Result<()>) {
    let state = |error: Option<String>| error.map_or(Value::Bool(true), Value::String);
    print(&json!({
        "check": "start",
        "ok": true,
        "devtmpfs": state(dev.err().map(|error| error.to_string())),
        "mark": state(marked.as_ref().err().map(|error| format!("/dev/port: {error}"))),
    }));
}

/// One check's result: its own fields beside `check` and `ok`.
pub(crate) fn check(name: &str, ok: bool, mut fields: Value) {
    (fields["check"], fields["ok"]) = (name.into(), ok.into());
    print(&fields);
}

/// Waits until all is on the console: what the kernel says does not wait for what a terminal still holds, and would be in the
/// middle of it.
pub(crate) fn drain() {
    // No terminal, nothing held.
    let _ = rustix::termios::tcdrain(io::stdout());
}

/// The last line, before what the kernel says of the guest's end.
pub(crate) fn done(passed: bool) {
    print(&json!({ "check": "done", "ok": passed }));
    drain();
}
