//! Report of an experiment: our figures beside the published ones, the tables behind them, the claims, and
//! unsupported features; as text, as a line of JSON, and as a file.
//!
//! Invariants: every published figure has its source; a missing figure is a dash, never a zero; the shape is judged
//! after everything was printed and written.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use super::site::SiteOptions;
use crate::claim::{Claim, failure};
use crate::report::{align, progress, say, say_json, short};

/// Form of the report.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportOptions {
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// One of our figures and the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) figure: String,
    pub(super) ours: Option<f64>,
    pub(super) published: Option<f64>,
}

impl Figure {
    /// A figure that both have, or only one of them.
    pub(super) fn new(figure: &str, ours: Option<f64>, published: Option<f64>) -> Self {
        Self { figure: figure.to_owned(), ours, published }
    }
}

/// A table; the first line is the header.
pub(super) type Table = Vec<Vec<String>>;

/// Header of a table.
pub(super) fn heads(heads: &[&str]) -> Table {
    vec![heads.iter().map(|head| (*head).to_owned()).collect()]
}

/// The whole report; `R` holds the raw runs, for further computation.
#[derive(Debug, Serialize)]
pub(super) struct Told<R> {
    what: &'static str,
    experiment: &'static str,
    /// Description of the experiment.
    about: String,
    /// Source of the published figures, and the conditions there.
    source: &'static str,
    embedded: bool,
    cores: usize,
    bound_rows_per_s: Option<f64>,
    figures: Vec<Figure>,
    claims: Vec<Claim>,
    runs: R,
    /// Aspects that the experiment does not cover.
    not_yet: Vec<String>,
    #[serde(skip)]
    tables: Vec<Table>,
}

impl<R: Serialize> Told<R> {
    /// Report of an experiment with this description and limit in rows per second for each partition.
    pub(super) fn new(
        experiment: &'static str,
        description: String,
        source: &'static str,
        site: &SiteOptions,
        bound: Option<f64>,
        runs: R,
    ) -> Self {
        Self {
            what: "experiment",
            experiment,
            about: description,
            source,
            embedded: site.embedded(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            bound_rows_per_s: bound,
            figures: Vec::new(),
            claims: Vec::new(),
            runs,
            not_yet: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Adds our figures beside the published ones.
    pub(super) fn figures(mut self, figures: Vec<Figure>) -> Self {
        self.figures = figures;
        self
    }

    /// Adds claims.
    pub(super) fn claims(mut self, claims: Vec<Claim>) -> Self {
        self.claims = claims;
        self
    }

    /// Adds a table of measurements.
    pub(super) fn table(mut self, table: Table) -> Self {
        self.tables.push(table);
        self
    }

    /// Adds an aspect that is not covered.
    pub(super) fn not_yet(mut self, text: &str) -> Self {
        self.not_yet.push(text.to_owned());
        self
    }

    fn text(&self) -> String {
        let cell = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), short);
        let mut figures = heads(&[self.experiment, "ours", "published"]);
        figures.extend(
            self.figures.iter().map(|figure| {
                vec![figure.figure.clone(), cell(figure.ours), cell(figure.published)]
            }),
        );
        let mut parts = vec![self.about.clone()];
        if !self.figures.is_empty() {
            parts.push(align(&figures));
        }
        parts.push(format!("published: {}", self.source));
        parts.extend(self.tables.iter().map(|table| align(table)));
        let claims: Vec<String> = self.claims.iter().map(Claim::line).collect();
        parts.push(claims.join("\n"));
        parts.extend(self.not_yet.iter().map(|text| format!("not yet: {text}")));
        parts.join("\n\n")
    }

    /// Prints and writes the report, then checks the shape.
    ///
    /// # Errors
    /// If it cannot be written, or the shape does not hold.
    pub(super) fn tell(&self, options: &ReportOptions) -> anyhow::Result<()> {
        progress("");
        if let Some(path) = &options.out {
            put(path, &serde_json::to_string_pretty(self)?)?;
        }
        if options.json {
            say_json(self)?;
        } else {
            say(&self.text())?;
        }
        match failure(&self.claims) {
            Some(sentence) => bail!("{sentence}"),
            None => Ok(()),
        }
    }
}

fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, format!("{text}\n"))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        site: SiteOptions,
        #[command(flatten)]
        report: ReportOptions,
    }

    fn told(holds: bool) -> Told<Vec<u32>> {
        let site = Line::parse_from(["line", "--connect", "127.0.0.1:1"]).site;
        Told::new("scaling", "what was done".to_owned(), "somebody", &site, None, vec![1])
            .figures(vec![
                Figure::new("rows/s", Some(123.4), Some(20_000.0)),
                Figure::new("theirs only", None, Some(0.5)),
            ])
            .claims(vec![Claim::judged("it grows", "1, 2".to_owned(), holds)])
            .table(heads(&["a", "b"]))
            .not_yet("nothing")
    }

    #[test]
    fn our_figures_stand_beside_theirs_and_what_is_not_there_is_a_dash() {
        let text = told(true).text();
        for line in [
            "rows/s        123      20000",
            "theirs only     -       0.50",
            "holds  it grows: 1, 2",
            "not yet: nothing",
            "published: somebody",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_shape_that_does_not_hold_is_an_error_after_the_result_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out.json");
        let path = file.display().to_string();
        let options = Line::parse_from(["line", "--out", &path]).report;
        assert!(told(true).tell(&options).is_ok());
        let error = told(false).tell(&options).unwrap_err().to_string();
        assert_eq!(error, "the shape does not hold: it grows, but measured was 1, 2");
        let json: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(json["claims"][0]["verdict"], "fails");
        assert_eq!(json["figures"][1]["ours"], Value::Null);
        assert_eq!((&json["embedded"], &json["bound_rows_per_s"]), (&false.into(), &Value::Null));
    }
}
