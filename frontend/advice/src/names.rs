//! A08 and A10: names of tables and columns.

use std::collections::HashMap;

use partita_sql::identifier::quote;
use serde_json::json;

use crate::ddl::{Definition, alter};
use crate::finding::{Finding, Rule, Severity};
use crate::measurements::{Measurements, TableFacts};
use crate::rates::whole;
use crate::table::{Subject, with_ddl};
use crate::thresholds::Thresholds;
use crate::words::{is_date, is_reserved};

/// Maximum number of tables whose copy is printed.
const COPIES_MAX: usize = 20;
/// Words that end in digits by custom: functions, encodings and quantiles.
const CUSTOMARY: [&str; 16] = [
    "base32", "base64", "crc16", "crc32", "p25", "p50", "p75", "p90", "p95", "p99", "p999",
    "sha256", "sha512", "utf16", "x64", "xxh64",
];

/// Tables whose names differ in a number only, and whose columns are equal.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a> {
    groups: Vec<Group<'a>>,
    /// Group of a table, by database and name.
    of_table: HashMap<(&'a str, &'a str), usize>,
}

#[derive(Debug)]
struct Group<'a> {
    prefix: &'a str,
    tables: Vec<&'a TableFacts>,
}

/// The part of a name before its first digit; `None` if it has no digit, or begins with one.
fn prefix(name: &str) -> Option<&str> {
    let end = name.find(|c: char| c.is_ascii_digit())?;
    Some(&name[..end]).filter(|prefix| !prefix.is_empty())
}

/// Names and types of columns.
type Columns<'a> = Vec<(&'a str, &'a str)>;

/// Finds the groups of more tables than the threshold allows.
pub(crate) fn groups<'a>(measurements: &'a Measurements, thresholds: &Thresholds) -> Groups<'a> {
    let mut by_columns: HashMap<(&str, &str, Columns<'a>), Vec<&'a TableFacts>> = HashMap::new();
    for table in measurements.tables.iter().filter(|table| !table.is_copy) {
        let Some(prefix) = prefix(&table.name) else { continue };
        let columns = table.columns.iter();
        let columns = columns.map(|column| (column.name.as_str(), column.column_type.as_str()));
        let key = (table.database.as_str(), prefix, columns.collect::<Columns<'_>>());
        by_columns.entry(key).or_default().push(table);
    }
    let mut groups = Groups::default();
    for ((_, prefix, _), tables) in by_columns {
        // The first table stands for its group.
        let Some(first) = tables.first() else { continue };
        if tables.len() as f64 <= thresholds.of_table(&first.thresholds).alike_tables {
            continue;
        }
        let position = groups.groups.len();
        let names = tables.iter().map(|table| (table.database.as_str(), table.name.as_str()));
        groups.of_table.extend(names.map(|name| (name, position)));
        groups.groups.push(Group { prefix, tables });
    }
    groups
}

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    hard_names(subject, findings);
}

/// Data that a name has in it; `None` if it has none.
fn data_in(name: &str, digits: u64) -> Option<&'static str> {
    let words: Vec<&str> =
        name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-').collect();
    if is_address(name) {
        return Some("an address");
    }
    if has_date(name) {
        return Some("a date");
    }
    // "server-5" and "server.5" name one of many.
    let numbered = |word: &&str| {
        let parts: Vec<&str> = word.split(['-', '.']).collect();
        parts.windows(2).any(|pair| {
            pair[0].ends_with(|c: char| c.is_ascii_alphabetic())
                && !pair[1].is_empty()
                && pair[1].bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    if words.iter().any(numbered) {
        return Some("a number of one of many");
    }
    let digits = usize::try_from(digits).unwrap_or(usize::MAX).max(1);
    let mut parts = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !CUSTOMARY.contains(&word.to_ascii_lowercase().as_str()));
    let is_long =
        |word: &str| word.split(|c: char| !c.is_ascii_digit()).any(|run| run.len() >= digits);
    parts.any(is_long).then_some("a number")
}

/// True if a name has an IPv4 address in it, with dots, hyphens or underscores.
fn is_address(name: &str) -> bool {
    ['.', '-', '_'].iter().any(|separator| {
        let parts: Vec<&str> = name.split(*separator).collect();
        parts.windows(4).any(|octets| {
            let (first, middle, last) = (octets[0], &octets[1..3], octets[3]);
            let is_octet = |text: &str| text.parse::<u8>().is_ok();
            let tail = first.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let head = last.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            is_octet(tail) && is_octet(head) && middle.iter().all(|text| is_octet(text))
        })
    })
}

fn has_date(name: &str) -> bool {
    let mut digits =
        name.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(position, _)| position);
    digits.any(|position| {
        let rest = &name[position..];
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let is_begin = !name[..position].ends_with(|c: char| c.is_ascii_digit());
        let compact = length == 8 && is_date(&rest[..8]);
        let separated = length == 4
            && (is_date(rest)
                || is_date(&format!("{}-01", rest.get(..7).unwrap_or_default().replace('_', "-"))));
        is_begin && (compact || separated)
    })
}

