// SPDX-License-Identifier: Apache-2.0
//! Taps: network interfaces of the host whose frames a process reads and writes (the kernel's Documentation/networking/tuntap.rst).
//!
//! A tap that is made here goes when its last descriptor is closed.

#![expect(unsafe_code, reason = "ioctls of /dev/net/tun and of interfaces have no safe wrapper")]

use std::ffi::{CStr, c_char, c_int, c_short, c_uint, c_ulong};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_UFO, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_UFO,
};

use super::frame::HEADER_SIZE;
use super::link::Link;
use super::mac::Mac;
use super::offload::Told;
use super::pairs::Switch;
use super::statistics::TapStatistics;
use crate::devices::virtio::vectors::Vectors;

const DEVICE: &str = "/dev/net/tun";
/// Frames, each behind a virtio header, and nothing else.
const FLAGS: c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
/// Checksums that the host's kernel works out for a guest, and those that it leaves out to one.
const CHECKSUMS: [u32; 2] = [VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM];
/// TCP that either cuts into packets for the other, or hands on uncut.
const STREAMS: [u32; 6] = [
    VIRTIO_NET_F_HOST_TSO4,
    VIRTIO_NET_F_HOST_TSO6,
    VIRTIO_NET_F_HOST_ECN,
    VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_GUEST_ECN,
];
/// The same of UDP.
const DATAGRAMS: [u32; 2] = [VIRTIO_NET_F_HOST_UFO, VIRTIO_NET_F_GUEST_UFO];
/// Bytes of a name, its end included.
const NAME_SIZE: usize = libc::IFNAMSIZ;

/// What is offered to a guest, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums may be left out. None of the others goes without.
    pub checksums: bool,
    /// TCP may be uncut.
    pub streams: bool,
    /// UDP may be uncut.
    pub datagrams: bool,
}

impl Default for Offloads {
    fn default() -> Self {
        Self { checksums: true, streams: true, datagrams: true }
    }
}

/// One queue of a tap, open, that never waits. Most taps have one.
#[derive(Debug)]
pub struct Tap {
    file: File,
    /// The same once more: to be watched for that it is switched on again.
    up: File,
    state: Arc<State>,
    /// What takes it out of use, until somebody asks for that.
    place: Option<Place>,
    name: String,
    offloads: Offloads,
    told: Box<Told>,
}

/// What all queues of a tap have in common.
#[derive(Debug)]
struct State {
    /// The queue that is always in use: of the others there is no telling why they take no frames.
    first: File,
    /// The tap was switched off when it was last looked at.
    is_off: AtomicBool,
}

impl State {
    fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    /// What was off may come up as it is looked at, by somebody else who then sees that nobody has said so: hence twice.
    fn look(&self) {
        for _ in 0..2 {
            let off = is_off(&self.first);
            self.is_off.store(off, Ordering::SeqCst);
            if !off {
                return;
            }
        }
    }
}

/// A queue's place among those that the host has frames for.
#[derive(Debug)]
struct Place {
    file: File,
    used: bool,
}

impl Switch for Place {
    fn switch(&mut self, used: bool) -> io::Result<()> {
        if used != self.used {
            set_used(&self.file, used)?;
            self.used = used;
        }
        Ok(())
    }
}

impl Tap {
    /// So many queues of the tap `name`, made if there is none; with an empty name, of a new one. A tap with one queue must not be
    /// in use.
    pub fn open(name: &str, queues: u16) -> io::Result<Vec<Self>> {
        let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut opened: Vec<(File, String)> = Vec::new();
        for _ in 0..queues {
            let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
            let mut request = request(opened.first().map_or(name, |(_, name)| name))?;
            request.ifr_ifru.ifru_flags = short(FLAGS | several);
            // SAFETY: TUNSETIFF reads and writes a struct ifreq, which this is.
            check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
            opened.push((file, name_of(&request)));
        }
        // One with several queues the host lets anybody have a part of.
        if opened.first().is_some_and(|(_, name)| queues > 1 && queues_in_use(name) > opened.len()) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        Self::all(opened)
    }

