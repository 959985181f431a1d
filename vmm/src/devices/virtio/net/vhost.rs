// SPDX-License-Identifier: Apache-2.0
//! A network interface over a tap whose frames the host's kernel moves (vhost-net): no thread of this process wakes up for one.
//!
//! The driver rings the kernel's doorbell and is interrupted by it; its worker here only hands queues over and takes them back. The
//! kernel finds out by itself, in the used ring, where a queue is that it is given again. It serves each pair of queues for itself,
//! with a thread of its own; the control queue is a lane of the device, served here.

#![expect(
    unsafe_code,
    reason = "the only wrapper of VHOST_NET_SET_BACKEND has no way to take a descriptor that is open"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard};

use vhost::vhost_kern::VhostKernBackend;
use vhost::vhost_kern::vhost_binding::{VHOST_NET_SET_BACKEND, vhost_vring_file};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::ioctl::ioctl_with_ref;

use super::control;
use super::interface::{Interface, RENEWED};
use super::link::Link;
use super::pairs::{Pairs, Switch};
use super::tap::Tap;
use crate::bits::low16;
use crate::devices::bus::lock;
use crate::devices::virtio::outside::{Outside, Ring};
use crate::devices::virtio::{ConfigSpace, Lane, Ready, Request, Source, VirtioDevice};
use crate::memory::GuestMemory;
use crate::sandbox::Kind;
use crate::state::LaneState;

const DEVICE: &str = "/dev/vhost-net";
/// What of a driver's features the kernel has to know, and every kernel does: all that is about queues, not about frames.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | 1 << VIRTIO_NET_F_MRG_RXBUF;
/// Queues of a pair.
const QUEUES: usize = 2;

/// The kernel's end of one pair of queues, which knows of no guest yet.
#[derive(Debug)]
pub struct Opened(File);

impl Opened {
    /// Opens one, if this process can have it. Who only wants to know that keeps it nevertheless: the kernel waits for an RCU grace
    /// period when one is closed, which takes as long as much of a boot.
    pub fn new() -> io::Result<Self> {
        File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE).map(Self)
    }
}

/// What the kernel has of one pair of queues. Closing it, the kernel leaves guest memory alone; that goes behind it.
struct Kernel {
    file: File,
    memory: Arc<GuestMemory>,
}

impl Kernel {
    /// Gives queue `queue` to the kernel, which moves its frames from or to `tap`, or takes it back.
    fn set_backend(&self, queue: usize, tap: Option<&File>) -> Result<(), vhost::Error> {
        let index = u32::try_from(queue).map_err(|_| vhost::Error::InvalidQueue)?;
        let backend = vhost_vring_file { index, fd: tap.map_or(-1, AsRawFd::as_raw_fd) };
        // SAFETY: VHOST_NET_SET_BACKEND reads a struct vhost_vring_file, which this is.
        let result = unsafe { ioctl_with_ref(&self.file, VHOST_NET_SET_BACKEND(), &backend) };
        if result < 0 { Err(vhost::Error::IoctlError(io::Error::last_os_error())) } else { Ok(()) }
    }
}

impl AsRawFd for Kernel {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl VhostKernBackend for Kernel {
    type AS = Arc<GuestMemory>;

    fn mem(&self) -> &Self::AS {
        &self.memory
    }

