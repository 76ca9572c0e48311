//! Splits what is typed, or read from a file, into statements and backslash commands.
//!
//! ```text
//!   lines ── Splitter ──┬── Statement   up to a semicolon outside quotes, comments and parentheses
//!                       ├── Command     from a backslash outside quotes and comments to the end of its arguments
//!                       └── Malformed   a command whose arguments cannot be read
//! ```
//!
//! Variables (`:name`, `:'name'`, `:"name"`) are replaced on the way, outside quotes and comments.
//!
//! Invariant: values of variables are not searched for variables, so that none can refer to itself.

/// Looks up a variable.
pub(super) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Part of the input that can be acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Complete statement, without its semicolon.
    Statement(String),
    /// Command to the shell: the name without its backslash, and arguments.
    Command(String, Vec<String>),
    /// Command whose arguments have an error.
    Malformed(String),
}

/// Commands whose argument is the rest of the line.
const WHOLE_LINE: [&str; 1] = ["copy"];

/// Construct in which the reader stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Outside quotes and comments.
    #[default]
    Plain,
    /// String in single quotes.
    Literal {
        /// True if a backslash takes the next letter with it, as in `E''`.
        escapes: bool,
    },
    /// Name in double quotes.
    Identifier,
    /// String between dollar quotes.
    Dollar {
        /// Mark that ends it, such as `$tag$`.
        mark: String,
        /// Byte of the statement at which it begins.
        body: usize,
    },
    /// Comment in `/* */`, and its depth.
    Comment(usize),
    /// Comment that ends with its line.
    LineComment,
}

/// Reader of lines that keeps the statement being typed.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    /// Text of the statement.
    text: String,
    place: Place,
    /// Open parentheses.
    depth: usize,
    /// True if the statement has more than blanks and comments.
    is_begun: bool,
    /// Letters of the line that are still to be read, the next one last.
    input: Vec<char>,
    /// Number of remaining letters at which the value of a variable ends.
    value_end: Option<usize>,
}

impl Splitter {
    /// Takes a line without its line feed. What remained of the line before is forgotten.
    pub(super) fn feed(&mut self, line: &str) {
        self.input.clear();
        self.input.push('\n');
        self.input.extend(line.chars().rev());
        self.value_end = None;
    }

    /// Next statement or command of the line; none if more lines are needed.
    pub(super) fn take(&mut self, lookup: &Lookup<'_>) -> Option<Item> {
        while let Some(letter) = self.input.pop() {
            if self.place == Place::Plain {
                if let Some(item) = self.plain(letter, lookup) {
                    return Some(item);
                }
            } else {
                self.quoted(letter);
            }
        }
        None
    }

    /// Statement being typed, if it has more than blanks and comments; it is removed.
    pub(super) fn take_statement(&mut self) -> Option<String> {
        let text = std::mem::take(&mut self.text);
        let is_begun = self.is_begun;
        self.clear();
        is_begun.then(|| text.trim_end().to_owned())
    }

