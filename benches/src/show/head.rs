// SPDX-License-Identifier: Apache-2.0
//! What stands above the table: what was measured, where, and with what.

use std::fmt::Write;
use std::path::Path;

use crate::results::{GuestFacts, HostPages, Results, short};
use crate::terminal::{Screen, bold, count, fields, plain};

pub(super) fn head(results: &Results, path: &Path, screen: Screen) -> String {
    let (sweep, facts) = (&results.sweep, &results.facts);
    let variants = count(sweep.variants.len(), "variant");
    let title = format!("{}: {variants} × {}", path.display(), count(sweep.runs as usize, "run"));
    let mut list = vec![("began", facts.started()), ("host", facts.host.words())];
    if let Some(machine) = &facts.host.machine_cpu_model {
        list.push(("machine", format!("{machine}, below the emulated host")));
    }
    list.extend(results.nodes().map(|nodes| ("nodes", nodes)));
    list.push(("guest", guest(&facts.guest)));
    if let Some(userland) = &facts.guest.userland {
        list.push(("userland", userland.clone()));
    }
    list.push(("command line", sweep.cmdline.clone()));
    if sweep.host_pages == HostPages::Small {
        list.push(("host pages", "4 KiB only".to_owned()));
    }
    if !facts.versions.is_empty() {
        let versions: Vec<_> = facts.versions.iter().map(|(name, version)| version_words(name, version)).collect();
        list.push(("versions", versions.join("; ")));
    }
    let list: Vec<_> = list.into_iter().map(|(label, text)| (label.to_owned(), plain(&text))).collect();
    format!("{}\n{}", bold(&plain(&title)), fields(&list, screen.width))
}

fn guest(facts: &GuestFacts) -> String {
    let mut text = facts.kernel.clone();
    if let Some(id) = &facts.build_id {
        let _ = write!(text, ", build id {}", short(id));
    }
    if let Some(id) = &facts.stock_build_id {
        let _ = write!(text, ", stock's build id {}", short(id));
    }
    if let Some(hash) = &facts.config_sha256 {
        let _ = write!(text, ", config {}", short(hash));
    }
    text + &format!(", initramfs {}", short(&facts.initramfs_sha256))
}

/// Most programs say their name with their version.
fn version_words(name: &str, version: &str) -> String {
    if version.to_lowercase().contains(&name.to_lowercase()) { version.to_owned() } else { format!("{name} {version}") }
}
