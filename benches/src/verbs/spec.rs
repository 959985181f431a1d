// SPDX-License-Identifier: Apache-2.0
//! `spec`: the promises, listed or put to the test.

use std::process::ExitCode;

use flatboot_bench::spec;

use crate::cli::SpecArgs;
use crate::failure::print_chain;

/// What was asked for of them.
pub(crate) fn run(args: &SpecArgs) -> ExitCode {
    let mut out = anstream::stdout();
    let result =
        if args.list { spec::list(&args.names, &mut out).map(|()| 0) } else { spec::run(&args.options(), &mut out) };
    result.map_or_else(
        |error| {
            print_chain(&error);
            ExitCode::from(error.exit_code())
        },
        ExitCode::from,
    )
}
