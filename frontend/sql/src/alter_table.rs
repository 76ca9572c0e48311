//! ALTER TABLE: parsing it, and the changes that are sent to meta.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::catalog::Table;
use partita_proto::id::ColumnId;
use partita_proto::index::{Index, IndexKind};
use partita_proto::schema::{Check, Column, Semantic, TableOptions, TableSchema};
use partita_proto::service::TableChange;

use super::check_constraint::{named_check, using};
use super::column::{columns_of, default_text};
use super::index_statement::{IndexNames, index_notice, of_kind};
use super::options::{OptionPair, OptionValue, foreign_notice};
use super::statement::{
    AlterChange, AlterTable, ColumnDefinition, ColumnPlace, NewPlacement, TableName, TableOption,
};
use super::tokens::Tokens;
use super::type_change::{TYPE_HINT, drop_not_null};
use crate::error::{SqlError, UNDEFINED_OBJECT};
use crate::notice::Notice;

impl Tokens<'_> {
    /// Takes what follows ALTER TABLE.
    pub(super) fn alter_table(&mut self) -> Result<AlterTable, SqlError> {
        let if_exists = self.if_exists();
        self.take(&["only"]);
        let table = self.table_name()?;
        let mut notices = Vec::new();
        let mut changes = Vec::new();
        loop {
            self.alter_change(&mut changes, &mut notices)?;
            if !self.take_mark(&Token::Comma) || self.at_end() {
                break;
            }
        }
        self.expect_end()?;
        Ok(AlterTable { table, is_view: false, if_exists, changes, notices })
    }

    fn alter_change(
        &mut self,
        changes: &mut Vec<AlterChange>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), SqlError> {
        if self.take(&["add"]) {
            return self.add_columns(changes, notices);
        }
        if self.at("partition") && (self.at_nth(1, "by") || self.at_nth(1, "on")) {
            changes.push(AlterChange::Repartition(self.new_placement()?));
            return Ok(());
        }
        if self.take(&["drop"]) {
            self.take(&["column"]);
            if self.at("constraint") && !matches!(self.peek_nth(1).token, Token::EOF | Token::Comma)
            {
                self.next();
                let if_exists = self.if_exists();
                let name = self.name("a constraint's name")?;
                let _ = self.take(&["cascade"]) || self.take(&["restrict"]);
                changes.push(AlterChange::DropConstraint { name, if_exists });
                return Ok(());
            }
            let if_exists = self.if_exists();
            for kind in ["primary", "index"] {
                if self.at(kind) && !matches!(self.peek_nth(1).token, Token::EOF | Token::Comma) {
                    return Err(self.foreign_part("DROP", kind));
                }
            }
            let name = self.name("a column name")?;
            let _ = self.take(&["cascade"]) || self.take(&["restrict"]);
            changes.push(AlterChange::DropColumn { name, if_exists });
        } else if self.take(&["rename", "to"]) || self.take(&["rename", "as"]) {
            changes.push(AlterChange::Rename(self.name("a table name")?));
        } else if self.take(&["rename"]) {
            // RENAME t: GreptimeDB's form without TO.
            self.take(&["column"]);
            let old_name = self.name("a name")?;
            if self.take(&["to"]) {
                let new_name = self.name("a column name")?;
                changes.push(AlterChange::RenameColumn { from: old_name, to: new_name });
            } else {
                changes.push(AlterChange::Rename(old_name));
            }
        } else if self.take(&["alter"]) {
            self.take(&["column"]);
            let column = self.name("a column name")?;
            self.alter_column(column, changes, notices)?;
        } else if self.take(&["modify"]) {
            self.take(&["column"]);
            let column = self.name("a column name")?;
            let is_word = matches!(self.peek().token, Token::Word(_));
            if is_word && !["set", "unset", "drop"].iter().any(|word| self.at(word)) {
                let change = self.modified_type(column, notices)?;
                changes.push(AlterChange::SetType(Box::new(change)));
            } else {
                self.alter_column(column, changes, notices)?;
            }
        } else if self.take(&["set"]) {
            self.set_options(changes, notices)?;
        } else if self.take(&["unset"]) || self.take(&["reset"]) {
            let keys = if matches!(self.peek().token, Token::LParen) {
                self.list(|tokens| Ok((tokens.position(), tokens.option_key()?)))?
            } else {
                vec![(self.position(), self.option_key()?)]
            };
            for (position, key) in keys {
                changes.push(AlterChange::SetOption(unset(key, position)?));
            }
        } else {
            let keyword = self.peek().token.to_string().to_ascii_uppercase();
            let unsupported = [
                "OWNER", "ENABLE", "DISABLE", "CLUSTER", "INHERIT", "VALIDATE", "ATTACH", "DETACH",
                "REPLICA",
            ];
            return Err(if ["PARTITION", "REPARTITION"].contains(&keyword.as_str()) {
                self.unsupported(format!("ALTER TABLE ... {keyword}")).with_hint(
                    "PARTITION BY HASH (columns) PARTITIONS n and PARTITION BY RANGE (columns) place new rows \
                     otherwise",
                )
            } else if ["SPLIT", "MERGE"].contains(&keyword.as_str()) {
                self.located(SqlError::syntax(format!(
                    "{keyword} must be the only action of its ALTER TABLE"
                )))
            } else if unsupported.contains(&keyword.as_str()) {
                self.unsupported(format!("ALTER TABLE ... {keyword}"))
            } else {
                self.unexpected("ADD, DROP, RENAME, ALTER, SET or UNSET")
            });
        }
        Ok(())
    }

    /// Takes what follows SET: options in parentheses, or one without.
    fn set_options(
        &mut self,
        changes: &mut Vec<AlterChange>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), SqlError> {
        let pairs = if matches!(self.peek().token, Token::LParen) {
            self.options()?
        } else {
            // GreptimeDB's form without parentheses: SET 'ttl'='1d'.
            let position = self.position();
            if matches!(self.peek().token, Token::Word(_)) && !self.at_option() {
                return Err(self.unsupported(format!("SET {}", self.peek().token)));
            }
            let key = self.option_key()?;
            self.expect_mark(&Token::Eq)?;
            vec![OptionPair { key, value: self.option_value()?, position }]
        };
        let (foreign, pairs): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(OptionPair::is_foreign);
        let foreign: Vec<String> = foreign.into_iter().map(|pair| pair.key).collect();
        notices.extend(foreign_notice(&foreign));
        for pair in &pairs {
            match pair.table_option()? {
                Some(option) => changes.push(AlterChange::SetOption(option)),
                None if pair.key == "hash_buckets" => {
                    let number = pair.number()?;
                    let partitions = u16::try_from(number).ok().filter(|number| *number > 0);
                    let partitions = partitions
                        .ok_or_else(|| pair.wrong("a number of buckets from 1 to 65535"))?;
                    let placement = NewPlacement::BySeries { partitions };
                    changes.push(AlterChange::Repartition(placement));
                }
                None => return Err(unalterable(pair)),
            }
        }
        Ok(())
    }

    fn at_option(&self) -> bool {
        matches!(self.peek_nth(1).token, Token::Eq | Token::Period)
    }

    /// Takes what follows ADD: one column, or several in parentheses.
    fn add_columns(
        &mut self,
        changes: &mut Vec<AlterChange>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), SqlError> {
        if self.at("check") && matches!(self.peek_nth(1).token, Token::LParen) {
            changes.push(AlterChange::AddCheck(self.check_constraint(None, None)?));
            return Ok(());
        }
        if self.at("constraint") && self.at_nth(2, "check") {
            self.next();
            let name = Some(self.name("a constraint's name")?);
            changes.push(AlterChange::AddCheck(self.check_constraint(name, None)?));
            return Ok(());
        }
        let is_named_key = self.at("constraint") && self.at_nth(2, "primary");
        if is_named_key || self.at("primary") {
            let name = match self.take(&["constraint"]) {
                true => Some(self.name("a constraint's name")?),
                false => None,
            };
            self.expect("primary")?;
            self.expect("key")?;
            let columns = self.list(|tokens| tokens.name("a column name"))?;
            changes.push(AlterChange::AddKey { name, columns });
            return Ok(());
        }
        for kind in ["constraint", "unique", "check", "foreign", "index"] {
            if self.at(kind) {
                return Err(self.foreign_part("ALTER TABLE ADD", kind));
            }
        }
        self.take(&["column"]);
        let columns = if matches!(self.peek().token, Token::LParen) {
            self.list(|tokens| tokens.add_column(notices))?
        } else {
            vec![self.add_column(notices)?]
        };
        changes.extend(columns);
        Ok(())
    }

    fn add_column(&mut self, notices: &mut Vec<Notice>) -> Result<AlterChange, SqlError> {
        let if_not_exists = self.if_not_exists();
        let position = self.position();
        let clause = self.column_clause(notices)?;
        let place = if self.take(&["first"]) {
            Some(ColumnPlace::First)
        } else if self.take(&["after"]) {
            Some(ColumnPlace::After(self.name("a column name")?))
        } else {
            None
        };
        let error = |error: SqlError| Err(error.with_position(position));
        let column = clause.definition;
        // Changes that would leave existing rows without a valid value are refused.
        if clause.time_index {
            return error(SqlError::unsupported("adding a TIME INDEX"));
        }
        if column.counter.is_some() {
            return error(
                SqlError::unsupported(format!("adding a counter (\"{}\")", column.name))
                    .with_detail("rows that exist would have no value in it"),
            );
        }
        if column.generated.is_some() {
            return error(
                SqlError::unsupported(format!("adding a generated column (\"{}\")", column.name))
                    .with_detail("rows that exist would have no value in it"),
            );
        }
        if column.nullable == Some(false) && clause.primary_key {
            return error(
                SqlError::unsupported(format!(
                    "adding a NOT NULL key column (\"{}\")",
                    column.name
                ))
                .with_detail("the keys of existing rows have NULL in it")
                .with_hint("add it without NOT NULL"),
            );
        }
        if column.nullable == Some(false) && column.default.is_none() {
            return error(
                SqlError::unsupported(format!(
                    "adding a NOT NULL column (\"{}\") without a default",
                    column.name
                ))
                .with_detail("existing rows would have no value in it")
                .with_hint("add it with a DEFAULT or without NOT NULL"),
            );
        }
        // Keys of existing rows cannot change, so the default does not reach them.
        if column.default.is_some() && clause.primary_key {
            notices.push(Notice::notice(format!(
                "the default of key column \"{}\" applies to new rows; in existing rows it is NULL",
                column.name
            )));
        }
        if !clause.checks.is_empty() {
            return error(
                SqlError::unsupported(format!("adding column \"{}\" with CHECK", column.name))
                    .with_hint("add the column, then the constraint"),
            );
        }
        let column = Box::new(column);
        Ok(AlterChange::AddColumn { column, tag: clause.primary_key, if_not_exists, place })
    }

    /// The error of a part of a table that is not changed by ALTER TABLE.
    fn foreign_part(&self, verb: &str, kind: &str) -> SqlError {
        let error = self.unsupported(format!("{verb} {}", kind.to_ascii_uppercase()));
        match kind {
            "index" => error.with_hint("use CREATE INDEX or DROP INDEX"),
            _ => error,
        }
    }

    /// Takes what follows ALTER COLUMN and a column's name.
    fn alter_column(
        &mut self,
        column: String,
        changes: &mut Vec<AlterChange>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), SqlError> {
        if self.take(&["type"]) || self.take(&["set", "data", "type"]) {
            let change = self.new_type(column, notices)?;
            changes.push(AlterChange::SetType(Box::new(change)));
            return Ok(());
        }
        if (self.at("set") || self.at("unset")) && self.at_nth(2, "index") {
            let is_set = self.at("set");
            self.next();
            let Some(kind) = self.take_index() else {
                return Err(self.unexpected("INVERTED, SKIPPING or FULLTEXT"));
            };
            changes.push(if is_set {
                let (name, options) = self.index_options(kind)?;
                AlterChange::SetIndex { column, name, options }
            } else {
                AlterChange::DropIndex { column, kind }
            });
            return Ok(());
        }
        if self.take(&["drop", "not", "null"]) {
            changes.push(AlterChange::DropNotNull(column));
            return Ok(());
        }
        if self.take(&["drop", "default"]) {
            changes.push(AlterChange::SetDefault { column, default: None });
            return Ok(());
        }
        if self.at("set") && self.at_nth(1, "default") {
            self.next();
            self.next();
            let default = Some(self.expression()?).filter(|expression| {
                !matches!(
                    super::literal::literal(expression),
                    Ok(Some(super::literal::Literal::Null))
                )
            });
            changes.push(AlterChange::SetDefault { column, default: default.map(Box::new) });
            return Ok(());
        }
        // Other forms are refused by name.
        for (words, form) in [
            (&["set", "not", "null"][..], "ALTER COLUMN ... SET NOT NULL"),
            (&["unset"], "ALTER COLUMN ... UNSET"),
        ] {
            if words.iter().enumerate().all(|(n, word)| self.at_nth(n, word)) {
                return Err(self.unsupported(form));
            }
        }
        if matches!(self.peek().token, Token::Word(_)) && !self.at("set") && !self.at("drop") {
            return Err(self.unsupported("changing a column's type").with_hint(TYPE_HINT));
        }
        Err(self.unexpected("SET DEFAULT, DROP DEFAULT, or SET or UNSET and an index"))
    }
}

