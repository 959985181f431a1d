// SPDX-License-Identifier: Apache-2.0
//! VMs that come and go in one process. Their guest is a loop of two instructions, which any KVM that opens can run.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flatboot::vm;
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, RulesetAttr};
use libtest_mimic::Failed;
use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};

use super::server::{Server, answer};
use super::times::{tell, times};
use super::{Test, images, require};

/// `mov dx, 0x3f8; mov al, 'R'; 1: out dx, al; jmp 1b`
const WRITER: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xfd];

/// `R` to the serial port, then a reset: `mov dx, 0x3f8; mov al, 'R'; out dx, al; mov al, 0xfe; out 0x64, al; hlt`
const RESET: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xb0, 0xfe, 0xe6, 0x64, 0xf4];

pub(crate) fn tests() -> Vec<Test> {
    let missing = || vm::open_kvm().err().map(|error| error.to_string());
    vec![
        ("life::created_and_deleted_leaves_nothing", created, None),
        ("life::a_whole_life", life, missing()),
        ("life::lives_leave_nothing", lives, missing()),
        ("life::resets_leave_nothing", resets, missing()),
        ("life::run_serves_too", run, missing()),
        ("life::what_cannot_reboot_goes_on", reboot_refused, missing()),
        ("life::what_fails_to_reboot_is_over", reboot_fails, missing()),
        ("life::what_does_not_restart_is_over_and_the_server_is_not", restart_fails, missing()),
        ("life::what_does_not_restart_ends_who_was_run_for_it", run_ends, missing()),
        ("life::a_start_counts_from_its_request", zero, missing()),
        ("life::a_console_that_nobody_reads_holds_up_no_vcpu", unread, missing()),
        ("life::a_pipe_that_nobody_reads_outlives_no_vm", unread_pipe, missing()),
        ("life::a_console_grows_to_its_limit", limited, missing()),
        ("life::a_console_at_the_limit_of_files_ends_nothing", file_limit, missing()),
        ("life::a_signal_is_for_the_vm_that_is_there", signals, missing()),
        ("life::a_guest_that_resets_at_once_waits", back_off, missing()),
        ("life::a_server_takes_the_networks_of_others", networks, missing()),
    ]
}

pub(crate) fn vm(server: &Server) -> String {
    let path = |name: &str| server.directory.path().join(name);
    fs::write(path("kernel"), images::vmlinux_of(WRITER)).unwrap();
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

/// A VM whose guest does nothing but reset.
fn resetting(server: &Server) -> String {
    let mut vm: Value = serde_json::from_str(&vm(server)).unwrap();
    fs::write(server.directory.path().join("kernel"), images::vmlinux_of(RESET)).unwrap();
    vm["restart_on_reset"] = json!(true);
    vm.to_string()
}

/// What has happened, without what may still be being written.
fn events(server: &Server) -> Vec<Value> {
    let text = fs::read_to_string(server.directory.path().join("events")).unwrap_or_default();
    serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok).collect()
}

fn state(server: &Server) -> Value {
    server.info()["state"].clone()
}

fn created() -> Result<(), Failed> {
    let mut server = Server::start();
    let vm = vm(&server);
    let cycle = |server: &Server| put(server, "vm.create", &vm).and_then(|()| put(server, "vm.delete", ""));
    cycle(&server)?;
    let (before, times) = (server.usage(), times(50)?);
    for _ in 0..times {
        cycle(&server)?;
    }
    server.is_back_at(&before);
    tell("a VM that is created and deleted", times, &before, &server.usage());
    Ok(())
}

fn counters(server: &Server) -> Value {
    serde_json::from_str(&server.ask("GET", "vm.counters", "").1).unwrap_or_default()
}

/// Waits until the guest has written more than it had.
pub(crate) fn goes_on(server: &mut Server) {
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
    require(status == 400 && text.contains("desired_size: is missing: must be given"), || format!("{status} {text}"))
}

