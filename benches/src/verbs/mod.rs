// SPDX-License-Identifier: Apache-2.0
//! What each verb of the command line does.

pub(crate) mod boot;
pub(crate) mod host;
pub(crate) mod manuals;
pub(crate) mod results;
pub(crate) mod soak;
pub(crate) mod spec;
pub(crate) mod sweep;
