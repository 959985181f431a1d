// SPDX-License-Identifier: Apache-2.0
//! Guests under flatboot: on this machine's KVM, or in one emulated KVM host for all of them.

mod vm {
    pub(crate) mod after_boot;
    pub(crate) mod api;
    pub(crate) mod balloon;
    pub(crate) mod boots;
    pub(crate) mod clone;
    pub(crate) mod cloud;
    pub(crate) mod cycles;
    pub(crate) mod debian;
    pub(crate) mod devices;
    pub(crate) mod elastic;
    pub(crate) mod endings;
    pub(crate) mod firmware;
    pub(crate) mod handoff;
    pub(crate) mod jail;
    pub(crate) mod lab;
    pub(crate) mod memmap;
    pub(crate) mod net;
    pub(crate) mod numa;
    pub(crate) mod packages;
    pub(crate) mod power;
    pub(crate) mod service;
    pub(crate) mod snapshot;
    pub(crate) mod snapshot_size;
    pub(crate) mod sweep;
    pub(crate) mod table;
    pub(crate) mod tables;
    pub(crate) mod timed;
    pub(crate) mod unit;
    pub(crate) mod vsock;
}

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use vm::lab::Lab;

/// A test gets the lab, where kernels, initramfs and KVM are.
type Body = fn(&Lab) -> Result<(), Failed>;

fn main() -> ExitCode {
    if let Ok(port) = env::var(vm::net::ROLE) {
        return vm::net::echo(&port).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Ok(role) = env::var(vm::vsock::ROLE) {
        return match vm::vsock::peer(&role) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("the guest's peer: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if let Ok(role) = env::var(vm::service::ROLE) {
        return match vm::service::role(&role) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{role}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // Guests share one host; each alone gets all of it.
    arguments.test_threads = Some(1);
    let tests: Vec<(&'static str, Body)> = [
        vm::boots::TESTS,
        vm::api::TESTS,
        vm::endings::TESTS,
        vm::snapshot::TESTS,
        vm::snapshot_size::TESTS,
        vm::cycles::TESTS,
        vm::devices::TESTS,
        vm::jail::TESTS,
        vm::handoff::TESTS,
        vm::table::TESTS,
        vm::debian::TESTS,
        vm::firmware::TESTS,
        vm::sweep::TESTS,
        vm::tables::TESTS,
        vm::numa::TESTS,
        vm::power::TESTS,
        vm::after_boot::TESTS,
        vm::cloud::tests(),
    ]
    .concat();
    let mut trials: Vec<_> =
        tests.into_iter().map(|(name, body)| Trial::test(name, move || body(Lab::get()?))).collect();
    trials.extend(vm::handoff::corrupted().map(|(name, table)| {
        Trial::test(format!("handoff::ignored::{name}"), move || vm::handoff::is_ignored(Lab::get()?, &table))
    }));
    trials.extend(vm::memmap::accounts::trials());
    trials.extend(vm::memmap::trials());
    trials.push(vm::jail::landlock());
    trials.extend(vm::balloon::trials());
    trials.extend(vm::after_boot::trials());
    trials.extend(vm::elastic::trials());
    trials.extend(vm::clone::trials());
    trials.push(vm::snapshot::another_processor());
    trials.push(vm::numa::all_of_288());
    trials.push(vm::numa::bound());
    trials.push(vm::boots::nested());
    trials.extend(vm::net::trials());
    trials.extend(vm::vsock::trials());
    trials.extend(vm::debian::trials());
    trials.extend(vm::service::trials());
    trials.extend(vm::packages::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    Lab::close();
    conclusion.exit_code()
}