    /// Queues of one that somebody else has opened.
    pub fn inherited(files: Vec<File>) -> io::Result<Vec<Self>> {
        let wanted = FLAGS | if files.len() > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut opened: Vec<(File, String)> = Vec::new();
        for file in files {
            let (name, flags) = identify(&file)?;
            if flags & FLAGS != FLAGS || !has_bare_frames(&name) {
                return Err(io::Error::new(ErrorKind::InvalidInput, "has no IFF_TAP, IFF_NO_PI or IFF_VNET_HDR"));
            }
            if flags & wanted != wanted || opened.first().is_some_and(|(_, first)| *first != name) {
                return Err(io::Error::new(ErrorKind::InvalidInput, "are not all queues of one tap (IFF_MULTI_QUEUE)"));
            }
            never_waits(&file)?;
            opened.push((file, name));
        }
        Self::all(opened)
    }

    /// Its name on the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the host counts of it, if it can be seen.
    pub fn statistics(&self) -> io::Result<TapStatistics> {
        TapStatistics::open(&self.name, self.address()?)
    }

    /// Its address on the host.
    fn address(&self) -> io::Result<Mac> {
        let mut request = request("")?;
        // SAFETY: SIOCGIFHWADDR of a tap writes a struct ifreq, which this is.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
        // SAFETY: the kernel has filled in this field; any bits are numbers.
        let bytes = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data }.map(|byte| byte.to_ne_bytes()[0]);
        Ok(Mac::from_bytes(bytes.first_chunk().copied().unwrap_or_default()))
    }

    /// For whoever else moves its frames.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// A socket that keeps frames apart, in the place of a tap.
    #[cfg(any(test, fuzzing))]
    pub fn pretended(file: File) -> io::Result<Self> {
        let state = State { first: file.try_clone()?, is_off: AtomicBool::new(false) };
        Self::of(file, String::new(), &Arc::new(state))
    }

    fn of(file: File, name: String, state: &Arc<State>) -> io::Result<Self> {
        let (up, state) = (file.try_clone()?, Arc::clone(state));
        Ok(Self { up, file, state, place: None, name, offloads: Offloads::default(), told: Box::default() })
    }

    /// The queues of one tap, all of which are in use.
    fn all(opened: Vec<(File, String)>) -> io::Result<Vec<Self>> {
        let Some((first, _)) = opened.first() else { return Ok(Vec::new()) };
        with_headers(first)?;
        let state = Arc::new(State { first: first.try_clone()?, is_off: AtomicBool::new(false) });
        let several = opened.len() > 1;
        let tap = |(file, name): (File, String)| {
            let place = if several { Some(Place { file: file.try_clone()?, used: true }) } else { None };
            Ok(Self { place, ..Self::of(file, name, &state)? })
        };
        opened.into_iter().map(tap).collect()
    }

    /// The same, which offers a guest no more than `offloads`.
    #[must_use]
    pub fn offering(self, offloads: Offloads) -> Self {
        Self { offloads, ..self }
    }

    /// Gives it an address on the host.
    pub fn set_address(&self, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
        for (call, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
            let mut request = request(&self.name)?;
            request.ifr_ifru.ifru_addr = socket_address(value);
            interface(call, &mut request)?;
        }
        Ok(())
    }

    /// Sets the longest packet, in bytes behind the Ethernet header.
    pub fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_mtu = mtu.into();
        interface(libc::SIOCSIFMTU, &mut request)
    }

    /// Whether it is switched on, as Linux says without being asked on a socket.
    #[must_use]
    pub fn is_up(&self) -> bool {
        said_flags(&self.name, "flags").is_some_and(|flags| flags & libc::IFF_UP != 0)
    }

    /// Switches it on.
    pub fn up(&self) -> io::Result<()> {
        let mut request = request(&self.name)?;
        interface(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel has filled in this field; any bits are a number.
        let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        if flags & libc::IFF_UP != 0 {
            return Ok(());
        }
        request.ifr_ifru.ifru_flags = short(flags | libc::IFF_UP);
        interface(libc::SIOCSIFFLAGS, &mut request)
    }

    /// A frame that is lost may mean that the tap is switched off, or gone.
    fn look_after<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if matches!(&result, Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)) {
            self.state.look();
        }
        result
    }
}

