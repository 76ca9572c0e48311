//! A01, A03 and A04: the columns of a table and the sets of columns that rows fill.

use serde_json::json;

use crate::ddl::Definition;
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::ColumnFacts;
use crate::shapes::{Cluster, clusters, distinct_clusters};
use crate::table::{Subject, rounded, share, with_ddl};

/// Maximum number of columns that an advice lists.
const LISTED_MAX: usize = 8;

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    wide(subject, findings);
    sparse(subject, findings);
    two_shapes(subject, findings);
}

/// A01: too many columns.
fn wide(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let number = subject.table.columns.len();
    let limit = subject.settings.column_limit;
    let is_near_limit = limit > 0 && number as f64 > thresholds.wide_limit_share * limit as f64;
    if !is_near_limit && number as f64 <= thresholds.wide_columns {
        return;
    }
    let severity = if is_near_limit { Severity::Error } else { Severity::Warning };
    let groups: Vec<String> = clusters(&subject.table.shapes, thresholds.shape_similarity)
        .iter()
        .filter(|cluster| !cluster.fields.is_empty())
        .take(LISTED_MAX)
        .map(|cluster| format!("({})", listed(cluster)))
        .collect();
    let mut advice = "split the fields into several tables with the same key, and select only the columns that a \
                      query needs"
        .to_owned();
    if groups.len() > 1 {
        advice.push_str(&format!("; fields that are written together: {}", groups.join(", ")));
    }
    let evidence = json!({ "columns": number, "column_limit": limit });
    findings.push(subject.finding(Rule::A01, severity, subject.object(), evidence, advice));
}

fn listed(cluster: &Cluster<'_>) -> String {
    let mut names: Vec<&str> = cluster.fields.iter().copied().take(LISTED_MAX).collect();
    if cluster.fields.len() > LISTED_MAX {
        names.push("..");
    }
    names.join(", ")
}

/// A03: mostly NULL.
fn sparse(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let measured: Vec<(&ColumnFacts, u64, u64)> = subject
        .table
        .columns
        .iter()
        .filter(|column| column.semantic != "time")
        .filter_map(|column| Some((column, column.nulls?, column.rows()?)))
        .collect();
    let rows = measured.iter().map(|(_, _, rows)| *rows).max().unwrap_or_default();
    if (rows as f64) < thresholds.shape_rows || measured.is_empty() {
        return;
    }
    let nulls: u64 = measured.iter().map(|(_, nulls, _)| nulls).sum();
    let cells: u64 = measured.iter().map(|(_, _, rows)| rows).sum();
    let empty: Vec<&str> = measured
        .iter()
        .filter(|(_, nulls, rows)| share(*nulls, *rows) > thresholds.sparse_column)
        .map(|(column, _, _)| column.name.as_str())
        .collect();
    let null_share = share(nulls, cells);
    if null_share <= thresholds.sparse_table && empty.is_empty() {
        return;
    }
    let evidence = json!({
        "rows": rows, "null_cells": nulls, "cells": cells, "null_share": rounded(null_share),
        "mostly_null_columns": empty,
    });
    let advice = format!(
        "{nulls} of {cells} values are NULL; write rows of one kind into one table, all fields of a moment with one \
         timestamp, and rows of other kinds into tables of their own"
    );
    findings.push(subject.finding(
        Rule::A03,
        Severity::Warning,
        subject.object(),
        evidence,
        advice,
    ));
}

