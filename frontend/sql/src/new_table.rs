//! Turns a parsed CREATE TABLE into the table that meta creates: ids, key, placement, bounds of partitions.
//!
//! The key is the primary key's columns, followed by the time index unless it is one of them; without a primary key it
//! is the time index alone, and without both a hidden column, by whose hash rows are placed. Key columns are tags, also
//! in a table without a time index, and nullable unless declared NOT NULL.

use std::collections::BTreeSet;

use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId, SchemaVersion};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::{hash_cuts, ranges_between, rule_cuts};
use partita_proto::rule::check_cover;
use partita_proto::schema::{
    Column, ColumnType, ROW_COLUMN, Semantic, TABLE_PARTITIONS_MAX, TableSchema, validate_name,
};
use partita_proto::sequence::TableSequence;
use partita_proto::service::NewTable;
use partita_proto::value::Value;
use partita_proto::wide::check_placement;

use super::bound_words::{CutTuple, directly_above};
use super::check_constraint::{check_columns, named_check};
use super::column::check_generated;
use super::index_statement::{IndexNames, index_notice};
use super::literal::typed;
use super::partitioning::uniform_cuts;
use super::rule::rule;
use super::sequence_statement::sequence_default;
use super::statement::{ColumnDefinition, CreateTable, Partitioning, TableName};
use super::tail;
use crate::error::{DUPLICATE_COLUMN, SqlError, UNDEFINED_COLUMN};
use crate::notice::Notice;

/// SQLSTATE of a table definition that contradicts itself.
const INVALID_TABLE: &str = "42P16";

impl CreateTable {
    /// The table for meta to create, and the notices for the client. The caller gives the sequences of its columns names
    /// that are free, by [`rename_sequence`].
    ///
    /// # Errors
    /// When the statement contradicts itself: see this module and [`TableSchema::validate`].
    pub fn to_new_table(
        &self,
        default_database: &str,
    ) -> Result<(NewTable, Vec<Notice>), SqlError> {
        validate_name("table", &self.table.name)?;
        if let Some(like) = self.likes.first() {
            return Err(SqlError::unsupported(format!("LIKE here (\"{}\")", like.table.name)));
        }
        let schema = self.schema()?;
        let mut notices = self.notices.clone();
        let written_notices = notices.len();
        let division = Division {
            partitioning: &self.partitioning,
            cuts: self.cuts.as_deref(),
            uniform: self.uniform,
        };
        let placement = match schema.is_keyless() {
            true => division.by_rows(&schema)?,
            false => division.placement(&schema, &mut notices)?,
        };
        check_placement(&schema, &placement)
            .map_err(|error| SqlError::new(INVALID_TABLE, error.to_string()))?;
        if notices.len() == written_notices {
            notices.extend(tail::notice(&self.table.name, &schema, &placement));
        }
        for column in &schema.columns {
            let kinds = column.indexes.iter().map(|index| index.options.kind());
            notices.extend(kinds.filter_map(|kind| index_notice(&schema, column, kind)));
        }
        let cuts = division.cuts(&schema, &placement)?;
        let table = NewTable {
            database: self.table.database_or(default_database).to_owned(),
            name: self.table.name.clone(),
            schema,
            placement,
            cuts,
            owner: BOOTSTRAP_ROLE,
            copy_of: None,
            rekeys: false,
            sequences: self.sequences()?,
        };
        Ok((table, notices))
    }

    /// The sequences of columns that count. Their names are proposals: see [`CreateTable::to_new_table`].
    fn sequences(&self) -> Result<Vec<TableSequence>, SqlError> {
        let mut sequences = Vec::new();
        for (position, column) in self.columns.iter().enumerate() {
            let Some(counter) = &column.counter else { continue };
            sequences.push(TableSequence {
                name: self.sequence_name(column),
                column: column_id(position)?,
                identity: counter.identity,
                options: counter.options(column.column_type)?,
            });
        }
        Ok(sequences)
    }

    fn sequence_name(&self, column: &ColumnDefinition) -> String {
        let custom_name = column.counter.as_ref().and_then(|counter| counter.clauses.name.as_ref());
        let default_name = || format!("{}_{}_seq", self.table.name, column.name);
        custom_name.map_or_else(default_name, |name| name.name.clone())
    }

