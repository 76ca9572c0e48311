//! A page that explains the heatmaps of a run to first-time readers: Markdown with files beside it, as code hosts
//! show them.
//!
//! ```text
//!   Guide { what was written, runs } ──▶ README.md, and for each run NAME-light.svg, NAME-dark.svg (where keys lie that
//!                                        are written) and NAME-lines-light.svg, NAME-lines-dark.svg (over time)
//! ```
//!
//! Invariants: every figure is of the run, and every sentence about it follows from the run's results ([`words`]);
//! text from elsewhere is escaped, never taken as markup; every picture exists for a light and a dark background;
//! the page loads nothing from elsewhere.

mod words;

use std::fmt::Write as _;

use partita_heatmap::Theme;
use partita_load::Class;

use super::figure::{alone, latency, rates, trade_off};
use super::html::Section;
use super::shown::Shown;
use crate::metrics::Summary;
use crate::workload::Design;

/// The page's file.
const PAGE: &str = "README.md";

/// A run, and the statements that created its tables.
pub struct Guided<'a> {
    /// Results of the run.
    pub shown: &'a Shown,
    /// Prefix of its file names.
    pub slug: &'a str,
    /// Key design, if known.
    pub design: Option<Design>,
    /// Column of the entity that the rows belong to, if any.
    pub entity: Option<&'a str>,
    /// Statements that created its tables.
    pub created: &'a [String],
}

/// See the head of the file.
pub struct Guide<'a> {
    /// Text about all runs.
    pub about: &'a str,
    /// Command that wrote the page.
    pub command: &'a str,
    /// The runs, in the order of the page.
    pub runs: &'a [Guided<'a>],
    /// Additional tables.
    pub sections: &'a [Section],
    /// Topics that are not covered.
    pub not_yet: &'a [String],
}

/// A file of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Name in the page's folder.
    pub name: String,
    /// Contents.
    pub text: String,
}

/// Escapes text: characters with a meaning in Markdown or HTML are made literal.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => {
                safe.push('\\');
                safe.push(letter);
            }
            '\n' | '\r' => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Escapes text for a quoted HTML attribute.
fn quoted(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\n', " ")
}

/// A Markdown table; the first line is the header.
fn table(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().map(|cell| plain(cell)).collect();
        // Writing to a string cannot fail.
        let _ok = writeln!(text, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ok = writeln!(text, "|---|{}", "---:|".repeat(line.len().saturating_sub(1)));
        }
    }
    text
}

/// A picture in the reader's theme.
fn picture(name: &str, alt: &str) -> String {
    format!(
        "<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"{name}-dark.svg\">\n  \
         <img alt=\"{}\" src=\"{name}-light.svg\" width=\"100%\">\n</picture>\n\n",
        quoted(alt)
    )
}

fn statement(sql: &str) -> String {
    format!("```sql\n{}\n```\n\n", sql.replace("```", ""))
}

fn bullets(sentences: &[String]) -> String {
    let lines: String = sentences.iter().map(|sentence| format!("- {sentence}\n")).collect();
    if lines.is_empty() { lines } else { lines + "\n" }
}

impl Guided<'_> {
    /// Names of its pictures: the first is `NAME`; after a repartition, the second is `NAME-2`.
    fn map_name(&self, index: usize) -> String {
        if index == 0 { self.slug.to_owned() } else { format!("{}-{}", self.slug, index + 1) }
    }

    fn lines_name(&self) -> String {
        format!("{}-lines", self.slug)
    }

    fn files(&self, files: &mut Vec<Written>) {
        for (index, [light, dark]) in self.shown.pictures.iter().enumerate() {
            let name = self.map_name(index);
            for (theme, text) in [("light", light), ("dark", dark)] {
                files.push(Written { name: format!("{name}-{theme}.svg"), text: text.clone() });
            }
        }
        let seconds = &self.shown.seconds;
        let lines = [rates(seconds), latency(seconds, self.shown.summary.latency)];
        files.extend(both(&self.lines_name(), &lines));
    }

    fn text(&self) -> String {
        let run = self.shown;
        let mut text = format!("## {}\n\n", plain(&run.name));
        if !run.about.is_empty() {
            let _ok = write!(text, "{}\n\n", plain(&run.about));
        }
        self.created.iter().for_each(|sql| text.push_str(&statement(sql)));
        let sentences = words::seen(run, self.design);
        for index in 0..run.pictures.len() {
            let alt = format!("Load of {} by key and time. {}", run.name, sentences.join(" "));
            text.push_str(&picture(&self.map_name(index), &alt));
        }
        text.push_str(&bullets(&sentences));
        let lines = format!("Rows per second and latency of {} over time", run.name);
        text.push_str(&picture(&self.lines_name(), &lines));
        text.push_str(&bullets(&words::found(run, self.entity)));
        // A table that is fine at the end needs no advice; and designs after the present one in the list are no
        // improvement.
        let ill = run.seconds.last().is_some_and(|second| second.verdict.is_some());
        let advice = run.advice.iter().filter(|_| ill);
        let better = advice.map_while(|advised| Some((advised, advised.ddl.as_ref()?)));
        for (index, (advised, ddl)) in better.enumerate() {
            if index == 0 {
                text.push_str("Recommendations of the store, best first:\n\n");
            }
            let _ok = write!(text, "{}\n\n", plain(&advised.text));
            text.push_str(&statement(ddl));
        }
        text
    }
}

