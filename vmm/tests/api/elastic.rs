// SPDX-License-Identifier: Apache-2.0
//! Memory that grows and shrinks while a guest runs. The guests are loops of a few instructions that use the memory device, or abuse
//! it; any KVM that opens can run them.

use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use flatboot::vm;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::server::Server;
use super::{Test, images, require};

const MIB: u64 = 1 << 20;
/// What the guests start with,
const SIZE: u64 = 64 * MIB;
/// and the most that they can have: held memory begins at 4 GiB.
const MAX: u64 = SIZE + 1024 * MIB;

/// A driver. It maps what is at 4 GiB, and then for ever: waits for `event` and acknowledges it; reads `wanted`; looks whether the first
/// word of each section that is new is 0, and writes to it; writes `owned` and `outcome` 0. If a word is not 0, it writes `B` to the
/// serial port and halts.
///
/// ```asm
///     mov ebx, 0xd0010000; mov edi, 0x200000; mov rax, 0x100000083
/// 1:  mov [rdi], rax; add rax, 0x200000; add edi, 8; cmp edi, 0x201000; jb 1b
///     mov dword ptr [0xa020], 0x200003; xor r8d, r8d
/// 2:  pause; cmp dword ptr [rbx + 0x28], 0; je 2b
///     mov dword ptr [rbx + 0x28], 1; mov r9, [rbx + 0x10]; mov r10, r8
/// 3:  cmp r10, r9; jae 4f; mov r11, 0x100000000; cmp qword ptr [r11 + r10], 0; jne 5f
///     mov [r11 + r10], rbx; add r10, 0x8000000; jmp 3b
/// 4:  mov r8, r9; mov [rbx + 0x18], r8; mov dword ptr [rbx + 0x20], 0; jmp 2b
/// 5:  mov dx, 0x3f8; mov al, 'B'; out dx, al; hlt
/// ```
#[rustfmt::skip]
const DRIVER: &[u8] = &[0xbb, 0x00, 0x00, 0x01, 0xd0, 0xbf, 0x00, 0x00, 0x20, 0x00, 0x48, 0xb8, 0x83, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x48, 0x89, 0x07, 0x48, 0x05, 0x00, 0x00, 0x20, 0x00, 0x83, 0xc7, 0x08, 0x81, 0xff, 0x00, 0x10, 0x20, 0x00, 0x72, 0xec, 0xc7, 0x04, 0x25, 0x20, 0xa0, 0x00, 0x00, 0x03, 0x00, 0x20, 0x00, 0x45, 0x31, 0xc0, 0xf3, 0x90, 0x83, 0x7b, 0x28, 0x00, 0x74, 0xf8, 0xc7, 0x43, 0x28, 0x01, 0x00, 0x00, 0x00, 0x4c, 0x8b, 0x4b, 0x10, 0x4d, 0x89, 0xc2, 0x4d, 0x39, 0xca, 0x73, 0x1e, 0x49, 0xbb, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x4b, 0x83, 0x3c, 0x13, 0x00, 0x75, 0x1d, 0x4b, 0x89, 0x1c, 0x13, 0x49, 0x81, 0xc2, 0x00, 0x00, 0x00, 0x08, 0xeb, 0xdd, 0x4d, 0x89, 0xc8, 0x4c, 0x89, 0x43, 0x18, 0xc7, 0x43, 0x20, 0x00, 0x00, 0x00, 0x00, 0xeb, 0xb7, 0x66, 0xba, 0xf8, 0x03, 0xb0, 0x42, 0xee, 0xf4];

/// Owns one section, whatever is wanted, and says that it could not do more.
///
/// ```asm
///     mov ebx, 0xd0010000; mov eax, 0x8000000
/// 2:  pause; cmp dword ptr [rbx + 0x28], 0; je 2b
///     mov dword ptr [rbx + 0x28], 1; mov r9, [rbx + 0x10]
///     mov [rbx + 0x18], rax; mov dword ptr [rbx + 0x20], 1; jmp 2b
/// ```
#[rustfmt::skip]
const PARTIAL: &[u8] = &[0xbb, 0x00, 0x00, 0x01, 0xd0, 0xb8, 0x00, 0x00, 0x00, 0x08, 0xf3, 0x90, 0x83, 0x7b, 0x28, 0x00, 0x74, 0xf8, 0xc7, 0x43, 0x28, 0x01, 0x00, 0x00, 0x00, 0x4c, 0x8b, 0x4b, 0x10, 0x48, 0x89, 0x43, 0x18, 0xc7, 0x43, 0x20, 0x01, 0x00, 0x00, 0x00, 0xeb, 0xe0];