    fn schema(&self) -> Result<TableSchema, SqlError> {
        // Names are unique, and generated columns depend on stored ones.
        let mut names = BTreeSet::new();
        for column in &self.columns {
            if !names.insert(&column.name) {
                return Err(SqlError::new(
                    DUPLICATE_COLUMN,
                    format!("column \"{}\" specified more than once", column.name),
                ));
            }
            if column.name == ROW_COLUMN {
                let message = format!("column \"{ROW_COLUMN}\" starts with two underscores");
                return Err(SqlError::new(INVALID_TABLE, message)
                    .with_detail("such names are for internal columns"));
            }
            check_generated(column, &self.columns)?;
        }
        // The key decides the semantic of each column.
        let time_index = self.time_index()?;
        let key = self.key(time_index)?;
        // Names that are made for indexes differ from those that are given.
        let mut index_names = IndexNames::none(&self.table.name);
        let declared = self.columns.iter().flat_map(|column| &column.indexes);
        for name in declared.filter_map(|(name, _)| name.as_ref()) {
            index_names.reserve(name)?;
        }
        let columns = self.columns.iter().enumerate().map(|(position, column)| {
            let is_time_index = Some(position) == time_index;
            let semantic = match (is_time_index, key.contains(&position)) {
                (true, _) => Semantic::TimeIndex,
                (false, true) => Semantic::Tag,
                (false, false) => Semantic::Field,
            };
            let ColumnDefinition { name, column_type, indexes, .. } = column;
            Ok(Column {
                id: column_id(position)?,
                name: column.name.clone(),
                storage_name: column.name.clone(),
                column_type: column.column_type,
                nullable: !is_time_index && column.nullable.unwrap_or(column.counter.is_none()),
                semantic,
                default: match &column.counter {
                    Some(_) => Some(sequence_default(&TableName::bare(self.sequence_name(column)))),
                    None => column.default.clone(),
                },
                generated: column.generated.clone(),
                missing: None,
                length: column.length,
                json: column.json,
                indexes: index_names.of_column(name, *column_type, indexes)?,
                comment: column.comment.clone(),
            })
        });
        let mut checks = Vec::with_capacity(self.checks.len());
        for definition in &self.checks {
            check_columns(definition, &self.columns)?;
            checks.push(named_check(&self.table.name, definition, &checks)?);
        }
        // Columns are numbered from 0; later columns continue from `next_column`.
        let mut schema = TableSchema {
            version: SchemaVersion(1),
            columns: columns.collect::<Result<_, SqlError>>()?,
            key: key.iter().map(|position| column_id(*position)).collect::<Result<_, _>>()?,
            options: self.options.clone(),
            next_column: column_id(self.columns.len())?,
            schema_on_write: self.schema_on_write,
            checks,
            view: None,
        };
        // Equal rows of a table without a key are kept, and told apart by a column of their own.
        if schema.key.is_empty() && !schema.options.append_mode {
            let row = Column::of_rows(schema.next_column);
            schema.key.push(row.id);
            schema.columns.push(row);
            schema.next_column = column_id(self.columns.len() + 1)?;
        }
        schema.validate().map_err(|error| SqlError::new(INVALID_TABLE, error.to_string()))?;
        Ok(schema)
    }

    fn position(&self, name: &str, clause: &str) -> Result<usize, SqlError> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            SqlError::new(
                UNDEFINED_COLUMN,
                format!("column \"{name}\" named in {clause} does not exist"),
            )
        })
    }

    fn time_index(&self) -> Result<Option<usize>, SqlError> {
        let Some(name) = &self.time_index else { return Ok(None) };
        let position = self.position(name, "TIME INDEX")?;
        let column = &self.columns[position];
        if !matches!(column.column_type, ColumnType::Timestamp(..)) {
            return Err(SqlError::new(
                INVALID_TABLE,
                format!(
                    "TIME INDEX \"{name}\" must be a TIMESTAMP, not {}",
                    column.column_type.sql()
                ),
            ));
        }
        if column.nullable == Some(true) {
            return Err(SqlError::new(
                INVALID_TABLE,
                format!("TIME INDEX \"{name}\" must be NOT NULL"),
            ));
        }
        if column.generated.is_some() {
            return Err(SqlError::unsupported(format!("a generated TIME INDEX (\"{name}\")")));
        }
        Ok(Some(position))
    }

    /// Positions of the key's columns, in key order.
    fn key(&self, time_index: Option<usize>) -> Result<Vec<usize>, SqlError> {
        let mut key = Vec::new();
        for name in self.primary_key.iter().flatten() {
            let position = self.position(name, "PRIMARY KEY")?;
            if key.contains(&position) {
                return Err(SqlError::new(
                    DUPLICATE_COLUMN,
                    format!("column \"{name}\" appears twice in PRIMARY KEY"),
                ));
            }
            key.push(position);
        }
        key.extend(time_index.filter(|position| !key.contains(position)));
        Ok(key)
    }
}