/// A08: data in names.
pub(crate) fn data_in_names(
    subject: &Subject<'_>,
    groups: &Groups<'_>,
    findings: &mut Vec<Finding>,
) {
    let table = subject.table;
    let digits = whole(subject.thresholds.name_digits);
    let name = (table.database.as_str(), table.name.as_str());
    match groups.of_table.get(&name).and_then(|position| groups.groups.get(*position)) {
        // The group is reported once, with its first table.
        Some(group) => {
            if group.tables.first().is_some_and(|first| first.name == table.name) {
                of_group(subject, group, findings);
            }
        }
        None => {
            if let Some(data) = data_in(&table.name, digits) {
                let evidence = json!({ "name": table.name, "data": data });
                let advice = format!(
                    "the table's name has {data} in it: put that into a tag, and the rows of all such tables into one"
                );
                findings.push(subject.finding(
                    Rule::A08,
                    Severity::Warning,
                    subject.object(),
                    evidence,
                    advice,
                ));
            }
        }
    }
    for column in &table.columns {
        let Some(data) = data_in(&column.name, digits) else { continue };
        let evidence = json!({ "name": column.name, "data": data });
        let advice = format!(
            "the column's name has {data} in it: put that into a tag, and the values into one column"
        );
        let object = subject.column_object(&column.name);
        findings.push(subject.finding(Rule::A08, Severity::Warning, object, evidence, advice));
    }
}

fn of_group(subject: &Subject<'_>, group: &Group<'_>, findings: &mut Vec<Finding>) {
    let number = group.tables.len();
    let examples: Vec<&str> =
        group.tables.iter().take(3).map(|table| table.name.as_str()).collect();
    let evidence = json!({ "tables": number, "prefix": group.prefix, "examples": examples });
    let advice = format!(
        "{number} tables have the same columns and names that begin with \"{}\": put what distinguishes them into a tag \
         of one table",
        group.prefix
    );
    let object = subject.object();
    let finding = subject.finding(Rule::A08, Severity::Warning, object, evidence, advice);
    findings.push(with_ddl(finding, one_table(subject, group), None));
}

/// Statements that copy the tables of a group into one, with their names in a tag.
fn one_table(subject: &Subject<'_>, group: &Group<'_>) -> Option<String> {
    let mut definition = Definition::of(subject.table)?;
    definition.set_copies(group.tables.iter().flat_map(|table| &table.copies));
    let trimmed = group.prefix.trim_end_matches(|c: char| !c.is_alphanumeric());
    let name = format!("{}_all", if trimmed.is_empty() { "tables" } else { trimmed });
    let tag = ["source", "source_table", "partita_source"]
        .into_iter()
        .find(|tag| subject.column(tag).is_none())?;
    definition.add_tag(tag);
    let mut statements = vec![format!("{};", definition.create(&name)?), definition.left_behind()];
    for table in group.tables.iter().take(COPIES_MAX) {
        definition.fill(tag, &partita_sql::identifier::quote_string(&table.name));
        statements.push(definition.insert(&name, &table.name, ""));
    }
    let remaining = group.tables.len().saturating_sub(COPIES_MAX);
    if remaining > 0 {
        statements.push(format!("-- and in the same way from the other {remaining} tables"));
    }
    Some(statements.join("\n"))
}

