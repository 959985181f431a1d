// SPDX-License-Identifier: Apache-2.0
//! What is being done, and how long it will take: one line on standard error that is written over on a terminal, and now
//! and then a line elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

/// Where there is no terminal a line is written no more often than this.
const QUIET: Duration = Duration::from_secs(15);

/// Progress of one promise.
#[derive(Debug)]
pub(super) struct Progress {
    /// What stands before each line.
    label: String,
    began: Instant,
    /// When the steps began.
    stepping: Instant,
    expected: usize,
    done: usize,
    terminal: bool,
    told: Option<Instant>,
    /// What is being done.
    what: String,
}

impl Progress {
    /// Begins the clock. `label` stands before each line.
    pub(super) fn begin(label: String) -> Self {
        let terminal = io::stderr().is_terminal();
        let began = Instant::now();
        Self { label, began, stepping: began, expected: 0, done: 0, terminal, told: None, what: String::new() }
    }

    /// From now on so many steps make the whole, of about the same length each.
    pub(super) fn expect(&mut self, steps: usize) {
        (self.stepping, self.expected, self.done) = (Instant::now(), steps, 0);
    }

    /// So many more steps are done.
    pub(super) fn done(&mut self, steps: usize) {
        self.done += steps;
    }

    /// Time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Tells what is being done.
    pub(super) fn show(&mut self, what: &str) {
        what.clone_into(&mut self.what);
        self.tick();
    }

    /// Tells it again: time has passed.
    pub(super) fn tick(&mut self) {
        if !self.terminal && self.told.is_some_and(|told| told.elapsed() < QUIET) {
            return;
        }
        self.told = Some(Instant::now());
        let mut line = format!("==> {} {}", self.label, times(self.stepping.elapsed(), self.done, self.expected));
        if !self.what.is_empty() {
            line.push_str("  ");
            line.extend(self.what.chars().filter(|character| !character.is_control()));
        }
        if self.terminal {
            // A line that wraps cannot be written over.
            let columns = tcgetwinsize(rustix::stdio::stderr()).map_or(80, |size| usize::from(size.ws_col)).max(20);
            let line: String = line.chars().take(columns - 1).collect();
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        } else {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Removes the line from a terminal.
    pub(super) fn clear(&self) {
        if self.terminal && self.told.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Steps, time gone and time left; the latter as if all steps took what those that are done took on average.
fn times(elapsed: Duration, done: usize, expected: usize) -> String {
    if expected == 0 {
        return format!("[{}]", clock(elapsed));
    }
    let gone = clock(elapsed);
    match (u32::try_from(done), u32::try_from(expected.saturating_sub(done))) {
        (Ok(done @ 1..), Ok(more)) => {
            format!("[{done} of {expected}, {gone}, about {} left]", clock(elapsed / done * more))
        }
        _ => format!("[{done} of {expected}, {gone}]"),
    }
}

/// Minutes and seconds.
pub(super) fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_told_once_a_step_is_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(times(minute, 0, 0), "[1:00]");
        assert_eq!(times(minute, 0, 4), "[0 of 4, 1:00]");
        assert_eq!(times(minute, 1, 4), "[1 of 4, 1:00, about 3:00 left]");
        assert_eq!(times(minute, 5, 4), "[5 of 4, 1:00, about 0:00 left]");
    }
}
