//! A05, A06, A07, A12, A27, A35 and A36: the values of columns and of versions.

use partita_proto::schema::ColumnType;
use partita_sql::identifier::{quote, quote_string};
use serde_json::json;

use crate::ddl::{Definition, alter, set_index};
use crate::finding::{Effect, Finding, Rule, Severity};
use crate::keys::as_field;
use crate::measurements::{ColumnFacts, FilterClass};
use crate::shapes::distinct_clusters;
use crate::table::{Subject, rounded, share, with_ddl};
use crate::words::{begins_with_level, is_iso_time, is_json, is_sentence, is_uuid, share_of};

/// Characters between the attributes of a value.
const SEPARATORS: [char; 4] = ['.', ',', '/', '_'];
/// Maximum number of sampled values in evidence.
const EXAMPLES_MAX: usize = 3;

pub(crate) fn rules(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    for column in &subject.table.columns {
        stringly(subject, column, findings);
        long_strings(subject, column, findings);
        embedded(subject, column, findings);
        log_or_id_tag(subject, column, findings);
        blob(subject, column, findings);
    }
    unique_rows(subject, findings);
    merge_mode(subject, findings);
}

/// The type of all sampled texts; `None` if they have none in common.
fn parsed_type(sample: &[String]) -> Option<ColumnType> {
    let is_every =
        |test: fn(&str) -> bool| !sample.is_empty() && sample.iter().all(|text| test(text.trim()));
    if is_every(|text| text.parse::<i64>().is_ok()) {
        Some(ColumnType::Int64)
    } else if is_every(|text| text.parse::<f64>().is_ok()) {
        Some(ColumnType::Float64)
    } else if is_every(|text| {
        matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "t" | "f")
    }) {
        Some(ColumnType::Bool)
    } else {
        None
    }
}

fn examples(column: &ColumnFacts) -> Vec<&str> {
    column.sample.iter().take(EXAMPLES_MAX).map(String::as_str).collect()
}

/// A05: numbers stored as text.
fn stringly(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let (Some(numeric), Some(values)) = (column.numeric_share, column.values) else { return };
    let is_measured_tag = column.is_tag()
        && column.distinct_share().is_some_and(|share| share > thresholds.changing_share);
    let is_concerned = column.is_text()
        && numeric >= thresholds.numeric_share
        && values as f64 >= thresholds.numeric_values
        && (column.is_field() || is_measured_tag);
    if !is_concerned || column.generated {
        return;
    }
    // A number in the key that does not change with each row is an id, which may be a text.
    let column_type = parsed_type(&column.sample).unwrap_or(ColumnType::Float64);
    let ddl = Definition::of(subject.table).and_then(|mut definition| {
        if column.is_tag() {
            definition.make_field(&column.name);
        }
        let expression = format!("CAST({} AS {})", quote(&column.name), column_type.sql());
        definition.retype(&column.name, column_type, expression);
        definition.beside()
    });
    let evidence = json!({
        "numeric_share": rounded(numeric), "values": values, "distinct_values": column.distinct, "examples": examples(column),
    });
    let name = &column.name;
    let advice = match column.is_tag() {
        true => format!(
            "\"{name}\" is a number that changes with nearly every row: a field of type {}, not a tag",
            column_type.sql()
        ),
        false => format!(
            "the texts of \"{name}\" are numbers or booleans: use {}; the CAST fails if one does not parse",
            column_type.sql()
        ),
    };
    let object = subject.column_object(name);
    let finding = subject.finding(Rule::A05, Severity::Warning, object, evidence, advice);
    let bytes = column.bytes.zip(column.values).filter(|(bytes, _)| *bytes > 0);
    let factor = bytes.map(|(bytes, values)| rounded((8 * values) as f64 / bytes as f64));
    let effect = Effect {
        bytes: factor.filter(|factor| *factor < 1.0),
        text: "comparisons of numbers in place of texts".to_owned(),
        ..Effect::default()
    };
    findings.push(with_ddl(finding, ddl, Some(effect)));
}

