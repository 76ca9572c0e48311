//! Output of EXPLAIN HOTSPOT: the verdict on the busiest partition and its evidence, the current ceiling, and the
//! designs by rank; and the advice of `sys.hot_partitions`.
//!
//! Invariants: one row per fact, then one row per design; figures of designs have columns of their own. A table with
//! `hotspot_remedy = off` is explained, but gets no advice.

use arrow::record_batch::RecordBatch;
use partita_load::{Choice, Class, Warning};
use partita_proto::catalog::Table;
use partita_proto::load::{Evidence, LoadReport, PartitionLoad, Verdict};
use partita_proto::schema::HotspotRemedy;
use partita_sql::tail_notice;
use serde_json::{Value as Json, json};

use super::class::{explain, is_curable, is_splittable, remedy};
use super::ddl;
use super::replay::{Found, replay};
use crate::bound_text::bound_text;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of EXPLAIN HOTSPOT.
pub(crate) const EXPLAIN_HOTSPOT: &[(&str, Kind)] = &[
    ("item", Kind::Text),
    ("value", Kind::Text),
    ("max_share", Kind::Float),
    ("n_eff", Kind::Float),
    ("n_eff_nodes", Kind::Float),
    ("ceiling_rows_per_s", Kind::Float),
    ("read_fan_out", Kind::Text),
    ("ddl", Kind::Text),
];

/// Rows of EXPLAIN HOTSPOT for a table.
pub(crate) fn explain_hotspot(table: &Table, report: &LoadReport) -> Result<RecordBatch, SqlError> {
    let replayed = replay(table, report);
    let mut rows = facts(table, report, &replayed);
    let advised = table.schema.options.partitioning.hotspot_remedy != HotspotRemedy::Off;
    if advised {
        let designs = replayed.choices.iter().zip(&replayed.cuts).zip(1..);
        rows.extend(designs.map(|((choice, cuts), rank)| {
            let name = if choice.is_today { " (as it is)" } else { "" };
            let figures = Figures {
                choice,
                fan_out: fan_out(table, choice),
                ddl: (!choice.is_today)
                    .then(|| ddl::statements(table, &choice.design, cuts))
                    .flatten(),
            };
            figures.row(format!("option {rank}{name}"), describe(table, choice))
        }));
    }
    batch(&schema(EXPLAIN_HOTSPOT), rows)
}

/// The busiest partition of a table; partitions with a verdict come first.
fn busiest<'r>(table: &Table, report: &'r LoadReport) -> Option<&'r PartitionLoad> {
    let of_table = report.partitions.iter().filter(|load| load.table == table.id);
    let judged = |load: &PartitionLoad| {
        load.verdict.as_ref().is_some_and(|verdict| explain(verdict.class).is_some())
    };
    of_table
        .max_by(|a, b| judged(a).cmp(&judged(b)).then_with(|| a.busy.s10.total_cmp(&b.busy.s10)))
}

fn facts(table: &Table, report: &LoadReport, replayed: &Found) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let mut fact = |item: &str, value: String| rows.push(row(item.to_owned(), value));
    // The verdict on the busiest partition.
    let hot = busiest(table, report);
    let verdict = hot.and_then(|load| load.verdict.as_ref());
    let class = verdict.map_or(Class::Unknown, |verdict| verdict.class);
    fact("class", class.to_string());
    if let Some(why) = explain(class) {
        fact("meaning", why.to_owned());
    }
    if let Some(load) = hot {
        let edge = |bound, end: &str| bound_text(table, bound).unwrap_or_else(|| end.to_owned());
        fact(
            "partition",
            format!(
                "{} (keys from {} to {}): {:.0} % busy, {:.0} rows/s, {:.0} % of the table's writes",
                load.partition,
                edge(&load.range.start, "the beginning"),
                edge(&load.range.end, "the end"),
                load.busy.s10 * 100.0,
                load.rates.write_rows,
                load.share * 100.0
            ),
        );
    }
    // The evidence, and the cut if one helps.
    if let (Some(load), Some(verdict)) = (hot, verdict) {
        fact("for", format!("{} s", report.at.since(verdict.since).as_secs()));
        fact("evidence", evidence_json(&verdict.evidence).to_string());
        if let Some(key) = verdict.hot_key.as_ref().and_then(|key| bound_text(table, key)) {
            fact("hot key", key);
        }
        if let Some((key, share)) = &verdict.cut {
            let statement = ddl::split(table, load.partition, Some(key));
            fact("cut", format!("{statement} leaves {:.0} % in the larger half", share * 100.0));
        }
    }
    // Measured or assumed limits of the present design.
    if let Some(today) = replayed.choices.iter().find(|choice| choice.is_today) {
        fact(
            "ceiling now",
            format!(
                "{:.0} rows/s, with {:.0} rows/s written",
                today.ceiling_rows_per_s, replayed.rows_per_s
            ),
        );
    }
    let measured = if replayed.capacity.1 {
        "measured"
    } else {
        "assumed: no partition is busy enough to measure it"
    };
    fact("capacity of a partition", format!("{:.0} rows/s, {measured}", replayed.capacity.0));
    fact("sampled rows", replayed.sampled.to_string());
    // Without samples, the schema alone may show the problem.
    if replayed.choices.is_empty() {
        fact(
            "note",
            "too few keys were sampled to compare designs; try again while rows are written"
                .to_owned(),
        );
        if let Some(notice) = tail_notice(table) {
            fact("schema", notice.message);
            fact("cures", notice.hint.unwrap_or_default());
        }
    }
    if let Some(remedy) = remedy(class) {
        fact("remedy", remedy.to_owned());
    }
    rows
}

