// SPDX-License-Identifier: Apache-2.0
//! The command line: what a user types, before it is checked.
