//! Predicates of `/api/v2/delete`: `_measurement="m" AND room="kitchen"`.
//!
//! Terms are equations joined by AND, as in InfluxDB; names and values may be in double or single quotes, and a backslash
//! escapes the next character there.

/// Maximum terms of a predicate.
const TERMS_MAX: usize = 64;
/// Name that stands for the table.
const MEASUREMENT: &str = "_measurement";

/// The rows that a predicate names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DeletePredicate {
    /// Table; `None`: each one.
    pub(super) measurement: Option<String>,
    /// Tags with their values.
    pub(super) tags: Vec<(String, String)>,
}

impl DeletePredicate {
    /// Parses a predicate; an empty one names all rows.
    ///
    /// # Errors
    /// A message when it has another form, or names a field.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut predicate = Self::default();
        let mut rest = text.trim();
        if rest.is_empty() {
            return Ok(predicate);
        }
        for _ in 0..TERMS_MAX {
            let (name, tail) = word(rest)?;
            let tail = tail.trim_start().strip_prefix('=').ok_or_else(|| {
                format!("the predicate must be terms like tag=\"value\" joined by AND, not \"{name}\" alone")
            })?;
            let (value, tail) = word(tail.trim_start())?;
            match name.as_str() {
                MEASUREMENT
                    if predicate.measurement.as_ref().is_some_and(|name| *name != value) =>
                {
                    return Err("_measurement is given twice".to_owned());
                }
                MEASUREMENT => predicate.measurement = Some(value),
                "_field" | "_value" | "_time" => {
                    return Err(format!("delete by {name} is not supported"));
                }
                _ => predicate.tags.push((name, value)),
            }
            rest = tail.trim_start();
            if rest.is_empty() {
                return Ok(predicate);
            }
            rest = joined(rest)?.trim_start();
        }
        Err(format!("the predicate has more than {TERMS_MAX} terms"))
    }
}

/// The text after AND.
fn joined(text: &str) -> Result<&str, String> {
    let (word, rest) = text.split_at_checked(3).unwrap_or((text, ""));
    match word.eq_ignore_ascii_case("and") && rest.starts_with(char::is_whitespace) {
        true => Ok(rest),
        false => Err("terms of the predicate must be joined by AND".to_owned()),
    }
}

/// The name or value at the start of a text, and the rest.
fn word(text: &str) -> Result<(String, &str), String> {
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        let end = text.find(|c: char| c.is_whitespace() || "=!<>~()\"'".contains(c));
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        return match word.is_empty() {
            true => Err("the predicate must be terms like tag=\"value\" joined by AND".to_owned()),
            false => Ok((word.to_owned(), rest)),
        };
    };
    let mut word = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((position, character)) = characters.next() {
        match character {
            '\\' => word.extend(characters.next().map(|(_, escaped)| escaped)),
            _ if character == quote => return Ok((word, &text[position + 1..])),
            _ => word.push(character),
        }
    }
    Err("a quoted text of the predicate has no end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_equations_joined_by_and() {
        let text = r#" _measurement="a b" AND room='k"1' and "floor" = 2 "#;
        let predicate = DeletePredicate::parse(text).unwrap();
        assert_eq!(predicate.measurement.as_deref(), Some("a b"));
        let tags = [("room", "k\"1"), ("floor", "2")];
        assert_eq!(predicate.tags, tags.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(DeletePredicate::parse("").unwrap(), DeletePredicate::default());
        let escaped = DeletePredicate::parse(r#"a="x\"y\\""#).unwrap();
        assert_eq!(escaped.tags, [("a".to_owned(), "x\"y\\".to_owned())]);
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "a",
            "a=",
            "=1",
            "a=\"x",
            "a=1 OR b=2",
            "a=1 b=2",
            "a=1 AND",
            "a!=1",
            "(a=1)",
            "_field=\"v\"",
            "_measurement=a AND _measurement=b",
            "a=1 éé",
        ] {
            assert!(DeletePredicate::parse(text).is_err(), "{text}");
        }
    }
}
