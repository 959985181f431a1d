// SPDX-License-Identifier: Apache-2.0
//! Programs of a guest and of its host that connect to each other without a network.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::{env, fs, thread};

use libtest_mimic::{Completion, Failed, Trial};

use super::lab::{Lab, require};

/// Makes this test binary the guest's peer: the device's socket, the port that it answers at, and the guest's.
pub(crate) const ROLE: &str = "FLATBOOT_TEST_VSOCK";

const ANSWERS_AT: u32 = 5000;
const GUEST_PORT: u32 = 6000;
/// As the guest's init has them.
const CONNECTIONS: usize = 4;
const CARRIED: usize = 4 << 20;

pub(crate) fn trials() -> [Trial; 1] {
    [Trial::ignorable_test("vsock::both_ways", || {
        let lab = Lab::get()?;
        if !lab.kernel_has("CONFIG_VIRTIO_VSOCKETS")? {
            return Ok(Completion::ignored_with("the guest kernel has no VIRTIO_VSOCKETS"));
        }
        both_ways(lab).map(|()| Completion::Completed)
    })]
}

/// Sends back what the guest sends; connects to the guest as soon as that has connected here, and is content if what it sends there
/// comes back.
pub(crate) fn peer(role: &str) -> io::Result<()> {
    let wrong = || io::Error::other(format!("{ROLE}={role}: must be PATH:PORT:PORT"));
    let [path, answers_at, guest] = role.split(':').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
    let listener = UnixListener::bind(format!("{path}_{answers_at}"))?;
    let (first, _) = listener.accept()?;
    thread::scope(|scope| {
        let callers = (0..CONNECTIONS).map(|number| scope.spawn(move || call(path, guest, number)));
        let callers: Vec<_> = callers.collect();
        let others = (1..CONNECTIONS).map(|_| listener.accept().map(|(stream, _)| stream));
        let answers = [Ok(first)].into_iter().chain(others);
        let answers: Vec<_> = answers.map(|stream| scope.spawn(move || echo(&stream?))).collect();
        let mut ends = callers.into_iter().chain(answers);
        ends.try_for_each(|one| one.join().map_err(|_| io::Error::other("a thread died"))?)
    })
}

fn echo(stream: &UnixStream) -> io::Result<()> {
    io::copy(&mut &*stream, &mut &*stream)?;
    stream.shutdown(Shutdown::Write)
}

fn call(path: &str, port: &str, number: usize) -> io::Result<()> {
    let stream = UnixStream::connect(path)?;
    (&stream).write_all(format!("CONNECT {port}\n").as_bytes())?;
    let mut answer = Vec::new();
    while answer.last() != Some(&b'\n') {
        let mut byte = [0];
        (&stream).read_exact(&mut byte)?;
        answer.extend(byte);
    }
    if !answer.starts_with(b"OK ") {
        return Err(io::Error::other(format!("{:?}", String::from_utf8_lossy(&answer))));
    }
    let sent: Vec<u8> = (0..CARRIED).map(|at| ((at * 13 + number) % 251).to_le_bytes()[0]).collect();
    let mut came = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&sent).and_then(|()| stream.shutdown(Shutdown::Write)));
        (&stream).read_to_end(&mut came)
    })?;
    if came == sent { Ok(()) } else { Err(io::Error::other(format!("{} other bytes came back", came.len()))) }
}

/// Both sides call, several times at once; and the socket is gone when the guest is.
fn both_ways(lab: &Lab) -> Result<(), Failed> {
    let with_peer = lab.path("flatboot-with-vsock");
    let (peer, flatboot) = (env::current_exe()?, &lab.flatboot);
    // Sockets need a file system of the host's own, which /run is in the emulated one.
    let script = format!(
        "#!/bin/sh\n\
         directory=$(mktemp -d -p /run 2>/dev/null || mktemp -d)\n\
         {ROLE}=$directory/vm:{ANSWERS_AT}:{GUEST_PORT} '{}' & peer=$!\n\
         trap 'kill $peer 2>/dev/null; rm -rf \"$directory\"' EXIT\n\
         '{}' \"$@\" --vsock cid=3,socket=$directory/vm || exit\n\
         [ ! -e $directory/vm ] || {{ echo 'the socket is there' >&2; exit 90; }}\n\
         wait $peer || exit 91\n",
        peer.display(),
        flatboot.display()
    );
    fs::write(&with_peer, script)?;
    fs::set_permissions(&with_peer, fs::Permissions::from_mode(0o755))?;
    let guest = lab.guest().checks(&format!("vsock={ANSWERS_AT}/{GUEST_PORT},calm"));
    let ended = lab.with_session(|session| guest.run(session, &with_peer))?;
    if !ended.passed() {
        return Err(lab.describe(&guest, &ended));
    }
    let report = ended.report("vsock").ok_or("no report")?;
    let all = u64::try_from(CONNECTIONS * CARRIED)?;
    require(report["carried"] == all && report["answered"] == all, || report.to_string())
}
