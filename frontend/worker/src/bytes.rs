//! Bytes as text: PostgreSQL's two forms of `bytea`, the digits of `X'..'`, and the bytes of a text itself.

use std::fmt::Write as _;

use crate::error::SqlError;

/// The bytes of a text that a client of PostgreSQL's protocol sent, in a parameter or in COPY.
///
/// # Errors
/// 22021 when they are not UTF-8, or one of them is zero: PostgreSQL's clients take a zero for the end of a text, so
/// that they would read back less than was stored.
pub fn sent_text(bytes: &[u8]) -> Result<&str, SqlError> {
    let invalid = |part: &str| {
        SqlError::new("22021", format!("invalid byte sequence for encoding \"UTF8\"{part}"))
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) => Err(invalid(": 0x00")),
        Err(_) => Err(invalid("")),
    }
}

/// Parses hexadecimal digits; `None` for any other character, or for an odd number of digits.
pub fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

/// Parses the text of a `bytea`: `\xDEADBEEF`, or the text's own bytes with `\\` for a backslash and `\ooo` for any
/// byte. `None` when anything else follows a backslash.
pub fn parse_bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        return parse_hex(digits);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match tail {
            [b'\\', tail @ ..] => {
                bytes.push(b'\\');
                rest = tail;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// Appends the hexadecimal form of a `bytea`.
pub fn write_bytea(bytes: &[u8], text: &mut String) {
    text.push_str("\\x");
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_bytea_are_read() {
        assert_eq!(parse_bytea("\\xDEad"), Some(vec![0xde, 0xad]));
        assert_eq!(parse_bytea("\\x"), Some(vec![]));
        assert_eq!(parse_bytea("\\xabc"), None);
        assert_eq!(parse_bytea("\\xzz"), None);
        assert_eq!(parse_bytea("a\\\\b\\001\\377"), Some(b"a\\b\x01\xff".to_vec()));
        assert_eq!(parse_bytea("\\4"), None);
        assert_eq!(parse_bytea("ü"), Some("ü".as_bytes().to_vec()));
    }

    #[test]
    fn a_sent_text_is_utf8_without_zeros() {
        for text in ["", "a", "ü\u{1}\u{10ffff}"] {
            assert_eq!(sent_text(text.as_bytes()).unwrap(), text);
        }
        for bytes in [&b"\xff"[..], b"cut \xe2\x82"] {
            let error = sent_text(bytes).unwrap_err();
            assert_eq!(error.sqlstate, "22021");
            assert_eq!(error.message, "invalid byte sequence for encoding \"UTF8\"");
        }
        for bytes in [&b"\0"[..], b"a\0", b"\0a", b"a\0b"] {
            let error = sent_text(bytes).unwrap_err();
            assert_eq!(error.sqlstate, "22021");
            assert_eq!(error.message, "invalid byte sequence for encoding \"UTF8\": 0x00");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut text = String::new();
        write_bytea(&bytes, &mut text);
        assert_eq!(parse_bytea(&text), Some(bytes));
    }
}
