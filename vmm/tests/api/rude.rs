// SPDX-License-Identifier: Apache-2.0
//! Clients that nobody wants: whatever they do, others are served.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flatboot::vm;
use libtest_mimic::Failed;

use super::server::{Server, answer};
use super::{Test, life, require};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("rude::garbage", garbage, None),
        ("rude::too_much", too_much, None),
        ("rude::pipelined", pipelined, None),
        ("rude::slow_and_half_open", slow, None),
        ("rude::a_hundred_at_once", hundred, None),
        ("rude::more_than_there_is_room_for", crowd, None),
        ("rude::who_has_waited_longest_stays", crowd_that_asks, None),
        ("rude::what_does_not_come", late, None),
        ("rude::beside_a_vm", beside_a_vm, None),
        ("rude::beside_a_vm_that_runs", beside_one_that_runs, vm::open_kvm().err().map(|error| error.to_string())),
    ]
}

fn alive(server: &Server) -> Result<(), Failed> {
    require(server.ask("GET", "vmm.ping", "").0 == 200, || "nobody is served any more".to_owned())
}

fn garbage() -> Result<(), Failed> {
    send_garbage(&Server::start())
}

fn send_garbage(server: &Server) -> Result<(), Failed> {
    let zeroes = [0; 4096];
    // Who only ends lines has asked for nothing.
    let nothing = b"\r\n\r\n\r\n".as_slice();
    for bytes in [
        nothing,
        b"GET\r\n\r\n",
        b"GET /api/v1/vmm.ping HTTP/9.9\r\n\r\n",
        b"GET /api/v1/vmm.ping HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"PUT /api/v1/vm.create HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PUT /api/v1/vm.create HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &zeroes,
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let (status, _) = answer(&mut stream);
        let expected = if bytes == nothing { 0 } else { 400 };
        require(status == expected, || format!("{status} for {bytes:?}"))?;
        alive(server)?;
    }
    Ok(())
}

fn too_much() -> Result<(), Failed> {
    let mut server = Server::start();
    alive(&server)?;
    let before = server.usage();
    let body = "x".repeat(2 << 20);
    let (status, text) = server.ask("PUT", "vm.create", &body);
    require(status == 413 && text.contains("at most 1048576 bytes"), || format!("{status} {text}"))?;
    // Without a length, it is too long when there is too much of it.
    let mut stream = server.connect();
    let _ =
        stream.write_all(b"PUT /api/v1/vm.create HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    for _ in 0..40 {
        let _ = stream.write_all(format!("10000\r\n{}\r\n", "x".repeat(1 << 16)).as_bytes());
    }
    let (status, _) = answer(&mut stream);
    require(status == 413, || format!("{status} for chunks"))?;
    let mut stream = server.connect();
    let head = format!("GET /{} HTTP/1.1\r\n", "x".repeat(100_000));
    let _ = stream.write_all(head.as_bytes());
    let (status, _) = answer(&mut stream);
    require(matches!(status, 414 | 431), || format!("{status} for a long path"))?;
    alive(&server)?;
    server.is_back_at(&before);
    Ok(())
}

fn pipelined() -> Result<(), Failed> {
    let server = Server::start();
    let mut stream = server.connect();
    let one = "GET /api/v1/vmm.ping HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET /api/v1/vm.info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{}{last}", one.repeat(50)).as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let count = |status: &str| text.matches(&format!("HTTP/1.1 {status} ")).count();
    require((count("200"), count("404")) == (50, 1), || text.clone())
}

fn slow() -> Result<(), Failed> {
    let server = Server::start();
    let mut half: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for (stream, bytes) in
        half.iter_mut().zip(["", "G", "PUT /api/v1/vm.create HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"].iter().cycle())
    {
        stream.write_all(bytes.as_bytes())?;
    }
    alive(&server)?;
    // One that takes its time is served, too.
    let mut stream = server.connect();
    for byte in b"GET /api/v1/vmm.ping HTTP/1.1\r\nConnection: close\r\n\r\n" {
        stream.write_all(&[*byte])?;
    }
    require(answer(&mut stream).0 == 200, || "a slow client".to_owned())?;
    // And one that has nothing more to say, and waits.
    let mut stream = server.connect();
    stream.write_all(b"GET /api/v1/vmm.ping HTTP/1.1\r\n\r\n")?;
    stream.shutdown(Shutdown::Write)?;
    require(answer(&mut stream).0 == 200, || "a client that has closed its side".to_owned())
}

fn hundred() -> Result<(), Failed> {
    let mut server = Server::start();
    alive(&server)?;
    let before = server.usage();
    let shared = Arc::new(server);
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let server = Arc::clone(&shared);
            thread::spawn(move || (0..10).all(|_| server.ask("GET", "vmm.ping", "").0 == 200))
        })
        .collect();
    let all = clients.into_iter().all(|client| client.join().is_ok_and(|served| served));
    require(all, || "somebody was not served".to_owned())?;
    server = Arc::into_inner(shared).ok_or("somebody still has the server")?;
    server.is_back_at(&before);
    Ok(())
}

fn crowd() -> Result<(), Failed> {
    let server = Server::start();
    let idle: Vec<_> = (0..300).map(|_| server.connect()).collect();
    alive(&server)?;
    drop(idle);
    alive(&server)
}