    /// Text of the statement being typed.
    pub(super) fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// Forgets the statement being typed, but not the rest of the line.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.place = Place::Plain;
        self.depth = 0;
        self.is_begun = false;
    }

    /// True between statements: a word such as `quit` would begin a line.
    pub(super) fn is_blank(&self) -> bool {
        !self.is_begun && self.place == Place::Plain
    }

    /// Letter of the prompt that says what is open.
    pub(super) fn mark(&self) -> char {
        match self.place {
            Place::Literal { .. } => '\'',
            Place::Identifier => '"',
            Place::Dollar { .. } => '$',
            Place::Comment(_) => '*',
            Place::Plain | Place::LineComment if self.depth > 0 => '(',
            Place::Plain | Place::LineComment if self.is_begun => '-',
            Place::Plain | Place::LineComment => '=',
        }
    }

    /// Reads a letter outside quotes and comments.
    fn plain(&mut self, letter: char, lookup: &Lookup<'_>) -> Option<Item> {
        let following = self.input.last().copied();
        match letter {
            ';' if self.depth == 0 => {
                return self.take_statement().map(Item::Statement);
            }
            '\\' => return Some(self.command(lookup)),
            ':' => {
                self.colon(lookup);
                return None;
            }
            '-' if following == Some('-') => self.place = Place::LineComment,
            '/' if following == Some('*') => {
                self.text.push(letter);
                self.input.pop();
                self.text.push('*');
                self.place = Place::Comment(1);
                return None;
            }
            '\'' => self.place = Place::Literal { escapes: self.has_escapes() },
            '"' => self.place = Place::Identifier,
            '$' if !self.text.ends_with(is_of_name) => {
                if let Some(tag) = self.dollar_tag() {
                    self.input.truncate(self.input.len() - tag.chars().count() - 1);
                    let mark = format!("${tag}$");
                    self.text.push_str(&mark);
                    self.place = Place::Dollar { mark, body: self.text.len() };
                    self.is_begun = true;
                    return None;
                }
            }
            '(' => self.depth += 1,
            ')' => self.depth = self.depth.saturating_sub(1),
            _ if letter.is_whitespace() => {
                // Statements begin with their first word: lines of errors are counted from there.
                if !self.text.is_empty() {
                    self.text.push(letter);
                }
                return None;
            }
            _ => {}
        }
        self.text.push(letter);
        self.is_begun |= self.place != Place::LineComment;
        None
    }

    /// Reads a letter within quotes or a comment.
    fn quoted(&mut self, letter: char) {
        self.text.push(letter);
        let following = self.input.last().copied();
        // A pair of letters that belongs together: a doubled quote, an escape, an end of a comment.
        let mut is_pair = false;
        let is_over = match &mut self.place {
            Place::Plain => false,
            Place::Literal { escapes } => {
                is_pair = (*escapes && letter == '\\' && following.is_some())
                    || (letter == '\'' && following == Some('\''));
                letter == '\'' && !is_pair
            }
            Place::Identifier => letter == '"',
            Place::Dollar { mark, body } => {
                letter == '$' && self.text.get(*body..).is_some_and(|text| text.ends_with(&**mark))
            }
            Place::Comment(depth) => {
                let opens = letter == '/' && following == Some('*');
                let closes = letter == '*' && following == Some('/');
                is_pair = opens || closes;
                *depth = if opens { *depth + 1 } else { *depth - usize::from(closes) };
                *depth == 0
            }
            Place::LineComment => letter == '\n',
        };
        if is_pair && let Some(second) = self.input.pop() {
            self.text.push(second);
        }
        if is_over {
            self.place = Place::Plain;
        }
    }

    /// True if the quote that follows the text begins a string with escapes.
    fn has_escapes(&self) -> bool {
        self.text
            .strip_suffix(['e', 'E'])
            .is_some_and(|before| !before.ends_with(|letter| is_of_name(letter) || letter == '$'))
    }

    /// Tag of a dollar quote whose first dollar was read; none if it is something else.
    fn dollar_tag(&self) -> Option<String> {
        let mut tag = String::new();
        for letter in self.input.iter().rev() {
            match letter {
                '$' => return Some(tag),
                letter if tag.is_empty() && letter.is_numeric() => return None,
                letter if is_of_name(*letter) => tag.push(*letter),
                _ => return None,
            }
        }
        None
    }

    /// Reads what follows a colon: a variable, a cast, or something else.
    fn colon(&mut self, lookup: &Lookup<'_>) {
        if self.input.last() == Some(&':') {
            self.input.pop();
            self.text.push_str("::");
        } else if let Some((value, is_quoted)) = self.variable(lookup) {
            if is_quoted {
                self.text.push_str(&value);
            } else {
                self.value_end = Some(self.input.len());
                self.input.extend(value.chars().rev());
                return;
            }
        } else {
            self.text.push(':');
        }
        self.is_begun = true;
    }

    /// Value of the variable whose colon was read, and true if it is quoted; nothing is read if it is not set.
    fn variable(&mut self, lookup: &Lookup<'_>) -> Option<(String, bool)> {
        let is_of_value = self.value_end.is_some_and(|end| self.input.len() >= end);
        if is_of_value {
            return None;
        }
        let quote = self.input.last().copied().filter(|letter| matches!(letter, '\'' | '"'));
        let start = usize::from(quote.is_some());
        let name: String =
            self.input.iter().rev().skip(start).take_while(|letter| is_of_name(**letter)).collect();
        let mut length = start + name.chars().count();
        if let Some(quote) = quote {
            let end = self.input.len().checked_sub(length + 1)?;
            if self.input.get(end) != Some(&quote) {
                return None;
            }
            length += 1;
        }
        let value = lookup(&name).filter(|_| !name.is_empty())?;
        self.input.truncate(self.input.len() - length);
        Some(match quote {
            Some('\'') => (super::quote_literal(&value), true),
            Some(_) => (super::quote(&value), true),
            None => (value, false),
        })
    }

    /// Reads a command whose backslash was read.
    fn command(&mut self, lookup: &Lookup<'_>) -> Item {
        let mut name = String::new();
        while let Some(letter) = self.input.last().copied()
            && !letter.is_whitespace()
            && (letter != '\\' || name.is_empty())
        {
            self.input.pop();
            name.push(letter);
        }
        let is_pipe = matches!(name.as_str(), "o" | "out" | "g" | "gx")
            && self.input.iter().rev().find(|letter| !letter.is_whitespace()) == Some(&'|');
        if is_pipe || WHOLE_LINE.contains(&name.as_str()) {
            let line: String = std::mem::take(&mut self.input).into_iter().rev().collect();
            return Item::Command(name, vec![line.trim().to_owned()]);
        }
        let mut arguments = Vec::new();
        loop {
            match self.argument(lookup) {
                Ok(Some(argument)) => arguments.push(argument),
                Ok(None) => return Item::Command(name, arguments),
                Err(message) => {
                    self.input.clear();
                    return Item::Malformed(format!("\\{name}: {message}"));
                }
            }
        }
    }

    /// Next argument of a command; none before the end of the line or another command.
    fn argument(&mut self, lookup: &Lookup<'_>) -> Result<Option<String>, &'static str> {
        while self.input.last().is_some_and(|letter| letter.is_whitespace() && *letter != '\n') {
            self.input.pop();
        }
        let mut argument = None;
        while let Some(letter) = self.input.last().copied() {
            if letter.is_whitespace() || (letter == '\\' && argument.is_some()) {
                break;
            }
            if letter == '\\' {
                // Two backslashes end the arguments; one begins the next command.
                if self.input.len() >= 2 && self.input.get(self.input.len() - 2) == Some(&'\\') {
                    self.input.truncate(self.input.len() - 2);
                }
                break;
            }
            self.input.pop();
            let word: &mut String = argument.get_or_insert_default();
            match letter {
                '\'' => self.argument_literal(word)?,
                '"' => self.argument_name(word)?,
                ':' => match self.variable(lookup) {
                    Some((value, _)) => word.push_str(&value),
                    None => word.push(letter),
                },
                _ => word.push(letter),
            }
        }
        Ok(argument)
    }

    /// Adds a string in single quotes to an argument, without the quotes.
    fn argument_literal(&mut self, word: &mut String) -> Result<(), &'static str> {
        while let Some(letter) = self.input.pop() {
            match (letter, self.input.last()) {
                ('\'', Some('\'')) => {
                    self.input.pop();
                    word.push('\'');
                }
                ('\'', _) => return Ok(()),
                ('\\', Some(escape)) => {
                    word.push(match escape {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        letter => *letter,
                    });
                    self.input.pop();
                }
                ('\n', _) => break,
                _ => word.push(letter),
            }
        }
        Err("a quoted string is not closed")
    }

    /// Adds a name in double quotes to an argument, with the quotes.
    fn argument_name(&mut self, word: &mut String) -> Result<(), &'static str> {
        word.push('"');
        while let Some(letter) = self.input.pop().filter(|letter| *letter != '\n') {
            word.push(letter);
            if letter == '"' {
                return Ok(());
            }
        }
        Err("a quoted name is not closed")
    }
}

