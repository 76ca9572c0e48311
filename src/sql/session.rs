//! A session of the shell: statements and commands of a terminal, a file or an argument, one after another.
//!
//! ```text
//!   Lines ── Splitter ──┬── statements ── Door ── Printer ── Screen
//!                       └── commands (settings, listings, files)
//! ```
//!
//! Lines, door and screen come from outside: tests drive a session without a terminal.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::command::{self, Command, Setting, Target};
use super::complete::Names;
use super::describe::Relation;
use super::failure::Failure;
use super::format::{Format, Kind, Printer, Row, Style};
use super::help;
use super::input::{Item, Splitter};
use super::screen::Screen;
use super::wire::{Data, Door, Message};

/// Maximum depth of files that run files.
const FILES_DEEP: usize = 16;

/// Line of the input.
pub(super) enum Line {
    Text(String),
    /// Ctrl-C at the prompt.
    Interrupted,
    End,
}

/// Source of lines.
pub(super) trait Lines {
    /// Next line, without its line feed.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read_line(&mut self, prompt: &str) -> anyhow::Result<Line>;
    /// Keeps an entry in the history.
    fn remember(&mut self, _entry: &str) {}
    /// Takes the names that can be completed.
    fn learn(&mut self, _names: Names) {}
    /// Columns and lines of the terminal, if it is one.
    fn size(&mut self) -> Option<(usize, usize)> {
        None
    }
    /// True if a user types the lines.
    fn is_interactive(&self) -> bool {
        false
    }
}

/// Lines of a file or of standard input.
pub(super) struct Reader<R>(pub(super) R);

impl<R: BufRead> Lines for Reader<R> {
    fn read_line(&mut self, _prompt: &str) -> anyhow::Result<Line> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Ok(Line::End);
        }
        line.truncate(line.trim_end_matches('\n').len());
        line.truncate(line.trim_end_matches('\r').len());
        Ok(Line::Text(line))
    }
}

/// Why a source of lines is not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All was read.
    Done,
    /// `\q`
    Quit,
    /// A statement failed, and the variable `ON_ERROR_STOP` is set.
    Failed,
    /// The connection of a script is gone.
    Lost,
    /// Ctrl-C ended a statement of a script.
    Interrupted,
}

/// State of the shell.
pub(super) struct Session<D> {
    pub(super) door: D,
    pub(super) screen: Screen,
    style: Style,
    is_timed: bool,
    has_pager: bool,
    variables: BTreeMap<String, String>,
    /// Last statement that was run.
    previous: String,
    /// Depth of files that run files.
    depth: usize,
    /// True if names are to be read again for completion.
    is_stale: bool,
}

impl<D: Door> Session<D> {
    pub(super) fn new(
        door: D,
        screen: Screen,
        style: Style,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self {
            door,
            screen,
            style,
            is_timed: false,
            has_pager: true,
            variables,
            previous: String::new(),
            depth: 0,
            is_stale: true,
        }
    }

    /// True if Ctrl-C has ended a statement since the last call.
    pub(super) fn was_interrupted(&mut self) -> bool {
        self.door.take_interrupt()
    }

    /// True if the first error ends a script.
    pub(super) fn stops_at_errors(&self) -> bool {
        let value = self.variables.get("ON_ERROR_STOP");
        value.is_some_and(|value| command::boolean(value).unwrap_or(true))
    }

