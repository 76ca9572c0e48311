//! Progress of a run: a line of figures, and below it the heatmap so far.
//!
//! Invariants: on a terminal the block is redrawn in place, elsewhere a line is printed from time to time; it goes
//! to standard error, so that standard output has results only.

use std::io::{IsTerminal, Write};

use partita_heatmap::{Ansi, Heatmap, Ink, Mode, Theme, ansi};
use partita_hotspot::metrics::Second;
use partita_load::Class;

/// Height of the map, in lines.
const MAP_LINES: usize = 8;
/// Seconds between lines if the output is not a terminal.
const LINE_EVERY_S: u64 = 10;
const WIDTH: usize = 100;

/// Progress output on the terminal, or in lines.
pub(super) struct Live {
    terminal: bool,
    ink: Ink,
    width: usize,
    /// Number of lines to overwrite next time.
    drawn: usize,
}

impl Live {
    /// Progress output on this process's standard error.
    pub(super) fn new() -> Self {
        let says = |name: &str, words: [&str; 2]| {
            std::env::var(name).is_ok_and(|value| words.iter().any(|word| value.contains(word)))
        };
        let ink = if says("COLORTERM", ["truecolor", "24bit"]) { Ink::True } else { Ink::Indexed };
        let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = std::io::stderr().is_terminal();
        Self { terminal, ink, width: width.unwrap_or(WIDTH), drawn: 0 }
    }

    /// Prints a line that is not overwritten.
    pub(super) fn say(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
        self.drawn = 0;
    }

    /// True if a heatmap would be shown.
    pub(super) fn wants_picture(&self) -> bool {
        self.terminal
    }

    /// Shows a second of a run.
    pub(super) fn second(
        &mut self,
        name: &str,
        total_s: u64,
        second: &Second,
        map: Option<&Heatmap>,
    ) {
        let line = line(name, total_s, second);
        if !self.terminal {
            if second.second.is_multiple_of(LINE_EVERY_S) || second.second == total_s {
                self.say(&line);
            }
            return;
        }
        let mut block: Vec<String> = vec![line.chars().take(self.width).collect()];
        if let Some(map) = map {
            let drawn = Ansi {
                width: self.width,
                height: MAP_LINES,
                ink: self.ink,
                mode: Mode::Absolute,
                theme: Theme::Dark,
            };
            // Without the heatmap's own lines of figures.
            block.extend(ansi(map, drawn).lines().skip(2).take(MAP_LINES + 1).map(str::to_owned));
        }
        let up = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
        let text: String = block.iter().map(|line| format!("\r\x1b[K{line}\n")).collect();
        self.drawn = block.len().max(self.drawn);
        // Clears the remaining lines of a longer block.
        let rest = "\r\x1b[K\n".repeat(self.drawn - block.len());
        self.write(&format!("{up}{text}{rest}"));
    }

    fn write(&self, text: &str) {
        // A run must not fail because its progress cannot be shown.
        let mut stderr = std::io::stderr();
        stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()).ok();
    }
}

fn line(name: &str, total_s: u64, second: &Second) -> String {
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
    format!(
        "{name} {:>3}/{total_s} s  {:>6.0} of {:.0} rows/s ({:>3.0} %)  N_eff {:.1} of {}  splits {} ({} in vain)  p99 {:.0} ms  {}",
        second.second,
        second.served,
        second.offered,
        share(second.served, second.offered),
        second.n_eff,
        second.partitions,
        second.splits_load + second.splits_isolate + second.splits_size,
        second.splits_in_vain,
        second.p99_ms,
        second.verdict.map_or("-", Class::name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_served_where_and_why_not_more() {
        let second = Second {
            second: 12,
            offered: 3_000.0,
            served: 1_000.0,
            n_eff: 1.0,
            partitions: 8,
            p99_ms: 840.0,
            verdict: Some(Class::MovingRight),
            ..Second::default()
        };
        let line = line("ts-uid", 60, &second);
        for part in ["12/60 s", "1000 of 3000 rows/s ( 33 %)", "N_eff 1.0 of 8", "MOVING_RIGHT"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
