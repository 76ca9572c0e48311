//! Facts from measures of rows.

use partita_proto::index::IndexKind;
use partita_proto::measure::{ColumnMeasures, PartitionMeasures, TableMeasures};
use partita_proto::schema::{Column, ColumnType, Semantic, TableSchema};
use partita_proto::value::Value;

use crate::measurements::{ColumnFacts, IntervalFacts, TableFacts};

/// Share of texts whose length is reported.
const LENGTH_SHARE: f64 = 0.95;

impl TableFacts {
    /// Adds the figures of all partitions of the table. Without `is_complete` some partitions have not reported, and what
    /// has never happened in the others may have happened there.
    pub fn add_partition_measures(
        &mut self,
        schema: &TableSchema,
        partitions: &PartitionMeasures,
        is_complete: bool,
    ) {
        add_measures(self, schema, &partitions.measures);
        let is_complete = is_complete && partitions.measures.unmeasured == 0;
        self.deletes = self.deletes.filter(|_| is_complete);
        self.folded = is_complete.then_some(partitions.folded);
        for (column, facts) in schema.columns.iter().zip(&mut self.columns) {
            facts.stored_bytes = partitions.column_bytes.get(&column.id).copied();
            for index in &mut facts.indexes {
                let build = partitions.indexes.iter().find(|build| {
                    build.column == column.id
                        && IndexKind::of_method(&index.kind) == Some(build.kind)
                });
                index.bytes = build.map(|build| build.bytes);
            }
        }
    }
}

/// Adds the figures of rows of a table, whose columns are those of the schema.
pub fn add_measures(facts: &mut TableFacts, schema: &TableSchema, measures: &TableMeasures) {
    facts.rows = Some(measures.rows);
    facts.deletes = Some(measures.deletes);
    facts.split_rows = Some(measures.split_rows);
    facts.row_bytes_max = Some(measures.row_bytes_max).filter(|bytes| *bytes > 0);
    facts.shapes = shapes(schema, measures);
    facts.intervals = intervals(schema, measures);
    for (column, facts) in schema.columns.iter().zip(&mut facts.columns) {
        if let Some(measures) = measures.columns.get(&column.id) {
            add_column(facts, column, measures);
        }
    }
}

fn add_column(facts: &mut ColumnFacts, column: &Column, measures: &ColumnMeasures) {
    let plain = |value: &Value| text(value, column.column_type);
    facts.values = Some(measures.values);
    facts.nulls = Some(measures.nulls);
    facts.distinct = Some(measures.distinct.count());
    facts.bytes = Some(measures.bytes);
    if !measures.lengths.is_empty() {
        facts.length_p95 = Some(measures.length_quantile(LENGTH_SHARE));
        facts.length_max = Some(measures.length_max);
    }
    if column.column_type == ColumnType::String && !measures.sample.is_empty() {
        facts.numeric_share = Some(measures.numeric_share());
    }
    facts.min = measures.min.as_ref().map(plain);
    facts.max = measures.max.as_ref().map(plain);
    facts.sample = measures.sample.iter().map(|sampled| plain(&sampled.value)).collect();
}

/// A value as plain text, without quotes.
fn text(value: &Value, column_type: ColumnType) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let literal = value.display(column_type);
    let inner = literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    inner.map_or_else(|| literal.clone(), str::to_owned)
}

/// Sets of fields by their names: bit i stands for the i-th field by id.
fn shapes(schema: &TableSchema, measures: &TableMeasures) -> Vec<(Vec<String>, u64)> {
    let mut fields: Vec<&Column> =
        schema.columns.iter().filter(|column| column.semantic == Semantic::Field).collect();
    fields.sort_by_key(|column| column.id);
    let by_name = |(shape, rows): (&u64, &u64)| {
        let present = (0..u64::BITS).zip(&fields).filter(|(bit, _)| (*shape >> *bit) & 1 == 1);
        (present.map(|(_, column)| column.name.clone()).collect(), *rows)
    };
    measures.shapes.iter().map(by_name).collect()
}

fn intervals(schema: &TableSchema, measures: &TableMeasures) -> Option<IntervalFacts> {
    let ColumnType::Timestamp(unit, _) = schema.time_index()?.column_type else { return None };
    let per_ms = unit.per_second() as f64 / 1_000.0;
    Some(IntervalFacts {
        mean_ms: measures.intervals.mean()? / per_ms,
        deviation_ms: measures.intervals.deviation()? / per_ms,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use partita_proto::id::ColumnId;
    use partita_proto::measure::Sampled;
    use partita_sql::Statement;

    use super::*;

    #[test]
    fn measures_become_facts_of_their_columns() {
        let sql = "CREATE TABLE t (host STRING, ts TIMESTAMP(3) TIME INDEX, a DOUBLE, b DOUBLE, PRIMARY KEY (host))";
        let statement = partita_sql::parse(sql).unwrap().remove(0);
        let Statement::CreateTable(create) = statement else { panic!("{sql}") };
        let (table, _) = create.to_new_table("public").unwrap();
        let mut facts = crate::facts_of_new_table(&table);
        let sampled =
            |hash: u64, text: &str| Sampled { hash, value: Value::String(text.to_owned()) };
        let host = ColumnMeasures {
            values: 90,
            nulls: 10,
            sample: vec![sampled(1, "web"), sampled(2, "db's")],
            ..ColumnMeasures::default()
        };
        let measures = TableMeasures {
            rows: 100,
            columns: BTreeMap::from([(ColumnId(0), host)]),
            shapes: BTreeMap::from([(0b10, 40), (0b11, 60)]),
            row_bytes_max: 9 << 20,
            ..TableMeasures::default()
        };
        let folded = PartitionMeasures {
            measures,
            column_bytes: BTreeMap::from([(ColumnId(0), 7)]),
            folded: 3,
            ..PartitionMeasures::default()
        };
        facts.add_partition_measures(&table.schema, &folded, true);
        assert_eq!((facts.rows, facts.folded, facts.deletes), (Some(100), Some(3), Some(0)));
        assert_eq!(facts.shapes[0], (vec!["b".to_owned()], 40));
        assert_eq!(facts.shapes[1], (vec!["a".to_owned(), "b".to_owned()], 60));
        assert_eq!(facts.row_bytes_max, Some(9 << 20));
        let host = &facts.columns[0];
        assert_eq!((host.values, host.nulls, host.stored_bytes), (Some(90), Some(10), Some(7)));
        assert_eq!(host.sample, ["web", "db's"]);
        assert_eq!(host.numeric_share, Some(0.0));
        assert_eq!(facts.intervals, None);
        // What one partition has not reported may have happened there.
        facts.add_partition_measures(&table.schema, &folded, false);
        assert_eq!((facts.folded, facts.deletes), (None, None));
    }

    #[test]
    fn values_are_texts_without_quotes() {
        let unit = partita_proto::schema::Unit::Second;
        assert_eq!(text(&Value::Int(-7), ColumnType::Int64), "-7");
        assert_eq!(text(&Value::String("a'b".to_owned()), ColumnType::String), "a'b");
        let time = text(&Value::Timestamp(0), ColumnType::Timestamp(unit, false));
        assert!(time.starts_with("1970-01-01") && !time.contains('\''), "{time}");
    }
}
