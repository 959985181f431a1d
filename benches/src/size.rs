// SPDX-License-Identifier: Apache-2.0
//! Sizes of memory as they are typed.

/// The bytes of `text`, a whole number of MiB, GiB or TiB such as `512M` or `4GiB`, if there are `least` of them.
pub(crate) fn of(text: &str, least: u64) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let shift = match unit {
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes >= least).then_some(bytes)
}
