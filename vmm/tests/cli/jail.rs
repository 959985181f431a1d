// SPDX-License-Identifier: Apache-2.0
//! What flatboot has given up when its guest runs, as anybody can see it in /proc.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::images;
use crate::kvm::{RESET, program};
use crate::net::wait;

/// `R` to the serial port, then nothing more: `mov dx, 0x3f8; mov al, 'R'; out dx, al; jmp .`
const HANG: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xfe];
/// What a test does on a host.
type Body = Box<dyn FnOnce(&Host) -> Result<(), Failed> + Send>;

/// The node, for everybody, and nothing else.
const ONLY_KVM: Needs = Needs::NodesUnprivileged("mknod -m 666 /dev/kvm c 10 232");

pub(crate) fn trials(host: &Arc<Host>) -> Vec<Trial> {
    let trial = |name: String, needs: Needs, body: Body| {
        let (ignored, host) = (host.skips(&name, needs), Arc::clone(host));
        Trial::test(name, move || body(&host)).with_ignored_flag(ignored)
    };
    let options = [
        ("", "2"),
        ("--landlock", "2"),
        ("--landlock --api-socket path=@/socket", "2"),
        ("--event-monitor path=@/events", "2"),
        ("--vsock cid=3,socket=@/vsock", "2"),
        ("--landlock --vsock cid=3,socket=@/vsock --event-monitor path=@/events", "2"),
        ("--serial file=@/console", "2"),
        ("--seccomp log", "2"),
        ("--seccomp false", "0"),
    ];
    let mut trials: Vec<_> = options
        .into_iter()
        .map(|(options, seccomp)| {
            let name = format!("jail: every thread is in it: {options}");
            trial(name, Needs::OpenKvm, Box::new(move |_| every_thread(options, seccomp)))
        })
        .collect();
    trials.push(trial("jail: a server that has no VM yet".to_owned(), Needs::Nothing, Box::new(|_| server())));
    trials.push(trial("jail: the thread that firmware has".to_owned(), Needs::OpenKvm, Box::new(|_| fw_cfg())));
    trials.push(trial("jail: what is open stays here".to_owned(), Needs::OpenKvm, Box::new(|_| descriptors())));
    trials.push(trial("jail: no guest memory in a dump".to_owned(), Needs::OpenKvm, Box::new(|_| not_dumped())));
    for options in ["", "--landlock", "--restart-on-reset"] {
        let name = format!("jail: nobody, with nothing but /dev/kvm: {options}");
        trials.push(trial(name, ONLY_KVM, Box::new(move |host| nobody(host, options))));
    }
    trials
}

