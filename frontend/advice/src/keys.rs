//! A02, A11, A15, A16, A17, A31 and A33: the columns of the key.

use std::cmp::{Ordering, Reverse};

use partita_proto::schema::ColumnType;
use partita_sql::identifier::quote;
use serde_json::json;

use crate::ddl::{Definition, lead_key};
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::{ColumnFacts, FilterClass, Placed};
use crate::table::{Subject, rounded, with_ddl, with_design};

/// Classes of filters that a key answers.
const SEEKS: [FilterClass; 3] = [FilterClass::Point, FilterClass::Points, FilterClass::Range];

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    many_tags(subject, findings);
    many_series(subject, findings);
    null_in_key(subject, findings);
    long_key(subject, findings);
    bad_type(subject, findings);
    dependent_tag(subject, findings);
    low_first_key(subject, findings);
}

/// A02: too many tags.
fn many_tags(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let tags: Vec<&ColumnFacts> = subject.tags().collect();
    if tags.len() as f64 <= subject.thresholds.many_tags {
        return;
    }
    // The most filtered tags stay, and of those that are filtered alike the ones that tell most: a constant tells nothing,
    // and a tag with too many values would make too many series. Tags of which nothing is known keep their order.
    let mut ranked = tags.clone();
    ranked.sort_by_key(|tag| {
        let calls = subject.filtering_calls(&tag.name, &SEEKS);
        let values = tag.distinct.map(|distinct| match distinct {
            0 | 1 => 0,
            distinct if distinct as f64 > subject.thresholds.high_cardinality => 1,
            distinct => distinct,
        });
        (Reverse(calls), values.is_some_and(|values| values < 2), values.map(Reverse))
    });
    let number = crate::rates::whole(subject.thresholds.many_tags);
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let remaining: Vec<&str> = ranked.iter().take(number).map(|tag| tag.name.as_str()).collect();
    let ddl = Definition::of(subject.table).and_then(|mut definition| {
        let key = definition.key().into_iter();
        let is_kept = |name: &String| {
            remaining.contains(&name.as_str()) || Some(name) == subject.table.time_index.as_ref()
        };
        let key = key.filter(is_kept).collect();
        definition.set_key(key);
        definition.append();
        definition.beside()
    });
    let names: Vec<&str> = tags.iter().map(|tag| tag.name.as_str()).collect();
    let evidence = json!({ "tags": names, "kept": remaining });
    let advice = format!(
        "keep ({}) in the key, and make fields of the other tags; every row is kept then ('append_mode'), because rows \
         that differ in these alone would replace each other",
        remaining.join(", ")
    );
    let finding = subject.finding(Rule::A02, Severity::Warning, subject.object(), evidence, advice);
    let effect = Effect::in_words("shorter keys: less to sort and to compare");
    findings.push(with_ddl(finding, ddl, Some(effect)));
}

/// Statements that make a field with bloom filters of a tag.
pub(crate) fn as_field(subject: &Subject<'_>, tag: &str) -> Option<String> {
    let mut definition = Definition::of(subject.table)?;
    definition.make_field(tag);
    definition.set_skipping_index(tag);
    definition.beside()
}

