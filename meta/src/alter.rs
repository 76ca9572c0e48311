//! Computes a table's schema after a change. Pure; the same verdict on every replica.
//!
//! Invariants:
//! - rows that are stored stay readable: a type becomes only one of which all its values are values; in older rows a new
//!   column is NULL or has a value, and a new tag is NULL in the key;
//! - a storage name that any column of the table ever had is never given to another column;
//! - a column that decides where a row is placed (key, placement) is never dropped.

use std::collections::BTreeSet;

use partita_proto::error::Error;
use partita_proto::id::ColumnId;
use partita_proto::index::{Index, IndexKind};
use partita_proto::placement::Placement;
use partita_proto::retype::check_type_change;
use partita_proto::schema::{
    Column, ColumnType, MergeMode, Semantic, TableOptions, TableSchema, TextLength, validate_name,
};
use partita_proto::service::TableChange;
use partita_proto::stored_view::ViewDefinition;
use partita_proto::wide::FamilyChange;

use crate::catalog::TableRecord;
use crate::create::check_options;
use crate::expression::mentions;

/// SQLSTATE of a definition that does not fit what is there.
const INVALID_TABLE_DEFINITION: &str = "42P16";

/// SQLSTATE of a table of another kind.
const WRONG_OBJECT_TYPE: &str = "42809";

/// A table's columns after a change.
#[derive(Debug)]
pub(crate) struct Altered {
    /// One version above the table's present schema.
    pub(crate) schema: TableSchema,
    /// Storage names of all dropped columns, including those that this change drops.
    pub(crate) dropped_names: BTreeSet<String>,
}

/// The schema after a change, or `None` if the schema stays the same. A change of the table's name or placement
/// does not change its schema.
///
/// # Errors
/// [`Error::InvalidInput`], [`Error::NotFound`], [`Error::AlreadyExists`] or [`Error::Unsupported`],
/// naming the column.
pub(crate) fn altered(table: &TableRecord, change: &TableChange) -> Result<Option<Altered>, Error> {
    let mut schema = TableSchema::clone(&table.schema);
    let mut dropped_names = table.dropped_names.clone();
    let changed = match change {
        TableChange::AddColumns { columns, if_not_exists } => {
            add_columns(&mut schema, &dropped_names, columns, *if_not_exists)?
        }
        TableChange::DropColumn(name) => {
            dropped_names.insert(drop_column(&mut schema, &table.placement, name)?);
            true
        }
        TableChange::RenameColumn { from: old_name, to: new_name } => {
            rename_column(&mut schema, old_name, new_name)?
        }
        TableChange::SetType { column, column_type, length } => {
            set_type(&mut schema, &table.placement, column, (*column_type, *length))?
        }
        TableChange::DropNotNull(name) => drop_not_null(&mut schema, name)?,
        TableChange::SetDefault { column, default } => {
            set_default(&mut schema, column, default.as_deref())?
        }
        TableChange::SetIndex { column, index, if_not_exists } => {
            set_index(&mut schema, column, index, *if_not_exists)?
        }
        TableChange::DropIndex { column, kind } => drop_index(&mut schema, column, *kind)?,
        TableChange::SetOptions(options) => set_options(&mut schema, options)?,
        TableChange::ChangeOptions { base, next } => {
            let options = schema.options.merged(base, next);
            set_options(&mut schema, &options)?
        }
        TableChange::ChangeFamilies(changes) => change_families(&mut schema, changes)?,
        TableChange::SetView { columns, definition } => set_view(&mut schema, columns, definition)?,
        TableChange::MoveColumn { column, after: predecessor } => {
            move_column(&mut schema, column, predecessor.as_deref())?
        }
        TableChange::AddCheck(check) => {
            if schema.checks.iter().any(|present| present.name == check.name) {
                let name = check.name.clone();
                return Err(Error::AlreadyExists { kind: "constraint", name });
            }
            schema.checks.push(check.clone());
            true
        }
        TableChange::DropCheck(name) => drop_check(&mut schema, name)?,
        TableChange::SetComment { column, comment } => {
            let position = position(&schema, column)?;
            let previous = &mut schema.columns[position].comment;
            std::mem::replace(previous, comment.clone()) != *comment
        }
        TableChange::Rename(_) | TableChange::TakePlace(_) | TableChange::Repartition { .. } => {
            false
        }
    };
    if !changed {
        return Ok(None);
    }
    schema.version = schema.version.next();
    schema.validate()?;
    Ok(Some(Altered { schema, dropped_names }))
}

