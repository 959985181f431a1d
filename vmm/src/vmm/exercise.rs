// SPDX-License-Identifier: Apache-2.0
//! Hostile snapshots made of bytes: what the fuzz target and a property test both run.
//!
//! Up to their first zero, the bytes are the `state` of a snapshot: a whole file, or what is in one behind a header that is right. A
//! state of a single device is taken, too. Behind the zero is what the guest does with each device that goes on from it. There is no
//! KVM, and no file is looked at.

use std::fs::File;
use std::io;

use serde_json::Map;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::restored::renewed;
use crate::config::VmConfig;
use crate::devices::bus::BusDevice;
use crate::devices::held::{HeldControl, HeldRegisters};
use crate::devices::ioapic::{IoApic, Message, PINS, Router};
use crate::devices::power::SleepRegisters;
use crate::devices::serial::SerialPort;
use crate::devices::virtio::exercise::go_on;
use crate::state::{self, DeviceState, StateFileError, Whole};

/// Held memory of the device that has it, in bytes.
const HELD: u64 = 1 << 40;

/// Steps after which the guest's part ends, however long it is.
const STEPS_MAX: usize = 256;

/// Reads `bytes` in each of these ways, and goes on from what can be read; disks have the content of `disk`. Panics if anything does, if
/// a state that was read cannot be written and read again, and if what a device was told is not what it then says; fails only when the
/// host has no memory or descriptors.
pub fn exercise(bytes: &[u8], disk: &File) -> io::Result<()> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (content, program) = bytes.split_at(end);
    let sealed = [&state::header(content)[..], content].concat();
    let states = read(bytes, false).into_iter().chain(read(&sealed, true)).map(|state| state.devices);
    let mut devices: Vec<_> =
        states.flat_map(|all| all.ports.into_iter().chain(all.mmio)).map(|one| one.state).collect();
    devices.extend(serde_json::from_slice::<DeviceState>(content));
    devices.iter().try_for_each(|state| restored(state, program, disk).map(drop))
}

/// The state in `file`. There may be none; only for what is in it, if its header `is_right`.
fn read(file: &[u8], is_right: bool) -> Option<Whole<VmConfig>> {
    match state::read(file) {
        Ok(state) => {
            check(&state);
            Some(state)
        }
        Err(error) => {
            assert!(!is_right || matches!(error, StateFileError::Content(_)), "with a header that is right it {error}");
            None
        }
    }
}

/// It is the same when it is written and read again, and so is the configuration of a VM that goes on from it.
fn check(state: &Whole<VmConfig>) {
    let written = |state: &Whole<VmConfig>| {
        let mut bytes = Vec::new();
        state::write(state, &mut bytes).map(|()| bytes).unwrap_or_default()
    };
    let bytes = written(state);
    let again = state::read::<Whole<VmConfig>>(bytes.as_slice());
    assert_eq!(again.ok().map(|again| written(&again)), Some(bytes), "{state:?}");
    if let Ok(config) = renewed(&state.config, Map::new()) {
        assert_eq!(renewed(&config, Map::new()).ok(), Some(config));
    }
}

/// Whether a device could be made what `state` says.
fn restored(state: &DeviceState, program: &[u8], disk: &File) -> io::Result<bool> {
    match state {
        DeviceState::Virtio(state) => go_on(state, program, disk),
        DeviceState::Serial(_) => {
            let port = || SerialPort::new(EventFd::new(EFD_NONBLOCK)?, Box::new(io::sink()));
            Ok(goes_on([port()?, port()?], state, program))
        }
        DeviceState::Sleep { .. } => {
            Ok(goes_on([SleepRegisters::default(), SleepRegisters::default()], state, program))
        }
        DeviceState::IoApic { .. } => Ok(goes_on([IoApic::new(Anywhere), IoApic::new(Anywhere)], state, program)),
        DeviceState::Held(of) => {
            let there = of.there.min(HELD);
            let device = || {
                let control = HeldControl::new(HELD, there, EventFd::new(EFD_NONBLOCK)?)?;
                Ok::<_, io::Error>(HeldRegisters::new(control))
            };
            Ok(goes_on([device()?, device()?], state, program))
        }
    }
}

/// Takes every route.
struct Anywhere;

impl Router for Anywhere {
    fn route(&mut self, _: &[Option<Message>; PINS]) -> bool {
        true
    }
}

