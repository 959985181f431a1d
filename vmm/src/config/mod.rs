// SPDX-License-Identifier: Apache-2.0
//! The configuration of a VM: values that have been checked, and the syntax they are written in.
