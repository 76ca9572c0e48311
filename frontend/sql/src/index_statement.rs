//! CREATE INDEX and DROP INDEX, names of new indexes, and indexes as SQL. Their grammar is in `index_grammar.rs`.
//!
//! An index covers one column, which has at most one of each kind. Names are unique in a table; DROP INDEX without a
//! table searches a database, in which several tables may use a name.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::TableId;
use partita_proto::index::{
    Analyzer, Backend, Blooms, Fulltext, Index, IndexKind, IndexOptions, default_name,
};
use partita_proto::schema::{Column, ColumnType, NAME_BYTES_MAX, TableSchema, validate_name};
use partita_proto::service::TableChange;

use super::identifier::{quote, quote_string};
use super::table_name::TableName;
use crate::error::{DATATYPE_MISMATCH, SqlError, UNDEFINED_OBJECT};
use crate::notice::Notice;

/// SQLSTATE of an index, which is a relation, that exists already.
const DUPLICATE_RELATION: &str = "42P07";
/// SQLSTATE of a name that stands for several objects.
const AMBIGUOUS_NAME: &str = "42P09";

/// CREATE INDEX on one column.
#[derive(Clone, Debug)]
pub struct CreateIndex {
    /// Index name, folded; `None`: one is made.
    pub name: Option<String>,
    /// The table that has the column.
    pub table: TableName,
    /// Name of the indexed column.
    pub column: String,
    /// Kind and options.
    pub options: IndexOptions,
    /// No error when the table has an index of the name, or the column one of the kind.
    pub if_not_exists: bool,
}

impl CreateIndex {
    /// The change to send to meta; `None` if the index exists and may. With notices for the client.
    ///
    /// # Errors
    /// When it does not fit the table as it is.
    pub fn to_change(&self, table: &Table) -> Result<(Option<TableChange>, Vec<Notice>), SqlError> {
        let column = table.schema.column(&self.column).ok_or_else(|| {
            SqlError::undefined_column(&self.column, TableName::bare(table.name.as_str()))
        })?;
        let kind = self.options.kind();
        let mut indexes = table.schema.columns.iter().flat_map(|column| &column.indexes);
        let existing = of_kind(column, kind)
            .or_else(|| indexes.find(|index| Some(&index.name) == self.name.as_ref()));
        if let Some(existing) = existing {
            if self.if_not_exists {
                return Ok((None, vec![skipped(&existing.name)]));
            }
            let error = already_exists(&existing.name);
            let is_of_kind = existing.options.kind() == kind && column.indexes.contains(existing);
            return Err(match is_of_kind {
                true => error.with_detail(format!(
                    "column \"{}\" has at most one {} index",
                    column.name,
                    kind.method()
                )),
                false => error,
            });
        }
        let index = IndexNames::of(table).declared(column, self.name.as_deref(), self.options)?;
        let notices = index_notice(&table.schema, column, kind).into_iter().collect();
        let if_not_exists = self.if_not_exists;
        let change = TableChange::SetIndex { column: self.column.clone(), index, if_not_exists };
        Ok((Some(change), notices))
    }
}

/// DROP INDEX, by name.
#[derive(Clone, Debug)]
pub struct DropIndex {
    /// Database of the index, if the text names one.
    pub database: Option<String>,
    /// Index name, folded.
    pub name: String,
    /// The table that has it; `None`: the tables of the database are searched.
    pub table: Option<TableName>,
    /// No error when it does not exist.
    pub if_exists: bool,
}

/// An index of a catalog.
#[derive(Clone, Debug)]
pub struct FoundIndex {
    /// The table that has it.
    pub table: Arc<Table>,
    /// Name of the indexed column.
    pub column: String,
    /// Kind, of which the column has no other.
    pub kind: IndexKind,
}

impl FoundIndex {
    fn new(table: &Arc<Table>, name: &str) -> Option<Self> {
        table.schema.columns.iter().find_map(|column| {
            let index = column.indexes.iter().find(|index| index.name == name)?;
            let (column, kind) = (column.name.clone(), index.options.kind());
            Some(Self { table: Arc::clone(table), column, kind })
        })
    }
}