fn unalterable(pair: &OptionPair) -> SqlError {
    match pair.key.as_str() {
        "hash_buckets" => SqlError::unsupported("taking option 'hash_buckets' back")
            .with_position(pair.position)
            .with_hint("PARTITION BY RANGE (columns) places new rows by their key again"),
        "time_index" | "primary_key" | "partition_by" | "partitions" | "partition_at_keys"
        | "uniform_partitions" | "schema_on_write" | "kind" | "fillfactor" => {
            SqlError::unsupported(format!("changing option '{}' of a table", pair.key))
                .with_position(pair.position)
        }
        _ => pair.unknown(),
    }
}

fn unset(key: String, position: usize) -> Result<TableOption, SqlError> {
    let pair = OptionPair { key, value: OptionValue::Null, position };
    match pair.key.as_str() {
        "append_mode" => Ok(TableOption::AppendMode(false)),
        "merge_mode" => Ok(TableOption::MergeMode(partita_proto::schema::MergeMode::LastRow)),
        _ => match pair.table_option()? {
            Some(option) => Ok(option),
            None => Err(unalterable(&pair)),
        },
    }
}

impl AlterTable {
    /// PostgreSQL's command tag.
    pub fn tag(&self) -> &'static str {
        if self.is_view { "ALTER VIEW" } else { "ALTER TABLE" }
    }

    /// The columns of the key that the statement gives the table, and the name of its constraint, if specified.
    pub fn added_key(&self) -> Option<(&[String], Option<&str>)> {
        match self.changes.as_slice() {
            [AlterChange::AddKey { name, columns }] => Some((columns.as_slice(), name.as_deref())),
            _ => None,
        }
    }

    /// The changes to send to meta, in order, and the notices for the client. Nothing has been done when this fails.
    ///
    /// # Errors
    /// When a change does not fit the table as it is.
    pub fn to_changes(&self, table: &Table) -> Result<(Vec<TableChange>, Vec<Notice>), SqlError> {
        let mut notices = self.notices.clone();
        let mut options = table.schema.options.clone();
        let mut index_names = IndexNames::of(table);
        let mut checks = table.schema.checks.clone();
        let mut changes: Vec<TableChange> = Vec::new();
        for change in &self.changes {
            match change {
                AlterChange::AddColumn { column, tag, if_not_exists, place } => {
                    let existing = table.schema.column(&column.name).filter(|_| *if_not_exists);
                    let indexes = match existing {
                        Some(existing) => existing.indexes.clone(),
                        None => new_indexes(column, &mut index_names)?,
                    };
                    let place = place.as_ref().filter(|_| existing.is_none());
                    let column = added_column(column, *tag, indexes);
                    add_column(table, &mut changes, column, *if_not_exists, place)?;
                }
                AlterChange::DropColumn { name, if_exists } => {
                    if *if_exists && table.schema.column(name).is_none() {
                        notices.push(missing_column(table, name));
                        continue;
                    }
                    known_column(table, name)?;
                    check_unused(&table.schema, name, "drop")?;
                    // As in PostgreSQL, the constraints of a column go with it.
                    for check in using(&checks, name)? {
                        checks.retain(|present| present.name != check);
                        changes.push(TableChange::DropCheck(check));
                    }
                    changes.push(TableChange::DropColumn(name.clone()));
                }
                AlterChange::RenameColumn { from: old_name, to: new_name } => {
                    check_unnamed(table, &checks, old_name, "rename")?;
                    changes.push(TableChange::RenameColumn {
                        from: old_name.clone(),
                        to: new_name.clone(),
                    });
                }
                AlterChange::AddCheck(definition) => {
                    let check = named_check(&table.name, definition, &checks)?;
                    checks.push(check.clone());
                    changes.push(TableChange::AddCheck(check));
                }
                AlterChange::AddKey { .. } => {
                    let message = "ADD PRIMARY KEY must be the only action of its ALTER TABLE";
                    return Err(SqlError::syntax(message));
                }
                AlterChange::DropConstraint { name, if_exists } => {
                    if checks.iter().any(|check| check.name == *name) {
                        checks.retain(|check| check.name != *name);
                        changes.push(TableChange::DropCheck(name.clone()));
                    } else {
                        notices.push(missing_constraint(table, name, *if_exists)?);
                    }
                }
                AlterChange::SetType(change) => {
                    let existing = known_column(table, &change.column)?;
                    let set_type = change.to_changes(table, existing)?;
                    if existing.column_type != change.column_type {
                        check_unnamed(table, &checks, &change.column, "alter type of")?;
                    }
                    changes.extend(set_type);
                }
                AlterChange::DropNotNull(column) => {
                    changes.extend(drop_not_null(known_column(table, column)?, &table.schema)?);
                }
                AlterChange::SetDefault { column, default } => {
                    let default = new_default(table, column, default.as_deref())?;
                    changes.push(TableChange::SetDefault { column: column.clone(), default });
                }
                AlterChange::SetIndex { column, name, options } => {
                    let existing = known_column(table, column)?;
                    let index = index_names.declared(existing, name.as_deref(), *options)?;
                    notices.extend(index_notice(&table.schema, existing, options.kind()));
                    let (column, if_not_exists) = (column.clone(), false);
                    changes.push(TableChange::SetIndex { column, index, if_not_exists });
                }
                AlterChange::DropIndex { column, kind } => {
                    check_index(table, column, *kind)?;
                    changes.push(TableChange::DropIndex { column: column.clone(), kind: *kind });
                }
                AlterChange::SetOption(option) => set_option(&mut changes, &mut options, option),
                AlterChange::Repartition(placement) => {
                    let (placement, cuts) = placement.resolve(table)?;
                    notices.push(Notice::notice(format!(
                        "existing rows stay in \"{}$former\" and are included in queries",
                        table.name
                    )));
                    changes.push(TableChange::Repartition { placement, cuts });
                }
                AlterChange::Rename(name) => changes.push(TableChange::Rename(name.clone())),
            }
        }
        Ok((changes, notices))
    }
}

