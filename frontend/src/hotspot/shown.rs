//! Output of EXPLAIN HOTSPOT: the state of a table and of its busiest partition, the verdict and its evidence, who causes
//! the load, the limits of the present design, and, if the table is hot, the designs by rank.
//!
//! Invariants: one row per fact, then one row per design; figures of designs have columns of their own. A table that is
//! not hot, or has `hotspot_remedy = off`, is explained, but gets no advice.

use arrow::record_batch::RecordBatch;
use partita_advice::designs::words::{explain, remedy};
use partita_advice::designs::{Found, bound_text, clauses, mean_cost, replay, split};
use partita_load::{Choice, Class, ReadShape, ShapeCost, Standing, Warning};
use partita_proto::catalog::Table;
use partita_proto::load::{Evidence, LoadReport, PartitionLoad};
use partita_proto::schema::HotspotRemedy;
use partita_sql::tail_notice;
use serde_json::{Value as Json, json};

use super::causes::cause_text;
use super::cure;
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
    ("partitions_per_statement", Kind::Float),
    ("rows_read_per_statement", Kind::Float),
];

/// Rows of EXPLAIN HOTSPOT for a table, by the statements that read it (empty: not known). The report has no causes that
/// the viewer may not see.
pub(crate) fn explain_hotspot(
    table: &Table,
    report: &LoadReport,
    shapes: &[ReadShape],
) -> Result<RecordBatch, SqlError> {
    let replayed = replay(table, report, shapes);
    let hot = busiest(table, report);
    let is_hot = hot.is_some_and(PartitionLoad::is_hot);
    let mut facts = Facts::default();
    facts.of_load(table, report, hot);
    facts.of_design(&replayed, shapes);
    facts.of_advice(table, &replayed, hot.filter(|load| load.is_hot()));
    let mut rows = facts.rows;
    if is_hot && table.schema.options.partitioning.hotspot_remedy != HotspotRemedy::Off {
        let designs = replayed.choices.iter().zip(&replayed.cuts).zip(1..);
        rows.extend(designs.map(|((choice, cuts), rank)| {
            let name = if choice.is_today { " (as it is)" } else { "" };
            let figures = Figures {
                choice,
                fan_out: fan_out(table, choice),
                ddl: cure::script(table, choice, cuts).map(|script| script.sql),
                cost: mean_cost(shapes, choice),
            };
            figures.row(format!("option {rank}{name}"), describe(table, choice))
        }));
    }
    batch(&schema(EXPLAIN_HOTSPOT), rows)
}

/// The busiest partition of a table; hot ones come first.
fn busiest<'r>(table: &Table, report: &'r LoadReport) -> Option<&'r PartitionLoad> {
    let of_table = report.partitions.iter().filter(|load| load.table == table.id);
    of_table.max_by(|a, b| {
        let by_standing = a.is_hot().cmp(&b.is_hot());
        by_standing.then_with(|| a.busiest().total_cmp(&b.busiest()))
    })
}

/// Rows of facts, in the order in which they are shown.
#[derive(Default)]
struct Facts {
    rows: Vec<Vec<Cell>>,
}

impl Facts {
    fn add(&mut self, item: &str, value: String) {
        self.rows.push(row(item.to_owned(), value));
    }

    /// State, verdict, evidence and causes of the busiest partition.
    fn of_load(&mut self, table: &Table, report: &LoadReport, hot: Option<&PartitionLoad>) {
        self.add("state", state(hot));
        let verdict = hot.and_then(|load| load.verdict.as_ref());
        let class = verdict.map_or(Class::Unknown, |verdict| verdict.class);
        self.add("class", class.to_string());
        let Some(load) = hot else { return };
        if let Some(why) = explain(class).filter(|_| load.is_hot()) {
            self.add("meaning", why.to_owned());
        }
        self.add("partition", partition(table, load));
        let Some(verdict) = verdict else { return };
        self.add("for", format!("{} s", report.at.since(verdict.since).as_secs()));
        self.add("evidence", evidence_json(&verdict.evidence).to_string());
        if let Some(key) = verdict.hot_key.as_ref().and_then(|key| bound_text(table, key)) {
            let share = verdict.evidence.hot_share;
            let share_text =
                (share > 0.0).then(|| format!(", {:.0} % of its operations", share * 100.0));
            self.add("hot key", format!("{key}{}", share_text.unwrap_or_default()));
        }
        if let Some(causes) = cause_text(report, load) {
            self.add("causes", causes);
        }
        if let Some((key, share)) = verdict.cut.as_ref().filter(|_| load.is_hot()) {
            let statement = split(table, load.partition, Some(key));
            let larger = share * 100.0;
            self.add("cut", format!("{statement} leaves {larger:.0} % in the larger half"));
        }
    }

