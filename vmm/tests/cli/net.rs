// SPDX-License-Identifier: Apache-2.0
//! Taps: those that cannot be had, and one that comes and goes with its VM.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flatboot::devices::virtio::net::Link;
use flatboot::devices::virtio::net::tap::Tap;
use flatboot::inherited;
use flatboot::observe::devices::DeviceCounters;
use libtest_mimic::{Failed, Trial};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::{RUNS, program};
use crate::refusal::{ERROR, Row};

pub(crate) fn rows() -> Vec<Row> {
    let error = |name: &str, arguments: &str, line: &str| Row::new(name, arguments, ERROR, line);
    vec![
        error(
            "a tap that nobody has handed over",
            "run --net fd=200",
            "--net fd=200: was not open when this process was started: must be a tap with IFF_NO_PI and IFF_VNET_HDR, or a connected \
             stream socket, that this process was started with",
        ),
        error(
            "a host without taps",
            "run --net tap=flatboot",
            "--net tap=flatboot: /dev/net/tun is missing: load the tun module",
        )
        .needs(Needs::Devices("true")),
        error(
            "a host without vhost-net",
            "run --net tap=flatboot,vhost=on",
            "--net tap=flatboot: vhost=on: /dev/vhost-net is missing: load the vhost_net module",
        )
        .needs(Needs::Devices("true")),
        error(
            "a vhost-net for others",
            "run --net tap=flatboot,vhost=on",
            "--net tap=flatboot: vhost=on: /dev/vhost-net: no permission: must be readable and writable for this user",
        )
        .needs(Needs::NodesUnprivileged("mknod -m 600 /dev/vhost-net c 10 238")),
        error(
            "an interface that is no tap",
            "run --net tap=lo",
            "--net tap=lo: is another kind of interface: must be a tap with one queue, or not exist",
        )
        .needs(Needs::Taps),
        error(
            "the same with several queues",
            "run --net tap=lo,num_queues=4",
            "--net tap=lo: is another kind of interface: must be a tap with several queues (`ip tuntap add … multi_queue`), or not \
             exist",
        )
        .needs(Needs::Taps),
    ]
}

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    let mut trials: Vec<_> =
        [("a tap comes and goes with its VM", ""), ("the same with a keeper", "--restart-on-reset")]
            .into_iter()
            .map(|(name, options)| {
                Trial::test(name, move || comes_and_goes(options)).with_ignored_flag(host.skips(name, Needs::Taps))
            })
            .collect();
    let name = "a tap that is switched off is no network";
    trials.push(Trial::test(name, is_switched_off).with_ignored_flag(host.skips(name, Needs::Taps)));
    let name = "a tap counts for its guest";
    trials.push(Trial::test(name, counts).with_ignored_flag(host.skips(name, Needs::Taps)));
    let name = "queues of a tap are used or not";
    trials.push(Trial::test(name, has_several_queues).with_ignored_flag(host.skips(name, Needs::Taps)));
    trials
}

/// The host has as many as are used, and no others.
fn has_several_queues() -> Result<(), Failed> {
    let name = format!("fb{}mq", process::id());
    let mut taps = Tap::open(&name, 3)?;
    let queues = || -> Result<usize, Failed> {
        let entries = fs::read_dir(format!("/sys/class/net/{name}/queues"))?;
        Ok(entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count())
    };
    assert_eq!((taps.len(), queues()?), (3, 3));
    assert!(taps.iter().all(|tap| tap.name() == name));
    assert!(Tap::open(&name, 1).is_err(), "it has several");
    let mut last = taps.last_mut().and_then(Link::switch).ok_or("no switch")?;
    last.switch(false)?;
    last.switch(false)?;
    assert_eq!(queues()?, 2);
    last.switch(true)?;
    assert_eq!(queues()?, 3);
    let second = Tap::open(&name, 2).map_err(|error| error.kind()).err();
    assert_eq!(second, Some(ErrorKind::ResourceBusy), "half of the frames would be its");
    // One that a guest has left out of use is the next one's, too.
    last.switch(false)?;
    let copies = taps.iter().map(|tap| inherited::duplicate(tap.incoming()).map(File::from));
    let copies = copies.collect::<Result<Vec<_>, _>>()?;
    drop((taps, last));
    assert_eq!(queues()?, 2);
    let taps = Tap::inherited(copies)?;
    assert_eq!((taps.len(), queues()?), (3, 3));
    Ok(())
}