/// The notice that `DROP COLUMN IF EXISTS` has no column to drop.
fn missing_column(table: &Table, name: &str) -> Notice {
    let table = &table.name;
    Notice::notice(format!("column \"{name}\" of relation \"{table}\" does not exist, skipping"))
}

/// Adds a column to the changes; consecutive additions that treat existing columns alike become one change.
///
/// # Errors
/// When the column after which it is added is not there.
fn add_column(
    table: &Table,
    changes: &mut Vec<TableChange>,
    column: Column,
    if_not_exists: bool,
    place: Option<&ColumnPlace>,
) -> Result<(), SqlError> {
    let name = column.name.clone();
    match changes.last_mut() {
        Some(TableChange::AddColumns { columns, if_not_exists: same })
            if *same == if_not_exists =>
        {
            columns.push(column);
        }
        _ => changes.push(TableChange::AddColumns { columns: vec![column], if_not_exists }),
    }
    if let Some(place) = place {
        let predecessor = match place {
            ColumnPlace::First => None,
            ColumnPlace::After(previous) => Some(previous.clone()),
        };
        check_place(table, changes, predecessor.as_deref())?;
        changes.push(TableChange::MoveColumn { column: name, after: predecessor });
    }
    Ok(())
}

/// Checks that nothing else of the table names a column that is renamed, or gets another type.
///
/// # Errors
/// 42703 without such a column; 2BP01 when a generated column or a constraint uses it.
fn check_unnamed(table: &Table, checks: &[Check], name: &str, verb: &str) -> Result<(), SqlError> {
    known_column(table, name)?;
    check_unused(&table.schema, name, verb)?;
    match using(checks, name)?.first() {
        Some(check) => {
            let message =
                format!("cannot {verb} column \"{name}\" because constraint \"{check}\" uses it");
            Err(SqlError::new("2BP01", message)
                .with_hint("drop the constraint, and add it again after the change"))
        }
        None => Ok(()),
    }
}

