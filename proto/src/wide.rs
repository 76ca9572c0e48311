//! Wide tables: rows of cells, as Bigtable has them.
//!
//! ```text
//!   wide row                                      stored as (the first four are the key)
//!   us-west2#3698#week1                           row_key    family   qualifier  cell_ts (newest first)  value
//!     stats:pressure  94122 @ 12:02, 94558 @ ..     us-west2.. stats    pressure   12:02                   94122
//!     stats:temp      9.6 @ 12:00                   us-west2.. stats    pressure   12:00                   94558
//!                                                   us-west2.. stats    temp       12:00                   9.6
//! ```
//!
//! A wide table is a table of five columns. A qualifier is any bytes, so a row has as many columns as it has qualifiers, and a
//! column as many versions as it has timestamps. Families are declared, each with a rule of garbage collection ([`GcRule`]).
//! The cells of an aggregate family are numbers, to which requests add others ([`Aggregate`]).
//!
//! Invariants (checked by [`Wide::check`]):
//! - columns and key are those of the picture, in this order, and none is NULL;
//! - the cells of a row are in one partition: rows are kept together by their row key, which alone places them;
//! - names of families are unique and valid, and none is that of a dropped family whose cells may still be there
//!   ([`DroppedFamily`]); rules are not empty and not deeper than [`GC_DEPTH_MAX`].

mod aggregate;
mod family;
mod gc;
mod mutation;
mod read_modify;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::aggregate::Aggregate;
pub use self::family::{DroppedFamily, FamilyChange};
pub use self::gc::{GC_DEPTH_MAX, GcRule, Version};
pub use self::mutation::{CellKey, CellMutation, RowChange, RowMutation};
pub use self::read_modify::{ReadModify, ReadModifyRule};
use crate::error::Error;
use crate::placement::Placement;
use crate::schema::{Column, ColumnType, HotspotRemedy, MergeMode, Semantic, TableSchema, Unit};

/// Name of the column of row keys: STRING or BINARY.
pub const ROW_KEY_COLUMN: &str = "row_key";
/// Name of the column of families: STRING.
pub const FAMILY_COLUMN: &str = "family";
/// Name of the column of qualifiers: BINARY.
pub const QUALIFIER_COLUMN: &str = "qualifier";
/// Name of the column of the cells' timestamps: TIMESTAMP(6), newest first in the key.
pub const CELL_TS_COLUMN: &str = "cell_ts";
/// Name of the column of values: BINARY.
pub const VALUE_COLUMN: &str = "value";
/// Number of columns of the key.
pub const KEY_COLUMNS: usize = 4;

/// Maximum bytes of a row key.
pub const ROW_KEY_BYTES_MAX: usize = 4 * 1024;
/// Maximum bytes of a family's name.
pub const FAMILY_BYTES_MAX: usize = 64;
/// Maximum families of a table.
pub const FAMILIES_MAX: usize = 1000;
/// Maximum bytes of a qualifier.
pub const QUALIFIER_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of a cell's value.
pub const CELL_BYTES_MAX: usize = 100 * MIB;
/// Maximum mutations of one request.
pub const MUTATIONS_MAX: usize = 100_000;
/// Default size of a row from which on it is reported as large.
pub const ROW_BYTES_WARN: u64 = 100 * MIB as u64;
/// Default size of a row beyond which it takes no more cells.
pub const ROW_BYTES_MAX: u64 = 256 * MIB as u64;

const MIB: usize = 1024 * 1024;

/// A column family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Name, unique in the table.
    pub name: String,
    /// Rule by which its cells become garbage; `None`: all are kept.
    pub gc: Option<GcRule>,
    /// How its cells combine numbers; `None`: cells are bytes, which are set. It never changes.
    #[serde(default)]
    pub aggregate: Option<Aggregate>,
}

/// The options that make a table a wide one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wide {
    /// Column families; cells of others are refused.
    pub families: Vec<Family>,
    /// Families that were dropped, until their cells are removed. Their names are not given to others.
    #[serde(default)]
    pub dropped: Vec<DroppedFamily>,
    /// Bytes of a row from which on it is reported as large.
    pub row_bytes_warn: u64,
    /// Bytes of a row beyond which it takes no more cells.
    pub row_bytes_max: u64,
}

impl Default for Wide {
    fn default() -> Self {
        Self {
            families: Vec::new(),
            dropped: Vec::new(),
            row_bytes_warn: ROW_BYTES_WARN,
            row_bytes_max: ROW_BYTES_MAX,
        }
    }
}

