//! Bounds of partitions as users see them.

use partita_proto::catalog::Table;
use partita_proto::range::Bound;

/// A bound as text: `(3, 'a')`; `None` at the ends of the key space.
pub(crate) fn bound_text(table: &Table, bound: &Bound) -> Option<String> {
    if bound.is_empty() {
        return None;
    }
    let mut parts: Vec<String> = bound.placement.iter().map(ToString::to_string).collect();
    for (column, value) in table.schema.key_columns().zip(&bound.key) {
        parts.push(value.display(column.column_type));
    }
    Some(format!("({})", parts.join(", ")))
}