/// The text of a column's new default; none for no default.
///
/// # Errors
/// 42703 without such a column; 42601 for a generated one; when the default does not fit its type.
fn new_default(
    table: &Table,
    column: &str,
    default: Option<&Expr>,
) -> Result<Option<String>, SqlError> {
    let existing = known_column(table, column)?;
    if existing.generated.is_some() {
        return Err(SqlError::new(
            "42601",
            format!("column \"{column}\" is generated and cannot have a DEFAULT"),
        ));
    }
    match default {
        Some(expression) => default_text(expression, column, existing.column_type),
        None => Ok(None),
    }
}

/// The notice of a missing constraint with IF EXISTS.
///
/// # Errors
/// 42704 without IF EXISTS.
fn missing_constraint(table: &Table, name: &str, if_exists: bool) -> Result<Notice, SqlError> {
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
    if if_exists {
        Ok(Notice::notice(format!("{message}, skipping")))
    } else {
        Err(SqlError::new(UNDEFINED_OBJECT, message))
    }
}

/// Checks that the column after which another one is added exists, or is added before it.
fn check_place(
    table: &Table,
    changes: &[TableChange],
    predecessor: Option<&str>,
) -> Result<(), SqlError> {
    let Some(name) = predecessor else { return Ok(()) };
    let is_added = changes.iter().any(|change| match change {
        TableChange::AddColumns { columns, .. } => columns.iter().any(|column| column.name == name),
        _ => false,
    });
    if !is_added {
        known_column(table, name)?;
    }
    Ok(())
}