/// By what a guest that only writes to the serial port has done `before`, and since.
fn counted(before: &Value, after: &Value) -> Result<(), Failed> {
    let grows = |of: &str, what: &str| after[of][what].as_u64() > before[of][what].as_u64();
    // A pause interrupts it.
    let exits = grows("vcpu", "port_write") && before["vcpu"]["interrupted"].as_u64() > Some(0);
    let silent = ["port_read", "mmio_read", "mmio_write"].into_iter().all(|exit| after["vcpu"][exit] == 0);
    let faults = before["host"]["faults"].as_u64() > Some(0)
        && after["host"]["faults"].as_u64() >= before["host"]["faults"].as_u64();
    require(exits && silent && faults && grows("_serial", "write_bytes"), || format!("{before}, then {after}"))
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
    let paused = counters(&server);
    let said = paused["_serial"]["write_bytes"].as_u64() > Some(0) && paused["_rng"]["errors"] == 0;
    require(said && paused["_disk0"]["read_bytes"] == 0, || paused.to_string())?;
    put(&server, "vm.resume", "")?;
    goes_on(&mut server);
    counted(&paused, &counters(&server))?;
    put(&server, "vm.power-button", "")?;
    put(&server, "vm.reboot", "")?;
    goes_on(&mut server);
    put(&server, "vm.shutdown", "")?;
    require(state(&server) == "Shutdown", || server.info().to_string())?;
    for (name, expected) in [("vm.resume", 404), ("vm.pause", 405)] {
        let (status, text) = server.ask("PUT", name, "");
        require(status == expected && text.contains("the VM is over: must be"), || format!("{name} {status} {text}"))?;
    }
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

/// Whatever of its files is no good any more: it is said, and the guest does not notice.
fn reboot_refused() -> Result<(), Failed> {
    let mut server = Server::start();
    let (vm, path) = (vm(&server), server.directory.path().to_owned());
    put(&server, "vm.create", &vm)?;
    put(&server, "vm.boot", "")?;
    goes_on(&mut server);
    for (name, bad, line) in [
        ("kernel", None, "payload.kernel={}: there is no such file: must exist"),
        ("kernel", Some(b"no kernel".as_slice()), "kernel {}: truncated: setup header ends"),
        ("disk", Some(b"short"), "disks[0].path={}: has 5 bytes: must be a multiple of 512"),
    ] {
        let file = path.join(name);
        let good = fs::read(&file)?;
        fs::rename(&file, path.join("aside"))?;
        bad.map_or(Ok(()), |bad| fs::write(&file, bad))?;
        let (status, said) = server.ask("PUT", "vm.reboot", "");
        let line = line.replace("{}", &file.display().to_string());
        require(status == 500 && said.contains(&line), || format!("{name}: {status} {said}"))?;
        require(state(&server) == "Running", || server.info().to_string())?;
        goes_on(&mut server);
        fs::rename(path.join("aside"), &file)?;
        require(fs::read(&file)? == good, || format!("{name} is another one"))?;
    }
    // What the VM that runs has itself is in nobody's way.
    put(&server, "vm.pause", "")?;
    put(&server, "vm.reboot", "")?;
    goes_on(&mut server);
    put(&server, "vmm.shutdown", "")
}

/// What is seen only when the VM has ended: its socket's place is taken by then.
fn reboot_fails() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    let (vm, path) = (vm(&server), server.directory.path().to_owned());
    put(&server, "vm.create", &vm)?;
    put(&server, "vm.boot", "")?;
    goes_on(&mut server);
    fs::rename(path.join("vsock"), path.join("aside"))?;
    fs::write(path.join("vsock"), "somebody else's")?;
    let (status, said) = server.ask("PUT", "vm.reboot", "");
    require(status == 500 && said.contains("is there and no socket: must not exist"), || format!("{status} {said}"))?;
    require(state(&server) == "Shutdown", || server.info().to_string())?;
    let why = "it does not start again: vsock.socket=";
    server.wait_for("nobody is told", |server| {
        let last = events(server).pop().unwrap_or_default();
        last["event"] == "shutdown" && last["properties"]["reason"].as_str().is_some_and(|said| said.starts_with(why))
    });
    require(fs::read(path.join("vsock"))? == b"somebody else's", || "it is not there any more".to_owned())?;
    fs::remove_file(path.join("vsock"))?;
    put(&server, "vm.boot", "")?;
    goes_on(&mut server);
    put(&server, "vmm.shutdown", "")
}

