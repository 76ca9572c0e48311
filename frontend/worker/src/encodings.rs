//! `encode`, `decode`, `unistr` and functions of single bytes, as in PostgreSQL, and LIKE patterns with other escape
//! characters.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryViewArray, Int32Array};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::bounded::{check_size, check_total};
use crate::error::{INVALID_PARAMETER_VALUE, SYNTAX_ERROR, SqlError};
use crate::plain::{Plain, Texts, all, is_text, is_whole, text_of_text, texts, wholes};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters in a line of base64.
const LINE: usize = 76;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&ENCODE, &DECODE, &UNISTR, &GET_BYTE, &SET_BYTE, &LIKE_PATTERN]
        .into_iter()
        .map(Plain::function)
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(INVALID_PARAMETER_VALUE, message)
}

static ENCODE: Plain = Plain {
    name: "encode",
    takes: |types| match types {
        [bytes, format] if (bytes.is_binary() || is_text(bytes)) && is_text(format) => {
            Some(vec![DataType::BinaryView, DataType::Utf8])
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let (bytes, formats) = (arguments[0].as_binary_view(), texts(&arguments[1])?);
        // The sizes are checked before the values are made: an encoding takes at most four characters for a byte.
        let mut total = 0_u64;
        for value in bytes.iter().flatten() {
            let size = (value.len() as u64).saturating_mul(2);
            check_size("encode", size)?;
            total = total.saturating_add(size);
        }
        check_total("encode", bytes.len(), total)?;
        let mut results = Texts::new("encode", bytes.len());
        for (value, format) in bytes.iter().zip(&formats) {
            let text = value.zip(format).map(|(value, format)| encoded(value, format));
            results.push(text.transpose()?)?;
        }
        Ok(results.finish())
    },
};

fn unrecognized(format: &str) -> SqlError {
    invalid(format!("unrecognized encoding: \"{format}\""))
}

fn encoded(bytes: &[u8], format: &str) -> Result<String, SqlError> {
    let mut output = String::new();
    // Hexadecimal digits, base64 in lines, or the bytes with some of them escaped.
    match format.to_ascii_lowercase().as_str() {
        "hex" => {
            let mut text = String::new();
            crate::bytes::write_bytea(bytes, &mut text);
            output.push_str(text.trim_start_matches("\\x"));
        }
        "base64" => {
            // Three bytes make four characters, in lines of at most `LINE`.
            for (count, three) in bytes.chunks(3).enumerate() {
                if count > 0 && (count * 4).is_multiple_of(LINE) {
                    output.push('\n');
                }
                let byte_at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
                let word = byte_at(0) << 16 | byte_at(1) << 8 | byte_at(2);
                for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
                    if place > three.len() {
                        output.push('=');
                    } else {
                        let index = usize::try_from(word >> shift & 63).unwrap_or(0);
                        output.push(char::from(BASE64[index]));
                    }
                }
            }
        }
        "escape" => {
            for byte in bytes {
                match byte {
                    b'\\' => output.push_str("\\\\"),
                    0 | 128.. => {
                        output.push('\\');
                        for shift in [6, 3, 0] {
                            output.push(char::from(b'0' + (byte >> shift & 7)));
                        }
                    }
                    plain => output.push(char::from(*plain)),
                }
            }
        }
        _ => return Err(unrecognized(format)),
    }
    Ok(output)
}

/// `unistr(text)`: characters by their numbers, `\XXXX`, `\+XXXXXX`, `\uXXXX` or `\UXXXXXXXX`.
static UNISTR: Plain = Plain {
    name: "unistr",
    takes: |types| all(types, 1, is_text, &DataType::Utf8),
    gives: |_| DataType::Utf8,
    run: |arguments| text_of_text("unistr", &arguments[0], unescaped),
};

fn unescaped(text: &str) -> Result<String, SqlError> {
    let pair = || SqlError::new(SYNTAX_ERROR, "invalid Unicode surrogate pair");
    let mut output = String::with_capacity(text.len());
    let mut high = None;
    let mut rest = text;
    while let Some(position) = rest.find('\\') {
        if position > 0 && high.is_some() {
            return Err(pair());
        }
        output.push_str(&rest[..position]);
        rest = &rest[position + 1..];
        if let Some(tail) = rest.strip_prefix('\\') {
            if high.is_some() {
                return Err(pair());
            }
            output.push('\\');
            rest = tail;
            continue;
        }
        let (code, digits, tail) = escape(rest)?;
        rest = tail;
        // The two halves of a character above U+FFFF follow each other.
        let code = match (high.take(), code) {
            (None, 0xD800..0xDC00) => {
                high = Some(code);
                continue;
            }
            (Some(high), 0xDC00..0xE000) => 0x1_0000 + ((high - 0xD800) << 10) + (code - 0xDC00),
            (Some(_), _) | (None, 0xDC00..0xE000) => return Err(pair()),
            (None, code) => code,
        };
        let character = char::from_u32(code).filter(|character| *character != '\0');
        output.push(
            character.ok_or_else(|| invalid(format!("invalid Unicode code point: {digits}")))?,
        );
    }
    if high.is_some() {
        return Err(pair());
    }
    output.push_str(rest);
    Ok(output)
}

