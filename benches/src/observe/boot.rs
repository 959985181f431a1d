// SPDX-License-Identifier: Apache-2.0
//! One boot, from just before the VMM's exec.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::disable_transparent_huge_pages;

use super::fleet::{Fleet, Member, numbered};
use super::marks::{self, PortReader, Reported, now_ns};
use super::memory;
use super::order::{Content, FILLED_CHECK, INIT_LINE, LAST_CHECK, MarksFrom, Order, Until};
use super::peer::Peer;
use super::template;
use super::vmm::{Interrupted, LOOK, Vmm};
use crate::results::{End, HostPages, Sample};
use crate::work;

/// How long a VMM may take from SIGTERM until it has written its timeline.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// Bytes of the longest line that is read as one: what init says of a workload that failed is shorter.
const LINE_BYTES: usize = 4096;
/// Lines of a failed guest's console that are kept, and bytes of each.
const TAIL_LINES: usize = 30;
const TAIL_BYTES: usize = 400;

/// What the VMM said.
enum Event {
    /// A line of the console (standard output), and when it came.
    Line(u64, String),
    /// A line of standard error.
    Message(String),
}

/// What was seen.
#[derive(Default)]
struct Seen {
    /// When init's first line came, and the VMM's memory then.
    init: Option<(u64, Option<memory::Backed>)>,
    /// How long its memory took to change, or why it did not.
    resized: Option<Result<u64, String>>,
    /// Whether its check of the memmap passed, once it has said so.
    filled: Option<bool>,
    /// The rate of each workload, as they are done, and why one could not be.
    rates: BTreeMap<String, u64>,
    idle: Option<String>,
    /// Whether init has said its last.
    done: bool,
    /// The VMM was asked to end.
    asked: bool,
    console: VecDeque<String>,
    messages: VecDeque<String>,
}

/// Boots the guests and says what came of each; never leaves a VMM behind. Errors are the observer's own.
pub fn boots(order: &Order, interrupted: &Interrupted) -> io::Result<Vec<End>> {
    stage(order)?;
    allow_files(order.vms.unwrap_or(1))?;
    let _peer = (order.until == Until::Worked).then(Peer::start).transpose()?;
    // Once for nothing: the program and its libraries are then in memory for every VMM alike.
    let _ = Command::new(&order.program).arg("--version").stdin(Stdio::null()).output();

    // Whom this process starts has it from this process.
    disable_transparent_huge_pages(order.host_pages == HostPages::Small)?;
    let saved = order.template.as_ref().map(|template| template::make(order, template, interrupted)).transpose();
    let _saved = match saved {
        Ok(saved) => saved,
        Err(why) => return Ok(vec![failed(why, &Seen::default()); order.vms.unwrap_or(1) as usize]),
    };
    match order.vms {
        None => Ok(vec![boot(order, Fleet::of(1).member(), interrupted)?]),
        Some(vms) => {
            let one = |number, member: Member<'_>| {
                let order = numbered(order, number);
                stage(&order)?;
                boot(&order, member, interrupted)
            };
            Fleet::of(vms).each(one).into_iter().collect()
        }
    }
}

/// Allows this process as many open files as `vms` take while all are being started: four for what each says and reads, one by
/// which its exec fails, two for its marks, and some of its own.
fn allow_files(vms: u32) -> io::Result<()> {
    let needed = u64::from(vms) * 8 + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|most| *most < needed) {
        return Err(io::Error::other(format!(
            "--vms {vms}: needs {needed} open files: {most} are allowed (ulimit -Hn)"
        )));
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit })?)
}

/// Boots one guest, as one of a fleet.
fn boot(order: &Order, mut member: Member<'_>, interrupted: &Interrupted) -> io::Result<End> {
    let port = match &order.marks {
        MarksFrom::Port(path) => Some(PortReader::start(path)?),
        MarksFrom::Timeline(_) | MarksFrom::Nowhere => None,
    };
    let mut command = Command::new(&order.program);
    let stdin = if order.template.is_some() { Stdio::piped() } else { Stdio::null() };
    command.args(&order.args).envs(&order.env).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let zero_ns = now_ns();
    let mut vmm = match command.spawn() {
        Ok(mut child) => {
            // One that has ended already is seen to have done so.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(template::LINE));
            Vmm(child)
        }
        Err(error) => return Ok(failed(format!("{}: {error}", order.program), &Seen::default())),
    };
    let (events, heard) = mpsc::channel();
    listen(&mut vmm, events);
    let (mut seen, ended) = watch(order, &mut vmm, &heard, &mut member, interrupted)?;
    drop(vmm);
    Ok(match sampled(order, &mut seen, ended, (port, zero_ns)) {
        Ok(sample) => End::Init(Sample { began_ns: order.vms.map(|_| member.since_first(zero_ns)), ..sample }),
        Err(why) => failed(why, &seen),
    })
}

