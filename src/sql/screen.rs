//! Where results and messages go: standard output, a file, a command, or a pager.
//!
//! ```text
//!   results ──┬── \g FILE, \o FILE       until the statement ends, until the next \o
//!             ├── held back, then pager  on a terminal, if they do not fit
//!             └── standard output
//! ```
//!
//! Invariant: no more of a result is held back than fits on the screen.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::{Child, Command, Stdio};

use unicode_width::UnicodeWidthStr;

use super::command::Target;

/// Lines of the screen that the prompt needs.
const PROMPT_LINES: usize = 2;

/// Open destination.
enum Sink {
    File(BufWriter<File>),
    Process(Child),
}

impl Sink {
    fn open(target: &Target) -> io::Result<Self> {
        Ok(match target {
            Target::File(path) => Self::File(BufWriter::new(File::create(path)?)),
            Target::Pipe(command) => Self::Process(
                Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn()?,
            ),
        })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(text.as_bytes()),
            Self::Process(process) => match &mut process.stdin {
                Some(stdin) => stdin.write_all(text.as_bytes()),
                None => Ok(()),
            },
        }
    }

    /// Closes it; waits for a process.
    fn close(self) -> io::Result<()> {
        match self {
            Self::File(mut file) => file.flush(),
            Self::Process(mut process) => {
                drop(process.stdin.take());
                process.wait().map(drop)
            }
        }
    }
}

/// Output of a session.
pub(super) struct Screen {
    output: Box<dyn Write>,
    errors: Box<dyn Write>,
    /// Destination of `\o`.
    redirection: Option<Sink>,
    /// Destination of the running statement only.
    target: Option<Sink>,
    /// True if the running statement's destination does not read any more.
    is_closed: bool,
    /// Command of the pager; none without a terminal.
    pager: Option<String>,
    /// Columns and lines of the terminal.
    size: Option<(usize, usize)>,
    /// Result that may still fit on the screen.
    held: String,
}

impl Screen {
    pub(super) fn new(
        output: Box<dyn Write>,
        errors: Box<dyn Write>,
        pager: Option<String>,
    ) -> Self {
        Self {
            output,
            errors,
            redirection: None,
            target: None,
            is_closed: false,
            pager,
            size: None,
            held: String::new(),
        }
    }

    /// Sends results elsewhere until the next call.
    ///
    /// # Errors
    /// If the former destination cannot be written, or the new one cannot be opened.
    pub(super) fn redirect(&mut self, target: Option<&Target>) -> io::Result<()> {
        if let Some(former) = self.redirection.take() {
            former.close()?;
        }
        self.redirection = target.map(Sink::open).transpose()?;
        Ok(())
    }

    /// Begins the result of a statement, with its own destination or a terminal of some columns and lines.
    ///
    /// # Errors
    /// If the destination cannot be opened.
    pub(super) fn begin(
        &mut self,
        target: Option<&Target>,
        size: Option<(usize, usize)>,
    ) -> io::Result<()> {
        self.target = target.map(Sink::open).transpose()?;
        self.size = size;
        self.is_closed = false;
        Ok(())
    }

    /// True if results of the running statement go to the standard output.
    pub(super) fn is_direct(&self) -> bool {
        self.target.is_none() && self.redirection.is_none()
    }

    /// Writes a part of a result.
    ///
    /// # Errors
    /// If the destination cannot be written, unless it has ended by itself, as pagers do.
    pub(super) fn result(&mut self, text: &str) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let sink = self.target.as_mut().or(self.redirection.as_mut());
        if let Some(sink) = sink {
            return match sink.write(text) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.is_closed = true;
                    Ok(())
                }
                written => written,
            };
        }
        let (Some(pager), Some(size)) = (&self.pager, self.size) else {
            return self.output.write_all(text.as_bytes());
        };
        self.held.push_str(text);
        if fits(&self.held, size) {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        match Sink::open(&Target::Pipe(pager.clone())) {
            Ok(sink) => {
                self.target = Some(sink);
                self.result(&held)
            }
            Err(_) => {
                self.size = None;
                self.output.write_all(held.as_bytes())
            }
        }
    }

    /// Ends the result of a statement: waits until its reader has read it.
    ///
    /// # Errors
    /// If the destination cannot be written.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        self.output.write_all(held.as_bytes())?;
        self.output.flush()?;
        self.size = None;
        match self.target.take() {
            Some(sink) => sink.close(),
            None => Ok(()),
        }
    }

    /// Writes a line, or a part of one, to the standard output.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        self.output.write_all(text.as_bytes())?;
        self.output.flush()
    }

    /// Writes a message for the reader. One that cannot be written has no reader.
    pub(super) fn complain(&mut self, text: &str) {
        writeln!(self.errors, "{text}").ok();
    }
}

/// True if a text fits on a screen of some columns and lines.
fn fits(text: &str, (columns, lines): (usize, usize)) -> bool {
    let columns = columns.max(1);
    let needed: usize = text.lines().map(|line| line.width().div_ceil(columns).max(1)).sum();
    needed + PROMPT_LINES <= lines
}

/// Command of the pager: that of a variable, which may be empty, or else `less` if it is installed.
pub(super) fn pager() -> Option<String> {
    if let Ok(pager) = std::env::var("PAGER") {
        return Some(pager).filter(|pager| !pager.trim().is_empty());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).any(|dir| dir.join("less").is_file()).then(|| "less".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_fits_if_its_lines_do() {
        assert!(fits("a\nb\n", (80, 4)));
        assert!(!fits("a\nb\nc\n", (80, 4)));
        assert!(!fits(&"a".repeat(161), (80, 4)));
        assert!(fits("", (0, 2)));
    }

    #[test]
    fn a_result_that_does_not_fit_goes_to_the_pager_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paged");
        let pager = Some(format!("cat > {}", file.display()));
        let mut screen = Screen::new(Box::new(io::sink()), Box::new(io::sink()), pager);
        for (lines, is_paged) in [(2, false), (20, true)] {
            screen.begin(None, Some((80, 10))).unwrap();
            for line in 0..lines {
                screen.result(&format!("{line}\n")).unwrap();
            }
            screen.end().unwrap();
            assert_eq!(file.exists(), is_paged);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 20);
    }

    #[test]
    fn a_reader_that_ends_early_is_no_error() {
        let mut screen = Screen::new(Box::new(io::sink()), Box::new(io::sink()), None);
        screen.begin(Some(&Target::Pipe("true".to_owned())), None).unwrap();
        for _ in 0..100 {
            screen.result(&"x".repeat(10_000)).unwrap();
        }
        screen.end().unwrap();
    }
}
