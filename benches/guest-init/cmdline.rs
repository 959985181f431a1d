// SPDX-License-Identifier: Apache-2.0
//! What the kernel command line asks for.

use crate::files;

/// What parameters for this program begin with, and the two that there are.
const OURS: &str = "flatboot.";
const KNOWN: [&str; 2] = ["flatboot.check=", "flatboot.end="];

/// The command line, split into parameters.
#[derive(Default)]
pub(crate) struct Parameters(Vec<String>);

impl Parameters {
    /// From /proc/cmdline. A parameter for this program that it does not know is an error, as whoever misspells a check would
    /// have it pass.
    pub(crate) fn read() -> Result<Self, String> {
        let parameters = Self::parse(&files::text("/proc/cmdline")?);
        match parameters.unknown() {
            Some(word) => Err(format!("{word}: must be {} or {}", KNOWN[0], KNOWN[1])),
            None => Ok(parameters),
        }
    }

    fn unknown(&self) -> Option<&str> {
        let is_known = |word: &str| KNOWN.iter().any(|known| word.starts_with(known));
        self.0.iter().map(String::as_str).find(|word| word.starts_with(OURS) && !is_known(word))
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
    fn a_misspelt_word_is_none() {
        assert_eq!(Parameters::parse("flatboot.check=rng flatboot.end=panic flat.check=a").unknown(), None);
        assert_eq!(Parameters::parse("quiet flatboot.checks=rng").unknown(), Some("flatboot.checks=rng"));
    }

    #[test]
    fn the_last_end_wins() {
        assert_eq!(Parameters::parse("flatboot.end=panic flatboot.end=reboot").end(), "reboot");
        assert_eq!(Parameters::parse("").checks().count(), 0);
    }
}