fn restart_fails() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    let (vm, path) = (resetting(&server), server.directory.path().to_owned());
    put(&server, "vm.create", &vm)?;
    put(&server, "vm.boot", "")?;
    fs::rename(path.join("kernel"), path.join("aside"))?;
    server.wait_for("it is not over", |server| state(server) == "Shutdown");
    let last = |server: &Server| events(server).pop().unwrap_or_default();
    let why =
        format!("it does not start again: payload.kernel={}: there is no such file", path.join("kernel").display());
    server.wait_for("nobody is told", |server| {
        let last = last(server);
        last["event"] == "shutdown" && last["properties"]["reason"].as_str().is_some_and(|said| said.starts_with(&why))
    });
    fs::rename(path.join("aside"), path.join("kernel"))?;
    put(&server, "vm.boot", "")?;
    goes_on(&mut server);
    put(&server, "vm.delete", "")?;
    put(&server, "vmm.shutdown", "")?;
    let (status, said) = server.ended();
    let warned = said.contains("the VM does not start again, and is over: payload.kernel=");
    require(status.success() && warned, || format!("{status} {said}"))
}

/// Whoever watches the process, such as systemd, is to see that there is no VM any more.
fn run_ends() -> Result<(), Failed> {
    let files = Server::start();
    resetting(&files);
    let (kernel, aside) = (files.directory.path().join("kernel"), files.directory.path().join("aside"));
    let path = kernel.display().to_string();
    let options = ["run", "--kernel", &path, "--memory", "size=64M", "--serial", "null", "--restart-on-reset"];
    let mut server = Server::with(&options);
    // Not before: the API answers while the VM's files are still to be opened.
    server.wait_for("it does not run", |server| state(server) == "Running");
    fs::rename(&kernel, aside)?;
    let (status, said) = server.ended();
    let line =
        format!("flatboot: error: the VM does not start again: --kernel {path}: there is no such file: must exist");
    require(status.code() == Some(1) && said.lines().last() == Some(&line), || format!("{status} {said}"))
}

/// What a request waits for behind its head is part of the start, and of no client's.
fn zero() -> Result<(), Failed> {
    const WAIT: Duration = Duration::from_secs(1);
    let server = Server::start();
    let mut vm: Value = serde_json::from_str(&vm(&server))?;
    let timeline = server.directory.path().join("timeline");
    vm["timeline"] = json!(timeline);
    put(&server, "vm.create", &vm.to_string())?;
    let mut stream = server.connect();
    stream.write_all(b"PUT /api/v1/vm.boot HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n")?;
    thread::sleep(WAIT);
    stream.write_all(b"{}")?;
    let (status, said) = answer(&mut stream);
    require(status == 204, || format!("{status} {said}"))?;
    put(&server, "vm.shutdown", "")?;
    let timeline: Value = serde_json::from_slice(&fs::read(timeline)?)?;
    let first = timeline["marks"][0]["ns"].as_u64().map(Duration::from_nanos);
    // A busy host is late to see the request begin; that is not half of what it then waits for.
    require(first >= Some(WAIT / 2) && timeline["zero"] == "request to start the VM", || timeline.to_string())?;
    put(&server, "vmm.shutdown", "")
}