/// A picture in both themes.
fn both(name: &str, charts: &[String]) -> [Written; 2] {
    [("light", Theme::Light), ("dark", Theme::Dark)].map(|(suffix, theme)| Written {
        name: format!("{name}-{suffix}.svg"),
        text: alone(charts, theme),
    })
}

/// Figures of all runs.
fn figures(guide: &Guide<'_>) -> String {
    // The columns, in the order of the cells below.
    let head = [
        "run",
        "served",
        "N_eff of partitions",
        "busiest",
        "latency p50",
        "p99",
        "verdict",
        "splits by load",
        "partitions per read of one entity",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for run in guide.runs {
        let summary = &run.shown.summary;
        let asks = summary.fan_out.as_ref().map(|fan_out| format!("{:.1}", fan_out.mean[0]));
        lines.push(vec![
            run.shown.name.clone(),
            format!("{:.0} %", summary.served_share * 100.0),
            format!("{:.1} of {}", summary.n_eff, summary.partitions),
            format!("{:.0} %", summary.max_share * 100.0),
            super::latency(summary, summary.p50_ms),
            super::latency(summary, summary.p99_ms),
            summary.verdict().map_or("-", Class::name).to_owned(),
            (summary.last.splits_load + summary.last.splits_isolate).to_string(),
            asks.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table(&lines)
}

/// The page and its pictures; the page first.
#[must_use]
pub fn guide(guide: &Guide<'_>) -> Vec<Written> {
    let mut files = Vec::new();
    // Introduction: the runs, how to read a heatmap, and the figures.
    let mut text = format!(
        "# What a key does, in pictures\n\n\
         `{}` wrote this page after one run; every figure and every sentence below describes that run.\n\n\
         ## What was written\n\n{}\n\n{}\n\n",
        guide.command.replace('`', "'"),
        plain(guide.about),
        words::WRITTEN,
    );
    text.push_str("## How to read a picture\n\n");
    text.push_str(&bullets(&words::legend(guide.runs)));
    let _ok = write!(text, "## The figures\n\n{}\n{}\n\n", figures(guide), words::FIGURES);
    // One section for each run, with its pictures.
    for run in guide.runs {
        text.push_str(&run.text());
        run.files(&mut files);
    }
    // Comparison of all runs.
    let rows: Vec<(String, &Summary)> =
        guide.runs.iter().map(|run| (run.shown.name.clone(), &run.shown.summary)).collect();
    let sums = words::sums(guide.runs);
    let drawn = trade_off(&rows);
    if drawn.is_some() || !sums.is_empty() {
        text.push_str("## Summary\n\n");
    }
    if let Some(drawn) = drawn {
        files.extend(both("trade-off", &[drawn]));
        text.push_str(&picture("trade-off", words::TRADE_OFF));
        let _ok = write!(text, "{}\n\n", words::TRADE_OFF);
    }
    text.push_str(&bullets(&sums));
    // Additional tables, and what is not covered.
    for section in guide.sections.iter().filter(|section| !section.lines.is_empty()) {
        let _ok = write!(
            text,
            "## {}\n\n{}\n\n{}\n",
            plain(&section.title),
            plain(&section.text),
            table(&section.lines)
        );
    }
    if !guide.not_yet.is_empty() {
        let topics: Vec<String> = guide.not_yet.iter().map(|topic| plain(topic)).collect();
        let _ok = write!(text, "## Not yet\n\n{}", bullets(&topics));
    }
    let text = text.trim_end().to_owned() + "\n";
    files.insert(0, Written { name: PAGE.to_owned(), text });
    files
}

#[cfg(test)]
mod tests;
