// SPDX-License-Identifier: Apache-2.0
//! Cloud Hypervisor's lists: `[a,b]`, in which `[…]` may be again, and numbers as in `0-3,7`.

use std::collections::BTreeSet;

/// The parts of a list between its commas; a list of one part needs no brackets. None if brackets do not match.
pub(super) fn parts(text: &str) -> Option<Vec<&str>> {
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None => text,
    };
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0u32, 0);
    for (at, character) in inner.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(inner.get(begin..at)?);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(inner.get(begin..)?);
    (depth == 0).then_some(parts)
}

/// The numbers of a list of numbers and ranges, none above `most`; at least one.
pub(super) fn numbers(text: &str, most: u16) -> Option<BTreeSet<u16>> {
    let number = |digits: &str| {
        let number = super::options::parse_number(digits).filter(|number| *number <= most.into())?;
        u16::try_from(number).ok()
    };
    let mut numbers = BTreeSet::new();
    for part in parts(text)? {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Numbers as [`numbers`] takes them, without brackets.
pub(crate) fn written(numbers: &BTreeSet<u16>) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_nest() {
        for (text, expected) in [
            ("a", Some(vec!["a"])),
            ("[a]", Some(vec!["a"])),
            ("[0@[0-3,5],1@[2]]", Some(vec!["0@[0-3,5]", "1@[2]"])),
            ("[]", Some(vec![""])),
            ("[a,]", Some(vec!["a", ""])),
            ("[a", None),
            ("a]", None),
            ("[a]b]", None),
            ("[a[b]", None),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_have_ranges_and_an_end() {
        for (text, expected) in [("3", vec![3]), ("[0-2,7]", vec![0, 1, 2, 7]), ("7,0-2,1", vec![0, 1, 2, 7])] {
            assert_eq!(numbers(text, 7), Some(expected.into_iter().collect()), "{text}");
        }
        for text in ["", "[]", "8", "3-1", "-1", "1-", "a", "0-99999999999999999999", "[[1]]", "1,,2", "+1"] {
            assert_eq!(numbers(text, 7), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_means_the_same(all in prop::collection::btree_set(0..=300u16, 1..40)) {
            prop_assert_eq!(numbers(&written(&all), 300), Some(all));
        }

        #[test]
        fn no_text_breaks_a_list(text in "[\\[\\]a0-9,@-]{0,24}") {
            let _ = (parts(&text), numbers(&text, u16::MAX));
        }
    }
}
