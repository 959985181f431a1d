// SPDX-License-Identifier: Apache-2.0
//! A network interface, and whoever answers at its other end with what it is sent.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use std::{fs, thread};

use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::{processors, rtnetlink};

pub(crate) const INTERFACE: &str = "eth0";
/// What one connection carries each way, in bytes.
pub(crate) const CARRIED: usize = 4 << 20;
/// Connections at a time.
pub(crate) const CONNECTIONS: usize = 4;
/// Bytes of datagrams: around what a frame holds, and what takes several.
const DATAGRAMS: [usize; 8] = [0, 1, 17, 100, 1471, 1472, 1473, 9000];
/// Datagrams that wait for each other, on a processor.
const TURNS: usize = 200;
/// Nobody answers for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// `own/peer:port`: takes the address `own`, and sends and receives much and little, by TCP and UDP.
pub(crate) fn net(argument: &str) -> Outcome {
    let wrong = || format!("net={argument}: must be OWN/PEER:PORT");
    let (own, peer) = argument.split_once('/').ok_or_else(wrong)?;
    let own: Ipv4Addr = own.parse().map_err(|_| wrong())?;
    let peer: SocketAddr = peer.parse().map_err(|_| wrong())?;
    let index = statistic("ifindex")?;
    let index = u32::try_from(index).map_err(|error| error.to_string())?;
    rtnetlink::address(index, own)?;
    rtnetlink::up(index)?;

    let datagrams = datagrams(peer)?;
    let carried = thread::scope(|scope| {
        let connections: Vec<_> =
            (0..CONNECTIONS).map(|number| scope.spawn(move || connection(peer, number))).collect();
        let carried = connections.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("it died".to_owned())));
        carried.collect::<Result<Vec<usize>, String>>()
    })?;
    let mean = |way: &str| -> Result<u64, String> {
        let (bytes, packets) =
            (statistic(&format!("statistics/{way}_bytes"))?, statistic(&format!("statistics/{way}_packets"))?);
        Ok(bytes / packets.max(1))
    };
    let lost: Map<String, Value> = ["rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "tx_fifo_errors"]
        .into_iter()
        .map(|name| Ok((name.to_owned(), statistic(&format!("statistics/{name}"))?.into())))
        .collect::<Result<_, String>>()?;
    let report = json!({
        "datagrams": datagrams, "carried": carried.iter().sum::<usize>(), "rx_mean": mean("rx")?,
        "tx_mean": mean("tx")?, "lost": lost,
    });
    Ok((carried.iter().all(|bytes| *bytes == CARRIED), report))
}

/// Takes the interface from its driver, which resets the device, and gives it back.
pub(crate) fn rebind() -> Outcome {
    let interface = format!("/sys/class/net/{INTERFACE}");
    let device = fs::canonicalize(format!("{interface}/device")).map_err(|error| format!("{interface}: {error}"))?;
    let device = device.file_name().and_then(|name| name.to_str()).ok_or("a device without a name")?;
    for action in ["unbind", "bind"] {
        let path = format!("/sys/bus/virtio/drivers/virtio_net/{action}");
        fs::write(&path, device).map_err(|error| format!("{path}: {device}: {error}"))?;
    }
    Ok((fs::exists(&interface).is_ok_and(|there| there), json!({ "device": device })))
}

pub(crate) fn statistic(name: &str) -> Result<u64, String> {
    let path = format!("/sys/class/net/{INTERFACE}/{name}");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{path}: {text:?} is no number"))
}

/// Sends datagrams of many lengths; how many came back.
fn datagrams(peer: SocketAddr) -> Result<usize, String> {
    let socket = datagram_socket(peer)?;
    DATAGRAMS.iter().try_for_each(|length| there_and_back(&socket, *length))?;
    Ok(DATAGRAMS.len())
}

fn datagram_socket(peer: SocketAddr) -> Result<UdpSocket, String> {
    let failed = |error: io::Error| format!("UDP: {error}");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
    socket.connect(peer).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(failed)?;
    Ok(socket)
}

/// Sends a datagram until it comes back: a first one may be lost.
fn there_and_back(socket: &UdpSocket, length: usize) -> Result<(), String> {
    let sent = pattern(length, length);
    let mut came = vec![0; length + 1];
    let back = (0..PATIENCE.as_secs()).any(|_| {
        let sent_all = socket.send(&sent).is_ok();
        sent_all && socket.recv(&mut came).is_ok_and(|count| came.get(..count) == Some(sent.as_slice()))
    });
    if back { Ok(()) } else { Err(format!("UDP: {length} bytes do not come back")) }
}

/// `peer:port`: on each processor in turn, and so by each queue that is used, [`TURNS`] datagrams, none before the last one is
/// back. Only the first is sent again: the next one would bring the notification that a lost one is to have brought.
pub(crate) fn turns(argument: &str) -> Outcome {
    let peer: SocketAddr = argument.parse().map_err(|_| format!("turns={argument}: must be PEER:PORT"))?;
    let count = processors::count()?;
    for processor in 0..count {
        // In a thread of its own, so that what comes after this check may run anywhere.
        let turned = thread::scope(|scope| scope.spawn(|| turns_on(processor, peer)).join());
        turned.map_err(|_| "a thread panicked")?.map_err(|error| format!("processor {processor}: {error}"))?;
    }
    Ok((true, json!({ "processors": count, "turns": TURNS })))
}

fn turns_on(processor: usize, peer: SocketAddr) -> Result<(), String> {
    processors::run_on(processor).map_err(|error| error.to_string())?;
    let socket = datagram_socket(peer)?;
    there_and_back(&socket, 1)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| format!("UDP: {error}"))?;
    (1..TURNS).try_for_each(|turn| {
        let sent = turn.to_le_bytes();
        let mut came = [0; size_of::<usize>()];
        socket.send(&sent).map_err(|error| format!("turn {turn}: {error}"))?;
        // The first may come back twice.
        while came != sent {
            socket.recv(&mut came).map_err(|error| format!("turn {turn} does not come back: {error}"))?;
        }
        Ok(())
    })
}

/// Sends and receives at once, on a processor of its own if there are so many; how many of the right bytes came back.
fn connection(peer: SocketAddr, number: usize) -> Result<usize, String> {
    // Not on fewer processors.
    let _ = processors::run_on(number);
    let failed = |error: io::Error| format!("TCP: {error}");
    let stream = TcpStream::connect_timeout(&peer, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    carry(&stream, |stream| stream.shutdown(Shutdown::Write), number).map_err(|error| format!("TCP: {error}"))
}

/// Sends bytes over `stream` and, by `end`, that these were all, and receives meanwhile; how many of the right ones came back.
pub(crate) fn carry<S: Sync>(
    stream: &S,
    end: impl FnOnce(&S) -> io::Result<()> + Send,
    number: usize,
) -> Result<usize, String>
where
    for<'a> &'a S: Read + Write,
{
    let sent = pattern(CARRIED, number);
    let came = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut to = stream;
            to.write_all(&sent)?;
            end(stream)
        });
        let (mut came, mut from) = (Vec::new(), stream);
        let received = from.read_to_end(&mut came);
        sending.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")))?;
        received.map(|_| came)
    });
    let came = came.map_err(|error| error.to_string())?;
    if came == sent { Ok(came.len()) } else { Err(format!("of {CARRIED} bytes {} others came back", came.len())) }
}

/// Bytes that tell where they belong.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + at / 251 + seed * 7) % 256).to_le_bytes()[0]).collect()
}
