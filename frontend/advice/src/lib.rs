//! The advisor of schemas: rules A01 to A40 over what is known of tables and statements, and the DDL that follows.
//!
//! ```text
//!   catalog, measures of partitions, load, statements ─▶ Measurements ─┐
//!   sampled keys ─▶ designs ───────────────────────────────────────────┤
//!   CREATE TABLE alone ─▶ TableFacts ──────────────────────────────────┼─▶ rules ─▶ Finding: evidence, advice, DDL, effect
//!   schema.sql, a sample, a log of queries (lint) ─▶ Measurements ─────┘
//! ```
//!
//! Invariants: pure functions of the measurements, without I/O and without a clock; a figure that is not known is
//! `None`, and a rule that needs it is silent; every threshold can be set ([`Thresholds`]), for a question or for a
//! table; the DDL of a finding parses, and never drops a row; of a materialized copy only its partitions are judged,
//! for all else is its source's.

mod columns;
mod ddl;
mod declared;
pub mod designs;
pub mod finding;
mod indexes;
mod judge;
mod keys;
mod measured;
pub mod measurements;
mod names;
mod partitions;
mod queries;
mod rates;
mod shapes;
mod statements;
mod table;
pub mod thresholds;
mod time;
mod values;
mod words;

use std::cmp::{Ordering, Reverse};

pub use self::declared::{facts_of_new_table, facts_of_table};
pub use self::finding::{Effect, Finding, Rule, Severity};
pub use self::judge::{Judge, Judged};
pub use self::measured::add_measures;
pub use self::measurements::{
    ClusterFacts, ColumnFacts, DesignFacts, Filter, FilterClass, HotKey, IndexFacts, IntervalFacts,
    Join, Measurements, MovingFacts, PartitionFacts, Placed, StatementShape, TableFacts,
};
pub use self::queries::{Declared, check_statements, declared_tables, statement_shapes};
pub use self::rates::{ForRate, literal, partitions_for_rate};
pub use self::thresholds::{Threshold, Thresholds};

use self::table::{ByTable, Subject};

/// Rules that need no figures of rows.
const DECLARED: [Rule; 11] = [
    Rule::A01,
    Rule::A02,
    Rule::A08,
    Rule::A10,
    Rule::A15,
    Rule::A17,
    Rule::A20,
    Rule::A21,
    Rule::A22,
    Rule::A32,
    Rule::A37,
];

/// All findings, worst first; without the rules that a table has switched off.
pub fn advise(measurements: &Measurements, thresholds: &Thresholds) -> Vec<Finding> {
    let tables = Tables::new(measurements, thresholds);
    let mut findings = Vec::new();
    for table in &measurements.tables {
        let thresholds = thresholds.of_table(&table.thresholds);
        let subject = tables.subject(table, &thresholds);
        let mut of_table = own_findings(&subject);
        tables.compare(&subject, &mut of_table);
        of_table.retain(|finding| !is_off(table, finding.rule));
        findings.append(&mut of_table);
    }
    findings.sort_by(order);
    findings
}

/// Findings that can be known of a new table alone, worst first.
pub fn of_new_table(table: &TableFacts, thresholds: &Thresholds) -> Vec<Finding> {
    declared_findings(table, &thresholds.of_table(&table.thresholds))
}

/// Findings that can be known of a table alone, by thresholds that include its own.
fn declared_findings(table: &TableFacts, thresholds: &Thresholds) -> Vec<Finding> {
    if table.is_copy {
        return Vec::new();
    }
    let settings = ClusterFacts {
        column_limit: partita_proto::schema::COLUMNS_MAX as u64,
        ..ClusterFacts::default()
    };
    let subject = Subject::new(table, &settings, thresholds, Vec::new());
    let mut findings = own_findings(&subject);
    names::data_in_names(&subject, &names::Groups::default(), &mut findings);
    keys::nullable_key(&subject, &mut findings);
    findings.retain(|finding| DECLARED.contains(&finding.rule) && !is_off(table, finding.rule));
    findings.sort_by(order);
    findings
}

/// All tables, for the rules that compare one with the others.
struct Tables<'a> {
    measurements: &'a Measurements,
    by_table: ByTable<'a>,
    groups: names::Groups<'a>,
    look_backs: time::LookBacks<'a>,
}

impl<'a> Tables<'a> {
    fn new(measurements: &'a Measurements, thresholds: &Thresholds) -> Self {
        let by_table = ByTable::new(&measurements.statements);
        let groups = names::groups(measurements, thresholds);
        let look_backs = time::LookBacks::new(measurements, thresholds, &by_table);
        Self { measurements, by_table, groups, look_backs }
    }

    fn subject<'s>(&'s self, table: &'s TableFacts, thresholds: &'s Thresholds) -> Subject<'s> {
        Subject::new(table, &self.measurements.settings, thresholds, self.by_table.of(table))
    }

    /// Adds the findings of the rules that compare a table with others.
    fn compare(&self, subject: &Subject<'_>, findings: &mut Vec<Finding>) {
        if subject.table.is_copy {
            return;
        }
        let tables = &self.measurements.tables;
        statements::always_joined(subject, tables, &self.by_table, findings);
        names::data_in_names(subject, &self.groups, findings);
        time::retention(subject, &self.look_backs, findings);
    }
}

/// Findings of the rules that need no other table.
fn own_findings(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if subject.table.is_copy {
        partitions::rules_of_copy(subject, &mut findings);
    } else {
        columns::rules(subject, &mut findings);
        keys::rules(subject, &mut findings);
        names::rules(subject, &mut findings);
        indexes::rules(subject, &mut findings);
        partitions::rules(subject, &mut findings);
        statements::rules(subject, &mut findings);
        time::rules(subject, &mut findings);
        values::rules(subject, &mut findings);
    }
    findings
}

fn is_off(table: &TableFacts, rule: Rule) -> bool {
    table.advice_off.iter().any(|id| id.eq_ignore_ascii_case(rule.id()))
}

/// The worst first.
fn order(a: &Finding, b: &Finding) -> Ordering {
    (Reverse(a.severity), &a.object, a.rule).cmp(&(Reverse(b.severity), &b.object, b.rule))
}

#[cfg(test)]
mod tests;
