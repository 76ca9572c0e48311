//! A09, A28, A29, A38 and A39: times of rows, and how long they are kept.

use std::collections::HashMap;

use serde_json::json;

use crate::ddl::alter;
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::{Measurements, StatementShape};
use crate::rates::whole;
use crate::table::{ByTable, Subject, rounded, share, with_ddl};
use crate::thresholds::Thresholds;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    split_timestamps(subject, findings);
    no_collection(subject, findings);
    long_buckets(subject, findings);
    irregular(subject, findings);
}

/// A09: fields of one moment with different timestamps.
fn split_timestamps(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let (Some(split), Some(rows)) = (subject.table.split_rows, subject.table.rows) else { return };
    if (rows as f64) < thresholds.shape_rows || share(split, rows) <= thresholds.split_share {
        return;
    }
    let evidence =
        json!({ "split_rows": split, "rows": rows, "share": rounded(share(split, rows)) });
    let advice = "rows of the same tags follow each other within a second and have different fields: write all fields of a \
                  moment with one timestamp";
    let finding = subject.finding(Rule::A09, Severity::Warning, subject.object(), evidence, advice);
    let text = format!("about {} rows in place of {rows}", rows.saturating_sub(split));
    findings.push(with_ddl(finding, None, Some(Effect::in_words(text))));
}

/// A28: versions that never expire.
fn no_collection(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let table = subject.table;
    if table.append_mode || table.ttl_ms.is_some() {
        return;
    }
    let versions = table.versions_per_key.filter(|versions| *versions > thresholds.versions);
    let folded = match (table.folded, table.rows) {
        (Some(folded), Some(rows)) if rows > 0 => Some(share(folded, rows)),
        _ => None,
    };
    let folded = folded.filter(|ratio| *ratio > thresholds.folded_ratio);
    if versions.is_none() && folded.is_none() {
        return;
    }
    let evidence = json!({
        "rows_kept_together": table.versions_per_key, "dropped_versions": table.folded, "rows": table.rows,
    });
    let advice = "rows are added to the same keys and never expire: let old ones expire, after a time that the owner knows";
    let finding = subject.finding(Rule::A28, Severity::Warning, subject.object(), evidence, advice);
    let ddl = table.time_index.as_ref().map(|_| alter(table, "SET ('ttl' = '30d')"));
    findings.push(with_ddl(
        finding,
        ddl,
        Some(Effect::in_words("only the rows of the last 30 days")),
    ));
}

/// A29: time buckets too long.
fn long_buckets(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let limit = subject.thresholds.wide_row_bytes;
    let (Some(seconds), Some(bytes)) = (subject.table.bucket_seconds, subject.wide_row_bytes())
    else {
        return;
    };
    if bytes <= limit || seconds == 0 {
        return;
    }
    let fitting = whole(seconds as f64 * limit / bytes).max(1);
    let bucket = common_bucket(fitting);
    let evidence = json!({ "bucket_seconds": seconds, "bytes_in_bucket": bytes.round(), "fitting_seconds": fitting });
    let advice = format!(
        "the rows of one bucket have {} MB: a bucket of {bucket} seconds stays below {} MB",
        whole(bytes / 1e6),
        whole(limit / 1e6)
    );
    let finding = subject.finding(Rule::A29, Severity::Info, subject.object(), evidence, advice);
    let effect = Effect::in_words(format!("buckets of {bucket} seconds"));
    findings.push(with_ddl(finding, None, Some(effect)));
}

/// The greatest usual length of a bucket that fits, in seconds.
fn common_bucket(seconds: u64) -> u64 {
    let usual = [604_800, 86_400, 21_600, 3_600, 1_800, 900, 600, 300, 60];
    usual.into_iter().find(|length| *length <= seconds).unwrap_or(seconds)
}

/// A38: irregular metric.
fn irregular(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let (Some(intervals), Some(rows)) = (subject.table.intervals, subject.table.rows) else {
        return;
    };
    let is_metric = subject.table.label.as_deref() == Some("metric");
    if !is_metric || intervals.mean_ms <= 0.0 || (rows as f64) < thresholds.irregular_rows {
        return;
    }
    let deviation = intervals.deviation_ms / intervals.mean_ms;
    if deviation <= thresholds.irregular_share {
        return;
    }
    let evidence = json!({
        "mean_ms": rounded(intervals.mean_ms), "deviation_ms": rounded(intervals.deviation_ms), "rows": rows,
    });
    let advice = "a metric is collected at equal intervals, and these are not: align the collection, for which timestamps \
                  take less space, or call the table one of events in its comment";
    findings.push(subject.finding(Rule::A38, Severity::Info, subject.object(), evidence, advice));
}

