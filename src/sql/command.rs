//! The shell's own commands: the usual ones of psql.

use std::path::PathBuf;
use std::time::Duration;

use super::describe::Listing;
use super::format::Format;

/// Seconds between two runs of `\watch`.
const WATCH_SECONDS: f64 = 2.0;
/// Maximum seconds between two runs of `\watch`.
const WATCH_SECONDS_MAX: f64 = 86_400.0;

/// A command to the shell rather than the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    /// End the session.
    Quit,
    /// List the commands.
    Help,
    /// List the statements, or those that begin with some words.
    SqlHelp(String),
    /// Discard the statement being typed.
    Reset,
    /// Print the statement being typed, or the last one.
    Print,
    /// List what matches a pattern.
    List { listing: Listing, pattern: String, is_verbose: bool },
    /// Describe the relations that match a pattern.
    Describe { pattern: String, is_verbose: bool },
    /// Change a setting of the output.
    Set(Setting),
    /// Print the settings of the output.
    ShowSettings,
    /// Send results elsewhere until the next such command; without a target to standard output.
    Output(Option<Target>),
    /// Read statements and commands from a file.
    Include(PathBuf),
    /// Connect to a database; without a name, report the connection.
    Connect(Option<String>),
    /// Print all variables.
    ShowVariables,
    /// Set a variable.
    Assign(String, String),
    /// Remove a variable.
    Unset(String),
    /// Print a text, to the results or to standard output.
    Echo { text: String, has_line_feed: bool, is_result: bool },
    /// Run the statement being typed, or the last one.
    Go { is_expanded: bool, target: Option<Target> },
    /// Run it again and again.
    Watch {
        interval: Duration,
        /// Number of runs; unlimited without one.
        runs: Option<u64>,
    },
    /// Nothing that can be run, with the message to print.
    Invalid(String),
}

/// Setting of the output and its value; without one it is switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Format(Format),
    /// `\a`: between aligned and unaligned.
    SwitchAligned,
    Expanded(Option<bool>),
    TuplesOnly(Option<bool>),
    Timing(Option<bool>),
    Pager(Option<bool>),
    Null(String),
    Separator(String),
}

/// Destination of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A file, which is replaced.
    File(PathBuf),
    /// A command of the operating system's shell.
    Pipe(String),
}

/// Hint for a user who types `quit`, `exit` or `help` within a statement.
pub(super) const WITHIN: &str =
    "a statement is being typed: ; ends it, \\r or Ctrl-C discards it, \\q ends the shell";

/// Parses one of the words `quit`, `exit` and `help`, alone in a line.
pub(super) fn parse_word(line: &str) -> Option<Command> {
    match line.trim().trim_end_matches(';').trim_end() {
        "quit" | "exit" => Some(Command::Quit),
        "help" => Some(Command::Help),
        _ => None,
    }
}

/// Parses a command whose backslash is removed.
pub(super) fn parse(name: &str, arguments: Vec<String>) -> Command {
    let parsed = Arguments::of(name, arguments).and_then(|arguments| command(name, arguments));
    parsed.unwrap_or_else(Command::Invalid)
}

/// Arguments of a command, taken one by one.
struct Arguments {
    name: String,
    remaining: std::vec::IntoIter<String>,
}

impl Arguments {
    /// # Errors
    /// If there are more arguments than the command takes.
    fn of(name: &str, mut arguments: Vec<String>) -> Result<Self, String> {
        let takes = match name {
            "set" | "echo" | "qecho" | "h" | "help" => usize::MAX,
            "pset" | "watch" => 2,
            "q" | "quit" | "?" | "r" | "reset" | "p" | "print" | "a" | "conninfo" => 0,
            _ => 1,
        };
        // Statements end with a semicolon, and so do commands of users who are used to that.
        if !matches!(name, "set" | "echo" | "qecho")
            && let Some(last) = arguments.last_mut()
            && !last.starts_with('|')
        {
            last.truncate(last.trim_end_matches(';').len());
        }
        arguments.retain(|argument| takes > 2 || !argument.is_empty() || name == "pset");
        match arguments.get(takes) {
            Some(extra) => Err(format!("\\{name}: extra argument \"{extra}\"")),
            None => Ok(Self { name: name.to_owned(), remaining: arguments.into_iter() }),
        }
    }

