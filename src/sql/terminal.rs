//! Lines that a user types: editing, history, completion.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::complete::Names;
use super::history;
use super::session::{Line, Lines};

/// Maximum lines of history.
const HISTORY_MAX: usize = 10_000;

/// Completes words for the editor.
#[derive(Default)]
struct Assistant {
    names: Names,
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.names.complete(line, position))
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Highlighter for Assistant {}

impl Validator for Assistant {}

impl Helper for Assistant {}

/// Terminal of a user.
pub(super) struct Terminal {
    editor: Editor<Assistant, DefaultHistory>,
    /// File of the history; none if there is none, or it cannot be written.
    history: Option<PathBuf>,
}

impl Terminal {
    /// Opens the terminal, with the history of earlier sessions.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub(super) fn open(history: Option<PathBuf>) -> anyhow::Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_MAX)?
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Assistant::default()));
        let mut terminal = Self { editor, history };
        if let Some(path) = &terminal.history {
            let read = history::protect(path)
                .map_err(anyhow::Error::from)
                .and_then(|()| terminal.editor.load_history(path).map_err(anyhow::Error::from));
            if let Err(error) = read {
                super::complain(&format!("no history: {}: {error}", path.display()));
                terminal.history = None;
            }
        }
        Ok(terminal)
    }
}

impl Lines for Terminal {
    fn read_line(&mut self, prompt: &str) -> anyhow::Result<Line> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Line::Text(line)),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(error.into()),
        }
    }

    fn remember(&mut self, entry: &str) {
        if !history::is_kept(entry) {
            return;
        }
        // Written at once, so that it survives however the session ends.
        let added = self.editor.add_history_entry(entry);
        let Some(path) = &self.history else { return };
        if let Err(error) = added.and_then(|_| self.editor.append_history(path)) {
            super::complain(&format!("no history: {}: {error}", path.display()));
            self.history = None;
        }
    }

    fn learn(&mut self, names: Names) {
        if let Some(assistant) = self.editor.helper_mut() {
            assistant.names = names;
        }
    }

    fn size(&mut self) -> Option<(usize, usize)> {
        let (columns, lines) = self.editor.dimensions()?;
        Some((usize::from(columns), usize::from(lines)))
    }

    fn is_interactive(&self) -> bool {
        true
    }
}
