// SPDX-License-Identifier: Apache-2.0
//! Names, paths and addresses in what programs have said.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::terminal::count;

/// What takes the place of a path and of an address.
const PATH: &str = "<path>";
const ADDRESS: &str = "<address>";
/// Characters of the longest numeric address: of version 6, with one of version 4 at its end.
const LONGEST_ADDRESS: usize = 45;
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
            let short = name.split_once('.').map(|(short, _)| short);
            // Of an address it would be a number.
            if let Some(short) = short.filter(|short| short.contains(char::is_alphabetic)) {
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

    /// In a kernel's release, whose four numbers, if it has so many, are no address.
    pub(super) fn scrub_release(&mut self, release: &mut String) {
        if release.contains(['@', '/']) {
            self.scrub(release);
        } else {
            *release = self.with_parts(release, |_, _| None);
        }
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
            _ => *out += &self.new_of(trimmed).unwrap_or_else(|| self.with_parts(trimmed, address_at)),
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
        let has_name = || starts(word).any(|at| self.name_at(word, at).is_some());
        word.contains('/') && (leads && !is_common || word.starts_with("../") || has_name())
    }

    /// `word` with what takes the place of machines' names in it, and of what `address` finds the end of, from where it begins:
    /// `web1:` and `a-web1-b` have a name, `web10` has not.
    fn with_parts(&mut self, word: &str, address: fn(&str, usize) -> Option<usize>) -> String {
        let mut out = String::with_capacity(word.len());
        let mut done = 0;
        for at in starts(word) {
            if at < done {
                continue;
            }
            let (end, new) = match (self.name_at(word, at), address(word, at)) {
                (Some((end, new)), _) => (end, new.to_owned()),
                (None, Some(end)) => (end, ADDRESS.to_owned()),
                (None, None) => continue,
            };
            let count = if new == ADDRESS { &mut self.replaced.addresses } else { &mut self.replaced.names };
            *count += 1;
            out += &word[done..at];
            out += &new;
            done = end;
        }
        out + &word[done..]
    }

    /// The end of the longest machine's name that begins at `at`, with the domain behind it, and its new name.
    fn name_at(&self, word: &str, at: usize) -> Option<(usize, &str)> {
        let rest = &word[at..];
        let is_here =
            |name: &str| rest.strip_prefix(name).is_some_and(|behind| !behind.starts_with(char::is_alphanumeric));
        let here = self.names.iter().filter(|(name, _)| is_here(name));
        let (name, new) = here.max_by_key(|(name, _)| name.len())?;
        let behind = rest.strip_prefix(name.as_str()).unwrap_or_default();
        let domain = behind.find(|c: char| !(c.is_alphanumeric() || "-.".contains(c))).unwrap_or(behind.len());
        let domain = if behind.starts_with('.') { domain } else { 0 };
        Some((at + name.len() + domain, new.as_str()))
    }
}

/// Where a name or an address may begin in `word`: behind nothing that it could be a part of.
fn starts(word: &str) -> impl Iterator<Item = usize> {
    let before = std::iter::once(None).chain(word.chars().map(Some));
    let all = word.char_indices().zip(before);
    all.filter(|(_, before)| !before.is_some_and(char::is_alphanumeric)).map(|((at, _), _)| at)
}

/// The end of the longest numeric address in `word` that begins at `at`, and that longer numbers have no part in.
fn address_at(word: &str, at: usize) -> Option<usize> {
    let rest = &word[at..];
    if !rest.starts_with(|c: char| c == ':' || c.is_ascii_hexdigit()) || word[..at].ends_with('.') {
        return None;
    }
    let goes_on = |behind: &str| behind.starts_with(|c: char| c == '.' || c.is_alphanumeric());
    let ends = rest.char_indices().map(|(end, c)| end + c.len_utf8()).take(LONGEST_ADDRESS);
    let is_one = |end: &usize| !goes_on(&rest[*end..]) && is_numeric(&rest[..*end]);
    Some(at + ends.filter(is_one).last()?)
}

/// Blanks, brackets, quotes, commas and signs of equality are between words.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "._:/@~+-%?&".contains(c)
}

/// Of a machine in a network, with a length or a user's name; of a page; or numeric.
fn is_address(word: &str) -> bool {
    let host = word.split(['/', '%']).next().unwrap_or_default();
    let of_user = word.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    word.contains("://") || of_user || is_numeric(host)
}

/// Of a machine in a network, also with a port; of a network card.
fn is_numeric(text: &str) -> bool {
    let octets = || text.split([':', '-']);
    let is_octet = |octet: &str| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_card = || octets().count() == 6 && octets().all(is_octet);
    text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok() || is_card()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(line: &str) -> (String, Replaced) {
        let mut replaced = Replaced::default();
        let nodes = [("web1.corp.example", "node1"), ("rack7-b", "node2")];
        let nodes = nodes.map(|(name, new)| (name.to_owned(), new.to_owned())).into();
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
            ("6.12.3-builder, rack7-b-ib0 and my_builder", "6.12.3-host, node2-ib0 and my_host", [3, 0, 0]),
            ("rack7-b-ib0/a +web1.corp.example-x", "<path> +node1-x", [1, 1, 0]),
            ("tcp:10.1.2.3:6817 inet6:fe80::1", "tcp:<address> inet6:<address>", [0, 0, 2]),
            ("10.1.2.1-10.1.2.9 eth-52:54:00:12:34:56", "<address>-<address> eth-<address>", [0, 0, 3]),
            ("nfs:10.1.2.3:/srv/a inet:10.1.2.3/24", "nfs:<address>:<path> inet:<address>/24", [0, 1, 2]),
        ] {
            assert_eq!(scrubbed(line), (expected.to_owned(), Replaced { names, paths, addresses }));
        }
    }

    #[test]
    fn the_numbers_of_a_kernel_are_no_address() {
        let mut replaced = Replaced::default();
        let mut text = Text::new(BTreeMap::new(), "builder", &mut replaced);
        let releases = ["5.15.153.1-microsoft-standard-WSL2", "6.12.3-builder", "6.12.3-ada@builder"].map(|release| {
            let mut release = release.to_owned();
            text.scrub_release(&mut release);
            release
        });
        assert_eq!(releases, ["5.15.153.1-microsoft-standard-WSL2", "6.12.3-host", "<address>"]);
        assert_eq!(replaced, Replaced { names: 1, paths: 0, addresses: 1 });
    }

    #[test]
    fn what_every_machine_has_stays() {
        for line in [
            "/dev/kvm: Permission denied (os error 13)",
            "[    0.523109] Run /init as init process, not /sbin/init",
            "the VMM ended (signal: 9 (SIGKILL)) before init: 1.5 GiB/s at 0xffffffff81000000, I/O error, and/or 7 / 8",
            "core::fmt 12:34:56 6.12.117-1 web10 builders: 100 % rack7-bb rack7 1.2.3.4.5-6 add::x",
            "  two  blanks, \u{fc}ml\u{e4}ute…",
            "",
        ] {
            assert_eq!(scrubbed(line), (line.to_owned(), Replaced::default()));
        }
    }
}
