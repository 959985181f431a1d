// SPDX-License-Identifier: Apache-2.0
//! The attendant: it runs beside the VMM, in the same host, takes the steps of one boot and tells what it has seen.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use flatboot_handoff::marks::{self, Mark};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tempfile::TempDir;

use super::leftovers;
use super::order::{DISK, Order, SOCKET, STDERR, STDOUT, Seen, TIMELINE};
use super::step::Step;
use crate::command::exit_code;
use crate::guest::{self, Timeline};
use crate::http::{self, Answer};
use crate::observe::Interrupted;

/// Where a host has a file system of its own, so that sockets can be made and locks be held.
const PLACE: &str = "/run";
const DISK_BYTES: u64 = 1 << 20;
/// How often a file or a process is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long what a VMM has started may take to end after it.
const LAST_BREATH: Duration = Duration::from_secs(10);
/// Most bytes of a console that are told: a guest may write without end.
const TOLD: usize = 192 << 10;
/// The host's interfaces.
const INTERFACES: &str = "/sys/class/net";

/// Carries out `order` and never leaves its VMM behind. Errors are the attendant's own.
pub fn attend(order: &Order, interrupted: &Interrupted) -> io::Result<Seen> {
    let directory = directory()?;
    for number in 0..order.disks {
        File::create_new(directory.path().join(format!("{DISK}{number}")))?.set_len(DISK_BYTES)?;
    }
    let mut boot = Boot::start(order, directory.path(), interrupted)?;
    let refused = boot.all_steps().err();
    // What was refused may leave it as it is for ever.
    let status = if refused.is_none() { boot.ended()? } else { boot.vmm.try_wait()? };
    let mut seen = Seen { code: status.map(exit_code), refused: refused.into_iter().collect(), ..Seen::default() };
    seen.left.extend(boot.leaves_processes().then(|| "processes".to_owned()));
    if seen.code.is_none() {
        // Of a VMM that was ended here nothing can be said.
        seen.left.clear();
    }
    boot.end()?;
    if seen.code.is_some() {
        seen.left.extend(leftovers::files(directory.path())?);
        seen.left.extend(leftovers::tap(Path::new(INTERFACES), &order.tap));
    }
    seen.console = boot.text(&order.console);
    seen.stderr = boot.text(STDERR);
    seen.init_marked = fs::read(directory.path().join(TIMELINE)).ok().map(|timeline| is_ready(&timeline));
    Ok(seen)
}

fn directory() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("flatboot-soak-");
    builder.tempdir_in(PLACE).or_else(|_| builder.tempdir())
}

/// Whether init has marked that its checks passed, before whatever it then did. Of a guest without a console nothing else is known.
fn is_ready(timeline: &[u8]) -> bool {
    let name = Mark::of(marks::USER_READY).map(|mark| mark.name);
    let is = |mark: &guest::Mark| mark.is_of_guest() && Some(mark.name.as_str()) == name;
    serde_json::from_slice::<Timeline>(timeline).is_ok_and(|timeline| timeline.marks.iter().any(is))
}

/// A VMM that runs.
struct Boot<'a> {
    order: &'a Order,
    directory: &'a Path,
    interrupted: &'a Interrupted,
    deadline: Instant,
    vmm: Child,
    group: Pid,
}

impl<'a> Boot<'a> {
    fn start(order: &'a Order, directory: &'a Path, interrupted: &'a Interrupted) -> io::Result<Self> {
        let mut command = Command::new(&order.program);
        if order.server {
            command.args(&order.process);
        } else {
            command.arg("run").args(&order.process).args(&order.vm);
        }
        let output = |name: &str| File::create(directory.join(name));
        // A group of its own: whoever is in it afterwards has been left behind.
        let command = command.process_group(0).current_dir(directory).stdin(Stdio::null());
        let vmm = command.stdout(output(STDOUT)?).stderr(output(STDERR)?).spawn()?;
        let deadline = Instant::now() + Duration::from_millis(order.limit_ms);
        let group = i32::try_from(vmm.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { order, directory, interrupted, deadline, vmm, group })
    }

