// SPDX-License-Identifier: Apache-2.0
//! VMs that come and go in one process. Their guest is a loop of two instructions, which any KVM that opens can run.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use flatboot::vm;
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, RulesetAttr};
use libtest_mimic::Failed;
use rustix::io::FdFlags;
use serde_json::{Value, json};

use super::server::Server;
use super::times::times;
use super::{Test, images, require};

/// `mov dx, 0x3f8; mov al, 'R'; 1: out dx, al; jmp 1b`
const WRITER: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xfd];

pub(crate) fn tests() -> Vec<Test> {
    let missing = || vm::open_kvm().err().map(|error| error.to_string());
    vec![
        ("life::created_and_deleted_leaves_nothing", created, None),
        ("life::a_whole_life", life, missing()),
        ("life::lives_leave_nothing", lives, missing()),
        ("life::run_serves_too", run, missing()),
        ("life::a_server_takes_the_networks_of_others", networks, missing()),
    ]
}

fn vm(server: &Server) -> String {
    let path = |name: &str| server.directory.path().join(name);
    let mut image = images::vmlinux();
    image[0x100..][..WRITER.len()].copy_from_slice(WRITER);
    fs::write(path("kernel"), image).unwrap();
    fs::write(path("disk"), [0; 4096]).unwrap();
    json!({
        "payload": {"kernel": path("kernel")}, "cpus": {"boot_vcpus": 2, "max_vcpus": 2},
        "memory": {"size": 64 << 20}, "disks": [{"path": path("disk")}],
        "serial": {"mode": "File", "file": path("console")}, "console": {"mode": "Off"},
        // Away from the VM's threads, and not from whoever starts the next one.
        "landlock_enable": has_landlock(),
        "vsock": {"cid": 3, "socket": path("vsock")},
    })
    .to_string()
}

/// Whether this host's kernel takes rules at all.
fn has_landlock() -> bool {
    let rules = landlock::Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules.handle_access(AccessFs::from_all(ABI::V1)).and_then(landlock::Ruleset::create).is_ok()
}

fn put(server: &Server, name: &str, body: &str) -> Result<(), Failed> {
    let (status, text) = server.ask("PUT", name, body);
    require(status == 204, || format!("{name}: {status} {text}"))
}

fn state(server: &Server) -> Value {
    server.info()["state"].clone()
}

fn created() -> Result<(), Failed> {
    let mut server = Server::start();
    let vm = vm(&server);
    let cycle = |server: &Server| put(server, "vm.create", &vm).and_then(|()| put(server, "vm.delete", ""));
    cycle(&server)?;
    let before = server.usage();
    for _ in 0..times(50)? {
        cycle(&server)?;
    }
    server.is_back_at(&before);
    Ok(())
}

/// Waits until the guest has written more than it had.
fn goes_on(server: &mut Server) {
    let written = |server: &Server| fs::metadata(server.directory.path().join("console")).map_or(0, |file| file.len());
    let before = written(server);
    server.wait_for("the guest writes nothing", |server| written(server) > before);
}