/// Says that it owns what nobody has given it, and uses it; that must read as nothing. Then it does what a driver does, once, gives
/// back all but one section, and goes on using what it gave back.
///
/// ```asm
///     mov ebx, 0xd0010000; mov edi, 0x200000; mov rax, 0x100000083
/// 1:  mov [rdi], rax; add rax, 0x200000; add edi, 8; cmp edi, 0x201000; jb 1b
///     mov dword ptr [0xa020], 0x200003
///     mov edi, 0x8000000; mov [rbx + 0x18], rdi; mov dword ptr [rbx + 0x20], 1
///     mov r11, 0x100000000; mov [r11], rbx; cmp qword ptr [r11], -1; jne 5f
/// 2:  pause; cmp dword ptr [rbx + 0x28], 0; je 2b
///     mov dword ptr [rbx + 0x28], 1; mov r9, [rbx + 0x10]; mov [rbx + 0x18], r9; mov dword ptr [rbx + 0x20], 0
///     mov [r11], rbx; mov [rbx + 0x18], rdi
/// 3:  mov [r11 + rdi], rbx; pause; jmp 3b
/// 5:  mov dx, 0x3f8; mov al, 'B'; out dx, al; hlt
/// ```
#[rustfmt::skip]
const HOSTILE: &[u8] = &[0xbb, 0x00, 0x00, 0x01, 0xd0, 0xbf, 0x00, 0x00, 0x20, 0x00, 0x48, 0xb8, 0x83, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x48, 0x89, 0x07, 0x48, 0x05, 0x00, 0x00, 0x20, 0x00, 0x83, 0xc7, 0x08, 0x81, 0xff, 0x00, 0x10, 0x20, 0x00, 0x72, 0xec, 0xc7, 0x04, 0x25, 0x20, 0xa0, 0x00, 0x00, 0x03, 0x00, 0x20, 0x00, 0xbf, 0x00, 0x00, 0x00, 0x08, 0x48, 0x89, 0x7b, 0x18, 0xc7, 0x43, 0x20, 0x01, 0x00, 0x00, 0x00, 0x49, 0xbb, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x49, 0x89, 0x1b, 0x49, 0x83, 0x3b, 0xff, 0x75, 0x2d, 0xf3, 0x90, 0x83, 0x7b, 0x28, 0x00, 0x74, 0xf8, 0xc7, 0x43, 0x28, 0x01, 0x00, 0x00, 0x00, 0x4c, 0x8b, 0x4b, 0x10, 0x4c, 0x89, 0x4b, 0x18, 0xc7, 0x43, 0x20, 0x00, 0x00, 0x00, 0x00, 0x49, 0x89, 0x1b, 0x48, 0x89, 0x7b, 0x18, 0x49, 0x89, 0x1c, 0x3b, 0xf3, 0x90, 0xeb, 0xf8, 0x66, 0xba, 0xf8, 0x03, 0xb0, 0x42, 0xee, 0xf4];

/// Does nothing: `1: pause; jmp 1b`
const IDLE: &[u8] = &[0xf3, 0x90, 0xeb, 0xfc];

pub(crate) fn tests() -> Vec<Test> {
    let missing = || vm::open_kvm().err().map(|error| error.to_string());
    vec![
        ("elastic::what_cannot_be_is_refused", refused, None),
        ("elastic::a_guest_grows_and_shrinks", grows, missing()),
        ("elastic::what_a_guest_could_not_do_is_said_exactly", partial, missing()),
        ("elastic::a_guest_without_a_driver_holds_nobody_up", no_driver, missing()),
        ("elastic::a_hostile_guest_gets_nothing", hostile, missing()),
        ("elastic::a_snapshot_goes_on_in_another_size", snapshot, missing()),
    ]
}

/// Writes a kernel that is `program`. A VM that starts with it.
fn vm(server: &Server, program: &[u8]) -> String {
    let path = |name: &str| server.directory.path().join(name);
    fs::write(path("kernel"), images::vmlinux_of(program)).unwrap();
    json!({
        "payload": {"kernel": path("kernel")}, "memory": {"size": SIZE, "max": MAX},
        "serial": {"mode": "File", "file": path("console")}, "console": {"mode": "Off"},
    })
    .to_string()
}

