//! A13, A26 and A30: what statements do with a table.

use std::collections::BTreeMap;

use partita_proto::schema::ColumnType;
use serde_json::json;

use crate::ddl::{Definition, copy_by, joined};
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::{FilterClass, StatementShape, TableFacts};
use crate::table::{ByTable, Subject, is_name_of, rounded, share, with_ddl};

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    read_all(subject, findings);
    tall_narrow(subject, findings);
}

/// A13: tables that are always joined, among these.
pub(crate) fn always_joined(
    subject: &Subject<'_>,
    tables: &[TableFacts],
    by_table: &ByTable<'_>,
    findings: &mut Vec<Finding>,
) {
    let thresholds = subject.thresholds;
    let all_calls = subject.calls();
    if (all_calls as f64) < thresholds.calls {
        return;
    }
    // Calls by the table that is joined; only joins on the key, time included, put rows of one moment together.
    let mut calls_by_table: BTreeMap<&str, u64> = BTreeMap::new();
    for statement in &subject.statements {
        let partners = statement.joins.iter().filter(|join| on_key(subject, &join.on)).filter_map(
            |join| match (subject.is_named(&join.left), subject.is_named(&join.right)) {
                (true, false) => Some(join.right.as_str()),
                (false, true) => Some(join.left.as_str()),
                _ => None,
            },
        );
        let mut names: Vec<&str> = partners.collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            *calls_by_table.entry(name).or_default() += statement.calls;
        }
    }
    for (name, calls) in calls_by_table {
        let mut candidates = tables.iter().filter(|table| !table.is_copy);
        let partner = candidates.find(|table| is_name_of(table, name));
        let Some(partner) = partner else { continue };
        // Each pair is reported once, with the table that comes first, or the only one of which this is true.
        let is_first =
            (&subject.table.database, &subject.table.name) < (&partner.database, &partner.name);
        let of_other: u64 = by_table.of(partner).iter().map(|statement| statement.calls).sum();
        let is_mutual = share(calls, of_other) >= thresholds.joined_share
            && of_other as f64 >= thresholds.calls;
        if share(calls, all_calls) < thresholds.joined_share || (is_mutual && !is_first) {
            continue;
        }
        let columns: Vec<String> = subject
            .table
            .key
            .iter()
            .filter(|column| partner.key.contains(column))
            .cloned()
            .collect();
        let evidence = json!({ "calls": calls, "calls_on_table": all_calls, "joined_with": name, "on": columns });
        let advice = format!(
            "{calls} of {all_calls} statements on \"{}\" join it with \"{}\" on the key: one table with the fields of both \
             needs no join",
            subject.table.name, partner.name
        );
        let finding =
            subject.finding(Rule::A13, Severity::Info, subject.object(), evidence, advice);
        let effect = Effect::in_words("one scan in place of two and a join");
        let is_same_key =
            columns.len() == subject.table.key.len() && columns.len() == partner.key.len();
        let ddl = is_same_key.then(|| joined(subject.table, partner, &columns)).flatten();
        findings.push(with_ddl(finding, ddl, Some(effect)));
    }
}

/// True if a join binds the time index and the tags of a table.
fn on_key(subject: &Subject<'_>, columns: &[String]) -> bool {
    let is_bound = |column: &String| columns.contains(column);
    subject.table.time_index.as_ref().is_some_and(is_bound)
        && subject.tags().all(|tag| is_bound(&tag.name))
        && subject.tags().next().is_some()
}

