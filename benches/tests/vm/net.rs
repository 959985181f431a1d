// SPDX-License-Identifier: Apache-2.0
//! A guest on a tap of its host, where another process sends back whatever it is sent.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::{env, fs, thread};

use flatboot_bench::guest;
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use super::api::WORDS;
use super::jail;
use super::lab::{Lab, require};

/// Makes this test binary the guest's peer, and says at which port.
pub(crate) const ROLE: &str = "FLATBOOT_TEST_ECHO";

const PORT: u16 = 7007;
const TAP: &str = "flatboot-test0";
/// Addresses for measuring networks (RFC 2544): nobody else has them.
const HOST: &str = "198.18.249.1";
const GUEST: &str = "198.18.249.2";
/// The longest frame without segmentation.
const FRAME: u64 = 1514;

/// Who moves the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mover {
    Thread,
    Kernel,
}

impl Mover {
    fn vhost(self) -> &'static str {
        if self == Self::Kernel { "on" } else { "off" }
    }
}

type Body = fn(&Lab, Mover) -> Result<(), Failed>;

pub(crate) fn trials() -> [Trial; 8] {
    [
        ("net::both_ways_over_a_tap", Mover::Thread, both_ways as Body),
        ("net::both_ways_by_vhost", Mover::Kernel, both_ways),
        ("net::several_queues", Mover::Thread, several_queues),
        ("net::several_queues_by_vhost", Mover::Kernel, several_queues),
        ("net::pauses", Mover::Thread, pauses),
        ("net::pauses_of_vhost", Mover::Kernel, pauses),
        ("net::goes_on_from_a_snapshot", Mover::Thread, goes_on),
        ("net::goes_on_from_a_snapshot_by_vhost", Mover::Kernel, goes_on),
    ]
    .map(|(name, mover, body)| {
        Trial::ignorable_test(name, move || {
            let lab = Lab::get()?;
            match missing(lab, mover)? {
                Some(reason) => Ok(Completion::ignored_with(reason)),
                None => body(lab, mover).map(|()| Completion::Completed),
            }
        })
    })
}

/// What this kernel or this host lacks, if anything.
fn missing(lab: &Lab, mover: Mover) -> Result<Option<String>, Failed> {
    if !lab.kernel_has("CONFIG_VIRTIO_NET")? {
        return Ok(Some("the guest kernel has no VIRTIO_NET".to_owned()));
    }
    let may = lab.shell("[ $(id -u) = 0 ] && [ -c /dev/net/tun ]")?.code == 0;
    if !may {
        return Ok(Some("taps are made by root, with /dev/net/tun".to_owned()));
    }
    let vhost = mover == Mover::Thread || lab.shell("[ -c /dev/vhost-net ]")?.code == 0;
    Ok((!vhost).then(|| "there is no /dev/vhost-net".to_owned()))
}

/// Answers whoever asks, for ever.
pub(crate) fn echo(port: &str) -> io::Result<()> {
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // A datagram may be lost.
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
    for stream in listener.incoming() {
        let mut stream = stream?;
        thread::spawn(move || -> io::Result<()> {
            let mut back: TcpStream = stream.try_clone()?;
            io::copy(&mut stream, &mut back)?;
            back.shutdown(Shutdown::Write)
        });
    }
    Ok(())
}

/// Much and little, with checksums and segmentation left to whoever is better at it; once more with another driver, when the first
/// has left the device in the midst of its work; and the tap is gone when the guest is.
fn both_ways(lab: &Lab, mover: Mover) -> Result<(), Failed> {
    let (with_peer, seen) = (lab.path("flatboot-with-peer"), lab.path("vhost-seen"));
    let _ = fs::remove_file(&seen);
    let (peer, flatboot) = (env::current_exe()?, &lab.flatboot);
    // The kernel's thread is one of the process that it works for, since Linux 6.4.
    let script = format!(
        "#!/bin/sh\n{ROLE}={PORT} '{}' & peer=$!\n\
         (until cat /proc/[0-9]*/task/*/comm 2>/dev/null | grep -q ^vhost-; do sleep 0.2; done; : >'{}') & looks=$!\n\
         trap 'kill $peer $looks 2>/dev/null' EXIT\n'{}' \"$@\"\n",
        peer.display(),
        seen.display(),
        flatboot.display()
    );
    fs::write(&with_peer, script)?;
    fs::set_permissions(&with_peer, fs::Permissions::from_mode(0o755))?;
    let vhost = mover.vhost();
    let net = format!("tap={TAP},ip={HOST},mac=52:54:00:12:34:56,vhost={vhost}");
    let guest = lab.guest().options(["--net".to_owned(), net]);
    let guest = guest.checks(&format!("net={GUEST}/{HOST}:{PORT},nodmesg=TXQ,rebind,net={GUEST}/{HOST}:{PORT},calm"));
    let ended = lab.with_session(|session| guest.run(session, &with_peer))?;
    if !ended.passed() {
        return Err(lab.describe(&guest, &ended));
    }
    require(seen.exists() == (mover == Mover::Kernel), || {
        format!("vhost={vhost}: the kernel's thread is there, or not")
    })?;
    let report = ended.report("net").ok_or("no report")?;
    let mean = |way: &str| report[way].as_u64().unwrap_or(0);
    require(mean("rx_mean") > FRAME && mean("tx_mean") > FRAME, || format!("no offloads: {report}"))?;
    let lost = report["lost"].as_object().ok_or("no report of what is lost")?;
    // What the guest's own network drops before the driver has it, now and then one as the interface comes up, is nobody's frame;
    // what the driver cannot get rid of counts as tx_fifo_errors, and is said in the log.
    let most = |name: &str| u64::from(name == "tx_dropped");
    let few = lost.iter().all(|(name, count)| count.as_u64().is_some_and(|count| count <= most(name)));
    require(lost.len() == 5 && few, || format!("packets are lost: {report}"))?;
    let left = lab.shell("ls /sys/class/net")?.stdout_text();
    require(!left.contains(TAP), || format!("the tap is there: {left}"))
}