impl DropIndex {
    /// The index in a catalog; `None` if it does not exist. `database` is that of the session.
    ///
    /// # Errors
    /// 42P09 when several tables have an index of the name and the statement does not name the table.
    pub fn find(&self, catalog: &Catalog, database: &str) -> Result<Option<FoundIndex>, SqlError> {
        let database = self.database.as_deref().unwrap_or(database);
        if let Some(name) = &self.table {
            let table = catalog.table(name.database_or(database), &name.name);
            return Ok(table.and_then(|table| FoundIndex::new(table, &self.name)));
        }
        let Some(tables) = catalog.tables.get(database) else { return Ok(None) };
        // A former table has the indexes of the table that replaced it, and a copy those of its source: they change with
        // it.
        let read_along: BTreeSet<TableId> = tables
            .values()
            .filter_map(|table| catalog.read_along(table))
            .map(|table| table.id)
            .collect();
        let searched = tables.values();
        let searched =
            searched.filter(|table| !read_along.contains(&table.id) && table.copy.is_none());
        let mut matching = searched.filter_map(|table| FoundIndex::new(table, &self.name));
        let first = matching.next();
        if let (Some(first), Some(second)) = (&first, matching.next()) {
            let message = format!("index name \"{}\" is ambiguous", self.name);
            let error = SqlError::new(AMBIGUOUS_NAME, message).with_detail(format!(
                "tables \"{}\" and \"{}\" both have such an index",
                first.table.name, second.table.name
            ));
            let hint = format!("DROP INDEX {} ON table names the table", quote(&self.name));
            return Err(error.with_hint(hint));
        }
        Ok(first)
    }

    /// The error of an index that does not exist.
    pub fn undefined(&self) -> SqlError {
        SqlError::new(UNDEFINED_OBJECT, format!("index \"{}\" does not exist", self.name))
    }
}

/// The names of a table's indexes, from which names of new ones differ.
pub(super) struct IndexNames<'a> {
    table: &'a str,
    taken: BTreeSet<String>,
}

impl<'a> IndexNames<'a> {
    /// The names in a table without indexes.
    pub(super) fn none(table: &'a str) -> Self {
        Self { table, taken: BTreeSet::new() }
    }

    /// The names in an existing table.
    pub(super) fn of(table: &'a Table) -> Self {
        let indexes = table.schema.columns.iter().flat_map(|column| &column.indexes);
        Self { table: &table.name, taken: indexes.map(|index| index.name.clone()).collect() }
    }

    /// Reserves a name that the client chose.
    pub(super) fn reserve(&mut self, name: &str) -> Result<(), SqlError> {
        validate_name("index", name)?;
        if self.taken.insert(name.to_owned()) { Ok(()) } else { Err(already_exists(name)) }
    }

    /// The indexes of a new column. Names that the client chose are reserved.
    pub(super) fn of_column(
        &mut self,
        column: &str,
        column_type: ColumnType,
        declared: &[(Option<String>, IndexOptions)],
    ) -> Result<Vec<Index>, SqlError> {
        let mut indexes = Vec::with_capacity(declared.len());
        for (name, options) in declared {
            check_type(options, column, column_type)?;
            let name = match name {
                Some(name) => name.clone(),
                None => self.made(column, options.kind()),
            };
            indexes.push(Index { name, options: *options });
        }
        Ok(indexes)
    }

    /// The index that a statement declares on an existing column. One that replaces another keeps its name, unless the
    /// client chose a name.
    pub(super) fn declared(
        &mut self,
        column: &Column,
        name: Option<&str>,
        options: IndexOptions,
    ) -> Result<Index, SqlError> {
        check_type(&options, &column.name, column.column_type)?;
        let replaced = of_kind(column, options.kind()).map(|index| index.name.as_str());
        let name = match (name, replaced) {
            (Some(name), replaced) => {
                if replaced != Some(name) {
                    self.reserve(name)?;
                }
                name.to_owned()
            }
            (None, Some(replaced)) => replaced.to_owned(),
            (None, None) => self.made(&column.name, options.kind()),
        };
        Ok(Index { name, options })
    }

