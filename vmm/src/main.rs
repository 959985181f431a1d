// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

fn main() {}
