// SPDX-License-Identifier: Apache-2.0
//! The devices that a guest sees, and the buses that they sit on.
