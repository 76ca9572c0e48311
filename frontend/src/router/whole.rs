//! Requests of a large write to a wide table: none of them cuts a row, so that the cells of a row take effect together.

use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use partita_proto::key::KeyCodec;
use partita_proto::size::batch_bytes;

use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};

/// Cuts cells of a partition between rows into slices of at most `bytes_max` bytes, or of one cell. Cells come in the order
/// of their keys; those of one key keep their order.
///
/// # Errors
/// 54000 if several cells of one row exceed a slice.
pub(super) fn whole_rows(
    codec: &KeyCodec,
    cells: RecordBatch,
    bytes_max: usize,
) -> Result<Vec<RecordBatch>, SqlError> {
    let (keys, order) = codec.encode_sorted(&cells)?;
    let cells = match order {
        Some(order) => take_record_batch(&cells, &order)?,
        None => cells,
    };
    let mut slices = Vec::new();
    let (mut start, mut bytes, mut position) = (0, 0, 0);
    while position < keys.len() {
        let row = codec.first_cells(keys.get(position), 1)?;
        let is_of_row = |cell: &usize| keys.get(*cell).starts_with(row);
        let count = (position..keys.len()).take_while(is_of_row).count();
        let row_bytes = batch_bytes(&cells.slice(position, count));
        if count > 1 && row_bytes > bytes_max {
            let message = format!(
                "{row_bytes} bytes for one row in a request exceed the limit of {bytes_max} bytes"
            );
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message)
                .with_hint("write the cells of the row in several requests"));
        }
        if position > start && bytes + row_bytes > bytes_max {
            slices.push(cells.slice(start, position - start));
            (start, bytes) = (position, 0);
        }
        bytes += row_bytes;
        position += count;
    }
    if position > start {
        slices.push(cells.slice(start, position - start));
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use partita_proto::array::array_of;
    use partita_proto::id::{ColumnId, SchemaVersion};
    use partita_proto::placement::Placement;
    use partita_proto::schema::{ColumnType, TableOptions, TableSchema};
    use partita_proto::value::Value;
    use partita_proto::wide::{Wide, columns};

    use super::*;

    fn codec() -> KeyCodec {
        let schema = TableSchema {
            version: SchemaVersion(1),
            columns: columns(ColumnType::String),
            key: (0..4).map(ColumnId).collect(),
            options: TableOptions { wide: Some(Wide::default()), ..TableOptions::default() },
            next_column: ColumnId(5),
            schema_on_write: false,
            checks: Vec::new(),
            view: None,
        };
        KeyCodec::new(&schema, &Placement::Range).unwrap()
    }

    /// Cells by row key and length of the value, each in a column of its own.
    fn cells(cells: &[(&str, usize)]) -> RecordBatch {
        let values: [Vec<Value>; 5] = [
            cells.iter().map(|cell| Value::String(cell.0.to_owned())).collect(),
            cells.iter().map(|_| Value::String("f".to_owned())).collect(),
            (0..cells.len()).map(|cell| Value::Binary(cell.to_be_bytes().to_vec())).collect(),
            cells.iter().map(|_| Value::Timestamp(1)).collect(),
            cells.iter().map(|cell| Value::Binary(vec![7; cell.1])).collect(),
        ];
        let arrays =
            columns(ColumnType::String).into_iter().zip(&values).map(|(column, values)| {
                (column.storage_name, array_of(column.column_type, values).unwrap())
            });
        RecordBatch::try_from_iter(arrays).unwrap()
    }

    fn counts(slices: &[RecordBatch]) -> Vec<usize> {
        slices.iter().map(RecordBatch::num_rows).collect()
    }

    #[test]
    fn no_slice_cuts_a_row() {
        let mixed =
            cells(&[("b", 400), ("a", 300), ("b", 400), ("c", 100), ("a", 300), ("c", 100)]);
        assert_eq!(counts(&whole_rows(&codec(), mixed.clone(), 1 << 20).unwrap()), [6]);
        // Rows a, b and c have 764, 964 and 364 bytes.
        assert_eq!(counts(&whole_rows(&codec(), mixed.clone(), 1000).unwrap()), [2, 2, 2]);
        assert_eq!(counts(&whole_rows(&codec(), mixed.clone(), 1400).unwrap()), [2, 4]);
        let error = whole_rows(&codec(), mixed, 700).unwrap_err();
        assert_eq!(error.sqlstate, "54000");
        let single = cells(&[("a", 5_000), ("b", 10)]);
        assert_eq!(counts(&whole_rows(&codec(), single, 1000).unwrap()), [1, 1]);
    }
}
