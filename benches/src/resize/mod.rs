// SPDX-License-Identifier: Apache-2.0
//! VMs whose memory is changed while they run, one after the other in rounds, each change timed from outside.
//!
//! It runs beside the VMMs, in the same host and on the same clock, as the [observer](crate::observe) does of boots.

mod machine;
mod order;
mod qmp;

use anyhow::Result;

use crate::observe::Interrupted;
use machine::Running;

pub use order::{Change, Changed, Control, Machine, Order};

/// Does what is ordered, and says when each change was asked for and done, in order. Never leaves a VMM behind.
pub fn resize(order: &Order, interrupted: &Interrupted) -> Result<Vec<Changed>> {
    let start = |machine| Running::start(machine, interrupted);
    let mut running = order.machines.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut done = Vec::new();
    for _ in 0..order.rounds {
        for change in &order.changes {
            let machine = running.get_mut(change.machine).ok_or_else(|| anyhow::anyhow!("{}: no VM", change.name))?;
            done.push(machine.change(change)?);
        }
    }
    running.into_iter().try_for_each(Running::end)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A VMM that is a program in Perl: it grants every request and says a line for each, after its first.
    const VMM: &str = r#"
        use IO::Socket::UNIX;
        my $listener = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die;
        open(my $console, ">>", $ARGV[1]) or die; $console->autoflush(1);
        print $console "ready\n";
        while (my $stream = $listener->accept) {
            my ($request, $length) = ("", 0);
            while (<$stream>) { $request .= $_; $length = $1 if /Content-Length: (\d+)/; last if /^\r$/; }
            read $stream, my $body, $length;
            print $stream $body =~ /666/ ? "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno" : "HTTP/1.1 204 Yes\r\n\r\n";
            close $stream;
            print $console "\nFLATBOOT {\"check\":\"hog\",\"ok\":false}\n" if $body =~ /777/;
            print $console "has $body\n";
        }
    "#;

    fn order(directory: &Path, change: Change) -> Order {
        let (socket, console) = (directory.join("socket"), directory.join("console"));
        let words = ["-e", VMM, &socket.display().to_string(), &console.display().to_string()].map(str::to_owned);
        let control = Control::Flatboot { socket, size: 1000 };
        let ready = "ready".to_owned();
        let machine = Machine { program: "perl".to_owned(), args: words.to_vec(), console, ready, control };
        Order { machines: vec![machine], rounds: 2, changes: vec![change] }
    }

    fn change(bytes: u64) -> Change {
        Change { machine: 0, name: "more".to_owned(), bytes, then: Some("has {\"desired_ram\": 1".to_owned()) }
    }

    #[test]
    fn each_change_is_asked_for_and_seen() {
        let directory = tempfile::tempdir().unwrap();
        let done = resize(&order(directory.path(), change(24)), &Interrupted::new(false)).unwrap();
        assert_eq!(done.len(), 2);
        assert!(done.iter().all(|changed| changed.name == "more" && changed.asked_ns < changed.done_ns));
        assert!(done[0].done_ns < done[1].asked_ns);
    }

    #[test]
    fn what_is_refused_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let error = resize(&order(directory.path(), change(666)), &Interrupted::new(false)).unwrap_err();
        assert_eq!(error.to_string(), "more: vm.resize: 500 no");
        let mut order = order(directory.path(), change(0));
        "sh".clone_into(&mut order.machines[0].program);
        order.machines[0].args = vec!["-c".to_owned(), "echo why >&2; exit 3".to_owned()];
        let error = resize(&order, &Interrupted::new(false)).unwrap_err().to_string();
        assert_eq!(error, "sh: exit status: 3 before its console said \"ready\": why");
    }

    /// What was timed was something else then.
    #[test]
    fn a_guest_whose_check_failed_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let more = Change { then: Some("1777".to_owned()), ..change(777) };
        let error = resize(&order(directory.path(), more), &Interrupted::new(false)).unwrap_err();
        assert_eq!(format!("{error:#}"), "more: perl: a check of the guest failed: {\"check\":\"hog\",\"ok\":false}");
    }
}