impl Wide {
    /// The family with a name.
    pub fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }

    /// True if a family's rule depends on the versions of a column, and not on the age of a cell alone.
    pub fn counts_versions(&self) -> bool {
        self.families.iter().filter_map(|family| family.gc.as_ref()).any(GcRule::counts_versions)
    }

    /// True if any cell may become garbage.
    pub fn collects(&self) -> bool {
        !self.dropped.is_empty() || self.families.iter().any(|family| family.gc.is_some())
    }

    /// Those of a row's cells that are garbage at a time, in microseconds since 1970. `cells`: all that are there, ascending.
    pub fn garbage<'c>(
        &self,
        cells: impl DoubleEndedIterator<Item = &'c CellKey>,
        now_us: i64,
    ) -> BTreeSet<&'c CellKey> {
        let mut garbage = BTreeSet::new();
        let mut column: Option<(&str, &[u8])> = None;
        let mut number = 0;
        // Of a column, the newest cell comes first.
        for cell in cells.rev() {
            let name = (cell.family.as_str(), cell.qualifier.as_slice());
            number = if column == Some(name) { number + 1 } else { 1 };
            column = Some(name);
            let version = Version { number, timestamp: cell.timestamp };
            let is_garbage = match self.family(&cell.family) {
                None => true,
                Some(family) => {
                    family.gc.as_ref().is_some_and(|rule| rule.collects(version, now_us))
                }
            };
            if is_garbage {
                garbage.insert(cell);
            }
        }
        garbage
    }

    /// Checks the invariants of this module, except those about the placement.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the first violation.
    pub fn check(&self, schema: &TableSchema) -> Result<(), Error> {
        check_columns(schema)?;
        let options = &schema.options;
        let excluded = [
            ("append_mode", options.append_mode),
            ("merge_mode", options.merge_mode != MergeMode::default()),
            ("ttl", options.ttl.is_some()),
            ("time_window", options.time_window.is_some()),
            ("schema_on_write", schema.schema_on_write),
        ];
        if let Some((name, _)) = excluded.into_iter().find(|(_, is_set)| *is_set) {
            return invalid(format!("'{name}' cannot be set on a wide table"));
        }
        if options.partitioning.keep_together != 1 {
            return invalid(
                "'keep_together' of a wide table must be 1, so that no row is cut in two"
                    .to_owned(),
            );
        }
        if options.partitioning.hotspot_remedy == HotspotRemedy::Auto {
            return invalid(
                "'hotspot_remedy' of a wide table cannot be 'auto': its rows are placed by their keys"
                    .to_owned(),
            );
        }
        if !schema.checks.is_empty() {
            return invalid("a wide table cannot have CHECK constraints".to_owned());
        }
        self.check_families()?;
        if self.row_bytes_max == 0 || self.row_bytes_warn > self.row_bytes_max {
            return invalid(format!(
                "'row_size_warn' ({} bytes) must not exceed 'row_size_max' ({} bytes), which must not be 0",
                self.row_bytes_warn, self.row_bytes_max
            ));
        }
        Ok(())
    }

    fn check_families(&self) -> Result<(), Error> {
        let count = self.families.len() + self.dropped.len();
        if count > FAMILIES_MAX {
            return invalid(format!("{count} column families exceed the limit of {FAMILIES_MAX}"));
        }
        let mut names = BTreeSet::new();
        for family in &self.families {
            check_family_name(&family.name)?;
            if !names.insert(family.name.as_str()) {
                return invalid(format!(
                    "column family \"{}\" specified more than once",
                    family.name
                ));
            }
            if let Some(rule) = &family.gc {
                rule.check()?;
            }
        }
        Ok(())
    }

    /// Checks a cell that is to be written: its family, and the sizes of its parts.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a family that the table does not have, [`Error::LimitReached`] for a part that is too
    /// large, [`Error::InvalidInput`] for an empty row key.
    pub fn check_cell(
        &self,
        row_key: &[u8],
        family: &str,
        qualifier: &[u8],
        value_bytes: usize,
    ) -> Result<(), Error> {
        check_row_key(row_key)?;
        if self.family(family).is_none() {
            return Err(Error::NotFound { kind: "column family", name: family.to_owned() });
        }
        within("a qualifier", qualifier.len(), QUALIFIER_BYTES_MAX)?;
        within("a cell", value_bytes, CELL_BYTES_MAX)
    }
}

