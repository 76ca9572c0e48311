//! Counts how plainly the source names and describes things, for limits that may only become stricter.
//!
//! Three figures: the share of locals that are named by a function word or a bare participle, the share of docs that begin
//! with a pronoun or a question word, and the number of short docs that only repeat the name of their item.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

/// Words that say what something does or where it is, not what it is.
const NO_NOUNS: [&str; 84] = [
    "about", "above", "after", "again", "all", "alone", "any", "apart", "around", "asked", "at",
    "before", "begun", "behind", "below", "beside", "between", "beyond", "both", "by", "done",
    "down", "each", "else", "every", "for", "found", "from", "given", "gone", "heard", "held",
    "here", "how", "in", "into", "it", "kept", "known", "later", "left", "made", "meant", "named",
    "needed", "none", "now", "of", "off", "on", "once", "one", "other", "others", "out", "over",
    "own", "said", "seen", "sent", "shown", "since", "so", "some", "such", "taken", "that", "them",
    "then", "there", "these", "they", "this", "those", "to", "together", "told", "under", "until",
    "wanted", "what", "who", "with", "within",
];
/// First words of docs that leave the reader to find what is meant.
const RIDDLES: [&str; 5] = ["Its", "What", "Whether", "How", "Who"];
/// Docs of so many words at most are compared with the name.
const SHORT_DOC_WORDS: usize = 4;
/// Words that add nothing to a name.
const FILLERS: [&str; 8] = ["a", "an", "the", "of", "for", "its", "this", "one"];

/// What was counted in some source.
#[derive(Default)]
pub(crate) struct Figures {
    /// Locals: bindings of `let`, `for`, `match` and closures.
    pub(crate) locals: usize,
    /// Those of them that no noun names, by name.
    pub(crate) unnamed: BTreeMap<String, usize>,
    /// Doc comments.
    pub(crate) docs: usize,
    /// Those of them that begin with a riddle.
    pub(crate) riddles: usize,
    /// Names of items whose docs only repeat them.
    pub(crate) repeated: Vec<String>,
}

impl Figures {
    /// Counts a file of Rust.
    ///
    /// # Errors
    /// What does not parse.
    pub(crate) fn add(&mut self, text: &str) -> syn::Result<()> {
        self.visit_file(&syn::parse_file(text)?);
        Ok(())
    }

    /// Locals that no noun names, per thousand.
    pub(crate) fn unnamed_per_mille(&self) -> usize {
        per_mille(self.unnamed.values().sum(), self.locals)
    }

    /// Docs that begin with a riddle, per thousand.
    pub(crate) fn riddles_per_mille(&self) -> usize {
        per_mille(self.riddles, self.docs)
    }

    fn see_docs(&mut self, attributes: &[syn::Attribute], name: Option<&syn::Ident>) {
        let lines: Vec<String> = attributes.iter().filter_map(doc_line).collect();
        let text = lines.join(" ");
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { return };
        self.docs += 1;
        self.riddles += usize::from(RIDDLES.contains(&first));
        if let Some(name) = name
            && repeats(&text, &name.to_string())
        {
            self.repeated.push(format!("{name}: {}", text.trim()));
        }
    }
}

/// The text of one line of a doc comment.
fn doc_line(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        return None;
    };
    pair.path.is_ident("doc").then(|| text.value())
}

/// Whether a short doc has no word that is not in the name of its item.
fn repeats(doc: &str, name: &str) -> bool {
    let words: Vec<String> = doc
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word.to_lowercase())
        .filter(|word| !FILLERS.contains(&word.as_str()))
        .collect();
    let parts = parts_of(name);
    let is_part =
        |word: &String| parts.iter().any(|part| part == word || &format!("{part}s") == word);
    !words.is_empty() && words.len() <= SHORT_DOC_WORDS && words.iter().all(is_part)
}

/// The words of a name in snake or camel case.
fn parts_of(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            parts.push(String::new());
        }
        if letter != '_'
            && let Some(last) = parts.last_mut()
        {
            last.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn per_mille(part: usize, whole: usize) -> usize {
    (part * 1000).checked_div(whole).unwrap_or_default()
}

impl<'ast> Visit<'ast> for Figures {
    fn visit_pat_ident(&mut self, binding: &'ast syn::PatIdent) {
        let name = binding.ident.to_string();
        // Constants and variants without a path parse as bindings too.
        if name.starts_with(char::is_lowercase) {
            self.locals += 1;
            if NO_NOUNS.contains(&name.as_str()) {
                *self.unnamed.entry(name).or_default() += 1;
            }
        }
        visit::visit_pat_ident(self, binding);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        // Tests tell stories, and their names may be short.
        if matches!(item, syn::Item::Mod(module) if module.ident == "tests") {
            return;
        }
        match item {
            syn::Item::Const(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            syn::Item::Enum(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            syn::Item::Fn(item) => self.see_docs(&item.attrs, Some(&item.sig.ident)),
            syn::Item::Static(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            syn::Item::Struct(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            syn::Item::Trait(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            syn::Item::Type(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            syn::Item::Mod(item) => self.see_docs(&item.attrs, Some(&item.ident)),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.see_docs(&item.attrs, Some(&item.sig.ident));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.see_docs(&item.attrs, Some(&item.sig.ident));
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.see_docs(&field.attrs, field.ident.as_ref());
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.see_docs(&variant.attrs, Some(&variant.ident));
        visit::visit_variant(self, variant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_docs_are_counted() {
        let mut figures = Figures::default();
        let text = "
            /// The node id.
            struct NodeId;
            /// Its length in bytes.
            fn length(of: u8) -> u8 {
                let at = of;
                for position in 0..at { drop(position) }
                at
            }
            enum Way {
                /// Goes up and never down again.
                Up,
            }
        ";
        figures.add(text).unwrap();
        assert_eq!((figures.locals, figures.docs, figures.riddles), (3, 3, 1));
        assert_eq!(figures.unnamed, BTreeMap::from([("at".to_owned(), 1), ("of".to_owned(), 1)]));
        assert_eq!(figures.repeated, ["NodeId: The node id."]);
        assert_eq!((figures.unnamed_per_mille(), figures.riddles_per_mille()), (666, 333));
    }
}
