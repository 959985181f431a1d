// SPDX-License-Identifier: Apache-2.0
//! The modules of a crate, and what each names of the others.
//!
//! A file imports another if it names something that is defined there: by `use`, or by a path that is written out, inside
//! macros too. Who uses a name that `pub use` gives a thing of elsewhere imports the file that defines the thing. `mod` is no
//! import, nor is `use` of a module, before something of that module is named. Methods are not seen, for nothing says
//! whose they are.
//!
//! What only tests and fuzz targets have is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, ImplItem, Item, ItemUse, Lit, Macro, Meta, MetaNameValue, Token, UseTree, Visibility,
};

use super::graph::Graph;

/// The words of a path.
type Words = Vec<String>;

/// Aliases that lead to each other end somewhere.
const MOST_ALIASES: u8 = 16;

#[derive(Default)]
struct Module {
    file: PathBuf,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// What `use` calls by a name here.
    aliases: BTreeMap<String, Words>,
    /// The paths in the code, those of `use` among them.
    paths: Vec<Words>,
}

/// What a path leads to within its crate.
enum Target {
    Module(usize),
    /// An item of this module, or something of it: a variant, a constant.
    Item(usize),
}

/// A crate's modules; the first is the root.
struct Modules(Vec<Module>);

/// Reads the crate whose root is the file `root`. The graph has paths from `base` on.
pub(crate) fn imports(base: &Path, root: &Path) -> Graph {
    let mut modules = Modules(Vec::new());
    modules.read(root, root.parent().unwrap(), 0);
    let mut graph = Graph::default();
    for (at, module) in modules.0.iter().enumerate() {
        for words in &module.paths {
            if let Some(Target::Item(to)) = modules.resolve(at, words, MOST_ALIASES) {
                let [from, to] = [&module.file, &modules.0[to].file].map(|file| file.strip_prefix(base).unwrap());
                graph.add(from, to, words);
            }
        }
    }
    graph
}

impl Modules {
    /// The module of a file, and all below; its children's files are in `directory`.
    fn read(&mut self, file: &Path, directory: &Path, parent: usize) -> usize {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(file, directory, parent, &parsed.items)
    }

    fn add(&mut self, file: &Path, directory: &Path, parent: usize, items: &[Item]) -> usize {
        let at = self.0.len();
        self.0.push(Module { file: file.to_owned(), parent, ..Module::default() });
        let mut reader = Reader::default();
        for item in items.iter().filter(|item| is_built(attributes(item))) {
            let Item::Mod(module) = item else {
                reader.visit_item(item);
                continue;
            };
            let name = module.ident.to_string();
            let below = directory.join(&name);
            let child = if let Some((_, items)) = &module.content {
                self.add(file, &below, at, items)
            } else {
                let beside = directory.join(format!("{name}.rs"));
                let usual = if beside.exists() { beside } else { below.join("mod.rs") };
                self.read(&elsewhere(file, &module.attrs).unwrap_or(usual), &below, at)
            };
            self.0[at].children.insert(name, child);
        }
        (self.0[at].aliases, self.0[at].paths) = (reader.aliases, reader.paths);
        at
    }

    /// None for what is local, of the prelude or of another crate.
    fn resolve(&self, from: usize, words: &[String], aliases: u8) -> Option<Target> {
        let aliases = aliases.checked_sub(1)?;
        let mut words = words.iter().map(String::as_str);
        let mut target = match words.next()? {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.0[from].parent),
            first => self.lookup(from, first, words.len() == 0, aliases)?,
        };
        while let (Target::Module(at), Some(word)) = (&target, words.next()) {
            target = match word {
                "super" => Target::Module(self.0[*at].parent),
                _ => self.lookup(*at, word, words.len() == 0, aliases).unwrap_or(Target::Item(*at)),
            };
        }
        Some(target)
    }

    /// An item and a module may have the same name: the last word of a path is the item, others the module.
    fn lookup(&self, at: usize, word: &str, last: bool, aliases: u8) -> Option<Target> {
        let alias = || self.0[at].aliases.get(word).and_then(|words| self.resolve(at, words, aliases));
        let child = || self.0[at].children.get(word).map(|child| Target::Module(*child));
        if last { alias().or_else(child) } else { child().or_else(alias) }
    }
}

