//! `sys.advice` and `sys.advice_history`: findings about the tables of which the viewer sees all rows, and the effect of those
//! that were dealt with.

use std::collections::HashSet;

use arrow::record_batch::RecordBatch;
use partita_advice::{Finding, Measurements, Thresholds};
use partita_proto::catalog::Catalog;

use super::facts::{measurements, states};
use super::state::Applied;
use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::sources::Sources;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.advice`.
pub(crate) const ADVICE: &[(&str, Kind)] = &[
    ("rule", Kind::Text),
    ("severity", Kind::Text),
    ("object", Kind::Text),
    ("evidence", Kind::Text),
    ("advice", Kind::Text),
    ("ddl", Kind::Text),
    ("predicted_effect", Kind::Text),
    ("since", Kind::Time),
    ("source", Kind::Text),
];

/// Columns of `sys.advice_history`.
pub(crate) const ADVICE_HISTORY: &[(&str, Kind)] = &[
    ("rule", Kind::Text),
    ("object", Kind::Text),
    ("ddl", Kind::Text),
    ("applied", Kind::Time),
    ("rows_before", Kind::Float),
    ("rows_after", Kind::Float),
    ("bytes_before", Kind::Float),
    ("bytes_after", Kind::Float),
    ("partitions_before", Kind::Float),
    ("partitions_after", Kind::Float),
    ("ms_before", Kind::Float),
    ("ms_after", Kind::Float),
    ("predicted_rows", Kind::Float),
    ("n_eff_before", Kind::Float),
    ("n_eff_predicted", Kind::Float),
    ("n_eff_after", Kind::Float),
];

/// A finding with the time since when it has been there, in milliseconds since 1970.
pub(crate) struct Dated {
    pub(crate) finding: Finding,
    pub(crate) since_ms: i64,
    /// True if the definition alone shows it.
    pub(crate) is_declared: bool,
}

/// All findings about the tables of a catalog that a viewer may know, worst first.
pub(crate) async fn findings(
    sources: &Sources,
    viewer: &Viewer,
    catalog: &Catalog,
    thresholds: &Thresholds,
) -> Vec<Dated> {
    let facts = measurements(sources, viewer, catalog).await;
    judged(sources, catalog, (&facts, viewer.monitors()), thresholds)
}

/// Findings by some measurements, which have all that is known or not.
fn judged(
    sources: &Sources,
    catalog: &Catalog,
    (measurements, is_all): (&Measurements, bool),
    thresholds: &Thresholds,
) -> Vec<Dated> {
    let judged = sources.advisor.judge(measurements, thresholds).into_iter();
    let (findings, declared): (Vec<Finding>, Vec<bool>) =
        judged.map(|judged| (judged.finding, judged.is_declared)).unzip();
    let time = measurements.now_ms;
    // A finding that other thresholds or fewer figures do not show is not dealt with.
    let times = if is_all && *thresholds == Thresholds::default() {
        sources.advisor.observe(time, &states(catalog, measurements), &findings)
    } else {
        sources.advisor.times(time, &findings)
    };
    let dated = |((finding, since_ms), is_declared): ((Finding, i64), bool)| Dated {
        finding,
        since_ms,
        is_declared,
    };
    findings.into_iter().zip(times).zip(declared).map(dated).collect()
}

/// Rows of findings.
pub(crate) fn rows(findings: Vec<Dated>) -> Result<RecordBatch, SqlError> {
    let row = |Dated { finding, since_ms, is_declared }: Dated| -> Vec<Cell> {
        let effect = finding.effect.as_ref().map(|effect| serde_json::json!(effect).to_string());
        vec![
            finding.rule.id().into(),
            finding.severity.as_str().into(),
            finding.object.into(),
            finding.evidence.to_string().into(),
            finding.advice.into(),
            finding.ddl.into(),
            effect.into(),
            Cell::Time(Some(since_ms)),
            (if is_declared { "declared" } else { "measured" }).into(),
        ]
    };
    batch(&schema(ADVICE), findings.into_iter().map(row).collect())
}

/// Rows of `sys.advice`.
pub(crate) async fn advice(
    sources: &Sources,
    viewer: &Viewer,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    rows(findings(sources, viewer, catalog, &Thresholds::default()).await)
}

/// Rows of `sys.advice_history`: what was dealt with in the tables of a catalog.
pub(crate) async fn advice_history(
    sources: &Sources,
    viewer: &Viewer,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    // A finding that is gone since the last look belongs to the history.
    let present = measurements(sources, viewer, catalog).await;
    judged(sources, catalog, (&present, viewer.monitors()), &Thresholds::default());
    let tables = states(catalog, &present);
    let row = |applied: Applied| -> Option<Vec<Cell>> {
        let state = tables.get(&applied.table)?;
        let means = state.totals.since(&applied.baseline).means();
        let bytes = |bytes: Option<u64>| Cell::Float(bytes.map(|bytes| bytes as f64));
        let Applied {
            rule,
            object,
            ddl,
            applied_ms,
            before: earlier,
            bytes_before,
            predicted_rows,
            n_eff_before,
            n_eff_predicted,
            ..
        } = applied;
        // The prediction is a factor of the rows from before.
        let predicted = predicted_rows.zip(earlier.rows).map(|(factor, rows)| factor * rows);
        Some(vec![
            rule.id().into(),
            object.into(),
            ddl.into(),
            Cell::Time(Some(applied_ms)),
            earlier.rows.into(),
            means.rows.into(),
            bytes(bytes_before),
            bytes(state.bytes),
            earlier.partitions.into(),
            means.partitions.into(),
            earlier.milliseconds.into(),
            means.milliseconds.into(),
            predicted.into(),
            n_eff_before.into(),
            n_eff_predicted.into(),
            state.n_eff.into(),
        ])
    };
    let history = sources.advisor.history();
    // Figures of statements are those of others.
    let records = if viewer.monitors() { history } else { Vec::new() };
    batch(&schema(ADVICE_HISTORY), records.into_iter().filter_map(row).collect())
}

/// Findings about one table.
pub(crate) fn of_table(
    findings: Vec<Dated>,
    database: &str,
    table: &str,
    columns: &[&str],
) -> Vec<Dated> {
    let name = format!("{database}.{table}");
    let objects: HashSet<String> =
        columns.iter().map(|column| format!("{name}.{column}")).collect();
    let is_of =
        |dated: &Dated| dated.finding.object == name || objects.contains(&dated.finding.object);
    findings.into_iter().filter(is_of).collect()
}

#[cfg(test)]
mod tests {
    use partita_advice::{Rule, Severity};

    use super::*;

    fn dated(object: &str) -> Dated {
        let finding = Finding {
            rule: Rule::A01,
            severity: Severity::Error,
            object: object.to_owned(),
            evidence: serde_json::json!({ "columns": 101 }),
            advice: "split it".to_owned(),
            ddl: None,
            effect: None,
        };
        Dated { finding, since_ms: 7, is_declared: true }
    }

    #[test]
    fn findings_of_a_table_are_those_of_its_columns_too() {
        let all =
            vec![dated("public.t"), dated("public.t.c"), dated("public.t.d"), dated("public.u")];
        let objects: Vec<String> = of_table(all, "public", "t", &["c"])
            .into_iter()
            .map(|dated| dated.finding.object)
            .collect();
        assert_eq!(objects, ["public.t", "public.t.c"]);
    }

    #[test]
    fn rows_have_the_columns_of_the_table() {
        let batch = rows(vec![dated("public.t")]).unwrap();
        assert_eq!(batch.num_columns(), ADVICE.len());
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(rows(Vec::new()).unwrap().num_rows(), 0);
    }
}