/// The number behind a backslash, its digits, and the text behind them.
fn escape(text: &str) -> Result<(u32, &str, &str), SqlError> {
    let forms = [("+", 6), ("u", 4), ("U", 8), ("", 4)];
    let read = |(prefix, count): (&str, usize)| {
        let (digits, rest) = text.strip_prefix(prefix)?.split_at_checked(count)?;
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, 16).ok()?;
        is_hexadecimal.then_some((code, digits, rest))
    };
    forms.into_iter().find_map(read).ok_or_else(|| {
        SqlError::new(SYNTAX_ERROR, "invalid Unicode escape")
            .with_hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
    })
}

static DECODE: Plain = Plain {
    name: "decode",
    takes: |types| all(types, 2, is_text, &DataType::Utf8),
    gives: |_| DataType::BinaryView,
    run: |arguments| {
        let (values, formats) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let decode = |(value, format): (Option<&str>, Option<&str>)| {
            value.zip(format).map(|(value, format)| decoded(value, format)).transpose()
        };
        let values: Vec<Option<Vec<u8>>> =
            values.iter().zip(&formats).map(decode).collect::<Result<_, SqlError>>()?;
        Ok(Arc::new(values.into_iter().collect::<BinaryViewArray>()))
    },
};

fn decoded(text: &str, format: &str) -> Result<Vec<u8>, SqlError> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => {
            let digits: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            if let Some(letter) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
                return Err(invalid(format!("invalid hexadecimal digit: \"{letter}\"")));
            }
            crate::bytes::parse_hex(&digits)
                .ok_or_else(|| invalid("invalid hexadecimal data: odd number of digits"))
        }
        "base64" => from_base64(text),
        "escape" => {
            let bytes =
                if text.starts_with("\\x") { None } else { crate::bytes::parse_bytea(text) };
            bytes.ok_or_else(|| SqlError::new("22P02", "invalid input syntax for type bytea"))
        }
        _ => Err(unrecognized(format)),
    }
}

fn from_base64(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut count, mut ends) = (0_u32, 0_usize, 0_usize);
    for letter in text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        // Padding counts as zero bits; only padding may follow it.
        let value = if letter == '=' {
            if ends == 0 && count < 2 {
                return Err(invalid("unexpected \"=\" while decoding base64 sequence"));
            }
            ends += 1;
            0
        } else {
            let index = BASE64.iter().position(|symbol| char::from(*symbol) == letter);
            let index = index.filter(|_| ends == 0).and_then(|index| u32::try_from(index).ok());
            index.ok_or_else(|| {
                invalid(format!("invalid symbol \"{letter}\" found while decoding base64 sequence"))
            })?
        };
        word = word << 6 | value;
        count += 1;
        // Four characters make three bytes, without those that the padding stands for.
        if count == 4 {
            let [_, first, second, third] = word.to_be_bytes();
            bytes.extend_from_slice(&[first, second, third][..3 - ends.min(2)]);
            (word, count) = (0, 0);
        }
    }
    if count != 0 {
        return Err(invalid("invalid base64 end sequence")
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(bytes)
}

fn byte_and_place(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [bytes, places @ ..] if bytes.is_binary() && places.iter().all(is_whole) => {
            let mut types = vec![DataType::Int64; types.len()];
            types[0] = DataType::BinaryView;
            Some(types)
        }
        _ => None,
    }
}

fn place(index: i64, length: usize) -> Result<usize, SqlError> {
    usize::try_from(index).ok().filter(|index| *index < length).ok_or_else(|| {
        let last = i64::try_from(length).unwrap_or(i64::MAX) - 1;
        SqlError::new("2202E", format!("index {index} out of valid range, 0..{last}"))
    })
}

static GET_BYTE: Plain = Plain {
    name: "get_byte",
    takes: |types| byte_and_place(types).filter(|_| types.len() == 2),
    gives: |_| DataType::Int32,
    run: |arguments| {
        let (bytes, places) = (arguments[0].as_binary_view(), wholes(&arguments[1])?);
        let byte = |(bytes, index): (Option<&[u8]>, Option<i64>)| {
            let Some((bytes, index)) = bytes.zip(index) else { return Ok(None) };
            place(index, bytes.len()).map(|index| Some(i32::from(bytes[index])))
        };
        let values = bytes.iter().zip(&places).map(byte);
        Ok(Arc::new(values.collect::<Result<Int32Array, SqlError>>()?))
    },
};