    fn take(&mut self) -> Option<String> {
        self.remaining.next()
    }

    fn require(&mut self) -> Result<String, String> {
        self.take().ok_or_else(|| format!("\\{}: missing required argument", self.name))
    }

    /// Value of a switch; none without an argument.
    fn switch(&mut self) -> Result<Option<bool>, String> {
        let Some(text) = self.take() else { return Ok(None) };
        match boolean(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("\\{}: \"{text}\" is neither on nor off", self.name)),
        }
    }

    fn target(&mut self) -> Option<Target> {
        self.take().map(|text| match text.strip_prefix('|') {
            Some(command) => Target::Pipe(command.trim().to_owned()),
            None => Target::File(PathBuf::from(text)),
        })
    }

    fn join(self) -> String {
        self.remaining.collect::<Vec<_>>().join(" ")
    }
}

/// Value of a switch.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

fn command(name: &str, mut arguments: Arguments) -> Result<Command, String> {
    if let Some((listing, is_verbose)) = listing(name) {
        let pattern = arguments.take().unwrap_or_default();
        return Ok(Command::List { listing, pattern, is_verbose });
    }
    Ok(match name {
        "q" | "quit" => Command::Quit,
        "?" => Command::Help,
        "h" | "help" => Command::SqlHelp(arguments.join()),
        "r" | "reset" => Command::Reset,
        "p" | "print" => Command::Print,
        "d" | "d+" | "dS" | "dS+" => {
            let is_verbose = name.ends_with('+');
            match arguments.take() {
                Some(pattern) => Command::Describe { pattern, is_verbose },
                None => Command::List {
                    listing: Listing::Relations(&['r', 'p', 'v', 'm', 'S']),
                    pattern: String::new(),
                    is_verbose,
                },
            }
        }
        "a" => Command::Set(Setting::SwitchAligned),
        "x" => Command::Set(Setting::Expanded(arguments.switch()?)),
        "t" => Command::Set(Setting::TuplesOnly(arguments.switch()?)),
        "timing" => Command::Set(Setting::Timing(arguments.switch()?)),
        "f" => Command::Set(Setting::Separator(arguments.require()?)),
        "pset" => pset(&mut arguments)?,
        "o" | "out" => Command::Output(arguments.target()),
        "i" | "include" => Command::Include(PathBuf::from(arguments.require()?)),
        "c" | "connect" => Command::Connect(arguments.take().map(|name| unquoted(&name))),
        "conninfo" => Command::Connect(None),
        "set" => match arguments.take() {
            Some(name) if is_variable(&name) => {
                // Values are put together without blanks, as psql does.
                Command::Assign(name, arguments.remaining.collect())
            }
            Some(name) => return Err(format!("\\set: invalid variable name \"{name}\"")),
            None => Command::ShowVariables,
        },
        "unset" => Command::Unset(arguments.require()?),
        "echo" | "qecho" => echo(arguments),
        "g" | "gx" => Command::Go { is_expanded: name == "gx", target: arguments.target() },
        "watch" => watch(&mut arguments)?,
        _ => return Err(format!("unknown command \\{name}; \\? lists the commands")),
    })
}

/// Listings by name; with `+` they have more columns, and `S` is accepted as psql's.
fn listing(name: &str) -> Option<(Listing, bool)> {
    let (name, is_verbose) = match name.strip_suffix('+') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let listing = match name.strip_suffix('S').unwrap_or(name) {
        "dt" => Listing::Relations(&['r', 'p']),
        "dv" => Listing::Relations(&['v']),
        "dm" => Listing::Relations(&['m']),
        "ds" => Listing::Relations(&['S']),
        "di" => Listing::Indexes,
        "dn" => Listing::Schemas,
        "df" => Listing::Functions,
        "du" | "dg" => Listing::Roles,
        "l" | "list" => Listing::Databases,
        _ => return None,
    };
    Some((listing, is_verbose))
}