/// True for a character that needs no quotes. Those beyond ASCII need none, and are not folded.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii() && !c.is_whitespace() && !c.is_control()
}

/// The reason why a name must be quoted or is refused by other tools; `None` if it is a simple one.
fn hardness(name: &str, length_max: f64) -> Option<&'static str> {
    let first = name.chars().next();
    if first.is_none_or(|c| c.is_ascii_digit() || c == '_') {
        return Some("begins with a digit or an underscore");
    }
    if !name.chars().all(is_plain) {
        return Some("has other characters than letters, digits and underscores");
    }
    if name.chars().count() as f64 > length_max {
        return Some("is longer than PostgreSQL's names");
    }
    is_reserved(name).then_some("is a reserved word")
}

/// A simple name like a hard one, which no other name of the list is.
fn simple(name: &str, length_max: f64, used: &[&str]) -> String {
    let mut simple: String = name
        .to_lowercase()
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect::<String>()
        .split('_')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("_");
    // Eight characters are left for what makes it unique.
    let length = usize::try_from(whole(length_max)).unwrap_or(63).clamp(16, 63) - 8;
    if let Some((end, _)) = simple.char_indices().nth(length) {
        simple.truncate(end);
    }
    if simple.is_empty() || simple.starts_with(|c: char| c.is_ascii_digit()) {
        simple.insert_str(0, "n_");
    }
    if is_reserved(&simple) {
        simple.push_str("_name");
    }
    let mut candidate = simple.clone();
    let mut number = 2;
    while used.contains(&candidate.as_str()) {
        candidate = format!("{simple}_{number}");
        number += 1;
    }
    candidate
}