/// The sample of a boot, or why there is none.
fn sampled(
    order: &Order,
    seen: &mut Seen,
    ended: Option<ExitStatus>,
    (port, zero_ns): (Option<PortReader>, u64),
) -> Result<Sample, String> {
    let Some((console_ns, memory)) = seen.init else { return Err(why(order, seen, ended)) };
    match order.until {
        Until::Filled if seen.filled != Some(true) => return Err(not_filled(order, seen, ended)),
        Until::Worked => not_worked(order, seen, ended).map_or(Ok(()), Err)?,
        _ => {}
    }
    if ended.is_some() && !seen.asked {
        // By itself, while it waited for the others.
        return Err(why(order, seen, ended));
    }
    let memory = memory.ok_or_else(|| format!("no smaps_rollup of the VMM; {}", why(order, seen, ended)))?;
    if order.host_pages == HostPages::Small && memory.huge > 0 {
        // Not for want of trying: a measurement on pages of 4 KiB must be one.
        return Err(format!("{} bytes of the VMM's memory are huge pages, though only 4K was allowed", memory.huge));
    }
    let resized = seen.resized.take().transpose()?;
    let reported = match (&order.marks, port) {
        (MarksFrom::Timeline(_), _) if ended.is_none() => return Err(why(order, seen, ended)),
        (MarksFrom::Timeline(path), _) => marks::from_timeline(path, zero_ns)
            .map_err(|error| format!("no timeline: {error}; {}", why(order, seen, ended)))?,
        (_, Some(port)) => port.finish(zero_ns),
        _ => Reported::default(),
    };
    let console_ns = console_ns.saturating_sub(zero_ns);
    Ok(Sample {
        init_ns: resized.or(reported.init_ns).unwrap_or(console_ns),
        by_mark: resized.is_none() && reported.init_ns.is_some(),
        console_ns,
        first_instruction_ns: reported.first_instruction_ns,
        host_memory_bytes: memory.bytes,
        marks: reported.marks,
        work: std::mem::take(&mut seen.rates),
        began_ns: None,
    })
}

/// Tells `events` what it says.
fn listen(Vmm(child): &mut Vmm, events: Sender<Event>) {
    if let Some(stderr) = child.stderr.take() {
        let events = events.clone();
        thread::spawn(move || lines(stderr, |_, line| events.send(Event::Message(line)).is_ok()));
    }
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || lines(stdout, |ns, line| events.send(Event::Line(ns, line)).is_ok()));
    }
}

/// Hands over every line, cut where it is too long to be one, while `take` wants more; with the time at which its end came, or,
/// of init's line, its first word: the guest writes the rest byte by byte.
fn lines(mut stream: impl Read, take: impl Fn(u64, String) -> bool) {
    let (mut chunk, mut line, mut init) = ([0; 4096], Vec::new(), None);
    let text = |line: &[u8]| String::from_utf8_lossy(line).trim_end().to_owned();
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        let ns = now_ns();
        for byte in &chunk[..n] {
            line.push(*byte);
            if init.is_none() && line.ends_with(INIT_LINE.as_bytes()) {
                init = Some(ns);
            }
            if *byte == b'\n' || line.len() >= LINE_BYTES {
                if !take(init.take().unwrap_or(ns), text(&line)) {
                    return;
                }
                line.clear();
            }
        }
    }
    if !line.is_empty() {
        take(init.unwrap_or_else(now_ns), text(&line));
    }
}

