//! Findings about tables, kept from one look to the next.
//!
//! ```text
//!   facts, statements, thresholds of a table ── as at the last look? ──┬─ yes ─ its findings are kept ─┐
//!                                                                      └─ no ── own rules ─────────────┼─▶ findings
//!   names and statements of all tables ── rules that compare tables ───────────────────────────────────┘
//! ```
//!
//! Invariant: the findings are those of [`advise`](crate::advise) for the same measurements. All that the own rules of a
//! table see (`Subject`) is compared; rules that see other tables are applied at each look.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::finding::{Finding, Rule};
use crate::measurements::{ClusterFacts, Measurements, StatementShape, TableFacts};
use crate::table::Subject;
use crate::thresholds::Thresholds;
use crate::{Tables, declared_findings, is_off, order, own_findings};

/// A finding of a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The mistake and its remedy.
    pub finding: Finding,
    /// True if the definition of the table alone shows it.
    pub is_declared: bool,
}

/// Findings about tables at earlier looks. Bounded by the number of tables, see [`Judge::retain`].
#[derive(Debug, Default)]
pub struct Judge {
    /// By database and name.
    tables: HashMap<(String, String), Judgement>,
    judged: u64,
}

/// All that the own rules of a table have seen, and their findings.
#[derive(Debug)]
struct Judgement {
    facts: TableFacts,
    statements: Vec<StatementShape>,
    settings: ClusterFacts,
    thresholds: Thresholds,
    findings: Vec<Finding>,
    /// Findings that the definition alone shows, by rule and object.
    declared: Vec<(Rule, String)>,
}

impl Judge {
    /// All findings, worst first; without the rules that a table has switched off.
    pub fn judge(&mut self, measurements: &Measurements, thresholds: &Thresholds) -> Vec<Judged> {
        let tables = Tables::new(measurements, thresholds);
        let mut result = Vec::new();
        for table in &measurements.tables {
            let thresholds = thresholds.of_table(&table.thresholds);
            let subject = tables.subject(table, &thresholds);
            let judgement = match self.tables.entry((table.database.clone(), table.name.clone())) {
                Entry::Occupied(entry) if entry.get().holds(&subject) => entry.into_mut(),
                entry => {
                    self.judged += 1;
                    entry.insert_entry(Judgement::of(&subject)).into_mut()
                }
            };
            let mut findings = judgement.findings.clone();
            tables.compare(&subject, &mut findings);
            let findings = findings.into_iter().filter(|finding| !is_off(table, finding.rule));
            result.extend(findings.map(|finding| judgement.judged(finding)));
        }
        result.sort_by(|a, b| order(&a.finding, &b.finding));
        result
    }

    /// Number of times that the own rules were applied to a table.
    pub fn judged_tables(&self) -> u64 {
        self.judged
    }

    /// Forgets tables, by database and name, that no longer exist.
    pub fn retain(&mut self, exists: impl Fn(&str, &str) -> bool) {
        self.tables.retain(|(database, name), _| exists(database, name));
    }
}

impl Judgement {
    fn of(subject: &Subject<'_>) -> Self {
        let declared = declared_findings(subject.table, subject.thresholds);
        Self {
            facts: subject.table.clone(),
            statements: subject.statements.iter().copied().cloned().collect(),
            settings: subject.settings.clone(),
            thresholds: subject.thresholds.clone(),
            findings: own_findings(subject),
            declared: declared.into_iter().map(|finding| (finding.rule, finding.object)).collect(),
        }
    }

    /// True if the own rules see what they saw.
    fn holds(&self, subject: &Subject<'_>) -> bool {
        self.facts == *subject.table
            && self.settings == *subject.settings
            && self.thresholds == *subject.thresholds
            && self.statements.iter().eq(subject.statements.iter().copied())
    }

