// SPDX-License-Identifier: Apache-2.0
//! Threads that have been taken over: this test binary again, one thread of which enters its jail and then tries to get out.
#![expect(unsafe_code, reason = "a thread that has been taken over keeps to no wrapper")]

use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{env, hint, io, thread};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::memory::{Backing, GpaRange, Slot, guest};

/// Says to this test binary which part to play: a kind and what its thread tries, or something about files.
const ROLE: &str = "FLATBOOT_TEST_JAIL_ROLE";
/// What no list has, besides what `ATTEMPTS` tries: other ways to files, programs, sockets, processes, and the kernel.
const NOWHERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rename,
    libc::SYS_renameat2,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_chroot,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendmsg,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setuid,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_memfd_create,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_prlimit64,
];

/// What a thread tries, and the call that it is caught at.
const ATTEMPTS: [(&str, &str); 11] = [
    ("ring", "io_uring_setup"),
    ("change a ring", "io_uring_register"),
    ("open", "openat"),
    ("exec", "execve"),
    ("connect", "connect"),
    ("socket", "socket"),
    ("ptrace", "ptrace"),
    ("fork", "clone"),
    ("kill", "kill"),
    ("kill another", "tgkill"),
    ("code", "mmap"),
];

/// This test binary again, to run only [`play_a_role`].
fn play(role: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "--test-threads=1", "sandbox::tests::play_a_role"]);
    command.env(ROLE, role).env_remove("RUST_BACKTRACE").output().unwrap()
}

#[test]
fn no_thread_gets_out() {
    for kind in Kind::ALL {
        // A server's owner opens the files of VMs, and vsock's programs are connected to.
        let may: &[&str] = match kind {
            Kind::Owner => &["open", "connect", "ring"],
            Kind::Vsock => &["connect"],
            _ => &[],
        };
        for (attempt, call) in ATTEMPTS.into_iter().filter(|(attempt, _)| !may.contains(attempt)) {
            let output = play(&format!("{kind}:{attempt}"));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = format!("flatboot: error: thread {kind}: made the system call {call}, number ");
            assert!(said.contains(&line), "{kind} {attempt}: {said}");
            assert!(said.starts_with("restored\n"), "{said}");
            assert_eq!(output.status.code(), Some(STATUS), "{kind} {attempt}: {said}");
        }
    }
}