static SET_BYTE: Plain = Plain {
    name: "set_byte",
    takes: |types| byte_and_place(types).filter(|_| types.len() == 3),
    gives: |_| DataType::BinaryView,
    run: |arguments| {
        let (bytes, places, values) =
            (arguments[0].as_binary_view(), wholes(&arguments[1])?, wholes(&arguments[2])?);
        let set = |row: usize| {
            if arguments.iter().any(|argument| argument.is_null(row)) {
                return Ok(None);
            }
            let mut value = bytes.value(row).to_vec();
            let index = place(places.value(row), value.len())?;
            value[index] = values.value(row).to_le_bytes()[0];
            Ok(Some(value))
        };
        let values: Vec<Option<Vec<u8>>> =
            (0..bytes.len()).map(set).collect::<Result<_, SqlError>>()?;
        Ok(Arc::new(values.into_iter().collect::<BinaryViewArray>()))
    },
};

/// `like_pattern(pattern, escape)`: the frontend wraps patterns with another escape character in it.
static LIKE_PATTERN: Plain = Plain {
    name: "like_pattern",
    takes: |types| all(types, 2, is_text, &DataType::Utf8),
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let (patterns, escapes) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let mut rewritten = Texts::new("like_pattern", patterns.len());
        for (pattern, escape) in patterns.iter().zip(&escapes) {
            let result = pattern.zip(escape);
            let result =
                result.map(|(pattern, escape)| like_pattern(pattern, escape.chars().next()));
            rewritten.push(result.transpose()?)?;
        }
        Ok(rewritten.finish())
    },
};

/// Rewrites a LIKE pattern to use the backslash as its escape character; `None` escapes nothing.
///
/// # Errors
/// SQLSTATE 22025 when the pattern ends with the escape character.
pub fn like_pattern(pattern: &str, escape: Option<char>) -> Result<String, SqlError> {
    let mut rewritten = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let literal = if Some(letter) == escape {
            let at_end =
                || SqlError::new("22025", "LIKE pattern must not end with escape character");
            Some(letters.next().ok_or_else(at_end)?)
        } else if letter == '\\' {
            Some(letter)
        } else {
            None
        };
        match literal {
            Some(literal) => {
                if matches!(literal, '\\' | '%' | '_') {
                    rewritten.push('\\');
                }
                rewritten.push(literal);
            }
            None => rewritten.push(letter),
        }
    }
    Ok(rewritten)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_are_read_by_their_numbers() {
        for (text, expected) in [
            (r"d\0061t\+000061", "data"),
            (r"d\u0061t\U00000061", "data"),
            (r"a\\b", r"a\b"),
            (r"\d83d\de00x", "\u{1F600}x"),
            (r"\+01F600", "\u{1F600}"),
        ] {
            assert_eq!(unescaped(text).unwrap(), expected, "{text}");
        }
        for (text, sqlstate) in [
            (r"\zz", "42601"),
            (r"a\", "42601"),
            (r"\12", "42601"),
            (r"\d83dx", "42601"),
            (r"\d83d", "42601"),
            (r"\de00", "42601"),
            (r"\0000", "22023"),
            (r"\+110000", "22023"),
        ] {
            assert_eq!(unescaped(text).unwrap_err().sqlstate, sqlstate, "{text}");
        }
    }

    #[test]
    fn bytes_are_encoded_as_postgresql_encodes_them() {
        for (bytes, format, expected) in [
            (&b"a"[..], "base64", "YQ=="),
            (b"ab", "BASE64", "YWI="),
            (b"abc", "base64", "YWJj"),
            (b"\x00\xff", "hex", "00ff"),
            (b"a\\\x00\xff", "escape", "a\\\\\\000\\377"),
        ] {
            assert_eq!(encoded(bytes, format).as_deref(), Ok(expected));
        }
        let lines = encoded(&[b'x'; 60], "base64").unwrap();
        assert_eq!(lines.lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
        assert_eq!(encoded(b"a", "rot13").unwrap_err().sqlstate, "22023");
    }

    #[test]
    fn patterns_mean_the_same_with_a_backslash() {
        for (pattern, escape, expected) in [
            ("a!%b", Some('!'), "a\\%b"),
            ("a!!b", Some('!'), "a!b"),
            ("a\\b%", Some('!'), "a\\\\b%"),
            ("a\\%", None, "a\\\\%"),
        ] {
            assert_eq!(like_pattern(pattern, escape).as_deref(), Ok(expected), "{pattern}");
        }
        assert_eq!(like_pattern("a!", Some('!')).unwrap_err().sqlstate, "22025");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in ["hex", "base64", "escape"] {
                let text = encoded(&bytes, format).unwrap();
                prop_assert_eq!(decoded(&text, format), Ok(bytes.clone()), "{}", format);
            }
        }
    }
}
