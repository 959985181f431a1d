// SPDX-License-Identifier: Apache-2.0
//! The process: how it begins, how it ends, and that nothing is left of it.

use std::fs;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use serde_json::Value;

use super::ignored::is_ignored;
use super::server::{Server, answer};
use super::{FLATBOOT, Test, require};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("process::shutdown_answers_and_leaves_nothing", shutdown, None),
        ("process::signals_end_it_and_leave_nothing", signals, None),
        ("process::a_socket_has_one_owner", one_owner, None),
        ("process::what_was_killed_is_replaced", replaced, None),
        ("process::events", events, None),
        ("process::events_to_a_descriptor", events_to_a_descriptor, None),
        ("process::an_inherited_socket", inherited, None),
        ("process::it_has_as_many_files_as_it_may", open_files, None),
    ]
}

fn left(server: &Server) -> Vec<String> {
    let names = fs::read_dir(server.directory.path()).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn shutdown() -> Result<(), Failed> {
    let mut server = Server::start();
    require(server.put("vmm.shutdown") == 204, || "no answer".to_owned())?;
    let directory = std::mem::replace(&mut server.directory, tempfile::tempdir()?);
    let (status, said) = server.ended();
    require(status.success() && said.is_empty(), || format!("{status} {said}"))?;
    require(fs::read_dir(directory.path())?.count() == 0, || "the socket is still there".to_owned())
}

/// Those of the signals that end a server which this test was not started to ignore.
fn heard() -> impl Iterator<Item = &'static str> {
    let heard = |(name, number): &(&str, u32)| {
        let is_heard = !is_ignored(*number);
        if !is_heard {
            eprintln!("SKIPPED: a server that SIG{name} ends: this test was started to ignore it");
        }
        is_heard
    };
    [("TERM", 15), ("INT", 2), ("HUP", 1)].into_iter().filter(heard).map(|(name, _)| name)
}

fn signals() -> Result<(), Failed> {
    for signal in heard() {
        let mut server = Server::start();
        Command::new("kill").args([format!("-{signal}"), server.pid().to_string()]).status()?;
        let directory = std::mem::replace(&mut server.directory, tempfile::tempdir()?);
        let (status, said) = server.ended();
        require(status.success() && said.is_empty(), || format!("{signal}: {status} {said}"))?;
        require(fs::read_dir(directory.path())?.count() == 0, || format!("{signal}: the socket is still there"))?;
    }
    Ok(())
}

fn one_owner() -> Result<(), Failed> {
    let server = Server::start();
    let socket = server.socket();
    let second = Command::new(FLATBOOT).arg("--api-socket").arg(&socket).output()?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    let expected = format!(
        "flatboot: error: --api-socket path={}: is in use by another process: must be used by no other\n",
        socket.display()
    );
    require(second.status.code() == Some(1) && said == expected, || said)?;
    require(left(&server) == ["socket"], || "the second one has removed it".to_owned())?;
    require(server.ask("GET", "vmm.ping", "").0 == 200, || "the first one is gone".to_owned())
}

fn replaced() -> Result<(), Failed> {
    let mut server = Server::start();
    let socket = server.socket();
    Command::new("kill").args(["-KILL", &server.pid().to_string()]).status()?;
    while !server.is_over() {
        thread::sleep(Duration::from_millis(5));
    }
    require(socket.exists(), || "it was not left behind".to_owned())?;
    let mut child = Command::new(FLATBOOT).arg("--api-socket").arg(&socket).spawn()?;
    let stream = connected(&mut child, &socket)?;
    shut_down(child, stream)?;
    require(left(&server).is_empty(), || format!("{:?} are left", left(&server)))
}

/// A connection to the server that `child` is going to be.
fn connected(child: &mut Child, socket: &Path) -> Result<UnixStream, Failed> {
    let mut connected = UnixStream::connect(socket);
    while connected.is_err() && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(5));
        connected = UnixStream::connect(socket);
    }
    Ok(connected?)
}

