//! `quote_ident`, `quote_literal`, `quote_nullable` and `format`, as in PostgreSQL.

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::plain::{Plain, Texts, is_text, text_of_text, texts};

/// Words that need quotes as the name of a column or a function: the reserved words of PostgreSQL 15, and those that
/// can only name types or columns.
const QUOTED_WORDS: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary bit \
    boolean both case cast char character check coalesce collate collation column concurrently constraint create cross \
    current_catalog current_date current_role current_schema current_time current_timestamp current_user dec decimal \
    default deferrable desc distinct do else end except exists extract false fetch float for foreign freeze from full \
    grant greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull \
    join lateral leading least left like limit localtime localtimestamp national natural nchar none normalize not notnull \
    null nullif numeric offset on only or order out outer overlaps overlay placing position precision primary real \
    references returning right row select session_user setof similar smallint some substring symmetric table tablesample \
    then time timestamp to trailing treat trim true union unique user using values varchar variadic verbose when where \
    window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize \
    xmltable ";

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&IDENT, &LITERAL, &NULLABLE, &FORMAT].into_iter().map(Plain::function)
}

fn one_text(types: &[DataType]) -> Option<Vec<DataType>> {
    // Values of any type are converted to text.
    (types.len() == 1).then(|| vec![DataType::Utf8])
}

fn gives_text(_: &[DataType]) -> DataType {
    DataType::Utf8
}

static IDENT: Plain = Plain {
    name: "quote_ident",
    takes: |types| crate::plain::all(types, 1, is_text, &DataType::Utf8),
    gives: gives_text,
    run: |arguments| {
        text_of_text("quote_ident", &arguments[0], |text| Ok(identifier(text).into_owned()))
    },
};

static LITERAL: Plain = Plain {
    name: "quote_literal",
    takes: one_text,
    gives: gives_text,
    run: |arguments| text_of_text("quote_literal", &arguments[0], |text| Ok(literal(text))),
};

static NULLABLE: Plain = Plain {
    name: "quote_nullable",
    takes: one_text,
    gives: gives_text,
    run: |arguments| {
        let values = texts(&arguments[0])?;
        let mut results = Texts::new("quote_nullable", values.len());
        for value in &values {
            results.push(Some(value.map_or_else(|| "NULL".to_owned(), literal)))?;
        }
        Ok(results.finish())
    },
};

static FORMAT: Plain = Plain {
    name: "format",
    takes: |types| match types {
        [format, ..] if is_text(format) => Some(vec![DataType::Utf8; types.len()]),
        _ => None,
    },
    gives: gives_text,
    run: formatted,
};

/// Quotes an identifier, unless it is a plain word in lower case.
pub(crate) fn identifier(name: &str) -> Cow<'_, str> {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
        && !QUOTED_WORDS.contains(&format!(" {name} "));
    if plain {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")))
    }
}

/// Quotes a text as a literal.
fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        return format!("E'{}'", quoted.replace('\\', "\\\\"));
    }
    format!("'{quoted}'")
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(INVALID_PARAMETER_VALUE, message)
}

fn formatted(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<StringArray> = arguments.iter().map(texts).collect::<Result<_>>()?;
    let Some((formats, values)) = columns.split_first() else {
        return Err(invalid("format() needs a format").into());
    };
    let mut results = Texts::new("format", formats.len());
    for row in 0..formats.len() {
        if formats.is_null(row) {
            results.push(None::<&str>)?;
            continue;
        }
        let value = |position: usize| {
            values.get(position).map(|column| column.is_valid(row).then(|| column.value(row)))
        };
        results.push(Some(one_formatted(formats.value(row), value)?))?;
    }
    Ok(results.finish())
}

/// Takes a number from a format; `None` where there is none.
fn take_number(rest: &mut &str) -> Result<Option<usize>, SqlError> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, tail) = rest.split_at(end);
    *rest = tail;
    if digits.is_empty() {
        return Ok(None);
    }
    let out_of_range = |_| SqlError::new("22003", "number is out of range");
    digits.parse::<i32>().map_err(out_of_range).map(|number| usize::try_from(number).ok())
}

