//! Names in SQL text: folding and quoting.
//!
//! Invariant: the parser reads the output of [`quote`] back as the same name, also when the name is a keyword, empty,
//! or full of quotes.

use std::borrow::Cow;

/// Words with a meaning where a name may stand, in our grammar or in DataFusion's; a column with such a name is quoted
/// when it is printed. A word too many costs two quotes, a word too few a round trip.
const QUOTED_WORDS: &[&str] = &[
    "all",
    "alter",
    "analyze",
    "and",
    "anti",
    "any",
    "array",
    "as",
    "asc",
    "asof",
    "between",
    "both",
    "by",
    "case",
    "cast",
    "check",
    "cluster",
    "collate",
    "column",
    "comment",
    "connect",
    "constraint",
    "create",
    "cross",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "date",
    "default",
    "delete",
    "desc",
    "distinct",
    "distribute",
    "drop",
    "else",
    "end",
    "engine",
    "except",
    "exclude",
    "exists",
    "explain",
    "extract",
    "false",
    "fetch",
    "filter",
    "final",
    "for",
    "foreign",
    "from",
    "full",
    "fulltext",
    "generated",
    "global",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "index",
    "inner",
    "insert",
    "intersect",
    "interval",
    "into",
    "inverted",
    "is",
    "isnull",
    "join",
    "key",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "match_condition",
    "match_recognize",
    "minus",
    "natural",
    "not",
    "notnull",
    "null",
    "nulls",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "partition",
    "pivot",
    "position",
    "prewhere",
    "primary",
    "qualify",
    "references",
    "returning",
    "right",
    "row",
    "sample",
    "select",
    "semi",
    "session_user",
    "set",
    "settings",
    "similar",
    "skipping",
    "sort",
    "split",
    "start",
    "struct",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "top",
    "trailing",
    "trim",
    "true",
    "union",
    "unique",
    "unnest",
    "unpivot",
    "update",
    "user",
    "using",
    "values",
    "view",
    "when",
    "where",
    "window",
    "with",
];

/// A name, quoted if necessary, as the parser reads it back.
pub fn quote(name: &str) -> Cow<'_, str> {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && QUOTED_WORDS.binary_search(&name).is_err();
    if plain {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")))
    }
}

/// Names separated by commas, as in lists of columns.
pub fn quote_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(quote).collect();
    names.join(", ")
}

/// A string literal, as the parser reads it back.
pub fn quote_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The name that an unquoted identifier denotes: folded to lower case, as in PostgreSQL.
pub fn fold(name: &str) -> String {
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_words_is_sorted() {
        assert!(QUOTED_WORDS.is_sorted());
    }

    #[test]
    fn only_names_that_need_it_are_quoted() {
        assert_eq!(quote("cpu_util0"), "cpu_util0");
        assert_eq!(quote("_x"), "_x");
        assert_eq!(quote("Cpu"), "\"Cpu\"");
        assert_eq!(quote("select"), "\"select\"");
        assert_eq!(quote("0x"), "\"0x\"");
        assert_eq!(quote("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote("über"), "\"über\"");
        assert_eq!(quote("tag@1-23"), "\"tag@1-23\"");
        assert_eq!(quote(""), "\"\"");
    }
}
