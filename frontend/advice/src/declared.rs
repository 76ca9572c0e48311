//! Facts that a definition alone says.

use partita_proto::catalog::Table;
use partita_proto::id::ColumnId;
use partita_proto::index::Index;
use partita_proto::placement::Placement;
use partita_proto::schema::{Column, Semantic, TableSchema};
use partita_proto::service::NewTable;
use partita_sql::show::create_table_sql;

use crate::ddl::table_of;
use crate::measurements::{ColumnFacts, IndexFacts, PartitionFacts, Placed, TableFacts};
use crate::thresholds::setting;

/// The facts of a table that is to be created; nothing but its name if the definition contradicts itself.
pub fn facts_of_new_table(table: &NewTable) -> TableFacts {
    match table_of(table) {
        Some(table) => facts_of_table(&table),
        None => TableFacts {
            database: table.database.clone(),
            name: table.name.clone(),
            ..TableFacts::default()
        },
    }
}

/// The facts of a table without figures of its rows.
pub fn facts_of_table(table: &Table) -> TableFacts {
    let schema = table.schema.as_ref();
    let options = &schema.options;
    let partitioning = &options.partitioning;
    let partition = |route: &partita_proto::route::Route| PartitionFacts {
        id: route.partition.0,
        leader: route.leader.map(|node| node.0),
        ..PartitionFacts::default()
    };
    let mut advice_off = options.advice_off.clone();
    advice_off.sort_unstable();
    let thresholds = options.advice_thresholds.iter().filter_map(|text| setting(text));
    let thresholds = thresholds.map(|(name, value)| (name.to_owned(), value)).collect();
    TableFacts {
        database: table.database.clone(),
        name: table.name.clone(),
        created: create_table_sql(table),
        is_copy: table.copy.is_some(),
        columns: schema.columns.iter().map(column_facts).collect(),
        key: schema.key_columns().map(|column| column.name.clone()).collect(),
        time_index: schema.time_index().map(|column| column.name.clone()),
        append_mode: options.append_mode,
        merge_mode: (!options.append_mode).then(|| options.merge_mode.sql().to_owned()),
        ttl_ms: options.ttl.and_then(|ttl| u64::try_from(ttl.as_millis()).ok()),
        advice_off,
        thresholds,
        placement: placed(schema, &table.placement),
        partitions: table.partitions.routes().iter().map(partition).collect(),
        partition_size_mb: u64::from(partitioning.partition_size_mb),
        min_partitions: u64::from(partitioning.min_partitions),
        max_partitions: u64::from(partitioning.max_partitions),
        bucket_seconds: schema.key_columns().find_map(bucket_seconds),
        label: options.comment.as_deref().and_then(label),
        ..TableFacts::default()
    }
}

fn column_facts(column: &Column) -> ColumnFacts {
    let index = |index: &Index| IndexFacts {
        name: index.name.clone(),
        kind: index.options.kind().method().to_owned(),
        ..IndexFacts::default()
    };
    ColumnFacts {
        name: column.name.clone(),
        column_type: column.column_type.sql(),
        semantic: match column.semantic {
            Semantic::Tag => "tag",
            Semantic::Field => "field",
            Semantic::TimeIndex => "time",
        }
        .to_owned(),
        nullable: column.nullable,
        generated: column.generated.is_some(),
        indexes: column.indexes.iter().map(index).collect(),
        ..ColumnFacts::default()
    }
}

fn placed(schema: &TableSchema, placement: &Placement) -> Placed {
    let names = |ids: &[ColumnId]| {
        let columns = ids.iter().filter_map(|id| schema.column_by_id(*id));
        columns.map(|column| column.name.clone()).collect()
    };
    match placement {
        Placement::Range => Placed::Range,
        Placement::Hash { columns } => Placed::Hash { columns: names(columns) },
        Placement::Rules { columns, .. } => Placed::Rules { columns: names(columns) },
    }
}

/// Length of the bucket of time that a generated column is, in seconds.
fn bucket_seconds(column: &Column) -> Option<u64> {
    const LENGTHS: [(&str, u64); 5] =
        [("minute", 60), ("hour", 3_600), ("day", 86_400), ("week", 604_800), ("month", 2_592_000)];
    let expression = column.generated.as_ref()?.to_lowercase();
    let (_, arguments) = expression.split_once("date_trunc('")?;
    let (unit, _) = arguments.split_once('\'')?;
    LENGTHS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds)
}

/// The kind of data that a comment names.
fn label(comment: &str) -> Option<String> {
    let comment = comment.to_lowercase();
    let mut words = comment.split(|c: char| !c.is_alphanumeric());
    let kind = words.find_map(|word| match word {
        "metric" | "metrics" => Some("metric"),
        "event" | "events" => Some("event"),
        _ => None,
    });
    kind.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use crate::measurements::Placed;
    use crate::tests::table;

    #[test]
    fn a_definition_says_columns_key_and_options() {
        let facts = table(
            "CREATE TABLE cpu (host STRING, ts TIMESTAMP TIME INDEX, usage DOUBLE INVERTED INDEX, PRIMARY KEY (host)) \
             PARTITION BY HASH (host) PARTITIONS 4 WITH ('ttl' = '1d', 'comment' = 'Metrics of hosts', \
             'advice_thresholds' = 'many_tags=9')",
        );
        assert_eq!(facts.key, ["host", "ts"]);
        assert_eq!(facts.time_index.as_deref(), Some("ts"));
        assert_eq!(facts.placement, Placed::Hash { columns: vec!["host".to_owned()] });
        assert_eq!(facts.partitions.len(), 4);
        assert_eq!(facts.ttl_ms, Some(86_400_000));
        assert_eq!(facts.thresholds, [("many_tags".to_owned(), 9.0)]);
        assert_eq!(facts.merge_mode.as_deref(), Some("last_row"));
        assert_eq!(facts.label.as_deref(), Some("metric"));
        let semantics: Vec<_> =
            facts.columns.iter().map(|column| column.semantic.as_str()).collect();
        assert_eq!(semantics, ["tag", "time", "field"]);
        assert_eq!(facts.columns[2].indexes[0].kind, "inverted");
        assert_eq!(facts.bucket_seconds, None);
    }
}