/// A10: names that must be quoted.
fn hard_names(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let table = subject.table;
    let length_max = subject.thresholds.name_length;
    let finding = |object: String, name: &str, reason: &str, action: &str| {
        let evidence = json!({ "name": name, "reason": reason });
        let advice = format!("the name \"{name}\" {reason}: every query must quote it");
        let finding = subject.finding(Rule::A10, Severity::Info, object, evidence, advice);
        with_ddl(finding, Some(alter(table, action)), None)
    };
    if let Some(reason) = hardness(&table.name, length_max) {
        let action = format!("RENAME TO {}", quote(&simple(&table.name, length_max, &[])));
        findings.push(finding(subject.object(), &table.name, reason, &action));
    }
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    for name in &names {
        let Some(reason) = hardness(name, length_max) else { continue };
        let new_name = simple(name, length_max, &names);
        let action = format!("RENAME COLUMN {} TO {}", quote(name), quote(&new_name));
        findings.push(finding(subject.column_object(name), name, reason, &action));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{alone, of_rule, parses, table};

    #[test]
    fn data_is_found_in_names() {
        for name in [
            "cpu_server_12",
            "Cpu.server-5.us-west.usage_user",
            "events_2021_03_05",
            "events_20210305",
            "events_2021_03",
            "load_10_0_0_1",
            "10.1.2.3",
            "server-1",
            "usage_user_17",
        ] {
            assert!(data_in(name, 2).is_some(), "{name}");
        }
        for name in [
            "http_logs_v2",
            "usage_user",
            "sha256",
            "latency_p99",
            "co2",
            "pm2_5",
            "temp",
            "us-west",
            "level_1",
        ] {
            assert_eq!(data_in(name, 2), None, "{name}");
        }
    }

    #[test]
    fn a08_a_number_in_a_name_is_data() {
        let facts = table("CREATE TABLE cpu_server_12 (ts TIMESTAMP TIME INDEX, usage DOUBLE)");
        assert_eq!(of_rule(&alone(facts), Rule::A08).unwrap().object, "public.cpu_server_12");
        let facts = table("CREATE TABLE cpu (ts TIMESTAMP TIME INDEX, usage_core_17 DOUBLE)");
        assert_eq!(of_rule(&alone(facts), Rule::A08).unwrap().object, "public.cpu.usage_core_17");
        let facts = table("CREATE TABLE http_logs_v2 (ts TIMESTAMP TIME INDEX, usage DOUBLE)");
        assert!(of_rule(&alone(facts), Rule::A08).is_none());
    }

    #[test]
    fn a08_the_measurements_of_the_seed_become_one_table() {
        let of = |number: usize| {
            table(&format!(
                "CREATE TABLE \"Cpu.server-{number}.us-west.usage_user\" (time TIMESTAMP(9) TIME INDEX, value DOUBLE)"
            ))
        };
        let mut measurements =
            Measurements { tables: (1..=51).map(of).collect(), ..Measurements::default() };
        let findings = crate::advise(&measurements, &Thresholds::default());
        let found: Vec<_> = findings.iter().filter(|finding| finding.rule == Rule::A08).collect();
        let [finding] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.evidence["tables"], 51);
        let ddl = finding.ddl.clone().unwrap();
        parses(&ddl);
        assert!(ddl.contains("PRIMARY KEY (source)"), "{ddl}");
        assert!(
            ddl.contains("SELECT \"time\", value, 'Cpu.server-1.us-west.usage_user'")
                || ddl.contains("SELECT time, value, 'Cpu.server-1.us-west.usage_user'"),
            "{ddl}"
        );
        // Fifty are told one by one.
        measurements.tables.truncate(50);
        let findings = crate::advise(&measurements, &Thresholds::default());
        assert_eq!(findings.iter().filter(|finding| finding.rule == Rule::A08).count(), 50);
    }

    #[test]
    fn a10_names_of_the_seed_must_be_quoted() {
        let facts = table(
            "CREATE TABLE \"example-measurement\" (\"time\" TIMESTAMP(9) TIME INDEX, \"example-field\" DOUBLE, \
             \"tag@1-23\" STRING, PRIMARY KEY (\"tag@1-23\"))",
        );
        let findings = crate::advise(&alone(facts), &Thresholds::default());
        let texts: Vec<_> = findings
            .iter()
            .filter(|finding| finding.rule == Rule::A10)
            .filter_map(|finding| finding.ddl.clone())
            .collect();
        assert_eq!(
            texts,
            [
                "ALTER TABLE public.\"example-measurement\" RENAME TO example_measurement;",
                "ALTER TABLE public.\"example-measurement\" RENAME COLUMN \"example-field\" TO example_field;",
                "ALTER TABLE public.\"example-measurement\" RENAME COLUMN \"tag@1-23\" TO tag_1_23;",
            ]
        );
        texts.iter().for_each(|text| parses(text));
    }

    #[test]
    fn a10_simple_names_are_not_reported() {
        let facts =
            table("CREATE TABLE cpu (ts TIMESTAMP TIME INDEX, usage_user DOUBLE, Host STRING)");
        assert!(of_rule(&alone(facts), Rule::A10).is_none());
        assert_eq!(hardness(&"x".repeat(64), 63.0), Some("is longer than PostgreSQL's names"));
        assert_eq!(hardness(&"x".repeat(63), 63.0), None);
        assert_eq!(hardness("_x", 63.0), Some("begins with a digit or an underscore"));
        assert_eq!(hardness("order", 63.0), Some("is a reserved word"));
        // Every name without a reason is one that statements take as it is.
        for name in ["näme", "größe", "ärger", "名前", "cpu_1", "a²"] {
            assert_eq!(hardness(name, 63.0), None, "{name}");
            let facts = table(&format!("CREATE TABLE t (ts TIMESTAMP TIME INDEX, {name} DOUBLE)"));
            assert_eq!(facts.columns[1].name, name);
        }
        for name in ["a b", "a\u{a0}b", "a-b", "a$"] {
            assert!(hardness(name, 63.0).is_some(), "{name}");
        }
    }

    #[test]
    fn new_names_are_simple_and_unique() {
        assert_eq!(simple("order", 63.0, &[]), "order_name");
        assert_eq!(simple("7 days", 63.0, &[]), "n_7_days");
        assert_eq!(simple("a b", 63.0, &["a_b", "a b"]), "a_b_2");
        assert_eq!(simple("größe 1", 63.0, &[]), "größe_1");
        assert!(hardness(&simple(&"ä ".repeat(80), 63.0, &[]), 63.0).is_none());
        assert!(hardness(&simple(&"x".repeat(80), 63.0, &[]), 63.0).is_none());
    }
}