/// True for letters of names, and of names of variables.
fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    /// All items of a text, and what remains.
    fn split(text: &str, lookup: &Lookup<'_>) -> (Vec<Item>, Splitter) {
        let mut splitter = Splitter::default();
        let mut items = Vec::new();
        for line in text.lines() {
            splitter.feed(line);
            while let Some(item) = splitter.take(lookup) {
                items.push(item);
            }
        }
        (items, splitter)
    }

    fn statement(text: &str) -> Item {
        Item::Statement(text.to_owned())
    }

    fn command(name: &str, arguments: &[&str]) -> Item {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Item::Command(name.to_owned(), arguments)
    }

    #[test]
    fn semicolons_within_quotes_comments_and_parentheses_end_no_statement() {
        for text in [
            "SELECT ';'",
            "SELECT 'it''s; so'",
            "SELECT E'a\\';b'",
            "SELECT \"a;b\"",
            "SELECT $$;$$",
            "SELECT $a$ $$;$b$; $a$",
            "SELECT /* ; /* ; */ ; */ 1",
            "SELECT (1;2)",
            "SELECT 1 -- ; no\n, 2",
            "SELECT 'a\n;b'",
            "SELECT $1, a$b$c",
            "SELECT 1::text",
        ] {
            let (items, splitter) = split(&format!("{text}; SELECT 2;"), &none);
            assert_eq!(items, [statement(text), statement("SELECT 2")], "{text}");
            assert!(splitter.is_blank());
        }
    }

    #[test]
    fn a_backslash_in_a_common_string_escapes_nothing() {
        let (items, _) = split("SELECT 'a\\'; SELECT type'b';", &none);
        assert_eq!(items, [statement("SELECT 'a\\'"), statement("SELECT type'b'")]);
    }

    #[test]
    fn the_prompt_says_what_is_open() {
        for (text, mark) in [
            ("", '='),
            ("-- a comment", '='),
            ("SELECT 1;", '='),
            ("SELECT", '-'),
            ("SELECT (", '('),
            ("SELECT 'a", '\''),
            ("SELECT \"a", '"'),
            ("SELECT $x$ $", '$'),
            ("SELECT /* (", '*'),
            ("SELECT (')'", '('),
        ] {
            let (_, splitter) = split(text, &none);
            assert_eq!(splitter.mark(), mark, "{text}");
            assert_eq!(splitter.is_blank(), mark == '=', "{text}");
        }
    }

    #[test]
    fn blanks_and_comments_alone_are_no_statement() {
        let (items, mut splitter) =
            split(";;\n  -- only a comment;\n/* and; another */ ;\n", &none);
        assert!(items.is_empty(), "{items:?}");
        assert_eq!(splitter.take_statement(), None);
        let (items, mut splitter) = split("SELECT 1; SELECT 2\n", &none);
        assert_eq!(items, [statement("SELECT 1")]);
        assert_eq!(splitter.take_statement(), Some("SELECT 2".to_owned()));
        assert_eq!(splitter.take_statement(), None);
    }

    #[test]
    fn commands_stand_between_and_after_statements() {
        let (items, splitter) =
            split("SELECT 1 \\gx\n\\x \\timing on\n\\echo a \\\\ SELECT 2;", &none);
        assert_eq!(
            items,
            [
                command("gx", &[]),
                command("x", &[]),
                command("timing", &["on"]),
                command("echo", &["a"]),
                statement("SELECT 1 \n\n SELECT 2"),
            ]
        );
        assert!(splitter.is_blank());
    }

    #[test]
    fn arguments_may_be_quoted() {
        let (items, _) =
            split("\\set a 'it''s\\n' b'c'\n\\d \"Odd name\".t\n\\g |cat > f; ls", &none);
        assert_eq!(
            items,
            [
                command("set", &["a", "it's\n", "bc"]),
                command("d", &["\"Odd name\".t"]),
                command("g", &["|cat > f; ls"]),
            ]
        );
        let (items, _) = split("\\echo 'a\n\\d \"b", &none);
        assert!(items.iter().all(|item| matches!(item, Item::Malformed(_))), "{items:?}");
        assert_eq!(items.len(), 2);
    }

    #[test]
    fn variables_are_replaced_outside_quotes_and_never_twice() {
        let lookup = |name: &str| match name {
            "t" => Some("events".to_owned()),
            "s" => Some("it's".to_owned()),
            "loop" => Some(":loop:t".to_owned()),
            "two" => Some("1; SELECT 2".to_owned()),
            _ => None,
        };
        for (text, expected) in [
            ("SELECT :t;", vec!["SELECT events"]),
            ("SELECT :'s', :\"t\";", vec!["SELECT 'it''s', \"events\""]),
            (
                "SELECT ':t', a::t, :none, :'none', a[1:2];",
                vec!["SELECT ':t', a::t, :none, :'none', a[1:2]"],
            ),
            ("SELECT :loop:t;", vec!["SELECT :loop:tevents"]),
            ("SELECT :two;", vec!["SELECT 1", "SELECT 2"]),
        ] {
            let expected: Vec<Item> = expected.into_iter().map(statement).collect();
            assert_eq!(split(text, &lookup).0, expected, "{text}");
        }
        assert_eq!(
            split("\\echo :t :'s' ':t'", &lookup).0,
            [command("echo", &["events", "'it''s'", ":t"])]
        );
    }

    #[test]
    fn a_discarded_statement_leaves_nothing_behind() {
        let (_, mut splitter) = split("SELECT (1, 'a", &none);
        splitter.clear();
        assert!(splitter.is_blank());
        assert_eq!(splitter.text(), "");
        splitter.feed("SELECT 1;");
        assert_eq!(splitter.take(&none), Some(statement("SELECT 1")));
    }
}
