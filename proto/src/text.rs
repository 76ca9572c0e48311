//! Words of texts: for full-text indexes and the functions that they answer, which must agree.
//!
//! A text is cut into *tokens*: maximal runs of word characters, and, with the Chinese analyzer, the single characters
//! and pairs of neighbours of scripts without spaces between words. An index knows the tokens of its texts; the
//! functions compare characters. The link between the two is [`needed_tokens`]: a text that contains a term has these
//! tokens. So an index may return rows that the function refuses, and never misses one that it accepts.
//!
//! Folding is context-free: a character has one folded form wherever it stands, so that a part of a text folds to a
//! part of the folded text. `str::to_lowercase` is not: Greek sigma has another form at the end of a word.
//!
//! Decided against a tokenizer of a search engine: token ends, phrases by characters and agreement with SQL functions
//! are a few rules, and a library's rules for "3.14" or "can't" would be others.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::CharIndices;

use memchr::memmem;

use crate::index::Analyzer;
use crate::probe::{ColumnTest, PROBE_DEPTH_MAX, Probe};

/// Maximum depth of a text query.
const DEPTH_MAX: usize = 64;
/// Maximum terms of a text query.
const TERMS_MAX: usize = 1_000;

/// A character of a word: alphanumeric, but not of a script without spaces between words ([`is_dense`]).
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() && !is_dense(c)
}

/// A character of a script without spaces between words: Han, Hiragana, Katakana and Hangul.
pub fn is_dense(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF
        | 0x2_0000..=0x3_FFFF)
}

/// Calls `each` with the tokens of a text: maximal runs of word characters; with Chinese also each dense character and
/// each pair of neighbours. A token may come several times. With `fold`, tokens are those of the folded text.
pub fn tokens(text: &str, analyzer: Analyzer, fold: bool, each: &mut dyn FnMut(&str)) {
    let text = if fold { folded(text) } else { Cow::Borrowed(text) };
    if text.is_ascii() {
        return ascii_words(&text, each);
    }
    cut(&text, |part| match (part, analyzer) {
        (Part::Word(word), _) => each(word),
        (Part::Dense(_), Analyzer::English) => {}
        (Part::Dense(run), Analyzer::Chinese) => {
            pairs(run, each);
            single_characters(run, each);
        }
    });
}

/// Tokens that every text has that contains the term ([`contains_term`]); `None`: none are known. With `fold`, tokens
/// of folded texts; the term may occur in the text or in its lower case.
pub fn needed_tokens(term: &str, analyzer: Analyzer, fold: bool) -> Option<Vec<String>> {
    let term = if fold { folded(term) } else { Cow::Borrowed(term) };
    let mut list = Vec::new();
    let mut need = |token: &str| list.push(token.to_owned());
    cut(&term, |part| match (part, analyzer) {
        (Part::Word(word), _) => need(word),
        (Part::Dense(_), Analyzer::English) => {}
        // Pairs are rarer than the characters in them.
        (Part::Dense(run), Analyzer::Chinese) => match run.chars().nth(1) {
            Some(_) => pairs(run, &mut need),
            None => need(run),
        },
    });
    list.sort_unstable();
    list.dedup();
    (!list.is_empty()).then_some(list)
}

/// True if the text contains the term, and no end of it that is a word character continues in the text: `error` is in
/// "error-prone", but not in "errors". No text contains the empty term.
pub fn contains_term(text: &str, term: &str) -> bool {
    contains(text, term, |part| part.find(term))
}

/// A term to be found in many texts, by the rules of [`contains_term`]: the search is prepared once.
pub struct TermFinder<'t> {
    term: &'t str,
    finder: memmem::Finder<'t>,
}

impl<'t> TermFinder<'t> {
    /// Prepares the search for a term.
    pub fn new(term: &'t str) -> Self {
        Self { term, finder: memmem::Finder::new(term) }
    }

    /// Returns what is searched for.
    pub fn term(&self) -> &'t str {
        self.term
    }

    /// True if the text contains the term.
    pub fn is_in(&self, text: &str) -> bool {
        contains(text, self.term, |part| self.finder.find(part.as_bytes()))
    }
}

