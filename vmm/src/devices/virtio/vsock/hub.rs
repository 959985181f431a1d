// SPDX-License-Identifier: Apache-2.0
//! All connections, and the host's side of them: the protocol that Firecracker and Cloud Hypervisor have for it.
//!
//! A program of the host connects to the socket, says `CONNECT PORT` and a line feed, and reads `OK PORT` with the port that it has
//! got. A program of the guest that connects to port N of the host (context id 2) is connected to the socket whose path ends in `_N`
//! besides.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::connection::{Came, Connection, Watched};
use super::packet::{Credit, Header, Op, Ports, STREAM};
use crate::complaints::Complaints;

/// Most connections at a time: a process has 1024 descriptors, unless it is given more.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// Most answers to packets that no connection knows: a guest that asks for more of them than it reads misses some.
const REFUSALS_MAX: usize = 256;
/// Most programs of the host that have not said yet what they want; the one that has kept silent longest goes for another.
pub(super) const CALLERS_MAX: usize = 64;
/// Longest line that one can say: `CONNECT 4294967295`, and some space.
const LINE_MAX: usize = 32;
/// Looks at what the host does before the guest's queues have their turn again.
const LOOKS_MAX: usize = 32;
/// When it is tried again to take a connection that there was no descriptor for.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Ports of the host's programs begin here.
const FIRST_PORT: u32 = 1 << 30;
const EVENTS: usize = 16;
/// Bytes that are read from a program at once.
const BUFFER_SIZE: usize = 64 << 10;

/// Connections, and what there is for the guest.
#[derive(Debug)]
pub(super) struct Hub {
    cid: u64,
    listener: UnixListener,
    path: PathBuf,
    /// Readable when a program of the host, or this, has something for the guest.
    incoming: Epoll,
    /// Readable when a program has room for what waits.
    outgoing: Epoll,
    /// Part of what comes in.
    wake: EventFd,
    connections: HashMap<Ports, Connection>,
    callers: HashMap<RawFd, Caller>,
    /// How many there have been.
    called: u64,
    /// By socket, whose connection it is.
    owners: HashMap<RawFd, Ports>,
    /// Connections that have something to say, each once; what one has to say may be said by another packet.
    talking: VecDeque<Ports>,
    /// Connections from whose programs something has come; some are over.
    readable: VecDeque<Ports>,
    refusals: VecDeque<Ports>,
    staged: Option<Staged>,
    buffer: Box<[u8]>,
    next_port: u32,
    /// Since when there has been no descriptor for whoever comes.
    full: Option<Instant>,
    complaints: Complaints,
}

/// A program of the host that has not said yet what it wants.
#[derive(Debug)]
struct Caller {
    stream: std::fs::File,
    number: u64,
    line: Vec<u8>,
}

/// Bytes on their way to the guest.
#[derive(Debug)]
struct Staged {
    ports: Ports,
    start: usize,
    end: usize,
}

/// A packet for the guest: its header, and its bytes in the hub's buffer.
pub(super) type Packet<'a> = (Header, &'a [u8]);

impl Hub {
    /// One for the guest `cid`, with the socket that `listener` listens at, `path`.
    pub(super) fn new(cid: u64, listener: UnixListener, path: PathBuf) -> io::Result<Self> {
        let (incoming, outgoing) = (Epoll::new()?, Epoll::new()?);
        let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        for fd in [listener.as_raw_fd(), wake.as_raw_fd()] {
            watch(&incoming, fd, EventSet::IN)?;
        }
        Ok(Self {
            cid,
            listener,
            path,
            incoming,
            outgoing,
            wake,
            connections: HashMap::new(),
            callers: HashMap::new(),
            called: 0,
            owners: HashMap::new(),
            talking: VecDeque::new(),
            readable: VecDeque::new(),
            refusals: VecDeque::new(),
            staged: None,
            buffer: vec![0; BUFFER_SIZE].into(),
            next_port: FIRST_PORT,
            full: None,
            complaints: Complaints::default(),
        })
    }

    /// What becomes readable when there may be something for the guest.
    pub(super) fn incoming(&self) -> RawFd {
        self.incoming.as_raw_fd()
    }

    /// What becomes readable when [`flush`](Self::flush) has something to do.
    pub(super) fn outgoing(&self) -> RawFd {
        self.outgoing.as_raw_fd()
    }