/// The table whose statements look back the furthest, with that time in milliseconds, by database and time to live.
#[derive(Debug, Default)]
pub(crate) struct LookBacks<'a>(HashMap<(&'a str, Option<u64>), (u64, &'a str)>);

impl<'a> LookBacks<'a> {
    pub(crate) fn new(
        measurements: &'a Measurements,
        thresholds: &Thresholds,
        by_table: &ByTable<'a>,
    ) -> Self {
        let mut furthest: HashMap<(&str, Option<u64>), (u64, &str)> = HashMap::new();
        for table in measurements.tables.iter().filter(|table| !table.is_copy) {
            let thresholds = thresholds.of_table(&table.thresholds);
            let Some(age) = look_back(&by_table.of(table), &thresholds) else { continue };
            let entry = furthest.entry((table.database.as_str(), table.ttl_ms)).or_default();
            *entry = (*entry).max((age, table.name.as_str()));
        }
        Self(furthest)
    }
}

/// Time to which statements on a table look back, in milliseconds; `None` of too few statements.
fn look_back(statements: &[&StatementShape], thresholds: &Thresholds) -> Option<u64> {
    let mut calls = 0;
    let mut age: Option<u64> = None;
    for statement in statements.iter().filter(|statement| statement.newest_ms.is_some()) {
        calls += statement.calls;
        age = age.max(statement.newest_ms);
    }
    age.filter(|_| calls as f64 >= thresholds.calls)
}

/// A39: different retention in one database.
pub(crate) fn retention(
    subject: &Subject<'_>,
    look_backs: &LookBacks<'_>,
    findings: &mut Vec<Finding>,
) {
    let table = subject.table;
    let Some(age) = look_back(&subject.statements, subject.thresholds) else { return };
    let furthest = look_backs.0.get(&(table.database.as_str(), table.ttl_ms));
    let Some((longest, other_table)) = furthest.copied() else { return };
    if longest as f64 <= subject.thresholds.retention_ratio * age.max(1) as f64 {
        return;
    }
    // Twice what is asked for, in whole days.
    let days = age.saturating_mul(2).div_ceil(DAY_MS).max(1);
    let keeps = table.ttl_ms.is_none_or(|ttl| ttl > days.saturating_mul(DAY_MS));
    let evidence = json!({
        "look_back_ms": age, "other_table": other_table, "other_look_back_ms": longest, "ttl_ms": table.ttl_ms,
    });
    let advice = format!(
        "statements look back {} hours in \"{}\" and {} hours in \"{}\", which expire alike: let each have a time of its \
         own, or a database of its own",
        age.div_ceil(3_600_000),
        table.name,
        longest.div_ceil(3_600_000),
        other_table
    );
    let finding = subject.finding(Rule::A39, Severity::Info, subject.object(), evidence, advice);
    let ddl = keeps.then(|| alter(table, &format!("SET ('ttl' = '{days}d')")));
    let effect = Effect::in_words(format!("rows of {days} days are kept"));
    findings.push(with_ddl(finding, ddl, Some(effect)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::{IntervalFacts, TableFacts};
    use crate::tests::{alone, of_rule, parses, table};

    fn metrics() -> TableFacts {
        let mut facts = table(
            "CREATE TABLE system_metrics (host STRING, ts TIMESTAMP TIME INDEX, cpu_util DOUBLE, memory_util DOUBLE, \
             PRIMARY KEY (host)) WITH ('comment' = 'metrics of hosts')",
        );
        (facts.rows, facts.bytes) = (Some(1_000), Some(32_000));
        facts
    }

    #[test]
    fn a09_fields_with_timestamps_of_their_own_are_found() {
        let mut facts = metrics();
        facts.split_rows = Some(201);
        let finding = of_rule(&alone(facts.clone()), Rule::A09).unwrap();
        assert_eq!(finding.evidence["split_rows"], 201);
        facts.split_rows = Some(200);
        assert!(of_rule(&alone(facts.clone()), Rule::A09).is_none());
        // The seed's two reports at different times, of which there are too few to tell.
        (facts.rows, facts.split_rows) = (Some(2), Some(1));
        assert!(of_rule(&alone(facts), Rule::A09).is_none());
    }

    #[test]
    fn a28_versions_that_never_expire_are_found() {
        let mut facts = metrics();
        // The seed's column with a cell for each minute of a week.
        facts.versions_per_key = Some(10_080.0);
        let ddl = of_rule(&alone(facts.clone()), Rule::A28).unwrap().ddl.unwrap();
        parses(&ddl);
        facts.ttl_ms = Some(DAY_MS);
        assert!(of_rule(&alone(facts.clone()), Rule::A28).is_none());
        (facts.ttl_ms, facts.versions_per_key) = (None, Some(10_000.0));
        assert!(of_rule(&alone(facts.clone()), Rule::A28).is_none());
        facts.folded = Some(10_001);
        assert!(of_rule(&alone(facts.clone()), Rule::A28).is_some());
        facts.append_mode = true;
        assert!(of_rule(&alone(facts), Rule::A28).is_none());
    }

    #[test]
    fn a29_a_bucket_of_the_seed_is_cut_to_below_a_hundred_megabytes() {
        let mut facts = metrics();
        // An hour of rows of 32 bytes that come 2,000 times a second.
        (facts.bucket_seconds, facts.versions_per_key) = (Some(3_600), Some(7_200_000.0));
        let finding = of_rule(&alone(facts.clone()), Rule::A29).unwrap();
        assert_eq!(finding.evidence["fitting_seconds"], 1_562);
        assert_eq!(finding.effect.unwrap().text, "buckets of 900 seconds");
        // A minute of them fits.
        (facts.bucket_seconds, facts.versions_per_key) = (Some(60), Some(120_000.0));
        assert!(of_rule(&alone(facts), Rule::A29).is_none());
    }

    #[test]
    fn a38_a_metric_with_the_intervals_of_events_is_irregular() {
        let mut facts = metrics();
        facts.intervals = Some(IntervalFacts { mean_ms: 10_000.0, deviation_ms: 5_001.0 });
        assert_eq!(of_rule(&alone(facts.clone()), Rule::A38).unwrap().severity, Severity::Info);
        facts.intervals = Some(IntervalFacts { mean_ms: 10_000.0, deviation_ms: 5_000.0 });
        assert!(of_rule(&alone(facts.clone()), Rule::A38).is_none());
        // Events are irregular by nature.
        facts.intervals = Some(IntervalFacts { mean_ms: 10_000.0, deviation_ms: 10_000.0 });
        facts.label = Some("event".to_owned());
        assert!(of_rule(&alone(facts), Rule::A38).is_none());
    }

    /// Statements on two tables of one database that look back by an hour and by so many hours.
    fn looking_back(hours: u64, calls: u64) -> Measurements {
        let other = table("CREATE TABLE audit (ts TIMESTAMP TIME INDEX, v DOUBLE)");
        let of = |name: &str, hours: u64| StatementShape {
            tables: vec![format!("public.{name}")],
            calls,
            newest_ms: Some(hours * 3_600_000),
            ..StatementShape::default()
        };
        Measurements {
            tables: vec![metrics(), other],
            statements: vec![of("system_metrics", 1), of("audit", hours)],
            ..Measurements::default()
        }
    }

    #[test]
    fn a39_recent_and_old_rows_are_kept_for_different_times() {
        let finding = of_rule(&looking_back(31, 20), Rule::A39).unwrap();
        assert_eq!(finding.object, "public.system_metrics");
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert_eq!(ddl, "ALTER TABLE public.system_metrics SET ('ttl' = '1d');");
        assert!(of_rule(&looking_back(30, 20), Rule::A39).is_none());
        assert!(of_rule(&looking_back(31, 19), Rule::A39).is_none());
        // As the seed advises, they have different times already.
        let mut separated = looking_back(31, 20);
        separated.tables[0].ttl_ms = Some(DAY_MS);
        assert!(of_rule(&separated, Rule::A39).is_none());
    }
}