/// [`contains_term`], where `find` returns the offset of the term's first occurrence.
fn contains(text: &str, term: &str, find: impl Fn(&str) -> Option<usize>) -> bool {
    let (Some(first), Some(last)) = (term.chars().next(), term.chars().next_back()) else {
        return false;
    };
    let mut start = 0;
    while let Some(offset) = find(&text[start..]) {
        let position = start + offset;
        let previous = text[..position].chars().next_back();
        let next = text[position + term.len()..].chars().next();
        let continues =
            |end: char, neighbour: Option<char>| is_word(end) && neighbour.is_some_and(is_word);
        if !continues(first, previous) && !continues(last, next) {
            return true;
        }
        // Occurrences may overlap.
        start = position + first.len_utf8();
    }
    false
}

/// A part of a text.
enum Part<'t> {
    /// Maximal run of word characters.
    Word(&'t str),
    /// Maximal run of dense characters.
    Dense(&'t str),
}

/// Calls `each` with the words of a text of ASCII, which has no dense characters.
fn ascii_words(text: &str, each: &mut dyn FnMut(&str)) {
    let bytes = text.as_bytes();
    let is_word = u8::is_ascii_alphanumeric;
    let mut position = 0;
    while let Some(between) = bytes[position..].iter().position(is_word) {
        let start = position + between;
        let length = bytes[start..].iter().position(|byte| !is_word(byte));
        position = length.map_or(bytes.len(), |length| start + length);
        each(&text[start..position]);
    }
}

/// Cuts a text into its parts, in their order.
fn cut<'t>(text: &'t str, mut visit: impl FnMut(Part<'t>)) {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Class {
        Word,
        Dense,
        Between,
    }
    let (mut start, mut current) = (0, Class::Between);
    let mut end_part = |class: Class, part: &'t str| match class {
        Class::Word => visit(Part::Word(part)),
        Class::Dense => visit(Part::Dense(part)),
        Class::Between => {}
    };
    for (position, c) in text.char_indices() {
        let class = if is_dense(c) {
            Class::Dense
        } else if c.is_alphanumeric() {
            Class::Word
        } else {
            Class::Between
        };
        if class != current {
            end_part(current, &text[start..position]);
            (start, current) = (position, class);
        }
    }
    end_part(current, &text[start..]);
}

/// Calls `each` with the pairs of neighbours in a run of dense characters.
fn pairs(run: &str, each: &mut dyn FnMut(&str)) {
    let starts = run.char_indices().map(|(start, _)| start);
    let ends = run.char_indices().map(|(start, c)| start + c.len_utf8()).skip(1);
    starts.zip(ends).for_each(|(start, end)| each(&run[start..end]));
}

fn single_characters(run: &str, each: &mut dyn FnMut(&str)) {
    run.char_indices().for_each(|(start, c)| each(&run[start..start + c.len_utf8()]));
}

/// The text with each character in its lower case, and the final sigma as any other.
fn folded(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        let has_upper = text.bytes().any(|byte| byte.is_ascii_uppercase());
        let lower = || Cow::Owned(text.to_ascii_lowercase());
        return if has_upper { lower() } else { Cow::Borrowed(text) };
    }
    let plain_sigma = |c| if c == 'ς' { 'σ' } else { c };
    Cow::Owned(text.chars().flat_map(char::to_lowercase).map(plain_sigma).collect())
}

/// A query of the SQL function `matches`: words and "phrases" side by side, AND, OR, NOT (also `-word`, `+word`),
/// parentheses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextQuery {
    /// Satisfied if all parts are.
    All(Vec<Self>),
    /// Satisfied if a part is.
    Any(Vec<Self>),
    /// Satisfied if the part is not.
    Not(Box<Self>),
    /// A word or phrase in lower case, found as [`contains_term`] says.
    Term(String),
}

