//! Where statements end, without reading what they say.
//!
//! A text of one statement, which is what drivers send, is found to be one by a search for semicolons;
//! only a text with a semicolon inside is walked byte by byte. Invariant: the pieces between the
//! semicolons found are what a tokenizer of the whole text would find (strings of all kinds, quoted
//! names, comments and dollar quotes hide semicolons); an unclosed quote hides all that follow.

/// One statement's text, without its semicolon, and the byte it begins at.
pub(super) struct Piece<'a> {
    /// The text; blank between two semicolons.
    pub(super) text: &'a str,
    /// Where it begins.
    pub(super) start: usize,
}

/// Cuts a text at its semicolons.
pub(super) fn split(sql: &str) -> Vec<Piece<'_>> {
    let Some(first) = sql.find(';') else { return vec![Piece { text: sql, start: 0 }] };
    // A semicolon that ends the text ends the statement too: were it inside of a quote or a comment,
    // the quote or comment would not be closed (an error either way) or be one of its last line.
    if sql[first + 1..].trim().is_empty() {
        return vec![Piece { text: &sql[..first], start: 0 }];
    }
    let bytes = sql.as_bytes();
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b';' {
            pieces.push(Piece { text: &sql[start..at], start });
            start = at + 1;
            at = start;
        } else {
            at = skip(bytes, at);
        }
    }
    pieces.push(Piece { text: &sql[start..], start });
    pieces
}

/// The byte after the token, or the part of one, that begins here. Every token that this knows
/// begins and ends at an ASCII byte, so that no character is cut.
fn skip(bytes: &[u8], at: usize) -> usize {
    let next = bytes.get(at + 1).copied();
    match bytes[at] {
        b'\'' => {
            let escapes = at > 0
                && matches!(bytes[at - 1], b'e' | b'E')
                && !(at > 1 && is_name_byte(bytes[at - 2]));
            skip_quoted(bytes, at, escapes)
        }
        b'"' | b'`' => skip_quoted(bytes, at, false),
        b'-' if next == Some(b'-') => skip_line(bytes, at),
        b'/' if next == Some(b'*') => skip_comment(bytes, at),
        b'$' if at == 0 || !is_name_byte(bytes[at - 1]) => skip_dollar(bytes, at),
        _ => at + 1,
    }
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// The byte after a quote that begins here; a doubled quote does not end it.
fn skip_quoted(bytes: &[u8], at: usize, escapes: bool) -> usize {
    let quote = bytes[at];
    let mut at = at + 1;
    while at < bytes.len() {
        if escapes && bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] != quote {
            at += 1;
        } else if bytes.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return at + 1;
        }
    }
    bytes.len()
}

/// The byte after a comment of one line.
pub(super) fn skip_line(bytes: &[u8], at: usize) -> usize {
    // The tokenizer of the parser ends it at either, as PostgreSQL does.
    bytes[at..].iter().position(|b| matches!(b, b'\n' | b'\r')).map_or(bytes.len(), |n| at + n + 1)
}

/// The byte after a comment that may hold comments.
pub(super) fn skip_comment(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The byte after a dollar quote (`$$..$$`, `$tag$..$tag$`), or after the dollar when it begins none.
fn skip_dollar(bytes: &[u8], at: usize) -> usize {
    let tag = bytes[at + 1..].iter().take_while(|b| is_name_byte(**b) && **b != b'$').count();
    let end = at + 1 + tag;
    if bytes.get(end) != Some(&b'$') || bytes[at + 1].is_ascii_digit() {
        return at + 1;
    }
    let quote = &bytes[at..=end];
    let body = end + 1;
    bytes[body..]
        .windows(quote.len())
        .position(|window| window == quote)
        .map_or(bytes.len(), |n| body + n + quote.len())
}

/// The text without blanks and comments in front of it, and how many bytes they took.
pub(super) fn trim_start(text: &str) -> (&str, usize) {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at) {
            Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c) => at += 1,
            Some(b'-') if bytes.get(at + 1) == Some(&b'-') => at = skip_line(bytes, at),
            Some(b'/') if bytes.get(at + 1) == Some(&b'*') => at = skip_comment(bytes, at),
            _ => return (&text[at..], at),
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
