// SPDX-License-Identifier: Apache-2.0
//! The page. maud escapes all text; only pictures, style and script go in as they are.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::chart::{self, Words};
use super::format::{bytes, count, unbroken};
use super::headline::{Headline, headline};
use super::model::Section;
use super::output::HEAD;
use super::phases::{self, Phases};
use super::plot::{self, Panels, Plot};
use super::{facts, tables};
use crate::{ablation, fleets, init_times, rates};

const CSS: &str = include_str!("report.css");
const JS: &str = include_str!("report.js");

/// Widths of a chart that stands alone, and of one beside others.
const WIDE: u32 = 1080;
const HALF: u32 = 540;

/// The report as HTML.
pub(super) fn page(sections: &[Section<'_>]) -> Result<String> {
    let headline = sections.first().map(|section| headline(&plot::init(&section.lines)));
    let headline = headline.unwrap_or(Headline { main: "Nothing was measured".into(), others: Vec::new() });
    let bodies: Result<Vec<_>, _> =
        sections.iter().enumerate().map(|(at, one)| section(&format!("h{at}"), one)).collect();
    let several = sections.len() > 1;
    let page = html! {
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (headline.main) }
                style { (PreEscaped(CSS)) }
            }
            body {
                header {
                    p.kicker { "Time to /sbin/init" }
                    h1 { (unbroken(&headline.main)) }
                    @if !headline.others.is_empty() { p.others { (unbroken(&headline.others.join(" · "))) } }
                    @for section in sections { (method(section, several || section.sources.len() > 1)) }
                    @if several { p.warning role="note" {
                        strong { "The files come from different hosts." }
                        " Their times cannot be compared: each host has charts of its own, and the sentence above is about "
                        "the first."
                    } }
                }
                main {
                    @for (section, body) in sections.iter().zip(bodies?) {
                        @if several { div.host { h2.host { "Host of " (names(section)) } (body) } } @else { (body) }
                    }
                }
                footer { p { "Made by flatboot-bench " (env!("CARGO_PKG_VERSION")) } }
                script { (PreEscaped(JS)) }
            }
        }
    };
    Ok(format!("{HEAD}{}\n", page.into_string()))
}

/// Nothing is loaded, and nothing runs but the script of this page.
fn policy() -> String {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let (style, script) = (hash(CSS), hash(JS));
    format!("default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'")
}