impl TextQuery {
    /// Parses a query. Words side by side are joined by AND, which binds closer than OR; keywords are in upper case.
    ///
    /// # Errors
    /// A message for the client, such as `unbalanced parenthesis in text query`.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut parser = Parser { words: Words::new(query), terms: 0 };
        let parsed = parser.any(0)?;
        match parser.words.next().transpose()? {
            None => Ok(parsed),
            Some(Word::Close) => Err(UNBALANCED.to_owned()),
            Some(word) => Err(format!("unexpected {} in text query", word.name())),
        }
    }

    /// True if a text that is given in lower case satisfies the query.
    pub fn matches(&self, folded: &str) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(folded)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(folded)),
            Self::Not(part) => !part.matches(folded),
            Self::Term(term) => contains_term(folded, term),
        }
    }

    /// A test that every text passes that satisfies the query; `None`: none is known. `column` is a storage name.
    pub fn probe(&self, column: &str) -> Option<Probe> {
        // Half of the depth is left to the predicate around it.
        self.probe_below(column, PROBE_DEPTH_MAX / 2)
    }

    fn probe_below(&self, column: &str, depth: usize) -> Option<Probe> {
        let depth = depth.checked_sub(1)?;
        match self {
            Self::All(parts) => {
                let mut probes: Vec<Probe> =
                    parts.iter().filter_map(|part| part.probe_below(column, depth)).collect();
                match probes.len() {
                    0 | 1 => probes.pop(),
                    _ => Some(Probe::All(probes)),
                }
            }
            Self::Any(parts) => {
                let probes: Option<Vec<Probe>> =
                    parts.iter().map(|part| part.probe_below(column, depth)).collect();
                probes.map(Probe::Any)
            }
            // A part is tested by a superset, whose complement says nothing.
            Self::Not(_) => None,
            Self::Term(term) => Some(Probe::Column {
                column: column.to_owned(),
                test: ColumnTest::Terms { terms: vec![term.clone()], folded: true },
            }),
        }
    }
}

const UNBALANCED: &str = "unbalanced parenthesis in text query";

/// A lexical unit of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    And,
    Or,
    Not,
    Open,
    Close,
    /// `-` before a word, phrase or parenthesis.
    Minus,
    /// `+` before one of them.
    Plus,
    Term(String),
}

impl Word {
    fn name(&self) -> String {
        match self {
            Self::And => "AND".to_owned(),
            Self::Or => "OR".to_owned(),
            Self::Not => "NOT".to_owned(),
            Self::Open => "\"(\"".to_owned(),
            Self::Close => "\")\"".to_owned(),
            Self::Minus => "\"-\"".to_owned(),
            Self::Plus => "\"+\"".to_owned(),
            Self::Term(term) => format!("\"{term}\""),
        }
    }
}

/// The lexical units of a query, in their order.
struct Words<'q> {
    query: &'q str,
    characters: Peekable<CharIndices<'q>>,
}

impl<'q> Words<'q> {
    fn new(query: &'q str) -> Self {
        Self { query, characters: query.char_indices().peekable() }
    }

    /// The term in quotes whose first quote has been read.
    fn phrase(&mut self, start: usize) -> Result<Word, String> {
        let end = self.characters.find(|(_, c)| *c == '"').map(|(end, _)| end);
        let end = end.ok_or_else(|| "unterminated phrase in text query".to_owned())?;
        match self.query[start..end].trim() {
            "" => Err("empty phrase in text query".to_owned()),
            phrase => Ok(Word::Term(phrase.to_lowercase())),
        }
    }

    /// The word that begins at `start`, of which `end` bytes have been read.
    fn word(&mut self, start: usize, mut end: usize) -> Word {
        let continues = |(_, c): &(usize, char)| !c.is_whitespace() && !"()\"".contains(*c);
        while let Some((position, c)) = self.characters.next_if(continues) {
            end = position + c.len_utf8();
        }
        match &self.query[start..end] {
            "AND" => Word::And,
            "OR" => Word::Or,
            "NOT" => Word::Not,
            word => Word::Term(word.to_lowercase()),
        }
    }
}

impl Iterator for Words<'_> {
    type Item = Result<Word, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.characters.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        let (position, c) = self.characters.next()?;
        let has_operand =
            self.characters.peek().is_some_and(|(_, c)| !c.is_whitespace() && *c != ')');
        Some(Ok(match c {
            '(' => Word::Open,
            ')' => Word::Close,
            '"' => return Some(self.phrase(position + 1)),
            '-' if has_operand => Word::Minus,
            '+' if has_operand => Word::Plus,
            c => self.word(position, position + c.len_utf8()),
        }))
    }
}

/// A parser by recursive descent; `depth` is the number of parentheses and negations around.
struct Parser<'q> {
    words: Words<'q>,
    terms: usize,
}

