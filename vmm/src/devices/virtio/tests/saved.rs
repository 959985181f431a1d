// SPDX-License-Identifier: Apache-2.0
//! Devices that go on from what others were, and what is no state of one.

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::disk;
use super::driver::{BUFFERS, Driver, QUEUE_SIZE};
use crate::devices::bus::BusDevice;
use crate::devices::virtio::block::Settings;
use crate::devices::virtio::{Balloon, Block, VirtioDevice};
use crate::state::{DeviceState, LaneState, Mismatch, Position, QueueState, VirtioState};

fn block(sectors: u8) -> Box<dyn VirtioDevice> {
    let settings = Settings { readonly: true, queue_size: QUEUE_SIZE, ..Settings::default() };
    Box::new(Block::new(disk(sectors).into_file(), settings).unwrap())
}

fn read(driver: &mut Driver, sector: u64) -> u8 {
    driver.memory.write_obj(u128::from(sector) << 64, GuestAddress(BUFFERS)).unwrap();
    let segments = [(BUFFERS, 16, false), (BUFFERS + 0x100, 512, true), (BUFFERS + 0x800, 1, true)];
    assert_eq!(driver.request(&segments), 513);
    driver.bytes(BUFFERS + 0x100, 1)[0]
}

fn saved(driver: &mut Driver) -> VirtioState {
    match driver.transport.save() {
        Ok(Some(DeviceState::Virtio(state))) => *state,
        other => panic!("{other:?}"),
    }
}

/// The guest's side of `driver`, with another device that was told `state`.
fn moved(driver: Driver, state: VirtioState, device: Box<dyn VirtioDevice>) -> Result<Driver, Mismatch> {
    let mut other = driver.with_device(device);
    other.transport.restore(&DeviceState::Virtio(Box::new(state)))?;
    other.transport.awake();
    Ok(other)
}

#[test]
fn a_disk_goes_on_in_the_midst_of_its_ring() {
    let mut driver = Driver::running(block(8), 0);
    // Around the ring, and a bit.
    for request in 0..u64::from(QUEUE_SIZE) + 5 {
        assert_eq!(u64::from(read(&mut driver, request % 8)), request % 8 + 1);
    }
    let state = saved(&mut driver);
    let position = Some(Position { available: QUEUE_SIZE + 5, used: QUEUE_SIZE + 5 });
    assert_eq!(state.queues[0].position, position);
    let mut driver = moved(driver, state.clone(), block(8)).unwrap();
    assert!(driver.irq.read().is_ok(), "its driver looks for what may have been lost");
    assert_eq!(driver.get(0x70), 15);
    assert_eq!(read(&mut driver, 3), 4);
    let again = saved(&mut driver);
    assert_eq!(again.accepted, state.accepted);
    assert_eq!(again.queues[0].position, Some(Position { available: QUEUE_SIZE + 6, used: QUEUE_SIZE + 6 }));
}

/// What the guest has asked for, and the device has not seen: the notification was on its way.
#[test]
fn a_request_that_nobody_has_seen_is_done() {
    let mut driver = Driver::running(block(8), 0);
    driver.memory.write_obj(2u128 << 64, GuestAddress(BUFFERS)).unwrap();
    driver.chain(0, &[(BUFFERS, 16, false), (BUFFERS + 0x100, 512, true), (BUFFERS + 0x800, 1, true)]);
    driver.offer(0);
    let state = saved(&mut driver);
    let mut driver = moved(driver, state, block(8)).unwrap();
    assert!(driver.serve(), "it is notified");
    driver.settle();
    assert_eq!((driver.used_index(), driver.bytes(BUFFERS + 0x100, 1)[0]), (1, 3));
}

/// What somebody has done to a state.
type Change = fn(&mut VirtioState);

