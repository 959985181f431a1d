// SPDX-License-Identifier: Apache-2.0
//! The virtio devices of a VM, in the order of their slots.

use std::io::{self, PipeWriter};
use std::path::PathBuf;
use std::sync::Arc;

use super::wiring::{DevicesError, host};
use crate::config::{
    BalloonConfig, ConsoleConfig, DiskConfig, DiskFiles, MachineConfig, NetConfig, NetEnd, OutputFile, RateConfig,
    RngConfig, VsockConfig,
};
use crate::devices::virtio::block::{Settings, Written};
use crate::devices::virtio::console::socket::Socket;
use crate::devices::virtio::console::stream::Stream;
use crate::devices::virtio::console::{Console, Terminal};
use crate::devices::virtio::limit::{BothWays, Limiter};
use crate::devices::virtio::net::Vhost;
use crate::devices::virtio::{Balloon, BalloonControl, Block, Net, Rng, VirtioDevice, Vsock};
use crate::listener::Bound;
use crate::memory::GuestMemory;
use crate::observe::counters::Named;
use crate::observe::devices::DiskCounters;
use crate::stdio;

/// The virtio devices, and what the owner of the VM has of them.
#[derive(Default)]
pub(super) struct Virtio {
    pub(super) devices: Vec<Box<dyn VirtioDevice>>,
    /// What each is called and counts by.
    pub(super) counters: Vec<Named>,
    /// What the disks are called, which are the first of them.
    pub(super) disks: Vec<String>,
    /// The files of those that the guest may write to, with their paths.
    pub(super) written: Vec<Written>,
    /// What some of them are reached by.
    pub(super) sockets: Vec<Bound>,
    pub(super) pty: Option<PathBuf>,
    /// What a console writes to, if that is a file; nothing may be written before it is committed.
    pub(super) console: Option<OutputFile>,
    /// By which a console gets what is typed at the terminal.
    pub(super) typed: Option<PipeWriter>,
    pub(super) balloon: Option<BalloonControl>,
}

impl Virtio {
    /// Disks come first, then network interfaces, so that their names do not depend on what else there is; then what there is one of.
    pub(super) fn build(config: &mut MachineConfig, memory: &GuestMemory) -> Result<Self, DevicesError> {
        let mut all = Self::default();
        for (index, disk) in config.disks.drain(..).enumerate() {
            all.add_disk(index, disk)?;
        }
        for (index, net) in config.nets.drain(..).enumerate() {
            all.add_net(index, net, memory)?;
        }
        if let Some(vsock) = config.vsock.take() {
            all.add_vsock(vsock)?;
        }
        if let Some(console) = config.console.take() {
            all.add_console(console, config.serial_limit)?;
        }
        if let Some(balloon) = &config.balloon {
            all.add_balloon(balloon);
        }
        if let Some(RngConfig { source, limits }) = config.rng.take() {
            let rng = Rng::new(source, limiter(limits));
            all.counters.push(("_rng".to_owned(), rng.counters()));
            all.devices.push(Box::new(rng));
        }
        Ok(all)
    }

    fn add_disk(&mut self, index: usize, disk: DiskConfig) -> Result<(), DevicesError> {
        let path = disk.path().display().to_string();
        let id = disk.id().map_or_else(|| format!("_disk{index}"), str::to_owned);
        let counters = Arc::<DiskCounters>::default();
        let mut settings = Settings {
            readonly: disk.readonly(),
            direct: disk.direct(),
            sparse: disk.sparse(),
            serial: disk.serial().map_or_else(|| format!("flatboot-disk{index}"), str::to_owned),
            name: path.clone(),
            queue_size: disk.queue_size(),
            num_queues: disk.num_queues(),
            io_uring: disk.io_uring(),
            limiter: limiter(disk.limits()),
            counters: Arc::clone(&counters),
            ..Settings::default()
        };
        let DiskFiles { bytes, locked, synced } = disk.into_files();
        settings.lock = Some(locked);
        let lost = settings.lost.clone();
        self.written.extend(synced.map(|file| Written { path: path.clone(), file, lost }));
        let block = Block::new(bytes, settings).map_err(|source| DevicesError::Disk { index, path, source })?;
        self.devices.push(Box::new(block));
        self.disks.push(id.clone());
        self.counters.push((id, counters));
        Ok(())
    }

    fn add_net(&mut self, index: usize, net: NetConfig, memory: &GuestMemory) -> Result<(), DevicesError> {
        let id = net.id.unwrap_or_else(|| format!("_net{index}"));
        match net.end {
            NetEnd::Thread(link, others) => {
                let device = Net::new(link, others, net.name, net.interface, both_ways(net.limits));
                self.counters.push((id, device.counters()));
                self.devices.push(Box::new(device));
            }
            NetEnd::Kernel(first, others) => {
                // The tap itself counts what the kernel does. One that cannot be seen here is left out.
                match first.1.statistics() {
                    Ok(statistics) => self.counters.push((id, Arc::new(statistics))),
                    Err(error) => tracing::info!(%error, name = net.name, "nobody counts its frames"),
                }
                let device = Vhost::new(first, others, net.interface, memory).map_err(host("vhost-net"))?;
                self.devices.push(Box::new(device));
            }
        }
        Ok(())
    }

    fn add_vsock(&mut self, vsock: VsockConfig) -> Result<(), DevicesError> {
        let (bound, listener) = vsock.listener;
        self.sockets.push(bound);
        let limits = both_ways(vsock.limits);
        let device = Vsock::new(vsock.cid, listener, vsock.path, limits).map_err(host("vsock device"))?;
        self.counters.push((vsock.id.unwrap_or_else(|| "_vsock0".to_owned()), device.counters()));
        self.devices.push(Box::new(device));
        Ok(())
    }

    fn add_console(&mut self, console: ConsoleConfig, limit: Option<u64>) -> Result<(), DevicesError> {
        let terminal: Box<dyn Terminal> = match console {
            ConsoleConfig::Pty(made) => {
                stdio::tell(&format!("flatboot: console: {}", made.path().display()));
                self.pty = Some(made.path().to_owned());
                Box::new(made)
            }
            ConsoleConfig::Socket(bound, listener, _) => {
                self.sockets.push(bound);
                Box::new(Socket::new(listener).map_err(host("console"))?)
            }
            ConsoleConfig::File(output) => {
                let stream = Stream::new(output.writer()?, output.room(limit), None).map_err(host("console"))?;
                self.console = Some(output);
                Box::new(stream)
            }
            ConsoleConfig::Tty => Box::new(self.terminal().map_err(host("console"))?),
        };
        let device = Console::new(terminal);
        self.counters.push(("_console".to_owned(), device.counters()));
        self.devices.push(Box::new(device));
        Ok(())
    }

    /// Standard output, and what is typed.
    fn terminal(&mut self) -> io::Result<Stream> {
        let (typed, writer) = io::pipe()?;
        self.typed = Some(writer);
        Stream::new(stdio::output()?, u64::MAX, Some(typed))
    }

    fn add_balloon(&mut self, config: &BalloonConfig) {
        let device = Balloon::new(config.size, config.deflate_on_oom, config.free_page_reporting);
        self.balloon = Some(device.control());
        self.counters.push(("_balloon".to_owned(), device.counters()));
        self.devices.push(Box::new(device));
    }
}

fn limiter(limits: Option<RateConfig>) -> Limiter {
    limits.map_or_else(Limiter::default, |limits| limits.limiter())
}

/// The same limits for each direction.
fn both_ways(limits: Option<RateConfig>) -> BothWays {
    BothWays { received: limiter(limits), sent: limiter(limits) }
}
