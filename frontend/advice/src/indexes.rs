//! A18 to A21: indexes that are missing, unused or of the wrong kind.

use serde_json::json;

use crate::ddl::{drop_index, set_index};
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::measurements::{ColumnFacts, FilterClass, StatementShape};
use crate::table::{Subject, rounded, share, with_ddl};

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    for column in &subject.table.columns {
        missing(subject, column, findings);
        unused(subject, column, findings);
        on_time(subject, column, findings);
        wrong_kind(subject, column, findings);
    }
}

/// True if an index of a kind answers a class of filters.
fn answers(kind: &str, class: FilterClass) -> bool {
    match class {
        FilterClass::Point | FilterClass::Points => kind == "inverted" || kind == "skipping",
        FilterClass::Range | FilterClass::Null => kind == "inverted",
        FilterClass::Pattern => kind == "inverted" || kind == "fulltext",
        FilterClass::Terms => kind == "fulltext",
    }
}

/// The kind of index that a column needs for a class of filters; `None` if none helps.
fn needed(subject: &Subject<'_>, column: &ColumnFacts, class: FilterClass) -> Option<&'static str> {
    let distinct = column.distinct?;
    let is_low = distinct as f64 <= subject.thresholds.high_cardinality;
    match class {
        FilterClass::Terms => column.is_text().then_some("fulltext"),
        FilterClass::Pattern if is_low => Some("inverted"),
        FilterClass::Pattern => column.is_text().then_some("fulltext"),
        FilterClass::Point | FilterClass::Points if is_low => Some("inverted"),
        FilterClass::Point | FilterClass::Points => Some("skipping"),
        FilterClass::Range | FilterClass::Null => is_low.then_some("inverted"),
    }
}

/// A18: missing index.
fn missing(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    if column.semantic == "time" || subject.table.key.first() == Some(&column.name) {
        return;
    }
    // Statements that filter the column by a test that no index of it answers.
    let class_of = |statement: &StatementShape| {
        subject
            .filters(statement)
            .find(|filter| filter.column == column.name)
            .map(|filter| filter.class)
            .filter(|class| !column.indexes.iter().any(|index| answers(&index.kind, *class)))
    };
    let filtering: Vec<(&StatementShape, FilterClass)> = subject
        .statements
        .iter()
        .filter_map(|statement| Some((*statement, class_of(statement)?)))
        .collect();
    let calls: u64 = filtering.iter().map(|(statement, _)| statement.calls).sum();
    let all_calls = subject.calls();
    let is_frequent = all_calls as f64 >= thresholds.calls
        && share(calls, all_calls) >= thresholds.filter_share
        && calls > 0;
    let examined: u64 = filtering.iter().map(|(statement, _)| statement.rows_examined).sum();
    let returned: u64 = filtering.iter().map(|(statement, _)| statement.rows_returned).sum();
    let is_selective = share(returned, examined) < thresholds.selectivity
        && examined as f64 > thresholds.scan_ratio * returned.max(1) as f64;
    if !is_frequent || !is_selective {
        return;
    }
    let busiest = filtering.iter().max_by_key(|(statement, _)| statement.rows_examined);
    let Some((statement, class)) = busiest else { return };
    let Some(kind) = needed(subject, column, *class) else { return };
    let least = column
        .distinct
        .filter(|distinct| *distinct > 0)
        .map_or(0.0, |distinct| 1.0 / distinct as f64);
    let factor = least.max(share(returned, examined));
    let evidence = json!({
        "calls": calls, "calls_on_table": all_calls, "rows_examined": examined, "rows_returned": returned,
        "distinct_values": column.distinct, "statement": statement.text,
    });
    let advice = format!(
        "{calls} of {all_calls} statements filter \"{}\" and read {examined} rows for {returned}: a {kind} index leaves \
         the others out",
        column.name
    );
    let effect = Effect {
        rows_read: Some(factor),
        text: format!("{:.2} % of the rows are read", factor * 100.0),
        ..Effect::default()
    };
    let ddl = set_index(subject.table, &column.name, kind, None);
    let object = subject.column_object(&column.name);
    let finding = subject.finding(Rule::A18, Severity::Warning, object, evidence, advice);
    findings.push(with_ddl(finding, Some(ddl), Some(effect)));
}

/// A19: unused index.
fn unused(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    for index in &column.indexes {
        let Some(queries) = index.queries_since else { continue };
        if (queries as f64) < subject.thresholds.unused_statements {
            continue;
        }
        let evidence = json!({
            "index": index.name, "kind": index.kind, "statements_since": queries, "bytes": index.bytes, "uses": index.uses,
        });
        let advice = format!(
            "the last {queries} statements on the table did not use index \"{}\": every flush and compaction pays for it",
            index.name
        );
        // Stored bytes of the table without the index, as a share of what is stored now.
        let remaining_share = match (index.bytes, subject.table.bytes) {
            (Some(bytes), Some(total)) if total > 0 => Some(1.0 - share(bytes.min(total), total)),
            _ => None,
        };
        let text = index
            .bytes
            .map_or_else(|| "less to write".to_owned(), |bytes| format!("{bytes} bytes fewer"));
        let effect = Effect { bytes: remaining_share, text, ..Effect::default() };
        let object = subject.column_object(&column.name);
        let finding = subject.finding(Rule::A19, Severity::Info, object, evidence, advice);
        findings.push(with_ddl(
            finding,
            Some(drop_index(subject.table, &index.name)),
            Some(effect),
        ));
    }
}

/// A20: index on the time index.
fn on_time(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    if column.semantic != "time" {
        return;
    }
    for index in &column.indexes {
        let evidence = json!({ "index": index.name, "kind": index.kind });
        let advice = "files are kept by time, and each says which times it has: an index of the time index is never needed";
        let object = subject.column_object(&column.name);
        let finding = subject.finding(Rule::A20, Severity::Warning, object, evidence, advice);
        let effect = Effect::in_words("less to write");
        findings.push(with_ddl(
            finding,
            Some(drop_index(subject.table, &index.name)),
            Some(effect),
        ));
    }
}

/// A21: index of the wrong kind.
fn wrong_kind(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    if column.semantic == "time" {
        return;
    }
    for index in &column.indexes {
        let is_judged = column.rows().is_some_and(|rows| rows as f64 >= thresholds.index_rows);
        let distinct = column.distinct.filter(|_| is_judged);
        let is_few = distinct.is_some_and(|distinct| (distinct as f64) < thresholds.few_values);
        let is_many =
            distinct.is_some_and(|distinct| distinct as f64 > thresholds.high_cardinality);
        let is_short =
            column.length_p95.is_some_and(|length| length as f64 <= thresholds.short_text);
        let (kind, reason) = match index.kind.as_str() {
            "inverted" if is_many => ("skipping", "a dictionary of so many values is large"),
            "skipping" if is_few => ("inverted", "nearly every block has each of so few values"),
            "skipping" if column.column_type == "BOOLEAN" => {
                ("inverted", "every block has both values")
            }
            "fulltext" if is_few && is_short => ("inverted", "the values are a few short words"),
            _ => continue,
        };
        // The column may have the other kind as well.
        let ddl = match column.index(kind) {
            Some(_) => drop_index(subject.table, &index.name),
            None => set_index(subject.table, &column.name, kind, Some(&index.kind)),
        };
        let evidence = json!({
            "index": index.name, "kind": index.kind, "distinct_values": column.distinct,
            "length_p95": column.length_p95, "bytes": index.bytes,
        });
        let object = subject.column_object(&column.name);
        let advice = format!("{reason}: an index of kind {kind} is smaller or excludes more");
        let finding = subject.finding(Rule::A21, Severity::Warning, object, evidence, advice);
        let factor = distinct.filter(|distinct| *distinct > 0 && kind == "inverted");
        let effect = Effect {
            rows_read: factor.map(|distinct| rounded(1.0 / distinct as f64)),
            text: format!("an index that fits \"{}\"", column.name),
            ..Effect::default()
        };
        findings.push(with_ddl(finding, Some(ddl), Some(effect)));
    }
}

#[cfg(test)]
mod tests {
    use crate::finding::{Rule, Severity};
    use crate::measurements::{Filter, FilterClass, Measurements, StatementShape, TableFacts};
    use crate::tests::{alone, column, of_rule, parses, table};

    const HTTP_LOGS: &str = "CREATE TABLE http_logs (access_time TIMESTAMP TIME INDEX, application STRING, \
         http_method STRING, request_id STRING, request STRING, PRIMARY KEY (application)) \
         WITH ('append_mode' = 'true')";

    /// Statements on http_logs that filter a column.
    fn filtered(facts: TableFacts, name: &str, class: FilterClass) -> Measurements {
        let mut measurements = alone(facts);
        measurements.statements.push(StatementShape {
            text: format!("SELECT request FROM http_logs WHERE {name} = ?"),
            tables: vec!["public.http_logs".to_owned()],
            calls: 20,
            rows_examined: 20_000_000,
            rows_returned: 2_000,
            filters: vec![Filter {
                table: "public.http_logs".to_owned(),
                column: name.to_owned(),
                class,
            }],
            ..StatementShape::default()
        });
        measurements
    }

    #[test]
    fn a18_the_columns_of_the_seed_get_the_indexes_of_the_seed() {
        for (name, distinct, class, index) in [
            ("http_method", 5, FilterClass::Point, "INVERTED"),
            ("request_id", 5_000_000, FilterClass::Point, "SKIPPING"),
            ("request", 10_001, FilterClass::Terms, "FULLTEXT"),
        ] {
            let mut facts = table(HTTP_LOGS);
            column(&mut facts, name).distinct = Some(distinct);
            let finding = of_rule(&filtered(facts, name, class), Rule::A18).unwrap();
            let ddl = finding.ddl.unwrap();
            parses(&ddl);
            assert_eq!(
                ddl,
                format!("ALTER TABLE public.http_logs MODIFY COLUMN {name} SET {index} INDEX;")
            );
        }
    }

    #[test]
    fn a18_the_effect_is_that_of_the_rarest_value() {
        let mut facts = table(HTTP_LOGS);
        column(&mut facts, "http_method").distinct = Some(5);
        let finding =
            of_rule(&filtered(facts, "http_method", FilterClass::Point), Rule::A18).unwrap();
        assert_eq!(finding.effect.unwrap().rows_read, Some(0.2));
    }

    #[test]
    fn a18_neither_keys_nor_rare_nor_unselective_filters_need_an_index() {
        let mut facts = table(HTTP_LOGS);
        for name in ["application", "http_method"] {
            column(&mut facts, name).distinct = Some(20);
        }
        assert!(
            of_rule(&filtered(facts.clone(), "application", FilterClass::Point), Rule::A18)
                .is_none()
        );
        let mut measurements = filtered(facts.clone(), "http_method", FilterClass::Point);
        measurements.statements[0].calls = 19;
        assert!(of_rule(&measurements, Rule::A18).is_none());
        let mut measurements = filtered(facts.clone(), "http_method", FilterClass::Point);
        measurements.statements[0].rows_returned = 4_000_000;
        assert!(of_rule(&measurements, Rule::A18).is_none());
        // An index that answers is there.
        let indexed = HTTP_LOGS.replace("http_method STRING", "http_method STRING INVERTED INDEX");
        let mut facts = table(&indexed);
        column(&mut facts, "http_method").distinct = Some(20);
        assert!(of_rule(&filtered(facts, "http_method", FilterClass::Point), Rule::A18).is_none());
    }

    #[test]
    fn a19_an_index_without_a_use_costs_its_bytes() {
        let mut facts =
            table(&HTTP_LOGS.replace("http_method STRING", "http_method STRING INVERTED INDEX"));
        facts.bytes = Some(1_000);
        let index = &mut column(&mut facts, "http_method").indexes[0];
        (index.queries_since, index.bytes) = (Some(1_000), Some(100));
        let finding = of_rule(&alone(facts.clone()), Rule::A19).unwrap();
        assert_eq!(finding.effect.unwrap().bytes, Some(0.9));
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.starts_with("DROP INDEX ") && ddl.ends_with(" ON public.http_logs;"), "{ddl}");
        column(&mut facts, "http_method").indexes[0].queries_since = Some(999);
        assert!(of_rule(&alone(facts.clone()), Rule::A19).is_none());
        column(&mut facts, "http_method").indexes[0].queries_since = None;
        assert!(of_rule(&alone(facts), Rule::A19).is_none());
    }

    #[test]
    fn a20_the_time_index_needs_no_index() {
        let facts = table("CREATE TABLE t (ts TIMESTAMP SKIPPING INDEX TIME INDEX, v DOUBLE)");
        let finding = of_rule(&alone(facts), Rule::A20).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        parses(&finding.ddl.unwrap());
        assert!(of_rule(&alone(table(HTTP_LOGS)), Rule::A20).is_none());
    }

    #[test]
    fn a21_kinds_follow_from_the_number_of_values() {
        let create = |kind: &str| {
            table(
                &HTTP_LOGS
                    .replace("http_method STRING", &format!("http_method STRING {kind} INDEX")),
            )
        };
        let cases = [
            ("INVERTED", 10_001, Some("SKIPPING")),
            ("INVERTED", 10_000, None),
            ("SKIPPING", 99, Some("INVERTED")),
            ("SKIPPING", 100, None),
            ("FULLTEXT", 8, Some("INVERTED")),
            ("FULLTEXT", 100, None),
        ];
        for (kind, distinct, other) in cases {
            let mut facts = create(kind);
            let measured = column(&mut facts, "http_method");
            (measured.values, measured.nulls) = (Some(100_000), Some(0));
            (measured.distinct, measured.length_p95) = (Some(distinct), Some(7));
            let ddl = of_rule(&alone(facts), Rule::A21).and_then(|finding| finding.ddl);
            let wanted = other.map(|other| {
                let alter = "ALTER TABLE public.http_logs MODIFY COLUMN http_method";
                format!("{alter} UNSET {kind} INDEX;\n{alter} SET {other} INDEX;")
            });
            assert_eq!(ddl, wanted, "{kind} of {distinct}");
            ddl.iter().for_each(|ddl| parses(ddl));
        }
        // A table with a few rows has few values.
        let mut facts = create("SKIPPING");
        let measured = column(&mut facts, "http_method");
        (measured.values, measured.nulls, measured.distinct) = (Some(10), Some(0), Some(5));
        assert!(of_rule(&alone(facts), Rule::A21).is_none());
    }
}
