// SPDX-License-Identifier: Apache-2.0
//! VM tests and boot-time measurements.
