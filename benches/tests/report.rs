// SPDX-License-Identifier: Apache-2.0
//! The report, as its verb writes it and as a browser shows it.
//!
//! The pictures that it takes go to `target/report`. `FLATBOOT_REPORT_OF=results.json` has it take docs/images/report.png, of
//! that file.

mod report {
    pub(crate) mod browser;
    pub(crate) mod fake;
    pub(crate) mod looks;
    pub(crate) mod pages;
    pub(crate) mod verb;
}

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use report::browser::{self, Browser};

/// A test in the browser.
pub(crate) type Body = fn(&mut Browser) -> Result<(), Failed>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One browser serves all.
    arguments.test_threads = Some(1);
    let program = browser::find();
    if program.is_none() {
        eprintln!(
            "\nNO CHROMIUM on this machine: NOTHING of the report is tested in a browser. See benches/packages.sh browser.\n"
        );
    }
    let shared: Arc<Mutex<Option<Browser>>> = Arc::default();
    let in_browser = [report::pages::TESTS, report::looks::TESTS].concat().into_iter().map(|(name, body)| {
        let (shared, program) = (Arc::clone(&shared), program.clone());
        let run = move || {
            let program = program.ok_or("no chromium on this machine")?;
            let mut held = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let browser = match held.take() {
                Some(browser) => held.insert(browser),
                None => held.insert(Browser::start(&program)?),
            };
            let result = body(browser);
            if result.is_err() {
                // It may be the browser's fault: the next test gets a new one.
                held.take();
            }
            result
        };
        Trial::test(name, run)
    });
    let ignored = program.is_none();
    let mut trials: Vec<_> = in_browser.map(|trial| trial.with_ignored_flag(ignored)).collect();
    trials.extend(report::verb::TESTS.iter().map(|(name, body)| Trial::test(*name, body)));
    libtest_mimic::run(&arguments, trials).exit_code()
}