fn put(server: &Server, name: &str, body: &str) -> Result<(), Failed> {
    let (status, text) = server.ask("PUT", name, body);
    require(status == 204, || format!("{name}: {status} {text}"))
}

fn start(server: &Server, program: &[u8]) -> Result<(), Failed> {
    put(server, "vm.create", &vm(server, program))?;
    put(server, "vm.boot", "")
}

/// Has the guest have so much more than it started with.
fn resize(server: &Server, more: u64) -> (u16, String) {
    server.ask("PUT", "vm.resize", &json!({"desired_ram": SIZE + more * MIB}).to_string())
}

fn resized(server: &Server, more: u64) -> Result<(), Failed> {
    has(server, more, resize(server, more))
}

/// The answer says that the guest has it, and it does.
fn has(server: &Server, more: u64, (status, text): (u16, String)) -> Result<(), Failed> {
    require(status == 204, || format!("{more} MiB more: {status} {text}"))?;
    let is = server.info()["memory_actual_size"].clone();
    require(is == SIZE + more * MIB, || format!("{more} MiB more are {is} bytes"))
}

fn counters(server: &Server) -> Value {
    let all: Value = serde_json::from_str(&server.ask("GET", "vm.counters", "").1).unwrap_or_default();
    all["_memory"].clone()
}

/// What the guest has found wrong.
fn no_complaint(server: &Server) -> Result<(), Failed> {
    let said = fs::read_to_string(server.directory.path().join("console")).unwrap_or_default();
    require(said.is_empty(), || format!("the guest has found memory that is not as it must be: {said}"))
}

fn refused() -> Result<(), Failed> {
    let server = Server::start();
    put(&server, "vm.create", &vm(&server, IDLE))?;
    for (more, expected, words) in [
        (128, 405, "the VM is created: must be running"),
        (1, 400, "desired_ram=68157440: must be 67108864 to 1140850688, and 67108864 plus a multiple of 134217728"),
        (2048, 400, "desired_ram=2214592512: must be 67108864 to 1140850688"),
    ] {
        let (status, said) = resize(&server, more);
        require(status == expected && said.contains(words), || format!("{more}: {status} {said}"))?;
    }
    put(&server, "vm.resize", &json!({ "desired_ram": SIZE }).to_string())?;
    require(server.info()["memory_actual_size"] == SIZE, || server.info().to_string())?;
    require(server.info()["config"]["memory"]["max"] == MAX, || server.info().to_string())
}

fn grows() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    start(&server, DRIVER)?;
    // More and less, all of it, and none. What is there again is zero again.
    for more in [512, 512, 128, 256, 1024, 640, 0, 1024, 0] {
        resized(&server, more)?;
        no_complaint(&server)?;
    }
    let counted = counters(&server);
    let expected = json!({
        "max_bytes": MAX - SIZE, "wanted_bytes": 0, "owned_bytes": 0, "requests": 8, "errors": 0,
    });
    require(counted == expected, || counted.to_string())?;
    put(&server, "vm.pause", "")?;
    let (status, said) = resize(&server, 128);
    require(status == 405 && said.contains("the VM is paused: must be running"), || format!("{status} {said}"))?;
    put(&server, "vm.resume", "")?;
    resized(&server, 128)?;
    // It starts with what it is made with.
    put(&server, "vm.reboot", "")?;
    require(server.info()["memory_actual_size"] == SIZE, || server.info().to_string())?;
    resized(&server, 256)?;
    no_complaint(&server)?;
    // A thread of its own writes them.
    let path = server.directory.path().join("events");
    let count = |event: &str| fs::read_to_string(&path).unwrap_or_default().matches(&format!("\"{event}\"")).count();
    server.wait_for("no event", |_| count("resized") == 10);
    require(count("resizing") == 10 && count("resize-failed") == 0, || fs::read_to_string(&path).unwrap_or_default())?;
    put(&server, "vmm.shutdown", "")
}