    /// Takes the steps; an error is what could not be done.
    fn all_steps(&mut self) -> Result<(), String> {
        if self.order.server {
            let config = self.config()?;
            self.granted("vm.create", &config)?;
            self.granted("vm.boot", "")?;
        }
        let steps: &'a [Step] = &self.order.steps;
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Inits(times) => self.inits(*times),
            Step::Sleep(ms) => {
                thread::sleep(Duration::from_millis(*ms));
                Ok(())
            }
            Step::Signal(signal) => self.signal(*signal),
            Step::Put(what) => self.granted(what, ""),
            Step::Rest(ms) => self.rest(Duration::from_millis(*ms)),
        }
    }

    fn inits(&mut self, times: usize) -> Result<(), String> {
        let done = |boot: &Self| boot.text(&boot.order.console).matches("\"check\":\"done\"").count();
        self.wait(|boot| (done(boot) >= times).then_some(()))
            .ok_or_else(|| format!("init was seen {} times, expected {times}", done(self)))
    }

    fn signal(&mut self, signal: i32) -> Result<(), String> {
        let named = Signal::from_named_raw(signal).ok_or_else(|| format!("signal {signal}: there is none"))?;
        // To one that has ended, and is not reaped yet, nothing happens; its exit code tells.
        kill_process(self.group, named).map_err(|error| format!("signal {signal}: {error}"))
    }

    /// The configuration of the VM, as a request has it.
    fn config(&self) -> Result<String, String> {
        let mut command = Command::new(&self.order.program);
        let command = command.arg("config").args(&self.order.vm).current_dir(self.directory).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("config: {error}"))?;
        if !output.status.success() {
            return Err(format!("config: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes a request as soon as there is a socket, which must be granted.
    fn granted(&mut self, what: &str, body: &str) -> Result<(), String> {
        self.wait(|boot| boot.get("vmm.ping").ok()).ok_or_else(|| format!("{what}: nobody takes requests"))?;
        self.put(what, body)
    }

    /// Pauses the VM, and resumes it. One that is over cannot be paused; one that was paused can be resumed.
    fn rest(&mut self, time: Duration) -> Result<(), String> {
        let runs = |boot: &mut Self| boot.get("vm.info").ok().filter(|info| info.body.contains("\"Running\""));
        if self.wait(runs).is_none() {
            return self.over("vm.pause: the VM never ran");
        }
        match self.put("vm.pause", "") {
            Ok(()) => {
                thread::sleep(time);
                self.granted("vm.resume", "")
            }
            // One that is over does not say so.
            Err(why) if self.get("vm.info").is_ok_and(|info| info.body.contains("\"Running\"")) => Err(why),
            Err(why) => self.over(&why),
        }
    }

    /// Nothing is wrong if the VMM ends now; else `what` is.
    fn over(&mut self, what: &str) -> Result<(), String> {
        self.deadline = self.deadline.min(Instant::now() + LAST_BREATH);
        self.wait(|boot| boot.has_ended().then_some(())).ok_or_else(|| what.to_owned())
    }

    fn get(&self, what: &str) -> io::Result<Answer> {
        http::ask(&self.directory.join(SOCKET), "GET", what, "", self.left())
    }

    fn put(&self, what: &str, body: &str) -> Result<(), String> {
        http::put(&self.directory.join(SOCKET), what, body, self.left())
    }

    /// How long an answer may take.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()) + LOOK
    }

    /// What `look` finds, looked for until the deadline or the VMM's end.
    fn wait<T>(&mut self, look: impl Fn(&mut Self) -> Option<T>) -> Option<T> {
        loop {
            // In this order: the last that it did counts, too.
            let last = self.has_ended() || Instant::now() >= self.deadline || self.interrupted.load(Ordering::SeqCst);
            let found = look(self);
            if found.is_some() || last {
                return found;
            }
            thread::sleep(LOOK);
        }
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.vmm.try_wait(), Ok(Some(_)))
    }

    /// How the VMM has ended by the deadline.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.wait(|boot| boot.has_ended().then_some(()));
        self.vmm.try_wait()
    }

    /// Whether anybody of the VMM's group is still there a while after its end.
    fn leaves_processes(&mut self) -> bool {
        let until = Instant::now() + LAST_BREATH;
        while test_kill_process_group(self.group).is_ok() {
            if Instant::now() >= until || self.interrupted.load(Ordering::SeqCst) || !self.has_ended() {
                return true;
            }
            thread::sleep(LOOK);
        }
        false
    }

    /// Ends all that is left of it.
    fn end(&mut self) -> io::Result<()> {
        // There may be nobody.
        let _ = kill_process_group(self.group, Signal::KILL);
        self.vmm.wait().map(drop)
    }

    /// The last of what is in a file.
    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.directory.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TOLD)..]).into_owned()
    }
}