    /// A free name: the default one, with a number if it is taken.
    fn made(&mut self, column: &str, kind: IndexKind) -> String {
        let default = default_name(self.table, column, kind);
        let numbered = (1_u64..).map(|number| {
            let number = number.to_string();
            let end = default.floor_char_boundary(NAME_BYTES_MAX - number.len());
            format!("{}{number}", &default[..end])
        });
        let mut names = std::iter::once(default.clone()).chain(numbered);
        let name = names.find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }
}

/// The index of a kind that a column has.
pub(super) fn of_kind(column: &Column, kind: IndexKind) -> Option<&Index> {
    column.indexes.iter().find(|index| index.options.kind() == kind)
}

/// The notice about an index that helps no query, or hardly one.
pub(super) fn index_notice(
    schema: &TableSchema,
    column: &Column,
    kind: IndexKind,
) -> Option<Notice> {
    let index = format!("{} INDEX on column \"{}\"", kind.sql(), column.name);
    if schema.time_index().is_some_and(|time| time.id == column.id) {
        let reason = "it is the time index, and files are kept by time anyway";
        return Some(Notice::warning(format!("{index} is of no use: {reason}")));
    }
    let leads = schema.key.first() == Some(&column.id);
    let is_of_values = matches!(kind, IndexKind::Inverted | IndexKind::Skipping);
    (leads && is_of_values).then(|| {
        let reason = "the key orders rows by it already";
        Notice::notice(format!("{index} is of little use: {reason}"))
    })
}

/// Options are checked by the grammar, so only the type is left to be wrong.
fn check_type(
    options: &IndexOptions,
    column: &str,
    column_type: ColumnType,
) -> Result<(), SqlError> {
    options
        .check(column, column_type)
        .map_err(|error| SqlError::new(DATATYPE_MISMATCH, error.to_string()))
}

fn already_exists(name: &str) -> SqlError {
    SqlError::new(DUPLICATE_RELATION, format!("relation \"{name}\" already exists"))
}

fn skipped(name: &str) -> Notice {
    Notice::notice(format!("relation \"{name}\" already exists, skipping"))
}

/// The WITH clause of an index, after a blank: its name unless that is the default, and the options that differ from
/// their defaults. Empty if there are none.
pub fn index_options_sql(index: &Index, default_name: &str) -> String {
    let mut pairs = Vec::new();
    if index.name != default_name {
        pairs.push(format!("name = {}", quote_string(&index.name)));
    }
    match index.options {
        IndexOptions::Inverted => {}
        IndexOptions::Skipping(blooms) => blooms_sql(blooms, Blooms::default(), &mut pairs),
        IndexOptions::Fulltext(Fulltext { analyzer, case_sensitive, backend }) => {
            match analyzer {
                Analyzer::English => {}
                Analyzer::Chinese => pairs.push("analyzer = 'Chinese'".to_owned()),
            }
            if case_sensitive {
                pairs.push("case_sensitive = 'true'".to_owned());
            }
            match backend {
                Backend::Inverted => pairs.push("backend = 'inverted'".to_owned()),
                Backend::Bloom(blooms) => blooms_sql(blooms, Blooms::of_words(), &mut pairs),
            }
        }
    }
    if pairs.is_empty() { String::new() } else { format!(" WITH ({})", pairs.join(", ")) }
}

fn blooms_sql(blooms: Blooms, default: Blooms, pairs: &mut Vec<String>) {
    let Blooms { granularity, false_positives_ppm } = blooms;
    if granularity != default.granularity {
        pairs.push(format!("granularity = {granularity}"));
    }
    if false_positives_ppm != default.false_positives_ppm {
        pairs.push(format!("false_positive_rate = {}", f64::from(false_positives_ppm) / 1e6));
    }
}
