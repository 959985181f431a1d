// SPDX-License-Identifier: Apache-2.0
//! Promises that tests keep: `cargo test` is run, and what its harnesses count is what counts.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::outcome::{Outcome, Status};
use crate::artifact;
use crate::command::{Command, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Stdin, Streams};
use crate::direct::DirectSession;
use crate::host::HostOptions;
use crate::progress::Progress;

/// A variable of the environment: its name and its value.
type Variable = (OsString, OsString);

/// Says to tests that time something how many rounds they take; without it they take few, or none.
const ROUNDS: &str = "FLATBOOT_TIMES";

/// Runs `cargo test` with `arguments` in the source tree. What it times it does in so many `rounds`, unless the environment says how
/// many. All it says goes to `log`, its temporary files to `scratch`.
pub(super) fn test(
    arguments: &[&str],
    rounds: Option<usize>,
    log: &Path,
    scratch: &Path,
    progress: &Progress,
) -> Outcome {
    let Some(tree) = artifact::source_tree() else {
        return Outcome::cannot_here("no source tree around this directory".to_owned());
    };
    let file = match File::create(log) {
        Ok(file) => file,
        Err(error) => return Outcome::not_run(format!("{}: {error}", log.display())),
    };
    let mut command = Command::new("cargo").arg("test").args(arguments.iter().copied());
    command.env = environment(std::env::vars_os(), rounds);
    command = command.env("TMPDIR", scratch);
    command.cwd = Some(tree);
    command.timeout = None;

    let heard = Mutex::new(Heard { report: Report::default(), log: file, progress });
    let (mut stdout, mut stderr) = (Ear::new(&heard), Ear::new(&heard));
    let streams = Streams { stdin: Stdin::Null, stdout: &mut stdout, stderr: &mut stderr };
    let session = DirectSession::start(&HostOptions::default());
    let finish = session.and_then(|mut session| session.run_streaming(&command, streams));
    let report = heard.into_inner().unwrap_or_else(PoisonError::into_inner).report;
    let log = log.display();
    match finish {
        Err(error) => Outcome::not_run(error.to_string()),
        Ok(finish) if matches!(finish.code, EXIT_NOT_FOUND | EXIT_NOT_EXECUTABLE) => {
            Outcome::not_run("cargo is not there or cannot be executed".to_owned())
        }
        Ok(finish) => {
            let mut outcome = report.judge(finish.code);
            let given = command.env.iter().find(|(name, _)| rounds.is_some() && name == ROUNDS);
            if let (Status::Held | Status::HeldInPart(_) | Status::Missed, Some((_, given))) = (&outcome.status, given)
            {
                outcome.measured = format!("{}, {} rounds", outcome.measured, given.display());
            }
            outcome.details.push(format!("all that was said: {log}"));
            outcome
        }
    }
}

/// `ours`, with the number of rounds, if there is one and it is not in there.
fn environment(ours: impl Iterator<Item = Variable>, rounds: Option<usize>) -> Vec<Variable> {
    let mut all: Vec<_> = ours.collect();
    if let Some(rounds) = rounds.filter(|_| all.iter().all(|(name, _)| name != ROUNDS)) {
        all.push((ROUNDS.into(), rounds.to_string().into()));
    }
    all
}

/// What the test harnesses reported.
#[derive(Debug, Default)]
struct Report {
    /// A harness began to run tests.
    began: bool,
    /// … and came to its end.
    ended: bool,
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Names of tests that failed.
    failures: Vec<String>,
    /// Why a test was ignored, from the first that said so.
    because: Option<String>,
    /// What went wrong before any test began, from the last line that said so.
    error: Option<String>,
    /// The lines that come now are names of failed tests.
    listing: bool,
}

/// What a line means for the progress.
enum Step<'a> {
    /// So many tests are to come.
    Begin(usize),
    /// A test begins, or ends at once.
    Test(&'a str),
    /// Something else, worth showing while no test runs.
    Other,
}

