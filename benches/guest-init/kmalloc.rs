// SPDX-License-Identifier: Apache-2.0
//! What the kernel's allocator of small objects costs, as it measures itself.

use serde_json::{Value, json};

use crate::files;
use crate::kernel::DEBUGFS;
use crate::outcome::Outcome;

/// Cycles by size: to allocate one of many, to free one of many, and both at once.
pub(crate) fn kmalloc() -> Outcome {
    let sizes = sizes(&files::text(format!("{DEBUGFS}/kmalloc_test"))?)?;
    Ok((!sizes.is_empty(), json!({ "sizes": sizes })))
}

fn sizes(text: &str) -> Result<Vec<Value>, String> {
    let size = |line: &str| {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let [size, alloc, free, pair] = numbers?[..] else { return None };
        Some(json!({ "size": size, "alloc": alloc, "free": free, "pair": pair }))
    };
    text.lines().map(|line| size(line).ok_or_else(|| format!("kmalloc_test: {line:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_size() {
        let said = json!([{ "size": 8, "alloc": 90, "free": 80, "pair": 60 }]);
        assert_eq!(Value::from(sizes("8 90 80 60\n").unwrap()), said);
        assert!(sizes("8 90 80\n").is_err());
    }
}
