//! Results of one run for a report, from a virtual or a real cluster.
//!
//! Invariant: nothing is computed here; results are only put into words.

use partita_heatmap::{Heatmap, Metric, Style, Theme, View, svg};

use super::advice::advice;
use crate::cluster::{BEGIN_MS, Cluster};
use crate::metrics::{Second, Summary};
use crate::number::narrow;

/// Maximum designs that are shown.
const ADVICE_MAX: usize = 3;

/// A recommended key design.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Advised {
    /// Expected effect.
    pub text: String,
    /// Statement that creates it; `None` for the present design.
    pub ddl: Option<String>,
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Name of the run.
    pub name: String,
    /// Description in one sentence.
    pub about: String,
    /// One record per second.
    pub seconds: Vec<Second>,
    /// Summary of the seconds.
    pub summary: Summary,
    /// Heatmaps, each for a light and a dark background; several if rows were repartitioned during the run, the
    /// earlier first.
    pub pictures: Vec<[String; 2]>,
    /// Findings, in sentences.
    pub findings: Vec<String>,
    /// Advice, best first.
    pub advice: Vec<Advised>,
    /// Last line of the section.
    pub note: String,
}

/// A heatmap for a light and for a dark background.
#[must_use]
pub fn pictures(heatmap: &Heatmap) -> [String; 2] {
    [Theme::Light, Theme::Dark].map(|theme| svg(heatmap, Style { theme, ..Style::default() }))
}

impl Shown {
    /// Results of a run of a virtual cluster.
    #[must_use]
    pub fn of(name: &str, cluster: &Cluster, summary: &Summary) -> Self {
        // The first verdict, with its evidence.
        let finding = cluster.books().verdict.as_ref().map(|(second, verdict)| {
            let evidence = &verdict.evidence;
            format!(
                "{:?} after {second} s: {:.0} % of rows above all before, the best cut leaves {:.0} % on one side, the most frequent key has {:.0} %.",
                verdict.class,
                evidence.append_high * 100.0,
                evidence.p_out * 100.0,
                evidence.top_key * 100.0
            )
        });
        let advice = advice(cluster).into_iter().take(ADVICE_MAX).map(|(ddl, choice)| {
            let today = if choice.is_today { " (as it is)" } else { "" };
            let text = format!(
                "N_eff {:.1} of {} partitions{today}, busiest {:.1} %, up to {:.0} rows/s; a read touches {:.1} on average",
                choice.effective_partitions,
                choice.partitions,
                choice.max_share * 100.0,
                choice.ceiling_rows_per_s,
                choice.read_cost,
            );
            Advised { text, ddl: (!choice.is_today).then_some(ddl) }
        });
        Self {
            name: name.to_owned(),
            about: String::new(),
            seconds: cluster.books().seconds.clone(),
            summary: summary.clone(),
            pictures: heatmap(name, cluster).iter().map(pictures).collect(),
            findings: finding.into_iter().collect(),
            advice: advice.collect(),
            note: format!("log {}", summary.log_hash),
        }
    }
}

fn heatmap(name: &str, cluster: &Cluster) -> Option<Heatmap> {
    let history = cluster.books().history.as_ref()?;
    let view = View {
        table: name.to_owned(),
        metric: Metric::WriteRows,
        from: BEGIN_MS / 1_000,
        to: cluster.now_ms / 1_000,
        columns_max: 300,
        rows_max: 200,
        keys: None,
        capacity: Some(narrow(cluster.options.lane_rows_per_s)),
    };
    Some(history.view(&view, |key| cluster.load().shape.label(key)))
}
