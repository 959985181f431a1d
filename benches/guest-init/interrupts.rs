// SPDX-License-Identifier: Apache-2.0
//! Interrupts of a device, sent to a processor of our choice.

use std::fs;

use serde_json::json;

use crate::devices::read_uncached;
use crate::files;
use crate::outcome::Outcome;

/// The first one or two may still go where they went before.
const READS: u64 = 16;

/// What a disk interrupts for goes to one processor from now on, which is brought online if it is not: `DEVICE@CPU`.
pub(crate) fn interrupts(argument: &str) -> Outcome {
    let wrong = || format!("interrupts={argument}: expected DEVICE@CPU");
    let (device, cpu) = argument.split_once('@').ok_or_else(wrong)?;
    let cpu: usize = cpu.parse().map_err(|_| wrong())?;
    let name = device.rsplit('/').next().unwrap_or_default();
    let link = format!("/sys/class/block/{name}/device");
    let virtio = fs::read_link(&link).map_err(|error| format!("{link}: {error}"))?;
    let virtio = virtio.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();

    let online = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    if files::number(&online).is_ok_and(|online| online == 0) {
        fs::write(&online, "1").map_err(|error| format!("{online}: {error}"))?;
    }

    let (irq, before) = count(&virtio, cpu)?;
    let affinity = format!("/proc/irq/{irq}/smp_affinity_list");
    fs::write(&affinity, cpu.to_string()).map_err(|error| format!("{affinity}: {error}"))?;
    for block in 0..READS {
        read_uncached(device, block * 4096).map_err(|error| format!("{device}: {error}"))?;
    }
    let (_, after) = count(&virtio, cpu)?;
    let taken = after.saturating_sub(before);
    Ok((taken > READS / 2, json!({ "irq": irq, "taken": taken })))
}

/// The number of a device's interrupt, and how often a processor has taken it.
fn count(device: &str, cpu: usize) -> Result<(u64, u64), String> {
    parse(&files::text("/proc/interrupts")?, device, cpu)
        .ok_or_else(|| format!("/proc/interrupts: nothing of {device}"))
}

/// The first line names the processors that are online; others have the number, a count for each of these, and the device's name at its end.
fn parse(text: &str, device: &str, cpu: usize) -> Option<(u64, u64)> {
    let line = text.lines().find(|line| line.split_whitespace().next_back() == Some(device))?;
    let mut words = line.split_whitespace();
    let irq = words.next()?.strip_suffix(':')?.parse().ok()?;
    let column = text.lines().next()?.split_whitespace().position(|name| name == format!("CPU{cpu}"))?;
    Some((irq, words.nth(column)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_that_of_its_column() {
        let text = "      CPU0  CPU7\n  4:   7   0  IO-APIC  4-edge  ttyS0\n 10:  0  123  IO-APIC 10-edge  virtio0\nNMI: 0 0 x\n";
        assert_eq!((parse(text, "virtio0", 7), parse(text, "ttyS0", 0)), (Some((10, 123)), Some((4, 7))));
        assert_eq!((parse(text, "virtio1", 0), parse(text, "virtio0", 1)), (None, None));
    }
}
