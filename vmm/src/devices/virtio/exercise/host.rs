// SPDX-License-Identifier: Apache-2.0
//! Devices for hostile drivers, and who of the host speaks to them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::devices::virtio::block::Settings;
use crate::devices::virtio::console::socket::Socket;
use crate::devices::virtio::limit::{BothWays, Limiter};
use crate::devices::virtio::net::tap::Tap;
use crate::devices::virtio::net::{Interface, Link, Mac, Net};
use crate::devices::virtio::{Balloon, Block, Console, Rng, VirtioDevice, Vsock};

/// A device, and who speaks to it.
pub(super) type Made = (Box<dyn VirtioDevice>, Option<Peer>);

/// Who of the host has something to say to the guest.
pub(super) enum Peer {
    /// The other ends of a network, one for each pair of queues.
    Network(Vec<UnixDatagram>),
    /// Programs that connect to it, and where.
    Programs(SocketAddr, Vec<UnixStream>),
}

impl Peer {
    /// Says something that depends on `byte`. What there is no room for is lost, as on a wire.
    pub(super) fn speak(&mut self, byte: u8) {
        let much = vec![byte; usize::from(byte) * 300];
        match self {
            Self::Network(peers) => peers.iter().for_each(|peer| drop(peer.send(&much))),
            Self::Programs(address, programs) if byte.is_multiple_of(4) => {
                if let Ok(mut program) = UnixStream::connect_addr(address) {
                    let _ = program.set_nonblocking(true);
                    let _ = program.write_all(format!("CONNECT {}\n", byte / 4).as_bytes());
                    programs.push(program);
                }
            }
            Self::Programs(_, programs) if byte.is_multiple_of(3) => drop(programs.pop()),
            Self::Programs(_, programs) => {
                if let Some(program) = programs.last_mut() {
                    let _ = program.write(&much);
                }
            }
        }
    }
}

/// One end of a network, and the other.
fn wire() -> io::Result<(Box<dyn Link>, UnixDatagram)> {
    let (tap, peer) = UnixDatagram::pair()?;
    tap.set_nonblocking(true)?;
    peer.set_nonblocking(true)?;
    Ok((Box::new(Tap::pretended(OwnedFd::from(tap).into())?), peer))
}

/// A network interface with `pairs` pairs of queues, at least one, and what is at the other ends of them.
pub(super) fn network(pairs: usize) -> io::Result<Made> {
    let (first, peer) = wire()?;
    let (others, mut peers): (Vec<_>, Vec<_>) =
        (1..pairs).map(|_| wire()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
    peers.push(peer);
    let interface = Interface { mac: Mac::of(0, 0), mtu: None, queue_size: 256 };
    let net = Net::new(first, others, "exercise".to_owned(), interface, BothWays::default());
    Ok((Box::new(net), Some(Peer::Network(peers))))
}

/// A socket that programs connect to, and its address: an abstract one, so that no file is made.
fn meeting_place() -> io::Result<(UnixListener, SocketAddr)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("flatboot-exercise-{}-{number}", std::process::id());
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok((listener, address))
}

/// A console, and who comes to it.
pub(super) fn console() -> io::Result<Made> {
    let (listener, address) = meeting_place()?;
    let console = Console::new(Box::new(Socket::new(listener)?));
    Ok((Box::new(console), Some(Peer::Programs(address, Vec::new()))))
}

/// A vsock device, and the programs that connect to it.
pub(super) fn vsock() -> io::Result<Made> {
    let (listener, address) = meeting_place()?;
    let path = PathBuf::from("/nowhere/flatboot-exercise");
    let vsock = Vsock::new(3, listener, path, BothWays::default())?;
    Ok((Box::new(vsock), Some(Peer::Programs(address, Vec::new()))))
}

/// A disk, the content of which is `disk`'s.
pub(super) fn block(disk: &File, settings: Settings) -> io::Result<Made> {
    Ok((Box::new(Block::new(disk.try_clone()?, settings).map_err(io::Error::other)?), None))
}

/// An entropy source.
pub(super) fn rng() -> io::Result<Made> {
    Ok((Box::new(Rng::new(File::open("/dev/urandom")?, Limiter::default())), None))
}

/// A balloon.
pub(super) fn balloon() -> Made {
    (Box::new(Balloon::new(1 << 20, true, true)), None)
}