    /// Whether whoever comes has to wait.
    pub(super) const fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Has whoever comes wait until a descriptor is closed here, or for [`RETRY`] from `now` on: somebody else may close one.
    pub(super) fn wait_for_room(&mut self, now: Instant) {
        self.full = Some(now);
        // It would be heard again and again.
        unwatch(&self.incoming, self.listener.as_raw_fd());
    }

    /// Listens again once that is over.
    pub(super) fn look_for_room(&mut self, now: Instant) {
        if self.full.is_some_and(|since| now.saturating_duration_since(since) >= RETRY) {
            self.make_room();
        }
    }

    /// How many connections have something to say.
    #[cfg(test)]
    pub(super) fn backlog(&self) -> usize {
        self.talking.len()
    }

    /// Ports are others from here on than those of connections that the guest knows from before it was saved.
    pub(super) fn begin_elsewhere(&mut self) {
        let mut bytes = [0; 4];
        // Without any, a connection may meet one of those.
        if getrandom(&mut bytes, GetRandomFlags::NONBLOCK) == Ok(bytes.len()) {
            self.next_port = FIRST_PORT + u32::from_ne_bytes(bytes) % (u32::MAX - FIRST_PORT);
        }
    }

    /// Forgets all connections: the guest has.
    pub(super) fn reset(&mut self) {
        self.connections.clear();
        self.owners.clear();
        self.talking.clear();
        self.readable.clear();
        self.refusals.clear();
        self.staged = None;
        self.make_room();
    }

    // ---- To the guest -------------------------------------------------------------------------------------------

    /// Whether there is a packet for the guest.
    pub(super) fn has_packet(&mut self) -> bool {
        if self.staged.is_some() || !self.refusals.is_empty() {
            return true;
        }
        while let Some(ports) = self.talking.front() {
            if self.connections.get(ports).is_some_and(Connection::owes) {
                return true;
            }
            self.talking.pop_front();
        }
        self.stage()
    }