    /// Whoever hands over a [`Ring`] has seen to that, to the last byte of memory.
    fn is_valid(&self, _: &VringConfigData) -> bool {
        true
    }
}

/// A pair of queues.
struct Pair {
    kernel: Kernel,
    tap: Tap,
    /// The tap's place among its queues, if it has several.
    place: Option<Box<dyn Switch>>,
    /// By queue, what the kernel signals when it cannot go on with it,
    faults: [EventFd; QUEUES],
    /// and whether the driver has given it.
    taken: [bool; QUEUES],
    /// The driver uses the pair,
    used: bool,
    /// and the VM does not pause. Only then the kernel has what is taken.
    runs: bool,
    /// The kernel has kept a queue that was to come back as the VM paused.
    stuck: bool,
}

/// A pair, as whoever hears how many are used has it.
struct Shared(Arc<Mutex<Pair>>);

/// Such an interface.
pub struct Vhost {
    pairs: Vec<Arc<Mutex<Pair>>>,
    /// How many of them the driver uses.
    number: Arc<Pairs>,
    interface: Interface,
    space: ConfigSpace,
    queue_sizes: Vec<u16>,
    /// For messages.
    name: String,
    /// What the tap can do.
    offloads: u64,
    /// What the driver has accepted of what the kernel has to know,
    accepted: u64,
    /// and how many queues of frames it has by that.
    queues: usize,
}

impl std::fmt::Debug for Vhost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vhost").field("name", &self.name).field("number", &self.number).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Switch for Shared {
    fn switch(&mut self, used: bool) -> io::Result<()> {
        lock(&self.0).set_used(used)
    }
}

fn host(error: vhost::Error) -> io::Error {
    match error {
        vhost::Error::VhostOpen(error) | vhost::Error::IoctlError(error) => error,
        other => io::Error::other(other),
    }
}

impl Pair {
    /// Frames between a guest that has `memory` and `tap`, moved by what is `opened`.
    fn new(Opened(file): Opened, mut tap: Tap, memory: &GuestMemory) -> io::Result<Self> {
        let kernel = Kernel { file, memory: Arc::new(memory.clone()) };
        kernel.set_owner().map_err(host)?;
        if kernel.get_features().map_err(host)? & FEATURES != FEATURES {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this host's kernel does not know every feature"));
        }
        let regions = memory.iter().map(|region| VhostUserMemoryRegionInfo {
            guest_phys_addr: region.start_addr().raw_value(),
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: -1,
        });
        kernel.set_mem_table(&regions.collect::<Vec<_>>()).map_err(host)?;
        let fault = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        let (place, faults) = (tap.switch(), [fault()?, fault()?]);
        Ok(Self { kernel, tap, place, faults, taken: [false; QUEUES], used: true, runs: true, stuck: false })
    }

    fn connect(&self, doorbells: &[EventFd], interrupt: &EventFd) -> Result<(), vhost::Error> {
        for (queue, (doorbell, fault)) in doorbells.iter().zip(&self.faults).enumerate() {
            self.kernel.set_vring_kick(queue, doorbell)?;
            self.kernel.set_vring_call(queue, interrupt)?;
            self.kernel.set_vring_err(queue, fault)?;
        }
        Ok(())
    }

