// SPDX-License-Identifier: Apache-2.0
//! What is there several times, once.

/// All of `items`, in their order, each once.
pub(crate) fn each_once<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}