/// A26: statements that read all partitions.
fn read_all(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let all_calls = subject.calls();
    let first = subject.table.key.first();
    if subject.partitions() < 2 || (all_calls as f64) < thresholds.calls {
        return;
    }
    let reads_all = |statement: &&&StatementShape| {
        statement.partitions_total > 0
            && statement.partitions_touched >= statement.partitions_total
            && statement.partitions_total >= 2 * statement.calls
    };
    let broad: Vec<&&StatementShape> = subject.statements.iter().filter(reads_all).collect();
    let calls: u64 = broad.iter().map(|statement| statement.calls).sum();
    if share(calls, all_calls) < thresholds.all_partitions_share {
        return;
    }
    // The column that most of these bind, other than the one that the key begins with.
    let mut calls_by_column: BTreeMap<&str, u64> = BTreeMap::new();
    for statement in &broad {
        for filter in subject.filters(statement).filter(|filter| filter.class == FilterClass::Point)
        {
            if Some(&filter.column) != first
                && subject.table.time_index.as_ref() != Some(&filter.column)
            {
                *calls_by_column.entry(filter.column.as_str()).or_default() += statement.calls;
            }
        }
    }
    let most = calls_by_column.into_iter().max_by_key(|(_, calls)| *calls);
    let Some(column) = most.and_then(|(name, _)| subject.column(name)) else { return };
    // A copy keeps both orders. A field in the key of a table that deduplicates would let both versions of a row stay.
    let ddl = if subject.is_key(&column.name) {
        Some(copy_by(subject.table, &column.name))
    } else {
        let definition = subject.table.append_mode.then(|| Definition::of(subject.table));
        definition.flatten().and_then(|mut definition| {
            definition.lead_key(&column.name);
            definition.beside()
        })
    };
    let number = subject.partitions();
    let evidence = json!({ "calls": calls, "calls_on_table": all_calls, "partitions": number, "column": column.name });
    let advice = format!(
        "{calls} of {all_calls} statements read all {number} partitions for one \"{}\": begin the key with it, or keep a \
         copy whose key does",
        column.name
    );
    let object = subject.column_object(&column.name);
    let finding = subject.finding(Rule::A26, Severity::Warning, object, evidence, advice);
    let effect = Effect {
        rows_read: column
            .distinct
            .filter(|distinct| *distinct > 0)
            .map(|distinct| 1.0 / distinct as f64),
        partitions: Some(1.0 / number as f64),
        text: format!("one partition in place of {number} for each statement"),
        ..Effect::default()
    };
    findings.push(with_ddl(finding, ddl, Some(effect)));
}

