// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench`: runs programs on real KVM or in the emulated KVM host, and makes the tiny guest's initramfs.

mod cli;
mod failure;
mod interrupts;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::initramfs;

use cli::{Cli, HostVerb, Verb};
use failure::{or, or_of_host};
use verbs::{boot, host, manuals, results, soak, spec, sweep};

fn main() -> ExitCode {
    ExitCode::from(match Cli::parse().verb {
        Verb::Boot(args) => or_of_host(boot::boot(&args)),
        Verb::Exec(args) => or_of_host(host::exec(&args)),
        Verb::Run(args) => or(2, sweep::run(&args, &[])),
        Verb::Fleet(args) => or(2, sweep::run(&args.sweep, &args.vms)),
        Verb::Show { file } => or(2, results::show(&file)),
        Verb::Compare(args) => or(2, results::compare(&args)),
        Verb::Observe(args) => or(1, sweep::observe(&args)),
        Verb::Resize { order } => or(1, spec::resize(&order)),
        Verb::Host { verb: HostVerb::Run(args) } => or_of_host(host::emulated(&args)),
        Verb::Host { verb: HostVerb::Shell(place) } => or_of_host(host::shell(&place)),
        Verb::Spec(args) => spec::run(&args),
        Verb::Soak(args) => or(EXIT_HOST, soak::run(&args)),
        Verb::Attend(args) => or(1, soak::attend(&args)),
        Verb::Report(args) => results::report(&args),
        Verb::Scrub(args) => or(2, results::scrub(&args)),
        Verb::Manuals { out } => or(1, manuals::manuals(&out)),
        Verb::Initramfs { out } => or(1, initramfs::write_guest(&out).map(|()| 0)),
    })
}