impl Report {
    /// Takes one line of what cargo and the harnesses say (libtest and libtest-mimic, their default format).
    fn take<'a>(&mut self, line: &'a str) -> Step<'a> {
        self.reason(line);
        self.list(line);
        if let Some(counts) = line.strip_prefix("test result: ") {
            let count = |word: &str| number_before(counts, word);
            self.passed += count(" passed");
            self.failed += count(" failed");
            self.ignored += count(" ignored");
            self.ended = true;
        } else if let Some(rest) = line.strip_prefix("running ") {
            if let Some(Ok(tests)) = rest.strip_suffix(" tests").or(rest.strip_suffix(" test")).map(str::parse) {
                self.began = true;
                return Step::Begin(tests);
            }
        } else if let Some((name, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            return Step::Test(name.trim_end());
        } else if !self.began && line.starts_with("error: ") {
            self.error = Some(line.to_owned());
        }
        Step::Other
    }

    /// "SKIPPED: name: why" of this project's own tests, "… ignored, why" of libtest.
    fn reason(&mut self, line: &str) {
        let own = || line.strip_prefix("SKIPPED: ");
        let libtest = || line.strip_prefix("test ")?.split_once(" ... ignored, ").map(|(_, why)| why);
        if self.because.is_none() {
            self.because = own().or_else(libtest).map(str::to_owned);
        }
    }

    fn list(&mut self, line: &str) {
        let name = line.strip_prefix("    ").filter(|name| self.listing && !name.starts_with(' '));
        self.failures.extend(name.map(str::to_owned));
        self.listing = line == "failures:" || name.is_some();
    }

    /// The verdict. `code` is cargo's exit code: the counts alone could miss a harness that never came to count.
    fn judge(self, code: u8) -> Outcome {
        let measured = match (self.passed + self.failed, self.ignored) {
            (0, 0) => "no test matches".to_owned(),
            _ => self.counts(),
        };
        let status = match code {
            0 if self.passed > 0 && self.failed == 0 && self.ignored > 0 => {
                Status::HeldInPart(self.because.unwrap_or_else(|| "some tests are ignored".to_owned()))
            }
            0 if self.passed > 0 && self.failed == 0 => Status::Held,
            0 if self.ignored > 0 && self.failed == 0 => {
                return Outcome {
                    measured,
                    ..Outcome::cannot_here(self.because.unwrap_or_else(|| "every test is ignored".to_owned()))
                };
            }
            // Nothing was run for the promise: a filter that has lost its tests proves nothing.
            0 if self.ended => Status::Missed,
            _ if self.failed > 0 => Status::Missed,
            _ if self.began && !self.ended => {
                let died = format!("the tests died with exit code {code}");
                return Outcome { status: Status::Missed, measured: died, details: Vec::new() };
            }
            _ => return Outcome::not_run(self.error.unwrap_or_else(|| format!("cargo test: exit code {code}"))),
        };
        let details = self.failures.iter().map(|name| format!("failed: {name}")).collect();
        Outcome { status, measured, details }
    }

    fn counts(&self) -> String {
        let mut text = format!("{} passed", self.passed);
        for (count, word) in [(self.failed, "failed"), (self.ignored, "skipped")] {
            if count > 0 {
                text = format!("{text}, {count} {word}");
            }
        }
        text
    }
}

/// The number that stands right before `word` in "ok. 3 passed; 0 failed"; 0 if there is none.
fn number_before(text: &str, word: &str) -> usize {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Where both streams of cargo go.
struct Heard<'a> {
    report: Report,
    log: File,
    progress: &'a Progress,
}

/// One stream, cut into lines.
struct Ear<'a, 'b> {
    heard: &'a Mutex<Heard<'b>>,
    line: Vec<u8>,
}

impl<'a, 'b> Ear<'a, 'b> {
    fn new(heard: &'a Mutex<Heard<'b>>) -> Self {
        Self { heard, line: Vec::new() }
    }
}