/// A30: one small value in each row.
fn tall_narrow(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let fields: Vec<_> = subject.fields().collect();
    let ([field], Some(time)) = (fields.as_slice(), &subject.table.time_index) else { return };
    let Some(size) = field.bytes.zip(field.values).filter(|(_, values)| *values > 0) else {
        return;
    };
    let mean = share(size.0, size.1);
    let is_blob = field.column_type == ColumnType::Binary.sql();
    if mean >= thresholds.tiny_bytes || is_blob || subject.tags().next().is_none() {
        return;
    }
    // The statement names values of all tags, and a range of time.
    let reads_entities = |statement: &&&StatementShape| {
        let points = [FilterClass::Point, FilterClass::Points];
        subject.tags().all(|tag| subject.is_filtered(statement, &tag.name, &points))
            && subject.is_filtered(statement, time, &[FilterClass::Range])
    };
    let reading: Vec<&&StatementShape> = subject.statements.iter().filter(reads_entities).collect();
    let calls: u64 = reading.iter().map(|statement| statement.calls).sum();
    let returned: u64 = reading.iter().map(|statement| statement.rows_returned).sum();
    // Advise this only if every statement reads so: any other may need a row for each value.
    let is_always = calls == subject.calls() && calls as f64 >= thresholds.calls;
    if !is_always || (returned as f64) < thresholds.tiny_rows * calls as f64 {
        return;
    }
    let evidence = json!({
        "field": field.name, "mean_bytes": rounded(mean), "calls": calls, "rows_per_call": rounded(share(returned, calls)),
    });
    let advice = "each row has one small value, and statements read many of one entity at a time: write the fields of a \
                  moment into one row, or the values of a bucket of time (an hour) as one";
    findings.push(subject.finding(Rule::A30, Severity::Info, subject.object(), evidence, advice));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::{Filter, Join, Measurements, PartitionFacts, TableFacts};
    use crate::tests::{alone, column, of_rule, parses, table};

    fn health(name: &str) -> TableFacts {
        table(&format!(
            "CREATE TABLE {name} (person STRING, ts TIMESTAMP TIME INDEX, value DOUBLE, PRIMARY KEY (person))"
        ))
    }

    fn join(calls: u64, on: &[&str]) -> StatementShape {
        StatementShape {
            tables: vec!["public.blood_oxygen".to_owned(), "public.heart_rate".to_owned()],
            calls,
            joins: vec![Join {
                left: "public.blood_oxygen".to_owned(),
                right: "public.heart_rate".to_owned(),
                on: on.iter().map(|column| (*column).to_owned()).collect(),
            }],
            ..StatementShape::default()
        }
    }

    #[test]
    fn a13_the_measurements_of_the_seed_become_one_table() {
        let mut measurements = Measurements {
            tables: vec![health("heart_rate"), health("blood_oxygen")],
            statements: vec![join(20, &["person", "ts"])],
            ..Measurements::default()
        };
        let findings = crate::advise(&measurements, &crate::Thresholds::default());
        let found: Vec<_> = findings.iter().filter(|finding| finding.rule == Rule::A13).collect();
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.object, "public.blood_oxygen");
        let ddl = finding.ddl.clone().unwrap();
        parses(&ddl);
        assert!(ddl.contains("FULL JOIN"), "{ddl}");
        // As many statements read one of them alone.
        for name in ["blood_oxygen", "heart_rate"] {
            measurements.statements.push(StatementShape {
                tables: vec![format!("public.{name}")],
                calls: 21,
                ..StatementShape::default()
            });
        }
        assert!(of_rule(&measurements, Rule::A13).is_none());
    }

    #[test]
    fn a13_joins_on_other_columns_are_none_of_one_moment() {
        let measurements = Measurements {
            tables: vec![health("heart_rate"), health("blood_oxygen")],
            statements: vec![join(20, &["person"])],
            ..Measurements::default()
        };
        assert!(of_rule(&measurements, Rule::A13).is_none());
    }

    /// Statements for all events of a user in the table of the seed, whose key begins with the time.
    fn user_reads(touched: u64) -> Measurements {
        let mut facts = table(
            "CREATE TABLE events (ts TIMESTAMP(6) TIME INDEX, userid BIGINT UNSIGNED, userevent STRING, \
             PRIMARY KEY (ts, userid))",
        );
        facts.partitions = (1..=8)
            .map(|id| PartitionFacts { id, hot: true, ..PartitionFacts::default() })
            .collect();
        column(&mut facts, "userid").distinct = Some(10_000);
        let mut measurements = alone(facts);
        measurements.statements.push(StatementShape {
            tables: vec!["public.events".to_owned()],
            calls: 20,
            partitions_touched: touched,
            partitions_total: 160,
            filters: vec![Filter {
                table: "public.events".to_owned(),
                column: "userid".to_owned(),
                class: FilterClass::Point,
            }],
            ..StatementShape::default()
        });
        measurements
    }

    #[test]
    fn a26_the_reads_of_the_seed_need_a_key_by_user() {
        let finding = of_rule(&user_reads(160), Rule::A26).unwrap();
        assert_eq!(finding.object, "public.events.userid");
        assert_eq!(finding.effect.unwrap().partitions, Some(0.125));
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.starts_with("CREATE MATERIALIZED COPY "), "{ddl}");
        assert!(ddl.contains("events_by_userid OF "), "{ddl}");
        assert!(ddl.ends_with("PRIMARY KEY (userid, ts);"), "{ddl}");
    }

    #[test]
    fn a26_reads_of_one_partition_are_fine() {
        assert!(of_rule(&user_reads(20), Rule::A26).is_none());
        let mut few = user_reads(160);
        few.statements[0].calls = 19;
        assert!(of_rule(&few, Rule::A26).is_none());
        // Without a filter there is no better key.
        let mut unfiltered = user_reads(160);
        unfiltered.statements[0].filters.clear();
        assert!(of_rule(&unfiltered, Rule::A26).is_none());
    }

    /// The seed's balloons with one metric in a row: 8 bytes a minute.
    fn balloons(rows_returned: u64) -> Measurements {
        let mut facts = table(
            "CREATE TABLE balloons (location STRING, balloon BIGINT, ts TIMESTAMP TIME INDEX, pressure BIGINT, \
             PRIMARY KEY (location, balloon))",
        );
        (column(&mut facts, "pressure").values, column(&mut facts, "pressure").bytes) =
            (Some(10_080), Some(80_640));
        let mut measurements = alone(facts);
        let filter = |column: &str, class| Filter {
            table: "public.balloons".to_owned(),
            column: column.to_owned(),
            class,
        };
        measurements.statements.push(StatementShape {
            tables: vec!["public.balloons".to_owned()],
            calls: 20,
            rows_returned,
            filters: vec![
                filter("location", FilterClass::Point),
                filter("balloon", FilterClass::Point),
                filter("ts", FilterClass::Range),
            ],
            ..StatementShape::default()
        });
        measurements
    }

    #[test]
    fn a30_tiny_rows_of_the_seed_belong_into_buckets() {
        let finding = of_rule(&balloons(20 * 10_080), Rule::A30).unwrap();
        assert_eq!((finding.severity, finding.ddl), (Severity::Info, None));
        assert_eq!(finding.evidence["mean_bytes"], 8.0);
    }

    #[test]
    fn a30_larger_rows_and_shorter_reads_are_fine() {
        assert!(of_rule(&balloons(20 * 99), Rule::A30).is_none());
        let mut large = balloons(20 * 10_080);
        column(&mut large.tables[0], "pressure").bytes = Some(10_080 * 32);
        assert!(of_rule(&large, Rule::A30).is_none());
        // Other statements read otherwise.
        let mut mixed = balloons(20 * 10_080);
        mixed.statements.push(StatementShape {
            tables: vec!["public.balloons".to_owned()],
            calls: 1,
            ..StatementShape::default()
        });
        assert!(of_rule(&mixed, Rule::A30).is_none());
    }
}
