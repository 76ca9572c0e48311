//! Turns named parameters of a statement (`$host`) into positional ones.
//!
//! InfluxDB 3's clients send `params` as a JSON object. Values never become part of the text: names in the text are
//! only replaced by numbers, and only outside of strings, quoted names and comments.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use partita_frontend::{Output, Session, SqlError};
use serde_json::Value;

/// Runs a statement with named parameters.
///
/// # Errors
/// Those of the statement; also when a parameter is missing, when one is not used, when a value is an array or an
/// object, or when the text has several statements.
pub(crate) async fn run_with(
    session: &Arc<Session>,
    sql: &str,
    parameters: &BTreeMap<String, Value>,
) -> Result<Output, SqlError> {
    let (sql, names) = positional(sql, parameters)?;
    let mut statements = session.parse(&sql).await?;
    let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
        return Err(SqlError::syntax("parameters require exactly one statement"));
    };
    let values =
        names.iter().map(|name| scalar(name, &parameters[name])).collect::<Result<Vec<_>, _>>()?;
    // Numbers have their own type; the statement determines the type of a text, which may be meant as a timestamp.
    let types: Vec<_> = values
        .iter()
        .map(|value| match value {
            ScalarValue::Utf8View(_) | ScalarValue::Null => None,
            number => Some(number.data_type()),
        })
        .collect();
    let prepared = match session.prepare(statement.clone(), &types).await {
        Ok(prepared) => prepared,
        // A number may be a timestamp's ticks: then only the statement knows the type.
        Err(error) => match session.prepare(statement, &vec![None; values.len()]).await {
            Ok(prepared) => prepared,
            Err(_) => return Err(error),
        },
    };
    let values = values
        .into_iter()
        .zip(&prepared.parameter_types)
        .map(|(value, target)| match target {
            DataType::Null => Ok(value),
            _ => Ok(value.cast_to(target)?),
        })
        .collect::<Result<Vec<_>, SqlError>>()?;
    session.run_prepared(&prepared, values).await
}

/// A JSON value as a parameter.
fn scalar(name: &str, value: &Value) -> Result<ScalarValue, SqlError> {
    Ok(match value {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Value::String(text) => ScalarValue::Utf8View(Some(text.clone())),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => ScalarValue::Int64(Some(value)),
            (_, Some(value), _) => ScalarValue::UInt64(Some(value)),
            (.., value) => ScalarValue::Float64(value),
        },
        Value::Array(_) | Value::Object(_) => {
            return Err(SqlError::new(
                "22023",
                format!("parameter ${name} must be a string, a number, true, false or null"),
            ));
        }
    })
}

/// Replaces names by numbers. Returns the text, and the names in the order of their numbers.
fn positional(
    sql: &str,
    parameters: &BTreeMap<String, Value>,
) -> Result<(String, Vec<String>), SqlError> {
    let mut text = String::with_capacity(sql.len());
    let mut names: Vec<String> = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        // Strings, comments and words are copied unchanged.
        let verbatim = skipped(rest);
        if verbatim > 0 {
            text.push_str(&rest[..verbatim]);
            rest = &rest[verbatim..];
            continue;
        }
        // A dollar sign without a name is copied too.
        let name_len = if first == '$' { name_len(&rest[1..]) } else { 0 };
        if name_len == 0 {
            text.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        // Each name has one number, wherever it occurs.
        let name = &rest[1..=name_len];
        if !parameters.contains_key(name) {
            return Err(SqlError::new("42P02", format!("there is no parameter ${name}")));
        }
        let number = match names.iter().position(|known_name| known_name == name) {
            Some(index) => index + 1,
            None => {
                names.push(name.to_owned());
                names.len()
            }
        };
        text.push_str(&format!("${number}"));
        rest = &rest[1 + name_len..];
    }
    // A parameter without a use is probably a typing error.
    match parameters.keys().find(|name| !names.contains(name)) {
        Some(name) => Err(SqlError::new(
            "22023",
            format!("parameter \"{name}\" is not used in the statement"),
        )),
        None => Ok((text, names)),
    }
}

fn name_len(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

/// The length of the string, quoted name, comment or word at the start of a text; 0 if there is none. One without an
/// end takes the rest, and the parser reports it.
fn skipped(text: &str) -> usize {
    let quoted = |quote: char| {
        // A doubled quote ends one string and begins the next, with the same effect here.
        text[1..].find(quote).map_or(text.len(), |end| end + 2)
    };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some('\''), _) => quoted('\''),
        (Some('"'), _) => quoted('"'),
        (Some('`'), _) => quoted('`'),
        (Some('e' | 'E'), Some('\'')) => escaped_string(text),
        (Some('-'), Some('-')) => text.find('\n').unwrap_or(text.len()),
        (Some('/'), Some('*')) => text.find("*/").map_or(text.len(), |end| end + 2),
        // A word is copied as a whole, so that a letter e at its end does not begin a string.
        (Some(first), _) if first.is_alphanumeric() || first == '_' => {
            let end = text
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
                .unwrap_or(text.len());
            end.max(first.len_utf8())
        }
        _ => 0,
    }
}

/// The length of `E'...'`, in which a backslash escapes the next character.
fn escaped_string(text: &str) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(2) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters(names: &[&str]) -> BTreeMap<String, Value> {
        names.iter().map(|name| ((*name).to_owned(), json!(1))).collect()
    }

    #[test]
    fn names_become_numbers_outside_of_strings_and_comments() {
        let sql = "SELECT '$a', \"$b\", $b, E'\\'$a', $a, $b -- $a\n/* $b */ FROM te WHERE x$a = 'it''s $a'";
        let (text, names) = positional(sql, &parameters(&["a", "b"])).unwrap();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(
            text,
            "SELECT '$a', \"$b\", $1, E'\\'$a', $2, $1 -- $a\n/* $b */ FROM te WHERE x$a = 'it''s $a'"
        );
    }

    #[test]
    fn parameters_must_match_the_text() {
        assert_eq!(positional("SELECT $x", &parameters(&[])).unwrap_err().sqlstate, "42P02");
        assert!(positional("SELECT 1", &parameters(&["x"])).unwrap_err().message.contains("\"x\""));
        assert!(scalar("x", &json!([1])).is_err());
        assert_eq!(scalar("x", &json!(1.5)).unwrap(), ScalarValue::Float64(Some(1.5)));
        assert_eq!(scalar("x", &json!(-1)).unwrap(), ScalarValue::Int64(Some(-1)));
    }

    #[test]
    fn unfinished_strings_do_not_run_over() {
        for text in ["'", "\"x", "E'\\", "--", "/*", "$", "é$", "e"] {
            positional(text, &parameters(&[])).unwrap();
        }
    }
}