    /// Offered load, limits of the present design, and the basis of predictions.
    fn of_design(&mut self, found: &Found, shapes: &[ReadShape]) {
        let (offered, is_floor) = found.offered;
        let offered_text = if is_floor {
            format!("at least {offered:.0} rows/s: clients wait")
        } else {
            format!("{offered:.0} rows/s")
        };
        self.add("offered load", offered_text);
        let (capacity, is_measured) = found.capacity;
        if let Some(today) = found.choices.iter().find(|choice| choice.is_today) {
            let basis = if is_measured { "" } else { ", by the assumed capacity of a partition" };
            self.add("ceiling now", format!("{:.0} rows/s{basis}", today.ceiling_rows_per_s));
        }
        let measured = if is_measured {
            "measured"
        } else {
            "assumed: no partition is busy enough to measure it"
        };
        self.add("capacity of a partition", format!("{capacity:.0} rows/s, {measured}"));
        self.add("sampled rows", found.sampled.to_string());
        if !shapes.is_empty() {
            let per_s: f64 = shapes.iter().map(|shape| shape.per_s).sum();
            let unit = if shapes.len() == 1 { "shape" } else { "shapes" };
            self.add("statements", format!("{} {unit}, {per_s:.0}/s", shapes.len()));
        }
    }

    /// Notes on missing samples, and the remedy for a hot partition.
    fn of_advice(&mut self, table: &Table, found: &Found, hot: Option<&PartitionLoad>) {
        // Without samples, the schema alone may show the problem.
        if found.choices.is_empty() {
            let note =
                "too few keys were sampled to compare designs; try again while rows are written";
            self.add("note", note.to_owned());
            if let Some(notice) = tail_notice(table) {
                self.add("schema", notice.message);
                self.add("cures", notice.hint.unwrap_or_default());
            }
        }
        let class = hot.and_then(|load| load.verdict.as_ref()).map(|verdict| verdict.class);
        if let Some(remedy) = class.and_then(remedy) {
            self.add("remedy", remedy.to_owned());
        }
    }
}

/// State of a table by its busiest partition.
fn state(hot: Option<&PartitionLoad>) -> String {
    let Some(load) = hot else { return "unknown: no partition has reported its load".to_owned() };
    let name = load.standing.name();
    let busy = load.busiest() * 100.0;
    match load.standing {
        Standing::Idle => format!("{name}: nothing is written or read"),
        Standing::Hot if load.rates.rejected > 0.0 => {
            let rejected = load.rates.rejected;
            format!(
                "{name}: the busiest partition is {busy:.0} % busy, and {rejected:.1} requests/s are refused"
            )
        }
        Standing::Hot => format!("{name}: the busiest partition is {busy:.0} % busy"),
        Standing::Healthy | Standing::Busy => format!(
            "{name}: the busiest partition is {busy:.0} % busy, and no request is held back"
        ),
    }
}

/// A partition with its keys, writes and reads.
fn partition(table: &Table, load: &PartitionLoad) -> String {
    let edge = |bound, end: &str| bound_text(table, bound).unwrap_or_else(|| end.to_owned());
    format!(
        "{} (keys from {} to {}): writes {:.0} % busy, {:.0} rows/s, {:.0} % of the table's writes; reads {:.0} % of a \
         core, {:.0} rows/s, {:.0} % of the table's reads",
        load.partition,
        edge(&load.range.start, "the beginning"),
        edge(&load.range.end, "the end"),
        load.busy.s10 * 100.0,
        load.rates.write_rows,
        load.share * 100.0,
        load.reads_busy * 100.0,
        load.rates.read_rows,
        load.read_share * 100.0
    )
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
        no_figure(),
        no_figure(),
    ]
}

struct Figures<'c> {
    choice: &'c Choice,
    fan_out: String,
    ddl: Option<String>,
    cost: Option<ShapeCost>,
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
            self.cost.map(|cost| cost.partitions).into(),
            self.cost.map(|cost| cost.rows).into(),
        ]
    }
}

/// A design's clauses, whether it carries the load, and its warnings.
fn describe(table: &Table, choice: &Choice) -> String {
    let key: Vec<_> = table.schema.key_columns().map(|column| column.name.as_str()).collect();
    let name = |position: &usize| key.get(*position).copied().unwrap_or("?");
    let mut text = clauses(table, &choice.design);
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
        "shift": evidence.shift,
        "append_high": evidence.append_high,
        "append_low": evidence.append_low,
        "lead": evidence.lead,
        "front": evidence.front,
        "passes_in_s": evidence.passes_in_s,
        "top_key": evidence.top_key,
        "top_prefix": evidence.top_prefix,
        "distinct_prefix": evidence.distinct_prefix,
        "hot_share": evidence.hot_share,
        "concentration": evidence.concentration,
        "contained": evidence.contained,
        "reads": evidence.reads,
    })
}

#[cfg(test)]
mod tests;