impl Drop for Boot<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const INIT: &str = r#"echo 'FLATBOOT {"check":"done","ok":true}'"#;

    const READY: &str = r#"{"ns":7,"name":"user-ready","source":"guest"}"#;

    /// What is seen of a VMM that is this script.
    fn seen(script: &str, steps: Vec<Step>, change: impl FnOnce(&mut Order)) -> Seen {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("vmm");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut order = Order {
            program: program.display().to_string(),
            process: vec![],
            vm: vec![],
            server: false,
            disks: 0,
            tap: "soak-none".to_owned(),
            console: STDOUT.to_owned(),
            steps,
            limit_ms: 60_000,
        };
        change(&mut order);
        attend(&order, &Interrupted::new(false)).unwrap()
    }

    #[test]
    fn what_a_vmm_says_and_its_exit_code_are_told() {
        let script = format!(
            "{INIT}; echo \"$*\" >&2; echo '{{\"zero_monotonic_ns\":0,\"marks\":[{READY}]}}' >timeline; [ -f disk1 ] && exit 4"
        );
        let seen = seen(&script, vec![], |order| {
            order.disks = 2;
            order.process = vec!["a".to_owned()];
            order.vm = vec!["b".to_owned()];
        });
        assert_eq!((seen.code, seen.stderr.as_str(), seen.init_marked), (Some(4), "run a b\n", Some(true)));
        assert!(seen.console.contains("done") && seen.refused.is_empty() && seen.left.is_empty(), "{seen:?}");
    }

    /// It would be all that is known of a guest whose console nobody reads.
    #[test]
    fn a_guest_whose_checks_failed_is_not_ready() {
        let init = r#"{"ns":5,"name":"init-exec","source":"guest"}"#;
        let timeline =
            |marks: &[&str]| format!("{{\"init_ns\":5,\"zero_monotonic_ns\":0,\"marks\":[{}]}}", marks.join(","));
        assert!(is_ready(timeline(&[init, READY]).as_bytes()));
        for marks in [&[init][..], &[init, &READY.replace("ready", "failed")], &[&READY.replace("guest", "vmm")]] {
            assert!(!is_ready(timeline(marks).as_bytes()), "{marks:?}");
        }
        assert!(!is_ready(b"{"));
    }

    #[test]
    fn signals_come_when_init_is_there_and_their_death_is_told() {
        let steps = |signal| vec![Step::Inits(2), Step::Signal(signal)];
        let script = format!("{INIT}; {INIT}; exec sleep 1000");
        assert_eq!(seen(&script, steps(9), |_| ()).code, Some(137));
        let script = format!("trap 'exit 6' TERM; {INIT}; sleep 0.1; {INIT}; while :; do sleep 0.05; done");
        assert_eq!(seen(&script, steps(15), |_| ()).code, Some(6));
    }

    #[test]
    fn an_init_that_never_comes_is_told() {
        let seen = seen(&format!("{INIT}; exit 0"), vec![Step::Inits(2)], |_| ());
        assert_eq!(seen.refused, ["init was seen 1 times, expected 2"]);
    }

    #[test]
    fn a_vmm_that_hangs_is_ended_at_its_limit() {
        let seen = seen("echo $$; exec sleep 1000", vec![], |order| order.limit_ms = 300);
        assert_eq!(seen.code, None);
        assert!(!Path::new("/proc").join(seen.console.trim()).exists());
    }

    #[test]
    fn what_is_left_behind_is_told_and_ended() {
        let script = "sleep 1000 & echo $!; exit 0";
        let seen = seen(script, vec![], |_| ());
        assert_eq!((seen.code, &*seen.left), (Some(0), &["processes".to_owned()][..]));
        // Of a process that is killed nothing is left a moment later but what its parent has not asked for.
        let state = || fs::read_to_string(format!("/proc/{}/stat", seen.console.trim()));
        let is_over = || state().map_or(true, |state| state.contains(") Z "));
        let deadline = Instant::now() + LAST_BREATH;
        while !is_over() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        assert!(is_over());
        assert_eq!(self::seen("echo >core", vec![], |_| ()).left, ["file core"]);
        // An interface that every machine has.
        assert_eq!(self::seen("exit 0", vec![], |order| order.tap = "lo".to_owned()).left, ["tap lo"]);
    }

    #[test]
    fn requests_that_nobody_takes_are_told() {
        let put = vec![Step::Put("vmm.shutdown".to_owned())];
        assert_eq!(seen("exit 0", put, |_| ()).refused, ["vmm.shutdown: nobody takes requests"]);
        let server = |order: &mut Order| order.server = true;
        let told = seen("[ \"$1\" = config ] && echo no >&2; exit 2", vec![], server);
        assert_eq!(told.refused, ["config: no"]);
    }

    #[test]
    fn a_vm_that_is_over_needs_no_rest() {
        let seen = seen("exit 0", vec![Step::Rest(1)], |_| ());
        assert!(seen.refused.is_empty() && seen.code == Some(0), "{seen:?}");
    }
}