/// Listens until the VMM has ended, or has no more to tell. Its exit status, if it ended by itself.
fn watch(
    order: &Order,
    vmm: &mut Vmm,
    heard: &Receiver<Event>,
    member: &mut Member<'_>,
    interrupted: &Interrupted,
) -> io::Result<(Seen, Option<ExitStatus>)> {
    let mut seen = Seen::default();
    let limit = Duration::from_millis(order.limit_ms);
    let mut deadline = Instant::now() + limit;
    loop {
        if interrupted.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok((seen, None));
        }
        match heard.recv_timeout(left.min(LOOK)) {
            Ok(Event::Message(line)) => keep(&mut seen.messages, line),
            Ok(Event::Line(ns, line)) => {
                if seen.init.is_none() && line.contains(INIT_LINE) {
                    seen.resized = order.resize.as_ref().map(|resize| resize.run(interrupted));
                    seen.init = Some((ns, vmm.pid().and_then(memory::while_stopped)));
                    deadline = Instant::now() + limit;
                }
                seen.hear(&line);
                keep(&mut seen.console, line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Both streams are closed: it ends now, or never will.
            Err(RecvTimeoutError::Disconnected) => match vmm.0.try_wait()? {
                Some(status) => return Ok((seen, Some(status))),
                None => thread::sleep(left.min(LOOK)),
            },
        }
        if seen.is_all(order.until) && !seen.asked {
            member.arrive();
            if !member.is_last() {
                deadline = Instant::now() + limit;
                continue;
            }
            if !matches!(order.marks, MarksFrom::Timeline(_)) {
                return Ok((seen, None));
            }
            if let Some(pid) = vmm.pid() {
                // One that has just ended needs no signal.
                let _ = kill_process(pid, Signal::TERM);
            }
            (deadline, seen.asked) = (Instant::now() + LAST_WORDS, true);
        }
    }
}

impl Seen {
    /// Whether there is nothing more to wait for.
    fn is_all(&self, until: Until) -> bool {
        let enough = match until {
            Until::Init => true,
            Until::Filled => self.filled.is_some(),
            Until::Worked => self.done || self.idle.is_some(),
        };
        self.init.is_some() && enough
    }

    /// Takes what a line of init's says.
    fn hear(&mut self, line: &str) {
        let Some((_, json)) = line.split_once(INIT_LINE) else { return };
        let report = serde_json::from_str::<serde_json::Value>(&format!("{{{json}")).unwrap_or_default();
        let passed = report["ok"] == true;
        match report["check"].as_str() {
            Some(FILLED_CHECK) => self.filled = self.filled.or(Some(passed)),
            Some(LAST_CHECK) => {
                self.done = true;
                if !passed && self.idle.is_none() {
                    // Something else was written into the line that said so.
                    self.idle = Some("it says that not all was done, and why cannot be read".to_owned());
                }
            }
            Some(work::CHECK) => match (report["name"].as_str(), report[work::RATE].as_u64()) {
                (Some(name), Some(rate)) if passed => drop(self.rates.insert(name.to_owned(), rate)),
                _ => self.idle = Some(report["error"].as_str().unwrap_or(json).to_owned()),
            },
            _ => {}
        }
    }
}

/// Why not all is done, if so.
fn not_worked(order: &Order, seen: &Seen, ended: Option<ExitStatus>) -> Option<String> {
    let done = seen.rates.len();
    match (&seen.idle, ended) {
        (Some(why), _) => Some(format!("the guest could not work: {why}")),
        (None, _) if seen.done => None,
        (None, Some(status)) => Some(format!("the VMM ended ({status}) with {done} workloads done")),
        (None, None) => {
            let seconds = Duration::from_millis(order.limit_ms).as_secs_f64();
            Some(format!("the guest was at its work for {seconds} s, with {done} workloads done"))
        }
    }
}

fn not_filled(order: &Order, seen: &Seen, ended: Option<ExitStatus>) -> String {
    match (seen.filled, ended) {
        (Some(_), _) => "the guest says that its memmap is not filled".to_owned(),
        (None, Some(status)) => format!("the VMM ended ({status}) before the memmap was filled"),
        (None, None) => {
            let seconds = Duration::from_millis(order.limit_ms).as_secs_f64();
            format!("the memmap was not filled within {seconds} s after init")
        }
    }
}

fn keep(tail: &mut VecDeque<String>, mut line: String) {
    let end = (0..=TAIL_BYTES.min(line.len())).rev().find(|end| line.is_char_boundary(*end));
    line.truncate(end.unwrap_or_default());
    if !line.is_empty() {
        tail.push_back(line);
    }
    if tail.len() > TAIL_LINES {
        tail.pop_front();
    }
}

fn why(order: &Order, seen: &Seen, ended: Option<ExitStatus>) -> String {
    let message = seen.messages.back().map(|message| format!(": {message}")).unwrap_or_default();
    match (ended, &seen.init) {
        (Some(status), Some(_)) => format!("the VMM ended ({status}) after init{message}"),
        (Some(status), None) => format!("the VMM ended ({status}) before init{message}"),
        (None, Some(_)) if !matches!(order.marks, MarksFrom::Timeline(_)) => {
            format!("it was ended after init{message}")
        }
        (None, Some(_)) => format!("the VMM did not end within {} s of SIGTERM{message}", LAST_WORDS.as_secs()),
        (None, None) => format!("no init within {} s{message}", Duration::from_millis(order.limit_ms).as_secs_f64()),
    }
}

fn failed(why: String, seen: &Seen) -> End {
    End::Failed { why, console: seen.console.iter().cloned().collect() }
}

/// Makes the files that the VMM is to find, and removes what an earlier boot left in their place.
fn stage(order: &Order) -> io::Result<()> {
    let made: Option<&PathBuf> = match &order.marks {
        MarksFrom::Timeline(path) | MarksFrom::Port(path) => Some(path),
        MarksFrom::Nowhere => None,
    };
    for path in order.files.iter().map(|file| &file.path).chain(made) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(path, &error)),
            _ => {}
        }
    }
    for file in &order.files {
        match &file.content {
            Content::Copy(from) => fs::copy(from, &file.path).map(drop).map_err(|error| named(from, &error))?,
            Content::Text(text) => fs::write(&file.path, text).map_err(|error| named(&file.path, &error))?,
        }
    }
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Mark;
    use std::sync::Mutex;

    fn boot(order: &Order, interrupted: &Interrupted) -> io::Result<End> {
        boots(order, interrupted).map(|mut ends| ends.remove(0))
    }

    /// A VMM that is a shell script, whose `$1` is the file or FIFO for marks.
    fn order(script: &str, marks: impl Fn(PathBuf) -> MarksFrom, directory: &Path) -> Order {
        let file = directory.join("marks");
        let args = ["-c", script, "vmm"].map(str::to_owned).into_iter().chain([file.display().to_string()]).collect();
        let (program, files) = ("/bin/sh".to_owned(), Vec::new());
        Order {
            program,
            args,
            env: BTreeMap::from([("VMM".to_owned(), "1".to_owned())]),
            marks: marks(file),
            files,
            limit_ms: 60_000,
            until: Until::Init,
            host_pages: HostPages::Any,
            vms: None,
            template: None,
            resize: None,
        }
    }

    /// The same, watched until the memmap is filled.
    fn run_until_filled(script: &str, limit_ms: u64, marks: impl Fn(PathBuf) -> MarksFrom) -> End {
        let directory = tempfile::tempdir().unwrap();
        let order = Order { limit_ms, until: Until::Filled, ..order(script, marks, directory.path()) };
        boot(&order, &Interrupted::new(false)).unwrap()
    }

    fn run(script: &str, marks: impl Fn(PathBuf) -> MarksFrom) -> End {
        let directory = tempfile::tempdir().unwrap();
        boot(&order(script, marks, directory.path()), &Interrupted::new(false)).unwrap()
    }

    fn sample(end: End) -> Sample {
        match end {
            End::Init(sample) => sample,
            End::Failed { why, console } => panic!("{why}: {console:?}"),
        }
    }

    fn failure(end: End) -> (String, Vec<String>) {
        match end {
            End::Failed { why, console } => (why, console),
            End::Init(sample) => panic!("{sample:?}"),
        }
    }

    #[test]
    fn a_vmm_without_marks_is_timed_by_its_console_and_ended() {
        // It would run for ever, and has the environment that was asked for.
        let script = "[ \"$VMM\" = 1 ] || exit; sleep 0.2; echo 'FLATBOOT {\"check\":\"start\"}'; exec sleep 1000";
        let sample = sample(run(script, |_| MarksFrom::Nowhere));
        assert!(!sample.by_mark && sample.marks.is_empty() && sample.first_instruction_ns.is_none());
        assert_eq!(sample.init_ns, sample.console_ns);
        assert!(sample.init_ns >= 200_000_000, "the script slept so long: {}", sample.init_ns);
        assert!(sample.host_memory_bytes > 0);
    }

    #[test]
    fn inits_line_is_timed_by_its_first_word() {
        let script = "printf 'FLATBOOT {'; sleep 1; echo '\"check\":\"start\"}'; exec sleep 1000";
        let ns = Mutex::new(Vec::new());
        let mut child = Command::new("/bin/sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        lines(child.stdout.take().unwrap(), |at, line| {
            ns.lock().unwrap().push((at, now_ns(), line));
            false
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let (at, end, line) = ns.into_inner().unwrap().remove(0);
        assert_eq!(line, "FLATBOOT {\"check\":\"start\"}");
        // A busy host is late to see the first word; that is not half of what the script sleeps.
        assert!(end - at >= 500_000_000, "the script slept twice as long: {}", end - at);
    }

    #[test]
    fn marks_of_the_port_come_before_the_console() {
        let script =
            "printf '\\100' > $1; sleep 0.1; printf '\\101' > $1; sleep 0.1; echo 'FLATBOOT {}'; exec sleep 1000";
        let sample = sample(run(script, MarksFrom::Port));
        assert_eq!(
            sample.marks.iter().map(|mark| mark.name.as_str()).collect::<Vec<_>>(),
            ["kernel-entry", "init-exec"]
        );
        assert!(sample.by_mark && sample.init_ns == sample.marks[1].ns);
        assert!(sample.init_ns > sample.marks[0].ns);
        assert!(sample.console_ns > sample.init_ns);
    }

    #[test]
    fn a_timeline_is_read_once_the_vmm_has_ended() {
        let script = "trap 'echo $timeline > $1; exit 6' TERM; \
            timeline='{\"zero_monotonic_ns\":0,\"marks\":[{\"ns\":7,\"source\":\"guest\",\"name\":\"init-exec\"}]}'; \
            echo 'FLATBOOT {}'; while :; do sleep 0.05; done";
        let sample = sample(run(script, MarksFrom::Timeline));
        assert_eq!(sample.marks, [Mark { ns: 7, name: "init-exec".to_owned(), guest: true }]);
        assert_eq!((sample.init_ns, sample.by_mark), (7, true));
    }

    #[test]
    fn who_ends_while_others_boot_has_failed() {
        let directory = tempfile::tempdir().unwrap();
        let script = "timeline='{\"zero_monotonic_ns\":0,\"marks\":[{\"ns\":7,\"source\":\"guest\",\"name\":\"init-exec\"}]}'; \
            trap 'echo $timeline > $1; exit' TERM; all=${1%-*}; \
            if mkdir $all.first; then echo 'FLATBOOT {}'; sleep 0.2; echo $timeline > $1; : > $all.over; exit 3; fi; \
            while ! [ -e $all.over ]; do sleep 0.05; done; sleep 0.5; echo 'FLATBOOT {}'; while :; do sleep 0.05; done";
        let order = Order { vms: Some(2), ..order(script, MarksFrom::Timeline, directory.path()) };
        let ends = boots(&order, &Interrupted::new(false)).unwrap();
        let (good, bad): (Vec<_>, Vec<_>) = ends.into_iter().partition(|end| matches!(end, End::Init(_)));
        assert_eq!((good.len(), bad.len()), (1, 1), "{bad:?}");
        let why = failure(bad.into_iter().next().unwrap()).0;
        assert!(why.contains("exit status: 3"), "{why}");
    }

    #[test]
    fn a_guest_is_watched_until_its_memmap_is_filled() {
        let script = "printf '\\101' > $1; echo 'FLATBOOT {\"check\":\"start\"}'; sleep 0.2; printf '\\110' > $1; \
            echo 'xFLATBOOT {\"check\":\"settle\",\"ok\":true}'; exec sleep 1000";
        let filled = sample(run_until_filled(script, 60_000, MarksFrom::Port));
        let names: Vec<_> = filled.marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["init-exec", "deferred-end"]);
        // How far they are apart is not said: who reads them may be late.
        assert!(filled.marks[1].ns >= filled.marks[0].ns && filled.init_ns == filled.marks[0].ns);
        // Unless that is asked for, its first line ends it.
        assert_eq!(sample(run(script, MarksFrom::Port)).marks.len(), 1);
    }

    #[test]
    fn a_memmap_that_is_never_filled_fails_the_boot() {
        let init = "echo 'FLATBOOT {\"check\":\"start\"}'";
        let why = |rest: &str, limit_ms| {
            failure(run_until_filled(&format!("{init}; {rest}"), limit_ms, |_| MarksFrom::Nowhere)).0
        };
        let said = "echo 'FLATBOOT {\"check\":\"settle\",\"ok\":false}'; exec sleep 1000";
        assert_eq!(why(said, 60_000), "the guest says that its memmap is not filled");
        assert_eq!(why("exit 0", 60_000), "the VMM ended (exit status: 0) before the memmap was filled");
        assert_eq!(why("exec sleep 1000", 400), "the memmap was not filled within 0.4 s after init");
    }

    #[test]
    fn work_that_failed_is_told_however_long_the_reason() {
        let worked = |last: &str| {
            let script = format!("echo 'FLATBOOT {{\"check\":\"start\"}}'; {last}; exec sleep 1000");
            let directory = tempfile::tempdir().unwrap();
            let order = order(&script, |_| MarksFrom::Nowhere, directory.path());
            // Without the peer, of which a machine has one.
            let order = Order { until: Until::Worked, ..order };
            super::boot(&order, Fleet::of(1).member(), &Interrupted::new(false)).unwrap()
        };
        let why = "x".repeat(1000);
        let long = format!(
            "echo 'FLATBOOT {{\"check\":\"work\",\"name\":\"rx-4\",\"ok\":false,\"error\":\"{why}\"}}'; \
             echo 'FLATBOOT {{\"check\":\"done\",\"ok\":false}}'"
        );
        let (said, console) = failure(worked(&long));
        assert_eq!(said, format!("the guest could not work: {why}"));
        assert_eq!(console[1].len(), TAIL_BYTES);
        // What the kernel says may come in the middle of it.
        let broken = "echo 'FLATBOOT {\"check\":\"wo[ 1.2] oh'; echo 'FLATBOOT {\"check\":\"done\",\"ok\":false}'";
        assert!(failure(worked(broken)).0.contains("cannot be read"));
        assert!(sample(worked("echo 'FLATBOOT {\"check\":\"done\",\"ok\":true}'")).work.is_empty());
    }

    #[test]
    fn failures_say_why_and_keep_the_console() {
        let (why, console) = failure(run("echo one; echo two; echo lost >&2; exit 3", |_| MarksFrom::Nowhere));
        assert!(why.contains("exit status: 3") && why.contains("before init: lost"), "{why}");
        assert_eq!(console, ["one", "two"]);
        let (why, _) =
            failure(run("trap 'exit 1' TERM; echo 'FLATBOOT {}'; while :; do sleep 0.05; done", MarksFrom::Timeline));
        assert!(why.contains("no timeline") && why.contains("exit status: 1"), "{why}");
        let directory = tempfile::tempdir().unwrap();
        let missing =
            Order { program: "/nonexistent/vmm".to_owned(), ..order("", |_| MarksFrom::Nowhere, directory.path()) };
        let (why, _) = failure(boot(&missing, &Interrupted::new(false)).unwrap());
        assert!(why.starts_with("/nonexistent/vmm: "), "{why}");
    }

    #[test]
    fn a_hung_guest_is_ended_at_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let script = format!("echo $$ > {}; echo up; exec sleep 1000", pid.display());
        let order = Order { limit_ms: 300, ..order(&script, |_| MarksFrom::Nowhere, directory.path()) };
        let (why, console) = failure(boot(&order, &Interrupted::new(false)).unwrap());
        assert!(why.starts_with("no init within 0.3 s"), "{why}");
        assert_eq!(console, ["up"]);
        let pid = fs::read_to_string(pid).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists());
    }

    #[test]
    fn a_signal_ends_the_boot_and_the_vmm() {
        let directory = tempfile::tempdir().unwrap();
        let order = order("exec sleep 1000", |_| MarksFrom::Nowhere, directory.path());
        assert_eq!(boot(&order, &Interrupted::new(true)).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn files_are_staged_and_what_lay_there_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("from"), "new").unwrap();
        fs::write(path("to"), "something old and longer").unwrap();
        let script =
            format!("cat {} {}; echo 'FLATBOOT {{}}'; exec sleep 1000", path("to").display(), path("text").display());
        let mut order = order(&script, |_| MarksFrom::Nowhere, directory.path());
        order.files = vec![
            super::super::order::StagedFile { path: path("to"), content: Content::Copy(path("from")) },
            super::super::order::StagedFile { path: path("text"), content: Content::Text("text".to_owned()) },
        ];
        sample(boot(&order, &Interrupted::new(false)).unwrap());
        assert_eq!(fs::read_to_string(path("to")).unwrap(), "new");
        order.files[0].content = Content::Copy(path("missing"));
        let error = boot(&order, &Interrupted::new(false)).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
    }
}