/// Gives the sequence of a new table's column another name, and the column its default.
pub fn rename_sequence(table: &mut NewTable, position: usize, name: &str) {
    let Some(sequence) = table.sequences.get_mut(position) else { return };
    name.clone_into(&mut sequence.name);
    let columns = &mut table.schema.columns;
    if let Some(column) = columns.iter_mut().find(|column| column.id == sequence.column) {
        column.default = Some(sequence_default(&TableName::bare(name)));
    }
}

/// The clauses that divide a new table into partitions.
pub(super) struct Division<'a> {
    /// The placement of rows.
    pub(super) partitioning: &'a Partitioning,
    /// The initial boundaries; `None`: those of the partitioning.
    pub(super) cuts: Option<&'a [CutTuple]>,
    /// Number of equal parts of the first key column's values.
    pub(super) uniform: Option<u16>,
}

impl Division<'_> {
    /// The placement of rows with a hidden key: by its hash, since new keys follow each other.
    fn by_rows(&self, schema: &TableSchema) -> Result<Placement, SqlError> {
        let is_plain =
            matches!(self.partitioning, Partitioning::Range { columns } if columns.is_empty());
        if !is_plain || self.cuts.is_some() || self.uniform.is_some() {
            return Err(SqlError::new(
                INVALID_TABLE,
                "a table without a key cannot be partitioned by its columns",
            )
            .with_detail("its rows are placed by the hash of a hidden key")
            .with_hint("name a PRIMARY KEY, or keep every row WITH ('append_mode' = 'true')"));
        }
        Ok(Placement::Hash { columns: schema.key.clone() })
    }

    /// The placement in a table with this schema, with warnings for the client.
    ///
    /// # Errors
    /// When a clause does not fit the schema.
    pub(super) fn placement(
        &self,
        schema: &TableSchema,
        notices: &mut Vec<Notice>,
    ) -> Result<Placement, SqlError> {
        // Partition columns are unique.
        let names = match self.partitioning {
            Partitioning::Range { columns }
            | Partitioning::Hash { columns, .. }
            | Partitioning::Rules { columns, .. } => columns,
        };
        let mut columns = Vec::new();
        for name in names {
            let column = schema.column(name).ok_or_else(|| {
                SqlError::new(
                    UNDEFINED_COLUMN,
                    format!("column \"{name}\" named in the PARTITION clause does not exist"),
                )
            })?;
            if columns.contains(&column.id) {
                return Err(SqlError::new(
                    DUPLICATE_COLUMN,
                    format!("partition column \"{name}\" specified more than once"),
                ));
            }
            // A hash or a rule must depend on the key alone: versions of one row stay in one
            // partition.
            let range = matches!(self.partitioning, Partitioning::Range { .. });
            if !range && !schema.options.append_mode && !schema.is_key(column.id) {
                return Err(SqlError::new(
                    INVALID_TABLE,
                    format!(
                        "partition column \"{name}\" is not part of the key, so two versions of one \
                         row could be in two partitions"
                    ),
                )
                .with_hint(format!(
                    "add \"{name}\" to PRIMARY KEY, or keep every row WITH ('append_mode' = 'true')"
                )));
            }
            columns.push(column.id);
        }
        // Rules must cover the key space without overlap.
        self.warn_of_time(schema, &columns, notices);
        Ok(match self.partitioning {
            Partitioning::Range { .. } => {
                self.check_range(schema, &columns)?;
                Placement::Range
            }
            Partitioning::Hash { .. } => Placement::Hash { columns },
            Partitioning::Rules { columns: names, rules } => {
                let rules = rules
                    .iter()
                    .map(|expression| rule(expression, schema, names))
                    .collect::<Result<Vec<_>, _>>()?;
                check_partitions(rules.len())?;
                check_cover(&rules, schema)
                    .map_err(|error| SqlError::new(INVALID_TABLE, error.to_string()))?;
                Placement::Rules { columns, rules }
            }
        })
    }

    /// PARTITION BY RANGE may repeat the first columns of the key, but not contradict it.
    fn check_range(&self, schema: &TableSchema, columns: &[ColumnId]) -> Result<(), SqlError> {
        if schema.key.starts_with(columns) {
            return Ok(());
        }
        let key: Vec<_> = schema.key_columns().map(|column| column.name.as_str()).collect();
        Err(SqlError::new(
            INVALID_TABLE,
            format!(
                "PARTITION BY RANGE must name the first columns of the key, which is ({})",
                key.join(", ")
            ),
        ))
    }

    /// Warns of partitioning by time: all new rows go to one partition, or each series to all of them.
    fn warn_of_time(&self, schema: &TableSchema, columns: &[ColumnId], notices: &mut Vec<Notice>) {
        let Some(time) = schema.time_index() else { return };
        let effect = match self.partitioning {
            Partitioning::Range { .. } if columns.first() == Some(&time.id) => {
                "all new rows go to the last partition"
            }
            Partitioning::Rules { .. } if columns.contains(&time.id) => {
                "new rows go to the partition of the newest times"
            }
            Partitioning::Hash { .. } if columns.contains(&time.id) => {
                "the rows of one key prefix are scattered over all partitions"
            }
            _ => return,
        };
        let warning = Notice::warning(format!(
            "the table is partitioned by its time index \"{}\": {effect}; files are kept by time \
             anyway, so time filters need no partitions",
            time.name
        ));
        let cures = if matches!(self.partitioning, Partitioning::Range { .. }) {
            tail::cures(schema)
        } else {
            None
        };
        notices.push(match cures {
            Some(cures) => warning.with_hint(cures),
            None => warning,
        });
    }

    /// The boundaries of the first partitions, in ascending order.
    ///
    /// # Errors
    /// When they do not fit the key, or do not ascend.
    pub(super) fn cuts(
        &self,
        schema: &TableSchema,
        placement: &Placement,
    ) -> Result<Vec<Bound>, SqlError> {
        let Some(cuts) = self.cuts else {
            return Ok(match (self.partitioning, placement) {
                (Partitioning::Hash { partitions, .. }, _) => {
                    check_partitions(usize::from(*partitions))?;
                    hash_cuts(*partitions)
                }
                (_, Placement::Rules { rules, .. }) => rule_cuts(rules),
                _ => match self.uniform {
                    Some(partitions) => {
                        check_partitions(usize::from(partitions))?;
                        uniform_cuts(partitions, schema, placement)?
                    }
                    None => Vec::new(),
                },
            });
        };
        check_partitions(cuts.len() + 1)?;
        let key: Vec<_> = schema.key_columns().collect();
        let cuts = cuts
            .iter()
            .map(|tuple| bound(tuple, &key, placement))
            .collect::<Result<Vec<_>, _>>()?;
        let codec = KeyCodec::new(schema, placement)?;
        // Checks that the bounds ascend, and casts their values to the key's types.
        let ranges = ranges_between(&codec, &cuts)
            .map_err(|error| SqlError::new(INVALID_TABLE, error.to_string()))?;
        Ok(ranges.into_iter().skip(1).map(|range| range.start).collect())
    }
}

