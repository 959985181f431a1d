// SPDX-License-Identifier: Apache-2.0
//! Checks of what the kernel says about itself.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::files;
use crate::outcome::Outcome;

pub(crate) const DEBUGFS: &str = "/sys/kernel/debug";
/// Lines of the kernel log that one report repeats.
const SHOWN_LINES: usize = 32;

/// Exactly `wanted` CPUs are online.
pub(crate) fn cpus(wanted: &str) -> Outcome {
    let wanted: usize = wanted.parse().map_err(|_| format!("cpus={wanted}: expected a number"))?;
    let online = count_list(files::text("/sys/devices/system/cpu/online")?.trim())?;
    let possible = count_list(files::text("/sys/devices/system/cpu/possible")?.trim())?;
    Ok((online == wanted, json!({ "online": online, "possible": possible })))
}

/// How many numbers a list such as "0-3,5" has.
fn count_list(list: &str) -> Result<usize, String> {
    list.split(',').map(count_range).sum::<Option<usize>>().ok_or_else(|| format!("{list:?} is no list of CPUs"))
}

fn count_range(range: &str) -> Option<usize> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
}

/// What debugfs shows of the hand-off: files, or directories of files, whose names begin with `memmap`.
pub(crate) fn handoff() -> Outcome {
    let mut found = serde_json::Map::new();
    for name in files::names(DEBUGFS).into_iter().filter(|name| name.starts_with("memmap")) {
        let path = format!("{DEBUGFS}/{name}");
        let inside = files::names(&path);
        if inside.is_empty() {
            found.insert(name, Value::String(files::text(&path)?));
        } else {
            for file in inside {
                let content = files::text(format!("{path}/{file}"))?;
                found.insert(format!("{name}/{file}"), Value::String(content));
            }
        }
    }
    Ok((!found.is_empty(), json!({ "files": Value::Object(found) })))
}

/// Where the kernel's text lies, by its virtual and its physical address: other places at each boot if they are randomized.
pub(crate) fn text() -> Outcome {
    let symbols = files::text("/proc/kallsyms")?;
    let text = symbols.lines().find_map(|line| line.strip_suffix(" T _text")).ok_or("/proc/kallsyms: no _text")?;
    let address = u64::from_str_radix(text, 16).map_err(|_| format!("/proc/kallsyms: {text:?} is no address"))?;
    let resources = files::text("/proc/iomem")?;
    let code = resources.lines().find_map(|line| line.trim().strip_suffix(" : Kernel code"));
    let start = code.and_then(|range| range.split_once('-')).ok_or("/proc/iomem: no Kernel code")?.0;
    let physical = u64::from_str_radix(start, 16).map_err(|_| format!("/proc/iomem: {start:?} is no address"))?;
    Ok((address != 0 && physical != 0, json!({ "address": address, "physical": physical })))
}

/// Whether a line of the kernel log contains `text`.
pub(crate) fn dmesg(text: &str, wanted: bool) -> Outcome {
    // The kernel logs its command line, which has the text in it because we were asked for it there.
    let said = |line: &String| line.contains(text) && !line.contains("ommand line");
    let lines: Vec<String> = log()?.into_iter().filter(said).collect();
    let count = lines.len();
    let lines: Vec<Value> = lines.into_iter().take(SHOWN_LINES).map(Value::String).collect();
    Ok(((count > 0) == wanted, json!({ "count": count, "lines": lines })))
}

/// What the kernel says when something broke.
const ALARMS: [&str; 10] = [
    "BUG",
    "WARNING:",
    "Oops",
    "Bad page",
    "page allocation failure",
    "Out of memory",
    "blocked for more than",
    "rcu: INFO",
    "Call Trace",
    "nobody cared",
];
/// Emulated processors that offer no compact state are warned about, and are none of our business.
const NO_ALARM: &str = "arch/x86/kernel/fpu/xstate.c";
/// Where a warning ends.
const END_OF_TRACE: &str = "---[ end trace";

/// No line of the kernel log is one of [`ALARMS`].
pub(crate) fn calm() -> Outcome {
    let lines = alarming(log()?);
    Ok((lines.is_empty(), json!({ "lines": lines })))
}

fn alarming(log: Vec<String>) -> Vec<String> {
    let mut excused = false;
    let alarms = log.into_iter().filter(|line| {
        excused = (excused || line.contains(NO_ALARM)) && !line.contains(END_OF_TRACE);
        !excused && ALARMS.iter().any(|alarm| line.contains(alarm))
    });
    alarms.take(SHOWN_LINES).collect()
}

/// From now on a processor that runs one thing for twice so many seconds is one that is locked up, and the kernel log says so
/// (Documentation/admin-guide/lockup-watchdogs.rst).
pub(crate) fn watchdog(seconds: &str) -> Outcome {
    let path = |name: &str| format!("/proc/sys/kernel/{name}");
    let threshold = path("watchdog_thresh");
    fs::write(&threshold, seconds).map_err(|error| format!("{threshold}: {seconds}: {error}"))?;
    let (on, threshold) = (files::text(path("soft_watchdog"))?, files::text(threshold)?);
    Ok((on.trim() == "1" && threshold.trim() == seconds, json!({ "on": on.trim(), "seconds": threshold.trim() })))
}

/// Every message so far. /dev/kmsg gives one record a read: "level,sequence,microseconds,flags;text\n".
pub(crate) fn log() -> Result<Vec<String>, String> {
    let failed = |error| format!("/dev/kmsg: {error}");
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut log = File::options().read(true).custom_flags(nonblocking).open("/dev/kmsg").map_err(failed)?;
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(0) => return Ok(lines),
            Ok(length) => {
                let text = String::from_utf8_lossy(&record[..length]);
                if let Some((_, message)) = text.split_once(';') {
                    lines.push(message.lines().next().unwrap_or_default().to_owned());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lines),
            // Records that were overwritten while we read: the next read goes on after them.
            Err(error) if error.kind() == ErrorKind::BrokenPipe || error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// What kernel this is and what it was told.
pub(crate) fn uname() -> Outcome {
    let uname = rustix::system::uname();
    let cmdline = files::text("/proc/cmdline")?;
    Ok((
        true,
        json!({
            "release": uname.release().to_string_lossy(), "version": uname.version().to_string_lossy(),
            "cmdline": cmdline.trim_end(),
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_means_nothing_and_excuses_no_other() {
        let log = |lines: &str| lines.lines().map(str::to_owned).collect::<Vec<_>>();
        let excused =
            "WARNING: CPU: 0 PID: 0 at arch/x86/kernel/fpu/xstate.c:1 f\nCall Trace:\n---[ end trace 0 ]---\n";
        assert!(alarming(log(&format!("{excused}x86/fpu: ok"))).is_empty());
        for alarm in
            ["irq 5: nobody cared (try booting with the \"irqpoll\" option)", "Call Trace:", "BUG: Bad page state"]
        {
            assert_eq!(alarming(log(&format!("{excused}{alarm}\nx"))), [alarm]);
        }
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(count_list("0"), Ok(1));
        assert_eq!(count_list("0-3,5,7-8"), Ok(7));
        for wrong in ["", "3-1", "a", "0-"] {
            assert!(count_list(wrong).is_err(), "{wrong:?}");
        }
    }
}