fn row(item: String, value: String) -> Vec<Cell> {
    let no_figure = || Cell::Float(None);
    vec![
        item.into(),
        value.into(),
        no_figure(),
        no_figure(),
        no_figure(),
        no_figure(),
        Cell::Text(None),
        Cell::Text(None),
    ]
}

struct Figures<'c> {
    choice: &'c Choice,
    fan_out: String,
    ddl: Option<String>,
}

impl Figures<'_> {
    fn row(self, item: String, value: String) -> Vec<Cell> {
        vec![
            item.into(),
            value.into(),
            self.choice.max_share.into(),
            self.choice.effective_partitions.into(),
            self.choice.effective_nodes.into(),
            self.choice.ceiling_rows_per_s.into(),
            self.fan_out.into(),
            self.ddl.into(),
        ]
    }
}

/// A design's clauses, whether it carries the load, and its warnings.
fn describe(table: &Table, choice: &Choice) -> String {
    let key: Vec<_> = table.schema.key_columns().map(|column| column.name.as_str()).collect();
    let name = |position: &usize| key.get(*position).copied().unwrap_or("?");
    let mut text = ddl::clauses(table, &choice.design);
    text.push_str(if choice.carries { "; carries the load" } else { "; does not carry the load" });
    for warning in &choice.warnings {
        text.push_str("; ");
        text.push_str(&match warning {
            Warning::OneTail => "new rows all go to one partition".to_owned(),
            Warning::TopValue { column, share, equal_share } => format!(
                "one value of \"{}\" has {:.0} % of the rows; an equal share is {:.0} %",
                name(column),
                share * 100.0,
                equal_share * 100.0
            ),
            Warning::FewValues { column, values } => {
                format!("\"{}\" has only {values} values", name(column))
            }
            Warning::SmallSample { rows } => format!("based on only {rows} rows"),
        });
    }
    text
}

/// Number of partitions that each kind of read touches.
fn fan_out(table: &Table, choice: &Choice) -> String {
    let fan_out = &choice.fan_out;
    let mut parts = vec![format!("whole key {:.1}", fan_out.point)];
    for (column, touched) in table.schema.key_columns().zip(&fan_out.by_column) {
        parts.push(format!("by {} {touched:.1}", column.name));
    }
    parts.push(format!("time range {:.1}", fan_out.time_range));
    parts.push(format!("newest of a series {:.1}", fan_out.last_point));
    parts.push(format!("everything {:.1}", fan_out.full_scan));
    parts.join(", ")
}

/// Numbers behind a verdict, by name.
pub(crate) fn evidence_json(evidence: &Evidence) -> Json {
    json!({
        "samples_old": evidence.samples_old,
        "samples_new": evidence.samples_new,
        "window_s": evidence.window.as_secs(),
        "p_out": evidence.p_out,
        "auc": evidence.auc,
        "append_high": evidence.append_high,
        "append_low": evidence.append_low,
        "top_key": evidence.top_key,
        "top_prefix": evidence.top_prefix,
        "distinct_prefix": evidence.distinct_prefix,
        "contained": evidence.contained,
    })
}

/// The DDL against a hot partition; `None` if no DDL helps, or the table's options exclude advice.
pub(crate) fn advice(table: &Table, load: &PartitionLoad, verdict: &Verdict) -> Option<String> {
    if table.schema.options.partitioning.hotspot_remedy == HotspotRemedy::Off {
        return None;
    }
    if is_splittable(verdict.class) {
        return Some(ddl::split(table, load.partition, verdict.cut.as_ref().map(|(key, _)| key)));
    }
    is_curable(verdict.class).then(|| {
        let name = partita_sql::identifier::quote(&table.name);
        match spread(table) {
            Some(statements) => {
                format!("{statements}\n-- EXPLAIN HOTSPOT {name} compares this with other designs")
            }
            None => format!("EXPLAIN HOTSPOT {name}"),
        }
    })
}

/// Statements that place the table by a hash of the first key column that is not a time, or of its whole key. A table
/// that keeps rows together is hashed by no other columns than those that must agree.
fn spread(table: &Table) -> Option<String> {
    let columns_max = table.schema.options.partitioning.cut_columns_max();
    let columns = table.schema.key.len();
    let key: Vec<_> = table.schema.key_columns().take(columns_max).collect();
    let first = key.iter().position(|column| !column.column_type.is_timestamp());
    let hashed = first.map_or_else(|| (0..key.len()).collect(), |position| vec![position]);
    let buckets = u32::try_from(table.partitions.routes().len()).unwrap_or(u32::MAX).clamp(16, 256);
    let design = partita_load::Design::Hash { of: hashed, buckets, order: (0..columns).collect() };
    ddl::statements(table, &design, &[])
}