fn column_id(position: usize) -> Result<ColumnId, SqlError> {
    u32::try_from(position)
        .map(ColumnId)
        .map_err(|_| SqlError::new("54011", "a table cannot have that many columns"))
}

/// Checks that a table may be created with this number of partitions.
pub(super) fn check_partitions(number: usize) -> Result<(), SqlError> {
    if number > TABLE_PARTITIONS_MAX {
        return Err(SqlError::new(
            "54000",
            format!(
                "a table may have at most {TABLE_PARTITIONS_MAX} partitions at creation, not {number}"
            ),
        ));
    }
    Ok(())
}

/// The bound for a tuple of literals.
pub(super) fn bound(
    cut: &CutTuple,
    key: &[&Column],
    placement: &Placement,
) -> Result<Bound, SqlError> {
    // The placement comes first, unless keys begin with the columns themselves.
    let tuple = cut.values.as_slice();
    let (placement, tuple) = match placement {
        Placement::Range => (None, tuple),
        Placement::Hash { .. } | Placement::Rules { .. } => match tuple.split_first() {
            Some((first, rest)) => {
                let Value::UInt(number) = typed(first, "placement", ColumnType::UInt16)? else {
                    return Err(SqlError::new(INVALID_TABLE, "a placement must not be NULL"));
                };
                let number = u16::try_from(number).map_err(|_| {
                    SqlError::new(INVALID_TABLE, "a placement must be less than 65536")
                })?;
                (Some(number), rest)
            }
            None => (None, tuple),
        },
    };
    // The other values are those of the first key columns.
    if tuple.len() > key.len() {
        return Err(SqlError::new(
            INVALID_TABLE,
            format!(
                "a partition boundary of {} values is longer than the key of {}",
                tuple.len(),
                key.len()
            ),
        ));
    }
    let mut values = tuple
        .iter()
        .zip(key)
        .map(|(value, column)| typed(value, &column.name, column.column_type))
        .collect::<Result<Vec<_>, _>>()?;
    if cut.is_after {
        let last = values.pop();
        let (last, column) = last.zip(key.get(values.len())).ok_or_else(|| {
            SqlError::new(INVALID_TABLE, "AFTER requires a value of the first key column")
        })?;
        values.push(directly_above(last, column)?);
    }
    Ok(Bound { placement, key: values })
}