/// A VM that is ended with its test.
struct Vm {
    child: Child,
    directory: TempDir,
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Vm {
    /// Starts one with `options`; `@` is a directory with `kernel`, `efi`, `firmware` and `disk`.
    fn start(options: &str) -> Result<Self, Failed> {
        Self::of(&format!("run {options}"))
    }

    /// The same with all of its words.
    fn of(options: &str) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let files = [
            ("kernel", program(HANG)),
            ("efi", images::efi_bzimage()),
            ("firmware", images::firmware()),
            ("disk", vec![0; 1024]),
        ];
        for (name, bytes) in files {
            fs::write(directory.path().join(name), bytes)?;
        }
        let options = options.replace('@', &directory.path().display().to_string());
        let mut command = Command::new(FLATBOOT);
        command.args(options.split_whitespace());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { child, directory })
    }

    /// A file of the process in /proc.
    fn proc(&self, file: &str) -> Result<String, Failed> {
        Ok(fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?)
    }

    /// Waits until the guest has said that it runs.
    fn runs(&mut self) -> Result<(), Failed> {
        let mut said = [0];
        let stdout = self.child.stdout.as_mut().ok_or("no standard output")?;
        match stdout.read_exact(&mut said) {
            Ok(()) if said == *b"R" => Ok(()),
            result => {
                let mut why = String::new();
                self.child.stderr.take().ok_or("no standard error")?.read_to_string(&mut why)?;
                Err(format!("{result:?}, {said:?}: {why}").into())
            }
        }
    }

    /// The names of all threads, each of which has given up new privileges and has `seccomp` as proc(5) has it.
    fn threads(&self, seccomp: &str) -> Result<BTreeSet<String>, Failed> {
        let mut names = BTreeSet::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(task?.path().join("status"))?;
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default().to_owned()
            };
            assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", seccomp), "{status}");
            // What Linux does for KVM in this process is no thread of ours.
            names.extend(Some(field("Name:")).filter(|name| !name.starts_with("kvm-")));
        }
        Ok(names)
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn every_thread(options: &str, seccomp: &str) -> Result<(), Failed> {
    let mut vm = Vm::start(&format!("--kernel @/kernel --cpus boot=2 --disk path=@/disk,num_queues=2 {options}"))?;
    if options.contains("--serial file=") {
        let console = vm.directory.path().join("console");
        wait("the guest runs", || fs::read(&console).is_ok_and(|said| !said.is_empty()))?;
    } else {
        vm.runs()?;
    }
    let mut expected = set(&["flatboot", "vcpu0", "vcpu1", "virtio0", "virtio0.1", "virtio1", "signals"]);
    let others = [
        ("--api-socket", "api"),
        ("--event-monitor", "events"),
        ("--vsock", "virtio2"),
        ("--serial file=", "serial-output"),
    ];
    expected.extend(others.iter().filter(|(option, _)| options.contains(option)).map(|(_, name)| (*name).to_owned()));
    // A terminal, or what is in its place, is read from.
    expected.extend((!options.contains("--serial")).then(|| "serial-input".to_owned()));
    assert_eq!(vm.threads(seccomp)?, expected);
    let limits = vm.proc("limits")?;
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).ok_or("no limit")?;
    assert!(core.split_whitespace().skip(4).take(2).all(|limit| limit == "1" || limit == "0"), "{core}");
    Ok(())
}

/// Its main thread is as wide as the start of VMs needs, but in a jail.
fn server() -> Result<(), Failed> {
    let mut server = Vm::of("--api-socket path=@/socket --event-monitor path=@/events")?;
    // They enter beside each other; once its owner answers, all are in.
    let socket = server.directory.path().join("socket");
    let mut stream = loop {
        assert!(server.child.try_wait()?.is_none(), "the server is over");
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    };
    stream.write_all(b"GET /api/v1/vm.info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let answer = io::read_to_string(stream)?;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(server.threads("2")?, set(&["flatboot", "api", "events", "signals"]));
    Ok(())
}

/// Also where it has no name: all of the memory that one who looks at the process sees.
fn not_dumped() -> Result<(), Failed> {
    const KIB: u64 = 512 << 10;
    for memory in ["size=512M", "size=512M,thp=off", "size=512M,prefault=on"] {
        let mut vm = Vm::start(&format!("--kernel @/kernel --memory {memory}"))?;
        vm.runs()?;
        let smaps = vm.proc("smaps")?;
        let size = |line: &str| line.strip_prefix("Size:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        let (mut left_out, mut last) = (0, 0);
        for line in smaps.lines() {
            last = size(line).unwrap_or(last);
            if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "dd")) {
                left_out += last;
            }
        }
        assert!(left_out >= KIB, "{memory}: {left_out} KiB are left out of a dump, of {KIB}");
    }
    Ok(())
}