fn pset(arguments: &mut Arguments) -> Result<Command, String> {
    let Some(option) = arguments.take() else { return Ok(Command::ShowSettings) };
    let setting = match option.as_str() {
        "format" => {
            let name = arguments.require()?;
            let formats = Format::ALL.iter().filter(|(format, _)| format.starts_with(&name));
            match formats.map(|(_, format)| *format).collect::<Vec<_>>()[..] {
                [format] if !name.is_empty() => Setting::Format(format),
                _ => {
                    let names: Vec<_> = Format::ALL.iter().map(|(name, _)| *name).collect();
                    return Err(format!("\\pset: allowed formats are {}", names.join(", ")));
                }
            }
        }
        "x" | "expanded" | "vertical" => Setting::Expanded(arguments.switch()?),
        "t" | "tuples_only" => Setting::TuplesOnly(arguments.switch()?),
        "pager" => Setting::Pager(arguments.switch()?),
        "null" => Setting::Null(arguments.take().unwrap_or_default()),
        "fieldsep" => Setting::Separator(arguments.require()?),
        _ => return Err(format!("\\pset: unknown option: {option}")),
    };
    Ok(Command::Set(setting))
}

fn echo(arguments: Arguments) -> Command {
    let is_result = arguments.name == "qecho";
    let mut words: Vec<String> = arguments.remaining.collect();
    let has_line_feed = words.first().is_none_or(|word| word != "-n");
    if !has_line_feed {
        words.remove(0);
    }
    Command::Echo { text: words.join(" "), has_line_feed, is_result }
}

fn watch(arguments: &mut Arguments) -> Result<Command, String> {
    let (mut seconds, mut runs) = (WATCH_SECONDS, None);
    while let Some(text) = arguments.take() {
        let (key, value) = text.split_once('=').unwrap_or(("i", text.as_str()));
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
        match (key, number) {
            ("i" | "interval", Some(number)) if (0.0..=WATCH_SECONDS_MAX).contains(&number) => {
                seconds = number;
            }
            ("c" | "count", _) => {
                let count = value.parse::<u64>().ok().filter(|count| *count > 0);
                runs = Some(count.ok_or_else(|| format!("\\watch: incorrect count \"{value}\""))?);
            }
            _ => return Err(format!("\\watch: incorrect interval value \"{value}\"")),
        }
    }
    Ok(Command::Watch { interval: Duration::from_secs_f64(seconds), runs })
}