/// A column for meta, which assigns the id and the storage name.
fn added_column(definition: &ColumnDefinition, tag: bool, indexes: Vec<Index>) -> Column {
    Column {
        id: ColumnId::default(),
        name: definition.name.clone(),
        storage_name: definition.name.clone(),
        column_type: definition.column_type,
        nullable: definition.nullable.unwrap_or(true),
        semantic: if tag { Semantic::Tag } else { Semantic::Field },
        default: definition.default.clone(),
        generated: definition.generated.clone(),
        missing: None,
        length: definition.length,
        json: definition.json,
        indexes,
        comment: definition.comment.clone(),
    }
}

/// The indexes of a column that is added.
fn new_indexes(
    definition: &ColumnDefinition,
    names: &mut IndexNames<'_>,
) -> Result<Vec<Index>, SqlError> {
    let ColumnDefinition { name, column_type, indexes, .. } = definition;
    for index_name in indexes.iter().filter_map(|(index_name, _)| index_name.as_ref()) {
        names.reserve(index_name)?;
    }
    names.of_column(name, *column_type, indexes)
}

/// Adds an option to the changes. Options that are named one after another are one change, and are set even to what the
/// catalog shows: another client may have set them since.
fn set_option(changes: &mut Vec<TableChange>, options: &mut TableOptions, option: &TableOption) {
    if !matches!(changes.last(), Some(TableChange::ChangeOptions { .. })) {
        let (base, next) = (Box::new(options.clone()), Box::new(options.clone()));
        changes.push(TableChange::ChangeOptions { base, next });
    }
    option.apply(options);
    if let Some(TableChange::ChangeOptions { base, next }) = changes.last_mut() {
        option.apply(next);
        if let Some(different) = option.other() {
            different.apply(base);
        }
    }
}

/// Checks that a column has an index of a kind.
fn check_index(table: &Table, column: &str, kind: IndexKind) -> Result<(), SqlError> {
    if of_kind(known_column(table, column)?, kind).is_some() {
        return Ok(());
    }
    let relation = format!("column \"{column}\" of relation \"{}\"", table.name);
    let message = format!("{relation} has no {} index", kind.method());
    Err(SqlError::new(UNDEFINED_OBJECT, message))
}

fn known_column<'a>(table: &'a Table, name: &str) -> Result<&'a Column, SqlError> {
    table
        .schema
        .column(name)
        .ok_or_else(|| SqlError::undefined_column(name, TableName::bare(table.name.as_str())))
}

/// Refuses a change of a column that a generated column is computed from: expressions are stored as text and refer to
/// columns by name.
fn check_unused(schema: &TableSchema, name: &str, verb: &str) -> Result<(), SqlError> {
    for column in &schema.columns {
        if let Some(text) = &column.generated
            && columns_of(text)?.iter().any(|used| used == name)
        {
            return Err(SqlError::new(
                "2BP01",
                format!(
                    "cannot {verb} column \"{name}\" because generated column \"{}\" is computed \
                     from it",
                    column.name
                ),
            ));
        }
    }
    Ok(())
}
