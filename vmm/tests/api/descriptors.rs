// SPDX-License-Identifier: Apache-2.0
//! Descriptors that come with a request (`SCM_RIGHTS`): each is the request's that it comes with, or closed.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use libtest_mimic::Failed;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::json;

use super::server::{Server, answer};
use super::{Test, require};

const VM: &str = r#"{"payload": {"kernel": "/nowhere/vmlinux"}, "memory": {"size": 268435456}}"#;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("descriptors::one_is_the_interface's", one, None),
        ("descriptors::none_is_as_before", none, None),
        ("descriptors::what_is_too_much_is_refused_and_closed", too_many, None),
        ("descriptors::what_nobody_wants_is_closed", unwanted, None),
        ("descriptors::each_request_has_its_own", each_its_own, None),
    ]
}

/// Sends a request whose bytes have `descriptors` with them; `more` says whether another one follows on the connection.
fn send(stream: &UnixStream, name: &str, body: &str, descriptors: &[BorrowedFd<'_>], more: bool) -> Result<(), Failed> {
    let connection = if more { "keep-alive" } else { "close" };
    let request = format!(
        "PUT /api/v1/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n{body}",
        body.len()
    );
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let pushed = descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    require(pushed, || "no room for so many".to_owned())?;
    let sent = sendmsg(stream, &[IoSlice::new(request.as_bytes())], &mut ancillary, SendFlags::empty())?;
    require(sent == request.len(), || format!("{sent} bytes were sent"))
}

fn ask(server: &Server, name: &str, body: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(u16, String), Failed> {
    let mut stream = server.connect();
    send(&stream, name, body, descriptors, false)?;
    Ok(answer(&mut stream))
}

fn with_vm() -> Result<Server, Failed> {
    let server = Server::start();
    let (status, said) = server.ask("PUT", "vm.create", VM);
    require(status == 204, || said)?;
    Ok(server)
}

/// Whether the other end of what was handed over is closed.
fn is_closed(other: &mut UnixStream) -> bool {
    other.set_nonblocking(true).unwrap();
    other.read(&mut [0]).is_ok_and(|length| length == 0)
}

fn one() -> Result<(), Failed> {
    let mut server = with_vm()?;
    let (ours, mut other) = UnixStream::pair()?;
    let body = r#"{"id": "lan", "fds": null, "num_queues": 2, "queue_size": 256}"#;
    let (status, said) = ask(&server, "vm.add-net", body, &[ours.as_fd()])?;
    drop(ours);
    require(status == 204, || said)?;
    let numbers = server.info()["config"]["net"][0]["fds"].clone();
    require(numbers == json!([-1]), || numbers.to_string())?;
    require(!is_closed(&mut other), || "it was closed".to_owned())?;
    let (status, said) = server.ask("PUT", "vm.remove-device", r#"{"id": "lan"}"#);
    require(status == 204, || said)?;
    server.wait_for("it stays open", |_| is_closed(&mut other.try_clone().unwrap()));
    Ok(())
}

fn none() -> Result<(), Failed> {
    let server = with_vm()?;
    let (status, said) = ask(&server, "vm.add-net", r#"{"tap": "vm0", "fds": null}"#, &[])?;
    require(status == 204, || said)?;
    let info = server.info();
    require(info["config"]["net"][0]["fds"].is_null(), || info.to_string())
}

fn too_many() -> Result<(), Failed> {
    let mut server = with_vm()?;
    let before = server.usage();
    let (ours, mut other) = UnixStream::pair()?;
    for (count, body, words) in [
        (2, r#"{"num_queues": 2}"#, "num_queues=2: must be 4, two for each of 2 descriptor(s)"),
        (16, r#"{"num_queues": 4}"#, "num_queues=4: must be 32, two for each of 16 descriptor(s)"),
        (17, "{}", "more than 16 descriptors came with the request: must be one for each pair of queues"),
        (40, "{}", "more than 16 descriptors came with the request: must be one for each pair of queues"),
        (1, r#"{"fds": [7]}"#, "fds=[7]: must be absent with a descriptor that comes with the request"),
        (1, r#"{"tap": "vm0"}"#, "tap=vm0: must not be with fd: that is its owner's"),
        (1, r#"{"tap": 5}"#, "tap=5: must be a string"),
    ] {
        let (status, said) = ask(&server, "vm.add-net", body, &vec![ours.as_fd(); count])?;
        require(status == 400 && said.contains(words), || format!("{count} {body}: {status} {said}"))?;
    }
    drop(ours);
    server.wait_for("one stays open", |_| is_closed(&mut other.try_clone().unwrap()));
    require(is_closed(&mut other), || "it is open".to_owned())?;
    server.is_back_at(&before);
    Ok(())
}

fn unwanted() -> Result<(), Failed> {
    let mut server = with_vm()?;
    for (name, body) in
        [("vmm.ping", ""), ("vm.nonsense", ""), ("vm.pause", ""), ("vm.create", VM), ("vm.add-disk", "{")]
    {
        let (ours, other) = UnixStream::pair()?;
        ask(&server, name, body, &[ours.as_fd()])?;
        drop(ours);
        server.wait_for(name, |_| is_closed(&mut other.try_clone().unwrap()));
    }
    Ok(())
}

/// One connection, and one request after another.
fn each_its_own() -> Result<(), Failed> {
    let mut server = with_vm()?;
    let stream = server.connect();
    let (first, other) = UnixStream::pair()?;
    let (second, _other) = UnixDatagram::pair()?;
    send(&stream, "vm.pause", "", &[first.as_fd()], true)?;
    drop(first);
    server.wait_for("it stays open", |_| is_closed(&mut other.try_clone().unwrap()));
    send(&stream, "vm.add-net", r#"{"tap": "vm0"}"#, &[], true)?;
    send_after(&stream, 2)?;
    send(&stream, "vm.add-net", "{}", &[second.as_fd()], false)?;
    send_after(&stream, 1)?;
    let net = server.info()["config"]["net"].clone();
    require(net[0]["fds"].is_null() && net[1]["fds"].is_array(), || net.to_string())
}

/// Waits for so many answers.
fn send_after(mut stream: &UnixStream, answers: usize) -> Result<(), Failed> {
    let (mut came, mut bytes) = (Vec::new(), [0; 4096]);
    while came.windows(8).filter(|bytes| bytes == b"HTTP/1.1").count() < answers
        || !came.ends_with(b"\n") && !came.ends_with(b"]")
    {
        let length = stream.read(&mut bytes)?;
        require(length > 0, || "there is no answer".to_owned())?;
        came.extend_from_slice(&bytes[..length]);
    }
    Ok(())
}