fn add_columns(
    schema: &mut TableSchema,
    dropped_names: &BTreeSet<String>,
    columns: &[Column],
    if_not_exists: bool,
) -> Result<bool, Error> {
    let mut changed = false;
    for column in columns {
        match schema.column(&column.name) {
            Some(existing) if if_not_exists => same_column(existing, column)?,
            Some(_) => {
                return Err(Error::AlreadyExists { kind: "column", name: column.name.clone() });
            }
            None => {
                add_column(schema, dropped_names, column)?;
                changed = true;
            }
        }
    }
    Ok(changed)
}

/// Checks that an existing column has the type and the semantic of the one to be added.
fn same_column(existing: &Column, column: &Column) -> Result<(), Error> {
    if existing.column_type == column.column_type && existing.semantic == column.semantic {
        return Ok(());
    }
    Err(Error::InvalidInput(format!(
        "invalid column type for column '{}', expected {} {}, got {} {}",
        existing.name,
        existing.column_type.sql(),
        semantic_name(existing.semantic),
        column.column_type.sql(),
        semantic_name(column.semantic),
    )))
}

fn semantic_name(semantic: Semantic) -> &'static str {
    match semantic {
        Semantic::Tag => "tag",
        Semantic::Field => "field",
        Semantic::TimeIndex => "time index",
    }
}

fn add_column(
    schema: &mut TableSchema,
    dropped_names: &BTreeSet<String>,
    column: &Column,
) -> Result<(), Error> {
    let invalid = |why: &str| Err(Error::InvalidInput(format!("column \"{}\" {why}", column.name)));
    if column.generated.is_some() {
        return Err(Error::Unsupported(format!(
            "adding the generated column \"{}\" to an existing table",
            column.name
        )));
    }
    // Rows that are stored have no value of the column, so it needs one for them; a tag is NULL in their keys.
    match column.semantic {
        Semantic::TimeIndex => {
            return invalid("cannot be the TIME INDEX of a table that exists");
        }
        Semantic::Tag if !column.nullable => {
            return invalid("must be nullable, because it is NULL in the key of rows that exist");
        }
        Semantic::Tag if column.missing.is_some() => {
            return invalid("cannot have a value in the key of rows that exist");
        }
        Semantic::Field if !column.nullable && column.missing.is_none() => {
            return invalid("must be nullable or have a default, because the table exists");
        }
        Semantic::Tag | Semantic::Field => {}
    }
    if let Some(value) = &column.missing {
        let typed = value.clone().coerce(column.column_type)?;
        if typed.is_null() {
            return invalid("cannot have NULL as the value of rows that exist");
        }
    }
    // The column gets the next id, and a storage name that the table has never used.
    let id = schema.next_column;
    schema.next_column =
        ColumnId(id.0.checked_add(1).ok_or_else(|| {
            Error::InvalidInput("the table has used up all column ids".to_owned())
        })?);
    let storage_name = storage_name(schema, dropped_names, &column.name, id);
    if column.semantic == Semantic::Tag {
        schema.key.insert(place_in_key(schema), id);
    }
    schema.columns.push(Column { id, storage_name, ..column.clone() });
    Ok(())
}

/// Position of a new tag in the key: before the time index if that is last, so that the rows of one series stay
/// together, else at the end.
fn place_in_key(schema: &TableSchema) -> usize {
    let last_is_time =
        schema.key_columns().last().is_some_and(|column| column.semantic == Semantic::TimeIndex);
    schema.key.len() - usize::from(last_is_time)
}

/// The name itself, unless a present or dropped column of the table has stored values under it.
fn storage_name(
    schema: &TableSchema,
    dropped_names: &BTreeSet<String>,
    name: &str,
    id: ColumnId,
) -> String {
    let mut candidate = name.to_owned();
    // A column may really be called "c#7": then one more suffix, until it is free.
    while dropped_names.contains(&candidate)
        || schema.columns.iter().any(|column| column.storage_name == candidate)
    {
        candidate = format!("{candidate}#{id}");
    }
    candidate
}

/// Removes a column and returns its storage name.
fn drop_column(
    schema: &mut TableSchema,
    placement: &Placement,
    name: &str,
) -> Result<String, Error> {
    let index = position(schema, name)?;
    let column = &schema.columns[index];
    if column.semantic != Semantic::Field || schema.is_key(column.id) {
        return Err(Error::InvalidInput(format!(
            "column \"{name}\" is part of the key and cannot be dropped"
        )));
    }
    let placed_by = match placement {
        Placement::Range => false,
        Placement::Hash { columns } | Placement::Rules { columns, .. } => {
            columns.contains(&column.id)
        }
    };
    if placed_by {
        return Err(Error::InvalidInput(format!(
            "column \"{name}\" decides in which partition a row is and cannot be dropped"
        )));
    }
    refuse_if_used(schema, name, "dropped")?;
    Ok(schema.columns.remove(index).storage_name)
}

