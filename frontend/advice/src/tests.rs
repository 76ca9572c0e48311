//! Helpers of the rules' tests.

use partita_sql::Statement;

use crate::declared::facts_of_new_table;
use crate::finding::{Finding, Rule};
use crate::measurements::{ColumnFacts, Measurements, TableFacts};
use crate::{Thresholds, advise};

/// Facts of a table of the default database, as its CREATE TABLE says.
pub(crate) fn table(sql: &str) -> TableFacts {
    let statements = partita_sql::parse(sql).unwrap();
    let [Statement::CreateTable(create)] = statements.as_slice() else { panic!("{sql}") };
    facts_of_new_table(&create.to_new_table("public").unwrap().0)
}

/// Measurements of one table.
pub(crate) fn alone(table: TableFacts) -> Measurements {
    Measurements { tables: vec![table], ..Measurements::default() }
}

/// The column of a table.
pub(crate) fn column<'t>(table: &'t mut TableFacts, name: &str) -> &'t mut ColumnFacts {
    table.columns.iter_mut().find(|column| column.name == name).unwrap()
}

/// The first finding of a rule with the default thresholds.
pub(crate) fn of_rule(measurements: &Measurements, rule: Rule) -> Option<Finding> {
    let findings = advise(measurements, &Thresholds::default());
    findings.into_iter().find(|finding| finding.rule == rule)
}

/// Checks that a text parses as statements.
#[track_caller]
pub(crate) fn parses(sql: &str) {
    if let Err(error) = partita_sql::parse(sql) {
        panic!("{error:?} in {sql}");
    }
}

#[test]
fn a_rule_that_is_switched_off_is_silent() {
    let mut facts = table("CREATE TABLE t (ts TIMESTAMP TIME INDEX, \"select\" DOUBLE)");
    assert!(of_rule(&alone(facts.clone()), Rule::A10).is_some());
    facts.advice_off = vec!["A10".to_owned()];
    assert!(of_rule(&alone(facts), Rule::A10).is_none());
}

#[test]
fn of_a_copy_only_its_partitions_are_judged() {
    let of = |is_copy: bool| {
        let mut facts = table(
            "CREATE TABLE cpu_17 (level REAL, host STRING, ts TIMESTAMP TIME INDEX, \"select\" DOUBLE, \
             PRIMARY KEY (level, host))",
        );
        facts.is_copy = is_copy;
        facts.moving_right = Some(crate::MovingFacts { share_above: 1.0, last_share: 1.0 });
        facts
    };
    let rules = |measurements: &Measurements| -> Vec<Rule> {
        let findings = advise(measurements, &Thresholds::default());
        findings.into_iter().map(|finding| finding.rule).collect()
    };
    assert_eq!(rules(&alone(of(false))), [Rule::A14, Rule::A08, Rule::A17, Rule::A10]);
    assert!(rules(&alone(of(true))).is_empty());
    assert!(crate::of_new_table(&of(true), &Thresholds::default()).is_empty());
    // A busy partition is cut, for that is the copy's own; the limits are the source's.
    let mut facts = of(true);
    facts.moving_right = None;
    facts.partitions[0].busy = Some(0.9);
    let finding = of_rule(&alone(facts.clone()), Rule::A24).unwrap();
    let ddl = format!("ALTER TABLE public.cpu_17 SPLIT PARTITION {};", facts.partitions[0].id);
    assert_eq!(finding.ddl, Some(ddl));
    facts.max_partitions = 1;
    assert!(rules(&alone(facts)).is_empty());
}

#[test]
fn copies_are_not_counted_with_tables() {
    let of = |number: usize| {
        table(&format!("CREATE TABLE cpu_{number} (ts TIMESTAMP TIME INDEX, v DOUBLE)"))
    };
    let mut measurements = alone(of(1));
    measurements.tables.extend((2..=60).map(of));
    assert_eq!(of_rule(&measurements, Rule::A08).unwrap().evidence["tables"], 60);
    for facts in measurements.tables.iter_mut().skip(9) {
        facts.is_copy = true;
    }
    assert!(of_rule(&measurements, Rule::A08).is_none());
}

#[test]
fn a_table_is_judged_by_its_own_thresholds() {
    let sql = "CREATE TABLE t (a STRING, b STRING, ts TIMESTAMP TIME INDEX, PRIMARY KEY (a, b))";
    let mut facts = table(sql);
    assert!(of_rule(&alone(facts.clone()), Rule::A02).is_none());
    facts.thresholds = vec![("many_tags".to_owned(), 1.0)];
    assert!(of_rule(&alone(facts.clone()), Rule::A02).is_some());
    let is_found = |findings: Vec<Finding>| findings.iter().any(|found| found.rule == Rule::A02);
    assert!(is_found(crate::of_new_table(&facts, &Thresholds::default())));
    // A question that names the threshold has the last word.
    let mut asked = Thresholds::default();
    asked.set("many_tags", 2.0).unwrap();
    assert!(!is_found(advise(&alone(facts), &asked)));
}

#[test]
fn tables_that_are_alike_have_the_threshold_of_the_first() {
    let of = |number: usize| {
        table(&format!("CREATE TABLE cpu_{number} (ts TIMESTAMP TIME INDEX, v DOUBLE)"))
    };
    let mut measurements = alone(of(1));
    measurements.tables.extend((2..=3).map(of));
    assert!(of_rule(&measurements, Rule::A08).is_none());
    measurements.tables[0].thresholds = vec![("alike_tables".to_owned(), 2.0)];
    assert_eq!(of_rule(&measurements, Rule::A08).unwrap().evidence["tables"], 3);
}

#[test]
fn the_worst_comes_first() {
    let mut facts = table(
        "CREATE TABLE t (ts TIMESTAMP TIME INDEX, \"select\" DOUBLE, level REAL, PRIMARY KEY (level))",
    );
    facts.hot_keys = vec![crate::HotKey { key: "(1)".to_owned(), share: 0.5 }];
    facts.partitions[0].hot = true;
    let severities: Vec<_> = advise(&alone(facts), &Thresholds::default())
        .iter()
        .map(|finding| finding.severity)
        .collect();
    assert!(severities.len() >= 3, "{severities:?}");
    assert!(severities.is_sorted_by(|a, b| a >= b), "{severities:?}");
}

#[test]
fn a_new_table_is_judged_by_its_definition_alone() {
    let facts = table("CREATE TABLE t (ts TIMESTAMP TIME INDEX, level REAL, PRIMARY KEY (level))");
    let findings = crate::of_new_table(&facts, &Thresholds::default());
    let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [Rule::A17, Rule::A15]);
}

#[test]
fn measurements_survive_json() {
    let mut measurements =
        alone(table("CREATE TABLE t (a BIGINT, ts TIMESTAMP TIME INDEX, PRIMARY KEY (a))"));
    measurements.tables[0].hot_keys.push(crate::HotKey { key: "(1)".to_owned(), share: 0.5 });
    let text = serde_json::to_string(&measurements).unwrap();
    assert_eq!(serde_json::from_str::<Measurements>(&text).unwrap(), measurements);
    assert_eq!(serde_json::from_str::<Measurements>("{}").unwrap(), Measurements::default());
}
