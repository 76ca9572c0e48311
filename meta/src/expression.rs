//! Finds the columns that an SQL expression names, without parsing SQL: meta only has to know whether a column may
//! be dropped, and a parser here would be a second dialect.
//!
//! It errs on the safe side: a function or keyword that is spelled like a column counts as the column, so a
//! possible change may be refused, but an impossible one is never allowed.

/// True if an expression names a column: quoted exactly, or unquoted in any case.
pub(crate) fn mentions(expression: &str, column: &str) -> bool {
    let mut rest = expression;
    let mut word = "";
    while let Some(first) = rest.chars().next() {
        match first {
            // The text of string literals names nothing; `e'..'` has escapes.
            '\'' => {
                let escapes = word.eq_ignore_ascii_case("e");
                rest = after_quote(rest, '\'', escapes).1;
                word = "";
            }
            // Quoted names match exactly.
            '"' | '`' => {
                let (name, remainder) = after_quote(rest, first, false);
                if name == column {
                    return true;
                }
                (rest, word) = (remainder, "");
            }
            // Other words match in any case.
            _ if is_word(first) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (word, rest) = rest.split_at(end);
                if word.to_lowercase() == column.to_lowercase() {
                    return true;
                }
            }
            _ => {
                rest = &rest[first.len_utf8()..];
                word = "";
            }
        }
    }
    false
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Reads the quoted text at the beginning of `text`; returns it unquoted, and the remaining text. A doubled quote
/// stands for one quote; with `escapes`, so does any character after a backslash for itself.
fn after_quote(text: &str, quote: char, escapes: bool) -> (String, &str) {
    let mut inside = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((offset, c)) = chars.next() {
        if c == '\\' && escapes {
            inside.extend(chars.next().map(|(_, escaped)| escaped));
        } else if c != quote {
            inside.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            inside.push(quote);
            chars.next();
        } else {
            return (inside, &text[offset + c.len_utf8()..]);
        }
    }
    (inside, "")
}

#[cfg(test)]
mod tests {
    use super::mentions;

    #[test]
    fn a_column_is_found_quoted_or_not() {
        assert!(mentions("hash64(userid)", "userid"));
        assert!(mentions("hash64(UserId)", "userid"));
        assert!(mentions("hash64(\"UserId\")", "UserId"));
        assert!(mentions("a+`odd \"name`*2", "odd \"name"));
        assert!(mentions("\"say \"\"hi\"\"\"", "say \"hi\""));
        assert!(!mentions("hash64(\"UserId\")", "userid"));
        assert!(!mentions("hash64(userid2)", "userid"));
        assert!(!mentions("", "a"));
    }

    #[test]
    fn what_a_string_says_is_no_column() {
        assert!(!mentions("concat(a, 'temp')", "temp"));
        assert!(!mentions("concat(a, 'it''s temp')", "temp"));
        assert!(mentions("concat('it''s', temp)", "temp"));
        assert!(mentions("concat(E'it\\'s', temp)", "temp"));
        assert!(!mentions("'temp", "temp"));
    }
}