/// A04: rows of several shapes in one table.
fn two_shapes(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let shapes = &subject.table.shapes;
    let rows: u64 = shapes.iter().map(|(_, rows)| rows).sum();
    if (rows as f64) < thresholds.shape_rows {
        return;
    }
    let kinds = distinct_clusters(shapes, thresholds.shape_share, thresholds.shape_similarity);
    if kinds.len() < 2 {
        return;
    }
    let described: Vec<_> =
        kinds.iter().map(|kind| json!({ "fields": kind.fields, "rows": kind.rows })).collect();
    let pairs = alike(subject);
    let evidence = json!({ "rows": rows, "shapes": described, "alike_columns": pairs });
    let names: Vec<String> = kinds.iter().map(|kind| format!("({})", listed(kind))).collect();
    let mut advice = format!(
        "rows have different fields: {}; keep each kind in a table of its own",
        names.join(", ")
    );
    if !pairs.is_empty() {
        let texts: Vec<String> = pairs.iter().map(|(a, b)| format!("{a} and {b}")).collect();
        advice.push_str(&format!(", or rename columns that mean the same: {}", texts.join(", ")));
    }
    let ddl = split_tables(subject, &kinds);
    let nulls: u64 = subject.table.columns.iter().filter_map(|column| column.nulls).sum();
    let effect = Effect::in_words(format!("about {nulls} NULL values fewer"));
    let finding = subject.finding(Rule::A04, Severity::Warning, subject.object(), evidence, advice);
    findings.push(with_ddl(finding, ddl, Some(effect)));
}

/// Pairs of columns of one type that are never filled together but have values in common.
fn alike(subject: &Subject<'_>) -> Vec<(String, String)> {
    let columns: Vec<&ColumnFacts> = subject
        .table
        .columns
        .iter()
        .filter(|column| column.semantic != "time" && column.nulls.is_some_and(|nulls| nulls > 0))
        .collect();
    let mut pairs = Vec::new();
    for (position, a) in columns.iter().enumerate() {
        for b in &columns[position + 1..] {
            let common = a.sample.iter().filter(|value| b.sample.contains(value)).count();
            let smaller = a.sample.len().min(b.sample.len());
            // Two columns that are NULL in the other's rows have as many values together as there are rows at most.
            let rows = a.rows().unwrap_or_default();
            let is_either = a.values.unwrap_or_default() + b.values.unwrap_or_default() <= rows;
            if a.column_type == b.column_type && is_either && smaller > 0 && 2 * common >= smaller {
                pairs.push((a.name.clone(), b.name.clone()));
            }
        }
    }
    pairs
}

/// Statements that make a table of each kind of rows.
fn split_tables(subject: &Subject<'_>, kinds: &[Cluster<'_>]) -> Option<String> {
    let mut statements = Vec::new();
    for (number, kind) in (1..).zip(kinds) {
        let mut definition = Definition::of(subject.table)?;
        let siblings = kinds.iter().filter(|sibling| *sibling != kind);
        let foreign: Vec<&str> =
            siblings.flat_map(|sibling| sibling.fields.difference(&kind.fields).copied()).collect();
        for field in &foreign {
            definition.remove(field);
        }
        let name = format!("{}_{number}", subject.table.name);
        // A row of this kind has a value in one of the fields that only this kind has.
        let telling: Vec<&str> = kind
            .fields
            .iter()
            .copied()
            .filter(|field| {
                kinds.iter().all(|sibling| sibling == kind || !sibling.fields.contains(field))
            })
            .collect();
        let tests: Vec<String> = telling
            .iter()
            .map(|field| format!("{} IS NOT NULL", partita_sql::identifier::quote(field)))
            .collect();
        let filter = format!(" WHERE {}", tests.join(" OR "));
        if tests.is_empty() {
            return None;
        }
        statements.push(format!("{};", definition.create(&name)?));
        // The same is true of each of them.
        if number == 1 {
            statements.push(definition.left_behind());
        }
        statements.push(definition.insert(&name, &subject.table.name, &filter));
    }
    Some(statements.join("\n"))
}

#[cfg(test)]
mod tests {
    use crate::finding::{Rule, Severity};
    use crate::measurements::TableFacts;
    use crate::tests::{alone, column, of_rule, parses, table};

    fn with_columns(number: usize) -> TableFacts {
        let columns: Vec<String> = (0..number - 1).map(|n| format!("c{n} DOUBLE")).collect();
        table(&format!("CREATE TABLE wide (ts TIMESTAMP TIME INDEX, {})", columns.join(", ")))
    }