fn partial() -> Result<(), Failed> {
    let mut server = Server::with(&["--event-monitor", "path=events"]);
    start(&server, PARTIAL)?;
    let (status, said) = resize(&server, 512);
    let words = "desired_ram=603979776: the guest could not do all of it: it has 201326592 bytes of memory now";
    require(status == 500 && said.contains(words), || format!("{status} {said}"))?;
    require(counters(&server)["wanted_bytes"] == 128 * MIB, || counters(&server).to_string())?;
    resized(&server, 128)?;
    let (status, said) = resize(&server, 0);
    let words = "desired_ram=67108864: the guest could not do all of it: it has 201326592 bytes of memory now";
    require(status == 500 && said.contains(words), || format!("{status} {said}"))?;
    // What the guest refused is no size that it has come to have.
    let path = server.directory.path().join("events");
    let events = || fs::read_to_string(&path).unwrap_or_default();
    server.wait_for("no event", |_| events().matches("\"resize-failed\"").count() == 2);
    require(events().contains(words) && !events().contains("\"resized\""), events)?;
    put(&server, "vmm.shutdown", "")
}

/// Whoever asks waits, and nobody else does.
fn no_driver() -> Result<(), Failed> {
    let server = Server::start();
    start(&server, IDLE)?;
    let (sender, answer) = channel();
    thread::scope(|scope| -> Result<(), Failed> {
        let (server, begin) = (&server, Instant::now());
        scope.spawn(move || sender.send(resize(server, 128)));
        while answer.try_recv().is_err() {
            require(begin.elapsed() < Duration::from_secs(50), || "no answer".to_owned())?;
            let asked = Instant::now();
            require(server.info()["memory_actual_size"] == SIZE, || server.info().to_string())?;
            require(asked.elapsed() < Duration::from_secs(5), || format!("{:?}", asked.elapsed()))?;
            if counters(server)["requests"] == 1 {
                break;
            }
        }
        let (status, said) = resize(server, 256);
        let busy = "the guest is still at work on desired_ram=201326592: that must be over before";
        require(status == 409 && said.contains(busy), || format!("{status} {said}"))?;
        put(server, "vm.pause", "")?;
        put(server, "vm.resume", "")?;
        let (status, said) = answer.recv_timeout(Duration::from_secs(50))?;
        let words =
            "no driver of the guest has looked at its memory device within 10 s, and one still may: it has 67108864";
        require(status == 500 && said.contains(words), || format!("{status} {said}"))
    })?;
    // Whoever waits for a VM that ends hears that.
    let (sender, answer) = channel();
    thread::scope(|scope| -> Result<(), Failed> {
        let server = &server;
        scope.spawn(move || sender.send(resize(server, 256)));
        let begin = Instant::now();
        while counters(server)["wanted_bytes"] != 256 * MIB {
            require(begin.elapsed() < Duration::from_secs(9), || "not asked".to_owned())?;
        }
        put(server, "vm.shutdown", "")?;
        let (status, said) = answer.recv_timeout(Duration::from_secs(50))?;
        let words = "the VM has ended before the guest had done it";
        require(status == 500 && said.contains(words), || format!("{status} {said}"))
    })?;
    put(&server, "vmm.shutdown", "")
}

fn hostile() -> Result<(), Failed> {
    let mut server = Server::start();
    start(&server, HOSTILE)?;
    server.wait_for("nothing is counted", |server| counters(server)["errors"] == 2);
    require(server.info()["memory_actual_size"] == SIZE, || server.info().to_string())?;
    let (status, said) = resize(&server, 256);
    require(status == 204, || format!("{status} {said}"))?;
    // What it uses of what it gave back is behind a slot of which it owns a part. KVM ends it there, or has it access what nobody
    // answers for, if it emulates the instruction.
    let resident = |server: &Server| server.usage().resident_kib;
    let before = resident(&server);
    let lost = |server: &Server| -> u64 {
        let all: Value = serde_json::from_str(&server.ask("GET", "vm.counters", "").1).unwrap_or_default();
        all["vcpu"]["mmio_write"].as_u64().unwrap_or_default()
    };
    // One that ends, ends at once.
    thread::sleep(Duration::from_secs(1));
    let begin = Instant::now();
    while !server.is_over() && UnixStream::connect(server.socket()).is_ok() {
        if lost(&server) > 1000 {
            require(counters(&server)["owned_bytes"] == 128 * MIB, || counters(&server).to_string())?;
            let after = resident(&server);
            require(after < before + 16 * 1024, || format!("{before} KiB were {after} KiB"))?;
            no_complaint(&server)?;
            return put(&server, "vmm.shutdown", "");
        }
        require(begin.elapsed() < Duration::from_secs(50), || "the guest neither ends nor gets nothing".to_owned())?;
    }
    let directory = std::mem::replace(&mut server.directory, tempfile::tempdir()?);
    let (status, said) = server.ended();
    let line = "the host could not back a page of guest memory";
    require(!status.success() && said.contains(line), || format!("{status} {said}"))?;
    let console = fs::read_to_string(directory.path().join("console"))?;
    require(console.is_empty(), || format!("the guest has read what is not its own: {console}"))
}