#[test]
fn every_thread_lives_in_its_jail() {
    for kind in Kind::ALL {
        let output = play(&format!("{kind}:live"));
        assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_logged_is_done() {
    let output = play("log");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_are_out_of_reach() {
    let output = play("files");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn no_list_has_a_way_out() {
    for kind in Kind::ALL {
        let ways = lists::of(kind).map(|call| call.0).filter(|call| NOWHERE.contains(call));
        let expected: &[i64] = match kind {
            Kind::Owner => &[
                libc::SYS_openat,
                libc::SYS_unlink,
                libc::SYS_rename,
                libc::SYS_memfd_create,
                libc::SYS_prlimit64,
                libc::SYS_io_uring_setup,
                libc::SYS_io_uring_register,
                libc::SYS_fchmod,
                libc::SYS_bind,
                libc::SYS_listen,
                libc::SYS_accept4,
                libc::SYS_socket,
                libc::SYS_connect,
            ],
            Kind::Vsock => &[libc::SYS_accept4, libc::SYS_socket, libc::SYS_connect],
            Kind::VmmWithSocket | Kind::ServerSignals => &[libc::SYS_unlink],
            Kind::Api | Kind::Console => &[libc::SYS_accept4],
            _ => &[],
        };
        assert_eq!(ways.collect::<Vec<_>>(), expected, "{kind}");
    }
}

/// A server's owner starts them: each has both filters.
#[test]
fn what_an_owner_starts_may_do_what_its_kind_may() {
    let own = [
        Kind::Snapshot,
        Kind::Vcpu,
        Kind::Device,
        Kind::Disk,
        Kind::Vsock,
        Kind::Vhost,
        Kind::Console,
        Kind::SerialInput,
        Kind::SerialOutput,
        Kind::FwCfg,
    ];
    let owner: Vec<_> = lists::of(Kind::Owner).collect();
    for (kind, call) in own.into_iter().flat_map(|kind| lists::of(kind).map(move |call| (kind, call))) {
        let of_kvm = call.0 == libc::SYS_ioctl && kind == Kind::Vcpu;
        let there = |allowed: &lists::Call| {
            let wider = matches!(
                (allowed.1, call.1),
                (lists::When::OneOf(of, all), lists::When::OneOf(at, some))
                    if of == at && some.iter().all(|one| all.contains(one))
            );
            allowed.0 == call.0 && (allowed.1 == lists::When::Always || allowed.1 == call.1 || wider || of_kvm)
        };
        assert!(owner.iter().any(there), "{kind}: {call:?}");
    }
}

#[test]
fn a_kind_is_its_place_in_the_list_of_kinds() {
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index, "{kind}");
        // The kernel goes through them at each call that it has not seen to be always allowed.
        let instructions: usize = filter::compile(kind, Seccomp::True).unwrap().iter().map(Vec::len).sum();
        let most = if kind == Kind::Owner { 1024 } else { 512 };
        assert!(instructions < most, "{kind}: {instructions}");
    }
}

/// A guest can fill a file up to this process's limit, and no more comes of it than of a full disk.
#[test]
fn a_file_at_the_limit_ends_nothing() {
    let output = play("limit");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn limit() {
    let mut file = tempfile::tempfile().unwrap();
    let limit = Rlimit { current: Some(4096), maximum: None };
    setrlimit(Resource::Fsize, limit).unwrap();
    io::Write::write_all(&mut file, &[1; 4096]).unwrap();
    let error = io::Write::write_all(&mut file, &[1]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
}

/// What the kernel does with `program`, a call's number and no arguments: what it answers, and in how many steps.
fn answer(program: &[seccompiler::sock_filter], call: u32) -> (u32, usize) {
    let (mut at, mut loaded, mut steps) = (0, 0, 0);
    loop {
        let step = &program[at];
        (at, steps) = (at + 1, steps + 1);
        match step.code {
            // What it is to load: number, architecture, or a part of an argument.
            0x20 => loaded = [call, 0xc000_003e].get(step.k as usize / 4).copied().unwrap_or(0),
            0x54 => loaded &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += usize::from(if loaded == step.k { step.jt } else { step.jf }),
            0x35 => at += usize::from(if loaded >= step.k { step.jt } else { step.jf }),
            0x06 => return (step.k, steps),
            code => panic!("{code:#x}"),
        }
    }
}

#[test]
fn a_filter_knows_its_calls_and_finds_them_soon() {
    for kind in Kind::ALL {
        let always = |call| lists::of(kind).any(|listed| listed.0 == call && listed.1 == lists::When::Always);
        let sometimes = |call| lists::of(kind).any(|listed| listed.0 == call && listed.1 != lists::When::Always);
        let compiled = filter::compile(kind, Seccomp::True).unwrap();
        let program = compiled.last().unwrap();
        for call in (0..600).chain([0x4000_0000, u32::MAX]).filter(|call| !sometimes(i64::from(*call))) {
            let (said, steps) = answer(program, call);
            let expected = if always(i64::from(call)) { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_TRAP };
            assert_eq!(said, expected, "{kind}: {call}");
            // All of an owner's, one after the other, would be three times as many.
            assert!(steps < 80, "{kind}: {call} takes {steps} steps");
        }
    }
}

/// No test of its own: what the tests above start in another process.
#[test]
fn play_a_role() {
    let Ok(role) = env::var(ROLE) else { return };
    harden().unwrap();
    match role.as_str() {
        "log" => log(),
        "files" => files(),
        "limit" => limit(),
        _ => {
            let (kind, attempt) = role.split_once(':').unwrap();
            let kind = Kind::ALL.into_iter().find(|one| one.to_string() == kind).unwrap();
            captive(kind, attempt.to_owned());
        }
    }
}

/// A thread of `kind` that makes `attempt`.
fn captive(kind: Kind, attempt: String) {
    let jail = Jail::new(Seccomp::True, || eprintln!("restored")).unwrap();
    let thread = thread::Builder::new().name(kind.to_string());
    let thread = thread.spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        jail.enter(kind).unwrap();
        match attempt.as_str() {
            "open" => drop(File::open("/dev/null")),
            "connect" => drop(socket.connect("127.0.0.1:9")),
            "socket" => drop(UdpSocket::bind("127.0.0.1:0")),
            "live" if kind == Kind::Owner => return own(),
            "live" => return live(),
            attempt => raw(attempt),
        }
        unreachable!("{kind} {attempt}: it is out");
    });
    thread.unwrap().join().unwrap();
}

/// What else the thread does that starts VMs, and makes others do before they have a filter of their own.
fn own() {
    let backing =
        Backing { host_node: Path::new("/sys/devices/system/node/node0").exists().then_some(0), ..Backing::default() };
    let memory = guest::map(&[Slot::new(GpaRange::of(0, 1 << 20), backing)]).unwrap();
    memory.write_obj(1u64, GuestAddress(0)).unwrap();
    let cpus = sched_getaffinity(None).unwrap();
    thread::spawn(move || sched_setaffinity(None, &cpus).unwrap()).join().unwrap();
    live();
}

/// What has no wrapper that does that and nothing else.
fn raw(attempt: &str) {
    let own = i64::from(std::process::id());
    let code = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let flags = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let kill = i64::from(libc::SIGKILL);
    let (call, arguments) = match attempt {
        "ring" => (libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
        // Other files for it: what an owner does is to give it those that it begins with.
        "change a ring" => (libc::SYS_io_uring_register, [-1, 6, 0, 0, 0, 0]),
        "exec" => (libc::SYS_execve, [0; 6]),
        "ptrace" => (libc::SYS_ptrace, [i64::from(libc::PTRACE_ATTACH), 1, 0, 0, 0, 0]),
        "fork" => (libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0, 0, 0]),
        "kill" => (libc::SYS_kill, [own, kill, 0, 0, 0, 0]),
        "kill another" => (libc::SYS_tgkill, [1, 1, kill, 0, 0, 0]),
        "code" => (libc::SYS_mmap, [0, 4096, code, flags, -1, 0]),
        other => unreachable!("{other}"),
    };
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: none of these calls touches memory of this process, should it not be refused.
    let result = unsafe { libc::syscall(call, first, second, third, fourth, fifth, sixth) };
    eprintln!("{attempt}: {result}");
}

/// What any thread does now and then: wait, say something, take and give back memory of all sizes, look at the clock, end.
fn live() {
    let (sender, receiver) = channel::<u8>();
    assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
    sender.send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));
    thread::sleep(Duration::from_millis(1));
    for shift in 4..26 {
        hint::black_box(vec![1u8; 1 << shift]);
        let mut grown: Vec<u8> = Vec::new();
        (0..1u32 << (shift / 2)).for_each(|_| grown.extend([0; 16]));
    }
    assert!(std::collections::HashMap::from([(1, 2)]).contains_key(&1));
    eprintln!("{:?}", (std::time::SystemTime::now(), std::time::Instant::now()));
    // From inside, as a test of many threads looks at it from outside.
    assert!(guest::page_faults() > 0);
}

