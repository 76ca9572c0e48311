//! What is shown while a run goes on: a line of figures, and below it the picture so far.
//!
//! Invariants: on a terminal the block is drawn over itself, elsewhere there is a line now and then; it goes to standard
//! error, so that standard output holds results only.

use std::io::{IsTerminal, Write};

use partita_heatmap::{Ansi, Heatmap, Ink, Mode, Theme, ansi};
use partita_hotspot::metrics::Second;

/// Lines of the picture's map.
const MAP_LINES: usize = 8;
/// Seconds between lines where nothing can be drawn over.
const LINE_EVERY_S: u64 = 10;
const WIDTH: usize = 100;

/// See the head of the file.
pub(super) struct Live {
    terminal: bool,
    ink: Ink,
    width: usize,
    /// Lines that are drawn over next time.
    drawn: usize,
}

impl Live {
    /// For this process's standard error.
    pub(super) fn new() -> Self {
        let says = |name: &str, words: [&str; 2]| {
            std::env::var(name).is_ok_and(|value| words.iter().any(|word| value.contains(word)))
        };
        let ink = if says("COLORTERM", ["truecolor", "24bit"]) { Ink::True } else { Ink::Indexed };
        let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = std::io::stderr().is_terminal();
        Self { terminal, ink, width: width.unwrap_or(WIDTH), drawn: 0 }
    }

    /// A line that stays.
    pub(super) fn say(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
        self.drawn = 0;
    }

    /// Whether a picture would be shown.
    pub(super) fn wants_picture(&self) -> bool {
        self.terminal
    }

    /// A second of a run.
    pub(super) fn second(&mut self, name: &str, of: u64, second: &Second, map: Option<&Heatmap>) {
        let line = line(name, of, second);
        if !self.terminal {
            if second.second.is_multiple_of(LINE_EVERY_S) || second.second == of {
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
            // Without its own lines of figures.
            block.extend(ansi(map, drawn).lines().skip(2).take(MAP_LINES + 1).map(str::to_owned));
        }
        let up = if self.drawn > 0 { format!("\x1b[{}A", self.drawn) } else { String::new() };
        let text: String = block.iter().map(|line| format!("\r\x1b[K{line}\n")).collect();
        self.drawn = block.len().max(self.drawn);
        // A block that got shorter leaves nothing of the longer one.
        let rest = "\r\x1b[K\n".repeat(self.drawn - block.len());
        self.write(&format!("{up}{text}{rest}"));
    }

    fn write(&self, text: &str) {
        // Nobody is served by a run that fails because its progress cannot be shown.
        let mut to = std::io::stderr();
        to.write_all(text.as_bytes()).and_then(|()| to.flush()).ok();
    }
}

fn line(name: &str, of: u64, second: &Second) -> String {
    let share = |own: f64, all: f64| if all > 0.0 { own / all * 100.0 } else { 0.0 };
    format!(
        "{name} {:>3}/{of} s  {:>6.0} of {:.0} rows/s ({:>3.0} %)  N_eff {:.1} of {}  splits {} ({} in vain)  p99 {:.0} ms  {}",
        second.second,
        second.served,
        second.offered,
        share(second.served, second.offered),
        second.n_eff,
        second.partitions,
        second.splits_load + second.splits_isolate + second.splits_size,
        second.splits_in_vain,
        second.p99_ms,
        second.verdict.unwrap_or("-")
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
            verdict: Some("MOVING_RIGHT"),
            ..Second::default()
        };
        let line = line("ts-uid", 60, &second);
        for said in ["12/60 s", "1000 of 3000 rows/s ( 33 %)", "N_eff 1.0 of 8", "MOVING_RIGHT"] {
            assert!(line.contains(said), "{said} in {line}");
        }
    }
}