/// The file grows, and nothing that would lose something is done.
fn resize(server: &Server) -> Result<(), Failed> {
    let resize = |id: &str, size: u64| {
        let (status, text) = server.ask("PUT", "vm.resize-disk", &json!({"id": id, "desired_size": size}).to_string());
        let length = fs::metadata(server.directory.path().join("disk")).map_or(0, |file| file.len());
        (status, text, length)
    };
    for (id, size, expected, words) in [
        ("_disk0", 8192, 204, ""),
        ("_disk0", 8192, 204, ""),
        ("_disk0", 4096, 400, "desired_size=4096: must be at least 8192"),
        ("_disk0", 8193, 400, "desired_size=8193: must be a multiple of 512"),
        ("_disk1", 8192, 404, "there is no disk with id=_disk1"),
        ("_rng", 8192, 404, "there is no disk with id=_rng"),
    ] {
        let (status, text, length) = resize(id, size);
        require(status == expected && text.contains(words) && length == 8192, || {
            format!("{id} {size}: {status} {text} {length}")
        })?;
    }
    let (status, text) = server.ask("PUT", "vm.resize-disk", r#"{"id": "_disk0"}"#);
    require(status == 400 && text.contains("missing field `desired_size`"), || format!("{status} {text}"))
}

fn life() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    let vm = vm(&server);
    put(&server, "vm.create", &vm)?;
    put(&server, "vm.boot", "")?;
    require(state(&server) == "Running", || server.info().to_string())?;
    goes_on(&mut server);
    for name in ["vm.boot", "vm.resume", "vm.add-disk", "vm.remove-device"] {
        let body = if name == "vm.add-disk" { r#"{"path": "/d"}"# } else { r#"{"id": "_disk0"}"# };
        let (status, text) = server.ask("PUT", name, body);
        require(status == 405 && text.contains("the VM is running: must be"), || format!("{name} {status} {text}"))?;
    }
    resize(&server)?;
    put(&server, "vm.pause", "")?;
    let (status, text) = server.ask("PUT", "vm.resize-disk", r#"{"id": "_disk0", "desired_size": 12288}"#);
    require(status == 405 && text.contains("the VM is paused: must be running"), || format!("{status} {text}"))?;
    require(state(&server) == "Paused", || server.info().to_string())?;
    let counters: Value = serde_json::from_str(&server.ask("GET", "vm.counters", "").1)?;
    let said = counters["_serial"]["write_bytes"].as_u64() > Some(0) && counters["_rng"]["errors"] == 0;
    require(said && counters["_disk0"]["read_bytes"] == 0, || counters.to_string())?;
    put(&server, "vm.resume", "")?;
    goes_on(&mut server);
    put(&server, "vm.power-button", "")?;
    put(&server, "vm.reboot", "")?;
    goes_on(&mut server);
    put(&server, "vm.shutdown", "")?;
    require(state(&server) == "Shutdown", || server.info().to_string())?;
    put(&server, "vm.boot", "")?;
    goes_on(&mut server);
    put(&server, "vm.delete", "")?;
    put(&server, "vmm.shutdown", "")?;
    let directory = std::mem::replace(&mut server.directory, tempfile::tempdir()?);
    let (status, said) = server.ended();
    require(status.success() && said.is_empty(), || format!("{status} {said}"))?;
    let text = fs::read_to_string(directory.path().join("events"))?;
    let events = serde_json::Deserializer::from_str(&text).into_iter::<Value>().collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let expected = "starting booting booted pausing paused resuming resumed rebooting shutdown booting booted rebooted \
                    shutdown booting booted shutdown deleted shutdown";
    require(names.join(" ") == expected, || names.join(" "))
}

/// A jailed server starts no program, and uses one's socket that it was started with.
fn networks() -> Result<(), Failed> {
    let (ours, theirs) = UnixStream::pair()?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut server = Server::start();
    let with = |server: &Server, net: Value| -> Result<String, Failed> {
        let mut vm: Value = serde_json::from_str(&vm(server))?;
        vm["net"] = json!([net]);
        Ok(vm.to_string())
    };
    put(&server, "vm.create", &with(&server, json!({"passt": true}))?)?;
    let (status, said) = server.ask("PUT", "vm.boot", "");
    let line = "passt: a server starts no program: must be fd of a socket to one that runs";
    require(status == 500 && said.contains(line), || format!("{status} {said}"))?;
    put(&server, "vm.delete", "")?;
    put(&server, "vm.create", &with(&server, json!({"fds": [theirs.as_raw_fd()]}))?)?;
    put(&server, "vm.boot", "")?;
    goes_on(&mut server);
    put(&server, "vm.delete", "")?;
    drop(ours);
    put(&server, "vmm.shutdown", "")
}

fn lives() -> Result<(), Failed> {
    let mut server = Server::start();
    let vm = vm(&server);
    let cycle = |server: &mut Server| -> Result<(), Failed> {
        put(server, "vm.create", &vm)?;
        put(server, "vm.boot", "")?;
        put(server, "vm.shutdown", "")?;
        put(server, "vm.delete", "")
    };
    for _ in 0..5 {
        cycle(&mut server)?;
    }
    let before = server.usage();
    for _ in 0..times(50)? {
        cycle(&mut server)?;
    }
    server.is_back_at(&before);
    Ok(())
}

fn run() -> Result<(), Failed> {
    let files = Server::start();
    vm(&files);
    let (kernel, disk) = (files.directory.path().join("kernel"), files.directory.path().join("disk"));
    let disk = format!("path={}", disk.display());
    let kernel = kernel.display().to_string();
    let options = ["run", "--kernel", &kernel, "--memory", "size=64M", "--serial", "null", "--disk", &disk];
    let mut server = Server::with(&options);
    server.wait_for("it does not run", |server| state(server) == "Running");
    put(&server, "vm.pause", "")?;
    put(&server, "vm.resume", "")?;
    put(&server, "vmm.shutdown", "")?;
    let (status, said) = server.ended();
    require(status.success() && said.is_empty(), || format!("{status} {said}"))
}
