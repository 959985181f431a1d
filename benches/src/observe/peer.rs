// SPDX-License-Identifier: Apache-2.0
//! The host's end of [workloads](crate::work): two taps, a file for a disk, and whoever answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use rustix::net::{Shutdown, shutdown};

use crate::work::{DATA_FILE, DATA_MIB, DISK_MIB, ECHO_PORT, LINKS};

/// Arguments: the file, how much of it is there and its size, both in MiB, then name and address of each tap. It says a line when
/// all is there, and clears it away when nobody holds its standard input any more. What an earlier one left behind is taken over; one
/// that still runs is left alone.
const SCRIPT: &str = r#"
    set -e
    PATH=$PATH:/usr/sbin:/sbin
    command -v iperf3 >/dev/null || { echo 'iperf3: not found: benches/packages.sh work' >&2; exit 1; }
    command -v flock >/dev/null || { echo 'flock: not found: apt-get install util-linux' >&2; exit 1; }
    exec 9>/run/flatboot-work.lock
    flock -n 9 || { echo 'another sweep with --work is at work on this machine' >&2; exit 1; }
    file=$1 data=$2 size=$3 taps= server=; shift 3
    trap 'set +e; exec 2>/dev/null; kill $server; for tap in $taps; do ip link delete $tap; done; rm -f "$file"' EXIT
    while [ $# -gt 0 ]; do
        ip link delete "$1" 2>/dev/null || :
        ip tuntap add dev "$1" mode tap
        taps="$taps $1"
        ip address add "$2/24" dev "$1"
        ip link set "$1" up
        shift 2
    done
    dd if=/dev/zero of="$file" bs=1M count="$data" 2>/dev/null
    truncate -s "${size}M" "$file"
    iperf3 --server >/dev/null 2>&1 9>&- & server=$!
    sleep 0.3; kill -0 $server 2>/dev/null || { echo 'iperf3 --server: has ended: is its port free?' >&2; exit 1; }
    echo ready
    read -r _ || :
"#;

/// Gone when dropped.
#[derive(Debug)]
pub(super) struct Peer {
    script: Child,
    /// What the script waits for the end of.
    hold: Option<ChildStdin>,
    /// Of each link, for guests only.
    echoes: Vec<TcpListener>,
}

impl Peer {
    /// Returns when all is there.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "peer", DATA_FILE, &DATA_MIB.to_string(), &DISK_MIB.to_string()]);
        for link in LINKS {
            command.args([link.tap, &link.host.to_string()]);
        }
        let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (hold, said, complaint) = (script.stdin.take(), script.stdout.take(), script.stderr.take());
        let mut peer = Self { script, hold, echoes: Vec::new() };
        let mut line = String::new();
        BufReader::new(said.ok_or(io::ErrorKind::BrokenPipe)?).read_line(&mut line)?;
        if line.is_empty() {
            let mut why = String::new();
            complaint.ok_or(io::ErrorKind::BrokenPipe)?.read_to_string(&mut why)?;
            return Err(io::Error::other(format!("the host's end of the work: {}", why.trim())));
        }
        for link in LINKS {
            let listener = TcpListener::bind((link.host, ECHO_PORT))?;
            peer.echoes.push(listener.try_clone()?);
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    thread::spawn(move || echo(stream));
                }
            });
        }
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for listener in &self.echoes {
            // Ends the thread that waits at it.
            let _ = shutdown(listener, Shutdown::Both);
        }
        drop(self.hold.take());
        // It ends by itself now.
        let _ = self.script.wait();
    }
}

/// Each byte by itself, at once.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => stream.write_all(&bytes[..count])?,
        }
    }
}
