// SPDX-License-Identifier: Apache-2.0
//! `spec`: the promises, listed or put to the test.

use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::spec;

use crate::cli::SpecArgs;
use crate::failure::or;

/// What was asked for of them.
pub(crate) fn run(args: &SpecArgs) -> u8 {
    let mut out = anstream::stdout();
    let result =
        if args.list { spec::list(&args.names, &mut out).map(|()| 0) } else { spec::run(&args.options(), &mut out) };
    let misuse = result.as_ref().is_err_and(anyhow::Error::is::<spec::Misuse>);
    or(if misuse { 2 } else { EXIT_HOST }, result)
}
