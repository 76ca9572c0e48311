//! What a report shows of one run, whatever cluster it was in.
//!
//! Invariant: nothing here is computed anew; it says in words what the run came to.

use partita_heatmap::{Heatmap, Metric, Style, Theme, View, svg};

use super::advice::advice;
use crate::cluster::{BEGIN_MS, Cluster};
use crate::metrics::{Second, Summary};
use crate::number::narrow;

/// Designs that are shown.
const ADVICE_MAX: usize = 3;

/// A key design that was thought of for the load.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Advised {
    /// What it would do.
    pub text: String,
    /// The statement that makes it so; nothing for what is so already.
    pub ddl: Option<String>,
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// What it was, in a sentence.
    pub about: String,
    /// Its seconds.
    pub seconds: Vec<Second>,
    /// What they come to.
    pub summary: Summary,
    /// The pictures, each for a light ground and for a dark one; several where rows were placed otherwise on the way, the
    /// earlier first.
    pub pictures: Vec<[String; 2]>,
    /// What was found, in sentences.
    pub findings: Vec<String>,
    /// What was advised, the best first.
    pub advice: Vec<Advised>,
    /// The last line.
    pub note: String,
}

/// A picture for a light ground and for a dark one.
#[must_use]
pub fn pictures(heatmap: &Heatmap) -> [String; 2] {
    [Theme::Light, Theme::Dark].map(|theme| svg(heatmap, Style { theme, ..Style::default() }))
}

impl Shown {
    /// A run of a virtual cluster.
    #[must_use]
    pub fn of(name: &str, cluster: &Cluster, summary: &Summary) -> Self {
        let found = cluster.books().verdict.as_ref().map(|(at, verdict)| {
            let evidence = &verdict.evidence;
            format!(
                "{:?} after {at} s: {:.0} % of rows above all before, the best cut leaves {:.0} % on one side, the most frequent key has {:.0} %.",
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
            findings: found.into_iter().collect(),
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