/// A11: too many series.
fn many_series(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let series = subject.table.series;
    let is_large = series.is_some_and(|series| series as f64 > thresholds.many_series);
    // New series per hour, as a share of all series.
    let relative_growth = match (series, subject.table.series_growth_per_hour) {
        (Some(series), Some(growth)) if series > 0 => Some(growth / series as f64),
        _ => None,
    };
    let grows = relative_growth.is_some_and(|growth| growth > thresholds.series_growth)
        && series.is_some_and(|series| series as f64 > thresholds.growing_series);
    let has_many_values = |tag: &&ColumnFacts| {
        tag.distinct.is_some_and(|distinct| distinct as f64 > thresholds.high_cardinality)
    };
    let many_valued: Vec<&ColumnFacts> = subject.tags().filter(has_many_values).collect();
    if many_valued.is_empty() && !is_large && !grows {
        return;
    }
    let severity = if is_large && grows { Severity::Error } else { Severity::Warning };
    let effect = |tag: &ColumnFacts| {
        let distinct = tag.distinct.unwrap_or_default();
        Effect::in_words(format!("up to {distinct} times fewer series"))
    };
    let figures = |tag: &ColumnFacts| {
        json!({
            "distinct_values": tag.distinct, "series": series,
            "growth_per_hour": relative_growth.map(rounded),
            "growth_of_values_per_hour": tag.growth_per_hour.map(rounded),
        })
    };
    let advice = |tag: &ColumnFacts| {
        format!(
            "make a field of \"{}\" with a skipping index, or keep the tables of each tenant apart; every row is kept \
             then ('append_mode')",
            tag.name
        )
    };
    // No single tag has too many values: the finding is about the table.
    if many_valued.is_empty() {
        let tags: Vec<_> = subject
            .tags()
            .map(|tag| {
                json!({
                    "tag": tag.name, "distinct_values": tag.distinct,
                    "growth_of_values_per_hour": tag.growth_per_hour.map(rounded),
                })
            })
            .collect();
        let evidence = json!({ "series": series, "growth_per_hour": relative_growth.map(rounded), "tags": tags });
        // Where the growth is known, the tag that grows the most makes the series.
        let growth_of = |tag: &ColumnFacts| tag.growth_per_hour.unwrap_or_default().max(0.0);
        let culprit = subject.tags().max_by(|a, b| {
            let by_growth =
                if grows { growth_of(a).total_cmp(&growth_of(b)) } else { Ordering::Equal };
            by_growth.then_with(|| a.distinct.cmp(&b.distinct))
        });
        let words = match culprit {
            Some(tag) => {
                format!("the combinations of tags are many; the most varied one: {}", advice(tag))
            }
            None => "fewer fields, or fewer combinations of tags, in one table".to_owned(),
        };
        let finding = subject.finding(Rule::A11, severity, subject.object(), evidence, words);
        let ddl = culprit.and_then(|tag| as_field(subject, &tag.name));
        findings.push(with_ddl(finding, ddl, culprit.map(effect)));
    }
    for tag in many_valued {
        let object = subject.column_object(&tag.name);
        let finding = subject.finding(Rule::A11, severity, object, figures(tag), advice(tag));
        findings.push(with_ddl(finding, as_field(subject, &tag.name), Some(effect(tag))));
    }
}

/// A15: NULL in the key.
fn null_in_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    for tag in subject.tags() {
        let Some(nulls) = tag.nulls.filter(|nulls| *nulls > 0) else { continue };
        let evidence = json!({ "nulls": nulls, "rows": tag.rows() });
        let advice = format!(
            "comparisons leave rows with NULL out; in a new table, declare \"{}\" NOT NULL with a default for those that have none",
            tag.name
        );
        let object = subject.column_object(&tag.name);
        findings.push(subject.finding(Rule::A15, Severity::Warning, object, evidence, advice));
    }
}

/// A15 of a table without rows: the key may be NULL.
pub(crate) fn nullable_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    for tag in subject.tags().filter(|tag| tag.nullable && tag.nulls.is_none()) {
        let object = subject.column_object(&tag.name);
        let advice = format!("declare \"{}\" NOT NULL if every row has a value", tag.name);
        let evidence = json!({ "nullable": true });
        findings.push(subject.finding(Rule::A15, Severity::Info, object, evidence, advice));
    }
}

/// A16: long key or row.
fn long_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    for tag in subject.tags() {
        let Some(length) = tag.length_max.filter(|length| *length as f64 > thresholds.key_bytes)
        else {
            continue;
        };
        let object = subject.column_object(&tag.name);
        let evidence = json!({ "length_max": length });
        let advice = "a key is compared and kept in memory as a whole: use a shorter value, such as a hash of it, and \
                      keep the long one as a field";
        findings.push(subject.finding(Rule::A16, Severity::Warning, object, evidence, advice));
    }
    let row = subject.table.row_bytes_max.filter(|bytes| *bytes as f64 > thresholds.row_bytes);
    if let Some(bytes) = row {
        let advice = "a row is written and read as a whole: keep large values outside, or divide them over rows";
        let evidence = json!({ "row_bytes_max": bytes });
        findings.push(subject.finding(
            Rule::A16,
            Severity::Warning,
            subject.object(),
            evidence,
            advice,
        ));
    }
    // Buckets of time have a rule of their own.
    let wide = subject.wide_row_bytes().filter(|bytes| *bytes > thresholds.wide_row_bytes);
    if let Some(bytes) = wide.filter(|_| subject.table.bucket_seconds.is_none()) {
        let evidence = json!({ "bytes_kept_together": bytes.round(), "rows_kept_together": subject.table.versions_per_key });
        let advice = "the rows that are kept together cannot be split: add a part of the time to the leading key columns";
        findings.push(subject.finding(
            Rule::A16,
            Severity::Warning,
            subject.object(),
            evidence,
            advice,
        ));
    }
}