    #[test]
    fn a01_a_wide_table_is_found() {
        let finding = of_rule(&alone(with_columns(101)), Rule::A01).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(finding.evidence["columns"], 101);
        assert!(of_rule(&alone(with_columns(100)), Rule::A01).is_none());
    }

    #[test]
    fn a01_near_the_limit_it_is_an_error() {
        let mut measurements = alone(with_columns(101));
        measurements.settings.column_limit = 120;
        assert_eq!(of_rule(&measurements, Rule::A01).unwrap().severity, Severity::Error);
        // The seed's limit of 200 columns.
        measurements.settings.column_limit = 200;
        assert_eq!(of_rule(&measurements, Rule::A01).unwrap().severity, Severity::Warning);
    }

    /// The seed's table of two sources, a thousand times: 28 of 64 values are NULL.
    fn crypto() -> TableFacts {
        let mut facts = table(
            "CREATE TABLE crypto (source STRING, src STRING, code STRING, currency STRING, crypto STRING, \
             time TIMESTAMP(9) TIME INDEX, price DOUBLE, cost DOUBLE, volume BIGINT, \
             PRIMARY KEY (source, src, code, currency, crypto))",
        );
        for (name, values) in [
            ("source", 4),
            ("src", 4),
            ("code", 4),
            ("currency", 4),
            ("crypto", 8),
            ("price", 4),
            ("cost", 4),
            ("volume", 4),
        ] {
            let facts = column(&mut facts, name);
            facts.values = Some(values * 1_000);
            facts.nulls = Some((8 - values) * 1_000);
        }
        facts.rows = Some(8_000);
        facts.shapes = vec![
            (vec!["price".to_owned()], 4_000),
            (vec!["cost".to_owned(), "volume".to_owned()], 4_000),
        ];
        facts
    }

    #[test]
    fn a03_the_sparse_table_of_the_seed_is_found() {
        let finding = of_rule(&alone(crypto()), Rule::A03).unwrap();
        assert_eq!(finding.evidence["null_cells"], 28_000);
        assert_eq!(finding.evidence["cells"], 64_000);
    }

    #[test]
    fn a03_one_empty_column_is_enough_and_a_few_nulls_are_not() {
        let mut facts = table(
            "CREATE TABLE t (ts TIMESTAMP TIME INDEX, a DOUBLE, b DOUBLE, c DOUBLE, d DOUBLE)",
        );
        for name in ["a", "b", "c", "d"] {
            column(&mut facts, name).values = Some(1_000);
            column(&mut facts, name).nulls = Some(0);
        }
        (column(&mut facts, "d").values, column(&mut facts, "d").nulls) = (Some(190), Some(810));
        let finding = of_rule(&alone(facts.clone()), Rule::A03).unwrap();
        assert_eq!(finding.evidence["mostly_null_columns"][0], "d");
        (column(&mut facts, "d").values, column(&mut facts, "d").nulls) = (Some(210), Some(790));
        assert!(of_rule(&alone(facts), Rule::A03).is_none());
    }

    #[test]
    fn a04_the_two_sources_of_the_seed_become_two_tables() {
        let mut facts = crypto();
        column(&mut facts, "source").sample = vec!["1".to_owned(), "2".to_owned()];
        column(&mut facts, "src").sample = vec!["2".to_owned(), "1".to_owned()];
        let finding = of_rule(&alone(facts), Rule::A04).unwrap();
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("crypto_1") && ddl.contains("crypto_2"));
        assert!(ddl.contains("WHERE cost IS NOT NULL OR volume IS NOT NULL;"));
        assert_eq!(finding.evidence["alike_columns"][0][1], "src");
    }

    #[test]
    fn a04_fields_that_are_sometimes_missing_are_one_shape() {
        let mut facts = crypto();
        facts.shapes = vec![
            (vec!["price".to_owned(), "cost".to_owned(), "volume".to_owned()], 5_000),
            (vec!["cost".to_owned(), "volume".to_owned()], 3_000),
        ];
        assert!(of_rule(&alone(facts), Rule::A04).is_none());
    }
}
