// SPDX-License-Identifier: Apache-2.0
//! The real binary on bad input, and what it prints: one line that says what is wrong, the right exit status, nothing left behind.
//!
//! A table's row is a test. A row that cannot run here says why and counts as ignored.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests may stop at the first surprise")]

mod backing;
mod config_file;
mod files;
mod firmware;
mod host;
mod jail;
mod kernels;
mod kills;
mod kvm;
mod log;
mod net;
mod outputs;
mod passt;
mod print;
mod refusal;
mod stdout;
mod terminal;
mod values;
mod vsock;

#[path = "../common/ignored.rs"]
mod ignored;
#[path = "../common/images.rs"]
mod images;
#[path = "../common/times.rs"]
mod times;
#[path = "../common/usage.rs"]
mod usage;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use host::Host;

/// The program under test.
const FLATBOOT: &str = env!("CARGO_BIN_EXE_flatboot");

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // `host` has files that must outlive the tests.
    let host = Arc::new(Host::look());
    let rows = [
        values::rows(),
        kernels::rows(),
        firmware::rows(),
        files::rows(),
        net::rows(),
        vsock::rows(),
        outputs::rows(),
        backing::rows(&host),
        kvm::rows(&host),
        config_file::rows(),
    ];
    let mut trials: Vec<Trial> = rows.into_iter().flatten().map(|row| row.trial(&host)).collect();
    trials.extend(kernels::trials());
    trials.extend(firmware::trials(&host));
    trials.extend(print::trials());
    trials.extend(config_file::trials());
    trials.extend(backing::trials(&host));
    trials.extend(kvm::trials(&host));
    trials.extend(jail::trials(&host));
    trials.extend(kills::trials(&host));
    trials.extend(net::trials(&host));
    trials.extend(passt::trials(&host));
    trials.extend(vsock::trials(&host));
    trials.extend(stdout::trials(&host));
    trials.extend(terminal::trials(&host));
    trials.extend(log::trials(&host));
    libtest_mimic::run(&arguments, trials).exit_code()
}
