// SPDX-License-Identifier: Apache-2.0
//! Requests of the control API that documents show, sent to the real program.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::shown;

/// Longer than a start takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// What curl is asked to send.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    verb: String,
    path: String,
    body: String,
}

impl Request {
    /// From curl's arguments.
    fn new(arguments: &[&str]) -> Self {
        let value = |option| {
            let at = arguments.iter().position(|argument| *argument == option);
            at.and_then(|at| arguments.get(at + 1)).copied()
        };
        let path = arguments.iter().find_map(|argument| argument.strip_prefix("http://localhost"));
        Self {
            verb: value("-X").unwrap_or("GET").to_owned(),
            path: path.unwrap_or_default().to_owned(),
            body: value("-d").unwrap_or_default().to_owned(),
        }
    }
}

/// The requests that `block` makes by curl. The shell runs it, with functions in the place of all that it starts.
fn requests(block: &str) -> Vec<Request> {
    let directory = tempfile::tempdir().expect("a directory");
    let script = format!("flatboot() {{ :; }}\ncurl() {{ printf '%s\\0' \"$@\" '' >> asked; }}\n{block}");
    let shell = Command::new("/bin/sh").args(["-c", &script]).current_dir(&directory).status().expect("a shell");
    assert!(shell.success(), "{shell}:\n{block}");
    let asked = fs::read_to_string(directory.path().join("asked")).unwrap_or_default();
    let requests = asked.split_terminator("\0\0");
    requests.map(|request| Request::new(&request.split('\0').collect::<Vec<_>>())).collect()
}

/// A server without a VM, which is gone with this.
struct Server(Child);

impl Server {
    fn start(socket: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot"));
        let child = command.arg("--api-socket").arg(socket).stdin(Stdio::null()).spawn().expect("flatboot");
        let start = Instant::now();
        while UnixStream::connect(socket).is_err() {
            assert!(start.elapsed() < LONG, "no socket");
            thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether flatboot has that path, with that verb and that body; there is no VM that anything could be done with.
fn is_understood(request: &Request) -> Result<(), String> {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let _server = Server::start(&socket);
    let mut stream = UnixStream::connect(&socket).expect("a server");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    let Request { verb, path, body } = request;
    let length = body.len();
    let head = format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}");
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).unwrap_or_default();
    let wrong = ["there is no such path", ": must be GET", ": must be PUT"].iter().any(|what| answer.contains(what));
    // A snapshot that is looked for and not found has been asked for as it must be.
    let looked_for = answer.contains("must be a directory that vm.snapshot has written");
    let understood = ["200", "204", "404", "405"].contains(&status) || looked_for;
    if wrong || !understood { Err(answer) } else { Ok(()) }
}

#[test]
fn requests_that_documents_show_are_understood() {
    let mut shown = 0;
    for (document, text) in shown::documents() {
        for block in shown::blocks(&text).iter().filter(|block| block.contains("curl ")) {
            for request in requests(block) {
                shown += 1;
                let said = is_understood(&request);
                assert!(said.is_ok(), "{document}: {request:?}: {}", said.unwrap_err());
            }
        }
    }
    assert!(shown > 5, "only {shown} requests were found");
}

#[test]
fn a_request_that_is_wrong_is_not_understood() {
    let request = |verb: &str, name: &str, body: &str| Request {
        verb: verb.to_owned(),
        path: format!("/api/v1/{name}"),
        body: body.to_owned(),
    };
    assert_eq!(
        requests(
            "api() { curl -X \"$1\" http://localhost/api/v1/$2; }\nflatboot x &\napi PUT vm.boot\ncurl -X PUT -d '{\n}' x"
        ),
        [request("PUT", "vm.boot", ""), Request { path: String::new(), ..request("PUT", "", "{\n}") }]
    );
    assert_eq!(is_understood(&request("PUT", "vm.add-disk", r#"{"path": "x.img"}"#)), Ok(()));
    for (verb, name, body, expected) in [
        ("PUT", "vm.start", "", "there is no such path"),
        ("GET", "vm.boot", "", "must be PUT"),
        ("PUT", "vm.send-migration", "", "501"),
        ("PUT", "vm.snapshot", r#"{"destination": "file:///x"}"#, "destination"),
        ("PUT", "vm.add-disk", r#"{"paths": "x.img"}"#, "paths"),
    ] {
        let said = is_understood(&request(verb, name, body)).unwrap_err();
        assert!(said.contains(expected), "{name}: {said}");
    }
}
