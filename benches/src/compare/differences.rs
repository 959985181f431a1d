// SPDX-License-Identifier: Apache-2.0
//! In what two files differ besides their times.

use std::collections::BTreeSet;

use crate::results::{HostFacts, Results, short};
use crate::terminal::{bytes, plain};

/// One thing that is not the same in both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) what: String,
    pub(super) a: String,
    pub(super) b: String,
}

impl Difference {
    /// In one line.
    pub(super) fn words(&self) -> String {
        format!("{}: {}", self.what, self.change())
    }

    /// From A to B.
    pub(super) fn change(&self) -> String {
        format!("{} → {}", self.a, self.b)
    }
}

/// What makes times incomparable.
pub(super) fn hosts(a: &HostFacts, b: &HostFacts) -> Vec<Difference> {
    differing(a.identity().into_iter().zip(b.identity()).map(|((what, a), (_, b))| (what, a, b)))
}

/// What may be the very thing that is compared.
pub(super) fn others(a: &Results, b: &Results) -> Vec<Difference> {
    let (guest_a, guest_b) = (&a.facts.guest, &b.facts.guest);
    let (host_a, host_b) = (&a.facts.host, &b.facts.host);
    let short = |hash: &Option<String>| hash.as_deref().map(short);
    let mut list = differing([
        ("revision", short(&a.facts.revision), short(&b.facts.revision)),
        ("guest kernel", Some(guest_a.kernel.clone()), Some(guest_b.kernel.clone())),
        ("guest build id", short(&guest_a.build_id), short(&guest_b.build_id)),
        ("stock build id", short(&guest_a.stock_build_id), short(&guest_b.stock_build_id)),
        ("guest config", short(&guest_a.config_sha256), short(&guest_b.config_sha256)),
        ("initramfs", short(&Some(guest_a.initramfs_sha256.clone())), short(&Some(guest_b.initramfs_sha256.clone()))),
        ("userland", guest_a.userland.clone(), guest_b.userland.clone()),
        ("command line", Some(a.sweep.cmdline.clone()), Some(b.sweep.cmdline.clone())),
        ("host memory", Some(bytes(host_a.memory_bytes)), Some(bytes(host_b.memory_bytes))),
        ("host pages", Some(a.sweep.host_pages.to_string()), Some(b.sweep.host_pages.to_string())),
        ("THP", Some(host_a.thp.clone()), Some(host_b.thp.clone())),
    ]);
    let (versions_a, versions_b) = (&a.facts.versions, &b.facts.versions);
    let names: BTreeSet<_> = versions_a.keys().chain(versions_b.keys()).collect();
    for name in names {
        list.extend(differing([(name.as_str(), versions_a.get(name).cloned(), versions_b.get(name).cloned())]));
    }
    list
}

fn differing<'a>(facts: impl IntoIterator<Item = (&'a str, Option<String>, Option<String>)>) -> Vec<Difference> {
    let said = |fact: Option<String>| fact.map_or_else(|| "none".to_owned(), |text| plain(&text));
    facts
        .into_iter()
        .filter(|(_, a, b)| a != b)
        .map(|(what, a, b)| Difference { what: plain(what), a: said(a), b: said(b) })
        .collect()
}