    /// Tells the kernel where queue `queue` is.
    fn prepare(&self, queue: usize, ring: &Ring) -> Result<(), vhost::Error> {
        let &Ring { size, descriptors, available, used, next, .. } = ring;
        self.kernel.set_vring_num(queue, size)?;
        self.kernel.set_vring_base(queue, next)?;
        let config = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: descriptors,
            used_ring_addr: used,
            avail_ring_addr: available,
            log_addr: None,
        };
        self.kernel.set_vring_addr(queue, &config)
    }

    fn attach(&self, queue: usize) -> Result<(), vhost::Error> {
        self.kernel.set_backend(queue, Some(self.tap.file()))
    }

    /// The kernel waits for its thread before it says that this is done. Whether it is.
    fn detach(&self, queue: usize) -> bool {
        let done = self.kernel.set_backend(queue, None).inspect_err(|error| {
            tracing::error!(%error, queue, "vhost-net does not give a queue back");
        });
        done.is_ok()
    }

    /// The queues that are taken.
    fn taken(&self) -> impl Iterator<Item = usize> + use<> {
        self.taken.into_iter().enumerate().filter(|(_, taken)| *taken).map(|(queue, _)| queue)
    }

    /// All of them are the kernel's, or none is.
    fn attach_all(&self) -> Result<(), vhost::Error> {
        self.taken().try_for_each(|queue| self.attach(queue)).inspect_err(|_| _ = self.detach_all())
    }

    /// Whether none is the kernel's any more.
    fn detach_all(&self) -> bool {
        self.taken().filter(|queue| !self.detach(*queue)).count() == 0
    }

    /// Queue `queue` is the kernel's, as long as the pair is used and the VM runs.
    fn take(&mut self, queue: usize) -> Result<(), vhost::Error> {
        if self.used && self.runs {
            self.attach(queue)?;
        }
        self.taken.iter_mut().skip(queue).take(1).for_each(|taken| *taken = true);
        Ok(())
    }

    fn give_back(&mut self, queue: usize) {
        if let Some(taken) = self.taken.get_mut(queue)
            && std::mem::take(taken)
        {
            self.detach(queue);
        }
    }

    /// The driver uses the pair from now on, or not. While the kernel has its queues, the tap has frames for it.
    fn set_used(&mut self, used: bool) -> io::Result<()> {
        if used == self.used {
            return Ok(());
        }
        let place = |pair: &mut Self, used| pair.place.as_mut().map_or(Ok(()), |place| place.switch(used));
        if used {
            place(self, true)?;
            if self.runs
                && let Err(error) = self.attach_all()
            {
                let _ = place(self, false);
                return Err(host(error));
            }
        } else {
            self.detach_all();
            if let Err(error) = place(self, false) {
                if self.runs {
                    self.attach_all().map_err(host)?;
                }
                return Err(error);
            }
        }
        self.used = used;
        Ok(())
    }

    fn pause(&mut self) {
        self.runs = false;
        self.stuck = !self.detach_all();
    }

    fn resume(&mut self) {
        self.runs = true;
        if self.used
            && let Err(error) = self.attach_all()
        {
            tracing::warn!(%error, "vhost-net does not go on");
            // Heard like any other one.
            self.faults.iter().for_each(|fault| drop(fault.write(1)));
        }
    }

    /// By queue, where the kernel goes on; nothing if it has one of them still, or does not say so.
    fn bases(&self) -> Option<[u16; QUEUES]> {
        let base = |queue| {
            let base = self.kernel.get_vring_base(queue).inspect_err(|error| {
                tracing::warn!(%error, queue, "vhost-net does not say how far it is");
            });
            // A place in a ring has 16 bits.
            base.ok().map(|base| low16(base.into()))
        };
        if self.stuck { None } else { Some([base(0)?, base(1)?]) }
    }

    fn drop_faults(&self) -> bool {
        // All of them.
        self.faults.iter().filter(|fault| fault.read().is_ok()).count() > 0
    }
}

impl Vhost {
    /// An interface of a guest that has `memory`, whose other end is a tap: the queue of it that `first` has; with one more pair
    /// of queues for each of `others`, which are queues of that tap, too. What is opened moves the frames of its own.
    pub fn new(
        first: (Opened, Tap),
        others: Vec<(Opened, Tap)>,
        interface: Interface,
        memory: &GuestMemory,
    ) -> io::Result<Self> {
        let (name, offloads) = (first.1.name().to_owned(), first.1.features());
        let pair = |(opened, tap)| Pair::new(opened, tap, memory).map(|pair| Arc::new(Mutex::new(pair)));
        let pairs = std::iter::once(first).chain(others).map(pair).collect::<io::Result<Vec<_>>>()?;
        let switch = |pair: &Arc<Mutex<Pair>>| Some(Box::new(Shared(Arc::clone(pair))) as Box<dyn Switch>);
        let number = Arc::new(Pairs::new(pairs.iter().skip(1).map(switch).collect()));
        Ok(Self {
            space: interface.config(number.most(), true).into(),
            queue_sizes: interface.queue_sizes(number.most()),
            pairs,
            number,
            interface,
            name,
            offloads,
            accepted: 0,
            queues: 0,
        })
    }

