// SPDX-License-Identifier: Apache-2.0
//! Threads that wait for each other, and programs that come and go: what processors do in between is up to the kernel.

use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::outcome::Outcome;
use crate::{files, mark, processors, storm};

/// A thread on one processor and one on the next hand each other a byte, so many times; a pair for each two processors.
pub(crate) fn turns(argument: &str) -> Outcome {
    let times: u32 = argument.parse().map_err(|_| format!("waits={argument}: must be a number of times"))?;
    let pairs = processors::count()? / 2;
    if pairs == 0 {
        return Err("waits: two processors and more are needed".to_owned());
    }
    mark::begin()?;
    let since = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = (0..pairs).map(|pair| scope.spawn(move || hand_over(2 * pair, times))).collect();
        running.into_iter().try_for_each(|pair| pair.join().unwrap_or_else(|_| Err(io::Error::other("a thread died"))))
    })
    .map_err(|error| error.to_string())?;
    let turns = pairs as u64 * u64::from(times);
    Ok((true, json!({ "pairs": pairs, "turns": turns, "ns": since.elapsed().as_nanos() })))
}

/// Both threads of a pair, on `processor` and the next.
fn hand_over(processor: usize, times: u32) -> io::Result<()> {
    let (there, back) = (pipe()?, pipe()?);
    thread::scope(|scope| {
        let other = scope.spawn(move || on(processor + 1, (there.0, back.1), times, false));
        on(processor, (back.0, there.1), times, true)?;
        other.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")))
    })
}

/// One of them: has the byte at `first`, or waits for it.
fn on(processor: usize, (mut from, mut to): (PipeReader, PipeWriter), times: u32, first: bool) -> io::Result<()> {
    processors::run_on(processor)?;
    let mut byte = [7];
    for _ in 0..times {
        if first {
            to.write_all(&byte)?;
        }
        from.read_exact(&mut byte)?;
        if !first {
            to.write_all(&byte)?;
        }
    }
    Ok(())
}

/// So many programs are started and end, one after another on each processor; how many function calls that had other processors
/// interrupted for, and how many times their translations were flushed.
pub(crate) fn programs(argument: &str) -> Outcome {
    let times: u32 = argument.parse().map_err(|_| format!("programs={argument}: must be a number of times"))?;
    let processors = processors::count()?;
    let before = interrupted()?;
    mark::begin()?;
    let since = Instant::now();
    thread::scope(|scope| {
        let one = |processor| {
            processors::run_on(processor).map_err(|error| error.to_string())?;
            (0..times).try_for_each(|_| storm::programs().map(|_| ()))
        };
        let running: Vec<_> = (0..processors).map(|processor| scope.spawn(move || one(processor))).collect();
        running.into_iter().try_for_each(|done| done.join().unwrap_or_else(|_| Err("a thread died".to_owned())))
    })?;
    let ns = since.elapsed().as_nanos();
    let after = interrupted()?;
    let programs = u64::from(times) * processors as u64;
    let [calls, flushes] = [0, 1].map(|line| after[line].saturating_sub(before[line]));
    Ok((true, json!({ "programs": programs, "calls": calls, "flushes": flushes, "ns": ns })))
}

/// Function call and TLB interrupts of all processors so far.
fn interrupted() -> Result<[u64; 2], String> {
    let text = files::text("/proc/interrupts")?;
    Ok(["CAL:", "TLB:"].map(|name| sum_of(&text, name)))
}

/// The numbers of the line called `name`, all processors' together.
fn sum_of(interrupts: &str, name: &str) -> u64 {
    let line = interrupts.lines().find_map(|line| line.trim_start().strip_prefix(name));
    let numbers = line.unwrap_or_default().split_whitespace().map_while(|word| word.parse::<u64>().ok());
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_comes_to_its_end() {
        let (there, back) = (pipe().unwrap(), pipe().unwrap());
        let other = thread::spawn(move || on(0, (there.0, back.1), 100, false));
        on(0, (back.0, there.1), 100, true).unwrap();
        other.join().unwrap().unwrap();
    }

    #[test]
    fn interrupts_of_all_processors_are_added() {
        let text =
            "           CPU0       CPU1\n CAL:         10         32   Function call interrupts\n TLB:  1 2  TLB\n";
        assert_eq!((sum_of(text, "CAL:"), sum_of(text, "TLB:"), sum_of(text, "RES:")), (42, 3, 0));
    }
}