/// Linux uses as many pairs as it has processors, as many as it is told to, and all again with a new driver; each has a thread that
/// waits for what is sent by it.
fn several_queues(lab: &Lab, mover: Mover) -> Result<(), Failed> {
    const PAIRS: u16 = 4;
    /// Half of the datagrams that each processor sends in turn. The thread of a pair that nobody uses waits some ten times.
    const WAITS: u64 = 100;
    let (with_peer, seen) = (lab.path("flatboot-with-queues"), lab.path("threads-seen"));
    let _ = fs::remove_file(&seen);
    // How often each thread has waited, again and again: the last time is shortly before the end.
    let script = format!(
        "#!/bin/sh\n{ROLE}={PORT} '{}' & peer=$!\n\
         (while sleep 0.3; do grep -hE '^(Name|Pid|voluntary)' /proc/[0-9]*/task/*/status; done >'{}' 2>/dev/null) & looks=$!\n\
         trap 'kill $peer $looks 2>/dev/null' EXIT\n'{}' \"$@\"\n",
        env::current_exe()?.display(),
        seen.display(),
        lab.flatboot.display()
    );
    fs::write(&with_peer, script)?;
    fs::set_permissions(&with_peer, fs::Permissions::from_mode(0o755))?;
    let vhost = mover.vhost();
    let net = format!("tap={TAP},ip={HOST},num_queues={},vhost={vhost}", 2 * PAIRS);
    // All that a pair needs is open before the file system is out of reach.
    let wall = jail::has_landlock().then(|| "--landlock".to_owned());
    let guest = lab.guest().cpus(PAIRS).options(["--net".to_owned(), net].into_iter().chain(wall));
    let carries = format!("net={GUEST}/{HOST}:{PORT}");
    let guest = guest.checks(&format!(
        "channels=4,channels=1,channels=4,{carries},turns={HOST}:{PORT},rebind,channels=2,{carries},nodmesg=TXQ,calm"
    ));
    let ended = lab.with_session(|session| guest.run(session, &with_peer))?;
    if !ended.passed() {
        return Err(lab.describe(&guest, &ended));
    }
    let before: Vec<_> = ended.reports.iter().filter(|report| report["check"] == "channels").collect();
    let began_with: Vec<_> = before.iter().map(|report| (&report["before_rx"], &report["before_tx"])).collect();
    let all = |pairs: &[u16]| {
        let mut pairs = pairs.iter().zip(&began_with);
        pairs.all(|(pairs, (receive, send))| **receive == *pairs && **send == *pairs)
    };
    require(began_with.len() == 4 && all(&[4, 4, 1, 4]), || format!("{before:?}"))?;
    let text = fs::read_to_string(&seen)?;
    let prefix = if mover == Mover::Kernel { "vhost-" } else { "virtio0" };
    let mut waited = BTreeMap::new();
    let (mut name, mut thread) = ("", "");
    for line in text.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["Name:", is] => name = is,
            ["Pid:", is] => thread = is,
            [_, times] if name.starts_with(prefix) => drop(waited.insert(thread, times.parse::<u64>()?)),
            _ => (),
        }
    }
    let busy = waited.values().filter(|times| **times > WAITS).count();
    require(busy == usize::from(PAIRS), || {
        format!("vhost={vhost}: times that threads of pairs have waited: {waited:?}")
    })
}

