// SPDX-License-Identifier: Apache-2.0
//! What the host counts of a tap, for an interface whose frames nobody here sees.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::mac::Mac;
use crate::observe::devices::DeviceCounters;

/// What an interface's counters are called here, and what they are the sum of at the tap, which sees frames from the other side.
const NAMES: [(&str, &[&str]); 5] = [
    ("rx_bytes", &["tx_bytes"]),
    ("rx_frames", &["tx_packets"]),
    ("tx_bytes", &["rx_bytes"]),
    ("tx_frames", &["rx_packets"]),
    ("errors", &["rx_errors", "rx_dropped", "tx_errors", "tx_dropped"]),
];
/// There is no limit where somebody else moves the frames, and so nothing ever waits; whoever sums up finds the name.
const NEVER: &str = "throttled";
/// More digits than any of the numbers has.
const DIGITS: usize = 32;

/// A tap's numbers, from when this was made. Their files are open: whoever asks may not be able to open any.
#[derive(Debug)]
pub struct TapStatistics(Vec<Counter>);

#[derive(Debug)]
struct Counter {
    name: &'static str,
    files: Vec<File>,
    /// What an older guest on the same tap has left.
    before: u64,
}

impl TapStatistics {
    /// Those of the tap `name`, whose address is `address`: in another network namespace there may be another one of that name.
    pub(super) fn open(name: &str, address: Mac) -> io::Result<Self> {
        let interface = PathBuf::from("/sys/class/net").join(name);
        if fs::read_to_string(interface.join("address"))?.trim() != address.to_string() {
            return Err(io::Error::new(ErrorKind::NotFound, "the interface of that name is another one"));
        }
        let statistics = interface.join("statistics");
        let counter = |(name, parts): (&'static str, &[&str])| {
            let files = parts.iter().map(|part| File::open(statistics.join(part))).collect::<io::Result<_>>()?;
            let counter = Counter { name, files, before: 0 };
            Ok(Counter { before: counter.now(), ..counter })
        };
        Ok(Self(NAMES.into_iter().map(counter).collect::<io::Result<_>>()?))
    }
}

impl Counter {
    /// All parts together; those of a tap that is gone are nothing.
    fn now(&self) -> u64 {
        self.files.iter().filter_map(read).sum()
    }
}

/// The number that `file` has now.
fn read(file: &File) -> Option<u64> {
    let mut text = [0; DIGITS];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}

impl DeviceCounters for TapStatistics {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        let counters = self.0.iter().map(|counter| (counter.name, counter.now().saturating_sub(counter.before)));
        counters.chain([(NEVER, 0)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::devices::TrafficCounters;

    /// Every host has it, and a network namespace of its own too.
    const LOOPBACK: &str = "lo";

    fn address(text: &str) -> Mac {
        serde_json::from_str(&format!("\"{text}\"")).unwrap()
    }

    #[test]
    fn they_have_the_names_of_any_interface() {
        let own: Vec<_> = NAMES.iter().map(|(name, _)| *name).chain([NEVER]).collect();
        let mut sorted = own.clone();
        sorted.sort_unstable();
        assert_eq!(TrafficCounters::of_frames().values().into_keys().collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn another_interface_of_that_name_is_none() {
        let error = TapStatistics::open(LOOPBACK, address("52:54:00:12:34:56")).unwrap_err();
        assert_eq!(error.to_string(), "the interface of that name is another one");
        assert!(TapStatistics::open("none at all", address("52:54:00:12:34:56")).is_err());
    }

    #[test]
    fn a_number_is_read_again_and_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "7\n").unwrap();
        let open = || vec![File::open(file.path()).unwrap(), File::open(file.path()).unwrap()];
        let mut counter = Counter { name: "errors", files: open(), before: 0 };
        assert_eq!(counter.now(), 14);
        counter.before = counter.now();
        fs::write(file.path(), "18446744073709551\n").unwrap();
        let statistics = TapStatistics(vec![counter]);
        assert_eq!(
            statistics.values(),
            BTreeMap::from([("errors", 2 * 18_446_744_073_709_551 - 14), ("throttled", 0)])
        );
        fs::write(file.path(), "").unwrap();
        assert_eq!(statistics.values()["errors"], 0, "a tap that is gone");
    }
}
