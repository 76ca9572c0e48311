//! What EXPLAIN HOTSPOT prints: the verdict on the busiest partition and its evidence, the ceiling as things are, and
//! the designs by rank; and the advice of `sys.hot_partitions`.
//!
//! Invariants: one row a fact, then one row a design; figures of designs stand in columns of their own. A table with
//! `hotspot_remedy = off` is explained, but nothing is advised of it.

use arrow::record_batch::RecordBatch;
use partita_load::{Choice, Warning};
use partita_proto::catalog::Table;
use partita_proto::load::{Evidence, LoadReport, PartitionLoad, Verdict};
use partita_proto::schema::HotspotRemedy;
use serde_json::{Value as Json, json};

use super::class::{explain, is_curable, is_splittable, remedy};
use super::ddl;
use super::replay::{Found, replay};
use crate::error::SqlError;
use crate::sql::tail_notice;
use crate::system::bound_text;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// The columns of EXPLAIN HOTSPOT.
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

/// What EXPLAIN HOTSPOT prints of a table.
pub(crate) fn explain_hotspot(table: &Table, report: &LoadReport) -> Result<RecordBatch, SqlError> {
    let found = replay(table, report);
    let mut rows = facts(table, report, &found);
    let advised = table.schema.options.partitioning.hotspot_remedy != HotspotRemedy::Off;
    if advised {
        let designs = found.choices.iter().zip(&found.cuts).zip(1..);
        rows.extend(designs.map(|((choice, cuts), rank)| {
            let name = if choice.is_today { " (as it is)" } else { "" };
            let of = Figures {
                choice,
                fan_out: fan_out(table, choice),
                ddl: (!choice.is_today)
                    .then(|| ddl::statements(table, &choice.design, cuts))
                    .flatten(),
            };
            of.row(format!("option {rank}{name}"), describe(table, choice))
        }));
    }
    batch(&schema(EXPLAIN_HOTSPOT), rows)
}

/// The busiest partition of a table: one that is judged before one that is not.
fn busiest<'r>(table: &Table, report: &'r LoadReport) -> Option<&'r PartitionLoad> {
    let of_table = report.partitions.iter().filter(|load| load.table == table.id);
    let judged = |load: &PartitionLoad| {
        load.verdict.as_ref().is_some_and(|verdict| explain(&verdict.class).is_some())
    };
    of_table
        .max_by(|a, b| judged(a).cmp(&judged(b)).then_with(|| a.busy.s10.total_cmp(&b.busy.s10)))
}

fn facts(table: &Table, report: &LoadReport, found: &Found) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let mut fact = |item: &str, value: String| rows.push(row(item.to_owned(), value));
    let hot = busiest(table, report);
    let verdict = hot.and_then(|load| load.verdict.as_ref());
    let class = verdict.map_or("UNKNOWN", |verdict| verdict.class.as_str());
    fact("class", class.to_owned());
    if let Some(why) = explain(class) {
        fact("meaning", why.to_owned());
    }
    if let Some(load) = hot {
        let edge = |bound, end: &str| bound_text(table, bound).unwrap_or_else(|| end.to_owned());
        fact(
            "partition",
            format!(
                "{} (keys from {} to {}): {:.0} % busy, {:.0} rows/s, {:.0} % of what the table is written",
                load.partition,
                edge(&load.range.start, "the beginning"),
                edge(&load.range.end, "the end"),
                load.busy.s10 * 100.0,
                load.rates.write_rows,
                load.share * 100.0
            ),
        );
    }
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
    if let Some(today) = found.choices.iter().find(|choice| choice.is_today) {
        fact(
            "ceiling now",
            format!(
                "{:.0} rows/s, {:.0} rows/s are written",
                today.ceiling_rows_per_s, found.rows_per_s
            ),
        );
    }
    let measured = if found.capacity.1 {
        "measured"
    } else {
        "assumed: no partition is busy enough to measure it"
    };
    fact("capacity of a partition", format!("{:.0} rows/s, {measured}", found.capacity.0));
    fact("sampled rows", found.sampled.to_string());
    if found.choices.is_empty() {
        fact(
            "note",
            "too few keys were sampled to compare designs; ask again while rows are written"
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
    let none = || Cell::Float(None);
    vec![
        item.into(),
        value.into(),
        none(),
        none(),
        none(),
        none(),
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

/// A design's clauses, whether it carries the load, and what to beware of.
fn describe(table: &Table, choice: &Choice) -> String {
    let key: Vec<_> = table.schema.key_columns().map(|column| column.name.as_str()).collect();
    let name = |at: &usize| key.get(*at).copied().unwrap_or("?");
    let mut text = ddl::clauses(table, &choice.design);
    text.push_str(if choice.carries { "; carries the load" } else { "; does not carry the load" });
    for warning in &choice.warnings {
        text.push_str("; ");
        text.push_str(&match warning {
            Warning::OneTail => "new rows all go to one partition".to_owned(),
            Warning::TopValue { column, share, equal_share } => format!(
                "one value of \"{}\" has {:.0} % of the rows, an equal part is {:.0} %",
                name(column),
                share * 100.0,
                equal_share * 100.0
            ),
            Warning::FewValues { column, values } => {
                format!("\"{}\" has {values} values only", name(column))
            }
            Warning::SmallSample { rows } => format!("judged by {rows} rows only"),
        });
    }
    text
}

/// Partitions that each kind of read touches.
fn fan_out(table: &Table, choice: &Choice) -> String {
    let of = &choice.fan_out;
    let mut parts = vec![format!("whole key {:.1}", of.point)];
    for (column, touched) in table.schema.key_columns().zip(&of.by_column) {
        parts.push(format!("by {} {touched:.1}", column.name));
    }
    parts.push(format!("time range {:.1}", of.time_range));
    parts.push(format!("newest of a series {:.1}", of.last_point));
    parts.push(format!("everything {:.1}", of.full_scan));
    parts.join(", ")
}

/// The numbers behind a verdict, by name.
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

/// The DDL against a hot partition; `None` when there is none, or none is wanted.
pub(crate) fn advice(table: &Table, load: &PartitionLoad, verdict: &Verdict) -> Option<String> {
    if table.schema.options.partitioning.hotspot_remedy == HotspotRemedy::Off {
        return None;
    }
    if is_splittable(&verdict.class) {
        return Some(ddl::split(table, load.partition, verdict.cut.as_ref().map(|(key, _)| key)));
    }
    is_curable(&verdict.class).then(|| {
        let name = crate::sql::identifier::quote(&table.name);
        match spread(table) {
            Some(statements) => {
                format!("{statements}\n-- EXPLAIN HOTSPOT {name} compares this with other designs")
            }
            None => format!("EXPLAIN HOTSPOT {name}"),
        }
    })
}

/// The table placed by a hash of the first key column that is not its time, or of its whole key; of a table that keeps
/// rows together, by no other columns than those that they agree in.
fn spread(table: &Table) -> Option<String> {
    let together = table.schema.options.partitioning.cut_columns_max();
    let columns = table.schema.key.len();
    let key: Vec<_> = table.schema.key_columns().take(together).collect();
    let first = key.iter().position(|column| !column.column_type.is_timestamp());
    let of = first.map_or_else(|| (0..key.len()).collect(), |at| vec![at]);
    let buckets = u32::try_from(table.partitions.routes().len()).unwrap_or(u32::MAX).clamp(16, 256);
    let design = partita_load::Design::Hash { of, buckets, order: (0..columns).collect() };
    ddl::statements(table, &design, &[])
}