fn rename_column(schema: &mut TableSchema, old_name: &str, new_name: &str) -> Result<bool, Error> {
    let index = position(schema, old_name)?;
    if old_name == new_name {
        return Ok(false);
    }
    validate_name("column", new_name)?;
    if schema.column(new_name).is_some() {
        return Err(Error::AlreadyExists { kind: "column", name: new_name.to_owned() });
    }
    refuse_if_used(schema, old_name, "renamed")?;
    new_name.clone_into(&mut schema.columns[index].name);
    Ok(true)
}

fn drop_check(schema: &mut TableSchema, name: &str) -> Result<bool, Error> {
    let position = schema.checks.iter().position(|check| check.name == name);
    let position =
        position.ok_or_else(|| Error::NotFound { kind: "constraint", name: name.to_owned() })?;
    schema.checks.remove(position);
    Ok(true)
}

/// Refuses a change of a column that a generated column or a constraint needs: their expressions are SQL texts, which
/// would name a column that no longer exists.
fn refuse_if_used(schema: &TableSchema, name: &str, change: &str) -> Result<(), Error> {
    if let Some(check) = schema.checks.iter().find(|check| mentions(&check.expression, name)) {
        return Err(Error::InvalidInput(format!(
            "column \"{name}\" cannot be {change}, because constraint \"{}\" uses it",
            check.name
        )));
    }
    let user = schema.columns.iter().find(|column| {
        column.name != name
            && column.generated.as_deref().is_some_and(|expression| mentions(expression, name))
    });
    match user {
        None => Ok(()),
        Some(user) => Err(Error::InvalidInput(format!(
            "column \"{name}\" cannot be {change}, because column \"{}\" is generated from it",
            user.name
        ))),
    }
}

fn set_type(
    schema: &mut TableSchema,
    placement: &Placement,
    name: &str,
    (column_type, length): (ColumnType, Option<TextLength>),
) -> Result<bool, Error> {
    let index = position(schema, name)?;
    let column = &schema.columns[index];
    if (column.column_type, column.length) == (column_type, length) {
        return Ok(false);
    }
    check_type_change(schema, placement, column, (column_type, length))?;
    if column.column_type != column_type {
        refuse_if_used(schema, name, "given another type")?;
    }
    let column = &mut schema.columns[index];
    (column.column_type, column.length) = (column_type, length);
    Ok(true)
}

fn drop_not_null(schema: &mut TableSchema, name: &str) -> Result<bool, Error> {
    let index = position(schema, name)?;
    if schema.is_key(schema.columns[index].id) {
        return Err(Error::Query {
            sqlstate: INVALID_TABLE_DEFINITION.to_owned(),
            message: format!("column \"{name}\" is in a primary key"),
            hint: None,
        });
    }
    let was_nullable = std::mem::replace(&mut schema.columns[index].nullable, true);
    Ok(!was_nullable)
}

fn set_default(schema: &mut TableSchema, name: &str, default: Option<&str>) -> Result<bool, Error> {
    let index = position(schema, name)?;
    let column = &mut schema.columns[index];
    if column.generated.is_some() {
        return Err(Error::InvalidInput(format!(
            "column \"{name}\" is generated and takes no default"
        )));
    }
    if column.default.as_deref() == default {
        return Ok(false);
    }
    column.default = default.map(str::to_owned);
    Ok(true)
}

fn change_families(schema: &mut TableSchema, changes: &[FamilyChange]) -> Result<bool, Error> {
    let Some(wide) = &schema.options.wide else {
        let message = "only wide tables have column families".to_owned();
        return Err(Error::Query { sqlstate: WRONG_OBJECT_TYPE.to_owned(), message, hint: None });
    };
    let wide = Some(wide.changed(changes, schema.version.next())?);
    let options = TableOptions { wide, ..schema.options.clone() };
    store_options(schema, options)
}

fn set_options(schema: &mut TableSchema, options: &TableOptions) -> Result<bool, Error> {
    let mut options = options.clone();
    if let (Some(present), Some(wide)) = (&schema.options.wide, &mut options.wide) {
        // The sender may not know yet which families were dropped.
        *wide = present.replaced(wide, schema.version.next())?;
    }
    store_options(schema, options)
}

