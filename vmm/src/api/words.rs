// SPDX-License-Identifier: Apache-2.0
//! What is wrong, in the words of whoever sent JSON: files are named by the options that they are on a command line.

/// Options, and the fields that they are in a configuration.
const FIELDS: [(&str, &str); 11] = [
    ("--kernel ", "payload.kernel "),
    ("--initramfs ", "payload.initramfs "),
    ("--firmware ", "payload.firmware "),
    ("--cmdline", "payload.cmdline"),
    ("--disk path=", "disks "),
    ("--disk ", "disks "),
    ("--net ", "net "),
    ("--rng ", "rng.src "),
    ("--serial ", "serial.file "),
    ("--timeline ", "timeline "),
    ("--handoff ", "handoff "),
];

/// `line` with fields for options.
pub(super) fn in_fields(line: &str) -> String {
    let begun = FIELDS.iter().find_map(|(option, field)| Some(format!("{field}{}", line.strip_prefix(option)?)));
    begun.unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_fields() {
        for (line, expected) in [
            ("--kernel /k: is empty", "payload.kernel /k: is empty"),
            ("--disk path=/d: is empty", "disks /d: is empty"),
            ("--disk /d: is empty", "disks /d: is empty"),
            ("memory: the host cannot map", "memory: the host cannot map"),
        ] {
            assert_eq!(in_fields(line), expected);
        }
    }
}