/// What a guest sends is what the tap receives.
fn counts() -> Result<(), Failed> {
    let name = format!("fb{}st", process::id());
    let mut tap = Tap::open(&name, 1)?.pop().ok_or("no queue")?;
    let statistics = tap.statistics()?;
    tap.up()?;
    // Behind its header, to nobody.
    let mut frame = [0; 12 + 60];
    frame[12..18].fill(0xff);
    for _ in 0..3 {
        tap.send(&frame)?;
    }
    let values = statistics.values();
    assert_eq!((values["tx_frames"], values["tx_bytes"], values["throttled"]), (3, 180, 0), "{values:?}");
    // What it sends itself when it is switched on is the guest's to receive, once that takes it.
    let received = (0..100).map_while(|_| tap.receive(&mut [0; 2000]).ok()).count() as u64;
    assert_eq!(statistics.values()["rx_frames"], received);
    assert_eq!(tap.statistics()?.values()["tx_frames"], 0, "the next guest begins anew");
    drop(tap);
    assert_eq!(statistics.values()["tx_frames"], 0, "it is gone");
    Ok(())
}

/// It is found out by a frame that is lost, and that it is on again is heard.
fn is_switched_off() -> Result<(), Failed> {
    let name = format!("fb{}off", process::id());
    let mut tap = Tap::open(&name, 1)?.pop().ok_or("no queue")?;
    tap.up()?;
    let heard = Epoll::new()?;
    let edge = EpollEvent::new(EventSet::OUT | EventSet::EDGE_TRIGGERED, 0);
    heard.ctl(ControlOperation::Add, tap.outgoing().ok_or("no descriptor")?, edge)?;
    let frame = [0; 12 + 60];
    tap.send(&frame)?;
    let mut events = [EpollEvent::default()];
    assert!(tap.is_up() && heard.wait(0, &mut events)? == 1);
    let set = |state: &str| Command::new("ip").args(["link", "set", &name, state]).status();
    assert!(set("down")?.success());
    assert!(tap.send(&frame).is_err() && !tap.is_up());
    assert!(tap.has_room() && !tap.is_up() && heard.wait(0, &mut events)? == 0);
    assert!(set("up")?.success());
    assert!(heard.wait(60_000, &mut events)? == 1, "nobody has heard");
    assert!(tap.has_room() && tap.is_up());
    tap.send(&frame)?;
    assert!(Command::new("ip").args(["link", "delete", &name]).status()?.success());
    let mut buffer = [0; 2048];
    while tap.receive(&mut buffer).is_ok() {}
    assert!(!tap.is_up(), "it is gone");
    Ok(())
}

/// It is switched on, nobody else can have it, and it goes however the VM ends.
fn comes_and_goes(options: &str) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    let name = format!("fb{}{}", process::id(), options.len());
    let tap = PathBuf::from(format!("/sys/class/net/{name}"));
    for signal in ["TERM", "KILL"] {
        let mut vm = start(directory.path(), &name, options)?;
        wait("the guest runs", || fs::read(directory.path().join("console")).is_ok_and(|said| !said.is_empty()))?;
        let flags = fs::read_to_string(tap.join("flags"))?;
        assert_eq!(flags.trim(), "0x1003", "up, broadcast, multicast");
        assert_eq!(fs::read_to_string(tap.join("mtu"))?.trim(), "9000");
        let second = start(directory.path(), &name, options)?.wait_with_output()?;
        let said = String::from_utf8(second.stderr)?;
        assert!(said.contains(&format!("--net tap={name}: is in use by another process: must be")), "{said}");
        Command::new("kill").args(["-s", signal, &vm.id().to_string()]).status()?;
        vm.wait()?;
        wait("the tap goes", || !tap.exists())?;
        fs::remove_file(directory.path().join("console"))?;
    }
    Ok(())
}

fn start(directory: &Path, tap: &str, options: &str) -> Result<Child, Failed> {
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args("run --kernel kernel --rng off --serial file=console --shutdown-timeout 1".split_whitespace());
    flatboot.args(["--net", &format!("tap={tap},mtu=9000")]).args(options.split_whitespace()).current_dir(directory);
    Ok(flatboot.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
}

pub(crate) fn wait(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failed> {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > Duration::from_secs(60) {
            return Err(format!("{what}: not within a minute").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