fn shut_down(mut child: Child, mut stream: UnixStream) -> Result<(), Failed> {
    stream.write_all(b"PUT /api/v1/vmm.shutdown HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let (status, _) = answer(&mut stream);
    require(status == 204 && child.wait()?.success(), || format!("{status}"))
}

fn open_files() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let script = "ulimit -Sn 600 && ulimit -Hn 700 && exec \"$0\" --api-socket path=socket";
    let mut child = Command::new("sh").args(["-c", script, FLATBOOT]).current_dir(&directory).spawn()?;
    let stream = connected(&mut child, &directory.path().join("socket"))?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id()))?;
    shut_down(child, stream)?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    require(line.split_whitespace().take(2).eq(["700", "700"]), || limits.clone())
}

fn events() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    server.ask("PUT", "vm.create", r#"{"payload": {"kernel": "/nowhere"}}"#);
    server.put("vm.delete");
    server.put("vmm.shutdown");
    let directory = std::mem::replace(&mut server.directory, tempfile::tempdir()?);
    server.ended();
    let text = fs::read_to_string(directory.path().join("events"))?;
    let objects: Vec<Value> = serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>()?;
    let names: Vec<_> = objects.iter().filter_map(|object| object["event"].as_str()).collect();
    require(names == ["starting", "deleted", "shutdown"], || text.clone())?;
    require(objects.iter().all(|object| object["timestamp"]["nanos"].is_u64()), || text.clone())
}

/// What was there before flatboot stays: the file is its owner's.
fn events_to_a_descriptor() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("events");
    fs::write(&path, "mine\n")?;
    let file = fs::File::options().append(true).open(&path)?;
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {FLATBOOT} --api-socket path=socket --event-monitor fd=7 7<&0 0</dev/null")])
        .current_dir(directory.path())
        .stdin(Stdio::from(file))
        .spawn()?;
    let socket = directory.path().join("socket");
    while UnixStream::connect(&socket).is_err() && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    let mut stream = UnixStream::connect(&socket)?;
    stream.write_all(b"PUT /api/v1/vmm.shutdown HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let (status, said) = answer(&mut stream);
    require(status == 204 && child.wait()?.success(), || format!("{status} {said}"))?;
    let text = fs::read_to_string(&path)?;
    let events = text.strip_prefix("mine\n").ok_or("what was there is gone")?;
    let names =
        serde_json::Deserializer::from_str(events).into_iter::<Value>().map(|event| Ok(event?["event"].clone()));
    let names: Vec<Value> = names.collect::<Result<_, serde_json::Error>>()?;
    require(names == ["starting", "shutdown"], || text.clone())?;
    let closed = Command::new("sh")
        .args(["-c", &format!("exec {FLATBOOT} --api-socket path=socket --event-monitor fd=7 7<&-")])
        .current_dir(directory.path())
        .output()?;
    let said = String::from_utf8_lossy(&closed.stderr).into_owned();
    let line = "flatboot: error: --event-monitor fd=7: was not open when this process was started: must be a file that this \
                process was started with\n";
    require(closed.status.code() == Some(2) && said == line, || format!("{}: {said}", closed.status))
}

/// A shell hands it over: a test process cannot clear close-on-exec without a call that is not safe.
fn inherited() -> Result<(), Failed> {
    let refused = Command::new("sh")
        .args(["-c", &format!("exec {FLATBOOT} --api-socket fd=7 7</dev/null")])
        .stderr(Stdio::piped())
        .output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let expected = "flatboot: error: --api-socket fd=7: is something else: must be a listening UNIX socket that this \
                    process was started with\n";
    require(refused.status.code() == Some(1) && said == expected, || said)?;

    // Standard input is one that can be handed over, under another number.
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path)?;
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {FLATBOOT} --api-socket fd=7 7<&0 0</dev/null")])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .spawn()?;
    let mut stream = UnixStream::connect(&path)?;
    stream.write_all(b"PUT /api/v1/vmm.shutdown HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let (status, _) = answer(&mut stream);
    require(status == 204 && child.wait()?.success(), || format!("{status}"))?;
    require(path.exists(), || "what it has not made is not its to remove".to_owned())
}
