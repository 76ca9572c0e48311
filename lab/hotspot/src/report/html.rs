//! The HTML page: one file with the tables, and for each run its heatmap, line charts, verdicts and advice.
//!
//! Invariants: light or dark by the reader's preference; wide tables and pictures scroll by themselves, the page
//! does not.

use std::fmt::Write as _;

use super::shown::Shown;
use super::{fan_out_lines, figure, lines};
use crate::metrics::{Second, Summary};

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#f3f5f7;--rule:#d5dae0;--a:#0b69c7;--b:#c2410c;--c:#0f7b45}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--paper:#101418;--soft:#191f26;--rule:#303944;--a:#6cb2ff;--b:#ff9a62;--c:#5fd39a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:24px 16px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:24px;line-height:1.25}h2{font-size:19px;margin:36px 0 8px;border-top:1px solid var(--rule);padding-top:16px}
.wide,.map{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;white-space:nowrap}
td,th{padding:4px 10px;border-bottom:1px solid var(--rule);text-align:right}
td:first-child,th:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px;margin:12px 0}
.charts.one{max-width:640px}
.charts svg{width:100%;height:auto;background:var(--soft);border-radius:6px}.charts text{font:11px system-ui,sans-serif;fill:var(--ink)}
.charts .title{font-weight:600}.grid{stroke:var(--rule)}
.map svg{width:100%;min-width:820px;height:auto;display:block}.map .dark{display:none}
@media(prefers-color-scheme:dark){.map .dark{display:block}.map .light{display:none}}
code{display:block;overflow-x:auto;white-space:pre;background:var(--soft);padding:8px 12px;border-radius:6px;font-size:13px}
ul{padding-left:20px}.note{opacity:.75;font-size:13px}";

/// A page being written run by run, so that only one cluster is in memory at a time.
#[derive(Default)]
pub struct Page {
    body: String,
}

/// An additional table above the runs.
pub struct Section {
    /// Heading.
    pub title: String,
    /// Description.
    pub text: String,
    /// Lines, a header line first; may be empty.
    pub lines: Vec<Vec<String>>,
}

/// Escapes text for HTML and SVG.
#[must_use]
pub fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table that scrolls by itself; the first line is its header.
#[must_use]
pub fn table(lines: &[Vec<String>]) -> String {
    let mut html = "<div class=\"wide\"><table>".to_owned();
    for (index, line) in lines.iter().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        html.push_str("<tr>");
        for cell in line {
            // Writing to a string cannot fail.
            let _ok = write!(html, "<{tag}>{}</{tag}>", plain(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
    html
}

/// Line charts of a run.
fn charts(seconds: &[Second], latency: &str) -> String {
    let mut charts = vec![
        figure::rates(seconds),
        figure::spread(seconds),
        figure::latency(seconds, latency),
        figure::splits(seconds),
    ];
    charts.extend(figure::nodes(seconds));
    format!("<div class=\"charts\">{}</div>", charts.concat())
}

impl Page {
    /// Adds the section of one run.
    pub fn add(&mut self, run: &Shown) {
        let body = &mut self.body;
        let _ok = write!(body, "<h2>{}</h2>", plain(&run.name));
        if !run.about.is_empty() {
            let _ok = write!(body, "<p>{}</p>", plain(&run.about));
        }
        // The heatmaps come first, then charts, findings and advice.
        for [light, dark] in &run.pictures {
            let _ok = write!(
                body,
                "<div class=\"map\"><div class=\"light\">{light}</div><div class=\"dark\">{dark}</div></div>"
            );
        }
        body.push_str(&charts(&run.seconds, run.summary.latency));
        if !run.findings.is_empty() {
            body.push_str("<ul>");
            for finding in &run.findings {
                let _ok = write!(body, "<li>{}</li>", plain(finding));
            }
            body.push_str("</ul>");
        }
        for advised in &run.advice {
            let _ok = write!(body, "<p>{}</p>", plain(&advised.text));
            if let Some(ddl) = &advised.ddl {
                let _ok = write!(body, "<code>{}</code>", plain(ddl));
            }
        }
        if !run.note.is_empty() {
            let _ok = write!(body, "<p class=\"note\">{}</p>", plain(&run.note));
        }
    }
}

/// Scatter plot of writes against reads.
fn trade_off(rows: &[(String, &Summary)]) -> String {
    let drawn = figure::trade_off(rows);
    drawn.map_or_else(String::new, |drawn| format!("<div class=\"charts one\">{drawn}</div>"))
}

/// A page of its own around HTML: title, note and style.
#[must_use]
pub fn document(title: &str, note: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{0}</title><style>{STYLE}</style><h1>{0}</h1><p>{1}</p>{body}</html>",
        plain(title),
        plain(note)
    )
}

/// The whole page.
#[must_use]
pub fn page(
    title: &str,
    note: &str,
    rows: &[(String, &Summary)],
    sections: &[Section],
    runs: &Page,
) -> String {
    let mut section_html = String::new();
    for section in sections {
        let _ok = write!(
            section_html,
            "<h2>{}</h2><p>{}</p>",
            plain(&section.title),
            plain(&section.text)
        );
        if !section.lines.is_empty() {
            section_html.push_str(&table(&section.lines));
        }
    }
    let body = format!(
        "{}<h2>Partitions that a query touches (mean / p99)</h2>{}{}{}{}",
        table(&lines(rows)),
        table(&fan_out_lines(rows)),
        trade_off(rows),
        section_html,
        runs.body
    );
    document(title, note, &body)
}