fn store_options(schema: &mut TableSchema, options: TableOptions) -> Result<bool, Error> {
    check_options(&options, &schema.key)?;
    if schema.options == options {
        return Ok(false);
    }
    if schema.options.append_mode != options.append_mode {
        // Rows are stored differently: an append-mode table may hold several of one key, the other
        // kind overwritten versions and tombstones.
        return Err(Error::InvalidInput(
            "'append_mode' cannot be changed after CREATE TABLE".to_owned(),
        ));
    }
    if schema.options.wide.is_some() != options.wide.is_some() {
        // Keys of wide tables are in another order.
        return Err(Error::InvalidInput("'kind' cannot be changed after CREATE TABLE".to_owned()));
    }
    if options.append_mode && options.merge_mode != MergeMode::LastRow {
        return Err(Error::InvalidInput(
            "'merge_mode' cannot be set on a table with 'append_mode' = 'true'".to_owned(),
        ));
    }
    schema.options = options;
    Ok(true)
}

/// Moves a column behind another one, or to the front. Rows are stored by name, so none changes.
fn move_column(
    schema: &mut TableSchema,
    name: &str,
    predecessor: Option<&str>,
) -> Result<bool, Error> {
    let present = position(schema, name)?;
    if predecessor == Some(name) {
        return Err(Error::InvalidInput(format!("column \"{name}\" cannot stand after itself")));
    }
    let previous = predecessor.map(|predecessor| position(schema, predecessor)).transpose()?;
    // The others move up by one when the column is taken out.
    let target = previous.map_or(0, |previous| previous + usize::from(previous < present));
    if target == present {
        return Ok(false);
    }
    let column = schema.columns.remove(present);
    schema.columns.insert(target, column);
    Ok(true)
}

/// Replaces the query of a view. As in PostgreSQL, its columns keep their names, types and order, because others may
/// use them; more may follow.
fn set_view(
    schema: &mut TableSchema,
    columns: &[Column],
    definition: &ViewDefinition,
) -> Result<bool, Error> {
    let invalid = |message: String| {
        Err(Error::Query { sqlstate: INVALID_TABLE_DEFINITION.to_owned(), message, hint: None })
    };
    if columns.len() < schema.columns.len() {
        return invalid("cannot drop columns from view".to_owned());
    }
    let mut replaced = Vec::with_capacity(columns.len());
    for (position, column) in columns.iter().enumerate() {
        let Some(present) = schema.columns.get(position) else {
            let id = schema.next_column;
            schema.next_column = ColumnId(id.0.saturating_add(1));
            replaced.push(Column { id, ..column.clone() });
            continue;
        };
        if present.name != column.name {
            return invalid(format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                present.name, column.name
            ));
        }
        if (present.column_type, present.length, present.json)
            != (column.column_type, column.length, column.json)
        {
            return invalid(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                present.name,
                present.type_sql(),
                column.type_sql()
            ));
        }
        replaced.push(Column {
            id: present.id,
            comment: present.comment.clone(),
            ..column.clone()
        });
    }
    let is_same = schema.columns == replaced && schema.view.as_ref() == Some(definition);
    schema.columns = replaced;
    schema.view = Some(definition.clone());
    Ok(!is_same)
}

/// Adds an index to a column, or replaces the column's index of that kind.
fn set_index(
    schema: &mut TableSchema,
    column: &str,
    index: &Index,
    if_not_exists: bool,
) -> Result<bool, Error> {
    let position = position(schema, column)?;
    let kind = index.options.kind();
    let same_kind = |present: &Index| present.options.kind() == kind;
    let present = schema.columns[position].indexes.iter().position(same_kind);
    if present.is_some_and(|slot| if_not_exists || schema.columns[position].indexes[slot] == *index)
    {
        return Ok(false);
    }
    let is_taken = schema.columns.iter().any(|owner| {
        let is_replaced = |existing: &Index| owner.name == column && same_kind(existing);
        owner.indexes.iter().any(|existing| existing.name == index.name && !is_replaced(existing))
    });
    if is_taken && if_not_exists {
        return Ok(false);
    }
    if is_taken {
        return Err(Error::AlreadyExists { kind: "index", name: index.name.clone() });
    }
    let indexes = &mut schema.columns[position].indexes;
    match present {
        Some(slot) => indexes[slot] = index.clone(),
        None => indexes.push(index.clone()),
    }
    Ok(true)
}

fn drop_index(schema: &mut TableSchema, column: &str, kind: IndexKind) -> Result<bool, Error> {
    let position = position(schema, column)?;
    let indexes = &mut schema.columns[position].indexes;
    let slot = indexes.iter().position(|index| index.options.kind() == kind).ok_or_else(|| {
        Error::NotFound { kind: "index", name: format!("{column} ({})", kind.method()) }
    })?;
    indexes.remove(slot);
    Ok(true)
}

/// Position of a column that clients see.
fn position(schema: &TableSchema, name: &str) -> Result<usize, Error> {
    let position = schema.index_of(name).filter(|position| !schema.columns[*position].is_hidden());
    position.ok_or_else(|| Error::NotFound { kind: "column", name: name.to_owned() })
}
