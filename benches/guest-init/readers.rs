// SPDX-License-Identifier: Apache-2.0
//! Readers of more than fits into memory: who makes room for it, the kernel's own threads or the readers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::memory::vmstat_sum;
use crate::outcome::Outcome;
use crate::{devices, files, mark};

/// Read at a time.
const BLOCK: usize = 128 << 10;
/// Of /proc/vmstat, by how each begins, and what they are called in the report.
const COUNTS: [(&str, &str); 7] = [
    ("allocstall_", "stalls"),
    ("pgscan_kswapd ", "scanned_by_kswapd"),
    ("pgscan_direct ", "scanned_by_readers"),
    ("pgsteal_kswapd ", "freed_by_kswapd"),
    ("pgsteal_direct ", "freed_by_readers"),
    ("kswapd_help ", "helped"),
    ("kswapd_help_dear ", "too_dear"),
];
/// Clock ticks a second, as the kernel tells them (proc(5), `USER_HZ`).
const TICK_MS: u64 = 10;

/// `N@DEVICE`: N threads read the disk once, an equal part each.
pub(crate) fn readers(argument: &str) -> Outcome {
    let wrong = || format!("readers={argument}: must be N@DEVICE");
    let (readers, path) = argument.split_once('@').ok_or_else(wrong)?;
    let readers: u64 = readers.parse().ok().filter(|readers| (1..=64).contains(readers)).ok_or_else(wrong)?;
    read_by(readers, path, devices::size(path)?)
}

/// So many threads read an equal part each of so many bytes of the disk.
pub(crate) fn read_by(readers: u64, path: &str, bytes: u64) -> Outcome {
    let disk = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    let part = bytes / readers;
    let before = counts()?;
    let kswapd = kswapd_ms();
    mark::begin()?;
    let since = Instant::now();
    let read = thread::scope(|scope| {
        let disk = &disk;
        let running: Vec<_> = (0..readers).map(|n| scope.spawn(move || read(disk, n * part, part))).collect();
        running.into_iter().map(|done| done.join().unwrap_or_else(|_| Err("a thread died".to_owned()))).sum()
    });
    let read: Result<u64, String> = read;
    let ns = since.elapsed().as_nanos();
    let mut report = json!({ "readers": readers, "bytes": read?, "ns": ns, "kswapd_ms": kswapd_ms() - kswapd });
    for (((_, name), after), before) in COUNTS.iter().zip(counts()?).zip(before) {
        report[*name] = Value::from(after - before);
    }
    Ok((true, report))
}

fn read(disk: &File, from: u64, length: u64) -> Result<u64, String> {
    let (mut block, mut done) = (vec![0; BLOCK], 0);
    while done < length {
        match disk.read_at(&mut block, from + done).map_err(|error| format!("at {}: {error}", from + done))? {
            0 => break,
            count => done += count as u64,
        }
    }
    Ok(done)
}

fn counts() -> Result<[u64; COUNTS.len()], String> {
    let text = files::text("/proc/vmstat")?;
    Ok(COUNTS.map(|(begins, _)| vmstat_sum(&text, begins)))
}

/// What the threads called kswapd have had of the processors.
fn kswapd_ms() -> u64 {
    let processes = files::names("/proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes.filter_map(|process| ticks(&files::text(format!("/proc/{process}/stat")).ok()?)).sum::<u64>() * TICK_MS
}

/// Of a process's `stat`, if it is a kswapd: its user and system time.
fn ticks(stat: &str) -> Option<u64> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut times = rest.split(' ').skip(11).map_while(|word| word.parse::<u64>().ok());
    name.starts_with("kswapd").then(|| times.by_ref().take(2).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kswapd_is_known_by_its_name() {
        let stat = |name: &str| format!("40 ({name}) S 2 0 0 0 -1 10619968 0 0 0 0 3 120 0 0 20 0 1 0 55 0 0\n");
        assert_eq!(
            (ticks(&stat("kswapd0")), ticks(&stat("kswapd0:1")), ticks(&stat("kworker) 9"))),
            (Some(123), Some(123), None)
        );
    }

    #[test]
    fn a_part_is_read_to_its_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * BLOCK as u64 / 2).unwrap();
        assert_eq!(read(&file, 0, u64::MAX), Ok(3 * BLOCK as u64 / 2));
    }
}
