//! Splits a text into statements without parsing them.
//!
//! A text of one statement, which is what drivers send, is recognized by a search for semicolons; only a text with a
//! semicolon inside is walked byte by byte. Invariant: the pieces are the same as those of a tokenizer over the whole
//! text (strings of all kinds, quoted names, comments and dollar quotes hide semicolons); an unclosed quote hides all
//! semicolons after it.

/// The text of one statement without its semicolon, and its byte offset.
pub(super) struct Piece<'a> {
    /// The text; blank between two semicolons.
    pub(super) text: &'a str,
    /// Byte offset of the text.
    pub(super) start: usize,
}

/// The texts of the statements of a text, which need not parse; blank between two semicolons.
pub fn texts(sql: &str) -> Vec<&str> {
    split(sql).into_iter().map(|piece| piece.text).collect()
}

/// Splits a text at its semicolons.
pub(super) fn split(sql: &str) -> Vec<Piece<'_>> {
    let Some(first) = sql.find(';') else { return vec![Piece { text: sql, start: 0 }] };
    // A semicolon at the end of the text ends the statement too: inside of a quote or a comment, that quote or comment
    // would be unclosed (an error either way) or end with its line.
    if sql[first + 1..].trim().is_empty() {
        return vec![Piece { text: &sql[..first], start: 0 }];
    }
    let bytes = sql.as_bytes();
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut position = 0;
    while position < bytes.len() {
        if bytes[position] == b';' {
            pieces.push(Piece { text: &sql[start..position], start });
            start = position + 1;
            position = start;
        } else {
            position = skip(bytes, position);
        }
    }
    pieces.push(Piece { text: &sql[start..], start });
    pieces
}

/// The byte offset after the token, or the part of one, that begins here. All tokens that this function knows begin and
/// end at an ASCII byte, so no character is split.
pub(super) fn skip(bytes: &[u8], start: usize) -> usize {
    let next = bytes.get(start + 1).copied();
    match bytes[start] {
        b'\'' => {
            let escapes = start > 0
                && matches!(bytes[start - 1], b'e' | b'E')
                && !(start > 1 && is_name_byte(bytes[start - 2]));
            skip_quoted(bytes, start, escapes)
        }
        b'"' | b'`' => skip_quoted(bytes, start, false),
        b'-' if next == Some(b'-') => skip_line(bytes, start),
        b'/' if next == Some(b'*') => skip_comment(bytes, start),
        b'$' if start == 0 || !is_name_byte(bytes[start - 1]) => skip_dollar(bytes, start),
        _ => start + 1,
    }
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// The byte offset after a quoted text that begins here; a doubled quote does not end it.
fn skip_quoted(bytes: &[u8], start: usize, escapes: bool) -> usize {
    let quote = bytes[start];
    let mut position = start + 1;
    while position < bytes.len() {
        if escapes && bytes[position] == b'\\' {
            position += 2;
        } else if bytes[position] != quote {
            position += 1;
        } else if bytes.get(position + 1) == Some(&quote) {
            position += 2;
        } else {
            return position + 1;
        }
    }
    bytes.len()
}

/// The byte offset after a comment of one line.
pub(super) fn skip_line(bytes: &[u8], start: usize) -> usize {
    // Either ends the comment in the parser's tokenizer, as in PostgreSQL.
    bytes[start..]
        .iter()
        .position(|b| matches!(b, b'\n' | b'\r'))
        .map_or(bytes.len(), |n| start + n + 1)
}

/// The byte offset after a comment, which may contain comments.
pub(super) fn skip_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut position = start;
    while position < bytes.len() {
        match (bytes[position], bytes.get(position + 1)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                position += 2;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                position += 2;
                if depth == 0 {
                    return position;
                }
            }
            _ => position += 1,
        }
    }
    bytes.len()
}

/// The byte offset after a dollar quote (`$$..$$`, `$tag$..$tag$`), or after the dollar sign when none begins here.
fn skip_dollar(bytes: &[u8], start: usize) -> usize {
    let tag = bytes[start + 1..].iter().take_while(|b| is_name_byte(**b) && **b != b'$').count();
    let end = start + 1 + tag;
    if bytes.get(end) != Some(&b'$') || bytes[start + 1].is_ascii_digit() {
        return start + 1;
    }
    let quote = &bytes[start..=end];
    let body = end + 1;
    bytes[body..]
        .windows(quote.len())
        .position(|window| window == quote)
        .map_or(bytes.len(), |n| body + n + quote.len())
}

/// The text without leading blanks and comments, and the number of bytes removed.
pub(super) fn trim_start(text: &str) -> (&str, usize) {
    let bytes = text.as_bytes();
    let mut position = 0;
    loop {
        match bytes.get(position) {
            Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c) => position += 1,
            Some(b'-') if bytes.get(position + 1) == Some(&b'-') => {
                position = skip_line(bytes, position)
            }
            Some(b'/') if bytes.get(position + 1) == Some(&b'*') => {
                position = skip_comment(bytes, position)
            }
            _ => return (&text[position..], position),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        split(sql).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn semicolons_inside_of_quotes_and_comments_end_nothing() {
        assert_eq!(texts("a"), ["a"]);
        assert_eq!(texts("a; "), ["a"]);
        assert_eq!(texts("a;b"), ["a", "b"]);
        assert_eq!(texts("a;b;"), ["a", "b", ""]);
        assert_eq!(texts("'x;y''z;';b"), ["'x;y''z;'", "b"]);
        assert_eq!(texts("\"x;\"\"y\";`a;`"), ["\"x;\"\"y\"", "`a;`"]);
        assert_eq!(texts("e'\\';';b"), ["e'\\';'", "b"]);
        assert_eq!(texts("name'\\';b"), ["name'\\'", "b"]);
        assert_eq!(texts("-- x;\na;b"), ["-- x;\na", "b"]);
        assert_eq!(texts("/* ; /* ; */ ; */a;b"), ["/* ; /* ; */ ; */a", "b"]);
        assert_eq!(texts("$$;$$;$t$;$$;$t$;$1;b"), ["$$;$$", "$t$;$$;$t$", "$1", "b"]);
        assert_eq!(texts("a;'b;c"), ["a", "'b;c"]);
    }

    #[test]
    fn comments_in_front_are_trimmed() {
        assert_eq!(trim_start(" -- x\n /* y */\tselect"), ("select", 15));
        assert_eq!(trim_start("/* y").0, "");
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_text(sql in "[;'\"`$a\\\\e/*\\- \nü]{0,40}") {
            let pieces = split(&sql);
            for piece in &pieces {
                prop_assert_eq!(&sql[piece.start..piece.start + piece.text.len()], piece.text);
            }
            let joined = pieces.iter().map(|p| p.text).collect::<Vec<_>>().join(";");
            prop_assert!(sql.starts_with(&joined));
            prop_assert!(sql[joined.len()..].trim_matches(|c: char| c == ';' || c.is_whitespace()).is_empty());
        }
    }
}
