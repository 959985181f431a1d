// SPDX-License-Identifier: Apache-2.0
//! A Debian guest that serves web pages over a tap and is logged into, while others on its networks send it what no network would.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use fastrand::Rng;
use flatboot_bench::{HostOptions, artifact};
use libtest_mimic::{Completion, Failed, Trial};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use super::lab::{Lab, in_memory, require};

/// Makes this test binary the guest's clients, or one who means it no good: a word of [`role`], and what that needs.
pub(crate) const ROLE: &str = "FLATBOOT_TEST_CLIENT";
/// How long it serves, in seconds; without, the test is left out.
const SECONDS: &str = "FLATBOOT_SECONDS";

const TAP: &str = "flatboot-test1";
/// Addresses for measuring networks (RFC 2544): nobody else has them.
const HOST: &str = "198.18.248.1";
const GUEST: &str = "198.18.248.2";
/// The guest's address on the network that the tap leads to,
const TAP_MAC: &str = "52:54:00:12:34:61";
/// and on that of which a stream is the other end.
const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x60];
const CLIENTS: usize = 64;
/// A client that is not answered for so long counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest Ethernet frame that is not cut into segments.
const FRAME: usize = 1514;
/// Sends packets of up to 64 KiB that are to be cut into segments (`PACKET_VNET_HDR` of packet(7), `struct virtio_net_hdr`): with sizes,
/// offsets and types that fit and that do not. Its kernel refuses some. Says at its end how many it has sent.
const SEGMENTS: &str = r#"
my ($name, $mac, $to) = @ARGV;
my ($sent, $over) = (0, 0);
$SIG{TERM} = sub { $over = 1 };
my $socket;
socket($socket, 17, 3, 0) && setsockopt($socket, 263, 15, pack("i", 1)) or die "packet socket: $!";
open(my $index, "<", "/sys/class/net/$name/ifindex") or die "$name: $!";
bind($socket, pack("SniSCCa8", 17, 3, <$index>, 0, 0, 0, "")) or die "bind: $!";
sub any { $_[rand @_] }
while (!$over) {
    my $length = any(40, 41, 1500, 9000, 65535, 40 + int rand 65495);
    my $protocol = any(6, 6, 6, 17, 41);
    my $packet = pack("CCnnnCCna4a4", 0x45, 0, any($length, $length, 40, 0), 1, 0, 64, $protocol, 0,
        pack("C4", 198, 18, 248, 1), pack("C4", split /\./, $to));
    $packet .= pack("nnNNCCnnn", 7, any(80, 22, 9), 1, 1, any(0x50, 0x50, 0xf0, 0), 0x10, 1000, 0, 0);
    $packet .= "\xa5" x ($length - 40);
    my $header = pack("CCSSSS", any(0, 1, 1, 2, 0xff), any(0, 1, 1, 1, 3, 4, 5, 0x81, 0x7f), any(0, 54, 54, 14, 0xffff),
        any(0, 1, 8, 536, 1448, 1448, 0xffff), any(34, 34, 0, 0xffff), any(16, 16, 0, 0xffff));
    my $ethernet = pack("H12H12n", $mac =~ s/://gr, "525400123499", any(0x800, 0x800, 0x86dd));
    $sent++ if defined syswrite($socket, $header . $ethernet . $packet);
    select(undef, undef, undef, 0.005);
}
print "$sent\n";
"#;
/// A file that says that it has sent enough.
const ENOUGH: &str = "enough";

pub(crate) fn trials() -> [Trial; 1] {
    [Trial::ignorable_test("service::nginx_and_ssh_under_a_hostile_peer", || {
        let Ok(seconds) = env::var(SECONDS) else {
            return Ok(Completion::ignored_with(
                "make service runs it: it needs a disk that is not built for the other tests",
            ));
        };
        serves(Lab::get()?, seconds.parse().map_err(|_| format!("{SECONDS}={seconds}: must be a number"))?)
            .map(|()| Completion::Completed)
    })]
}

/// The guest is set up by what is typed at its console, and ends by ssh.
fn serves(lab: &Lab, seconds: u32) -> Result<(), Failed> {
    let disk = artifact::work_disk()?;
    let script = format!(
        r#"
failed() {{ echo "$1" >&2; tail -n 20 console stderr >&2; exit 98; }}
ip tuntap add dev {TAP} mode tap; ip address add {HOST}/24 dev {TAP}; ip link set {TAP} up
mkfifo keys; : >console
{ROLE}=stream '{own}' '{flatboot}' run --cpus boot=2 --memory size=1G --kernel '{kernel}' --disk 'path={disk}' \
    --cmdline 'root=/dev/vda rw rootfstype=ext4 quiet loglevel=3' --net tap={TAP},mac={TAP_MAC} --net fd=STREAM,mac={mac} \
    <keys >console 2>stderr & vmm=$!
exec 9>keys
comes() {{ n=0; until grep -q "$1" console; do n=$((n+1)); [ $n -lt 3000 ] && kill -0 $vmm || failed "waited for $1"; sleep 0.1; done; }}
comes 'login: '; echo root >&9; comes '# '
echo 'systemctl stop systemd-networkd.socket systemd-networkd; for n in eth0 eth1; do ip link set $n up; done;' \
    'ip address add {GUEST}/24 dev eth0; ip address add 198.18.247.2/24 dev eth1; mkdir -p /var/log/nginx; systemctl start nginx ssh; echo ser""ves' >&9
comes serves
in_guest() {{ ssh -F none -o BatchMode=yes -o ConnectTimeout=30 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o LogLevel=ERROR root@{GUEST} "$@"; }}
{ROLE}=flood '{own}' & flood=$!
cat >segments.pl <<'END'
{SEGMENTS}END
segments=; perl segments.pl {TAP} {TAP_MAC} {GUEST} >segments & segments=$!
waits=; {ROLE}=clients '{own}' {seconds} >clients & waits=$!
sleep $(({seconds} / 2)); in_guest 'echo in the midst of it as $(id -un)'
wait $waits || failed 'clients are not served'
kill $flood $segments; wait $segments || :; : >{ENOUGH}; sleep 1
in_guest 'systemctl is-active nginx ssh; cat /sys/class/net/eth1/statistics/rx_packets; (sleep 1; systemctl poweroff) >/dev/null 2>&1 &'
cat clients segments
wait $vmm || failed "flatboot ended with $?"
"#,
        own = env::current_exe()?.display(),
        flatboot = lab.flatboot.display(),
        kernel = artifact::debian_kernel()?.display(),
        disk = disk.display(),
        mac = MAC.map(|byte| format!("{byte:02x}")).join(":"),
    );
    let script = in_memory(&format!("kill $waits $flood $segments $vmm; ip link delete {TAP}"), &script);
    let limit = Duration::from_secs(900) + Duration::from_secs(2) * seconds;
    let command = flatboot_bench::Command::new("/bin/bash").args(["-c", &script]).timeout(limit);
    let outcome = lab.on_host(HostOptions { drives: vec![disk], ..HostOptions::default() }, &command)?;
    let (said, complaints) = (outcome.stdout_text(), String::from_utf8_lossy(&outcome.stderr).into_owned());
    let seen = || format!("exit code {}: {said}: {complaints}", outcome.code);
    let lines: Vec<_> = said.lines().collect();
    let [midst, nginx, ssh, junk, clients, segments] = lines.as_slice() else { return Err(seen().into()) };
    require(
        outcome.code == 0 && *midst == "in the midst of it as root" && (*nginx, *ssh) == ("active", "active"),
        seen,
    )?;
    // The driver has seen what the stream's other end sent.
    require(junk.parse::<u64>().is_ok_and(|packets| packets > 1000), seen)?;
    require(segments.parse::<u64>().is_ok_and(|sent| sent > 100), seen)?;
    println!("service: {clients}; {junk} frames of junk, {segments} to be cut into segments that make no sense");
    Ok(())
}

/// What [`ROLE`] says to be.
pub(crate) fn role(role: &str) -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match role {
        "clients" => clients(words.first().and_then(|word| word.parse().ok()).unwrap_or(60)),
        "flood" => flood(),
        "stream" => stream(&words),
        _ => Err(io::Error::other(format!("{ROLE}={role}: must be clients, flood or stream"))),
    }
}