    /// Reads lines to their end.
    ///
    /// # Errors
    /// If lines cannot be read, or output cannot be written.
    pub(super) fn read<'a>(
        &'a mut self,
        lines: &'a mut dyn Lines,
    ) -> LocalBoxFuture<'a, anyhow::Result<Ending>> {
        self.read_lines(lines).boxed_local()
    }

    async fn read_lines(&mut self, lines: &mut dyn Lines) -> anyhow::Result<Ending> {
        let mut splitter = Splitter::default();
        // Lines since the last statement, for the history.
        let mut typed = String::new();
        loop {
            if lines.is_interactive() && std::mem::take(&mut self.is_stale) {
                lines.learn(self.names().await);
            }
            let mark = if self.door.is_closed() { '!' } else { splitter.mark() };
            let prompt = format!("{}{mark}> ", self.door.database());
            let line = match lines.read_line(&prompt)? {
                Line::Text(line) => line,
                Line::Interrupted => {
                    splitter.clear();
                    typed.clear();
                    continue;
                }
                Line::End => break,
            };
            // Words are commands only between statements, and within them they may be meant as such.
            if let Some(command) = command::parse_word(&line).filter(|_| lines.is_interactive()) {
                if splitter.is_blank() {
                    lines.remember(line.trim());
                    let ending = self.act(command, &mut splitter, lines).await?;
                    if ending != Ending::Done {
                        return Ok(ending);
                    }
                    continue;
                }
                self.screen.complain(command::WITHIN);
            }
            typed.push_str(&line);
            splitter.feed(&line);
            while let Some(item) = self.next_item(&mut splitter) {
                let ending = self.item(item, &mut splitter, lines).await?;
                if ending != Ending::Done {
                    lines.remember(typed.trim());
                    return Ok(ending);
                }
            }
            if splitter.is_blank() {
                lines.remember(typed.trim());
                typed.clear();
            } else {
                typed.push('\n');
            }
        }
        // A file may end without a semicolon.
        match splitter.take_statement().filter(|_| !lines.is_interactive()) {
            Some(text) => self.statement(&text, false, None, lines).await,
            None => Ok(Ending::Done),
        }
    }

    /// Next statement or command of the line, with the values of variables in it.
    fn next_item(&self, splitter: &mut Splitter) -> Option<Item> {
        splitter.take(&|name| self.variables.get(name).cloned())
    }

    async fn item(
        &mut self,
        item: Item,
        splitter: &mut Splitter,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<Ending> {
        match item {
            Item::Statement(text) => self.statement(&text, false, None, lines).await,
            Item::Malformed(message) => Ok(self.fail(&message)),
            Item::Command(name, arguments) => {
                self.act(command::parse(&name, arguments), splitter, lines).await
            }
        }
    }

    /// Reports an error of the shell's own.
    fn fail(&mut self, message: &str) -> Ending {
        self.screen.complain(message);
        if self.stops_at_errors() { Ending::Failed } else { Ending::Done }
    }

    /// Runs a text as one request, as `-c` does; true if it succeeded.
    ///
    /// # Errors
    /// If output cannot be written.
    pub(super) async fn run_all(
        &mut self,
        text: &str,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<bool> {
        if text.trim_start().starts_with('\\') {
            let mut line = Reader(text.as_bytes());
            let stops = self.variables.insert("ON_ERROR_STOP".to_owned(), "on".to_owned());
            let ending = self.read(&mut line).await?;
            match stops {
                Some(value) => self.variables.insert("ON_ERROR_STOP".to_owned(), value),
                None => self.variables.remove("ON_ERROR_STOP"),
            };
            return Ok(matches!(ending, Ending::Done | Ending::Quit));
        }
        self.attempt(text, false, None, lines).await
    }

    /// Runs a statement; the ending if nothing more is to be read after it.
    async fn statement(
        &mut self,
        text: &str,
        is_expanded: bool,
        target: Option<&Target>,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<Ending> {
        text.clone_into(&mut self.previous);
        let has_succeeded = self.attempt(text, is_expanded, target, lines).await?;
        if lines.is_interactive() {
            self.door.take_interrupt();
            return Ok(Ending::Done);
        }
        Ok(if self.door.take_interrupt() {
            Ending::Interrupted
        } else if self.door.is_closed() {
            Ending::Lost
        } else if !has_succeeded && self.stops_at_errors() {
            Ending::Failed
        } else {
            Ending::Done
        })
    }

    /// Runs a statement and prints what it returns; true if it succeeded.
    async fn attempt(
        &mut self,
        text: &str,
        is_expanded: bool,
        target: Option<&Target>,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<bool> {
        // The server may have been started again since the last statement.
        if self.door.is_closed() && lines.is_interactive() && !self.reconnect().await {
            return Ok(false);
        }
        if let Err(error) = self.screen.begin(target, lines.size().filter(|_| self.has_pager)) {
            self.screen.complain(&format!("cannot open the output: {error}"));
            return Ok(false);
        }
        let started = Instant::now();
        let style = Style {
            is_expanded: self.style.is_expanded || is_expanded,
            is_escaped: self.style.is_escaped && self.screen.is_direct(),
            ..self.style.clone()
        };
        let kinds =
            if style.format == Format::Json { self.door.kinds(text).await } else { Vec::new() };
        let copy = copied(text);
        let result = if copy == Some(Copied::In) {
            self.copy_in(text, style, lines).await
        } else {
            self.show(text, copy.is_some(), style, kinds).await
        };
        self.screen.end()?;
        self.is_stale |= changes_names(text);
        let has_succeeded = result.is_ok();
        match result {
            Ok(written) => written?,
            Err(failure) => {
                self.screen.complain(&failure.describe(text));
                if failure.is_lost && lines.is_interactive() {
                    self.reconnect().await;
                }
            }
        }
        if self.is_timed {
            let millis = started.elapsed().as_secs_f64() * 1_000.0;
            self.screen.say(&format!("Time: {millis:.3} ms\n"))?;
        }
        Ok(has_succeeded)
    }

    async fn show(
        &mut self,
        text: &str,
        is_copy: bool,
        style: Style,
        kinds: Vec<Kind>,
    ) -> Result<io::Result<()>, Failure> {
        let mut printer = Printer::new(style, kinds);
        let screen = &mut self.screen;
        let mut written = Ok(());
        let mut take = |message: Message| {
            let output = match message {
                Message::Columns(columns) => {
                    printer.start(columns);
                    return;
                }
                Message::Row(row) => printer.push(row),
                Message::Done(rows) => printer.end(rows),
                Message::Copied(text) => text,
            };
            if written.is_ok() {
                written = screen.result(&output);
            }
        };
        if is_copy {
            self.door.copy_out(text, &mut take).await?;
        } else {
            self.door.run(text, &mut take).await?;
        }
        Ok(written)
    }

    async fn copy_in(
        &mut self,
        text: &str,
        style: Style,
        lines: &mut dyn Lines,
    ) -> Result<io::Result<()>, Failure> {
        let mut next = || match lines.read_line(">> ") {
            Ok(Line::Text(line)) if line == "\\." => Data::End,
            Ok(Line::Text(line)) => Data::Line(format!("{line}\n")),
            Ok(Line::End) => Data::End,
            Ok(Line::Interrupted) | Err(_) => Data::Aborted,
        };
        let rows = self.door.copy_in(text, &mut next).await?;
        Ok(self.screen.result(&Printer::new(style, Vec::new()).end(rows)))
    }

    /// Connects again; true if there is a connection.
    async fn reconnect(&mut self) -> bool {
        self.screen.complain("the connection to the server is gone; connecting again");
        let connected = self.door.connect(None).await;
        match &connected {
            Ok(()) => self.screen.complain("connected; settings of the session are the usual ones"),
            Err(failure) => self.screen.complain(&failure.describe("")),
        }
        connected.is_ok()
    }

    /// Rows of a query of the shell itself.
    async fn rows(&mut self, query: &str) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        let mut take = |message: Message| {
            if let Message::Row(row) = message {
                rows.push(row);
            }
        };
        self.door.run(query, &mut take).await?;
        Ok(rows)
    }

    /// Names for completion; none if the server refuses them.
    async fn names(&mut self) -> Names {
        let mut names = Names::default();
        for row in self.rows(Names::QUERY).await.unwrap_or_default() {
            names.add(&row);
        }
        names
    }

    async fn act(
        &mut self,
        command: Command,
        splitter: &mut Splitter,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<Ending> {
        match command {
            Command::Quit => return Ok(Ending::Quit),
            Command::Help => self.screen.say(&format!("{}\n", help::HELP))?,
            Command::SqlHelp(topic) => {
                self.screen.say(&format!("{}\n", help::statements(&topic)))?;
            }
            Command::Reset => splitter.clear(),
            Command::Print => {
                let text =
                    if splitter.is_blank() { self.previous.as_str() } else { splitter.text() };
                self.screen.say(&format!("{text}\n"))?;
            }
            Command::List { listing, pattern, is_verbose } => {
                return match listing.query(&pattern, is_verbose) {
                    Ok(query) => self.list(listing.title(), &query, lines).await,
                    Err(message) => Ok(self.fail(&message)),
                };
            }
            Command::Describe { pattern, is_verbose } => {
                return self.describe(&pattern, is_verbose, lines).await;
            }
            Command::Set(setting) => self.set(setting, lines)?,
            Command::ShowSettings => {
                let text = self.settings();
                self.screen.say(&text)?;
            }
            Command::Output(target) => {
                if let Err(error) = self.screen.redirect(target.as_ref()) {
                    return Ok(self.fail(&format!("\\o: {error}")));
                }
            }
            Command::Include(path) => return self.include(&path).await,
            Command::Connect(database) => return self.connect(database).await,
            Command::ShowVariables => {
                let lines =
                    self.variables.iter().map(|(name, value)| format!("{name} = '{value}'\n"));
                let text: String = lines.collect();
                self.screen.say(&text)?;
            }
            Command::Assign(name, value) => {
                self.variables.insert(name, value);
            }
            Command::Unset(name) => {
                self.variables.remove(&name);
            }
            Command::Echo { text, has_line_feed, is_result } => {
                let text = if has_line_feed { format!("{text}\n") } else { text };
                if is_result { self.screen.result(&text)? } else { self.screen.say(&text)? }
            }
            Command::Go { is_expanded, target } => {
                let text = splitter.take_statement().unwrap_or_else(|| self.previous.clone());
                if !text.is_empty() {
                    return self.statement(&text, is_expanded, target.as_ref(), lines).await;
                }
            }
            Command::Watch { interval, runs } => {
                let text = splitter.take_statement().unwrap_or_else(|| self.previous.clone());
                if text.is_empty() {
                    return Ok(self.fail("\\watch cannot be used with an empty query"));
                }
                return self.watch(&text, interval, runs, lines).await;
            }
            Command::Invalid(message) => return Ok(self.fail(&message)),
        }
        Ok(Ending::Done)
    }

    /// Runs a statement again and again, until it fails or Ctrl-C ends it.
    async fn watch(
        &mut self,
        text: &str,
        interval: Duration,
        runs: Option<u64>,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<Ending> {
        text.clone_into(&mut self.previous);
        // Ctrl-C of an earlier listing is not for this one.
        self.door.take_interrupt();
        let mut count = 0;
        loop {
            let seconds = interval.as_secs_f64();
            self.screen.result(&format!("(every {seconds} s)\n"))?;
            let has_succeeded = self.attempt(text, false, None, lines).await?;
            count += 1;
            let is_last = runs.is_some_and(|runs| count >= runs);
            let is_interrupted = self.door.take_interrupt();
            if !has_succeeded && !is_interrupted {
                return Ok(if self.stops_at_errors() { Ending::Failed } else { Ending::Done });
            }
            if is_last || is_interrupted || self.door.pause(interval).await {
                return Ok(Ending::Done);
            }
        }
    }

    async fn include(&mut self, path: &Path) -> anyhow::Result<Ending> {
        if self.depth >= FILES_DEEP {
            return Ok(self.fail(&format!("\\i: files are nested more than {FILES_DEEP} deep")));
        }
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) => return Ok(self.fail(&format!("{}: {error}", path.display()))),
        };
        self.depth += 1;
        let mut lines = Reader(io::BufReader::new(file));
        let ending = self.read(&mut lines).await;
        self.depth -= 1;
        // `\q` ends the file only.
        Ok(match ending? {
            Ending::Quit => Ending::Done,
            ending => ending,
        })
    }

    async fn connect(&mut self, database: Option<String>) -> anyhow::Result<Ending> {
        if let Some(database) = &database {
            if let Err(failure) = self.door.connect(Some(database.as_str())).await {
                let message = failure.describe("");
                return Ok(self.fail(&format!("{message}\nthe former connection is kept")));
            }
            self.is_stale = true;
        }
        let text = format!("you are connected to database \"{}\"\n", self.door.database());
        self.screen.say(&text)?;
        Ok(Ending::Done)
    }

    async fn list(
        &mut self,
        title: &str,
        query: &str,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<Ending> {
        if !self.style.has_tuples_only && self.style.format == Format::Aligned {
            self.screen.result(&format!("{title}\n"))?;
        }
        let has_succeeded = self.attempt(query, false, None, lines).await?;
        let stops = !has_succeeded && self.stops_at_errors();
        Ok(if stops { Ending::Failed } else { Ending::Done })
    }

    /// Describes all relations that match a pattern.
    async fn describe(
        &mut self,
        pattern: &str,
        is_verbose: bool,
        lines: &mut dyn Lines,
    ) -> anyhow::Result<Ending> {
        let rows = match Relation::query(pattern) {
            Ok(query) => self.rows(&query).await,
            Err(message) => return Ok(self.fail(&message)),
        };
        let relations: Vec<Relation> = match rows {
            Ok(rows) => rows.iter().filter_map(|row| Relation::of_row(row)).collect(),
            Err(failure) => return Ok(self.fail(&failure.describe(""))),
        };
        if relations.is_empty() {
            return Ok(self.fail(&format!("Did not find any relation named \"{pattern}\".")));
        }
        for relation in relations {
            let columns = relation.columns(is_verbose);
            let ending = self.list(&relation.title(), &columns, lines).await?;
            if ending != Ending::Done {
                return Ok(ending);
            }
            for (label, query) in relation.footers(is_verbose) {
                let rows = match self.rows(&query).await {
                    Ok(rows) => rows,
                    Err(failure) => return Ok(self.fail(&failure.describe(&query))),
                };
                // The last value of a row: SHOW CREATE has the name before the statement.
                let values = rows.iter().filter_map(|row| row.last()?.as_deref());
                let texts: Vec<String> =
                    values.map(|text| format!("    {}\n", text.replace('\n', "\n    "))).collect();
                if !texts.is_empty() {
                    let text = super::format::printable(&texts.concat());
                    self.screen.result(&format!("{label}\n{text}"))?;
                }
            }
        }
        self.screen.end()?;
        Ok(Ending::Done)
    }

    fn set(&mut self, setting: Setting, lines: &dyn Lines) -> io::Result<()> {
        let style = &mut self.style;
        match setting {
            Setting::Format(format) => style.format = format,
            Setting::SwitchAligned => {
                let is_aligned = style.format == Format::Aligned;
                style.format = if is_aligned { Format::Unaligned } else { Format::Aligned };
            }
            Setting::Expanded(value) => style.is_expanded = value.unwrap_or(!style.is_expanded),
            Setting::TuplesOnly(value) => {
                style.has_tuples_only = value.unwrap_or(!style.has_tuples_only);
            }
            Setting::Timing(value) => self.is_timed = value.unwrap_or(!self.is_timed),
            Setting::Pager(value) => self.has_pager = value.unwrap_or(!self.has_pager),
            Setting::Null(text) => style.null = Some(text),
            Setting::Separator(text) => style.separator = text,
        }
        // Scripts want their results only.
        if !lines.is_interactive() {
            return Ok(());
        }
        let text = self.settings();
        self.screen.say(&text)
    }

    fn settings(&self) -> String {
        let state = |value: bool| if value { "on" } else { "off" };
        format!(
            "format {}, expanded {}, tuples_only {}, pager {}, timing {}, fieldsep '{}', null {}\n",
            self.style.format.name(),
            state(self.style.is_expanded),
            state(self.style.has_tuples_only),
            state(self.has_pager),
            state(self.is_timed),
            self.style.separator,
            self.style.null.as_ref().map_or("as usual".to_owned(), |text| format!("'{text}'")),
        )
    }
}

/// Directions of COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    In,
    Out,
}

/// Direction of a statement that is a COPY of the client.
fn copied(text: &str) -> Option<Copied> {
    let mut words = words_of(text);
    if words.next()? != "COPY" {
        return None;
    }
    let words: Vec<String> = words.collect();
    words.windows(2).find_map(|pair| match pair {
        [first, second] if first == "FROM" && second == "STDIN" => Some(Copied::In),
        [first, second] if first == "TO" && second == "STDOUT" => Some(Copied::Out),
        _ => None,
    })
}

/// True if a statement may change the names of tables and columns.
fn changes_names(text: &str) -> bool {
    let first = words_of(text).next().unwrap_or_default();
    ["CREATE", "ALTER", "DROP", "USE", "SET"].contains(&first.as_str())
}

/// Words of a statement in upper case, without the comments before it.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let mut text = text.trim_start();
    loop {
        let end = if text.starts_with("--") {
            text.find('\n')
        } else if text.starts_with("/*") {
            text.find("*/").map(|index| index + 1)
        } else {
            break;
        };
        text = end.and_then(|end| text.get(end + 1..)).unwrap_or_default().trim_start();
    }
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.filter(|word| !word.is_empty()).map(str::to_uppercase)
}

#[cfg(test)]
mod tests;