/// The file that an attribute `path` names, from the directory of the file that has it on.
fn elsewhere(file: &Path, attributes: &[Attribute]) -> Option<PathBuf> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let Meta::NameValue(MetaNameValue { value: Expr::Lit(ExprLit { lit: Lit::Str(path), .. }), .. }) =
            &attribute.meta
        else {
            return None;
        };
        Some(file.parent()?.join(path.value()))
    })
}

/// Reads the items of one module.
#[derive(Default)]
struct Reader {
    aliases: BTreeMap<String, Words>,
    paths: Vec<Words>,
}

impl Reader {
    fn uses(&mut self, tree: &UseTree, before: &[String]) {
        let joined = |word: &dyn ToString| before.iter().cloned().chain([word.to_string()]).collect::<Words>();
        let (words, alias) = match tree {
            UseTree::Path(tree) => return self.uses(&tree.tree, &joined(&tree.ident)),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.uses(tree, before)),
            UseTree::Name(tree) if tree.ident == "self" => (before.to_vec(), before[before.len() - 1].clone()),
            UseTree::Name(tree) => (joined(&tree.ident), tree.ident.to_string()),
            UseTree::Rename(tree) if tree.ident == "self" => (before.to_vec(), tree.rename.to_string()),
            UseTree::Rename(tree) => (joined(&tree.ident), tree.rename.to_string()),
            UseTree::Glob(_) => (joined(&"*"), "*".to_owned()),
        };
        self.paths.push(words.clone());
        self.aliases.insert(alias, words);
    }

    /// A word alone is local, or `use` has brought it.
    fn path(&mut self, words: Words) {
        if words.len() > 1 {
            self.paths.push(words);
        }
    }

    /// Paths in what is not parsed: the arguments of macros.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut words, mut colons) = (Words::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(word) if colons == 2 => words.push(word.to_string()),
                TokenTree::Ident(word) => self.path(std::mem::replace(&mut words, vec![word.to_string()])),
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => self.path(std::mem::take(&mut words)),
            }
            colons = 0;
        }
        self.path(words);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_built(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let (ImplItem::Fn(syn::ImplItemFn { attrs, .. }) | ImplItem::Const(syn::ImplItemConst { attrs, .. })) = item
        else {
            return visit::visit_impl_item(self, item);
        };
        if is_built(attrs) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.uses(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, node: &'ast Macro) {
        self.visit_path(&node.path);
        self.tokens(node.tokens.clone());
    }

    /// `pub(in super::super)` needs nothing of there.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Those of the kinds of items that have a `cfg` somewhere.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(syn::ItemConst { attrs, .. })
        | Item::Enum(syn::ItemEnum { attrs, .. })
        | Item::Fn(syn::ItemFn { attrs, .. })
        | Item::Impl(syn::ItemImpl { attrs, .. })
        | Item::Macro(syn::ItemMacro { attrs, .. })
        | Item::Mod(syn::ItemMod { attrs, .. })
        | Item::Static(syn::ItemStatic { attrs, .. })
        | Item::Struct(syn::ItemStruct { attrs, .. })
        | Item::Trait(syn::ItemTrait { attrs, .. })
        | Item::Type(syn::ItemType { attrs, .. })
        | Item::Use(ItemUse { attrs, .. }) => attrs,
        _ => &[],
    }
}

/// A plain build has it: neither tests nor fuzz targets, all else.
fn is_built(attributes: &[Attribute]) -> bool {
    let cfgs = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    cfgs.map(|cfg| cfg.parse_args::<Meta>().unwrap()).all(|cfg| holds(&cfg))
}

fn holds(cfg: &Meta) -> bool {
    let Meta::List(list) = cfg else { return !cfg.path().is_ident("test") && !cfg.path().is_ident("fuzzing") };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap();
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("any") => parts.iter().any(holds),
        Some("not") => !parts.iter().any(holds),
        _ => parts.iter().all(holds),
    }
}
