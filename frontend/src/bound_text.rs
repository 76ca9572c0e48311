//! Bounds of partitions as users see them.

use partita_proto::catalog::Table;
use partita_proto::range::Bound;
use partita_proto::schema::ColumnType;
use partita_sql::bound_words::bound_sql;

/// A bound as text: `(3, 'a')`, or `AFTER (3, 'a')` for the one directly above; `None` at the ends of the key space.
pub(crate) fn bound_text(table: &Table, bound: &Bound) -> Option<String> {
    if bound.is_empty() {
        return None;
    }
    let types: Vec<ColumnType> =
        table.schema.key_columns().map(|column| column.column_type).collect();
    Some(bound_sql(bound, &types))
}