/// A17: key type without exact equality.
fn bad_type(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    for tag in subject.tags() {
        let is_float = ["REAL", "DOUBLE"].contains(&tag.column_type.as_str());
        // A bucket of time that is computed has few values.
        let is_time = tag.column_type.starts_with("TIMESTAMP") && !tag.generated;
        if !is_float && !is_time {
            continue;
        }
        let (column_type, reason) = match is_float {
            true => (ColumnType::String, "two floats that are printed alike may differ"),
            false => (ColumnType::Int64, "a time in the tags makes a series of each row"),
        };
        let ddl = Definition::of(subject.table).and_then(|mut definition| {
            let expression = format!("CAST({} AS {})", quote(&tag.name), column_type.sql());
            definition.retype(&tag.name, column_type, expression);
            definition.beside()
        });
        let object = subject.column_object(&tag.name);
        let evidence = json!({ "type": tag.column_type });
        let advice = format!("{reason}: use BIGINT or STRING, or make a field of \"{}\"", tag.name);
        let finding = subject.finding(Rule::A17, Severity::Warning, object, evidence, advice);
        findings.push(with_ddl(finding, ddl, None));
    }
}

/// A31: tag that depends on another.
fn dependent_tag(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    // All columns follow from one that differs from row to row, which tells nothing of them.
    let is_telling = |source: &str| {
        subject.column(source).is_none_or(|column| !subject.differs_in_each_row(column))
    };
    let dependent = subject.table.dependent_tags.iter();
    for (tag, source) in dependent.filter(|(_, source)| is_telling(source)) {
        let evidence = json!({
            "depends_on": source, "series": subject.table.series,
            "estimate_without": subject.table.series_estimate,
        });
        let advice = format!(
            "\"{tag}\" follows from \"{source}\": it makes no series of its own, leave it out of estimates; it may be a field"
        );
        let object = subject.column_object(tag);
        findings.push(subject.finding(Rule::A31, Severity::Info, object, evidence, advice));
    }
}

/// A33: first key column with few values.
fn low_first_key(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let partitions = subject.partitions();
    let count = partitions.max(subject.table.min_partitions);
    let Some(first) = subject.first_key().filter(|_| subject.table.placement == Placed::Range)
    else {
        return;
    };
    let Some(distinct) = first.distinct else { return };
    if partitions < 2 || distinct as f64 >= subject.thresholds.first_key_values * count as f64 {
        return;
    }
    let varied = subject
        .most_varied_tag(&first.name)
        .filter(|tag| tag.distinct.is_some_and(|number| number > distinct));
    let ddl = varied.map(|tag| lead_key(subject.table, &tag.name));
    let advice = match varied {
        Some(tag) => format!("put the column with the most values first: \"{}\"", tag.name),
        None => "place the rows by hash, or put a column with more values first".to_owned(),
    };
    let evidence = json!({ "distinct_values": distinct, "partitions": partitions, "partitions_wanted": count });
    let object = subject.column_object(&first.name);
    let finding = subject.finding(Rule::A33, Severity::Warning, object, evidence, advice);
    let effect = varied.map(|_| Effect::in_words("partitions can be divided between many keys"));
    findings.push(with_design(subject, with_ddl(finding, ddl, effect)));
}

#[cfg(test)]
mod tests {
    use crate::finding::{Rule, Severity};
    use crate::measurements::{Filter, FilterClass, PartitionFacts, StatementShape};
    use crate::tests::{alone, column, of_rule, parses, table};