/// A06: long texts in filters.
fn long_strings(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    let is_long = |length: &u64| *length as f64 > subject.thresholds.long_text;
    let Some(length) = column.length_p95.filter(is_long).filter(|_| column.is_text()) else {
        return;
    };
    let words = [FilterClass::Terms, FilterClass::Pattern];
    let every = [FilterClass::Point, FilterClass::Points, FilterClass::Range, words[0], words[1]];
    let filtering = subject.filtering_calls(&column.name, &every);
    let searching = subject.filtering_calls(&column.name, &words);
    let sorting: u64 = subject
        .statements
        .iter()
        .filter(|statement| {
            statement
                .sorts
                .iter()
                .any(|(table, name)| subject.is_named(table) && *name == column.name)
        })
        .map(|statement| statement.calls)
        .sum();
    if filtering == 0 && sorting == 0 {
        return;
    }
    let needs_index = searching > 0 && column.index("fulltext").is_none();
    let ddl = needs_index.then(|| set_index(subject.table, &column.name, "fulltext", None));
    let evidence =
        json!({ "length_p95": length, "filtering_calls": filtering, "sorting_calls": sorting });
    let advice = if searching > 0 {
        "words are searched in long texts: a full-text index leaves out the rows that do not have them"
    } else {
        "long texts are compared: keep a short attribute of the text in a column of its own, and compare that"
    };
    let object = subject.column_object(&column.name);
    let finding = subject.finding(Rule::A06, Severity::Info, object, evidence, advice);
    let effect = needs_index.then(|| Effect::in_words("only rows with the words are read"));
    findings.push(with_ddl(finding, ddl, effect));
}

/// The separators of a value, in order.
fn separators(text: &str) -> String {
    text.chars().filter(|c| SEPARATORS.contains(c)).collect()
}

/// Key and value of `key-value` or `key=value`.
fn pair(part: &str) -> Option<(&str, &str)> {
    let (key, value) = part.split_once('=').or_else(|| part.split_once('-'))?;
    let is_word = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric());
    (is_word && !value.is_empty()).then_some((key, value))
}

/// A part of a column's values, which is an attribute of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attribute {
    name: String,
    /// SQL expression of its value.
    expression: String,
    example: String,
}

/// The attributes of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attributes {
    /// Separators of a value, in order.
    separators: String,
    parts: Vec<Attribute>,
    /// SQL condition of the values that consist of these attributes; `None` if no expression divides them.
    condition: Option<String>,
}

/// Regular expression of the values that have these parts between a separator, with the keys of the parts that have one.
fn pattern(parts: &[&str], keys: &[Option<&str>], separator: char) -> String {
    let part = |(part, key): (&&str, &Option<&str>)| match key {
        // The key, and the mark behind it.
        Some(key) => {
            format!("{}[^{separator}]+", part.get(..=key.len()).unwrap_or_default())
        }
        None => format!("[^{separator}]*"),
    };
    let parts: Vec<String> = parts.iter().zip(keys).map(part).collect();
    format!("^{}$", parts.join(&format!("[{separator}]")))
}

/// The attributes of a column's values; `None` if they do not have one pattern.
fn attributes(subject: &Subject<'_>, column: &ColumnFacts) -> Option<Attributes> {
    let thresholds = subject.thresholds;
    let first =
        column.sample.iter().map(|text| separators(text)).find(|pattern| !pattern.is_empty())?;
    let matching = |text: &str| separators(text) == first;
    let matches = share_of(&column.sample, thresholds.pattern_sample, matching)?;
    if matches < thresholds.pattern_share {
        return None;
    }
    let example = column.sample.iter().find(|text| matching(text))?;
    let parts: Vec<&str> = example.split(SEPARATORS).collect();
    // A key is one only if the other values have it in the same place: host names have hyphens too.
    let is_key = |position: usize, key: &str| {
        let has_key = |text: &str| {
            let part = text.split(SEPARATORS).nth(position);
            part.and_then(pair).is_some_and(|(word, _)| word == key)
        };
        share_of(&column.sample, 1.0, has_key)
            .is_some_and(|share| share >= thresholds.pattern_share)
    };
    let keys: Vec<Option<&str>> = parts
        .iter()
        .enumerate()
        .map(|(position, part)| pair(part).map(|(key, _)| key).filter(|key| is_key(position, key)))
        .collect();
    let keyed = keys.iter().flatten().count();
    if parts.len() < 2 || 2 * keyed < parts.len() {
        return None;
    }
    let separator = first.chars().next()?;
    let name = quote(&column.name);
    let has_one_separator = first.chars().all(|c| c == separator);
    let condition = has_one_separator
        .then(|| format!("{name} ~ {}", quote_string(&pattern(&parts, &keys, separator))));
    let mark = quote_string(&separator.to_string());
    let attribute = |(number, (part, key)): (usize, (&&str, &Option<&str>))| {
        let whole = format!("split_part({name}, {mark}, {number})");
        match key {
            Some(key) => Attribute {
                name: format!("{}_{}", column.name, key.to_ascii_lowercase()),
                expression: format!("substr({whole}, {})", key.len() + 2),
                example: part.get(key.len() + 1..).unwrap_or_default().to_owned(),
            },
            None => Attribute {
                name: format!("{}_{number}", column.name),
                expression: whole,
                example: (*part).to_owned(),
            },
        }
    };
    let mut attributes: Vec<Attribute> =
        (1..).zip(parts.iter().zip(&keys)).map(attribute).collect();
    // The key alone is a better name where no other column has it.
    for (attribute, key) in attributes.iter_mut().zip(&keys) {
        let key = key.map(str::to_ascii_lowercase);
        if let Some(key) = key.filter(|key| subject.column(key).is_none() && key.len() > 2) {
            attribute.name = key;
        }
    }
    Some(Attributes { separators: first, parts: attributes, condition })
}