impl Parser<'_> {
    /// The next unit, which stays.
    fn peek(&self) -> Result<Option<Word>, String> {
        let mut words =
            Words { query: self.words.query, characters: self.words.characters.clone() };
        words.next().transpose()
    }

    /// Takes the next unit if it is this one.
    fn takes(&mut self, word: &Word) -> Result<bool, String> {
        let is_next = self.peek()?.as_ref() == Some(word);
        if is_next {
            self.words.next();
        }
        Ok(is_next)
    }

    fn any(&mut self, depth: usize) -> Result<TextQuery, String> {
        let mut parts = vec![self.all(depth)?];
        while self.takes(&Word::Or)? {
            parts.push(self.all(depth)?);
        }
        Ok(joined(parts, TextQuery::Any))
    }

    fn all(&mut self, depth: usize) -> Result<TextQuery, String> {
        let mut parts = vec![self.part(depth)?];
        loop {
            match self.peek()? {
                None | Some(Word::Or | Word::Close) => return Ok(joined(parts, TextQuery::All)),
                Some(Word::And) => {
                    self.words.next();
                }
                Some(_) => {}
            }
            parts.push(self.part(depth)?);
        }
    }

    fn part(&mut self, depth: usize) -> Result<TextQuery, String> {
        if depth >= DEPTH_MAX {
            return Err(format!("text query is nested deeper than {DEPTH_MAX} levels"));
        }
        match self.words.next().transpose()? {
            None if self.terms == 0 => Err("empty text query".to_owned()),
            None => Err("text query ends where a term is expected".to_owned()),
            Some(Word::Open) => {
                let inner = self.any(depth + 1)?;
                if self.takes(&Word::Close)? { Ok(inner) } else { Err(UNBALANCED.to_owned()) }
            }
            Some(Word::Not | Word::Minus) => Ok(TextQuery::Not(Box::new(self.part(depth + 1)?))),
            Some(Word::Plus) => self.part(depth + 1),
            Some(Word::Term(term)) => {
                self.terms += 1;
                if self.terms > TERMS_MAX {
                    return Err(format!("text query has more than {TERMS_MAX} terms"));
                }
                Ok(TextQuery::Term(term))
            }
            Some(Word::Close) => Err(UNBALANCED.to_owned()),
            Some(word @ (Word::And | Word::Or)) => {
                Err(format!("unexpected {} in text query", word.name()))
            }
        }
    }
}