/// A request of each of them has begun, and whoever came first is answered.
fn crowd_that_asks() -> Result<(), Failed> {
    const HEAD: &str = "PUT /api/v1/vm.create HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n";
    const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let server = Server::start();
    let mut first = server.connect();
    first.write_all(format!("{HEAD}Expect: 100-continue\r\n\r\n").as_bytes())?;
    let mut said = [0; GO_ON.len()];
    first.read_exact(&mut said)?;
    require(said == GO_ON, || String::from_utf8_lossy(&said).into_owned())?;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        let mut stream = server.connect();
        stream.write_all(format!("{HEAD}\r\n{{").as_bytes())?;
        crowd.push(stream);
        // It has been heard by then.
        alive(&server)?;
    }
    first.write_all(b"{}")?;
    let (status, said) = answer(&mut first);
    require(status == 400 && said.contains("payload: is missing"), || format!("{status} {said}"))
}

/// Who begins a request has half a minute for its head, and as much for its body; others are served meanwhile.
fn late() -> Result<(), Failed> {
    const LIMIT: Duration = Duration::from_secs(30);
    let mut server = Server::start();
    alive(&server)?;
    let before = server.usage();
    let begin = Instant::now();
    let head = "PUT /api/v1/vm.create HTTP/1.1\r\nConnection: close\r\n";
    let mut streams: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let pieces = [
        format!("{head}Content-Length: 9\r\n\r\n{{"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n"),
        head.into(),
    ];
    for (stream, piece) in streams.iter_mut().zip(&pieces) {
        stream.write_all(piece.as_bytes())?;
    }
    thread::sleep(LIMIT / 2);
    alive(&server)?;
    let answers: Vec<_> = streams.iter_mut().map(answer).collect();
    let (took, said) = (begin.elapsed(), format!("{answers:?}"));
    require(took >= LIMIT && took < 2 * LIMIT, || format!("{took:?}"))?;
    for (status, text) in answers.iter().take(2) {
        require(*status == 408 && text == r#"["the body is not there: must come within 30 s"]"#, || said.clone())?;
    }
    // Of what has no head there is nothing to answer.
    require(answers.iter().skip(2).all(|(status, _)| matches!(status, 0 | 408)), || said)?;
    drop(streams);
    server.is_back_at(&before);
    Ok(())
}

/// Garbage, a crowd that stays, and requests that make no sense, which are refused with one of `statuses`.
fn annoy(server: &Server, statuses: &[u16]) -> Result<Vec<UnixStream>, Failed> {
    send_garbage(server)?;
    let crowd: Vec<_> = (0..300).map(|_| server.connect()).collect();
    let wrong = ["{", "[]", "\0", r#"{"path": 1}"#, r#"{"path": "/d", "id": "\u0000", "x": {}}"#];
    for (name, body) in ["vm.create", "vm.add-disk", "vm.add-net", "vm.add-vsock", "vm.remove-device"]
        .into_iter()
        .flat_map(|name| wrong.map(|body| (name, body)))
    {
        let (status, said) = server.ask("PUT", name, body);
        require(statuses.contains(&status), || format!("{name} {body}: {status} {said}"))?;
    }
    Ok(crowd)
}

/// Its guest writes on, whatever they do.
fn beside_one_that_runs() -> Result<(), Failed> {
    let mut server = Server::start();
    let vm = life::vm(&server);
    for (name, body) in [("vm.create", vm.as_str()), ("vm.boot", "")] {
        let (status, said) = server.ask("PUT", name, body);
        require(status == 204, || format!("{name}: {status} {said}"))?;
    }
    life::goes_on(&mut server);
    let before = server.info();
    let crowd = annoy(&server, &[400, 405, 409])?;
    life::goes_on(&mut server);
    for (name, body) in
        [("vm.boot", ""), ("vm.resume", ""), ("vm.resize", "{"), ("vm.resize-disk", "[]"), ("vm.snapshot", "\0")]
    {
        let (status, said) = server.ask("PUT", name, body);
        require(matches!(status, 400 | 405), || format!("{name}: {status} {said}"))?;
    }
    require(server.info() == before, || format!("{} was {before}", server.info()))?;
    life::goes_on(&mut server);
    drop(crowd);
    // And who means it is heard.
    for name in ["vm.pause", "vm.resume"] {
        require(server.put(name) == 204, || name.to_owned())?;
    }
    life::goes_on(&mut server);
    require(server.put("vmm.shutdown") == 204, || "it does not end".to_owned())?;
    let (status, said) = server.ended();
    require(status.success() && said.is_empty(), || format!("{status} {said}"))
}

/// What they do is no matter of the VM's.
fn beside_a_vm() -> Result<(), Failed> {
    let server = Server::start();
    let body = r#"{"payload": {"kernel": "/nowhere"}, "memory": {"size": 134217728}}"#;
    require(server.ask("PUT", "vm.create", body).0 == 204, || "it is not created".to_owned())?;
    let before = server.info();
    let crowd = annoy(&server, &[400, 409])?;
    for name in ["vm.pause", "vm.resume", "vm.shutdown", "vm.reboot", "vm.power-button"] {
        let (status, said) = server.ask("PUT", name, "");
        require(matches!(status, 404 | 405), || format!("{name}: {status} {said}"))?;
    }
    drop(crowd);
    require(server.info() == before, || format!("{} was {before}", server.info()))
}