/// Reads files for the guest: it is there before the guest asks.
fn fw_cfg() -> Result<(), Failed> {
    let mut vm = Vm::start("--firmware @/firmware --kernel @/efi --rng off --serial null")?;
    // The main thread is the last to enter.
    while !vm.proc("status")?.contains("Seccomp:\t2") {
        assert!(vm.child.try_wait()?.is_none(), "the VM is over");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(vm.threads("2")?, set(&["flatboot", "vcpu0", "signals", "fw_cfg"]));
    Ok(())
}

/// No program that a fault could start inherits a file, and no core dump has guest memory in it.
fn descriptors() -> Result<(), Failed> {
    // Everything that opens a file or makes a socket.
    let files = "--disk path=@/disk --serial file=@/console --timeline @/timeline --log-file @/log --initramfs @/efi";
    let sockets = "--api-socket path=@/socket --event-monitor path=@/events --vsock cid=3,socket=@/vsock";
    let memory = "--memory size=512M,shared=on";
    for console in ["socket=@/second", "pty"] {
        let vm = Vm::start(&format!("--kernel @/kernel {memory} {files} {sockets} --console {console}"))?;
        let said = vm.directory.path().join("console");
        wait("the guest runs", || fs::read(&said).is_ok_and(|said| !said.is_empty()))?;
        let open = close_on_exec(&vm)?;
        let has = |name: &str| open.iter().any(|file| file.ends_with(name));
        assert!(["disk", "console", "timeline", "log", "events"].into_iter().all(has), "{open:?}");
        assert_eq!(has("ptmx"), console == "pty", "{open:?}");
        memory_stays(&vm)?;
    }
    Ok(())
}

/// All that it has open beside what it was started with, none of which a program that it starts would have.
fn close_on_exec(vm: &Vm) -> Result<Vec<String>, Failed> {
    const O_CLOEXEC: u32 = 0o2_000_000;
    let mut open = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fdinfo", vm.child.id()))? {
        let number = entry?.file_name().into_string().map_err(|_| "no number")?;
        let info = vm.proc(&format!("fdinfo/{number}"))?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).ok_or("no flags")?;
        let flags = u32::from_str_radix(flags.trim(), 8)?;
        let file = fs::read_link(format!("/proc/{}/fd/{number}", vm.child.id()))?;
        // What a test was started with it passes on.
        let inherited =
            number.parse::<u32>()? <= 2 || fs::read_link(format!("/proc/self/fd/{number}")).ok() == Some(file.clone());
        assert!(inherited || flags & O_CLOEXEC != 0, "{number}, {}: {flags:o}", file.display());
        open.extend((!inherited).then(|| file.display().to_string()));
    }
    Ok(open)
}

fn memory_stays(vm: &Vm) -> Result<(), Failed> {
    let smaps = vm.proc("smaps")?;
    let (_, guest) = smaps.split_once("memfd:flatboot-guest-memory").ok_or("no guest memory")?;
    let flags = guest.lines().find_map(|line| line.strip_prefix("VmFlags:")).ok_or("no flags")?;
    assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    Ok(())
}

/// A user without rights, in whose /dev there is nothing else, runs a guest to its end.
fn nobody(host: &Host, options: &str) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    let kernel = directory.path().join("kernel");
    fs::write(&kernel, program(RESET))?;
    let mut command = host.command(ONLY_KVM).ok_or("no such host")?;
    command.args(["run", "--rng", "off", "--serial", "null", "--kernel"]).arg(&kernel);
    command.args(options.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
    if options == "--restart-on-reset" {
        return restarts(command, directory.path());
    }
    let output = command.stderr(Stdio::piped()).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), said.as_str()), (Some(0), "flatboot: guest asked for a reset\n"));
    Ok(())
}

/// The same again and again, until SIGTERM.
fn restarts(mut command: Command, directory: &Path) -> Result<(), Failed> {
    let said = directory.join("said");
    let mut child = command.stderr(fs::File::create(&said)?).spawn()?;
    let resets = || fs::read_to_string(&said).map_or(0, |said| said.matches("asked for a reset\n").count());
    while resets() < 3 && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    let stopped = Command::new("kill").arg(child.id().to_string()).status()?;
    let status = child.wait()?;
    let said = fs::read_to_string(&said)?;
    assert!(stopped.success() && !said.contains("error"), "{said}");
    // While a guest resets, or before one runs.
    assert!(matches!(status.code(), Some(0 | 6)), "{status}: {said}");
    Ok(())
}
