// SPDX-License-Identifier: Apache-2.0
//! A program to run on a host, what it reads and writes, and how it ended.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Exit code of `flatboot-bench` when the time ran out, as of timeout(1).
pub const EXIT_TIMEOUT: u8 = 124;
/// Exit code of `flatboot-bench` when the host itself failed, as of env(1).
pub const EXIT_HOST: u8 = 125;
/// Exit code when the program exists but cannot be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// Exit code when the program does not exist.
pub const EXIT_NOT_FOUND: u8 = 127;

/// A program with its arguments and its surroundings.
#[derive(Debug, Clone)]
pub struct Command {
    /// A path on this machine, the same inside the emulated host; or a name to look up in PATH.
    pub program: OsString,
    /// Arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Added to PATH, HOME and LANG of the caller, which is all that a program is given otherwise.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; the caller's if none is given.
    pub cwd: Option<PathBuf>,
    /// The program is ended after this time, and the host with it; never if none is given.
    pub timeout: Option<Duration>,
}

/// What the program reads.
#[derive(Debug, Clone)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// These bytes.
    Bytes(Vec<u8>),
    /// What the caller's own standard input gives.
    Inherit,
    /// The caller's terminal, which has to be one, for input and output both.
    Terminal,
}

/// Where the program's input comes from and where its output goes, as it comes.
pub struct Streams<'a> {
    /// Input.
    pub stdin: Stdin,
    /// Standard output. If a write to it fails the program gets SIGPIPE.
    pub stdout: &'a mut (dyn Write + Send),
    /// Standard error.
    pub stderr: &'a mut (dyn Write + Send),
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish {
    /// Exit code; 128 + n after death by signal n.
    pub code: u8,
}

/// How a program ended and all that it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Exit code; 128 + n after death by signal n.
    pub code: u8,
    /// Everything written to standard output.
    pub stdout: Vec<u8>,
    /// Everything written to standard error.
    pub stderr: Vec<u8>,
}

impl Command {
    /// A program without arguments, with a time limit of ten minutes.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            timeout: Some(Duration::from_secs(600)),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// The whole environment that the program gets: the caller's PATH, HOME and LANG, then what was added.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited =
            ["PATH", "HOME", "LANG"].into_iter().filter_map(|key| Some((key.into(), std::env::var_os(key)?)));
        let mut all: Vec<(OsString, OsString)> = inherited.collect();
        for (key, value) in &self.env {
            all.retain(|(other, _)| other != key);
            all.push((key.clone(), value.clone()));
        }
        all
    }
}

/// The exit code of a program that has ended so; 128 + n after death by signal n.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_HOST)
}

impl Outcome {
    /// Runs `run` with streams that keep everything.
    pub fn capture<E>(run: impl FnOnce(Streams<'_>) -> Result<Finish, E>) -> Result<Self, E> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let finish = run(Streams { stdin: Stdin::Null, stdout: &mut stdout, stderr: &mut stderr })?;
        Ok(Self { code: finish.code, stdout, stderr })
    }

    /// Standard output as text, with what is not UTF-8 replaced.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_variable_replaces_the_inherited_one() {
        let command = Command::new("x").env("PATH", "/only").env("A", "1").env("A", "2");
        let environment = command.environment();
        let values: Vec<_> = environment.iter().filter(|(key, _)| key == "PATH" || key == "A").collect();
        assert_eq!(values, [&("PATH".into(), "/only".into()), &("A".into(), "2".into())]);
    }
}