/// Checks a row key.
///
/// # Errors
/// [`Error::InvalidInput`] when it is empty, [`Error::LimitReached`] when it is longer than [`ROW_KEY_BYTES_MAX`].
pub fn check_row_key(row_key: &[u8]) -> Result<(), Error> {
    if row_key.is_empty() {
        return invalid("a row key must not be empty".to_owned());
    }
    within("a row key", row_key.len(), ROW_KEY_BYTES_MAX)
}

/// The five columns of a wide table, with ids from 0, for row keys of a type.
pub fn columns(row_key: ColumnType) -> Vec<Column> {
    let column = |id: u32, name: &str, column_type, default: Option<&str>| Column {
        id: crate::id::ColumnId(id),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type,
        nullable: false,
        semantic: if name == VALUE_COLUMN { Semantic::Field } else { Semantic::Tag },
        default: default.map(str::to_owned),
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    };
    vec![
        column(0, ROW_KEY_COLUMN, row_key, None),
        column(1, FAMILY_COLUMN, ColumnType::String, None),
        column(2, QUALIFIER_COLUMN, ColumnType::Binary, None),
        column(3, CELL_TS_COLUMN, CELL_TS_TYPE, Some("now()")),
        column(4, VALUE_COLUMN, ColumnType::Binary, None),
    ]
}

/// Type of a cell's timestamp.
pub const CELL_TS_TYPE: ColumnType = ColumnType::Timestamp(Unit::Microsecond, false);

/// Checks that a placement keeps the cells of each row of a wide table together: it depends on the row key alone.
///
/// # Errors
/// [`Error::InvalidInput`] when it depends on another column.
pub fn check_placement(schema: &TableSchema, placement: &Placement) -> Result<(), Error> {
    let is_apart = |column| schema.key.first() != Some(column);
    if schema.options.wide.is_some() && placement.columns().iter().any(is_apart) {
        return invalid(format!(
            "a wide table can be partitioned by \"{ROW_KEY_COLUMN}\" only, so that no row is cut in two"
        ));
    }
    Ok(())
}

/// Checks that columns and key are those of a wide table. Names may differ: columns can be renamed.
fn check_columns(schema: &TableSchema) -> Result<(), Error> {
    let expected: [(&str, &[ColumnType]); 5] = [
        (ROW_KEY_COLUMN, &[ColumnType::String, ColumnType::Binary]),
        (FAMILY_COLUMN, &[ColumnType::String]),
        (QUALIFIER_COLUMN, &[ColumnType::Binary]),
        (CELL_TS_COLUMN, &[CELL_TS_TYPE]),
        (VALUE_COLUMN, &[ColumnType::Binary]),
    ];
    let fits = |(column, (_, types)): (&Column, &(&str, &[ColumnType]))| {
        let is_plain = column.length.is_none() && column.json.is_none();
        let is_stored = column.generated.is_none() && column.missing.is_none();
        types.contains(&column.column_type) && !column.nullable && is_plain && is_stored
    };
    let key = schema.columns.iter().take(KEY_COLUMNS).map(|column| column.id);
    let are_columns = schema.columns.len() == expected.len()
        && schema.columns.iter().zip(&expected).all(fits)
        && schema.key.iter().copied().eq(key)
        && schema.time_index().is_none();
    if are_columns {
        return Ok(());
    }
    let listed: Vec<String> = expected
        .iter()
        .map(|(name, types)| {
            let types: Vec<String> = types.iter().copied().map(ColumnType::sql).collect();
            format!("{name} {}", types.join(" or "))
        })
        .collect();
    invalid(format!(
        "the columns of a wide table must be {}, all NOT NULL, of which the first {KEY_COLUMNS} are the key",
        listed.join(", ")
    ))
}

/// Checks the name of a column family: letters, digits, `-`, `_` and `.`.
///
/// # Errors
/// [`Error::InvalidInput`] when it is empty or has another character, [`Error::LimitReached`] when it is too long.
pub fn check_family_name(name: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_allowed) {
        return invalid(format!(
            "column family name {name:?} must consist of letters, digits, \"-\", \"_\" and \".\""
        ));
    }
    within("a column family name", name.len(), FAMILY_BYTES_MAX)
}

/// Checks a size against its limit.
fn within(part: &str, bytes: usize, bytes_max: usize) -> Result<(), Error> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(Error::LimitReached {
        message: format!("{part} of {bytes} bytes exceeds the limit of {bytes_max} bytes"),
        hint: "Distribute the data over more rows, columns or cells.".to_owned(),
    })
}

fn invalid<T>(message: String) -> Result<T, Error> {
    Err(Error::InvalidInput(message))
}

#[cfg(test)]
mod tests;
