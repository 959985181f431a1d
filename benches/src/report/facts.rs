// SPDX-License-Identifier: Apache-2.0
//! Where and with what the files were made.

use maud::{Markup, html};

use crate::once::each_once;
use crate::results::{End, Facts, Results};

use super::format::{bytes, count, date, float};
use super::model::Source;

/// One row for each fact, one column for each file.
pub(super) fn facts(sources: &[&Source]) -> Markup {
    let columns: Vec<Vec<(String, String)>> = sources.iter().map(|source| of(&source.results)).collect();
    let names = each_once(columns.iter().flatten().map(|(name, _)| name));
    html! {
        div.scroll tabindex="0" role="region" aria-label="Host and versions" {
            table.facts {
                thead { tr { td {} @for source in sources { th scope="col" { (source.name) } } } }
                tbody {
                    @for name in names {
                        tr {
                            th scope="row" { (name) }
                            @for facts in &columns {
                                td { (facts.iter().find(|(other, _)| other == name).map_or("–", |(_, value)| value)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn of(results: &Results) -> Vec<(String, String)> {
    let Facts { host, guest, versions, programs, revision, began_unix_s } = &results.facts;
    let unknown = || "unknown".to_owned();
    let mut facts = vec![
        ("Began", date(*began_unix_s)),
        ("Boots", boots(results)),
        ("Timeout", format!("{} s", float(results.sweep.timeout_ms) / 1000.0)),
        ("Host pages", results.sweep.host_pages.to_string()),
        ("KVM", host.kvm.clone()),
        ("Host CPU", format!("{}, {}", host.cpu_model, count(host.cpus as usize, "processor"))),
        ("Host memory", bytes(host.memory_bytes)),
        ("Host kernel", host.kernel.clone()),
        ("Transparent huge pages", host.thp.clone()),
        ("Guest kernel", guest.kernel.clone()),
        ("Kernel build id", guest.build_id.clone().unwrap_or_else(unknown)),
        ("Kernel config, SHA-256", guest.config_sha256.clone().unwrap_or_else(unknown)),
        ("Initramfs, SHA-256", guest.initramfs_sha256.clone()),
        ("Userland", guest.userland.clone().unwrap_or("none".into())),
        ("Command line", results.sweep.cmdline.clone()),
        ("Source revision", revision.clone().unwrap_or_else(unknown)),
    ];
    if let Some(model) = &host.machine_cpu_model {
        facts.insert(5, ("Machine below it", model.clone()));
    }
    facts.extend(results.nodes().map(|nodes| ("Nodes", nodes)));
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
    let versions = versions.iter().map(|(program, version)| (format!("{program} says"), version.clone()));
    let hashes = programs.iter().map(|(program, hash)| (format!("{program}, SHA-256"), hash.clone()));
    facts.chain(versions).chain(hashes).collect()
}

/// What there is of what was wanted.
pub(super) fn boots(results: &Results) -> String {
    let failed = results.boots.iter().filter(|boot| matches!(boot.end, End::Failed { .. })).count();
    let variants = count(results.sweep.variants.len(), "variant");
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let (is, wanted) = (results.boots.len(), results.sweep.boots_wanted());
    format!(
        "{is} of {wanted}{failed}: {variants}, 1 + {} rounds, of which the first does not count",
        results.sweep.runs
    )
}
