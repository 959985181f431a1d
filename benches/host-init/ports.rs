// SPDX-License-Identifier: Apache-2.0
//! The virtio-serial ports, found by name.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// Opens the port called `name`. Ports appear a moment after their device: the driver asks for them one by one.
pub(crate) fn open(name: &str) -> io::Result<File> {
    const ATTEMPTS: u32 = 1000;
    for _ in 0..ATTEMPTS {
        if let Some(path) = find(name) {
            return File::options().read(true).write(true).open(path);
        }
        sleep(Duration::from_millis(10));
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no virtio-serial port is called {name}")))
}

fn find(name: &str) -> Option<PathBuf> {
    let mut ports = fs::read_dir("/sys/class/virtio-ports").ok()?.filter_map(Result::ok);
    let port =
        ports.find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|found| found.trim() == name))?;
    let node = PathBuf::from("/dev").join(port.file_name());
    node.exists().then_some(node)
}