    /// The next packet, with at most `room` bytes behind its header. There is one if [`has_packet`](Self::has_packet) has said so.
    pub(super) fn packet(&mut self, room: usize) -> Option<Packet<'_>> {
        if let Some(ports) = self.refusals.pop_front() {
            return Some((Header::to_guest(self.cid, ports, Op::Reset, Credit::default()), &[]));
        }
        // What was read before goes before what is said of it, such as its end.
        if let Some(Staged { ports, start, end }) = self.staged.take() {
            return self.data(ports, start, end, room);
        }
        let ports = self.talking.pop_front()?;
        let connection = self.connections.get_mut(&ports)?;
        let (op, flags) = connection.pay()?;
        let header = Header { flags, ..Header::to_guest(self.cid, ports, op, connection.credit()) };
        if op == Op::Reset {
            self.remove(ports);
        } else if connection.owes() {
            self.talking.push_back(ports);
        }
        Some((header, &[]))
    }

    fn data(&mut self, ports: Ports, start: usize, end: usize, room: usize) -> Option<Packet<'_>> {
        let cut = end.min(start + room);
        if cut < end {
            self.staged = Some(Staged { ports, start: cut, end });
        }
        let credit = self.connections.get_mut(&ports)?.credit();
        let length = u32::try_from(cut - start).ok()?;
        let header = Header { length, ..Header::to_guest(self.cid, ports, Op::Data, credit) };
        Some((header, self.buffer.get(start..cut)?))
    }

    /// Reads something for the guest, if there is anything.
    fn stage(&mut self) -> bool {
        for _ in 0..LOOKS_MAX {
            while let Some(ports) = self.readable.pop_front() {
                let Some(connection) = self.connections.get_mut(&ports) else { continue };
                if !connection.takes_from_host() {
                    continue;
                }
                let came = connection.read(&mut self.buffer);
                self.settle(ports);
                match came {
                    Came::Bytes(end) => {
                        self.staged = Some(Staged { ports, start: 0, end });
                        return true;
                    }
                    Came::End => return true,
                    Came::Nothing => {}
                }
            }
            let seen = self.look();
            if !self.talking.is_empty() {
                return true;
            }
            if !seen {
                return false;
            }
        }
        // Programs that come and go could keep it here.
        let _ = self.wake.write(1);
        false
    }

    /// Sees what has come from the host. False if nothing has.
    fn look(&mut self) -> bool {
        let mut events = [EpollEvent::default(); EVENTS];
        let count = self.incoming.wait(0, &mut events).unwrap_or(0);
        for event in events.iter().take(count) {
            let fd = event.fd();
            if fd == self.wake.as_raw_fd() {
                // Non-blocking: what there is to say is known.
                let _ = self.wake.read();
            } else if fd == self.listener.as_raw_fd() {
                self.accept();
            } else if self.callers.contains_key(&fd) {
                self.listen_to(fd);
            } else if let Some(ports) = self.owners.get(&fd) {
                let ports = *ports;
                if event.event_set().contains(EventSet::HANG_UP)
                    && let Some(connection) = self.connections.get_mut(&ports)
                {
                    connection.hang_up();
                    self.settle(ports);
                }
                self.readable.push_back(ports);
            }
        }
        count > 0
    }

    fn accept(&mut self) {
        match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            // Whoever comes then is turned away at once.
            Ok(stream) if self.connections.len() < CONNECTIONS_MAX => {
                let fd = stream.as_raw_fd();
                if self.callers.len() >= CALLERS_MAX {
                    let first = self.callers.iter().min_by_key(|(_, caller)| caller.number).map(|(fd, _)| *fd);
                    // Closing it unwatches it.
                    first.and_then(|fd| self.callers.remove(&fd));
                }
                if watch(&self.incoming, fd, EventSet::IN).is_ok() {
                    self.called += 1;
                    self.callers.insert(fd, Caller { stream: stream.into(), number: self.called, line: Vec::new() });
                }
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                if let Some(count) = self.complaints.count() {
                    tracing::warn!(%error, count, "vsock: no connection can be taken for now");
                }
                self.wait_for_room(Instant::now());
            }
        }
    }

    /// Takes what the caller at `fd` says, as far as its line goes.
    fn listen_to(&mut self, fd: RawFd) {
        let Some(caller) = self.callers.get_mut(&fd) else { return };
        let port = loop {
            // By bytes: what comes behind the line is for the guest.
            let mut byte = [0];
            match caller.stream.read(&mut byte) {
                Ok(1) if byte == *b"\n" => break wanted(&caller.line),
                Ok(1) if caller.line.len() < LINE_MAX => caller.line.extend(byte),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break None,
            }
        };
        let Some(caller) = self.callers.remove(&fd) else { return };
        unwatch(&self.incoming, fd);
        // There may be more connections than when it was accepted.
        let port = port.filter(|_| self.connections.len() < CONNECTIONS_MAX);
        let Some(guest) = port else { return self.make_room() };
        let ports = Ports { host: self.free_port(guest), guest };
        self.insert(ports, Connection::to_guest(caller.stream.into()));
    }

    /// A port of the host that no connection to port `guest` has: there are fewer connections than ports.
    fn free_port(&mut self, guest: u32) -> u32 {
        loop {
            let host = self.next_port;
            self.next_port = host.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.connections.contains_key(&Ports { host, guest }) {
                return host;
            }
        }
    }

    // ---- From the guest -----------------------------------------------------------------------------------------

    /// Takes a packet from the guest. False if it was none that makes sense.
    pub(super) fn take(&mut self, header: &Header, data: &[u8]) -> bool {
        let ports = header.ports();
        let known = header.kind == STREAM && header.op.is_some();
        self.make_room();
        let asks = known && header.op == Some(Op::Request);
        match self.connections.get_mut(&ports) {
            // What the guest knows by these ports now is another one.
            Some(connection) if asks && (connection.is_gone() || connection.is_dead()) => {
                connection.flush();
                self.remove(ports);
            }
            Some(connection) if connection.is_gone() => return known,
            _ => {}
        }
        match self.connections.get_mut(&ports) {
            Some(connection) if header.op == Some(Op::Reset) => {
                connection.forget();
                self.staged.take_if(|staged| staged.ports == ports);
                self.settle(ports);
            }
            Some(connection) => {
                if known {
                    connection.take(header, data);
                } else {
                    connection.owe(Op::Reset);
                }
                self.settle(ports);
            }
            None if asks => self.connect(ports, header.credit),
            None if header.op == Some(Op::Reset) => {}
            None => self.refuse(ports),
        }
        self.wake_if_talking();
        known
    }

    /// The guest wants to connect to a program of the host.
    fn connect(&mut self, ports: Ports, credit: Credit) {
        let stream =
            if self.connections.len() < CONNECTIONS_MAX { dial(&self.path, ports.host) } else { Err(Errno::MFILE) };
        match stream {
            Ok(stream) => self.insert(ports, Connection::from_guest(stream, credit)),
            Err(error) => {
                tracing::debug!(port = ports.host, %error, "vsock: nobody takes the guest's connection");
                self.refuse(ports);
            }
        }
    }

    fn refuse(&mut self, ports: Ports) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push_back(ports);
        }
    }

    /// Passes on what programs of the host have room for by now.
    pub(super) fn flush(&mut self) {
        self.make_room();
        let mut events = [EpollEvent::default(); EVENTS];
        loop {
            let count = self.outgoing.wait(0, &mut events).unwrap_or(0);
            for event in events.iter().take(count) {
                let Some(&ports) = self.owners.get(&event.fd()) else { continue };
                if let Some(connection) = self.connections.get_mut(&ports) {
                    connection.flush();
                }
                self.settle(ports);
            }
            self.wake_if_talking();
            if count < EVENTS {
                return;
            }
        }
    }

    fn wake_if_talking(&self) {
        if !(self.talking.is_empty() && self.refusals.is_empty()) {
            // A full counter wakes as well.
            let _ = self.wake.write(1);
        }
    }

    // ---- All connections ----------------------------------------------------------------------------------------

    fn insert(&mut self, ports: Ports, connection: Connection) {
        self.owners.insert(connection.descriptor(), ports);
        self.connections.insert(ports, connection);
        self.settle(ports);
    }

    /// Watches the connection's socket for what can be done next, and has it say what it has to say.
    fn settle(&mut self, ports: Ports) {
        let Some(connection) = self.connections.get_mut(&ports) else { return };
        if connection.is_gone() && !connection.waits_for_host() {
            return self.remove(ports);
        }
        let (fd, wanted) = (connection.descriptor(), connection.watch());
        let Watched { incoming, outgoing } = &mut connection.watched;
        let changed = change(&self.incoming, fd, incoming, wanted.incoming)
            .and_then(|()| change(&self.outgoing, fd, outgoing, wanted.outgoing));
        if changed.is_err() {
            connection.owe(Op::Reset);
        }
        if connection.owes() && !self.talking.contains(&ports) {
            self.talking.push_back(ports);
        }
    }

    fn remove(&mut self, ports: Ports) {
        if let Some(connection) = self.connections.remove(&ports) {
            self.owners.remove(&connection.descriptor());
        }
        self.talking.retain(|talking| *talking != ports);
        // Its bytes go to nobody.
        self.staged.take_if(|staged| staged.ports == ports);
        self.make_room();
    }

    /// A descriptor may have been closed, by this or by others.
    fn make_room(&mut self) {
        if self.full.is_some() && watch(&self.incoming, self.listener.as_raw_fd(), EventSet::IN).is_ok() {
            self.full = None;
        }
    }
}

