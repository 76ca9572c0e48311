//! ALTER TABLE ... PARTITION BY and SET 'hash_buckets': a new placement for a table's new rows.
//!
//! ```text
//! PARTITION BY HASH (columns) PARTITIONS n
//! PARTITION BY RANGE (columns) [SPLIT AT ((value, ..), ..)]
//! SET ('hash_buckets' = n)        by hash of the key without the time index
//! ```

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::catalog::Table;
use partita_proto::id::ColumnId;
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{hash_cuts, ranges_between};

use super::new_table::{bound, check_partitions};
use super::statement::{NewPlacement, TableName};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes PARTITION BY and its columns, bounds or number of partitions.
    pub(super) fn new_placement(&mut self) -> Result<NewPlacement, SqlError> {
        if self.take(&["partition", "on"]) {
            return Err(self.unsupported("ALTER TABLE ... PARTITION ON COLUMNS").with_hint(
                "new rows can be placed by PARTITION BY HASH (columns) PARTITIONS n or PARTITION BY RANGE (columns)",
            ));
        }
        self.take(&["partition", "by"]);
        // The kind, and the columns that it places by.
        let position = self.position();
        let kind = self.name("RANGE or HASH")?;
        let columns = match kind.as_str() {
            "hash" | "range" => self.columns()?,
            kind => {
                let feature = format!("PARTITION BY {}", kind.to_ascii_uppercase());
                let error = SqlError::unsupported(feature).with_position(position);
                return Err(error.with_hint("use RANGE or HASH"));
            }
        };
        // A range may list bounds; a hash must give a number of partitions.
        if kind == "range" {
            let cuts = if self.take(&["split", "at"]) { self.tuples()? } else { Vec::new() };
            return Ok(NewPlacement::Range { columns, cuts });
        }
        if !self.take(&["partitions"]) {
            let error = SqlError::syntax("PARTITION BY HASH requires PARTITIONS and a number");
            return Err(self.located(error));
        }
        let position = self.position();
        let number = self.unsigned("a number of partitions")?;
        let partitions = u16::try_from(number).ok().filter(|number| *number > 0);
        let wrong = || {
            let wrong = "PARTITIONS takes a number from 1 to 65535";
            SqlError::new(INVALID_PARAMETER_VALUE, wrong).with_position(position)
        };
        // HASH takes no bounds.
        if matches!(self.peek().token, Token::Word(_)) {
            return Err(self.unexpected("a comma or the end of the statement"));
        }
        Ok(NewPlacement::Hash { columns, partitions: partitions.ok_or_else(wrong)? })
    }
}

impl NewPlacement {
    /// The placement for a table, and the bounds at which its key space is split.
    ///
    /// # Errors
    /// When it names a column that the table does not have, or a bound does not fit the table's key.
    pub(super) fn resolve(&self, table: &Table) -> Result<(Placement, Vec<Bound>), SqlError> {
        match self {
            Self::Hash { columns, partitions } => {
                check_partitions(usize::from(*partitions))?;
                let columns = ids(table, columns)?;
                Ok((Placement::Hash { columns }, hash_cuts(*partitions)))
            }
            Self::BySeries { partitions } => {
                check_partitions(usize::from(*partitions))?;
                Ok((Placement::by_series(&table.schema), hash_cuts(*partitions)))
            }
            Self::Range { columns, cuts } => {
                if !table.schema.key.starts_with(&ids(table, columns)?) {
                    let key: Vec<_> =
                        table.schema.key_columns().map(|column| column.name.as_str()).collect();
                    let wrong =
                        "PARTITION BY RANGE must name the first columns of the key, which is";
                    return Err(SqlError::new(
                        INVALID_PARAMETER_VALUE,
                        format!("{wrong} ({})", key.join(", ")),
                    ));
                }
                check_partitions(cuts.len() + 1)?;
                let key: Vec<_> = table.schema.key_columns().collect();
                let cuts = cuts.iter().map(|tuple| bound(tuple, &key, &Placement::Range));
                let cuts = cuts.collect::<Result<Vec<_>, _>>()?;
                let codec = KeyCodec::new(&table.schema, &Placement::Range)?;
                // Checks that the bounds ascend, and casts their values to the key's types.
                let ranges = ranges_between(&codec, &cuts)
                    .map_err(|error| SqlError::new(INVALID_PARAMETER_VALUE, error.to_string()))?;
                let cuts = ranges.into_iter().skip(1).map(|range| range.start).collect();
                Ok((Placement::Range, cuts))
            }
        }
    }
}

fn ids(table: &Table, names: &[String]) -> Result<Vec<ColumnId>, SqlError> {
    let mut ids = Vec::with_capacity(names.len());
    for name in names {
        let column = table.schema.column(name).ok_or_else(|| {
            SqlError::undefined_column(name, TableName::bare(table.name.as_str()))
        })?;
        if ids.contains(&column.id) {
            return Err(SqlError::new(
                crate::error::DUPLICATE_COLUMN,
                format!("partition column \"{name}\" specified more than once"),
            ));
        }
        ids.push(column.id);
    }
    Ok(ids)
}