fn log() {
    let jail = Jail::new(Seccomp::Log, || ()).unwrap();
    jail.enter(Kind::Device).unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1"] {
        assert!(status.lines().any(|there| there == line), "{line}: {status}");
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert!(core.split_whitespace().nth(4).is_some_and(|limit| limit == "1" || limit == "0"), "{core}");
}

fn files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("output"), "").unwrap();
    let open = File::options().append(true).open(path("output")).unwrap();
    let denied = |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::PermissionDenied;
    // A server's owner has the next VM's files to open, its VM's threads have none.
    let server = match Jail::none().without_files() {
        Ok(jail) => jail,
        Err(error) => return eprintln!("SKIPPED: files_are_out_of_reach: {}", crate::chain::chain(&error)),
    };
    let thread = thread::spawn(move || {
        server.enter(Kind::Device).unwrap();
        assert!(denied(File::open("/proc/self/status").map(drop)));
    });
    thread.join().unwrap();
    assert!(File::open(path("output")).is_ok());

    let jail = Jail::none().without_files_from_here(&[path("output")]).unwrap();
    assert!(denied(File::open(path("output")).map(drop)));
    assert!(denied(fs::write(path("another"), "")));
    assert!(fs::read_to_string("/proc/self/status").is_ok());
    let thread = thread::spawn(move || {
        jail.enter(Kind::Device).unwrap();
        assert!(denied(File::open("/proc/self/status").map(drop)));
        // What was open stays so.
        io::Write::write_all(&mut &open, b"x").unwrap();
    });
    thread.join().unwrap();
    fs::remove_file(path("output")).unwrap();
}
