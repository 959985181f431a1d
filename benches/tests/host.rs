// SPDX-License-Identifier: Apache-2.0
//! The emulated host itself: what goes in, what comes out, and how it fails.
//!
//! One host serves the tests that only run commands; those that break a host have their own.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flatboot_bench::Error;
use flatboot_bench::command::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use flatboot_bench::host::Control;
use flatboot_bench::{Command, HostOptions, HostSession, Stdin, Streams, artifact};
use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

type Result = std::result::Result<(), Failed>;

/// The host that command tests share, started by the first of them.
struct Shared {
    host: Option<HostSession>,
    options: HostOptions,
    directory: TempDir,
}

type SharedTest = fn(&mut HostSession, &Path) -> Result;
type OwnTest = fn(&HostOptions) -> Result;

const SHARED: [(&str, SharedTest); 11] = [
    ("exit_codes", exit_codes),
    ("streams_are_apart_and_binary_clean", streams_are_apart_and_binary_clean),
    ("input_reaches_the_program", input_reaches_the_program),
    ("unread_input_harms_no_later_command", unread_input_harms_no_later_command),
    ("it_has_kvm", it_has_kvm),
    ("programs_stay_off_cpu_0", programs_stay_off_cpu_0),
    ("environment_and_directory", environment_and_directory),
    ("only_writable_is_written", only_writable_is_written),
    ("a_drive_is_a_block_device_and_keeps_its_content", a_drive_is_a_block_device_and_keeps_its_content),
    ("a_signal_reaches_the_program", a_signal_reaches_the_program),
    ("nothing_outlives_its_command", nothing_outlives_its_command),
];

const OWN: [(&str, OwnTest); 3] = [
    ("a_killed_host_is_an_error", a_killed_host_is_an_error),
    ("time_runs_out", time_runs_out),
    ("a_kernel_that_does_not_boot_is_an_error", a_kernel_that_does_not_boot_is_an_error),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = missing();
    if let Some(missing) = &missing {
        eprintln!("SKIPPED: {missing}");
    }
    let kernel = if missing.is_none() && !arguments.list { kernel_directory() } else { None };
    let options = HostOptions { kernel, ..HostOptions::default() };
    let trials = trials(&options, missing.is_some());
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(options: &HostOptions, skipped: bool) -> Vec<Trial> {
    let shared = Arc::new(Mutex::new(None));
    let commands = SHARED.into_iter().map(|(name, test)| {
        let (shared, options) = (Arc::clone(&shared), options.clone());
        Trial::test(name, move || {
            let mut shared = shared.lock().map_err(|_| "an earlier test lost the host")?;
            if shared.is_none() {
                *shared = Some(Shared::prepare(options)?);
            }
            shared.as_mut().map_or(Ok(()), |shared| shared.run(test))
        })
    });
    let own = OWN.into_iter().map(|(name, test)| {
        let options = options.clone();
        Trial::test(name, move || test(&options))
    });
    commands.chain(own).map(|trial| trial.with_ignored_flag(skipped)).collect()
}

/// Why no host can run here.
fn missing() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let qemu = std::env::split_paths(&path).any(|directory| directory.join("qemu-system-x86_64").is_file());
    if !qemu {
        return Some("the emulated host needs qemu-system-x86_64".into());
    }
    artifact::host_kernel(None).err().map(|error| format!("the emulated host has no kernel: {error}"))
}

fn kernel_directory() -> Option<PathBuf> {
    artifact::host_kernel(None).ok()?.parent().map(Path::to_path_buf)
}

impl Shared {
    fn prepare(mut options: HostOptions) -> std::result::Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("writable"))?;
        fs::write(directory.path().join("disk.img"), vec![0x11; 1 << 20])?;
        options.writable.push(directory.path().join("writable"));
        options.drives.push(directory.path().join("disk.img"));
        Ok(Self { host: None, options, directory })
    }

    fn run(&mut self, test: SharedTest) -> Result {
        // A test that broke the host gets the next one a new host.
        let mut host = match self.host.take() {
            Some(host) => host,
            None => HostSession::start(&self.options)?,
        };
        test(&mut host, self.directory.path())?;
        self.host = Some(host);
        Ok(())
    }
}

fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script]).timeout(Duration::from_secs(120))
}

#[expect(clippy::needless_pass_by_value, reason = "a caller compares two values that it has just made")]
fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}").into()) }
}

fn exit_codes(host: &mut HostSession, _: &Path) -> Result {
    for (command, code) in [
        (Command::new("/bin/true"), 0),
        (Command::new("false"), 1),
        (shell("exit 255"), 255),
        (shell("kill -9 $$"), 137),
        (shell("kill -TERM $$"), 143),
        (Command::new("/nowhere/at/all"), EXIT_NOT_FOUND),
        (Command::new("/etc/passwd"), EXIT_NOT_EXECUTABLE),
    ] {
        equal(&format!("{command:?}"), host.run(&command)?.code, code)?;
    }
    Ok(())
}

