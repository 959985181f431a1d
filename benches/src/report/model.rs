// SPDX-License-Identifier: Apache-2.0
//! Files, sorted into hosts; samples, sorted into lines.

use std::path::PathBuf;

use crate::results::{Group, Results, Start, groups};

use super::style::Style;

/// A results file.
#[derive(Debug)]
pub(super) struct Source {
    /// What it is called in the report.
    pub(super) name: String,
    /// What it holds.
    pub(super) results: Results,
}

/// Files of the same host: their times may stand in one chart.
#[derive(Debug)]
pub(super) struct Section<'a> {
    /// The files.
    pub(super) sources: Vec<&'a Source>,
    /// One for each VMM, mode, thread cap and switch of each file.
    pub(super) lines: Vec<Line<'a>>,
}

/// What one line of a chart stands for.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// `flatboot, parallel`, with the file's name where there are several.
    pub(super) name: String,
    /// How it is drawn.
    pub(super) style: Style,
    /// Its shapes, by vCPUs, then by memory.
    pub(super) points: Vec<Group<'a>>,
}

impl Line<'_> {
    /// Whether its VMs are booted, and not restored or resized: what takes time there has other parts.
    pub(super) fn is_of_boots(&self) -> bool {
        self.points.iter().all(|point| point.variant.start.is_none())
    }
}

/// Names the files: by file name, or by the path as given where two have the same.
pub(super) fn sources(files: Vec<(PathBuf, Results)>) -> Vec<Source> {
    let last = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let all: Vec<_> = files.iter().map(|(path, _)| last(path)).collect();
    let is_unique = |name: &str| all.iter().flatten().filter(|other| *other == name).count() == 1;
    let name = |path: &PathBuf| last(path).filter(|name| is_unique(name)).unwrap_or_else(|| path.display().to_string());
    files.into_iter().map(|(path, results)| Source { name: name(&path), results }).collect()
}

/// One section for each host, in the files' order.
pub(super) fn sections(sources: &[Source]) -> Vec<Section<'_>> {
    let mut hosts: Vec<Vec<&Source>> = Vec::new();
    for source in sources {
        let identity = |source: &Source| source.results.facts.host.identity();
        match hosts.iter_mut().find(|host| identity(host[0]) == identity(source)) {
            Some(host) => host.push(source),
            None => hosts.push(vec![source]),
        }
    }
    hosts.into_iter().map(|sources| Section { lines: lines(&sources), sources }).collect()
}

fn lines<'a>(sources: &[&'a Source]) -> Vec<Line<'a>> {
    let mut lines: Vec<(&Source, Vec<Group<'a>>)> = Vec::new();
    for source in sources {
        for group in groups(&source.results) {
            let same = |line: &&mut (&Source, Vec<Group<'a>>)| {
                std::ptr::eq(line.0, *source) && kind(&line.1[0]) == kind(&group)
            };
            match lines.iter_mut().find(same) {
                Some((_, groups)) => groups.push(group),
                None => lines.push((source, vec![group])),
            }
        }
    }
    let (mut vmms, mut ways) = (Vec::new(), Vec::new());
    let mut drawn = Vec::new();
    for (index, (source, mut points)) in lines.into_iter().enumerate() {
        points.sort_by_key(|group| (group.variant.cpus, group.variant.memory_bytes));
        let (vmm, mode, threads, without, fleet, start) = kind(&points[0]);
        let mut name = format!("{vmm}, {mode}");
        if let Some(vms) = fleet {
            name = format!("{vms} × {name}");
        }
        if let Some(threads) = threads {
            name = format!("{name}, threads {threads}");
        }
        if let Some(without) = without {
            name = format!("{name}, without {without}");
        }
        name += &points[0].variant.started();
        if sources.len() > 1 {
            name = format!("{name} ({})", source.name);
        }
        let style = Style::new(
            index,
            place(&mut vmms, (vmm, &source.name)),
            place(&mut ways, (mode, threads, without, fleet, start)),
        );
        drawn.push(Line { name, style, points });
    }
    drawn
}

/// What all points of a line have in common: VMM, mode, threads, switch, VMs of a fleet, start.
type LineKind<'a> = (&'a str, &'a str, Option<&'a str>, Option<&'a str>, Option<u32>, Option<Start>);

fn kind<'a>(group: &Group<'a>) -> LineKind<'a> {
    let variant = group.variant;
    (&variant.vmm, &variant.mode, variant.threads.as_deref(), variant.without.as_deref(), variant.vms, variant.start)
}

/// Index of `item` in `seen`, where it is put if it is new.
fn place<T: PartialEq>(seen: &mut Vec<T>, item: T) -> usize {
    if let Some(index) = seen.iter().position(|one| *one == item) {
        return index;
    }
    seen.push(item);
    seen.len() - 1
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, sweep, variant};
    use super::*;
    use crate::results::Variant;

    #[test]
    fn files_of_one_name_are_called_by_their_paths() {
        let results = || sweep(vec![variant("flatboot", "serial", GIB)], 1, |_, _| 1);
        let files = [("a/results.json", results()), ("b/results.json", results()), ("b/other.json", results())];
        let files = files.map(|(path, results)| (PathBuf::from(path), results)).to_vec();
        let names: Vec<_> = sources(files).into_iter().map(|source| source.name).collect();
        assert_eq!(names, ["a/results.json", "b/results.json", "other.json"]);
    }

    #[test]
    fn a_boot_and_a_restore_of_one_size_are_lines_apart() {
        let start = |start, gib| Variant { start, ..variant("flatboot", "ondemand", gib * GIB) };
        let restored = Some(Start::Restored { from_bytes: None });
        let resized = Some(Start::Resized { from_bytes: GIB });
        let variants = vec![start(None, 4), start(restored, 4), start(resized, 4), start(None, 8), start(restored, 8)];
        let sources = sources(vec![("a".into(), sweep(variants, 1, |_, _| 1))]);
        let lines = &sections(&sources)[0].lines;
        let shown: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.points.len())).collect();
        let expected = [
            ("flatboot, ondemand", 2),
            ("flatboot, ondemand, restored", 2),
            ("flatboot, ondemand, resized from 1 GiB", 1),
        ];
        assert_eq!(shown, expected);
        let looks: std::collections::HashSet<_> = lines.iter().map(|line| format!("{:?}", line.style)).collect();
        assert_eq!(looks.len(), lines.len());
    }

    #[test]
    fn files_of_other_hosts_are_apart() {
        let results = sweep(vec![variant("flatboot", "serial", GIB)], 1, |_, _| 1);
        let (mut other, mut later) = (results.clone(), results.clone());
        other.facts.host.kernel = "6.13".into();
        later.facts.host.memory_bytes -= 4096;
        let files = vec![("a".into(), results), ("b".into(), other), ("c".into(), later)];
        let sources = sources(files);
        let sections = sections(&sources);
        let names: Vec<Vec<_>> = sections.iter().map(|s| s.sources.iter().map(|f| f.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["a", "c"], vec!["b"]]);
        assert_eq!(sections[0].lines[1].name, "flatboot, serial (c)");
    }
}
