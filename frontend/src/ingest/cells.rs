//! Checks cells that are written to a wide table, whichever door they come through: their families, the sizes of their parts,
//! and the values of aggregates.

use arrow::array::{Array, ArrayRef, AsArray};
use partita_proto::wide::Wide;

use crate::error::SqlError;

/// Positions of row key, family, qualifier and value among the columns of a wide table.
const PARTS: [usize; 4] = [0, 1, 2, 4];

/// Checks the cells of rows, with their columns by position.
///
/// # Errors
/// Fails if a family does not exist, a part of a cell exceeds its limit, or a value in an aggregate family is no number.
pub(super) fn check(
    wide: &Wide,
    columns: &[Option<ArrayRef>],
    rows: usize,
) -> Result<(), SqlError> {
    let [Some(row_keys), Some(families), Some(qualifiers), Some(values)] =
        PARTS.map(|part| columns.get(part).and_then(Option::as_ref))
    else {
        return Ok(());
    };
    for row in 0..rows {
        let family = std::str::from_utf8(bytes(families, row));
        let family = family.map_err(|_| SqlError::internal("a family is no text"))?;
        let (row_key, qualifier) = (bytes(row_keys, row), bytes(qualifiers, row));
        let value_bytes = bytes(values, row).len();
        let checked = wide.check_cell(row_key, family, qualifier, value_bytes);
        checked.and_then(|()| wide.check_value(family, value_bytes)).map_err(|error| {
            let error = SqlError::from(error);
            if rows > 1 { error.with_detail(format!("in row {}", row + 1)) } else { error }
        })?;
    }
    Ok(())
}

/// Bytes of a text or binary value; none of NULL.
fn bytes(column: &ArrayRef, row: usize) -> &[u8] {
    if column.is_null(row) {
        return &[];
    }
    match (column.as_string_view_opt(), column.as_binary_view_opt()) {
        (Some(texts), _) => texts.value(row).as_bytes(),
        (None, Some(bytes)) => bytes.value(row),
        (None, None) => &[],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryViewArray, StringViewArray};
    use partita_proto::wide::{Aggregate, Family};

    use super::*;

    #[test]
    fn every_cell_is_checked_and_the_row_of_a_wrong_one_is_named() {
        let family = |name: &str, aggregate| Family { name: name.to_owned(), gc: None, aggregate };
        let families = vec![family("f", None), family("n", Some(Aggregate::Sum))];
        let wide = Wide { families, ..Wide::default() };
        let texts =
            |texts: &[&str]| Some(Arc::new(StringViewArray::from(texts.to_vec())) as ArrayRef);
        let bytes = |texts: &[&str]| {
            let bytes = texts.iter().map(|text| text.as_bytes());
            Some(Arc::new(BinaryViewArray::from_iter_values(bytes)) as ArrayRef)
        };
        let check = |row_keys: &[&str], families: &[&str]| {
            let columns =
                [texts(row_keys), texts(families), bytes(&["", "q"]), None, bytes(&["", "v"])];
            check(&wide, &columns, 2)
        };
        check(&["a", "b"], &["f", "f"]).unwrap();
        let error = check(&["a", "b"], &["f", "g"]).unwrap_err();
        assert_eq!(error.message, "column family \"g\" does not exist");
        assert_eq!((error.sqlstate.as_str(), error.detail.as_deref()), ("42704", Some("in row 2")));
        let error = check(&["", "b"], &["f", "f"]).unwrap_err();
        assert_eq!(error.message, "a row key must not be empty");
        let error = check(&["a", "b"], &["f", "n"]).unwrap_err();
        assert!(error.message.ends_with("must be a number of 8 bytes, not 1"), "{error}");
        let long = "k".repeat(4097);
        let error = check(&["a", &long], &["f", "f"]).unwrap_err();
        assert_eq!((error.sqlstate.as_str(), error.hint.is_some()), ("54000", true));
    }
}