/// Each asks for the page again and again, on a connection of its own each time. What comes must be all of it.
fn clients(seconds: u64) -> io::Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || client(until))).collect();
    let mut counts = Vec::new();
    for thread in threads {
        counts.push(thread.join().map_err(|_| io::Error::other("a client died"))??);
    }
    let (all, least) = (counts.iter().sum::<u64>(), counts.iter().min().copied().unwrap_or(0));
    println!("{all} pages for {CLIENTS} clients in {seconds} s, {least} for the least of them");
    if least == 0 { Err(io::Error::other("a client got nothing")) } else { Ok(()) }
}

fn client(until: Instant) -> io::Result<u64> {
    let guest: Ipv4Addr = GUEST.parse().map_err(io::Error::other)?;
    let mut pages = 0;
    while Instant::now() < until {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((guest, 80)), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let (head, body) = page.split_once("\r\n\r\n").unwrap_or_default();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
        if !head.starts_with("HTTP/1.1 200 ") || length != Some(body.len()) {
            return Err(io::Error::other(format!("not the page: {page:?}")));
        }
        pages += 1;
    }
    Ok(pages)
}

/// Packets over the tap whose headers say what is not so, between bursts of datagrams to ports where nobody is; until it is ended.
fn flood() -> io::Result<()> {
    let guest: Ipv4Addr = GUEST.parse().map_err(io::Error::other)?;
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
    let datagrams = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut rng = Rng::new();
    loop {
        let packet = packet(&mut rng, guest);
        // The kernel refuses some of them, and has no room for others.
        let _ = sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV4::new(guest, 0));
        for _ in 0..16 {
            // As large as a datagram can be: cut into fragments.
            let length = [0, 1, 1472, 1473, 65_507][rng.usize(..5)];
            let _ = datagrams.send_to(&vec![0xa5; length], (guest, rng.u16(1..)));
        }
        // Its own host is to serve clients, too.
        thread::sleep(Duration::from_millis(2));
    }
}

