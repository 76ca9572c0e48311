//! Texts that look like something: ids, times, dates, levels of logs, reserved words.

use partita_sql::identifier::quote;

/// Words that PostgreSQL does not take as a column's name without quotes.
const RESERVED: [&str; 99] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "binary",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "not",
    "notnull",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "placing",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "session_user",
    "similar",
    "some",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "verbose",
    "when",
    "where",
];
/// More of them, which come last in the alphabet.
const RESERVED_LAST: [&str; 2] = ["window", "with"];
/// Words that begin the message of a log.
const LEVELS: [&str; 4] = ["ERR", "WARN", "INFO", "DEBUG"];

/// True if a name is a word that must be quoted: one of PostgreSQL's reserved words, or one that our parser does not
/// take as a column.
pub(crate) fn is_reserved(name: &str) -> bool {
    let word = name.to_ascii_lowercase();
    let of_postgres = || RESERVED.binary_search(&word.as_str()).is_ok();
    if of_postgres() || RESERVED_LAST.contains(&word.as_str()) {
        return true;
    }
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_plain
        && quote(&word) != word
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && partita_sql::parse(&format!("SELECT {word} FROM t")).is_err()
}

/// True for the text of a UUID.
pub(crate) fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths = [8, 4, 4, 4, 12];
    groups.len() == lengths.len()
        && groups.iter().zip(lengths).all(|(group, length)| {
            group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

/// True for a text that begins with a date: `2021-03-05`, `2021/03/05` or `20210305`.
pub(crate) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let number = |begin: usize, end: usize| -> Option<u32> {
        text.get(begin..end)
            .filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?
            .parse()
            .ok()
    };
    let is_of_calendar = |year: Option<u32>, month: Option<u32>, day: Option<u32>| {
        year.is_some_and(|year| (1_900..2_200).contains(&year))
            && month.is_some_and(|month| (1..=12).contains(&month))
            && day.is_some_and(|day| (1..=31).contains(&day))
    };
    match bytes.get(4) {
        Some(b'-' | b'/' | b'_') if bytes.get(7) == bytes.get(4) => {
            is_of_calendar(number(0, 4), number(5, 7), number(8, 10))
        }
        _ => bytes.len() == 8 && is_of_calendar(number(0, 4), number(4, 6), number(6, 8)),
    }
}

/// True for a time in ISO 8601's form, with a date.
pub(crate) fn is_iso_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    is_date(text)
        && matches!(bytes.get(10), Some(b'T' | b' '))
        && bytes.get(13) == Some(&b':')
        && text.get(11..13).is_some_and(|hour| hour.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for a text of three words or more.
pub(crate) fn is_sentence(text: &str) -> bool {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).nth(2).is_some()
}

/// True for a text that begins with the level of a log's message.
pub(crate) fn begins_with_level(text: &str) -> bool {
    let text = text.trim_start_matches('[');
    LEVELS
        .iter()
        .any(|level| text.get(..level.len()).is_some_and(|word| word.eq_ignore_ascii_case(level)))
}

/// True for a text that looks like a JSON object or list.
pub(crate) fn is_json(text: &str) -> bool {
    let text = text.trim();
    // Sampled texts are cut, so the end may be missing.
    text.starts_with("{\"") || text.starts_with("[{") || text.starts_with("[\"")
}

/// Share of the sampled texts that have a property; `None` of fewer than `least`.
pub(crate) fn share_of(sample: &[String], least: f64, test: impl Fn(&str) -> bool) -> Option<f64> {
    if sample.is_empty() || (sample.len() as f64) < least {
        return None;
    }
    let matching = sample.iter().filter(|text| test(text)).count();
    Some(matching as f64 / sample.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_words_is_sorted() {
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn reserved_words_are_found_in_any_case() {
        assert!(is_reserved("select") && is_reserved("User") && is_reserved("WITH"));
        assert!(!is_reserved("host") && !is_reserved("cpu_util") && !is_reserved("größe"));
    }

    #[test]
    fn texts_are_told_apart() {
        assert!(is_uuid("25b6f398-41cf-4965-aa19-e1c63a88a7a9") && !is_uuid("25b6f398-41cf"));
        assert!(is_date("2021-03-05") && is_date("20210305") && is_date("2021/03/05"));
        assert!(!is_date("2021-13-05") && !is_date("12345678") && !is_date("2021-03_05"));
        assert!(is_iso_time("2021-03-05T12:04:00Z") && !is_iso_time("2021-03-05"));
        assert!(is_sentence("disk is full") && !is_sentence("us-west 2") && !is_sentence("1 2 3"));
        assert!(begins_with_level("ERROR: no space") && begins_with_level("[info] up"));
        assert!(!begins_with_level("web"));
        assert!(is_json("{\"a\":1") && !is_json("a"));
        let sample = ["a".to_owned(), "2021-03-05".to_owned()];
        assert_eq!(share_of(&sample, 2.0, is_date), Some(0.5));
        assert_eq!(share_of(&sample, 3.0, is_date), None);
    }
}