fn streams_are_apart_and_binary_clean(host: &mut HostSession, directory: &Path) -> Result {
    // Every byte value, in a length that no buffer divides.
    let content: Vec<u8> = (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let file = directory.join("content");
    fs::write(&file, &content)?;
    let script = format!("cat {0}; head -c 70001 {0} >&2; exit 5", file.display());
    let outcome = host.run(&shell(&script))?;
    equal("code", outcome.code, 5)?;
    equal("stdout", outcome.stdout == content, true)?;
    equal("stderr", outcome.stderr == content[..70_001], true)
}

fn input_reaches_the_program(host: &mut HostSession, _: &Path) -> Result {
    let content = vec![0xfe; 300_000];
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = Streams { stdin: Stdin::Bytes(content.clone()), stdout: &mut stdout, stderr: &mut stderr };
    equal("code", host.run_streaming(&Command::new("cat"), streams)?.code, 0)?;
    equal("what cat gave back", stdout == content, true)
}

fn unread_input_harms_no_later_command(host: &mut HostSession, _: &Path) -> Result {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let unread = Stdin::Bytes(vec![b'x'; 1 << 20]);
    let streams = Streams { stdin: unread, stdout: &mut stdout, stderr: &mut stderr };
    equal("code", host.run_streaming(&Command::new("true"), streams)?.code, 0)?;
    equal("input of the next command", host.run(&Command::new("cat"))?.stdout_text(), String::new())
}

fn it_has_kvm(host: &mut HostSession, _: &Path) -> Result {
    let outcome = host.run(&shell("test -c /dev/kvm && test -r /dev/kvm && test -w /dev/kvm && nproc"))?;
    equal("processors", outcome.stdout_text(), "2\n".into())
}

/// QEMU's emulation breaks guests there: benches/host-init/enter.rs.
fn programs_stay_off_cpu_0(host: &mut HostSession, _: &Path) -> Result {
    let outcome =
        host.run(&shell("cat /sys/devices/system/cpu/online; grep -o 'Cpus_allowed_list:.*' /proc/self/status"))?;
    let default = HostOptions::default().cpus;
    equal("processors", outcome.stdout_text(), format!("0-{default}\nCpus_allowed_list:\t1-{default}\n"))
}

fn environment_and_directory(host: &mut HostSession, _: &Path) -> Result {
    let mut command = shell("pwd; echo $GIVEN >/dev/stdout; cat /dev/stdin").env("GIVEN", "a b");
    command.cwd = Some("/usr/bin".into());
    let text = host.run(&command)?.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    equal("directory and variable", &lines[..2], &["/usr/bin", "a b"])
}

fn only_writable_is_written(host: &mut HostSession, directory: &Path) -> Result {
    let inside = directory.join("writable/out");
    let outside = directory.join("not-writable");
    let script = format!("echo new >{}; echo scratch >{}; echo x >/usr/x", inside.display(), outside.display());
    let outcome = host.run(&shell(&script))?;
    equal("writing to the read-only root fails", outcome.code != 0, true)?;
    equal("a writable directory's file", fs::read_to_string(inside)?, "new\n".to_owned())?;
    // The directory is below /tmp: scratch space.
    equal("a scratch file is on this machine", outside.exists(), false)
}

fn a_drive_is_a_block_device_and_keeps_its_content(host: &mut HostSession, directory: &Path) -> Result {
    let image = directory.join("disk.img");
    let path = image.display();
    let script = format!("test -b {path} && echo changed | dd of={path} conv=notrunc status=none && head -c 8 {path}");
    equal("read back inside", host.run(&shell(&script))?.stdout_text(), "changed\n".into())?;
    equal("the file is untouched", fs::read(&image)?.iter().all(|byte| *byte == 0x11), true)
}

/// Sends SIGTERM when the program says that it is ready; so no time is guessed.
struct Ready(Control, Vec<u8>);

impl Write for Ready {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            self.0.signal(15);
        }
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn a_signal_reaches_the_program(host: &mut HostSession, _: &Path) -> Result {
    let control = host.control();
    let mut stdout = Ready(control, Vec::new());
    let mut stderr = Vec::new();
    let command = shell("trap 'echo terminated; exit 9' TERM; echo ready; while :; do sleep 0.1; done");
    let streams = Streams { stdin: Stdin::Null, stdout: &mut stdout, stderr: &mut stderr };
    equal("code", host.run_streaming(&command, streams)?.code, 9)?;
    equal("output", String::from_utf8_lossy(&stdout.1).into_owned(), "ready\nterminated\n".into())
}

fn nothing_outlives_its_command(host: &mut HostSession, _: &Path) -> Result {
    // In a session of its own, holding the output open: only its cgroup still tells whose it is.
    let outcome = host.run(&shell("setsid sleep 98765 & echo started"))?;
    equal("output", outcome.stdout_text(), "started\n".into())?;
    let left = host.run(&shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep[ ]98765 '"))?;
    equal("leftover processes", left.stdout_text(), "0\n".into())
}

fn a_killed_host_is_an_error(options: &HostOptions) -> Result {
    let mut host = HostSession::start(options)?;
    let control = host.control();
    let killer = thread::spawn(move || control.kill_host(9));
    let result = host.run(&Command::new("sleep").arg("1000"));
    killer.join().map_err(|_| "the killing thread panicked")?;
    match result {
        Err(Error::Killed(9)) => {}
        other => return Err(format!("{other:?}, expected Killed(9)").into()),
    }
    equal("the next command fails, too", host.run(&Command::new("true")).is_err(), true)
}

fn time_runs_out(options: &HostOptions) -> Result {
    let mut host = HostSession::start(options)?;
    let limit = Duration::from_millis(300);
    match host.run(&Command::new("sleep").arg("1000").timeout(limit)) {
        Err(Error::Timeout(said)) => equal("limit", said, limit),
        other => Err(format!("{other:?}, expected Timeout").into()),
    }
}

fn a_kernel_that_does_not_boot_is_an_error(options: &HostOptions) -> Result {
    let mut options = options.clone();
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("bzImage"), vec![0; 1 << 16])?;
    options.kernel = Some(directory.path().to_path_buf());
    options.start_limit = Duration::from_secs(20);
    match HostSession::start(&options) {
        Err(Error::Ended(_) | Error::StartTimeout { .. }) => Ok(()),
        other => Err(format!("{other:?}, expected an error").into()),
    }
}
