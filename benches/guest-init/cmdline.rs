// SPDX-License-Identifier: Apache-2.0
//! What the kernel command line asks for.

use std::fs;

/// The command line, split into parameters.
pub(crate) struct Parameters(Vec<String>);

impl Parameters {
    /// From /proc/cmdline; empty if that cannot be read.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    /// As the kernel does (`next_arg()` in lib/cmdline.c): spaces part parameters, except between double quotes, which are
    /// dropped.
    fn parse(line: &str) -> Self {
        let mut parameters = vec![String::new()];
        let mut quoted = false;
        for c in line.trim_end().chars() {
            match c {
                '"' => quoted = !quoted,
                c if c.is_whitespace() && !quoted => parameters.push(String::new()),
                c => {
                    if let Some(last) = parameters.last_mut() {
                        last.push(c);
                    }
                }
            }
        }
        parameters.retain(|parameter| !parameter.is_empty());
        Self(parameters)
    }

    /// Each check that is asked for, with its argument if it has one.
    pub(crate) fn checks(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let lists = self.0.iter().filter_map(|parameter| parameter.strip_prefix("flatboot.check="));
        let checks = lists.flat_map(|list| list.split(',')).filter(|check| !check.is_empty());
        checks.map(|check| match check.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (check, None),
        })
    }

    /// How to end.
    pub(crate) fn end(&self) -> &str {
        self.0.iter().rev().find_map(|parameter| parameter.strip_prefix("flatboot.end=")).unwrap_or("poweroff")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_spaces() {
        let parameters =
            Parameters::parse("quiet \"flatboot.check=dmesg=a b,cpus=4\" flatboot.check=rng,, root=/dev/vda\n");
        let checks: Vec<_> = parameters.checks().collect();
        assert_eq!(checks, [("dmesg", Some("a b")), ("cpus", Some("4")), ("rng", None)]);
        assert_eq!(parameters.end(), "poweroff");
    }

    #[test]
    fn the_last_end_wins() {
        assert_eq!(Parameters::parse("flatboot.end=panic flatboot.end=reboot").end(), "reboot");
        assert_eq!(Parameters::parse("").checks().count(), 0);
    }
}
