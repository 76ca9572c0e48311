//! Output of the lab: results on standard output, progress on standard error.

use std::io::{IsTerminal, Write};

use serde::Serialize;

/// Prints a line of JSON.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn say_json(value: &impl Serialize) -> anyhow::Result<()> {
    say(&serde_json::to_string(value)?)
}

/// Prints a text and a line end.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()?;
    Ok(())
}

/// Shows progress on one line of a terminal; an empty text clears the line.
pub(crate) fn progress(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A run must not fail because its progress cannot be shown.
        write!(terminal, "\r\x1b[K{text}").and_then(|()| terminal.flush()).ok();
    }
}

/// Prints a warning that the user must see, independently of the result.
pub(crate) fn warn(text: &str) {
    progress("");
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Aligns cells in columns; all but the first column to the right.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(move |line| line.get(column)).map(|c| c.chars().count())
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).max().unwrap_or(0)).collect();
    let aligned = lines.iter().map(|line| {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    aligned.collect::<Vec<_>>().join("\n")
}

/// A number with about three significant digits; without decimals from 100 on.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        size if size == 0.0 || size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.1 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// Bytes as MiB.
#[expect(clippy::cast_precision_loss, reason = "rounded anyway")]
pub(crate) fn mib(bytes: u64) -> String {
    format!("{} MiB", short(bytes as f64 / 1_048_576.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let cells = |line: &[&str]| line.iter().map(|cell| (*cell).to_owned()).collect();
        let text = align(&[cells(&["a", "long"]), cells(&["bcd", "1"])]);
        assert_eq!(text, "a    long\nbcd     1");
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [(0.0, "0"), (123_456.7, "123457"), (12.34, "12.3"), (0.5, "0.50")] {
            assert_eq!(short(number), text);
        }
    }
}
