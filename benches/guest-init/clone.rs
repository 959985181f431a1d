// SPDX-License-Identifier: Apache-2.0
//! A guest that is saved while it waits, and goes on as another one.

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::files;
use crate::generation::Generation;
use crate::kernel;
use crate::net;
use crate::outcome::Outcome;
use crate::report;

/// How often it looks who it is.
const LOOK: Duration = Duration::from_millis(50);
/// How often it looks whether the kernel has heard of it, which takes milliseconds.
const HEARS: u32 = 200;
/// What the kernel says when it has.
const HEARD: &str = "crng reseeded due to virtual machine fork";

/// Waits, as long as it takes, until the VM generation ID is another one and the kernel has heard of that. Its first line says that
/// it waits. Then: who it is now.
pub(crate) fn clone() -> Outcome {
    let generation = Generation::find()?;
    let before = generation.read()?;
    report::print(&json!({ "check": "clone", "waits": true }));
    while generation.read()? == before {
        sleep(LOOK);
    }
    let heard = (0..HEARS).any(|_| {
        let heard = kernel::dmesg(HEARD, true).is_ok_and(|(there, _)| there);
        if !heard {
            sleep(LOOK);
        }
        heard
    });
    let random = files::text("/proc/sys/kernel/random/uuid")?;
    // A driver asks for its address once.
    let mac = if files::names("/sys/class/net").iter().any(|name| name == net::INTERFACE) {
        net::rebind()?;
        Some(files::text(format!("/sys/class/net/{}/address", net::INTERFACE))?.trim().to_owned())
    } else {
        None
    };
    let id = format!("{:032x}", u128::from_be_bytes(generation.read()?));
    Ok((heard, json!({ "id": id, "random": random.trim(), "mac": mac })))
}