impl Heard<'_> {
    fn line(&mut self, line: &str) {
        match self.report.take(line) {
            Step::Begin(tests) => self.progress.expect(tests),
            Step::Test(name) => {
                self.progress.show(name);
                self.progress.done(1);
            }
            Step::Other if !self.report.began && !line.trim().is_empty() => self.progress.show(line.trim()),
            Step::Other => {}
        }
    }
}

impl Write for Ear<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.log.write_all(bytes)?;
        for byte in bytes {
            if *byte == b'\n' {
                heard.line(String::from_utf8_lossy(&self.line).trim_end_matches('\r'));
                self.line.clear();
            } else {
                self.line.push(*byte);
            }
        }
        // A test that is told before it has ended.
        if let Some(name) = self.line.strip_prefix(b"test ").and_then(|line| line.strip_suffix(b" ... ")) {
            heard.progress.show(String::from_utf8_lossy(name).trim_end());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &str) -> Report {
        let mut report = Report::default();
        for line in lines.lines() {
            report.take(line);
        }
        report
    }

    const PASSED: &str = "     Running tests/vm.rs (target/vm-1)\n\nrunning 2 tests\ntest a ... ok\ntest b ... using KVM\nok\n\n\
        test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.1s\n";
    const FAILED: &str = "running 2 tests\ntest a ... FAILED\ntest b ... ok\n\nfailures:\n\n---- a ----\n    no name\n\n\n\
        failures:\n    mod::a\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
    const NONE: &str = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0s\n";

    #[test]
    fn passed_and_failed_are_counted_over_all_harnesses() {
        let outcome = report(PASSED).judge(0);
        assert_eq!((outcome.status, outcome.measured.as_str()), (Status::Held, "2 passed"));
        let outcome = report(&(PASSED.to_owned() + FAILED)).judge(101);
        assert_eq!((outcome.status, outcome.measured.as_str()), (Status::Missed, "3 passed, 1 failed"));
        assert_eq!(outcome.details, ["failed: mod::a"]);
    }

    #[test]
    fn what_is_timed_takes_as_many_rounds_as_are_asked_for() {
        let of = |ours: &[(&str, &str)], rounds| {
            let ours = ours.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            environment(ours, rounds).into_iter().map(|(name, value)| format!("{}={}", name.display(), value.display()))
        };
        assert!(of(&[("A", "1")], Some(7)).eq(["A=1", "FLATBOOT_TIMES=7"]));
        assert!(of(&[("FLATBOOT_TIMES", "3")], Some(7)).eq(["FLATBOOT_TIMES=3"]));
        assert!(of(&[("A", "1")], None).eq(["A=1"]));
    }

    #[test]
    fn a_filter_that_matches_nothing_never_holds() {
        let outcome = report(NONE).judge(0);
        assert_eq!((outcome.status, outcome.measured.as_str()), (Status::Missed, "no test matches"));
    }

    #[test]
    fn counts_without_a_good_exit_code_never_hold() {
        assert!(matches!(report(PASSED).judge(101).status, Status::NotRun(_)));
        assert_eq!(report("running 2 tests\ntest a ... ok\n").judge(101).status, Status::Missed);
        let not_compiled = report("error: could not compile\n").judge(101).status;
        assert_eq!(not_compiled, Status::NotRun("error: could not compile".to_owned()));
        assert!(matches!(report("").judge(0).status, Status::NotRun(_)));
    }

    #[test]
    fn what_only_skips_cannot_be_proved_here() {
        let ignored = "running 2 tests\nSKIPPED: a: no /dev/kvm\ntest a ... ignored\ntest b ... ignored, no b\n\n\
            test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n";
        let outcome = report(ignored).judge(0);
        assert_eq!(outcome.status, Status::CannotHere("a: no /dev/kvm".to_owned()));
        let outcome = report(&(PASSED.to_owned() + ignored)).judge(0);
        assert_eq!(
            (outcome.status, outcome.measured.as_str()),
            (Status::HeldInPart("a: no /dev/kvm".to_owned()), "2 passed, 2 skipped")
        );
    }
}