/// An IPv4 packet for `guest` of a protocol that it knows, with a payload that is none.
fn packet(rng: &mut Rng, guest: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0; 20 + rng.usize(..1400)];
    rng.fill(&mut packet);
    packet[0] = 0x45 + rng.u8(..3);
    packet[6] &= 0x3f;
    packet[8] = 64;
    packet[9] = [1, 2, 4, 6, 17, 41, 47, 50, 132][rng.usize(..9)];
    packet[12..16].copy_from_slice(&[198, 18, 248, rng.u8(..)]);
    packet[16..20].copy_from_slice(&guest.octets());
    packet
}

/// Runs the program that `words` are, with one end of a stream as the descriptor that one of them calls STREAM, and speaks at the
/// other as passt does: frames of many lengths and of no meaning, most of them to the guest's own address; at last, a length that no
/// frame has. Ends as the program does.
fn stream(words: &[String]) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let words: Vec<_> = words.iter().map(|word| word.replace("STREAM", &theirs.as_raw_fd().to_string())).collect();
    let (program, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program).args(rest).spawn()?;
    drop(theirs);
    let reader = ours.try_clone()?;
    thread::spawn(move || io::copy(&mut &reader, &mut io::sink()));
    thread::spawn(move || junk(ours));
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

fn junk(mut stream: UnixStream) -> io::Result<()> {
    let mut rng = Rng::new();
    loop {
        let enough = Path::new(ENOUGH).exists();
        let length = [14, 15, 34, 60, rng.usize(14..FRAME), FRAME][rng.usize(..6)];
        // What no frame can be ends the stream: once, when there has been enough of the others.
        let length = if enough { usize::MAX >> 32 } else { length };
        let mut bytes = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        let mut frame = vec![0; length.min(FRAME)];
        rng.fill(&mut frame);
        if rng.u8(..) < 230 && frame.len() >= 34 {
            frame[..6].copy_from_slice(&MAC);
            frame[12..14].copy_from_slice(&[[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0]][rng.usize(..4)]);
            frame[14] = 0x40 + rng.u8(..16);
        }
        bytes.extend(frame);
        stream.write_all(&bytes)?;
        if enough {
            return Ok(());
        }
        thread::sleep(Duration::from_micros(500));
    }
}
