//! Checks texts: the length of `VARCHAR(n)` and `CHAR(n)`, and the grammar of JSON.
//!
//! As in PostgreSQL, a text that is too long is refused, but trailing blanks beyond the length are cut. Values of
//! CHAR(n) are stored without trailing blanks, since these do not distinguish values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use partita_proto::schema::{Column, TextLength};
use partita_worker::json::stored;

use crate::error::SqlError;

/// SQLSTATE of a text that is too long for its type.
const STRING_DATA_RIGHT_TRUNCATION: &str = "22001";

/// Texts as values of a column.
///
/// # Errors
/// Fails if a text has more characters than the column allows, or is no JSON.
pub(super) fn fitting(texts: ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    if let Some(json) = column.json {
        return Ok(stored(&texts, json)?);
    }
    let Some(length) = column.length else { return Ok(texts) };
    let Some(views) = texts.as_string_view_opt() else { return Ok(texts) };
    let mut is_same = true;
    for (row, text) in views.iter().enumerate() {
        let Some(text) = text else { continue };
        match cut(text, length) {
            Some(cut) => is_same &= cut.len() == text.len(),
            None => {
                let message = format!("value too long for type {}", length.postgres());
                let error = SqlError::new(STRING_DATA_RIGHT_TRUNCATION, message);
                let place = if views.len() > 1 {
                    format!("column \"{}\", in row {}", column.name, row + 1)
                } else {
                    format!("column \"{}\"", column.name)
                };
                return Err(error.with_detail(place));
            }
        }
    }
    if is_same {
        return Ok(texts);
    }
    let cut: StringViewArray =
        views.iter().map(|text| text.and_then(|text| cut(text, length))).collect();
    Ok(Arc::new(cut))
}

/// A text without excess blanks; `None` if it is still too long.
fn cut(text: &str, length: TextLength) -> Option<&str> {
    let text = if length.fixed { text.trim_end_matches(' ') } else { text };
    let most = usize::try_from(length.characters).unwrap_or(usize::MAX);
    // A character has at least one byte.
    if text.len() <= most {
        return Some(text);
    }
    let Some((end, _)) = text.char_indices().nth(most) else { return Some(text) };
    let (prefix, rest) = text.split_at(end);
    rest.bytes().all(|byte| byte == b' ').then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_blanks_only() {
        let of = |text, fixed| cut(text, TextLength { characters: 3, fixed });
        for (text, varying, fixed) in [
            ("", Some(""), Some("")),
            ("abc", Some("abc"), Some("abc")),
            ("ab ", Some("ab "), Some("ab")),
            ("abc  ", Some("abc"), Some("abc")),
            ("a    ", Some("a  "), Some("a")),
            ("äöü", Some("äöü"), Some("äöü")),
            ("äöü ", Some("äöü"), Some("äöü")),
            ("abcd", None, None),
            ("abc d", None, None),
            ("abc\t", None, None),
        ] {
            assert_eq!(of(text, false), varying, "varchar {text:?}");
            assert_eq!(of(text, true), fixed, "char {text:?}");
        }
    }
}