/// A server's guest is paused again and again while it sends and receives. As long as it is, no frame moves; and none of what it
/// says or is told is wrong.
fn pauses(lab: &Lab, mover: Mover) -> Result<(), Failed> {
    // As fast as a host may be: there is something to pause.
    let net = format!("net={GUEST}/{HOST}:{PORT}");
    let checks = format!("{net},rebind,{net},rebind,{net},rebind,{net},rebind,{net},rebind,{net},calm");
    let script = format!(
        r#"{WORDS}
ip tuntap add dev {TAP} mode tap; ip address add {HOST}/24 dev {TAP}; ip link set {TAP} up
{ROLE}={PORT} '{peer}' & peer=$!
trap 'kill $peer; ip link delete {TAP}' EXIT
'{flatboot}' run --api-socket socket --kernel '{kernel}' --initramfs '{initramfs}' --memory size=512M \
    --serial file=console --net tap={TAP},mac=52:54:00:12:34:56,vhost={vhost} \
    --cmdline 'quiet flatboot.check={checks} flatboot.end=poweroff' & pid=$!
moved() {{ cat /sys/class/net/{TAP}/statistics/[rt]x_packets | tr '\n' ' '; }}
until_it answers
until_it eval '[ "$(cat /sys/class/net/{TAP}/statistics/rx_packets)" -gt 20 ]'
n=0
while put vm.pause 2>/dev/null; do
    before=$(moved); sleep 0.1; after=$(moved)
    [ "$before" = "$after" ] || {{ echo "paused at $before, $after" >&2; exit 98; }}
    # A guest that has just powered off cannot go on; one that stays paused is waited for in vain.
    put vm.resume || break; n=$((n+1))
    now=$(get vm.counters 2>/dev/null | grep -o '"_net0":{{[^}}]*}}') || break
    counted=$now; sleep 0.05
done
wait $pid; cat console; echo "$counted"; echo $n"#,
        peer = env::current_exe()?.display(),
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
        vhost = mover.vhost(),
    );
    let outcome = lab.shell(&script)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    let passed: Vec<_> = guest::reports(&said).into_iter().filter(|report| report["ok"] == true).collect();
    let count = |name: &str| passed.iter().filter(|report| report["check"] == name).count();
    let pauses: u32 = said.lines().next_back().and_then(|line| line.parse().ok()).ok_or_else(seen)?;
    require(outcome.code == 0 && count("net") == 6 && count("calm") == 1 && pauses > 1, seen)?;
    let counted = said.lines().rev().nth(1).and_then(|line| line.split_once(':'));
    let counted: Value = serde_json::from_str(counted.ok_or("no counters")?.1)?;
    let some = |name: &str| counted[name].as_u64().is_some_and(|count| count > 100);
    require(["rx_bytes", "rx_frames", "tx_bytes", "tx_frames"].into_iter().all(some), || counted.to_string())
}

/// A guest's network, vsock device and balloon are there under another VMM: it has moved frames before, and moves more with the same
/// driver. Its connections over vsock are gone.
fn goes_on(lab: &Lab, mover: Mover) -> Result<(), Failed> {
    let net = format!("net={GUEST}/{HOST}:{PORT}");
    let checks = format!("{net},pulse=/dev/vda,{net},nodmesg=TXQ,calm");
    let script = format!(
        r#"{WORDS}
ip tuntap add dev {TAP} mode tap; ip address add {HOST}/24 dev {TAP}; ip link set {TAP} up
{ROLE}={PORT} '{peer}' & peer=$!
trap 'kill $peer; ip link delete {TAP}' EXIT
truncate -s 1M disk
'{flatboot}' run --api-socket socket --kernel '{kernel}' --initramfs '{initramfs}' --memory size=512M --cpus boot=2 \
    --serial file=console --net tap={TAP},mac=52:54:00:12:34:56,vhost={vhost} --disk path=disk --vsock cid=3,socket=v \
    --balloon size=16M --cmdline 'quiet flatboot.check={checks} flatboot.end=poweroff' & pid=$!
until_it answers; until_it grep -q '"begun":true' console
put vm.pause; put vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}"; put vmm.shutdown; wait $pid
[ ! -e v ]
'{flatboot}' run --api-socket socket --restore snap --vsock cid=4,socket=w & pid=$!
until_it is Running; [ -e w ]; put vm.pause; put vm.resume
get vm.info | grep -q '"cid":4'
printf stop | dd of=disk bs=4096 seek=255 conv=notrunc status=none; wait $pid; cat console"#,
        peer = env::current_exe()?.display(),
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
        vhost = mover.vhost(),
    );
    let outcome = lab.shell(&script)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    let passed: Vec<_> = guest::reports(&said).into_iter().filter(|report| report["ok"] == true).collect();
    let count = |name: &str| passed.iter().filter(|report| report["check"] == name).count();
    require(outcome.code == 0 && count("net") == 2 && count("pulse") == 1 && count("calm") == 1, seen)
}
