// SPDX-License-Identifier: Apache-2.0
//! Names, paths and addresses in what programs have said.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::terminal::count;

/// What takes the place of a path and of an address.
const PATH: &str = "<path>";
const ADDRESS: &str = "<address>";
/// What is below these and what is called so is the same on every machine.
const COMMON: [&str; 3] = ["/dev/", "/proc/", "/sys/"];
const INITS: [&str; 2] = ["/init", "/sbin/init"];

/// What was replaced.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Names of machines, wherever they were.
    pub names: usize,
    /// Paths of files.
    pub paths: usize,
    /// Addresses of networks, with those of users and of pages on the web.
    pub addresses: usize,
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses =
            if self.addresses == 1 { "1 address".to_owned() } else { format!("{} addresses", self.addresses) };
        write!(f, "{}, {} and {addresses}", count(self.names, "name"), count(self.paths, "path"))
    }
}

/// Replaces them, and counts.
pub(super) struct Text<'a> {
    /// By what is replaced.
    names: BTreeMap<String, String>,
    replaced: &'a mut Replaced,
}

impl<'a> Text<'a> {
    /// `nodes` have new names already. A machine's name may be told with its domain or without.
    pub(super) fn new(nodes: BTreeMap<String, String>, host: &str, replaced: &'a mut Replaced) -> Self {
        let all = [(host.to_owned(), "host".to_owned())].into_iter().chain(nodes);
        let mut names = BTreeMap::new();
        for (name, new) in all.filter(|(name, _)| !["", "localhost"].contains(&&**name)) {
            if let Some((short, _)) = name.split_once('.') {
                names.insert(short.to_owned(), new.clone());
            }
            names.insert(name, new);
        }
        Self { names, replaced }
    }

    /// In `line`.
    pub(super) fn scrub(&mut self, line: &mut String) {
        let mut out = String::with_capacity(line.len());
        let mut rest = line.as_str();
        while !rest.is_empty() {
            let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            self.push(&mut out, word);
            let between = behind.find(is_of_word).unwrap_or(behind.len());
            out += &behind[..between];
            rest = &behind[between..];
        }
        *line = out;
    }

    /// A word may end a sentence; and a path may come behind a name and a colon.
    fn push(&mut self, out: &mut String, word: &str) {
        let trimmed = word.trim_end_matches(['.', ':']);
        match trimmed.split_once(":/") {
            Some((before, path)) if !path.starts_with('/') => {
                self.push(out, before);
                *out += ":";
                self.push(out, &format!("/{path}"));
            }
            _ => *out += &self.new_of(trimmed).unwrap_or_else(|| self.with_names(trimmed)),
        }
        *out += &word[trimmed.len()..];
    }

    /// What takes the place of all of `word`, if anything does.
    fn new_of(&mut self, word: &str) -> Option<String> {
        if is_address(word) {
            self.replaced.addresses += 1;
            return Some(ADDRESS.to_owned());
        }
        if self.is_path(word) {
            self.replaced.paths += 1;
            return Some(PATH.to_owned());
        }
        None
    }

    /// One that begins at the root, at a home or above, or leads through a directory. Others are too much like "and/or"; but
    /// not if a machine's name is in them.
    fn is_path(&self, word: &str) -> bool {
        let is_common = COMMON.iter().any(|common| word.starts_with(common)) && !word.contains("/../");
        let is_common = is_common || INITS.contains(&word);
        let leads = word.matches('/').count() > 1 || word.starts_with(['/', '~']) && word.len() > 1;
        let has_name = || word.split(['/', ':']).any(|part| self.new_name(part).is_some());
        word.contains('/') && (leads && !is_common || word.starts_with("../") || has_name())
    }

    /// `word`, with new names for the machines in it: `web1:` is one, `web10` is not.
    fn with_names(&mut self, word: &str) -> String {
        let parts: Vec<_> = word.split(':').map(|part| (part, self.new_name(part).map(str::to_owned))).collect();
        self.replaced.names += parts.iter().filter(|(_, new)| new.is_some()).count();
        let parts: Vec<_> = parts.into_iter().map(|(part, new)| new.unwrap_or_else(|| part.to_owned())).collect();
        parts.join(":")
    }

    /// That of the machine `name`, which may have its domain behind it.
    fn new_name(&self, name: &str) -> Option<&str> {
        let short = || self.names.get(name.split('.').next().unwrap_or_default());
        self.names.get(name).or_else(short).map(String::as_str)
    }
}

/// Blanks, brackets, quotes, commas and signs of equality are between words.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "._:/@~+-%?&".contains(c)
}

/// Of a machine in a network, with a port, a length or a user's name; of a network card; of a page.
fn is_address(word: &str) -> bool {
    let host = word.split(['/', '%']).next().unwrap_or_default();
    let is_ip = |text: &str| text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok();
    let octets: Vec<_> = word.split([':', '-']).collect();
    let is_octet = |octet: &&str| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_user = word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    word.contains("://") || of_user || is_ip(host) || octets.len() == 6 && octets.iter().all(is_octet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(line: &str) -> (String, Replaced) {
        let mut replaced = Replaced::default();
        let nodes = BTreeMap::from([("web1.corp.example".to_owned(), "node1".to_owned())]);
        let mut line = line.to_owned();
        Text::new(nodes, "builder", &mut replaced).scrub(&mut line);
        (line, replaced)
    }

    #[test]
    fn what_names_people_and_machines_is_replaced() {
        for (line, expected, [names, paths, addresses]) in [
            ("flatboot: /home/ada/vm.img: there is no such file", "flatboot: <path>: there is no such file", [0, 1, 0]),
            ("--disk path=/srv/a,readonly=on (~/b)", "--disk path=<path>,readonly=on (<path>)", [0, 2, 0]),
            ("at target/release/flatboot and ../secret.", "at <path> and <path>.", [0, 2, 0]),
            ("file:/srv/a", "file:<path>", [0, 1, 0]),
            ("Linux version 6.12.117 (ada@builder) #1", "Linux version 6.12.117 (<address>) #1", [0, 0, 1]),
            (
                "10.1.2.3:22 192.168.0.0/24 fe80::1%eth0 [2001:db8::2]",
                "<address> <address> <address> [<address>]",
                [0, 0, 4],
            ),
            ("52:54:00:12:34:56, see https://corp.example/x.", "<address>, see <address>.", [0, 0, 2]),
            ("web1: lost; web1.corp.example: slurmd on builder.corp", "node1: lost; node1: slurmd on host", [3, 0, 0]),
            ("builder:/srv/a and web1/a", "host:<path> and <path>", [1, 2, 0]),
        ] {
            assert_eq!(scrubbed(line), (expected.to_owned(), Replaced { names, paths, addresses }));
        }
    }

    #[test]
    fn what_every_machine_has_stays() {
        for line in [
            "/dev/kvm: Permission denied (os error 13)",
            "[    0.523109] Run /init as init process, not /sbin/init",
            "the VMM ended (signal: 9 (SIGKILL)) before init: 1.5 GiB/s at 0xffffffff81000000, I/O error, and/or 7 / 8",
            "core::fmt 12:34:56 6.12.117-1 web10 builders: 100 %",
            "  two  blanks, \u{fc}ml\u{e4}ute…",
            "",
        ] {
            assert_eq!(scrubbed(line), (line.to_owned(), Replaced::default()));
        }
    }
}