    fn judged(&self, finding: Finding) -> Judged {
        let is_same =
            |(rule, object): &(Rule, String)| *rule == finding.rule && *object == finding.object;
        let is_declared = self.declared.iter().any(is_same);
        Judged { finding, is_declared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise;
    use crate::measurements::Join;
    use crate::tests::{column, table};

    fn measurements() -> Measurements {
        let of = |name: &str| {
            let mut facts = table(&format!(
                "CREATE TABLE {name} (host STRING NOT NULL, ts TIMESTAMP TIME INDEX, \"order\" STRING, PRIMARY KEY (host))"
            ));
            facts.rows = Some(1_000);
            let figures = column(&mut facts, "order");
            (figures.values, figures.nulls, figures.numeric_share) =
                (Some(1_000), Some(0), Some(1.0));
            figures.sample = vec!["1".to_owned(), "2".to_owned()];
            facts
        };
        Measurements { tables: ["a", "b", "c"].map(of).into(), ..Measurements::default() }
    }

    /// The findings, which must be those without a memory.
    fn look(
        judge: &mut Judge,
        measurements: &Measurements,
        thresholds: &Thresholds,
    ) -> Vec<Judged> {
        let judged = judge.judge(measurements, thresholds);
        let findings: Vec<Finding> = judged.iter().map(|judged| judged.finding.clone()).collect();
        assert_eq!(findings, advise(measurements, thresholds));
        judged
    }

    #[test]
    fn a_table_is_judged_once_until_something_changes() {
        let (mut judge, thresholds) = (Judge::default(), Thresholds::default());
        let mut measurements = measurements();
        let first = look(&mut judge, &measurements, &thresholds);
        assert_eq!((first.len(), judge.judged_tables()), (6, 3), "{first:#?}");
        measurements.now_ms += 1_000;
        assert_eq!(look(&mut judge, &measurements, &thresholds), first);
        assert_eq!(judge.judged_tables(), 3, "no table has changed");
        column(&mut measurements.tables[1], "order").numeric_share = Some(0.5);
        assert_eq!(look(&mut judge, &measurements, &thresholds).len(), 5);
        assert_eq!(judge.judged_tables(), 4, "one table has changed");
        // A statement on one table, and a limit of all of them.
        measurements.statements.push(StatementShape {
            tables: vec!["public.a".to_owned()],
            calls: 1,
            ..StatementShape::default()
        });
        look(&mut judge, &measurements, &thresholds);
        assert_eq!(judge.judged_tables(), 5);
        measurements.settings.column_limit = 3;
        assert_eq!(look(&mut judge, &measurements, &thresholds).len(), 8);
        assert_eq!(judge.judged_tables(), 8);
        // Other thresholds, and the same ones again.
        let mut stricter = thresholds.clone();
        stricter.set("numeric_values", 1e6).unwrap();
        assert_eq!(look(&mut judge, &measurements, &stricter).len(), 6);
        look(&mut judge, &measurements, &stricter);
        assert_eq!(judge.judged_tables(), 11);
    }

    #[test]
    fn what_a_definition_shows_is_told_from_what_was_measured() {
        let mut judge = Judge::default();
        for judged in judge.judge(&measurements(), &Thresholds::default()) {
            assert_eq!(judged.is_declared, judged.finding.rule == Rule::A10, "{judged:?}");
        }
    }

    #[test]
    fn tables_are_compared_at_each_look() {
        let (mut judge, thresholds) = (Judge::default(), Thresholds::default());
        let mut measurements = measurements();
        let join = |left: &str, right: &str| Join {
            left: format!("public.{left}"),
            right: format!("public.{right}"),
            on: vec!["host".to_owned(), "ts".to_owned()],
        };
        measurements.statements.push(StatementShape {
            tables: vec!["public.a".to_owned(), "public.b".to_owned()],
            calls: 100,
            joins: vec![join("a", "b")],
            ..StatementShape::default()
        });
        let is_joined =
            |judged: &[Judged]| judged.iter().any(|judged| judged.finding.rule == Rule::A13);
        assert!(is_joined(&look(&mut judge, &measurements, &thresholds)));
        // Nothing that the rules of "a" alone see has changed.
        let judged_tables = judge.judged_tables();
        measurements.tables.remove(1);
        assert!(!is_joined(&look(&mut judge, &measurements, &thresholds)));
        assert_eq!(judge.judged_tables(), judged_tables);
    }

    #[test]
    fn tables_that_are_gone_are_forgotten() {
        let (mut judge, measurements) = (Judge::default(), measurements());
        judge.judge(&measurements, &Thresholds::default());
        judge.retain(|database, name| database == "public" && name != "b");
        judge.judge(&measurements, &Thresholds::default());
        assert_eq!(judge.judged_tables(), 4);
    }
}