fn names(section: &Section<'_>) -> String {
    section.sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// How sure one may be of it, for each file, by name if there are several; and what is missing.
fn method(section: &Section<'_>, named: bool) -> Markup {
    html! { @for source in &section.sources {
        @let results = &source.results;
        @let host = &results.facts.host;
        p.method {
            @if named { strong { (source.name) ". " } }
            "Medians of " (count(results.sweep.runs as usize, "boot")) " of each variant, interleaved in one run on "
            @if host.kvm == "real" { "real KVM" } @else { (host.kvm) " KVM" }
            " (" (host.cpu_model) ", " (count(host.cpus as usize, "processor")) ", " (bytes(host.memory_bytes)) "). "
            "Compare times with each other: they are not those of another machine."
        }
        @if !results.is_complete() { p.warning role="note" {
            strong { (source.name) " is not complete: " } (facts::boots(results)) "."
        } }
    } }
}

fn section(id: &str, section: &Section<'_>) -> Result<Markup> {
    let init = plot::init(&section.lines);
    let memory = plot::memory(&section.lines);
    let scaling = plot::scaling(&section.lines);
    let failures = tables::failures(section);
    let tables = [
        ("Summary", tables::of_files(section, |groups| Some(init_times::table(groups)))),
        ("Fleets", tables::of_files(section, fleets::table)),
        ("What each part is worth", tables::of_files(section, ablation::table)),
        ("What guests got done", tables::of_files(section, rates::table)),
    ];
    Ok(html! {
        (part("Time to init over memory", &panels(id, &init)?))
        (part("Where the time goes", &bars(id, &phases::phases(&section.lines))?))
        (part("Host memory at init over memory", &html! {
            p {
                "What the VMM's process had taken of the host's memory when init's first line came, or behind that when the guest "
                "had its other size: the guest's and its own."
            }
            (panels(id, &memory)?)
        }))
        (part("Scaling over vCPUs", &vcpus(id, &scaling)?))
        @for (title, table) in tables { @if let Some(table) = table { (part(title, &table)) } }
        @if let Some(failures) = failures { (part("Failed boots", &failures)) }
        (part("Raw samples", &html! {
            p {
                "Every boot that counts, in milliseconds since the VMM's exec: to init, to its first line on the console, "
                "and until the guest began to run. For a VM that was resized \u{201c}to init\u{201d} is how long that request took. Press a heading to sort by it, again for the other way round."
            }
            noscript { p { "Sorting needs scripts, which are off here." } }
            (tables::raw(section))
        }))
        (part("Host and versions", &facts::facts(&section.sources)))
    })
}

fn part(title: &str, content: &Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}

/// Charts of one question with their legend.
fn panels(id: &str, panels: &Panels) -> Result<Markup> {
    if panels.plots.is_empty() {
        return Ok(html! { p.nothing { "No boot that counts has reached init." } });
    }
    let alone = panels.plots.len() == 1;
    let mut figures = Vec::new();
    for (at, plot) in panels.plots.iter().enumerate() {
        let id = format!("{id}-{}-{at}", panels.id);
        figures.push((plot, figure(&id, panels, plot, if alone { WIDE } else { HALF })?));
    }
    let mut legend = Vec::new();
    for (name, style) in panels.legend() {
        legend.push((name, chart::swatch(style)?));
    }
    Ok(html! {
        ul.legend { @for (name, swatch) in legend { li { (PreEscaped(swatch)) span { (name) } } } }
        p.reading { "Line: medians. Band: the middle half of the samples. Dots: every sample."
            @if panels.own_scales && !alone { " Each chart has a scale of its own." }
        }
        div.panels.alone[alone] { @for (_, figure) in figures { (figure) } }
    })
}

fn figure(id: &str, panels: &Panels, plot: &Plot, width: u32) -> Result<Markup> {
    let title = format!("{}, {}", panels.quantity, plot.title);
    let words = Words { id, title: &title, description: &plot.described(panels.unit) };
    let svg = chart::lines(plot, panels.unit, panels.max(plot), width, &words)?;
    Ok(html! {
        figure data-chart=(panels.id) {
            figcaption { (plot.title) }
            (tables::scroll(&title, &PreEscaped(svg)))
            (tables::plot(plot, panels.unit, &title))
        }
    })
}

fn bars(id: &str, phases: &Phases) -> Result<Markup> {
    if phases.bars.is_empty() {
        return Ok(html! { p.nothing { "No VMM and no guest reported marks." } });
    }
    let description: Vec<_> = phases.bars.iter().map(|bar| bar.described(&phases.legend)).collect();
    let id = format!("{id}-phases");
    let words = Words { id: &id, title: "Where the time goes", description: &description.join(" ") };
    let svg = chart::bars(phases, &words)?;
    Ok(html! {
        p {
            "Median time between successive marks, of the variants that report marks. What takes less than 3 % everywhere "
            "is summed up: the VMM's in front, the guest's at the end. Medians do not quite add up: a bar's sum may "
            "differ a little from the median to init."
        }
        ul.legend.phases { @for phase in &phases.legend {
            li { span.chip.{ "c" (phase.colour) } aria-hidden="true" { (phase.letter) } span { (phase.name) } }
        } }
        figure data-chart="phases" {
            (tables::scroll(words.title, &PreEscaped(svg)))
            (tables::phases(phases))
        }
    })
}

fn vcpus(id: &str, scaling: &Panels) -> Result<Markup> {
    if scaling.plots.is_empty() {
        return Ok(html! { p.nothing { "No memory size was booted with more than one vCPU count." } });
    }
    let sentences: Vec<_> = scaling
        .plots
        .iter()
        .flat_map(|plot| tables::speed_up(plot).into_iter().map(|words| format!("{}: {words}", plot.title)))
        .collect();
    Ok(html! {
        (panels(id, scaling)?)
        details.data { summary { "In words" } ul { @for sentence in sentences { li { (sentence) } } } }
    })
}
