// SPDX-License-Identifier: Apache-2.0
//! What a virtio device is, whatever transport it is on.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;

use super::outside::Outside;
use super::{ConfigSpace, Request};
use crate::memory::GuestMemory;
use crate::sandbox::Kind;
use crate::state::LaneState;

/// Whether a queue can have a request done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Now.
    Now,
    /// It is to be asked again in so long.
    In(Duration),
    /// Once one of the device's sources has something, and not because the driver says so.
    WhenWoken,
}

/// A request that has been begun, as the queues know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Whose it is.
    pub queue: usize,
    pub(super) head: u16,
}

/// Why a device does not get another size.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// It is none of those that have one.
    #[error("it has no size: must be a disk")]
    Sizeless,
    /// It consists of larger pieces.
    #[error("desired_size={size}: must be a multiple of {multiple}")]
    Ragged {
        /// What is asked for.
        size: u64,
        /// What its size is a multiple of.
        multiple: u64,
    },
    /// Something would be lost.
    #[error(
        "desired_size={size}: must be at least {least}, what the disk or its file has: a disk is never made smaller"
    )]
    Smaller {
        /// What is asked for.
        size: u64,
        /// What it has.
        least: u64,
    },
    /// There is no more, and it may not make more.
    #[error("desired_size={size}: must be at most {most}, the size of its file, which the disk may not change")]
    Fixed {
        /// What is asked for.
        size: u64,
        /// What there is.
        most: u64,
    },
    /// The host has said no.
    #[error("desired_size={size}: the host cannot make its file so large: must be less")]
    Host {
        /// What is asked for.
        size: u64,
        /// Why.
        source: io::Error,
    },
    /// It hangs over this.
    #[error("desired_size={size}: the device has not done it within {} s, and still may", limit.as_secs())]
    Late {
        /// What is asked for.
        size: u64,
        /// How long it had.
        limit: Duration,
    },
    /// It hangs over something else, and never hears of this.
    #[error("desired_size={size}: the device has not begun it within {} s, and will not", limit.as_secs())]
    NotBegun {
        /// What is asked for.
        size: u64,
        /// How long it had.
        limit: Duration,
    },
}

/// What besides the driver gives a queue something to do.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// What is watched, for edges.
    pub descriptor: RawFd,
    /// Whose turn it is then.
    pub queue: usize,
    /// Whether it becomes writable, and not readable.
    pub writable: bool,
}

impl Source {
    /// `descriptor` becomes readable.
    #[must_use]
    pub const fn readable(descriptor: RawFd, queue: usize) -> Self {
        Self { descriptor, queue, writable: false }
    }

    /// `descriptor` becomes writable.
    #[must_use]
    pub const fn writable(descriptor: RawFd, queue: usize) -> Self {
        Self { descriptor, queue, writable: true }
    }
}

/// What serves some of a device's queues.
pub struct Lane {
    /// How many: the last ones that no later lane has. The first ones, which no lane has, are the device's own.
    pub queues: usize,
    /// What serves them.
    pub device: Box<dyn VirtioDevice>,
}

/// The part of a virtio device that differs from kind to kind. It knows neither its transport nor how it interrupts.
///
/// Type, features, configuration space, queues and lanes are asked for once, at construction. Everything else is called by the
/// device's own worker thread, or those of its lanes, which may wait for host I/O as long as that takes: no vCPU and no other
/// device waits with it.
///
/// Order: each time the driver is ready, [`activate`](Self::activate), then [`handle`](Self::handle) for every request until the
/// driver resets the device. Between its reset and the next activation comes [`reset`](Self::reset). A pause comes between two
/// requests: after [`pause`](Self::pause) nothing is called but [`save`](Self::save) and [`resume`](Self::resume). One that is made
/// what was saved pauses first; then come [`activate`](Self::activate) and [`restore`](Self::restore).
///
/// A device that does several requests at once has [`begin`](Self::begin), [`over`](Self::over) and [`wait`](Self::wait) besides.
/// When it is reset or pauses, all that it has begun is over.
pub trait VirtioDevice: Send {
    /// Device type (virtio 1.2, section 5).
    fn device_type(&self) -> u32;