/// The headers of all frames of `tap`.
fn with_headers(tap: &File) -> io::Result<()> {
    let size = c_int::try_from(HEADER_SIZE).unwrap_or(c_int::MAX);
    // SAFETY: TUNSETVNETHDRSZ reads an int, which this is.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) })
}

fn never_waits(tap: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(tap)?;
    Ok(rustix::fs::fcntl_setfl(tap, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// The name and the flags of the tap whose queue `file` is.
fn identify(file: &File) -> io::Result<(String, c_int)> {
    let mut request = request("")?;
    // SAFETY: TUNGETIFF writes a struct ifreq, which this is.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    // SAFETY: the kernel has filled in this field; any bits are a number.
    let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    // A guest before this one may have left it out of use.
    if flags & libc::IFF_DETACH_QUEUE != 0 {
        set_used(file, true)?;
    }
    Ok((name_of(&request), flags))
}

/// Whether frames of the tap have nothing before their header of virtio. TUNGETIFF does not tell: another flag has the same bit there.
fn has_bare_frames(name: &str) -> bool {
    // One in another network namespace does not say.
    said_flags(name, "tun_flags").is_none_or(|flags| flags & libc::IFF_NO_PI != 0)
}

/// The flags in a file that Linux has of an interface, if it has that interface here.
fn said_flags(interface: &str, file: &str) -> Option<c_int> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?;
    c_int::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// How many of its queues the tap has frames for, whoever has opened them; none if it cannot be seen.
fn queues_in_use(name: &str) -> usize {
    let entries = fs::read_dir(format!("/sys/class/net/{name}/queues")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count()
}

/// Takes the queue `file` of a tap with several into use, or out of it: the host then has frames for the others only, and drops what
/// it had for this one.
fn set_used(file: &File, used: bool) -> io::Result<()> {
    let mut request = request("")?;
    request.ifr_ifru.ifru_flags = short(if used { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE });
    // SAFETY: TUNSETQUEUE reads a struct ifreq, which this is.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETQUEUE, &raw const request) })
}

impl Link for Tap {
    fn features(&self) -> u64 {
        let Offloads { checksums, streams, datagrams } = self.offloads;
        let offered = [
            (checksums, CHECKSUMS.as_slice()),
            (checksums && streams, STREAMS.as_slice()),
            (checksums && datagrams, DATAGRAMS.as_slice()),
        ];
        let bits = offered.into_iter().filter(|(offered, _)| *offered).flat_map(|(_, bits)| bits);
        bits.fold(0, |features, bit| features | 1 << bit)
    }

    fn accept(&mut self, features: u64) -> io::Result<()> {
        let tap = self.file.as_raw_fd();
        self.told.tell(tun_flags(features), |flags| set_offloads(tap, flags))
    }

    fn is_up(&self) -> bool {
        !self.state.is_off()
    }

    fn switch(&mut self) -> Option<Box<dyn Switch>> {
        self.place.take().map(|place| Box::new(place) as Box<dyn Switch>)
    }

    fn incoming(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn outgoing(&self) -> Option<RawFd> {
        Some(self.up.as_raw_fd())
    }

    /// One that is switched off takes frames, too, and loses them.
    fn has_room(&mut self) -> bool {
        if self.state.is_off() {
            self.state.look();
        }
        true
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.file.read(buffer);
        self.look_after(result)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let result = self.file.write(frame);
        self.look_after(result).map(drop)
    }

    fn sends_pieces(&self) -> bool {
        true
    }

    fn send_pieces(&mut self, frame: &Vectors) -> io::Result<()> {
        let result = frame.write(&self.file);
        self.look_after(result)
    }
}

/// Whether `tap` takes no frames. It does not say so by itself; but that it takes some again it says to who has asked, and only then.
fn is_off(tap: &File) -> bool {
    let mut asked = [PollFd::new(tap, PollFlags::OUT)];
    let _ = poll(&mut asked, Some(&Timespec::default()));
    asked.iter().all(|asked| !asked.revents().contains(PollFlags::OUT))
}

/// Tells the host what a guest takes: frames without checksum, and those of many segments.
fn set_offloads(tap: RawFd, flags: c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument as a number.
    check(unsafe { libc::ioctl(tap, libc::TUNSETOFFLOAD, c_ulong::from(flags)) })
}

/// What a guest with these virtio `features` takes, in the words of the host, which takes no flag without those that it builds on.
fn tun_flags(features: u64) -> c_uint {
    let has = |bit: u32| features & (1 << bit) != 0;
    let segments = [(VIRTIO_NET_F_GUEST_TSO4, libc::TUN_F_TSO4), (VIRTIO_NET_F_GUEST_TSO6, libc::TUN_F_TSO6)];
    let flags =
        |pairs: &[(u32, c_uint)]| pairs.iter().filter(|(bit, _)| has(*bit)).fold(0, |all, (_, flag)| all | flag);
    let streams = flags(&segments);
    let marked = if streams == 0 { 0 } else { flags(&[(VIRTIO_NET_F_GUEST_ECN, libc::TUN_F_TSO_ECN)]) };
    let datagrams = flags(&[(VIRTIO_NET_F_GUEST_UFO, libc::TUN_F_UFO)]);
    if has(VIRTIO_NET_F_GUEST_CSUM) { libc::TUN_F_CSUM | streams | marked | datagrams } else { 0 }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.len() >= NAME_SIZE || name.bytes().any(|byte| byte == 0) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "is longer than an interface's name"));
    }
    // SAFETY: a struct ifreq of zeros is one: an empty name, and numbers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.map(|letter| letter.to_ne_bytes()[0]);
    CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let internet = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default(),
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: both are plain numbers and of one size, and this is how the kernel reads an address of that family.
    unsafe { ptr::read((&raw const internet).cast()) }
}

/// One call about an interface, on a socket of the kind that such calls are made on.
fn interface(call: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: each of the calls above reads or writes a struct ifreq, which this is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), call, &raw mut *request) })
}