/// Statements that make a table with a column for each attribute. Values of another pattern stay in the old column, for the
/// text that they have is nowhere else.
fn divided(subject: &Subject<'_>, column: &ColumnFacts, attributes: &Attributes) -> Option<String> {
    let condition = attributes.condition.as_ref()?;
    let mut definition = Definition::of(subject.table)?;
    for Attribute { name, expression, .. } in attributes.parts.iter().rev() {
        let expression = format!("CASE WHEN {condition} THEN {expression} END");
        definition.add_text(&column.name, name, expression);
    }
    let name = quote(&column.name);
    definition
        .keep_rest(&column.name, &format!("CASE WHEN {condition} THEN NULL ELSE {name} END"))?;
    definition.beside()
}

/// A07: several attributes in one value.
fn embedded(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    if !column.is_text() || column.generated {
        return;
    }
    let Some(attributes) = attributes(subject, column) else { return };
    let ddl = divided(subject, column, &attributes);
    let Attributes { separators, parts: attributes, .. } = attributes;
    let columns: Vec<_> = attributes
        .iter()
        .map(|attribute| json!({ "column": attribute.name, "example": attribute.example }))
        .collect();
    let evidence =
        json!({ "separators": separators, "examples": examples(column), "attributes": columns });
    let names: Vec<&str> = attributes.iter().map(|attribute| attribute.name.as_str()).collect();
    let advice = format!(
        "the values of \"{}\" have several attributes in them: a column for each ({}) can be compared without patterns",
        column.name,
        names.join(", ")
    );
    let object = subject.column_object(&column.name);
    let finding = subject.finding(Rule::A07, Severity::Warning, object, evidence, advice);
    findings.push(with_ddl(finding, ddl, Some(Effect::in_words("equality in place of LIKE"))));
}

/// A12: log text or id as tag.
fn log_or_id_tag(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    if !column.is_tag() || !subject.is_key(&column.name) {
        return;
    }
    let is_unique = subject.differs_in_each_row(column);
    let has_form = |test: fn(&str) -> bool| {
        column.is_text()
            && share_of(&column.sample, thresholds.pattern_sample, test)
                .is_some_and(|share| share >= thresholds.pattern_share)
    };
    let form = if has_form(is_uuid) {
        Some("UUIDs")
    } else if has_form(is_iso_time) {
        Some("times")
    } else if has_form(is_sentence) {
        Some("messages")
    } else {
        None
    };
    if !is_unique && form.is_none() {
        return;
    }
    let has_level = has_form(begins_with_level) && subject.column("level").is_none();
    let ddl = if has_level {
        Definition::of(subject.table).and_then(|mut definition| {
            let word = format!("upper(split_part({}, ' ', 1))", quote(&column.name));
            definition.add_text(&column.name, "level", format!("btrim({word}, '[]:')"));
            definition.make_field(&column.name);
            definition.beside()
        })
    } else {
        as_field(subject, &column.name)
    };
    let evidence = json!({
        "values": column.values, "distinct_values": column.distinct, "form": form, "examples": examples(column),
    });
    let what = form.unwrap_or("values that differ from row to row");
    let mut advice = format!(
        "tag \"{}\" has {what}, each of which makes a series: make a field of it; every row is kept then ('append_mode')",
        column.name
    );
    if has_level {
        advice.push_str(", and keep the level as a tag");
    }
    let object = subject.column_object(&column.name);
    let finding = subject.finding(Rule::A12, Severity::Error, object, evidence, advice);
    let effect = column
        .distinct
        .map(|distinct| Effect::in_words(format!("up to {distinct} times fewer series")));
    findings.push(with_ddl(finding, ddl, effect));
}

