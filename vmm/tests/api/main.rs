// SPDX-License-Identifier: Apache-2.0
//! The control API of the real binary: by clients that are not ours, and by such as nobody wants.
//!
//! A test that cannot run here says why and counts as ignored.
#![expect(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

mod clients;
mod descriptors;
mod elastic;
mod life;
mod process;
mod requests;
mod rude;
mod server;

#[path = "../common/ignored.rs"]
mod ignored;
#[path = "../common/images.rs"]
#[expect(dead_code, reason = "one image of several")]
mod images;
#[path = "../common/times.rs"]
mod times;
#[path = "../common/usage.rs"]
mod usage;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// The program under test.
const FLATBOOT: &str = env!("CARGO_BIN_EXE_flatboot");

/// A test, and why it cannot run here, if it cannot.
type Test = (&'static str, fn() -> Result<(), Failed>, Option<String>);

fn main() -> ExitCode {
    let tests = [
        requests::tests(),
        descriptors::tests(),
        rude::tests(),
        process::tests(),
        clients::tests(),
        life::tests(),
        elastic::tests(),
    ];
    let trials = tests.into_iter().flatten().map(|(name, body, missing)| {
        if let Some(why) = &missing {
            eprintln!("SKIPPED: {name}: {why}");
        }
        Trial::test(name, body).with_ignored_flag(missing.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Fails with `what` unless `holds`.
fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}