fn snapshot() -> Result<(), Failed> {
    let server = Server::start();
    start(&server, DRIVER)?;
    resized(&server, 512)?;
    put(&server, "vm.pause", "")?;
    let url = format!("file://{}", server.directory.path().join("snapshot").display());
    put(&server, "vm.snapshot", &json!({ "destination_url": url }).to_string())?;
    put(&server, "vm.delete", "")?;
    let length = fs::metadata(server.directory.path().join("snapshot/memory"))?.len();
    require(length == SIZE + 512 * MIB + 4096, || format!("{length} bytes"))?;
    let restored = |url: &str, size: Option<u64>, resume: bool| {
        let mut body = json!({"source_url": url, "resume": resume});
        if let Some(size) = size {
            body["config"] = json!({"memory": {"size": size}});
        }
        server.ask("PUT", "vm.restore", &body.to_string())
    };
    let restore = |size: Option<u64>| restored(&url, size, true);
    let comes_to_have = |more: u64| {
        let begin = Instant::now();
        while server.info()["memory_actual_size"] != SIZE + more * MIB {
            require(begin.elapsed() < Duration::from_secs(50), || format!("{more}: {}", server.info()))?;
        }
        no_complaint(&server)
    };
    for (size, words) in [
        (SIZE + 1, "memory.size=67108865: must be 64M to 1088M, and 64M plus a multiple of 128M"),
        (MAX + 128 * MIB, "memory.size=1216M: must be 64M to 1088M"),
    ] {
        let (status, said) = restore(Some(size));
        require(status == 400 && said.contains(words), || format!("{status} {said}"))?;
    }
    for more in [None, Some(1024), Some(0), Some(512)] {
        let (status, said) = restore(more.map(|more| SIZE + more * MIB));
        require(status == 204, || format!("{more:?}: {status} {said}"))?;
        comes_to_have(more.unwrap_or(512))?;
        // A guest has its memory a moment before it says that it is done.
        let begin = Instant::now();
        let mut answer = resize(&server, 128);
        while answer.0 == 409 && begin.elapsed() < Duration::from_secs(50) {
            thread::sleep(Duration::from_millis(1));
            answer = resize(&server, 128);
        }
        has(&server, 128, answer)?;
        resized(&server, 1024)?;
        no_complaint(&server)?;
        require(counters(&server)["errors"] == 0, || counters(&server).to_string())?;
        put(&server, "vm.delete", "")?;
    }
    // What it is to have is not forgotten: when it is saved again before it has it, and when it starts anew.
    let again = url.clone() + "-again";
    let (status, said) = restored(&url, Some(SIZE + 1024 * MIB), false);
    require(status == 204, || format!("{status} {said}"))?;
    put(&server, "vm.snapshot", &json!({ "destination_url": again }).to_string())?;
    put(&server, "vm.delete", "")?;
    let (status, said) = restored(&again, None, true);
    require(status == 204, || format!("{status} {said}"))?;
    comes_to_have(1024)?;
    put(&server, "vm.delete", "")?;
    let (status, said) = restore(Some(SIZE + 256 * MIB));
    require(status == 204, || format!("{status} {said}"))?;
    comes_to_have(256)?;
    put(&server, "vm.reboot", "")?;
    comes_to_have(256)?;
    // Nor is what it is to have instead.
    put(&server, "vm.shutdown", "")?;
    resized(&server, 0)?;
    put(&server, "vm.boot", "")?;
    resized(&server, 128)?;
    require(counters(&server)["requests"] == 1, || counters(&server).to_string())?;
    put(&server, "vmm.shutdown", "")
}