#[test]
fn a_device_that_is_another_one_is_refused() {
    let with = |device: Box<dyn VirtioDevice>, change: Change| {
        let mut driver = Driver::running(block(8), 0);
        let mut state = saved(&mut driver);
        change(&mut state);
        moved(driver, state, device).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(block(8), |_| ()), Ok(()));
    assert_eq!(with(block(9), |_| ()), Err("size is 4608: must be 4096 bytes, as it was".to_owned()));
    let other = with(block(8), |state| state.config[20] = 7).unwrap_err();
    assert!(other.starts_with("configuration is 0x7 at byte 20: must be 0x0 as it is here"), "{other}");
    let balloon = Box::new(Balloon::new(0, false, false));
    assert_eq!(with(balloon, |_| ()), Err("kind of virtio device is 2: must be 5".to_owned()));
    let changes: [(Change, &str); 8] = [
        (|state| state.accepted |= 1 << 60, "accepted features is 0x1000000"),
        (|state| state.queues.push(state.queues[0]), "number of queues is 2: must be 1"),
        (|state| state.queues[0].max_size = 64, "room of a queue is 64: must be 32"),
        (|state| state.queues[0].used = u64::MAX - 7, "queue is 0: must be one inside guest memory"),
        (|state| state.queues[0].size = 3, "queue is 0: must be one inside guest memory"),
        (|state| state.lanes = vec![LaneState::Net { pairs: 1 }], "is another device than the one that was saved"),
        (|state| state.status = 0b111, "status is 7: must be a driver's steps in their order: 0, 1, 3, 11 or 15"),
        (|state| state.status |= 1 << 8, "status is 271: must be "),
    ];
    for (change, expected) in changes {
        let error = with(block(8), change).unwrap_err();
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
}

/// A block device, or a file elsewhere, has other blocks on the host.
#[test]
fn a_disk_goes_on_from_a_file_that_is_read_in_other_blocks() {
    let mut driver = Driver::running(block(8), 0);
    let topology = |driver: &mut Driver| [driver.get(0x118), driver.get(0x11c)];
    let here = topology(&mut driver);
    let mut state = saved(&mut driver);
    // Logarithm, which is the first, and the least that is well done at once: 8 bytes are the topology.
    state.config[24..32].fill(0x0b);
    let mut driver = moved(driver, state, block(8)).unwrap();
    assert_eq!(topology(&mut driver), here, "what is here is said");
    assert_eq!(driver.get(0x60) & 2, 2, "the driver is told that it is another");
    assert_eq!(read(&mut driver, 3), 4);
}

/// What the driver has written is part of it.
#[test]
fn a_balloon_knows_what_it_has() {
    let balloon = || Balloon::new(1 << 20, false, false);
    let first = balloon();
    let mut driver = Driver::running(Box::new(first), 0);
    assert_eq!(driver.transport.write(0x104, &[7, 0, 0, 0]), None);
    let state = saved(&mut driver);
    let second = balloon();
    let control = second.control();
    moved(driver, state, Box::new(second)).unwrap();
    assert_eq!(control.actual(), 7 * 4096);
}

fn queue() -> impl Strategy<Value = QueueState> {
    let address = || prop_oneof![Just(0x1000u64), Just(0x4000), Just(0x6000), 0..0x40_0000u64, any::<u64>()];
    let position = prop::option::of((any::<u16>(), any::<u16>()));
    let sizes = (prop_oneof![Just(QUEUE_SIZE), any::<u16>()], prop_oneof![Just(QUEUE_SIZE), any::<u16>()]);
    (sizes, any::<bool>(), address(), address(), address(), position).prop_map(
        |((max_size, size), ready, descriptors, available, used, position)| {
            let position = position.map(|(available, used)| Position { available, used });
            QueueState { max_size, size, ready, descriptors, available, used, position }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_state_is_harmless(
        queues in prop::collection::vec(queue(), 1..3),
        accepted in prop_oneof![Just(1u64 << 32), Just(1 << 32 | 1 << 29), any::<u64>()],
        status in prop_oneof![Just(15u32), any::<u32>()],
        numbers in any::<[u32; 5]>(),
        needs_reset in any::<bool>(),
        same_config in any::<bool>(),
        memory in prop::collection::vec(any::<u8>(), 0x7000),
    ) {
        let mut driver = Driver::running(block(8), 0);
        let is = saved(&mut driver);
        let [device_features_select, driver_features_select, queue_select, interrupt_status, config_generation] = numbers;
        let config = if same_config { is.config } else { vec![1; 60] };
        let state = VirtioState {
            device_type: is.device_type, accepted, device_features_select, driver_features_select, queue_select,
            status, needs_reset, interrupt_status, config, config_generation, queues, lanes: is.lanes,
        };
        driver.memory.write_slice(&memory, GuestAddress(0x1000)).unwrap();
        if let Ok(mut driver) = moved(driver, state, block(8)) {
            for _ in 0..4 {
                driver.serve();
            }
            driver.settle();
            saved(&mut driver);
            driver.set(0x70, 0);
            driver.settle();
            prop_assert_eq!(driver.get(0x70), 0);
        }
    }
}