/// True for names of variables.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// Name without the double quotes around it.
fn unquoted(name: &str) -> String {
    let inner = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    inner.map_or_else(|| name.to_owned(), |inner| inner.replace("\"\"", "\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Command {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().unwrap();
        parse(&name, words.collect())
    }

    #[test]
    fn what_people_type_in_psql_is_understood() {
        let describe = |pattern: &str, is_verbose| Command::Describe {
            pattern: pattern.to_owned(),
            is_verbose,
        };
        let list = |listing, pattern: &str, is_verbose| Command::List {
            listing,
            pattern: pattern.to_owned(),
            is_verbose,
        };
        let relations = Listing::Relations(&['r', 'p', 'v', 'm', 'S']);
        for (line, command) in [
            ("q", Command::Quit),
            ("?", Command::Help),
            ("h ALTER TABLE;", Command::SqlHelp("ALTER TABLE".to_owned())),
            ("d", list(relations, "", false)),
            ("d+", list(relations, "", true)),
            ("dt", list(Listing::Relations(&['r', 'p']), "", false)),
            ("dtS+ ev*", list(Listing::Relations(&['r', 'p']), "ev*", true)),
            ("dv", list(Listing::Relations(&['v']), "", false)),
            ("ds", list(Listing::Relations(&['S']), "", false)),
            ("di", list(Listing::Indexes, "", false)),
            ("dn", list(Listing::Schemas, "", false)),
            ("df now", list(Listing::Functions, "now", false)),
            ("du", list(Listing::Roles, "", false)),
            ("l+", list(Listing::Databases, "", true)),
            ("d events;", describe("events", false)),
            ("d+ \"Odd\"", describe("\"Odd\"", true)),
            ("c other", Command::Connect(Some("other".to_owned()))),
            ("c \"Odd\"", Command::Connect(Some("Odd".to_owned()))),
            ("c", Command::Connect(None)),
            ("x", Command::Set(Setting::Expanded(None))),
            ("x ON", Command::Set(Setting::Expanded(Some(true)))),
            ("timing off", Command::Set(Setting::Timing(Some(false)))),
            ("a", Command::Set(Setting::SwitchAligned)),
            ("pset format csv", Command::Set(Setting::Format(Format::Csv))),
            ("pset format u", Command::Set(Setting::Format(Format::Unaligned))),
            ("pset null", Command::Set(Setting::Null(String::new()))),
            ("pset", Command::ShowSettings),
            ("set", Command::ShowVariables),
            ("set a b c", Command::Assign("a".to_owned(), "bc".to_owned())),
            ("o", Command::Output(None)),
            ("o f.txt", Command::Output(Some(Target::File(PathBuf::from("f.txt"))))),
            ("i f.sql", Command::Include(PathBuf::from("f.sql"))),
            ("g", Command::Go { is_expanded: false, target: None }),
            ("gx", Command::Go { is_expanded: true, target: None }),
            ("watch", Command::Watch { interval: Duration::from_secs(2), runs: None }),
            (
                "watch 0.5 c=3",
                Command::Watch { interval: Duration::from_millis(500), runs: Some(3) },
            ),
        ] {
            assert_eq!(parsed(line), command, "{line}");
        }
    }

    #[test]
    fn commands_that_cannot_be_run_say_why() {
        for (line, message) in [
            ("nothing", "unknown command \\nothing; \\? lists the commands"),
            ("dx", "unknown command \\dx; \\? lists the commands"),
            ("i", "\\i: missing required argument"),
            ("x perhaps", "\\x: \"perhaps\" is neither on nor off"),
            ("q now", "\\q: extra argument \"now\""),
            ("c db user", "\\c: extra argument \"user\""),
            ("pset border 2", "\\pset: unknown option: border"),
            ("pset format html", "\\pset: allowed formats are aligned, csv, json, unaligned"),
            ("set a-b c", "\\set: invalid variable name \"a-b\""),
            ("watch -1", "\\watch: incorrect interval value \"-1\""),
            ("watch nan", "\\watch: incorrect interval value \"nan\""),
            ("watch c=0", "\\watch: incorrect count \"0\""),
        ] {
            assert_eq!(parsed(line), Command::Invalid(message.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_target_is_a_file_or_a_command() {
        let go = parse("g", vec!["|sort; uniq;".to_owned()]);
        let target = Some(Target::Pipe("sort; uniq;".to_owned()));
        assert_eq!(go, Command::Go { is_expanded: false, target });
    }

    #[test]
    fn an_echo_keeps_its_words() {
        let echo = |text: &str, has_line_feed, is_result| Command::Echo {
            text: text.to_owned(),
            has_line_feed,
            is_result,
        };
        assert_eq!(parsed("echo a b;"), echo("a b;", true, false));
        assert_eq!(parsed("echo -n a"), echo("a", false, false));
        assert_eq!(parsed("qecho"), echo("", true, true));
    }

    #[test]
    fn words_that_leave_are_alone_in_their_line() {
        assert_eq!(parse_word(" quit "), Some(Command::Quit));
        assert_eq!(parse_word("exit;"), Some(Command::Quit));
        assert_eq!(parse_word("help"), Some(Command::Help));
        assert_eq!(parse_word("helpful"), None);
        assert_eq!(parse_word(""), None);
    }
}