/// The port that a caller wants, if its line says one.
fn wanted(line: &[u8]) -> Option<u32> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (verb, port, end) = (words.next()?, words.next()?, words.next());
    let digits =
        end.is_none() && verb.eq_ignore_ascii_case("CONNECT") && port.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| port.parse().ok())?
}

/// Connects to the program of the host that has `port`, without waiting for it.
fn dial(path: &Path, port: u32) -> Result<OwnedFd, Errno> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("_{port}"));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&stream, &SocketAddrUnix::new(Path::new(&name))?)?;
    Ok(stream)
}

/// Watches `fd`, which is not watched yet, for `events`.
fn watch(epoll: &Epoll, fd: RawFd, events: EventSet) -> io::Result<()> {
    change(epoll, fd, &mut None, Some(events))
}

/// Watches it no more.
fn unwatch(epoll: &Epoll, fd: RawFd) {
    // It may not be watched.
    let _ = epoll.ctl(ControlOperation::Delete, fd, EpollEvent::default());
}

/// Watches `fd` for what is `wanted`, and not for what it `has` been watched for.
fn change(epoll: &Epoll, fd: RawFd, has: &mut Option<EventSet>, wanted: Option<EventSet>) -> io::Result<()> {
    let how = match (*has, wanted) {
        (before, after) if before == after => return Ok(()),
        (None, _) => ControlOperation::Add,
        (_, Some(_)) => ControlOperation::Modify,
        (_, None) => ControlOperation::Delete,
    };
    // A descriptor is never negative.
    let data = u64::try_from(fd).unwrap_or(u64::MAX);
    epoll.ctl(how, fd, EpollEvent::new(wanted.unwrap_or(EventSet::empty()), data))?;
    *has = wanted;
    Ok(())
}
