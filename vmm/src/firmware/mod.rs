// SPDX-License-Identifier: Apache-2.0
//! Firmware: the image, the flash that it runs from, and all that it is told of the machine.
//!
//! It is EDK2's for QEMU's microvm machine (`OvmfPkg/Microvm` and platforms made from it), which needs little hardware and asks
//! `fw_cfg` for the rest.

mod device_tree;
mod error;
mod flash;
mod image;
mod items;

pub use error::FirmwareError;
pub use flash::flash;
pub use image::Image;
pub use items::{Description, items};