/// The same for a device without queues, `another` of which goes on from what the first one then is.
fn goes_on<D: BusDevice>([mut device, mut another]: [D; 2], state: &DeviceState, program: &[u8]) -> bool {
    if device.restore(state).is_err() {
        return false;
    }
    let saved = device.save().ok().flatten();
    assert_eq!(saved.as_ref().map(|saved| another.restore(saved)), Some(Ok(())), "{saved:?}");
    assert_eq!(another.save(), Ok(saved));
    device.awake();
    for step in program.chunks_exact(4).take(STEPS_MAX) {
        let &[what, offset, low, high] = step else { break };
        let (offset, mut bytes) = (u64::from(offset), [low, high, low, high]);
        let width = usize::from(what >> 1).min(bytes.len());
        let Some(bytes) = bytes.get_mut(..width) else { break };
        if what & 1 == 0 {
            device.read(offset, bytes);
        } else {
            let _ = device.write(offset, bytes);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn disk() -> File {
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(8 * 512).unwrap();
        disk
    }

    /// What fuzzing begins with.
    fn seeds() -> Vec<(PathBuf, Vec<u8>)> {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/snapshot_state");
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    /// A format that changes takes them along: what is no state any more leads nowhere.
    #[test]
    fn fuzzing_begins_with_states_of_all_devices() {
        let (disk, mut kinds, mut files) = (disk(), Vec::new(), 0);
        for (path, bytes) in seeds() {
            let content = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            files += usize::from(state::read::<Whole<VmConfig>>(bytes.as_slice()).is_ok());
            let whole = serde_json::from_slice::<Whole<VmConfig>>(content);
            let of_whole = whole.iter().flat_map(|state| state.devices.ports.iter().chain(&state.devices.mmio));
            let mut devices: Vec<_> = of_whole.map(|placed| placed.state.clone()).collect();
            devices.extend(serde_json::from_slice::<DeviceState>(content));
            kinds.extend(devices.iter().filter(|state| restored(state, &[], &disk).unwrap()).map(
                |state| match state {
                    DeviceState::Virtio(state) => state.device_type,
                    DeviceState::Serial(_) => 100,
                    DeviceState::Sleep { .. } => 101,
                    DeviceState::IoApic { .. } => 102,
                    DeviceState::Held(_) => 103,
                },
            ));
            exercise(&bytes, &disk).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        kinds.sort_unstable();
        kinds.dedup();
        // Network, disk, console, entropy, balloon, vsock.
        assert_eq!(kinds, [1, 2, 3, 4, 5, 19, 100, 101, 102, 103]);
        assert!(files > 0, "none is a whole file");
    }

    /// All values in `value`, by where they are.
    fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Array(values) => {
                values.iter().enumerate().for_each(|(index, value)| pointers(value, &format!("{at}/{index}"), all));
            }
            Value::Object(fields) => {
                fields.iter().for_each(|(name, value)| pointers(value, &format!("{at}/{name}"), all));
            }
            _ => {}
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<u8>().prop_map(u64::from),
            any::<u16>().prop_map(u64::from),
            any::<u32>().prop_map(u64::from),
            any::<u64>(),
            prop::sample::select(&[0, 1, 15, 16, 0x1000, 0x2000, 1 << 32, u64::MAX][..]),
        ];
        prop_oneof![
            8 => number.prop_map(Value::from),
            1 => any::<bool>().prop_map(Value::from),
            1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::from),
            1 => prop::sample::select(vec![json!(null), json!("nothing"), json!([]), json!({})]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn no_bytes_break_a_restore(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            exercise(&bytes, &disk()).unwrap();
        }

        #[test]
        fn no_state_breaks_a_restore(
            seed in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 0..4),
            program in prop::collection::vec(any::<u8>(), 0..512),
        ) {
            let states: Vec<Value> = seeds().iter().filter_map(|(_, bytes)| serde_json::from_slice(bytes).ok()).collect();
            let mut state = seed.get(&states).clone();
            let mut places = Vec::new();
            pointers(&state, "", &mut places);
            for (place, value) in changes {
                if let Some(there) = state.pointer_mut(place.get(places.as_slice()).as_str()) {
                    *there = value;
                }
            }
            let bytes = [state.to_string().as_bytes(), &[0], &program].concat();
            exercise(&bytes, &disk()).unwrap();
        }
    }
}