    #[test]
    fn a02_the_filtered_tags_stay() {
        let facts = table(
            "CREATE TABLE t (a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, ts TIMESTAMP TIME INDEX, \
             v DOUBLE, PRIMARY KEY (a, b, c, d, e, f))",
        );
        let mut measurements = alone(facts);
        measurements.statements.push(StatementShape {
            tables: vec!["public.t".to_owned()],
            calls: 10,
            filters: vec![Filter {
                table: "public.t".to_owned(),
                column: "f".to_owned(),
                class: FilterClass::Point,
            }],
            ..StatementShape::default()
        });
        for (number, name) in (1..).zip(["a", "b", "c", "d", "e", "f"]) {
            column(&mut measurements.tables[0], name).distinct = Some(number * 100);
        }
        let finding = of_rule(&measurements, Rule::A02).unwrap();
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("PRIMARY KEY (b, c, d, e, f)"), "{ddl}");
    }

    #[test]
    fn a02_constants_and_tags_of_too_many_values_go_first() {
        let mut facts = table(
            "CREATE TABLE t (a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, g STRING, \
             ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (a, b, c, d, e, f, g))",
        );
        let kept = |facts: &crate::TableFacts| {
            of_rule(&alone(facts.clone()), Rule::A02).unwrap().evidence["kept"].clone()
        };
        assert_eq!(kept(&facts), serde_json::json!(["a", "b", "c", "d", "e"]));
        let distinct = [3, 3, 1, 7, 1, 10_001, 1];
        for (name, distinct) in ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(distinct) {
            column(&mut facts, name).distinct = Some(distinct);
        }
        assert_eq!(kept(&facts), serde_json::json!(["d", "a", "b", "f", "c"]));
    }

    #[test]
    fn a02_five_tags_are_not_too_many() {
        let facts = table(
            "CREATE TABLE t (a STRING, b STRING, c STRING, d STRING, e STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (a, b, c, d, e))",
        );
        assert!(of_rule(&alone(facts), Rule::A02).is_none());
    }

    #[test]
    fn a02_the_key_of_the_seed_has_one_tag() {
        let facts = table(
            "CREATE TABLE http_logs_v2 (access_time TIMESTAMP TIME INDEX, application STRING, request STRING, \
             PRIMARY KEY(application)) WITH ('append_mode'='true')",
        );
        assert!(of_rule(&alone(facts), Rule::A02).is_none());
    }

    #[test]
    fn a11_a_tag_of_many_values_becomes_a_field() {
        let mut facts = table(
            "CREATE TABLE t (host STRING, trace_id STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (host, trace_id))",
        );
        column(&mut facts, "trace_id").distinct = Some(10_001);
        let finding = of_rule(&alone(facts.clone()), Rule::A11).unwrap();
        assert_eq!(finding.object, "public.t.trace_id");
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("PRIMARY KEY (host)") && ddl.contains("SKIPPING INDEX"), "{ddl}");
        column(&mut facts, "trace_id").distinct = Some(10_000);
        assert!(of_rule(&alone(facts), Rule::A11).is_none());
    }

    #[test]
    fn a11_the_devices_of_the_seed_are_too_many_series() {
        // 100,000 customers with 10 devices and 5 fields each.
        let mut facts = table(
            "CREATE TABLE iot (customer_id STRING, device_id STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (customer_id, device_id))",
        );
        facts.series = Some(5_000_000);
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A11).unwrap().severity, Severity::Warning);
        facts.series_growth_per_hour = Some(2_000_000.0);
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A11).unwrap().severity, Severity::Error);
        // 5 customers with 5 devices and a field.
        (facts.series, facts.series_growth_per_hour) = (Some(25), Some(25.0));
        assert!(of_rule(&alone(facts), Rule::A11).is_none());
    }

    #[test]
    fn a11_of_the_tags_the_one_that_grows_is_to_blame() {
        let mut facts = table(
            "CREATE TABLE iot (customer STRING, device STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (customer, device))",
        );
        (facts.series, facts.series_growth_per_hour) = (Some(2_000), Some(500.0));
        let customer = column(&mut facts, "customer");
        (customer.distinct, customer.growth_per_hour) = (Some(100), Some(25.0));
        let device = column(&mut facts, "device");
        (device.distinct, device.growth_per_hour) = (Some(200), Some(0.0));
        let finding = of_rule(&alone(facts.clone()), Rule::A11).unwrap();
        assert!(finding.ddl.unwrap().contains("PRIMARY KEY (device)"));
        assert_eq!(finding.evidence["tags"][0]["growth_of_values_per_hour"], 25.0);
        column(&mut facts, "customer").growth_per_hour = None;
        let finding = of_rule(&alone(facts), Rule::A11).unwrap();
        assert!(finding.ddl.unwrap().contains("PRIMARY KEY (customer)"));
    }

    #[test]
    fn a15_null_in_the_key_is_found() {
        let mut facts = table(
            "CREATE TABLE events (userid BIGINT, ts TIMESTAMP TIME INDEX, PRIMARY KEY (userid))",
        );
        let userid = column(&mut facts, "userid");
        (userid.values, userid.nulls) = (Some(99), Some(1));
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A15).unwrap().severity, Severity::Warning);
        column(&mut facts, "userid").nulls = Some(0);
        assert!(of_rule(&alone(facts.clone()), Rule::A15).is_none());
        // A key that may be NULL is only mentioned when the table is created.
        column(&mut facts, "userid").nulls = None;
        assert!(of_rule(&alone(facts), Rule::A15).is_none());
    }

    #[test]
    fn a16_keys_and_rows_of_the_seed_are_too_long() {
        let mut facts = table(
            "CREATE TABLE t (path STRING, ts TIMESTAMP TIME INDEX, body BINARY, PRIMARY KEY (path))",
        );
        column(&mut facts, "path").length_max = Some(2_151);
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A16).unwrap().object, "public.t.path");
        column(&mut facts, "path").length_max = Some(2_048);
        assert!(of_rule(&alone(facts.clone()), Rule::A16).is_none());
        facts.row_bytes_max = Some(9 << 20);
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A16).unwrap().object, "public.t");
        facts.row_bytes_max = Some(8 << 20);
        assert!(of_rule(&alone(facts.clone()), Rule::A16).is_none());
        (facts.rows, facts.bytes, facts.versions_per_key) =
            (Some(1_000), Some(1_000_000), Some(200_000.0));
        assert!(of_rule(&alone(facts), Rule::A16).is_some());
    }

    #[test]
    fn a17_floats_and_times_are_no_tags() {
        let facts = table(
            "CREATE TABLE t (level DOUBLE, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (level))",
        );
        let ddl = of_rule(&alone(facts), Rule::A17).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("CAST(level AS STRING)"), "{ddl}");
        let facts = table(
            "CREATE TABLE t (due TIMESTAMP, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (due))",
        );
        assert!(
            of_rule(&alone(facts), Rule::A17).unwrap().ddl.unwrap().contains("CAST(due AS BIGINT)")
        );
        let facts = table(
            "CREATE TABLE t (host STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, PRIMARY KEY (host))",
        );
        assert!(of_rule(&alone(facts), Rule::A17).is_none());
    }

    #[test]
    fn a31_the_dependent_tag_of_the_seed_is_named() {
        let mut facts = table(
            "CREATE TABLE measurement1 (tag1 STRING, tag2 STRING, ts TIMESTAMP TIME INDEX, field1 BIGINT, \
             field2 DOUBLE, field3 STRING, PRIMARY KEY (tag1, tag2))",
        );
        assert!(of_rule(&alone(facts.clone()), Rule::A31).is_none());
        facts.dependent_tags = vec![("tag2".to_owned(), "tag1".to_owned())];
        (facts.series, facts.series_estimate) = (Some(6), Some(6));
        let finding = of_rule(&alone(facts), Rule::A31).unwrap();
        assert_eq!(
            (finding.severity, finding.object.as_str()),
            (Severity::Info, "public.measurement1.tag2")
        );
        assert_eq!(finding.evidence["estimate_without"], 6);
    }

    #[test]
    fn a31_nothing_depends_on_an_id_of_the_row() {
        let mut facts = table(
            "CREATE TABLE t (request STRING, host STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (request, host))",
        );
        facts.dependent_tags = vec![("host".to_owned(), "request".to_owned())];
        let request = column(&mut facts, "request");
        (request.values, request.distinct) = (Some(10_000), Some(9_900));
        let measurements = alone(facts.clone());
        assert!(of_rule(&measurements, Rule::A31).is_none());
        assert_eq!(of_rule(&measurements, Rule::A12).unwrap().object, "public.t.request");
        column(&mut facts, "request").distinct = Some(500);
        assert!(of_rule(&alone(facts), Rule::A31).is_some());
    }

    #[test]
    fn a33_a_first_column_of_few_values_goes_behind() {
        let mut facts = table(
            "CREATE TABLE t (region STRING, host STRING, ts TIMESTAMP TIME INDEX, v DOUBLE, \
             PRIMARY KEY (region, host))",
        );
        facts.partitions =
            (1..=4).map(|id| PartitionFacts { id, ..PartitionFacts::default() }).collect();
        column(&mut facts, "region").distinct = Some(7);
        column(&mut facts, "host").distinct = Some(5_000);
        let ddl = of_rule(&alone(facts.clone()), Rule::A33).unwrap().ddl.unwrap();
        parses(&ddl);
        assert_eq!(ddl, "ALTER TABLE public.t PRIMARY KEY (host, region, ts);");
        column(&mut facts, "region").distinct = Some(8);
        assert!(of_rule(&alone(facts.clone()), Rule::A33).is_none());
        // One partition needs no second value.
        column(&mut facts, "region").distinct = Some(1);
        facts.partitions.truncate(1);
        assert!(of_rule(&alone(facts), Rule::A33).is_none());
    }
}