/// Its reader is there and does not read: the guest writes on, and ends when it is to.
fn unread() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    let mut vm: Value = serde_json::from_str(&vm(&server))?;
    let pipe = server.directory.path().join("pipe");
    require(Command::new("mkfifo").arg(&pipe).status()?.success(), || "no pipe".to_owned())?;
    vm["serial"]["file"] = json!(pipe);
    // Opened for both, it waits for nobody.
    let reader = fs::File::options().read(true).write(true).open(&pipe)?;
    put(&server, "vm.create", &vm.to_string())?;
    put(&server, "vm.boot", "")?;
    let dropped = |server: &Server| counters(server)["_serial"]["dropped_bytes"].as_u64().unwrap_or(0);
    server.wait_for("nothing is dropped", |server| dropped(server) > 0);
    let before = dropped(&server);
    server.wait_for("the guest stands still", |server| dropped(server) > before + 1000);
    let taken = counters(&server)["_serial"]["write_bytes"].as_u64().unwrap_or(0);
    require((256 << 10..=1 << 20).contains(&taken), || format!("{taken} bytes were taken"))?;
    let (status, said) = server.ask("PUT", "vm.pause", "");
    let busy = "worker serial-output: a request has not completed within 5 s";
    require(status == 500 && said.contains(busy), || format!("{status} {said}"))?;
    let why = |event: &Value| event["properties"]["reason"].as_str().is_some_and(|why| why.contains(busy));
    server.wait_for("no event", |server| {
        events(server).pop().is_some_and(|last| last["event"] == "pause-failed" && why(&last))
    });
    server.wait_for("the guest does not go on", |server| dropped(server) > before + 2000);
    let begin = Instant::now();
    put(&server, "vm.shutdown", "")?;
    require(begin.elapsed() < Duration::from_secs(10), || format!("{:?}", begin.elapsed()))?;
    put(&server, "vmm.shutdown", "")?;
    let (status, said) = server.ended();
    drop(reader);
    require(status.success() && said.contains("slower than the guest"), || format!("{status} {said}"))
}

/// Also that of the lives before, until the VM is started anew.
fn limited() -> Result<(), Failed> {
    const LIMIT: u64 = 5000;
    let mut server = Server::start();
    let mut vm: Value = serde_json::from_str(&vm(&server))?;
    vm["serial_limit"] = json!(LIMIT);
    put(&server, "vm.create", &vm.to_string())?;
    let size = |server: &Server| fs::metadata(server.directory.path().join("console")).map_or(0, |file| file.len());
    let of = |server: &Server, what: &str| counters(server)["_serial"][what].as_u64().unwrap_or(0);
    for (start, written) in
        [("vm.boot", LIMIT), ("vm.reboot", 0), ("vm.reboot", 0), ("vm.shutdown", 0), ("vm.boot", LIMIT)]
    {
        put(&server, start, "")?;
        if start == "vm.shutdown" {
            continue;
        }
        server.wait_for("it drops nothing", |server| of(server, "dropped_bytes") > 1000);
        server.wait_for("it is not full", |server| size(server) >= LIMIT);
        require(of(&server, "write_bytes") == written, || format!("{start}: {}", counters(&server)))?;
        require(size(&server) == LIMIT, || format!("{start}: {} bytes", size(&server)))?;
    }
    put(&server, "vmm.shutdown", "")
}

/// The host's processors are not all for a guest that does nothing else.
/// Linux would end a process whose file becomes larger than it may (SIGXFSZ).
fn file_limit() -> Result<(), Failed> {
    const LIMIT: u64 = 4096;
    let mut server = Server::start();
    let pid = Pid::from_raw(server.pid().cast_signed());
    prlimit(pid, Resource::Fsize, Rlimit { current: Some(LIMIT), maximum: None })?;
    put(&server, "vm.create", &vm(&server))?;
    put(&server, "vm.boot", "")?;
    let dropped = |server: &Server| counters(server)["_serial"]["dropped_bytes"].as_u64().unwrap_or(0);
    server.wait_for("it never reaches the limit", |server| dropped(server) > LIMIT);
    let console = fs::metadata(server.directory.path().join("console"))?.len();
    require(console == LIMIT && state(&server) == "Running", || format!("{console} bytes"))?;
    put(&server, "vmm.shutdown", "")
}

/// Its guest's vCPU waits for whoever reads standard output, as long as there is the VM.
fn unread_pipe() -> Result<(), Failed> {
    let mut server = Server::writing(&[], Stdio::piped());
    let mut config: Value = serde_json::from_str(&vm(&server))?;
    config["serial"] = json!({"mode": "Null"});
    put(&server, "vm.create", &config.to_string())?;
    put(&server, "vm.boot", "")?;
    put(&server, "vm.delete", "")?;
    let before = server.usage();
    config["serial"] = json!({"mode": "Tty"});
    put(&server, "vm.create", &config.to_string())?;
    for _ in 0..3 {
        put(&server, "vm.boot", "")?;
        let written = |server: &Server| counters(server)["_serial"]["write_bytes"].as_u64().unwrap_or(0);
        let last = Cell::new(0);
        server.wait_for("the pipe is not full", |server| {
            thread::sleep(Duration::from_millis(100));
            let now = written(server);
            last.replace(now) == now
        });
        put(&server, "vm.shutdown", "")?;
        server.is_back_at(&before);
    }
    put(&server, "vmm.shutdown", "")
}

