//! Texts of statements without their passwords, for logs.
//!
//! A text is scanned without a parser, so that one with errors is redacted, too. After CREATE or ALTER ROLE, USER or
//! GROUP, up to the end of the statement, every string is replaced, and also any other token after PASSWORD, because a
//! mistyped password is still one. After CREATE or ALTER TASK, what follows TOKEN is.
//!
//! Invariant: a string that is not closed ends with the text.

use std::borrow::Cow;

use super::split::{is_name_byte, skip, skip_comment, skip_line};

/// Text in place of a string.
const REPLACEMENT: &str = "'<redacted>'";

/// The text with all passwords replaced; the same text if there are none.
pub fn redacted(sql: &str) -> Cow<'_, str> {
    let bytes = sql.as_bytes();
    let mut output = String::new();
    // End of the part that is in the output.
    let mut copied = 0;
    let mut position = 0;
    let mut previous = Keyword::Other;
    let (mut is_of_role, mut is_of_task) = (false, false);
    while position < bytes.len() {
        let start = position;
        let byte = bytes[position];
        let begins_with = |mark: &[u8]| bytes[start..].starts_with(mark);
        if byte.is_ascii_whitespace() {
            position += 1;
            continue;
        }
        if begins_with(b"--") {
            position = skip_line(bytes, position);
            continue;
        }
        if begins_with(b"/*") {
            position = skip_comment(bytes, position);
            continue;
        }
        let mut is_string = false;
        if is_name_byte(byte) && byte != b'$' {
            let length = bytes[start..].iter().take_while(|byte| is_name_byte(**byte)).count();
            position += length;
            // E'..', N'..', B'..' and X'..'; U&'..' is a name, a mark and a string.
            if length == 1 && bytes.get(position) == Some(&b'\'') {
                position = skip(bytes, position).min(bytes.len());
                is_string = true;
            }
        } else {
            position = skip(bytes, position).min(bytes.len());
            is_string = byte == b'\'' || byte == b'$' && position > start + 1;
        }
        let word = &sql[start..position];
        let keyword = if is_string { Keyword::Other } else { Keyword::of(word) };
        let is_secret = is_string || !is_harmless(word);
        if is_of_role && (is_string || previous == Keyword::Password && is_secret)
            || is_of_task && previous == Keyword::Token && is_secret
        {
            output.push_str(&sql[copied..start]);
            output.push_str(REPLACEMENT);
            copied = position;
        }
        is_of_role |= previous == Keyword::Change && keyword == Keyword::Role;
        is_of_role &= word != ";";
        is_of_task |= previous == Keyword::Change && keyword == Keyword::Task;
        is_of_task &= word != ";";
        // A mark after PASSWORD or TOKEN does not end the search for the secret.
        let is_mark = !is_string && !is_name_byte(byte) && byte != b'"' && byte != b'`';
        let precedes_secret = matches!(previous, Keyword::Password | Keyword::Token);
        if !(precedes_secret && is_mark && word != ";") {
            previous = keyword;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(sql);
    }
    output.push_str(&sql[copied..]);
    Cow::Owned(output)
}

/// Returns true for what may follow PASSWORD and is no password.
fn is_harmless(word: &str) -> bool {
    word.eq_ignore_ascii_case("null")
        || !word.bytes().any(|byte| is_name_byte(byte) || byte == b'"' || byte == b'`')
}

/// Words that decide.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keyword {
    /// CREATE or ALTER.
    Change,
    /// ROLE, USER or GROUP.
    Role,
    /// PASSWORD, before a secret.
    Password,
    /// TASK, after CREATE or ALTER.
    Task,
    /// TOKEN, before a secret.
    Token,
    /// Any other token.
    Other,
}

impl Keyword {
    fn of(word: &str) -> Self {
        let is_one = |words: &[&str]| words.iter().any(|name| word.eq_ignore_ascii_case(name));
        if is_one(&["create", "alter"]) {
            Self::Change
        } else if is_one(&["role", "user", "group"]) {
            Self::Role
        } else if is_one(&["password"]) {
            Self::Password
        } else if is_one(&["task"]) {
            Self::Task
        } else if is_one(&["token"]) {
            Self::Token
        } else {
            Self::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn passwords_are_replaced_wherever_they_stand() {
        for (sql, expected) in [
            ("CREATE ROLE a PASSWORD 'secret'", "CREATE ROLE a PASSWORD '<redacted>'"),
            (
                "alter user \"x\" /* 'c' */ with encrypted password E'sec\\'ret' LOGIN",
                "alter user \"x\" /* 'c' */ with encrypted password '<redacted>' LOGIN",
            ),
            (
                "SELECT 'kept'; ALTER ROLE a PASSWORD $x$secret;$x$; SELECT 'kept'",
                "SELECT 'kept'; ALTER ROLE a PASSWORD '<redacted>'; SELECT 'kept'",
            ),
            ("CREATE\n--\nGROUP a PASSWORD\n'secret", "CREATE\n--\nGROUP a PASSWORD\n'<redacted>'"),
            ("ALTER ROLE a PASSWORD \"secret\" LOGIN", "ALTER ROLE a PASSWORD '<redacted>' LOGIN"),
            ("ALTER ROLE a PASSWORD = secret", "ALTER ROLE a PASSWORD = '<redacted>'"),
            ("ALTER ROLE a PASWORD 'secret'", "ALTER ROLE a PASWORD '<redacted>'"),
            ("ALTER ROLE a PASSWORD U&'secret'", "ALTER ROLE a PASSWORD '<redacted>'&'<redacted>'"),
            ("ALTER ROLE a PASSWORD NULL", "ALTER ROLE a PASSWORD NULL"),
            (
                "CREATE TASK a SCHEDULE '@daily' INTO URL 'http://a' TOKEN 'secret' AS SELECT 'kept'",
                "CREATE TASK a SCHEDULE '@daily' INTO URL 'http://a' TOKEN '<redacted>' AS SELECT 'kept'",
            ),
            ("CREATE TASK a TOKEN = secret", "CREATE TASK a TOKEN = '<redacted>'"),
            ("CREATE TOKEN 'kept' WITH (ALL)", "CREATE TOKEN 'kept' WITH (ALL)"),
        ] {
            assert_eq!(redacted(sql), expected);
        }
    }

    #[test]
    fn other_statements_stay_as_they_are() {
        for sql in [
            "",
            "SELECT password, 'x' FROM role WHERE user = 'y'",
            "INSERT INTO t VALUES ('CREATE ROLE a PASSWORD ''b''')",
            "CREATE TABLE role (password STRING DEFAULT 'x', PRIMARY KEY (password))",
            "ALTER TABLE user SET ('ttl' = '7d')",
        ] {
            assert!(matches!(redacted(sql), Cow::Borrowed(text) if text == sql), "{sql}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_redacted_without_a_panic(text in "(ALTER ROLE a PASSWORD)?[;'\"`$aeE\\\\/*\\- \nü]{0,40}") {
            let output = redacted(&text);
            prop_assert!(output.len() <= text.len() * REPLACEMENT.len() + REPLACEMENT.len());
        }

        #[test]
        fn no_password_remains(
            prefix in "[a-z \n]{0,10}",
            password in "secret[a-z';\"\\$ü]{0,9}",
            suffix in "[a-z \n]{0,20}",
        ) {
            let quoted = password.replace('\'', "''");
            let text = format!("{prefix}; ALTER USER a {suffix} PASSWORD '{quoted}' {suffix}");
            prop_assert!(!redacted(&text).contains("secret"), "{}", redacted(&text));
        }
    }
}