/// A27: values in one blob.
fn blob(subject: &Subject<'_>, column: &ColumnFacts, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let is_binary = column.column_type == ColumnType::Binary.sql();
    let is_json_text = || {
        column.is_text()
            && share_of(&column.sample, 1.0, is_json)
                .is_some_and(|share| share >= thresholds.pattern_share)
    };
    if column.is_tag() || !(is_binary || is_json_text()) {
        return;
    }
    let total: Option<u64> = subject.table.columns.iter().map(|column| column.stored_bytes).sum();
    let (Some(total), Some(bytes)) = (total, column.stored_bytes) else { return };
    let calls: u64 = subject
        .statements
        .iter()
        .filter(|statement| subject.reads(statement, &column.name))
        .map(|statement| statement.calls)
        .sum();
    if share(bytes, total) <= thresholds.blob_share || calls == 0 {
        return;
    }
    let evidence = json!({ "stored_bytes": bytes, "table_bytes": total, "reading_calls": calls });
    let advice = format!(
        "statements read \"{}\" as a whole: columns of their own for the values that are asked for could be read and \
         filtered alone; a blob takes less space and fewer writes if all of it is always read",
        column.name
    );
    let object = subject.column_object(&column.name);
    findings.push(subject.finding(Rule::A27, Severity::Info, object, evidence, advice));
}

/// A35: deduplication without duplicates.
fn unique_rows(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let table = subject.table;
    let (Some(rows), Some(0), Some(0)) = (table.rows, table.folded, table.deletes) else { return };
    if table.append_mode || (rows as f64) < subject.thresholds.unique_rows {
        return;
    }
    let ddl = Definition::of(table).and_then(|mut definition| {
        definition.append();
        definition.beside()
    });
    let evidence = json!({ "rows": rows, "dropped_versions": 0, "deletes": 0 });
    let advice = "no row has replaced or deleted another one since the nodes started: if that will never happen, a table that \
                  keeps every row ('append_mode') is read without merging";
    let finding = subject.finding(Rule::A35, Severity::Info, subject.object(), evidence, advice);
    findings.push(with_ddl(finding, ddl, Some(Effect::in_words("scans without a merge"))));
}

