// SPDX-License-Identifier: Apache-2.0
//! What imports what, and the cycles in that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The imports within one crate, between neighbours: the files and directories of one directory.
///
/// An import of `sweep/modes.rs` by `results/blocks.rs` is one of `sweep` by `results`. So directories are held to the rule
/// as files are, and every cycle of files is one of neighbours too.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Of each neighbour: the others that it imports, and by what words.
    imports: BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>,
}

impl Graph {
    /// `file` names `words`, which is defined in the file `of`.
    pub(crate) fn add(&mut self, file: &Path, of: &Path, words: &[String]) {
        if file == of {
            return;
        }
        let same = file.components().zip(of.components()).take_while(|(one, other)| one == other).count();
        let [from, to] = [file, of].map(|file| file.components().take(same + 1).collect());
        let words = format!("{}: {}", file.display(), words.join("::"));
        self.imports.entry(from).or_default().entry(to).or_default().insert(words);
    }

    /// Takes out all imports of `to` by `from` or what is in it, and gives their ends.
    pub(crate) fn remove(&mut self, from: &str, to: &str) -> Vec<(PathBuf, PathBuf)> {
        let importers = self.imports.iter_mut().filter(|(file, _)| file.starts_with(from));
        importers.filter_map(|(file, imports)| Some((file.clone(), imports.remove_entry(Path::new(to))?.0))).collect()
    }

    /// All that one gets to from `from`, over one import or more.
    fn reached<'a>(&'a self, from: &'a Path) -> BTreeSet<&'a Path> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            let imports = self.imports.get(file).into_iter().flat_map(BTreeMap::keys);
            next.extend(imports.map(PathBuf::as_path).filter(|file| reached.insert(*file)));
        }
        reached
    }

    /// One can get back to `from` from `to`.
    pub(crate) fn leads_back(&self, from: &Path, to: &Path) -> bool {
        self.reached(to).contains(from)
    }

    /// What each cycle consists of. Cycles that share something are one.
    pub(crate) fn cycles(&self) -> BTreeSet<BTreeSet<&Path>> {
        let reached: BTreeMap<_, _> = self.imports.keys().map(|file| (file.as_path(), self.reached(file))).collect();
        let back = |from: &Path, to: &Path| reached.get(to).is_some_and(|reached| reached.contains(from));
        reached
            .iter()
            .filter(|(file, reached)| reached.contains(*file))
            .map(|(file, reached)| reached.iter().copied().filter(|other| back(file, other)).collect())
            .collect()
    }

    /// The imports that make the cycle.
    pub(crate) fn tell(&self, cycle: &BTreeSet<&Path>) -> String {
        let mut text = String::new();
        for (from, imports) in self.imports.iter().filter(|(from, _)| cycle.contains(from.as_path())) {
            for (to, words) in imports.iter().filter(|(to, _)| cycle.contains(to.as_path())) {
                let _ = writeln!(text, "  {} imports {}", from.display(), to.display());
                for words in words {
                    text.extend(["    ", words, "\n"]);
                }
            }
        }
        text
    }
}

fn set(files: &[&'static str]) -> BTreeSet<&'static Path> {
    files.iter().copied().map(Path::new).collect()
}

#[test]
fn cycles_are_found_and_nothing_else() {
    let mut graph = Graph::default();
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "f"), ("f", "f")] {
        graph.add(Path::new(from), Path::new(to), &[to.to_owned(), "x".to_owned()]);
    }
    assert_eq!(graph.cycles(), BTreeSet::from([set(&["a", "b", "c"]), set(&["d", "e"])]));
    assert_eq!(graph.tell(&set(&["d", "e"])), "  d imports e\n    d: e::x\n  e imports d\n    e: d::x\n");
    assert!(graph.leads_back(Path::new("a"), Path::new("b")) && !graph.leads_back(Path::new("c"), Path::new("d")));
    assert_eq!(graph.remove("c", "a"), [("c".into(), "a".into())]);
    assert_eq!(graph.remove("c", "a"), []);
    assert_eq!(graph.cycles(), BTreeSet::from([set(&["d", "e"])]));
}

#[test]
fn directories_are_neighbours_as_files_are() {
    let mut graph = Graph::default();
    for (from, to) in
        [("a/one.rs", "b/two.rs"), ("b/three.rs", "a/four.rs"), ("a/one.rs", "a/four.rs"), ("c.rs", "a/one.rs")]
    {
        graph.add(Path::new(from), Path::new(to), &[]);
    }
    assert_eq!(graph.cycles(), BTreeSet::from([set(&["a", "b"])]));
    graph.add(Path::new("a/four.rs"), Path::new("a/mod.rs"), &[]);
    graph.add(Path::new("a/mod.rs"), Path::new("a/one.rs"), &[]);
    assert_eq!(graph.cycles(), BTreeSet::from([set(&["a", "b"]), set(&["a/four.rs", "a/mod.rs", "a/one.rs"])]));
    assert_eq!(graph.remove("a", "a/mod.rs"), [("a/four.rs".into(), "a/mod.rs".into())]);
}