    /// The pair that queue `queue` is of, and which of the two it is.
    fn place(&self, queue: usize) -> Option<(MutexGuard<'_, Pair>, usize)> {
        Some((lock(self.pairs.get(queue / QUEUES)?), queue % QUEUES))
    }

    fn hand_over(&self, rings: &[Ring]) -> Result<(), vhost::Error> {
        for pair in &self.pairs {
            lock(pair).kernel.set_features(self.accepted)?;
        }
        for ring in rings {
            let Some((pair, queue)) = self.place(ring.queue) else { continue };
            pair.prepare(queue, ring)?;
        }
        for ring in rings {
            let Some((mut pair, queue)) = self.place(ring.queue) else { continue };
            pair.take(queue)?;
        }
        Ok(())
    }
}

impl VirtioDevice for Vhost {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_NET
    }

    fn features(&self) -> u64 {
        self.interface.features(self.number.most()) | self.offloads
    }

    fn config(&self) -> ConfigSpace {
        self.space.clone()
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn lanes(&mut self) -> Vec<Lane> {
        let control = || control::Lane::new(Arc::clone(&self.number), self.space.clone());
        let several = self.number.most() > 1;
        several.then(|| Lane { queues: 1, device: Box::new(control()) }).into_iter().collect()
    }

    fn thread(&self) -> Kind {
        Kind::Vhost
    }

    fn outside(&mut self) -> Option<&mut dyn Outside> {
        Some(self)
    }

    fn activate(&mut self, features: u64) {
        self.accepted = features & FEATURES;
        // What a driver that knows of one pair has behind it is no queue of frames.
        let several = features & (1 << VIRTIO_NET_F_MQ) != 0;
        self.queues = if several { QUEUES * self.pairs.len() } else { QUEUES };
        self.number.follow(|| self.space.driver());
        if let Some(Err(error)) = self.pairs.first().map(|pair| lock(pair).tap.accept(features)) {
            tracing::info!(%error, name = self.name, "no offloads");
        }
    }

    fn sources(&self) -> Vec<Source> {
        let faults = |pair: &Arc<Mutex<Pair>>| lock(pair).faults.each_ref().map(AsRawFd::as_raw_fd);
        self.pairs.iter().flat_map(faults).map(|fault| Source::readable(fault, 0)).collect()
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        Ready::WhenWoken
    }

    /// No request ever comes here.
    fn handle(&mut self, _queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        0
    }

    fn reset(&mut self) {
        self.has_failed();
    }

    fn pause(&mut self) {
        self.pairs.iter().for_each(|pair| lock(pair).pause());
    }

    fn resume(&mut self) {
        self.pairs.iter().for_each(|pair| lock(pair).resume());
    }

    fn save(&mut self) -> Option<LaneState> {
        let bases: Option<Vec<_>> = self.pairs.iter().map(|pair| lock(pair).bases()).collect();
        Some(LaneState::Vhost { available: bases?.into_flattened() })
    }

    fn renewed(&self) -> Range<usize> {
        RENEWED
    }
}

impl Outside for Vhost {
    fn connect(&mut self, doorbells: &[EventFd], interrupt: &EventFd) -> io::Result<()> {
        let mut pairs = self.pairs.iter().zip(doorbells.chunks(QUEUES));
        pairs.try_for_each(|(pair, doorbells)| lock(pair).connect(doorbells, interrupt)).map_err(host)
    }

    fn take(&mut self, rings: &[Ring]) -> io::Result<()> {
        let rings: Vec<_> = rings.iter().copied().filter(|ring| ring.queue < self.queues).collect();
        self.hand_over(&rings).map_err(|error| {
            for ring in &rings {
                self.give_back(ring.queue);
            }
            host(error)
        })
    }

    fn give_back(&mut self, queue: usize) {
        if let Some((mut pair, queue)) = self.place(queue) {
            pair.give_back(queue);
        }
    }

    fn has_failed(&mut self) -> bool {
        // All of them.
        self.pairs.iter().filter(|pair| lock(pair).drop_faults()).count() > 0
    }
}
