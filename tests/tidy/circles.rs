//! Finds the largest circle of files in a crate: files each of which needs all others to be understood.
//!
//! ```text
//!   lib.rs -- mod --> modules: items, imports, children
//!   use, paths -- resolved through modules and imports --> the file that defines the item --> edges --> circles
//! ```
//!
//! A declaration of a module is no edge, and code for tests is left out. A name that a module only passes on counts for
//! the file that defines it. Calls of methods are not seen, because they name no file.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

/// Source of a crate: texts by path below its `src`, such as `scan/spec.rs`.
pub(crate) type Sources = BTreeMap<String, String>;

/// Imports that are followed from a name to its definition, at most; two that name each other have no end.
const HOPS_MAX: usize = 16;

/// The files of the largest circle; none if the crate has no circle.
///
/// # Errors
/// A text that does not parse, or a module without a file.
pub(crate) fn largest(sources: &Sources) -> Result<Vec<String>, String> {
    let mut reader = Reader::default();
    let file = "lib.rs".to_owned();
    reader.pending.push(Declared { module: Vec::new(), file, folder: String::new() });
    while let Some(declared) = reader.pending.pop() {
        let Declared { module, mut file, folder } = declared;
        if !sources.contains_key(&file) {
            file = format!("{folder}mod.rs");
        }
        let text = sources.get(&file).ok_or_else(|| format!("{folder} has no file"))?;
        let parsed = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
        reader.modules.insert(module.clone(), Module { file, ..Module::default() });
        (reader.module, reader.folder) = (module, folder);
        reader.visit_file(&parsed);
    }
    Ok(largest_circle(&reader.edges()))
}

/// A module that was declared and not read yet.
struct Declared {
    module: Vec<String>,
    /// Expected file; if there is none, it is the `mod.rs` of the folder.
    file: String,
    /// Folder of the module's children, with a slash at the end.
    folder: String,
}

/// Names in the scope of a module.
#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// Imported paths by name.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths of which all names are imported.
    globs: Vec<Vec<String>>,
}

/// Reads the modules of a crate, and the paths that they name.
#[derive(Default)]
struct Reader {
    pending: Vec<Declared>,
    modules: BTreeMap<Vec<String>, Module>,
    /// Paths, with the modules that name them.
    references: Vec<(Vec<String>, Vec<String>)>,
    /// Module that is being read.
    module: Vec<String>,
    /// Folder of that module's children.
    folder: String,
    /// Number of blocks around the current position.
    blocks: usize,
}

