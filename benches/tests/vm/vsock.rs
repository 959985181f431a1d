// SPDX-License-Identifier: Apache-2.0
//! Programs of a guest and of its host that connect to each other without a network.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, thread};

use flatboot_bench::artifact;
use libtest_mimic::{Completion, Failed, Trial};

use super::lab::{Lab, require};
use crate::Body;

/// Makes this test binary the guest's peer: the device's socket, the port that it answers at, and the guest's.
pub(crate) const ROLE: &str = "FLATBOOT_TEST_VSOCK";

const ANSWERS_AT: u32 = 5000;
const GUEST_PORT: u32 = 6000;
/// As the guest's init has them.
const CONNECTIONS: usize = 4;
const CARRIED: usize = 4 << 20;
/// A whole Debian, on any machine.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn trials() -> [Trial; 2] {
    [("vsock::both_ways", both_ways as Body), ("vsock::programs_of_others", programs_of_others)].map(|(name, body)| {
        Trial::ignorable_test(name, move || {
            let lab = Lab::get()?;
            if !lab.kernel_has("CONFIG_VIRTIO_VSOCKETS")? {
                return Ok(Completion::ignored_with("the guest kernel has no VIRTIO_VSOCKETS"));
            }
            body(lab).map(|()| Completion::Completed)
        })
    })
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

/// Takes all that comes, however late it is taken back: a guest's program that reads nothing while it writes waits for that.
fn echo(mut stream: &UnixStream) -> io::Result<()> {
    let (pieces, come) = mpsc::channel();
    thread::scope(|scope| {
        let read = scope.spawn(move || -> io::Result<()> {
            let mut room = vec![0; 1 << 16];
            loop {
                match (&mut &*stream).read(&mut room)? {
                    0 => return Ok(()),
                    length => drop(pieces.send(room[..length].to_vec())),
                }
            }
        });
        come.into_iter().try_for_each(|piece: Vec<u8>| stream.write_all(&piece))?;
        stream.shutdown(Shutdown::Write)?;
        read.join().map_err(|_| io::Error::other("a thread died"))?
    })
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

/// What a guest's Debian does in the place of its init: programs that know nothing of flatboot answer at one port each, and call one.
/// They wait for who is slow, and say what they have done.
const PROGRAMS: &str = r#"
mount -t proc proc /proc; mount -t tmpfs tmpfs /run; cd /run
head -c 4194304 /dev/urandom >sent

socat -d -d -t 120 VSOCK-LISTEN:6000,fork EXEC:cat 2>said & answers=$!
until grep -q 'listening on' said; do sleep 0.1; done
for number in 1 2 3 4; do
    (socat -t 120 - VSOCK-CONNECT:2:5000 <sent >came$number; cmp sent came$number && echo carried >>carried) &
done
until [ "$(wc -l <carried)" = 4 ]; do sleep 0.5; done 2>/dev/null
echo socat has carried all

cat >both.py <<'END'
import socket, threading
HOST, SENT = 2, open("sent", "rb").read()

def all_of(stream):
    return b"".join(iter(lambda: stream.recv(1 << 16), b""))

def answer(stream):
    with stream:
        while piece := stream.recv(1 << 16):
            stream.sendall(piece)
        stream.shutdown(socket.SHUT_WR)

def call():
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as stream:
        stream.connect((HOST, 5001))
        sender = threading.Thread(target=lambda: (stream.sendall(SENT), stream.shutdown(socket.SHUT_WR)))
        sender.start()
        came.append(all_of(stream) == SENT)
        sender.join()

came, listener = [], socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
listener.bind((socket.VMADDR_CID_ANY, 6001))
listener.listen()
callers = [threading.Thread(target=call) for _ in range(4)]
for caller in callers:
    caller.start()
answers = []
for _ in range(4):
    stream, (cid, _) = listener.accept()
    assert cid == HOST, cid
    answers.append(threading.Thread(target=answer, args=[stream]))
    answers[-1].start()
for thread in callers + answers:
    thread.join()
assert came == [True] * 4, came
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((HOST, 5999))
except OSError as error:
    print("Python has carried all; at a port of nobody:", error.strerror)
END
python3 both.py
poweroff -ff
"#;

/// socat and Python in a Debian guest call programs of the host, which call them: all at once, and each byte comes back.
fn programs_of_others(lab: &Lab) -> Result<(), Failed> {
    let programs = lab.path("programs");
    // It is read as a disk, whose sectors are whole.
    let length = PROGRAMS.len().next_multiple_of(512);
    fs::write(&programs, format!("{PROGRAMS:\n<length$}"))?;
    let roles = [(ANSWERS_AT, GUEST_PORT), (ANSWERS_AT + 1, GUEST_PORT + 1)];
    let peer = |(answers_at, guest)| {
        format!(
            "{ROLE}=$directory/vm:{answers_at}:{guest} '{}' & peers=\"$peers $!\"\n",
            env::current_exe().map_or_else(|error| error.to_string(), |path| path.display().to_string())
        )
    };
    let script = format!(
        "directory=$(mktemp -d -p /run 2>/dev/null || mktemp -d)\n\
         {}trap 'kill $peers 2>/dev/null; rm -rf \"$directory\"' EXIT\n\
         '{}' run --kernel '{}' --memory size=1G --cpus boot=2 --vsock cid=3,socket=$directory/vm \
         --disk 'path={},readonly=on' 'path={},readonly=on' \
         --cmdline 'quiet root=/dev/vda ro init=/bin/sh -- /dev/vdb' || exit\n\
         for peer in $peers; do wait $peer || exit 91; done\n",
        roles.map(peer).concat(),
        lab.flatboot.display(),
        lab.kernel.join("vmlinux").display(),
        artifact::work_disk()?.display(),
        programs.display(),
    );
    let outcome = lab.shell_for(&script, LIMIT)?;
    let said = outcome.stdout_text();
    let lines = ["socat has carried all", "Python has carried all; at a port of nobody: Connection reset by peer"];
    require(outcome.code == 0 && lines.iter().all(|line| said.contains(line)), || {
        format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr))
    })
}
