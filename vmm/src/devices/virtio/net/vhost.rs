// SPDX-License-Identifier: Apache-2.0
//! A network interface over a tap whose frames the host's kernel moves (vhost-net): no thread of this process wakes up for one.
//!
//! The driver rings the kernel's doorbell and is interrupted by it; its worker here only hands queues over and takes them back. The
//! kernel finds out by itself, in the used ring, where a queue is that it is given again.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use vhost::net::VhostNet as _;
use vhost::vhost_kern::VhostKernBackend;
use vhost::vhost_kern::net::Net as Opened;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::interface::Interface;
use super::link::Link;
use super::tap::Tap;
use crate::devices::virtio::outside::{Outside, Ring};
use crate::devices::virtio::{ConfigSpace, Ready, Request, Source, VirtioDevice};
use crate::memory::GuestMemory;
use crate::sandbox::Kind;

const DEVICE: &str = "/dev/vhost-net";
/// What of a driver's features the kernel has to know, and every kernel does: all that is about queues, not about frames.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | 1 << VIRTIO_NET_F_MRG_RXBUF;
const QUEUES: usize = 2;

/// Whether this process can have it.
pub fn probe() -> io::Result<()> {
    File::options().read(true).write(true).open(DEVICE).map(drop)
}

/// What the kernel has of one interface. Closing it, the kernel leaves guest memory alone; that goes behind it.
struct Kernel(Opened<Arc<GuestMemory>>);

impl AsRawFd for Kernel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl VhostKernBackend for Kernel {
    type AS = Arc<GuestMemory>;

    fn mem(&self) -> &Self::AS {
        self.0.mem()
    }

    /// Whoever hands over a [`Ring`] has seen to that, to the last byte of memory.
    fn is_valid(&self, _: &VringConfigData) -> bool {
        true
    }
}

/// Such an interface.
pub struct Vhost {
    kernel: Kernel,
    tap: Tap,
    interface: Interface,
    queue_sizes: [u16; QUEUES],
    /// By queue, what the kernel signals when it cannot go on with it,
    faults: [EventFd; QUEUES],
    /// and whether it has it.
    taken: [bool; QUEUES],
    accepted: u64,
}

impl std::fmt::Debug for Vhost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vhost").field("tap", &self.tap).field("taken", &self.taken).finish_non_exhaustive()
    }
}

fn host(error: vhost::Error) -> io::Error {
    match error {
        vhost::Error::VhostOpen(error) | vhost::Error::IoctlError(error) => error,
        other => io::Error::other(other),
    }
}

impl Vhost {
    /// An interface whose other end is `tap`, of a guest that has `memory`.
    pub fn new(tap: Tap, interface: Interface, memory: &GuestMemory) -> io::Result<Self> {
        let kernel = Kernel(Opened::new(Arc::new(memory.clone())).map_err(host)?);
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
        let queue_sizes = [interface.queue_size; QUEUES];
        let faults = [fault()?, fault()?];
        Ok(Self { kernel, tap, interface, queue_sizes, faults, taken: [false; QUEUES], accepted: 0 })
    }

    fn prepare(&self, ring: &Ring) -> Result<(), vhost::Error> {
        let &Ring { queue, size, descriptors, available, used } = ring;
        self.kernel.set_vring_num(queue, size)?;
        self.kernel.set_vring_base(queue, 0)?;
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
        self.kernel.0.set_backend(queue, Some(self.tap.file()))
    }

    /// The kernel waits for its thread before it says that this is done.
    fn detach(&self, queue: usize) {
        if let Err(error) = self.kernel.0.set_backend(queue, None) {
            tracing::error!(%error, queue, "vhost-net does not give a queue back");
        }
    }

    /// The queues that the kernel has.
    fn taken(&self) -> impl Iterator<Item = usize> + use<> {
        self.taken.into_iter().enumerate().filter(|(_, taken)| *taken).map(|(queue, _)| queue)
    }

    fn drop_faults(&self) -> bool {
        // All of them.
        self.faults.iter().filter(|fault| fault.read().is_ok()).count() > 0
    }
}

impl VirtioDevice for Vhost {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_NET
    }

    fn features(&self) -> u64 {
        self.interface.features() | self.tap.features()
    }

    fn config(&self) -> ConfigSpace {
        self.interface.config(true).into()
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn thread(&self) -> Kind {
        Kind::Vhost
    }

    fn outside(&mut self) -> Option<&mut dyn Outside> {
        Some(self)
    }

    fn activate(&mut self, features: u64) {
        self.accepted = features & FEATURES;
        if let Err(error) = self.tap.accept(features) {
            tracing::info!(%error, name = self.tap.name(), "no offloads");
        }
    }

    fn sources(&self) -> Vec<Source> {
        self.faults.iter().map(|fault| Source::readable(fault.as_raw_fd(), 0)).collect()
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        Ready::WhenWoken
    }

    /// No request ever comes here.
    fn handle(&mut self, _queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        0
    }

    fn reset(&mut self) {
        self.drop_faults();
    }

    fn pause(&mut self) {
        self.taken().for_each(|queue| self.detach(queue));
    }

    fn resume(&mut self) {
        for queue in self.taken() {
            if let Err(error) = self.attach(queue) {
                tracing::warn!(%error, queue, "vhost-net does not go on");
                // Heard like any other one.
                self.faults.iter().for_each(|fault| drop(fault.write(1)));
            }
        }
    }
}

impl Outside for Vhost {
    fn connect(&mut self, doorbells: &[EventFd], interrupt: &EventFd) -> io::Result<()> {
        for (queue, (doorbell, fault)) in doorbells.iter().zip(&self.faults).enumerate() {
            self.kernel.set_vring_kick(queue, doorbell).map_err(host)?;
            self.kernel.set_vring_call(queue, interrupt).map_err(host)?;
            self.kernel.set_vring_err(queue, fault).map_err(host)?;
        }
        Ok(())
    }

    fn take(&mut self, rings: &[Ring]) -> io::Result<()> {
        self.kernel.set_features(self.accepted).map_err(host)?;
        rings.iter().try_for_each(|ring| self.prepare(ring)).map_err(host)?;
        for ring in rings {
            if let Err(error) = self.attach(ring.queue) {
                self.taken().for_each(|queue| self.give_back(queue));
                return Err(host(error));
            }
            if let Some(taken) = self.taken.get_mut(ring.queue) {
                *taken = true;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, queue: usize) {
        if let Some(taken) = self.taken.get_mut(queue)
            && std::mem::take(taken)
        {
            self.detach(queue);
        }
    }

    fn has_failed(&mut self) -> bool {
        self.drop_faults()
    }
}