/// Formats one text. A specifier is `%[position$][-][width]type`, where the width may be `*` or `*position$`.
fn one_formatted<'a>(
    format: &'a str,
    value: impl Fn(usize) -> Option<Option<&'a str>>,
) -> Result<String, SqlError> {
    let too_few = || invalid("too few arguments for format()");
    let mut output = String::new();
    let mut next = 0;
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        output.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        // `%%` is a percent sign.
        if let Some(tail) = rest.strip_prefix('%') {
            output.push('%');
            rest = tail;
            continue;
        }
        // An argument position, which ends with `$`; a number without it is a width.
        let mut position = None;
        let mut ahead = rest;
        if let Some(number) = take_number(&mut ahead)?
            && let Some(tail) = ahead.strip_prefix('$')
        {
            if number == 0 {
                return Err(invalid(
                    "format specifies argument 0, but arguments are numbered from 1",
                ));
            }
            position = Some(number - 1);
            rest = tail;
        }
        // The flag for left alignment, and the width, which may be an argument.
        let mut left_aligned = false;
        while let Some(tail) = rest.strip_prefix('-') {
            left_aligned = true;
            rest = tail;
        }
        let width = if let Some(tail) = rest.strip_prefix('*') {
            rest = tail;
            let mut ahead = rest;
            let index = match take_number(&mut ahead)? {
                Some(0) => {
                    return Err(invalid(
                        "format specifies argument 0, but arguments are numbered from 1",
                    ));
                }
                Some(number) => {
                    rest = ahead
                        .strip_prefix('$')
                        .ok_or_else(|| invalid("width argument position must be ended by \"$\""))?;
                    number - 1
                }
                None => next,
            };
            next = index + 1;
            let text = value(index).ok_or_else(too_few)?.unwrap_or("0");
            let number: i64 = text.trim().parse().map_err(|_| {
                SqlError::new("22P02", format!("invalid input syntax for type integer: \"{text}\""))
            })?;
            left_aligned |= number < 0;
            usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX)
        } else {
            take_number(&mut rest)?.unwrap_or(0)
        };
        crate::bounded::check_size("format", width as u64).map_err(SqlError::from)?;
        // The type of the value, and the argument at the position or the next one.
        let Some(kind) = rest.chars().next() else {
            return Err(invalid("unterminated format() type specifier")
                .with_hint("For a single \"%\" use \"%%\"."));
        };
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(invalid(format!("unrecognized format() type specifier \"{kind}\""))
                .with_hint("For a single \"%\" use \"%%\"."));
        }
        rest = &rest[kind.len_utf8()..];
        let index = position.unwrap_or(next);
        next = index + 1;
        let text = value(index).ok_or_else(too_few)?;
        let text = match (kind, text) {
            ('s', text) => Cow::Borrowed(text.unwrap_or("")),
            ('L', text) => text.map_or(Cow::Borrowed("NULL"), |text| Cow::Owned(literal(text))),
            (_, Some(name)) => identifier(name),
            (_, None) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(SqlError::new("22004", message));
            }
        };
        // Pad to the width.
        let blank = width.saturating_sub(text.chars().count());
        let blank = std::iter::repeat_n(' ', blank);
        if left_aligned {
            output.push_str(&text);
            output.extend(blank);
        } else {
            output.extend(blank);
            output.push_str(&text);
        }
    }
    output.push_str(rest);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<'a>(format: &'a str, values: &[Option<&'a str>]) -> Result<String, String> {
        let value = |position: usize| values.get(position).copied();
        one_formatted(format, value).map_err(|error| error.sqlstate)
    }

    #[test]
    fn formats_are_those_of_postgresql() {
        let values = [Some("a"), Some("it's"), None, Some("5"), Some("Foo bar")];
        for (format, expected) in [
            ("Hello %s%%", "Hello a%"),
            ("%2$s %1$s", "it's a"),
            ("%2$s %s", "it's "),
            ("%2$L", "'it''s'"),
            ("[%3$s] %3$L", "[] NULL"),
            ("%5$I %1$I", "\"Foo bar\" a"),
            ("|%4s|%-4s|", "|   a|it's|"),
            ("|%1$4s|%1$-4s|", "|   a|a   |"),
            ("|%1$*4$s|", "|    a|"),
        ] {
            assert_eq!(answer(format, &values).as_deref(), Ok(expected), "{format}");
        }
        for (format, sqlstate) in [
            ("%z", "22023"),
            ("%", "22023"),
            ("%9$s", "22023"),
            ("%3$I", "22004"),
            ("%0$s", "22023"),
        ] {
            assert_eq!(answer(format, &values), Err(sqlstate.to_owned()), "{format}");
        }
        assert_eq!(answer("%2000000000s", &values), Err("54000".to_owned()));
    }

    #[test]
    fn words_and_texts_are_quoted_where_they_must_be() {
        for (name, quoted) in
            [("foo", "foo"), ("Foo", "\"Foo\""), ("select", "\"select\""), ("a\"b", "\"a\"\"b\"")]
        {
            assert_eq!(identifier(name), quoted);
        }
        assert_eq!(literal("O'Reilly"), "'O''Reilly'");
        assert_eq!(literal("a\\b"), "E'a\\\\b'");
    }
}