    /// Feature bits of this kind of device; none unless it says so. The transport adds those of the queues and the transport itself.
    fn features(&self) -> u64 {
        0
    }

    /// The device's configuration space; nothing is there unless it says so.
    fn config(&self) -> ConfigSpace {
        ConfigSpace::default()
    }

    /// Largest size of each queue, in descriptors, each a power of two.
    fn queue_sizes(&self) -> &[u16];

    /// What serves queues besides it, each in a thread of its own. Asked for once, at construction; what describes the device is of
    /// this one alone.
    fn lanes(&mut self) -> Vec<Lane> {
        Vec::new()
    }

    /// What its thread may do.
    fn thread(&self) -> Kind {
        Kind::Device
    }

    /// Who serves its queues, if not this: then [`handle`](Self::handle) is never called, and sources wake queue 0.
    fn outside(&mut self) -> Option<&mut dyn Outside> {
        None
    }

    /// The driver is ready, having accepted `features`.
    fn activate(&mut self, _features: u64) {}

    /// What besides the driver gives a queue something to do, each descriptor once. They are watched for edges:
    /// [`ready`](Self::ready) says [`Ready::WhenWoken`] only behind a read that found nothing, or a write that found no room.
    fn sources(&self) -> Vec<Source> {
        Vec::new()
    }

    /// Whether queue `queue` can have a request done.
    fn ready(&mut self, _queue: usize) -> Ready {
        Ready::Now
    }

    /// Does one request from queue `queue` and returns how many bytes it wrote to the request's writable segments.
    ///
    /// The guest chose everything in `request`: any number of segments, up to the size of the queue, anywhere, of any
    /// length. The call must return after a bounded amount of work, which is no more than that request asks for.
    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32;

    /// Begins one request, which [`handle`](Self::handle) does at once. How many bytes it wrote, or nothing if `token` will be among
    /// what is [`over`](Self::over); then guest memory may be written until it is.
    fn begin(&mut self, token: Token, memory: &GuestMemory, request: &Request) -> Option<u32> {
        Some(self.handle(token.queue, memory, request))
    }

    /// One of the requests that were begun, if one is over by now: each once, in any order, with the bytes that it wrote. What was
    /// begun goes on by itself from here on, and one of the [`sources`](Self::sources) tells of its end.
    fn over(&mut self, _memory: &GuestMemory) -> Option<(Token, u32)> {
        None
    }

    /// Whether the driver must not see the last request's end before that of the next one, as with a frame that goes into several
    /// buffers.
    fn holds(&self) -> bool {
        false
    }

    /// There is no next one: what [`holds`](Self::holds) has held begins anew with the first of its requests. If `forever`, there
    /// never will be: the queue is too small.
    fn put_back(&mut self, _forever: bool) {}

    /// When a queue is to have another turn although nobody notifies it: what was begun could not be handed on.
    fn retry(&self) -> Option<Duration> {
        None
    }

    /// A queue has had a turn: what the device has seen there may change its configuration space.
    fn turned(&mut self) {}

    /// The driver has reset the device: back to what it was before the first activation.
    fn reset(&mut self) {}

    /// It has `size` bytes from now on, and its configuration space says so.
    fn resize(&mut self, _size: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Sizeless)
    }

    /// The VM is about to pause: what goes on besides requests must stop before this returns.
    fn pause(&mut self) {}

    /// The VM goes on.
    fn resume(&mut self) {}

    /// During a pause, and once at construction: what it keeps besides features, queues and configuration space, if that can be said.
    fn save(&mut self) -> Option<LaneState> {
        Some(LaneState::Nothing)
    }

    /// It goes on from what was saved of one like it, of the same kind as it saves; a value that it cannot have is as if it were none.
    /// Called behind [`activate`](Self::activate).
    fn restore(&mut self, _state: LaneState) {}

    /// What of its configuration space may be another one than it was when it was saved: what drivers ask again when they are told.
    /// Asked for at construction.
    fn renewed(&self) -> Range<usize> {
        0..0
    }
}
