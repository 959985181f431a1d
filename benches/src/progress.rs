// SPDX-License-Identifier: Apache-2.0
//! What is being done, how far it has come and how long it will take: on a terminal one line that is written over, elsewhere a
//! line of standard error now and then.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// How often time is told on a terminal, and elsewhere.
const TICK: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(15);

/// Progress of one thing, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    /// Begins the clock. `label` stands before each line.
    pub(crate) fn begin(label: String) -> Self {
        let style = ProgressStyle::with_template("==> {prefix} {times}  {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let style = style.with_key("times", |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&times(state.elapsed(), state.pos(), state.len()));
        });
        let bar = ProgressBar::no_length().with_prefix(label).with_style(style);
        if bar.is_hidden() {
            tell(&bar);
            let weak = bar.downgrade();
            thread::spawn(move || {
                loop {
                    thread::sleep(QUIET);
                    match weak.upgrade() {
                        Some(bar) if !bar.is_finished() => tell(&bar),
                        _ => return,
                    }
                }
            });
        } else {
            bar.enable_steady_tick(TICK);
        }
        Self { bar, began: Instant::now() }
    }

    /// From now on so many steps make the whole, of about the same length each.
    pub(crate) fn expect(&self, steps: usize) {
        self.bar.reset();
        self.bar.set_length(steps as u64);
    }

    /// So many more steps are done.
    pub(crate) fn done(&self, steps: usize) {
        self.bar.inc(steps as u64);
    }

    /// Tells what is being done.
    pub(crate) fn show(&self, what: &str) {
        self.bar.set_message(what.chars().filter(|character| !character.is_control()).collect::<String>());
    }

    /// Prints a line that stays; `passing`, only where the next one does not write over it.
    pub(crate) fn say(&self, line: &str, passing: bool) {
        if passing && !self.bar.is_hidden() {
            self.show(line);
        } else {
            self.aside(|| eprintln!("{line}"));
        }
    }

    /// Does what writes to the terminal itself.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        self.bar.suspend(act)
    }

    /// Time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn tell(bar: &ProgressBar) {
    let line =
        format!("==> {} {}  {}", bar.prefix(), times(bar.elapsed(), bar.position(), bar.length()), bar.message());
    eprintln!("{}", line.trim_end());
}

/// Steps, time gone and time left; the latter as if all steps took what those that are done took on average.
fn times(elapsed: Duration, done: u64, expected: Option<u64>) -> String {
    let gone = clock(elapsed);
    let Some(expected) = expected else { return format!("[{gone}]") };
    match (u32::try_from(done), u32::try_from(expected.saturating_sub(done))) {
        (Ok(done @ 1..), Ok(more)) => {
            format!("[{done} of {expected}, {gone}, about {} left]", clock(elapsed / done * more))
        }
        _ => format!("[{done} of {expected}, {gone}]"),
    }
}

/// Minutes and seconds.
pub(crate) fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_told_once_a_step_is_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(times(minute, 0, None), "[1:00]");
        assert_eq!(times(minute, 0, Some(4)), "[0 of 4, 1:00]");
        assert_eq!(times(minute, 1, Some(4)), "[1 of 4, 1:00, about 3:00 left]");
        assert_eq!(times(minute, 5, Some(4)), "[5 of 4, 1:00, about 0:00 left]");
    }
}
