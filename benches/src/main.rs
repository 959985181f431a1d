// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench`: runs programs on real KVM or in the emulated KVM host, and makes the tiny guest's initramfs.

mod cli;
mod failure;
mod interrupts;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use flatboot_bench::initramfs;

use cli::{Cli, HostVerb, Verb};
use failure::print_chain;
use verbs::{boot, host, manuals, results, soak, spec, sweep};

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Boot(args) => boot::boot(&args),
        Verb::Door(args) => host::door(&args),
        Verb::Run(args) => return sweep::run(&args),
        Verb::Show { file } => return results::show(&file),
        Verb::Compare(args) => return results::compare(&args),
        Verb::Observe(args) => return sweep::observe(&args),
        Verb::Host { verb: HostVerb::Run(args) } => host::emulated(&args),
        Verb::Host { verb: HostVerb::Shell(place) } => host::shell(&place),
        Verb::Spec(args) => return spec::run(&args),
        Verb::Soak(args) => return soak::run(&args),
        Verb::Attend(args) => return soak::attend(&args),
        Verb::Report(args) => return results::report(&args),
        Verb::Manuals { out } => return manuals::manuals(&out),
        Verb::Initramfs { out } => {
            return match initramfs::write_guest(&out) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    print_chain(&error);
                    ExitCode::FAILURE
                }
            };
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}