/// Several parts under a connective, a single one as it is.
fn joined(mut parts: Vec<TextQuery>, connective: fn(Vec<TextQuery>) -> TextQuery) -> TextQuery {
    match parts.len() {
        1 => parts.remove(0),
        _ => connective(parts),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const ANALYZERS: [Analyzer; 2] = [Analyzer::English, Analyzer::Chinese];

    fn all_tokens(text: &str, analyzer: Analyzer, fold: bool) -> BTreeSet<String> {
        let mut list = BTreeSet::new();
        tokens(text, analyzer, fold, &mut |token| {
            list.insert(token.to_owned());
        });
        list
    }

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn words_end_where_a_character_is_no_letter_and_no_digit() {
        let text = "Disk_full: error-prone 3.14, can't (v2)";
        let words = ["Disk", "full", "error", "prone", "3", "14", "can", "t", "v2"];
        assert_eq!(all_tokens(text, Analyzer::English, false), set(&words));
        let lower = ["disk", "full", "error", "prone", "3", "14", "can", "t", "v2"];
        assert_eq!(all_tokens(text, Analyzer::English, true), set(&lower));
        assert_eq!(all_tokens("", Analyzer::Chinese, true), set(&[]));
        assert_eq!(all_tokens(" -- ", Analyzer::Chinese, true), set(&[]));
    }

    #[test]
    fn dense_scripts_have_characters_and_pairs() {
        let text = "中国人 says 你, カナ";
        let expected = ["中", "国", "人", "中国", "国人", "says", "你", "カ", "ナ", "カナ"];
        assert_eq!(all_tokens(text, Analyzer::Chinese, false), set(&expected));
        assert_eq!(all_tokens(text, Analyzer::English, false), set(&["says"]));
        assert_eq!(needed_tokens("国", Analyzer::Chinese, true), Some(vec!["国".to_owned()]));
        let pairs = needed_tokens("中国人x", Analyzer::Chinese, false).unwrap();
        assert_eq!(pairs, ["x", "中国", "国人"]);
        assert_eq!(needed_tokens("中国人", Analyzer::English, false), None);
        assert_eq!(needed_tokens("!!", Analyzer::Chinese, false), None);
    }

    #[test]
    fn a_term_is_found_as_a_whole_only() {
        for (text, term, expected) in [
            ("error-prone", "error", true),
            ("an error", "error", true),
            ("error", "error", true),
            ("errors", "error", false),
            ("error123", "error", false),
            ("terror", "error", false),
            ("Error", "error", false),
            ("a system failure!", "system failure", true),
            ("a system-failure!", "system failure", false),
            ("system  failure", "system failure", false),
            ("x/y.z", "/y", true),
            ("xa-a-a", "a-a", true),
            ("errors error", "error", true),
            ("我们是中国人", "中国", true),
            ("中国v2", "v2", true),
            ("abc", "", false),
            ("", "", false),
            ("", "a", false),
            ("ééé é", "é", true),
        ] {
            assert_eq!(contains_term(text, term), expected, "{term} in {text}");
            assert_eq!(TermFinder::new(term).is_in(text), expected, "{term} in {text}");
        }
    }

    #[test]
    fn queries_are_parsed() {
        let term = |word: &str| TextQuery::Term(word.to_owned());
        let not = |query: TextQuery| TextQuery::Not(Box::new(query));
        let conjunction = TextQuery::All;
        let disjunction = TextQuery::Any;
        for (query, expected) in [
            ("Error", term("error")),
            ("disk full", conjunction(vec![term("disk"), term("full")])),
            ("disk AND full", conjunction(vec![term("disk"), term("full")])),
            ("a b OR c", disjunction(vec![conjunction(vec![term("a"), term("b")]), term("c")])),
            ("a (b OR c)", conjunction(vec![term("a"), disjunction(vec![term("b"), term("c")])])),
            ("a -b +c", conjunction(vec![term("a"), not(term("b")), term("c")])),
            ("NOT a OR b", disjunction(vec![not(term("a")), term("b")])),
            (
                "a AND NOT (b c)",
                conjunction(vec![term("a"), not(conjunction(vec![term("b"), term("c")]))]),
            ),
            ("\"Disk full\" now", conjunction(vec![term("disk full"), term("now")])),
            ("-\"a b\"", not(term("a b"))),
            ("error-prone", term("error-prone")),
            ("and or", conjunction(vec![term("and"), term("or")])),
            ("a - b", conjunction(vec![term("a"), term("-"), term("b")])),
            ("(((a)))", term("a")),
        ] {
            assert_eq!(TextQuery::parse(query).as_ref(), Ok(&expected), "{query}");
        }
    }

    #[test]
    fn wrong_queries_are_named() {
        let deep = format!("{}a{}", "(".repeat(65), ")".repeat(65));
        let long = "a ".repeat(1_001);
        for (query, message) in [
            ("", "empty text query"),
            ("(a", UNBALANCED),
            ("a)", UNBALANCED),
            ("a )b", UNBALANCED),
            ("a OR", "text query ends where a term is expected"),
            ("AND a", "unexpected AND in text query"),
            ("a OR OR b", "unexpected OR in text query"),
            ("\"a", "unterminated phrase in text query"),
            ("a \" \"", "empty phrase in text query"),
            (deep.as_str(), "text query is nested deeper than 64 levels"),
            (long.as_str(), "text query has more than 1000 terms"),
        ] {
            assert_eq!(TextQuery::parse(query), Err(message.to_owned()), "{query}");
        }
    }

    #[test]
    fn probes_leave_out_what_a_negation_would_exclude() {
        let column = |terms: &str| Probe::Column {
            column: "c".to_owned(),
            test: ColumnTest::Terms { terms: vec![terms.to_owned()], folded: true },
        };
        let probe = |query: &str| TextQuery::parse(query).unwrap().probe("c");
        assert_eq!(probe("a"), Some(column("a")));
        assert_eq!(probe("a -b"), Some(column("a")));
        assert_eq!(probe("a b"), Some(Probe::All(vec![column("a"), column("b")])));
        assert_eq!(probe("a OR b"), Some(Probe::Any(vec![column("a"), column("b")])));
        assert_eq!(probe("a OR -b"), None);
        assert_eq!(probe("-a"), None);
        let deep = (0..20).fold("a".to_owned(), |query, _| format!("(a OR (b {query}))"));
        let depth = depth_of(&probe(&deep).unwrap());
        assert!((2..=PROBE_DEPTH_MAX / 2).contains(&depth), "{depth} levels in a message");
    }

    fn depth_of(probe: &Probe) -> usize {
        match probe {
            Probe::All(parts) | Probe::Any(parts) => {
                1 + parts.iter().map(depth_of).max().unwrap_or_default()
            }
            Probe::Column { .. } => 1,
        }
    }

    /// Texts in which words, their ends and special cases of folding are frequent.
    fn text() -> impl Strategy<Value = String> {
        let pieces = [
            "error", "Error", "ERR", "s", "1", " ", "-", "'", ".", "_", "中", "国", "カ", "Σ", "σ",
            "ς", "ΑΣ", "İ", "i", "ẞ", "ß", "ﬁ", "Ǆ", "é", "e\u{301}", "Ⓐ", "\u{2160}",
        ];
        vec(select(pieces.to_vec()), 0..12).prop_map(|pieces| pieces.concat())
    }

    fn passes(probe: &Probe, text: &str) -> bool {
        match probe {
            Probe::All(parts) => parts.iter().all(|part| passes(part, text)),
            Probe::Any(parts) => parts.iter().any(|part| passes(part, text)),
            Probe::Column { test: ColumnTest::Terms { terms, folded }, .. } => {
                let text = if *folded { text.to_lowercase() } else { text.to_owned() };
                terms.iter().all(|term| contains_term(&text, term))
            }
            Probe::Column { .. } => panic!("a text query has terms only"),
        }
    }

    fn query() -> impl Strategy<Value = TextQuery> {
        let term = text().prop_map(|term| TextQuery::Term(term.to_lowercase()));
        term.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                vec(inner.clone(), 1..4).prop_map(TextQuery::All),
                vec(inner.clone(), 1..4).prop_map(TextQuery::Any),
                inner.prop_map(|part| TextQuery::Not(Box::new(part))),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_text_of_ascii_is_cut_as_any_other(text in "[ -~\\n]{0,30}") {
            let (mut words, mut parts) = (Vec::new(), Vec::new());
            ascii_words(&text, &mut |word| words.push(word.to_owned()));
            cut(&text, |part| match part {
                Part::Word(part) | Part::Dense(part) => parts.push(part.to_owned()),
            });
            prop_assert_eq!(words, parts);
        }

        #[test]
        fn a_text_that_contains_a_term_has_its_needed_tokens(
            before in text(), term in text(), after in text(),
        ) {
            let text = format!("{before}{term}{after}");
            let lower = text.to_lowercase();
            for analyzer in ANALYZERS {
                for fold in [false, true] {
                    let needed = needed_tokens(&term, analyzer, fold).unwrap_or_default();
                    let has = |text: &str| {
                        let found = all_tokens(text, analyzer, fold);
                        needed.iter().all(|token| found.contains(token))
                    };
                    prop_assert!(!contains_term(&text, &term) || has(&text), "{text:?} {term:?}");
                    // The index folds the text itself, the function its lower case.
                    let agrees = !fold || !contains_term(&lower, &term) || has(&text);
                    prop_assert!(agrees, "{text:?} {term:?}");
                }
            }
        }

        #[test]
        fn folding_twice_changes_nothing(text in text()) {
            let once = folded(&text).into_owned();
            let lower = text.to_lowercase();
            prop_assert_eq!(folded(&once), once.as_str());
            prop_assert_eq!(folded(&lower), once.as_str());
        }

        #[test]
        fn a_text_that_satisfies_a_query_passes_its_probe(query in query(), text in text()) {
            if let Some(probe) = query.probe("c") {
                let satisfied = query.matches(&text.to_lowercase());
                prop_assert!(!satisfied || passes(&probe, &text));
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(query in "[aA \"()+-]{0,12}|\\PC{0,20}") {
            if let Ok(parsed) = TextQuery::parse(&query) {
                parsed.matches("a");
                parsed.probe("c");
            }
        }
    }
}