impl Reader {
    /// Files by the files that name their items.
    fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, names) in &self.references {
            let file = self.modules[module].file.as_str();
            if let Some(target) = self.defining_file(module, names, HOPS_MAX)
                && target != file
            {
                edges.entry(file).or_default().insert(target);
            }
        }
        edges
    }

    /// The file that defines what a path in a module names; `None` for items of other crates.
    fn defining_file(&self, module: &[String], names: &[String], hops: usize) -> Option<&str> {
        let mut position = module.to_vec();
        let mut names = names;
        // Of names that begin in this crate it is certain that they end in it, unless they pass through an import.
        let mut is_certain = false;
        while let Some((first, rest)) = names.split_first() {
            match first.as_str() {
                "crate" => position.clear(),
                "super" => drop(position.pop()),
                "self" => {}
                _ => break,
            }
            (names, is_certain) = (rest, true);
        }
        loop {
            let scope = self.modules.get(&position)?;
            let Some((first, rest)) = names.split_first() else { return Some(&scope.file) };
            position.push(first.clone());
            if self.modules.contains_key(&position) {
                (names, is_certain) = (rest, true);
                continue;
            }
            position.pop();
            if scope.items.contains(first) {
                return Some(&scope.file);
            }
            let hops = hops.checked_sub(1)?;
            if let Some(import) = scope.imports.get(first) {
                return self.defining_file(&position, &[import.as_slice(), rest].concat(), hops);
            }
            let mut globs = scope.globs.iter().map(|glob| [glob.as_slice(), names].concat());
            let defined = globs.find_map(|path| self.defining_file(&position, &path, hops));
            return defined.or_else(|| is_certain.then_some(scope.file.as_str()));
        }
    }

    fn add_reference(&mut self, names: Vec<String>) {
        self.references.push((self.module.clone(), names));
    }

    /// Adds what a tree of `use` imports, after the names before it.
    fn import(&mut self, tree: &syn::UseTree, mut names: Vec<String>) {
        let alias = match tree {
            syn::UseTree::Path(path) => {
                names.push(path.ident.to_string());
                return self.import(&path.tree, names);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, names.clone()));
            }
            syn::UseTree::Glob(_) => None,
            // `self` stands for the names before it.
            syn::UseTree::Name(name) => {
                names.extend((name.ident != "self").then(|| name.ident.to_string()));
                names.last().cloned()
            }
            syn::UseTree::Rename(rename) => {
                names.extend((rename.ident != "self").then(|| rename.ident.to_string()));
                Some(rename.rename.to_string())
            }
        };
        self.add_reference(names.clone());
        // An import inside of a function is in the scope of that function only.
        if self.blocks == 0
            && let Some(scope) = self.modules.get_mut(&self.module)
        {
            match alias {
                Some(alias) => drop(scope.imports.insert(alias, names)),
                None => scope.globs.push(names),
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_for_tests(attributes_of(item)) {
            return;
        }
        if self.blocks == 0
            && let Some(name) = name_of(item)
            && let Some(scope) = self.modules.get_mut(&self.module)
        {
            scope.items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        let module = [self.module.as_slice(), std::slice::from_ref(&name)].concat();
        let folder = format!("{}{name}/", self.folder);
        let Some((_, items)) = &item.content else {
            let file = format!("{}{name}.rs", self.folder);
            return self.pending.push(Declared { module, file, folder });
        };
        let file = self.modules[&self.module].file.clone();
        self.modules.insert(module.clone(), Module { file, ..Module::default() });
        let outer_module = std::mem::replace(&mut self.module, module);
        let outer_folder = std::mem::replace(&mut self.folder, folder);
        items.iter().for_each(|item| self.visit_item(item));
        (self.module, self.folder) = (outer_module, outer_folder);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, Vec::new());
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.blocks += 1;
        visit::visit_block(self, block);
        self.blocks -= 1;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A single name is of this file, or was imported: the import is an edge already.
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.add_reference(names.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        paths_in(&call.tokens.to_string()).into_iter().for_each(|names| self.add_reference(names));
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Paths of more than one name in the tokens of a macro.
fn paths_in(tokens: &str) -> Vec<Vec<String>> {
    let joined = tokens.split("::").map(str::trim).collect::<Vec<_>>().join("::");
    let paths = joined.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
    let names = |path: &str| {
        path.split("::").take_while(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    paths.map(names).filter(|names| names.len() > 1).collect()
}

/// True for `#[cfg(test)]` and its combinations with other reasons to compile an item.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let tokens = list.tokens.to_string();
        let words: Vec<_> = tokens.split(|letter: char| !letter.is_alphanumeric()).collect();
        list.path.is_ident("cfg") && words.contains(&"test") && !words.contains(&"not")
    })
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name of an item that is neither a module nor an import.
fn name_of(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        _ => None,
    }
}

/// The largest set of files each of which reaches all others of the set.
fn largest_circle(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|file| (*file, reachable(edges, file))).collect();
    let returns = |file: &str, target: &str| {
        reached.get(target).is_some_and(|targets| targets.contains(file))
    };
    let circles = reached.iter().map(|(file, targets)| {
        let members = targets.iter().filter(|target| returns(file, target));
        members.map(|member| (*member).to_owned()).collect::<Vec<_>>()
    });
    circles.max_by_key(Vec::len).unwrap_or_default()
}

/// All files that a file leads to; the file itself only if it is on a circle.
fn reachable<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, file: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut pending: Vec<&str> = vec![file];
    while let Some(file) = pending.pop() {
        let targets = edges.get(file).into_iter().flatten();
        pending.extend(targets.copied().filter(|target| seen.insert(*target)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        largest(&texts.collect()).unwrap()
    }

    #[test]
    fn the_largest_circle_of_files_is_found() {
        let root = "
            mod a; mod b; mod c; mod d; pub mod e;
            pub use b::Thing;
            #[cfg(test)] mod tests;
        ";
        let files = [
            ("lib.rs", root),
            // The root only passes the name on; the item is in b.rs.
            ("a.rs", "use crate::Thing; pub struct A(Thing); mod inner { use super::super::d; }"),
            ("b.rs", "pub struct Thing; fn f() -> String { format!(\"{}\", super::c::name()) }"),
            ("c/mod.rs", "mod deep; use crate::a::A; pub use deep::Deep; pub fn name(_: A) {}"),
            ("c/deep.rs", "use arrow::a::A; pub(in crate::c) struct Deep(crate::e::E<A>);"),
            // A circle of two, if the tests counted.
            ("d.rs", "use crate::e::E; #[cfg(test)] fn f(_: crate::a::A) {}"),
            ("e.rs", "pub struct E<T>(T); #[cfg(test)] mod tests { use crate::d; }"),
        ];
        assert_eq!(circle(&files), ["a.rs", "b.rs", "c/mod.rs"]);
    }

    #[test]
    fn declared_and_passed_on_names_are_no_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*; const ONE: u8 = 1;"),
            ("a.rs", "use crate::B; pub struct A; fn f() { crate::b::g::<B>(); Self::h(); }"),
            ("b.rs", "pub struct B; pub fn g<T>() { core::mem::drop(b::B); }"),
        ];
        assert_eq!(circle(&files), Vec::<String>::new());
        // The root is on a circle once a file needs an item that is defined in it.
        let mut files = files;
        files[2].1 = "pub struct B; fn g() -> u8 { super::ONE }";
        assert_eq!(circle(&files), ["a.rs", "b.rs", "lib.rs"]);
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let sources = Sources::from([("lib.rs".to_owned(), "mod a;".to_owned())]);
        assert_eq!(largest(&sources), Err("a/ has no file".to_owned()));
    }
}