/// The first asks a guest to power off and the second ends it, but not the next VM's.
fn signals() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    let pid = Pid::from_raw(server.pid().cast_signed()).ok_or("no process")?;
    put(&server, "vm.create", &vm(&server))?;
    put(&server, "vm.boot", "")?;
    for _ in 0..2 {
        goes_on(&mut server);
        kill_process(pid, Signal::TERM)?;
        // It is told at once; if it were the second, this VM and its server would be over.
        thread::sleep(Duration::from_millis(500));
        goes_on(&mut server);
        put(&server, "vm.reboot", "")?;
    }
    kill_process(pid, Signal::TERM)?;
    thread::sleep(Duration::from_millis(500));
    kill_process(pid, Signal::TERM)?;
    let (status, said) = server.ended();
    require(status.code() == Some(6) && said.contains("a second signal came"), || format!("{status} {said}"))
}

fn back_off() -> Result<(), Failed> {
    const BACK_OFF: f64 = 0.1;
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    put(&server, "vm.create", &resetting(&server))?;
    put(&server, "vm.boot", "")?;
    let rebooted = |server: &Server| events(server).iter().filter(|event| event["event"] == "rebooted").count();
    server.wait_for("it does not come up again", |server| rebooted(server) > 5);
    let at = |event: &Value| -> Option<f64> {
        Some(event["timestamp"]["secs"].as_f64()? + event["timestamp"]["nanos"].as_f64()? / 1e9)
    };
    let all: Vec<_> = events(&server).iter().map(|event| (event["event"].clone(), at(event).unwrap_or(0.0))).collect();
    let waits = all.windows(2).filter(|pair| pair[0].0 == "shutdown" && pair[1].0 == "rebooting");
    let waits: Vec<_> = waits.map(|pair| pair[1].1 - pair[0].1).collect();
    require(waits.len() >= 5 && waits.iter().all(|wait| *wait >= BACK_OFF), || format!("{waits:?}"))?;
    put(&server, "vmm.shutdown", "")
}

/// The descriptors that a server has opened: each of them is closed by the start of a program.
fn own_descriptors(server: &Server) -> Result<Vec<i32>, Failed> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let mut own = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fdinfo", server.pid()))? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
        if flags & CLOSE_ON_EXEC != 0 {
            own.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    Ok(own)
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
    // What it has opened itself nobody gets by its number.
    let own = own_descriptors(&server)?;
    require(own.len() > 3, || format!("{own:?}"))?;
    for number in own {
        put(&server, "vm.create", &with(&server, json!({"fds": [number]}))?)?;
        let (status, said) = server.ask("PUT", "vm.boot", "");
        let line = format!("fds={number}: was not open when this process was started: must be a tap");
        require(status == 500 && said.contains(&line), || format!("{status} {said}"))?;
        put(&server, "vm.delete", "")?;
    }
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
    let (before, times) = (server.usage(), times(50)?);
    for _ in 0..times {
        cycle(&mut server)?;
    }
    server.is_back_at(&before);
    tell("a VM's life", times, &before, &server.usage());
    Ok(())
}

/// Of a VM that starts again in the same process as often as its guest resets.
fn resets() -> Result<(), Failed> {
    let mut server = Server::start();
    put(&server, "vm.create", &resetting(&server))?;
    put(&server, "vm.boot", "")?;
    let resets = |server: &Server| fs::read(server.directory.path().join("console")).map_or(0, |said| said.len());
    let until = |server: &mut Server, count: usize| {
        while resets(server) < count {
            let before = resets(server);
            server.wait_for("it does not come up again", |server| resets(server) > before);
        }
    };
    until(&mut server, 5);
    let (before, times) = (server.usage(), times(20)?);
    until(&mut server, 5 + usize::try_from(times)?);
    server.is_back_at(&before);
    tell("a VM's reset", times, &before, &server.usage());
    put(&server, "vmm.shutdown", "")
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
