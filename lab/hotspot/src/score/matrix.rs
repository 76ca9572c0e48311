//! The confusion matrix of a scoreboard: which class was expected, and which one was named.
//!
//! Invariant: a stream with several right classes counts as expected what was named, if that is one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use partita_load::Class;

/// A verdict beside the classes that would be right; any is right where there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Right classes, the usual one first.
    pub expected: Vec<Class>,
    /// Class that was named; [`Class::Unknown`] for none.
    pub verdict: Class,
}

impl Judged {
    /// True if the verdict is right; `None` where any is.
    #[must_use]
    pub fn is_right(&self) -> Option<bool> {
        (!self.expected.is_empty()).then(|| self.expected.contains(&self.verdict))
    }

    fn counted_as(&self) -> Option<Class> {
        match self.is_right()? {
            true => Some(self.verdict),
            false => self.expected.first().copied(),
        }
    }
}

/// The matrix in Markdown, with a line that counts the wrong ones.
#[must_use]
pub fn confusion(judged: &[Judged]) -> String {
    let mut counts: BTreeMap<(Class, Class), usize> = BTreeMap::new();
    for item in judged {
        if let Some(expected) = item.counted_as() {
            *counts.entry((expected, item.verdict)).or_default() += 1;
        }
    }
    let columns: BTreeSet<Class> = counts.keys().map(|(_, verdict)| *verdict).collect();
    let rows: BTreeSet<Class> = counts.keys().map(|(expected, _)| *expected).collect();
    let mut text = String::from("| expected \\ named |");
    // Writing to a string does not fail.
    for verdict in &columns {
        let _ = write!(text, " {verdict} |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(columns.len()));
    for expected in &rows {
        let _ = write!(text, "\n| {expected} |");
        for verdict in &columns {
            match counts.get(&(*expected, *verdict)) {
                Some(count) => {
                    let _ = write!(text, " {count} |");
                }
                None => text.push_str("  |"),
            }
        }
    }
    let right = judged.iter().filter(|item| item.is_right() == Some(true)).count();
    let wrong = judged.iter().filter(|item| item.is_right() == Some(false)).count();
    let _ = write!(text, "\n\n{wrong} of {} classes are wrong.\n", right + wrong);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(expected: &[Class], verdict: Class) -> Judged {
        Judged { expected: expected.to_vec(), verdict }
    }

    #[test]
    fn what_is_named_is_counted_under_what_was_expected() {
        let cases = [
            judged(&[Class::HotKey], Class::HotKey),
            judged(&[Class::HotKey], Class::Sweep),
            judged(&[Class::StaticRange, Class::MultiTail], Class::MultiTail),
            // Any answer is right.
            judged(&[], Class::Unsplittable),
        ];
        let text = confusion(&cases);
        assert!(
            text.starts_with("| expected \\ named | MULTI_TAIL | HOT_KEY | SWEEP |\n"),
            "{text}"
        );
        assert!(text.contains("\n| HOT_KEY |  | 1 | 1 |"), "{text}");
        assert!(text.contains("\n| MULTI_TAIL | 1 |  |  |"), "{text}");
        assert!(text.ends_with("\n1 of 3 classes are wrong.\n"), "{text}");
        assert!(!text.contains("UNSPLITTABLE"), "{text}");
    }
}
