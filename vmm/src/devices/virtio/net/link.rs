// SPDX-License-Identifier: Apache-2.0
//! The host's end of a network interface.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use super::pairs::Switch;
use crate::devices::virtio::vectors::Vectors;

/// Where a guest's frames go, and where those for it come from.
///
/// Frames are behind a header of [`HEADER_SIZE`](super::frame::HEADER_SIZE) bytes in both directions. Nothing waits: what cannot be done now is
/// [`WouldBlock`](io::ErrorKind::WouldBlock).
pub trait Link: fmt::Debug + Send {
    /// What the host does for a guest whose driver accepts it: feature bits of virtio-net.
    fn features(&self) -> u64 {
        0
    }

    /// The driver has accepted `features`, and takes frames accordingly.
    fn accept(&mut self, _features: u64) -> io::Result<()> {
        Ok(())
    }

    /// Whether there is anybody at the other end, as far as the last frame in either direction has shown.
    fn is_up(&self) -> bool;

    /// What takes it out of use, and into it again, if it is one of several and the host has to know. Asked for once.
    fn switch(&mut self) -> Option<Box<dyn Switch>> {
        None
    }

    /// What becomes readable when there is a frame for the guest.
    fn incoming(&self) -> RawFd;

    /// What becomes writable when there is room again for a frame from it, or the other end is up again, if either can be.
    fn outgoing(&self) -> Option<RawFd> {
        None
    }

    /// Whether there is room for a frame; [`outgoing`](Self::outgoing) says when there is again.
    fn has_room(&mut self) -> bool {
        true
    }

    /// Takes a frame for the guest, with its header, into `buffer`. Returns how long both are; 0 if there never will be one again.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends a frame, which begins with its header. One that is none is [`InvalidInput`](io::ErrorKind::InvalidInput).
    fn send(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Whether a frame can be sent from where it lies in guest memory, with a header that the guest has written.
    fn sends_pieces(&self) -> bool {
        false
    }

    /// Sends one from there, if it can be.
    fn send_pieces(&mut self, _frame: &Vectors) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