/// A36: merge mode does not fit.
fn merge_mode(subject: &Subject<'_>, findings: &mut Vec<Finding>) {
    let thresholds = subject.thresholds;
    let table = subject.table;
    let (Some(folded), Some(mode)) =
        (table.folded.filter(|folded| *folded > 0), table.merge_mode.as_deref())
    else {
        return;
    };
    let rows = table.rows.unwrap_or_default();
    if (rows as f64) < thresholds.merged_rows {
        return;
    }
    let (better, advice, evidence) = if mode == "last_row" {
        // Partial updates: rows of the same keys have different fields.
        let kinds =
            distinct_clusters(&table.shapes, thresholds.shape_share, thresholds.shape_similarity);
        if kinds.len() < 2 {
            return;
        }
        let shapes: Vec<_> =
            kinds.iter().map(|kind| json!({ "fields": kind.fields, "rows": kind.rows })).collect();
        (
            "last_non_null",
            "rows replace others of the same key and have only some of the fields: with 'last_row' the other fields become \
             NULL, with 'last_non_null' they keep their values",
            json!({ "dropped_versions": folded, "shapes": shapes }),
        )
    } else {
        let nulls: Option<u64> = subject.fields().map(|field| field.nulls).sum();
        if nulls != Some(0) || subject.fields().next().is_none() {
            return;
        }
        (
            "last_row",
            "no field is ever NULL, so the newest row has all values: 'last_row' need not look at each field",
            json!({ "dropped_versions": folded, "nulls": 0 }),
        )
    };
    let finding = subject.finding(Rule::A36, Severity::Info, subject.object(), evidence, advice);
    let ddl = alter(table, &format!("SET ('merge_mode' = '{better}')"));
    findings.push(with_ddl(finding, Some(ddl), None));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::{Filter, Measurements, StatementShape, TableFacts};
    use crate::tests::{alone, column, of_rule, parses, table};

    const HOME: &str = "CREATE TABLE home (sensor STRING, time TIMESTAMP(9) TIME INDEX, temp STRING, note STRING, \
         PRIMARY KEY (sensor))";

    fn numbered(texts: impl Iterator<Item = String>) -> Vec<String> {
        texts.take(8).collect()
    }

    #[test]
    fn a05_numbers_of_the_seed_kept_as_text_are_found() {
        let mut facts = table(HOME);
        let temp = column(&mut facts, "temp");
        (temp.values, temp.numeric_share) = (Some(100), Some(1.0));
        temp.sample = vec!["72.1".to_owned(), "71.8".to_owned()];
        let finding = of_rule(&alone(facts.clone()), Rule::A05).unwrap();
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("CAST(temp AS DOUBLE)"), "{ddl}");
        column(&mut facts, "temp").sample = vec!["72".to_owned(), "71".to_owned()];
        assert!(
            of_rule(&alone(facts.clone()), Rule::A05).unwrap().ddl.unwrap().contains("AS BIGINT)")
        );
        column(&mut facts, "temp").sample = vec!["true".to_owned(), "false".to_owned()];
        assert!(
            of_rule(&alone(facts.clone()), Rule::A05).unwrap().ddl.unwrap().contains("AS BOOLEAN)")
        );
        column(&mut facts, "temp").numeric_share = Some(0.98);
        assert!(of_rule(&alone(facts.clone()), Rule::A05).is_none());
        (column(&mut facts, "temp").values, column(&mut facts, "temp").numeric_share) =
            (Some(99), Some(1.0));
        assert!(of_rule(&alone(facts), Rule::A05).is_none());
    }

    #[test]
    fn a05_a_tag_that_is_measured_becomes_a_field() {
        let mut facts = table(HOME);
        let sensor = column(&mut facts, "sensor");
        (sensor.values, sensor.distinct, sensor.numeric_share) = (Some(900), Some(500), Some(1.0));
        sensor.sample = vec!["1".to_owned()];
        let ddl = of_rule(&alone(facts.clone()), Rule::A05).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(!ddl.contains("PRIMARY KEY"), "{ddl}");
        // An id of few values may be a number.
        column(&mut facts, "sensor").distinct = Some(450);
        assert!(of_rule(&alone(facts), Rule::A05).is_none());
    }

    fn searched(length: u64, class: FilterClass) -> Measurements {
        let mut facts = table(HOME);
        column(&mut facts, "note").length_p95 = Some(length);
        let mut measurements = alone(facts);
        measurements.statements.push(StatementShape {
            tables: vec!["home".to_owned()],
            calls: 1,
            filters: vec![Filter { table: "home".to_owned(), column: "note".to_owned(), class }],
            ..StatementShape::default()
        });
        measurements
    }

    #[test]
    fn a06_long_texts_in_filters_are_found() {
        let ddl = of_rule(&searched(1_025, FilterClass::Terms), Rule::A06).unwrap().ddl.unwrap();
        parses(&ddl);
        assert_eq!(ddl, "ALTER TABLE public.home MODIFY COLUMN note SET FULLTEXT INDEX;");
        assert_eq!(of_rule(&searched(1_025, FilterClass::Point), Rule::A06).unwrap().ddl, None);
        assert!(of_rule(&searched(1_024, FilterClass::Terms), Rule::A06).is_none());
        let mut unread = searched(1_025, FilterClass::Terms);
        unread.statements.clear();
        assert!(of_rule(&unread, Rule::A06).is_none());
        // As the seed says, sorting compares them too.
        unread.statements.push(StatementShape {
            tables: vec!["home".to_owned()],
            calls: 1,
            sorts: vec![("home".to_owned(), "note".to_owned())],
            ..StatementShape::default()
        });
        assert!(of_rule(&unread, Rule::A06).is_some());
    }

    #[test]
    fn a07_the_sensors_of_the_seed_have_three_attributes() {
        let mut facts = table(HOME);
        let texts = ["loc-kitchen.model-A612.id-1726ZA", "loc-bath.model-A612.id-2635YB"];
        column(&mut facts, "sensor").sample =
            texts.iter().cycle().take(8).map(|text| (*text).to_owned()).collect();
        let finding = of_rule(&alone(facts.clone()), Rule::A07).unwrap();
        assert_eq!(finding.evidence["attributes"][0]["column"], "loc");
        assert_eq!(finding.evidence["attributes"][1]["example"], "A612");
        assert_eq!(finding.evidence["attributes"][2]["column"], "sensor_id");
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        // A value of another pattern stays as it is, and two rows that differ in it stay two.
        assert!(ddl.contains("PRIMARY KEY (loc, model, sensor_id, sensor)"), "{ddl}");
        let condition = "sensor ~ '^loc-[^.]+[.]model-[^.]+[.]id-[^.]+$'";
        let filled = |column: &str, expression: &str| {
            let comment = format!(
                "-- Column {column} of old rows: CASE WHEN {condition} THEN {expression} END"
            );
            assert!(ddl.contains(&comment), "{comment} in {ddl}");
        };
        filled("loc", "substr(split_part(sensor, '.', 1), 5)");
        filled("sensor_id", "substr(split_part(sensor, '.', 3), 4)");
        filled("sensor", "NULL ELSE sensor");
        // Seven values are too few to tell.
        column(&mut facts, "sensor").sample.truncate(7);
        assert!(of_rule(&alone(facts), Rule::A07).is_none());
    }

    #[test]
    fn a07_the_pattern_has_the_keys_of_all_values_only() {
        let parts = ["us-west", "model-A6", "x"];
        let keys = [None, Some("model"), None];
        assert_eq!(pattern(&parts, &keys, '_'), "^[^_]*[_]model-[^_]+[_][^_]*$");
        // A column that places the rows cannot become the one for what is left.
        let mut facts = table(&format!("{HOME} PARTITION BY HASH (sensor) PARTITIONS 4"));
        column(&mut facts, "sensor").sample =
            numbered((1..).map(|number| format!("loc-room{number}.model-A6")));
        assert_eq!(of_rule(&alone(facts), Rule::A07).unwrap().ddl, None);
    }

    #[test]
    fn a07_names_and_paths_are_one_attribute() {
        let hosts = numbered(
            (1..).map(|number| format!("{}-1.example-corp.com", ["web", "db"][number % 2])),
        );
        let mut facts = table(HOME);
        column(&mut facts, "sensor").sample = hosts;
        assert!(of_rule(&alone(facts), Rule::A07).is_none());
        for pattern in ["server_web_", "us.west.", "/var/log/", "node-"] {
            let mut facts = table(HOME);
            column(&mut facts, "sensor").sample =
                numbered((1..).map(|number| format!("{pattern}{number}")));
            assert!(of_rule(&alone(facts), Rule::A07).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a12_logs_of_the_seed_are_fields_with_a_level() {
        let mut facts = table(HOME);
        column(&mut facts, "sensor").sample =
            numbered((1..).map(|number| format!("ERROR disk {number} is full")));
        let finding = of_rule(&alone(facts), Rule::A12).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("PRIMARY KEY (level)"), "{ddl}");
    }

    #[test]
    fn a12_ids_and_times_are_no_tags() {
        let of = |texts: Vec<String>| {
            let mut facts = table(HOME);
            column(&mut facts, "sensor").sample = texts;
            of_rule(&alone(facts), Rule::A12)
        };
        let uuids =
            numbered((10..).map(|number| format!("25b6f3{number}-41cf-4965-aa19-e1c63a88a7a9")));
        let ddl = of(uuids).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("SKIPPING INDEX"), "{ddl}");
        assert!(of(numbered((10..).map(|day| format!("2021-03-{day}T12:00:00Z")))).is_some());
        assert!(of(numbered((10..).map(|number| format!("host {number}")))).is_none());
        // Values that differ from row to row, by their number.
        let mut facts = table(HOME);
        let sensor = column(&mut facts, "sensor");
        (sensor.values, sensor.distinct) = (Some(1_000), Some(501));
        assert!(of_rule(&alone(facts.clone()), Rule::A12).is_some());
        column(&mut facts, "sensor").distinct = Some(500);
        assert!(of_rule(&alone(facts), Rule::A12).is_none());
    }

    /// The seed's balloons with all values of a moment in one blob.
    fn balloons(blob_bytes: u64, reads: &str) -> Measurements {
        let mut facts = table(
            "CREATE TABLE balloons (balloon BIGINT, ts TIMESTAMP TIME INDEX, measurements_blob BINARY, \
             PRIMARY KEY (balloon))",
        );
        for column in &mut facts.columns {
            column.stored_bytes = Some(50);
        }
        column(&mut facts, "measurements_blob").stored_bytes = Some(blob_bytes);
        let mut measurements = alone(facts);
        measurements.statements.push(StatementShape {
            tables: vec!["public.balloons".to_owned()],
            calls: 1,
            columns: vec![("public.balloons".to_owned(), reads.to_owned())],
            ..StatementShape::default()
        });
        measurements
    }

    #[test]
    fn a27_blobs_of_the_seed_that_are_read_are_mentioned() {
        let finding = of_rule(&balloons(901, "measurements_blob"), Rule::A27).unwrap();
        assert_eq!((finding.severity, finding.ddl), (Severity::Info, None));
        assert!(of_rule(&balloons(900, "measurements_blob"), Rule::A27).is_none());
        assert!(of_rule(&balloons(901, "balloon"), Rule::A27).is_none());
    }

    #[test]
    fn a27_json_is_a_blob_too() {
        let mut facts = table("CREATE TABLE t (ts TIMESTAMP TIME INDEX, payload STRING)");
        column(&mut facts, "ts").stored_bytes = Some(1);
        column(&mut facts, "payload").stored_bytes = Some(99);
        column(&mut facts, "payload").sample = vec!["{\"a\": 1}".to_owned()];
        let mut measurements = alone(facts);
        measurements.statements.push(StatementShape {
            tables: vec!["t".to_owned()],
            calls: 1,
            columns: vec![("t".to_owned(), "payload".to_owned())],
            ..StatementShape::default()
        });
        assert!(of_rule(&measurements, Rule::A27).is_some());
        column(&mut measurements.tables[0], "payload").sample = vec!["plain text".to_owned()];
        assert!(of_rule(&measurements, Rule::A27).is_none());
    }

    fn system_metrics() -> TableFacts {
        // The seed's table, which removes duplicates by host and ts.
        let mut facts = table(
            "CREATE TABLE system_metrics (host STRING, cpu_util DOUBLE, memory_util DOUBLE, disk_util DOUBLE, \
             ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY(host), TIME INDEX(ts))",
        );
        (facts.rows, facts.folded, facts.deletes) = (Some(100_000), Some(0), Some(0));
        facts
    }

    #[test]
    fn a35_rows_that_never_repeat_need_no_deduplication() {
        let finding = of_rule(&alone(system_metrics()), Rule::A35).unwrap();
        let ddl = finding.ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("'append_mode' = 'true'"), "{ddl}");
        // A tenth of the rows of the seed is sent again.
        for (rows, folded, deletes) in [(100_000, 10_000, 0), (100_000, 0, 1), (99_999, 0, 0)] {
            let mut facts = system_metrics();
            (facts.rows, facts.folded, facts.deletes) = (Some(rows), Some(folded), Some(deletes));
            assert!(of_rule(&alone(facts), Rule::A35).is_none());
        }
    }

    #[test]
    fn a36_partial_updates_of_the_seed_keep_the_other_fields() {
        let mut facts = system_metrics();
        facts.folded = Some(10_000);
        facts.shapes = vec![
            (vec!["cpu_util".to_owned()], 50_000),
            (vec!["memory_util".to_owned(), "disk_util".to_owned()], 50_000),
        ];
        let ddl = of_rule(&alone(facts.clone()), Rule::A36).unwrap().ddl.unwrap();
        parses(&ddl);
        assert!(ddl.contains("'merge_mode' = 'last_non_null'"), "{ddl}");
        facts.folded = Some(0);
        assert!(of_rule(&alone(facts), Rule::A36).is_none());
    }

    #[test]
    fn a36_rows_without_null_are_replaced_as_a_whole() {
        let mut facts = system_metrics();
        (facts.folded, facts.merge_mode) = (Some(1), Some("last_non_null".to_owned()));
        for name in ["cpu_util", "memory_util", "disk_util"] {
            column(&mut facts, name).nulls = Some(0);
        }
        let ddl = of_rule(&alone(facts.clone()), Rule::A36).unwrap().ddl.unwrap();
        assert!(ddl.contains("'merge_mode' = 'last_row'"), "{ddl}");
        column(&mut facts, "cpu_util").nulls = Some(1);
        assert!(of_rule(&alone(facts), Rule::A36).is_none());
    }
}
