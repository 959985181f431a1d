// SPDX-License-Identifier: Apache-2.0
//! What is wrong, in the words of whoever typed it: the rest of flatboot names fields of the configuration, and knows no options.

/// Fields, and the options that they are on a command line.
const OPTIONS: [(&str, &str); 3] =
    [("memory: ", "--memory: "), ("memory.", "--memory "), ("cpus.boot_vcpus=", "--cpus boot=")];
/// In the middle of a line, only what is certainly a field is one.
const SIZE: (&str, &str) = (" memory.size=", " --memory size=");

/// `line` with options for fields.
#[must_use]
pub fn in_options(line: &str) -> String {
    let begun = OPTIONS.iter().find_map(|(field, option)| Some(format!("{option}{}", line.strip_prefix(field)?)));
    begun.unwrap_or_else(|| line.to_owned()).replace(SIZE.0, SIZE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_options() {
        for (line, expected) in [
            ("memory.size=1G: must be more", "--memory size=1G: must be more"),
            ("memory: the host cannot map", "--memory: the host cannot map"),
            ("cpus.boot_vcpus=9: at most 8", "--cpus boot=9: at most 8"),
            (
                "kernel: does not fit in what memory.size=1G gives",
                "kernel: does not fit in what --memory size=1G gives",
            ),
            ("--disk memory.img: is empty", "--disk memory.img: is empty"),
        ] {
            assert_eq!(in_options(line), expected);
        }
    }
}