/// Flags of interfaces have 16 bits.
fn short(flags: c_int) -> c_short {
    let [low, high, ..] = flags.to_le_bytes();
    c_short::from_le_bytes([low, high])
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(offloads: Offloads) -> u64 {
        let (end, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
        Tap::pretended(std::os::fd::OwnedFd::from(end).into()).unwrap().offering(offloads).features()
    }

    #[test]
    fn a_guest_is_offered_what_its_owner_lets_it() {
        let bits = |bits: &[u32]| bits.iter().fold(0u64, |all, bit| all | 1 << bit);
        let all = Offloads::default();
        assert_eq!(offered(all), bits(&[0, 1, 7, 8, 9, 10, 11, 12, 13, 14]));
        assert_eq!(offered(Offloads { datagrams: false, ..all }), bits(&[0, 1, 7, 8, 9, 11, 12, 13]));
        assert_eq!(offered(Offloads { streams: false, ..all }), bits(&[0, 1, 10, 14]));
        assert_eq!(offered(Offloads { checksums: false, ..all }), 0);
    }

    #[test]
    fn the_host_is_told_what_goes_together() {
        let flags = |bits: &[u32]| tun_flags(bits.iter().fold(0, |all, bit| all | 1 << bit));
        assert_eq!(flags(&[0, 11, 12, 14]), 0, "what the guest takes, and its checksums are none of it");
        assert_eq!(flags(&[1]), libc::TUN_F_CSUM);
        assert_eq!(flags(&[1, 9]), libc::TUN_F_CSUM, "marks alone mean nothing");
        assert_eq!(flags(&[1, 7, 9]), libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO_ECN);
        assert_eq!(flags(&[1, 8, 10]), libc::TUN_F_CSUM | libc::TUN_F_TSO6 | libc::TUN_F_UFO);
    }
}
