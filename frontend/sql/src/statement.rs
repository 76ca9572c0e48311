//! The parser's output: one [`Statement`] for each statement of the text.
//!
//! Statements that only DataFusion understands carry its own syntax tree ([`Query`]); all others are plain data that
//! the session executes without a planner. Names are already folded: unquoted ones to lower case, quoted ones (`"x"` or
//! `` `x` ``) exact.
//!
//! Invariants:
//! - a statement contains only what this version supports; everything else in the text was an error of the parser, or
//!   is in [`CreateTable::notices`];
//! - `INSERT ... VALUES` keeps its rows as text: they are scanned straight into Arrow columns when the table is known,
//!   and never become a syntax tree.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{self, Expr};
use partita_proto::index::{IndexKind, IndexOptions};
use partita_proto::materialized::Steering;
use partita_proto::schema::{ColumnType, JsonType, MergeMode, TableOptions, TextLength};
use partita_proto::service::AdminOrder;
use partita_proto::wide::Family;

use super::access_statement::{AccessStatement, SetRole};
pub use super::advise_statement::{Advise, AdviseKind};
use super::bound_words::CutTuple;
pub use super::index_statement::{CreateIndex, DropIndex};
use super::partitioning::PartitioningOption;
use super::repartition::Repartition;
use super::sequence_statement::{ColumnCounter, SequenceStatement, may_change};
use super::task_statement::TaskStatement;
use crate::notice::Notice;
pub use crate::table_name::TableName;

/// One SQL statement.
#[derive(Clone, Debug)]
pub enum Statement {
    /// SELECT, VALUES, TABLE, WITH: planned and run by DataFusion.
    Query(Query),
    /// EXPLAIN of a query, an INSERT, an UPDATE, a DELETE or a CREATE TABLE ... AS.
    Explain(Explain),
    /// EXPLAIN HOTSPOT: the reason why a table is hot.
    ExplainHotspot(TableName),
    /// INSERT, REPLACE or UPSERT: the newest row of a key wins.
    Insert(Insert),
    /// DELETE FROM.
    Delete(Delete),
    /// UPDATE ... SET.
    Update(Update),
    /// Rows from the client or a file into a table.
    CopyFrom(CopyFrom),
    /// Rows of a table or query to the client or a file.
    CopyTo(CopyTo),
    /// CREATE DATABASE or SCHEMA.
    CreateDatabase(CreateDatabase),
    /// ALTER DATABASE or SCHEMA ... SET ('ttl' = ...).
    AlterDatabase(AlterDatabase),
    /// DROP DATABASE or SCHEMA.
    DropDatabase(DropDatabase),
    /// CREATE TABLE, with partitioning and options.
    CreateTable(Box<CreateTable>),
    /// CREATE TABLE ... AS and SELECT ... INTO: a table of the rows of a query.
    CreateTableAs(Box<CreateTableAs>),
    /// ALTER TABLE with one or more actions, other than SPLIT and MERGE.
    AlterTable(AlterTable),
    /// ALTER TABLE ... SPLIT or MERGE.
    Repartition(Repartition),
    /// ALTER TABLE ... PRIMARY KEY, and orders about such a change.
    Rekey(Rekey),
    /// DROP TABLE of one or more tables.
    DropTable(DropTable),
    /// CREATE MATERIALIZED COPY of a table.
    CreateCopy(Box<CreateCopy>),
    /// DROP MATERIALIZED COPY of one or more copies.
    DropCopy(DropCopy),
    /// CREATE VIEW with its query.
    CreateView(Box<CreateView>),
    /// DROP VIEW of one or more views.
    DropView(DropView),
    /// COMMENT ON a table, a view or a column.
    Comment(Comment),
    /// CREATE INDEX on one column.
    CreateIndex(CreateIndex),
    /// DROP INDEX, by name.
    DropIndex(DropIndex),
    /// TRUNCATE of one or more tables.
    Truncate(Truncate),
    /// USE: sets the session's database.
    Use(String),
    /// SHOW of catalog objects or settings.
    Show(Show),
    /// SHOW SERIES CARDINALITY.
    SeriesCardinality(SeriesCardinality),
    /// DESCRIBE of a table's columns.
    Describe(TableName),
    /// SET and RESET of one setting.
    Set(Set),
    /// RESET ALL: all settings to their defaults.
    ResetAll,
    /// BEGIN, COMMIT, SAVEPOINT and so on.
    Transaction(Transaction),
    /// PREPARE name AS statement.
    Prepare(PrepareStatement),
    /// EXECUTE name (literals).
    Execute(Execute),
    /// DEALLOCATE name; `None`: all.
    Deallocate(Option<String>),
    /// DECLARE name CURSOR FOR query.
    Declare(Declare),
    /// FETCH or MOVE.
    Fetch(Fetch),
    /// CLOSE name; `None`: all.
    Close(Option<String>),
    /// DISCARD of session state.
    Discard(Discard),
    /// ADMIN flush_table(...) and similar functions.
    Admin(Admin),
    /// ADVISE of a table.
    Advise(Advise),
    /// Statements about who may do what: roles, rights, owners, tokens.
    Access(AccessStatement),
    /// SET ROLE and RESET ROLE.
    SetRole(SetRole),
    /// Statements about tasks.
    Task(TaskStatement),
    /// Statements about sequences.
    Sequence(SequenceStatement),
    /// LISTEN of a channel; no notification is ever delivered.
    Listen,
    /// NOTIFY of a channel, which reaches nobody.
    Notify,
    /// UNLISTEN, which connection pools send when a connection is returned.
    Unlisten,
    /// VACUUM and ANALYZE, which tools of PostgreSQL send.
    Vacuum(Vacuum),
    /// LOCK TABLE ... IN ACCESS SHARE MODE.
    Lock(Lock),
    /// Nothing between two semicolons, or only comments.
    Empty,
}

impl Statement {
    /// Returns true if it changes rows, tables, databases, roles, rights or tasks. EXECUTE returns false: the prepared statement
    /// is not known here.
    pub fn writes(&self) -> bool {
        // Every statement is listed, so that a new one has to decide.
        match self {
            Self::Insert(_)
            | Self::Delete(_)
            | Self::Update(_)
            | Self::CopyFrom(_)
            | Self::CreateDatabase(_)
            | Self::AlterDatabase(_)
            | Self::DropDatabase(_)
            | Self::CreateTable(_)
            | Self::CreateTableAs(_)
            | Self::AlterTable(_)
            | Self::Repartition(_)
            | Self::Rekey(_)
            | Self::DropTable(_)
            | Self::CreateCopy(_)
            | Self::DropCopy(_)
            | Self::CreateView(_)
            | Self::DropView(_)
            | Self::Comment(_)
            | Self::CreateIndex(_)
            | Self::DropIndex(_)
            | Self::Truncate(_)
            | Self::Sequence(_) => true,
            Self::Access(access) => !access.reads(),
            Self::Task(task) => !task.reads(),
            // A query may take values of sequences: nextval itself is refused then. EXPLAIN ANALYZE takes queries only.
            Self::Query(_)
            | Self::Explain(_)
            | Self::ExplainHotspot(_)
            | Self::CopyTo(_)
            | Self::Use(_)
            | Self::Show(_)
            | Self::SeriesCardinality(_)
            | Self::Describe(_)
            | Self::Set(_)
            | Self::ResetAll
            | Self::Transaction(_)
            | Self::Prepare(_)
            | Self::Execute(_)
            | Self::Deallocate(_)
            | Self::Declare(_)
            | Self::Fetch(_)
            | Self::Close(_)
            | Self::Discard(_)
            | Self::Advise(_)
            | Self::SetRole(_)
            | Self::Listen
            | Self::Notify
            | Self::Unlisten
            // These move and merge rows, and change none.
            | Self::Admin(_)
            | Self::Vacuum(_)
            | Self::Lock(_)
            | Self::Empty => false,
        }
    }

    /// Returns true if it only reads and leaves no state in its session, so that a GET request may run it. EXECUTE
    /// returns false: the prepared statement is not known here.
    pub fn reads(&self) -> bool {
        match self {
            Self::Query(query) => !may_change(&query.text),
            Self::ExplainHotspot(_)
            | Self::Show(_)
            | Self::SeriesCardinality(_)
            | Self::Describe(_)
            | Self::Advise(_)
            | Self::Empty => true,
            // EXPLAIN ANALYZE runs the explained statement.
            Self::Explain(explain) => explain.statement.reads(),
            Self::Access(access) => access.reads(),
            Self::Task(task) => task.reads(),
            _ => false,
        }
    }

    /// RETURNING of the statement.
    pub fn returning(&self) -> Option<&Returning> {
        match self {
            Self::Insert(insert) => insert.returning.as_ref(),
            Self::Update(update) => update.returning.as_ref(),
            Self::Delete(delete) => delete.returning.as_ref(),
            _ => None,
        }
    }

    /// Returns true if it may be explained.
    pub fn is_explainable(&self) -> bool {
        self.is_planned() || matches!(self, Self::CreateTableAs(_))
    }

    /// Returns true if it may be explained, and prepared by name.
    pub fn is_planned(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Insert(_) | Self::Update(_) | Self::Delete(_))
    }

    /// Returns true if it needs planning, or work on expressions or rows that may take long: then it runs on the lanes'
    /// threads. All others end within microseconds, or only wait for another process. An INSERT of few literals does
    /// not need a lane either ([`Insert::is_light`]).
    pub fn needs_lane(&self) -> bool {
        // Every statement is listed, so that a new one has to decide.
        match self {
            Self::Query(_)
            | Self::Explain(_)
            | Self::ExplainHotspot(_)
            | Self::SeriesCardinality(_)
            | Self::Insert(_)
            | Self::Delete(_)
            | Self::Update(_)
            | Self::CopyTo(_)
            | Self::CreateTable(_)
            | Self::CreateTableAs(_)
            | Self::CreateCopy(_)
            | Self::CreateView(_)
            | Self::AlterTable(_)
            | Self::Repartition(_)
            | Self::Rekey(_)
            | Self::Prepare(_)
            | Self::Execute(_)
            | Self::Declare(_)
            | Self::Advise(_)
            // A verifier of a password takes thousands of hashes, and the statement of a task is planned.
            | Self::Access(_)
            | Self::Task(_) => true,
            // Rows of a file are read and decoded here, those of a client by its door.
            Self::CopyFrom(copy) => copy.file.is_some(),
            Self::CreateDatabase(_)
            | Self::AlterDatabase(_)
            | Self::DropDatabase(_)
            | Self::DropTable(_)
            | Self::DropCopy(_)
            | Self::DropView(_)
            | Self::Comment(_)
            | Self::CreateIndex(_)
            | Self::DropIndex(_)
            | Self::Truncate(_)
            | Self::Use(_)
            | Self::Show(_)
            | Self::Describe(_)
            | Self::Set(_)
            | Self::ResetAll
            | Self::Transaction(_)
            | Self::Deallocate(_)
            | Self::Fetch(_)
            | Self::Close(_)
            | Self::Discard(_)
            | Self::Admin(_)
            | Self::SetRole(_)
            | Self::Sequence(_)
            | Self::Listen
            | Self::Notify
            | Self::Unlisten
            | Self::Vacuum(_)
            | Self::Lock(_)
            | Self::Empty => false,
        }
    }

    /// PostgreSQL's command tag, without a row count; also the statement's name in metrics.
    pub fn tag(&self) -> &'static str {
        // Every statement is listed; some tags depend on the form.
        match self {
            Self::Query(_) => "SELECT",
            Self::Explain(_) | Self::ExplainHotspot(_) => "EXPLAIN",
            Self::Insert(_) => "INSERT",
            Self::Delete(_) => "DELETE",
            Self::Update(_) => "UPDATE",
            Self::CopyFrom(_) | Self::CopyTo(_) => "COPY",
            Self::CreateDatabase(_) => "CREATE DATABASE",
            Self::AlterDatabase(_) => "ALTER DATABASE",
            Self::DropDatabase(_) => "DROP DATABASE",
            Self::CreateTable(_) => "CREATE TABLE",
            Self::CreateTableAs(create) if create.is_select_into => "SELECT INTO",
            Self::CreateTableAs(_) => "CREATE TABLE AS",
            Self::AlterTable(alter) => alter.tag(),
            Self::Repartition(_) | Self::Rekey(_) => "ALTER TABLE",
            Self::DropTable(_) => "DROP TABLE",
            Self::CreateCopy(_) => "CREATE MATERIALIZED COPY",
            Self::DropCopy(_) => "DROP MATERIALIZED COPY",
            Self::CreateView(_) => "CREATE VIEW",
            Self::DropView(_) => "DROP VIEW",
            Self::Comment(_) => "COMMENT",
            Self::CreateIndex(_) => "CREATE INDEX",
            Self::DropIndex(_) => "DROP INDEX",
            Self::Truncate(_) => "TRUNCATE TABLE",
            Self::Use(_) => "USE",
            Self::Show(_) | Self::SeriesCardinality(_) => "SHOW",
            Self::Describe(_) => "DESCRIBE",
            Self::Set(set) => match set.value {
                SetValue::Default => "RESET",
                SetValue::Values(_) => "SET",
            },
            Self::ResetAll => "RESET",
            Self::Transaction(transaction) => transaction.tag(),
            Self::Prepare(_) => "PREPARE",
            Self::Execute(_) => "EXECUTE",
            Self::Deallocate(Some(_)) => "DEALLOCATE",
            Self::Deallocate(None) => "DEALLOCATE ALL",
            Self::Declare(_) => "DECLARE CURSOR",
            Self::Fetch(fetch) if fetch.only_move => "MOVE",
            Self::Fetch(_) => "FETCH",
            Self::Close(Some(_)) => "CLOSE CURSOR",
            Self::Close(None) => "CLOSE CURSOR ALL",
            Self::Discard(Discard::All) => "DISCARD ALL",
            Self::Discard(_) => "DISCARD",
            Self::Admin(_) => "ADMIN",
            Self::Advise(_) => "ADVISE",
            Self::Access(access) => access.tag(),
            Self::Task(task) => task.tag(),
            Self::Sequence(sequence) => sequence.tag(),
            Self::SetRole(role) if role.is_reset => "RESET",
            Self::SetRole(_) => "SET",
            Self::Listen => "LISTEN",
            Self::Notify => "NOTIFY",
            Self::Unlisten => "UNLISTEN",
            Self::Vacuum(vacuum) if vacuum.only_analyzes => "ANALYZE",
            Self::Vacuum(_) => "VACUUM",
            Self::Lock(_) => "LOCK TABLE",
            Self::Empty => "",
        }
    }

    /// The text of statements that are written to the query log.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Query(query) => Some(&query.text),
            Self::Explain(explain) => Some(&explain.text),
            Self::Insert(insert) => Some(&insert.text),
            Self::Delete(delete) => Some(&delete.text),
            Self::Update(update) => Some(&update.text),
            Self::CopyFrom(copy) => Some(&copy.text),
            Self::CopyTo(copy) => Some(&copy.query.text),
            Self::Declare(declare) => Some(&declare.query.text),
            Self::CreateTableAs(create) => Some(&create.text),
            _ => None,
        }
    }
}

/// A statement that DataFusion plans.
#[derive(Clone, Debug)]
pub struct Query {
    /// The text as written.
    pub text: Arc<str>,
    /// The syntax tree, for `SessionState::statement_to_plan`.
    pub statement: PlannerStatement,
}

/// EXPLAIN of another statement.
#[derive(Clone, Debug)]
pub struct Explain {
    /// The statement's text.
    pub text: Arc<str>,
    /// ANALYZE, VERBOSE, FORMAT and the rest, in DataFusion's form.
    pub options: ExplainStatementOptions,
    /// A query, an INSERT, an UPDATE, a DELETE or a CREATE TABLE ... AS.
    pub statement: Box<Statement>,
}

/// INSERT INTO.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The statement's text.
    pub text: Arc<str>,
    /// Position of the text in the client's text, in characters: error positions are relative to it.
    pub position: usize,
    /// The table that rows are written to.
    pub table: TableName,
    /// The columns in the order of the values; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// The table's alias in RETURNING.
    pub alias: Option<String>,
    /// True for UPSERT: an existing row keeps the columns that the statement does not name.
    pub keeps: bool,
    /// OVERRIDING, for values of identity columns.
    pub overriding: Option<Overriding>,
    /// The source of the rows.
    pub source: InsertSource,
    /// ON CONFLICT, for rows whose key exists; `None`: they replace the others.
    pub conflict: Option<OnConflict>,
    /// RETURNING, of the written rows.
    pub returning: Option<Returning>,
}

/// Longest text of an INSERT whose literals are scanned on the thread that received it, in bytes: a fraction of a
/// millisecond's work.
const LIGHT_BYTES_MAX: usize = 64 << 10;

impl Insert {
    /// Returns true if rows are only stored: nothing depends on those that exist, and nothing is returned.
    pub fn only_stores(&self) -> bool {
        self.returning.is_none() && self.conflict.is_none()
    }

    /// Returns true if its rows are a short text, and are only stored.
    pub fn is_light(&self) -> bool {
        !matches!(self.source, InsertSource::Query(_))
            && self.only_stores()
            && self.text.len() <= LIGHT_BYTES_MAX
    }
}

/// Values of identity columns in an INSERT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overriding {
    /// OVERRIDING SYSTEM VALUE: the given values count, also those of GENERATED ALWAYS.
    System,
    /// OVERRIDING USER VALUE: the given values are ignored.
    User,
}

/// The source of an INSERT's rows.
#[derive(Clone, Debug)]
pub enum InsertSource {
    /// `VALUES (..), (..)`: a range of bytes of the text, from the first parenthesis on.
    Values(Range<usize>),
    /// `SELECT ...`.
    Query(Box<Query>),
    /// `DEFAULT VALUES`: one row of defaults.
    Default,
}

/// DELETE FROM.
#[derive(Clone, Debug)]
pub struct Delete {
    /// The statement's text.
    pub text: Arc<str>,
    /// The table that rows are deleted from.
    pub table: TableName,
    /// The table's alias in the predicate.
    pub alias: Option<String>,
    /// A SELECT without columns from the tables of USING, with the predicate. It lacks the table that changes.
    pub source: Box<ast::Query>,
    /// RETURNING, of the deleted rows.
    pub returning: Option<Returning>,
}

/// UPDATE ... SET.
#[derive(Clone, Debug)]
pub struct Update {
    /// The statement's text.
    pub text: Arc<str>,
    /// The table whose rows change.
    pub table: TableName,
    /// The table's alias in expressions.
    pub alias: Option<String>,
    /// The columns that are set, each once.
    pub columns: Vec<String>,
    /// For each of them the position of its new value among the items of `source`; `None` means DEFAULT.
    pub values: Vec<Option<usize>>,
    /// A SELECT of the new values from the tables of FROM, with the predicate. It lacks the table that changes.
    pub source: Box<ast::Query>,
    /// RETURNING, of the rows that change.
    pub returning: Option<Returning>,
}

/// ON CONFLICT of an INSERT.
#[derive(Clone, Debug)]
pub struct OnConflict {
    /// The constraint whose violation is no error; `None`: any.
    pub target: Option<ConflictTarget>,
    /// DO UPDATE: the change of the row with the key, which may name the row that was to be inserted `excluded`; `None`: DO
    /// NOTHING.
    pub update: Option<Box<Update>>,
}

/// The constraint that ON CONFLICT names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictTarget {
    /// The columns of the key.
    Columns(Vec<String>),
    /// By name.
    Constraint(String),
}

/// RETURNING of a statement that writes.
#[derive(Clone, Debug)]
pub struct Returning {
    /// A SELECT of the items. It lacks the table.
    pub source: Box<ast::Query>,
}

/// COPY ... FROM STDIN.
#[derive(Clone, Debug)]
pub struct CopyFrom {
    /// The statement's text.
    pub text: Arc<str>,
    /// The table that rows are written to.
    pub table: TableName,
    /// The columns in the order of the data; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Path of a file of the server; `None`: the client sends the rows.
    pub file: Option<String>,
    /// Form of the data.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
}

/// COPY ... TO STDOUT.
#[derive(Clone, Debug)]
pub struct CopyTo {
    /// The source of the rows: the query of the statement, or a SELECT of the table's columns.
    pub query: Query,
    /// Path of a file of the server; `None`: the client gets the rows.
    pub file: Option<String>,
    /// Form of the data.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
}

/// VACUUM or ANALYZE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vacuum {
    /// True for ANALYZE.
    pub only_analyzes: bool,
    /// The named tables; empty for all.
    pub tables: Vec<TableName>,
}

/// LOCK TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The named tables.
    pub tables: Vec<TableName>,
}

/// The data format of COPY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyFormat {
    /// Fields between delimiters, special characters behind backslashes.
    #[default]
    Text,
    /// Comma-separated values with quotes.
    Csv,
    /// PostgreSQL's binary form.
    Binary,
    /// A JSON object on each line.
    Ndjson,
    /// Apache Parquet, for files only.
    Parquet,
}

/// Options of COPY; the defaults are PostgreSQL's for the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Separator between fields: a tab in text, a comma in CSV.
    pub delimiter: u8,
    /// Representation of NULL: `\N` in text, empty in CSV.
    pub null: String,
    /// Treatment of the first line.
    pub header: CopyHeader,
    /// CSV: quote around values.
    pub quote: u8,
    /// CSV: escape character before a quote inside a value.
    pub escape: u8,
    /// CSV, input: the columns whose quoted values may be NULL too.
    pub force_null: CopyColumns,
    /// CSV, input: the columns that are never NULL.
    pub force_not_null: CopyColumns,
    /// CSV, output: the columns whose values are always quoted.
    pub force_quote: CopyColumns,
}

impl CopyOptions {
    /// The defaults of a format.
    pub fn new(format: CopyFormat) -> Self {
        let csv = format == CopyFormat::Csv;
        Self {
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            header: CopyHeader::None,
            quote: b'"',
            escape: b'"',
            force_null: CopyColumns::None,
            force_not_null: CopyColumns::None,
            force_quote: CopyColumns::None,
        }
    }
}

/// The meaning of COPY's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyHeader {
    /// An ordinary row.
    None,
    /// Column names, ignored.
    Skip,
    /// Column names, which must be those of the target columns.
    Match,
}

/// The columns that an option of COPY applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyColumns {
    /// No column.
    None,
    /// The listed columns.
    Some(Vec<String>),
    /// Every column.
    All,
}

impl CopyColumns {
    /// Returns true if the option applies to a column.
    pub fn contains(&self, column: &str) -> bool {
        match self {
            Self::None => false,
            Self::Some(columns) => columns.iter().any(|name| name == column),
            Self::All => true,
        }
    }
}

/// CREATE DATABASE or CREATE SCHEMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDatabase {
    /// Database name, folded.
    pub name: String,
    /// No error when it exists.
    pub if_not_exists: bool,
    /// `WITH ('ttl' = ...)`.
    pub ttl: Option<Duration>,
}

/// ALTER DATABASE or ALTER SCHEMA, which sets the time to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterDatabase {
    /// Database name, folded.
    pub name: String,
    /// The new `ttl`; `None` means forever.
    pub ttl: Option<Duration>,
}

/// DROP DATABASE or DROP SCHEMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropDatabase {
    /// Database name, folded.
    pub name: String,
    /// No error when it does not exist.
    pub if_exists: bool,
}

/// CREATE TABLE as written; [`CreateTable::to_new_table`] turns it into the definition for meta, after
/// [`CreateTable::with_likes`] has looked up the tables that it is like.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// The table to create.
    pub table: TableName,
    /// No error when it exists.
    pub if_not_exists: bool,
    /// True for a table of the session, in memory.
    pub is_temporary: bool,
    /// The columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// Tables that it is like, in order; empty when they were looked up.
    pub likes: Vec<LikeTable>,
    /// CHECK constraints, of columns and of the table.
    pub checks: Vec<CheckDefinition>,
    /// The columns of PRIMARY KEY, as a clause or as an option.
    pub primary_key: Option<Vec<String>>,
    /// The column of TIME INDEX, as a clause or as an option.
    pub time_index: Option<String>,
    /// The placement of rows.
    pub partitioning: Partitioning,
    /// The initial partition boundaries: ascending tuples of literals, with the placement first in tables that have
    /// one. `None`: those of the partitioning.
    pub cuts: Option<Vec<CutTuple>>,
    /// `UNIFORM_PARTITIONS` of a table placed by range: the number of equal parts of the first key column's values.
    pub uniform: Option<u16>,
    /// True if rows with unknown columns add them to the table.
    pub schema_on_write: bool,
    /// The options of WITH and ENGINE.
    pub options: TableOptions,
    /// Notices of clauses that are accepted with another effect than the client may expect.
    pub notices: Vec<Notice>,
}

/// CREATE TABLE ... AS and SELECT ... INTO, with the query as a syntax tree.
#[derive(Clone, Debug)]
pub struct CreateTableAs {
    /// The statement's text.
    pub text: Arc<str>,
    /// The table without columns: name, key, partitions and options.
    pub table: CreateTable,
    /// Names of its first columns; the others have those of the query.
    pub columns: Vec<String>,
    /// The query whose rows it gets.
    pub query: Query,
    /// False for WITH NO DATA: the query is not run.
    pub with_data: bool,
    /// True if it was written as SELECT ... INTO.
    pub is_select_into: bool,
}

/// LIKE in CREATE TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LikeTable {
    /// The table or view whose columns are copied.
    pub table: TableName,
    /// Number of columns that are written before it.
    pub position: usize,
    /// Parts of the definition that are copied.
    pub copied: Copied,
}

/// Parts of a table's definition that LIKE copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copied {
    /// `(LIKE table INCLUDING ..)`: columns with their types and NOT NULL, and these properties.
    Properties(BTreeSet<LikeProperty>),
    /// `LIKE table` in place of columns: also key, partitions and options.
    Everything,
}

/// Property of INCLUDING and EXCLUDING.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LikeProperty {
    /// Comments on columns.
    Comments,
    /// CHECK constraints.
    Constraints,
    /// Defaults of columns.
    Defaults,
    /// Expressions of generated columns.
    Generated,
    /// Counters of identity columns, each with a sequence of its own.
    Identity,
    /// PRIMARY KEY, TIME INDEX, and the indexes of columns.
    Indexes,
}

impl LikeProperty {
    /// All properties.
    pub const ALL: [Self; 6] = [
        Self::Comments,
        Self::Constraints,
        Self::Defaults,
        Self::Generated,
        Self::Identity,
        Self::Indexes,
    ];
}

/// One column of CREATE TABLE or ADD COLUMN.
#[derive(Clone, Debug)]
pub struct ColumnDefinition {
    /// Column name, folded.
    pub name: String,
    /// Data type of its values.
    pub column_type: ColumnType,
    /// The number of characters of VARCHAR(n) and CHAR(n).
    pub length: Option<TextLength>,
    /// JSON or JSONB.
    pub json: Option<JsonType>,
    /// NULL or NOT NULL, if specified.
    pub nullable: Option<bool>,
    /// DEFAULT, as SQL text.
    pub default: Option<String>,
    /// GENERATED ALWAYS AS (..) STORED, as SQL text.
    pub generated: Option<String>,
    /// The counter of a SERIAL or IDENTITY column.
    pub counter: Option<ColumnCounter>,
    /// Indexes, at most one of each kind, with their names if specified.
    pub indexes: Vec<(Option<String>, IndexOptions)>,
    /// COMMENT text of the column.
    pub comment: Option<String>,
}

/// A CHECK constraint as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckDefinition {
    /// Name, if specified.
    pub name: Option<String>,
    /// The column whose definition has it.
    pub column: Option<String>,
    /// The condition, as SQL text.
    pub expression: String,
    /// True for NOT VALID: rows that exist are not looked at.
    pub not_valid: bool,
}

/// The PARTITION clause.
#[derive(Clone, Debug)]
pub enum Partitioning {
    /// None, or `PARTITION BY RANGE (columns)`.
    Range {
        /// The columns, which must be the key's first ones; empty without the clause.
        columns: Vec<String>,
    },
    /// `PARTITION BY HASH (columns) PARTITIONS n`.
    Hash {
        /// The hashed columns.
        columns: Vec<String>,
        /// Number of partitions at creation.
        partitions: u16,
    },
    /// `PARTITION ON COLUMNS (columns) (expression, ..)`.
    Rules {
        /// The columns that the expressions may name.
        columns: Vec<String>,
        /// One expression for each partition.
        rules: Vec<Expr>,
    },
}

/// ALTER TABLE with its actions in order.
#[derive(Clone, Debug)]
pub struct AlterTable {
    /// The table to alter.
    pub table: TableName,
    /// ALTER VIEW: the table must be a view.
    pub is_view: bool,
    /// No error when it does not exist.
    pub if_exists: bool,
    /// The actions, in order.
    pub changes: Vec<AlterChange>,
    /// Notices of clauses that are accepted with another effect than the client may expect.
    pub notices: Vec<Notice>,
}

/// Place of a column that is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnPlace {
    /// Before all other columns.
    First,
    /// AFTER another column.
    After(String),
}

/// The new type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeChange {
    /// Name of the column.
    pub column: String,
    /// Type that the column gets.
    pub column_type: ColumnType,
    /// Of VARCHAR(n) and CHAR(n).
    pub length: Option<TextLength>,
    /// Of JSON and JSONB.
    pub json: Option<JsonType>,
    /// True for NULL, false for NOT NULL.
    pub nullable: Option<bool>,
}

/// One change of ALTER TABLE.
#[derive(Clone, Debug)]
pub enum AlterChange {
    /// ADD COLUMN, at the end unless a place is given.
    AddColumn {
        /// Definition of the new column.
        column: Box<ColumnDefinition>,
        /// It becomes part of the key (before the time index).
        tag: bool,
        /// No error when it exists with the same type and meaning.
        if_not_exists: bool,
        /// Place among the columns; `None`: the end.
        place: Option<ColumnPlace>,
    },
    /// DROP COLUMN, by name.
    DropColumn {
        /// The column.
        name: String,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// ADD [CONSTRAINT name] CHECK.
    AddCheck(CheckDefinition),
    /// ADD [CONSTRAINT name] PRIMARY KEY, of a table without a key.
    AddKey {
        /// Name of the constraint, if specified.
        name: Option<String>,
        /// The columns of the key, in order.
        columns: Vec<String>,
    },
    /// DROP CONSTRAINT, of a CHECK constraint.
    DropConstraint {
        /// Name of the constraint.
        name: String,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// RENAME COLUMN, values unchanged.
    RenameColumn {
        /// Current name.
        from: String,
        /// New name.
        to: String,
    },
    /// ALTER COLUMN ... TYPE, or MODIFY COLUMN.
    SetType(Box<TypeChange>),
    /// ALTER COLUMN ... DROP NOT NULL, by name.
    DropNotNull(String),
    /// ALTER COLUMN ... SET DEFAULT or DROP DEFAULT.
    SetDefault {
        /// Name of the column.
        column: String,
        /// The expression; `None`: no default.
        default: Option<Box<Expr>>,
    },
    /// ALTER COLUMN ... SET ... INDEX: a new index, or other options of the one of its kind.
    SetIndex {
        /// Name of the column.
        column: String,
        /// Index name, if specified.
        name: Option<String>,
        /// Kind and options.
        options: IndexOptions,
    },
    /// ALTER COLUMN ... UNSET ... INDEX.
    DropIndex {
        /// Name of the column.
        column: String,
        /// Kind of the index.
        kind: IndexKind,
    },
    /// SET ('option' = 'value') and UNSET 'option'.
    SetOption(TableOption),
    /// RENAME TO.
    Rename(String),
    /// PARTITION BY, or SET 'hash_buckets': a new placement for new rows.
    Repartition(NewPlacement),
}

/// The new placement of a table's new rows.
#[derive(Clone, Debug)]
pub enum NewPlacement {
    /// `PARTITION BY HASH (columns) PARTITIONS n`.
    Hash {
        /// The hashed columns.
        columns: Vec<String>,
        /// Number of partitions at the start.
        partitions: u16,
    },
    /// `SET ('hash_buckets' = n)`: by hash of the columns that distinguish series.
    BySeries {
        /// Number of partitions at the start.
        partitions: u16,
    },
    /// `PARTITION BY RANGE (columns) [SPLIT AT ((value, ..), ..)]`.
    Range {
        /// The columns, which must be the key's first ones.
        columns: Vec<String>,
        /// The initial partition boundaries.
        cuts: Vec<CutTuple>,
    },
}

/// One option of a table that may be changed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableOption {
    /// `'ttl'`; `None` means forever.
    Ttl(Option<Duration>),
    /// `'time_window'`; `None` means chosen from the data.
    TimeWindow(Option<Duration>),
    /// `'comment'`; `None` removes it.
    Comment(Option<String>),
    /// `'replication_factor'`; `None` means the cluster's.
    ReplicationFactor(Option<u32>),
    /// `'append_mode'`: every row is kept.
    AppendMode(bool),
    /// `'merge_mode'`: the way versions of a row are merged.
    MergeMode(MergeMode),
    /// `'auto_partitioning_..'`, `'hotspot_remedy'`, `'keep_together'`, `'pin_expiry'` and `'forecast'`.
    Partitioning(PartitioningOption),
    /// `'advice_off'`: the rules of the advisor that are silent, in upper case, sorted.
    AdviceOff(Vec<String>),
    /// `'advice_thresholds'`: thresholds of the advisor, each `name=value`, by name.
    AdviceThresholds(Vec<String>),
    /// `'families'`: the column families of a wide table.
    Families(Vec<Family>),
    /// `'row_size_warn'`: bytes of a row of a wide table from which on it is reported as large.
    RowSizeWarn(u64),
    /// `'row_size_max'`: bytes of a row of a wide table beyond which it takes no more cells.
    RowSizeMax(u64),
}

/// DROP TABLE of one or more tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTable {
    /// The tables to drop.
    pub tables: Vec<TableName>,
    /// No error when one does not exist.
    pub if_exists: bool,
    /// CASCADE: the materialized copies of the tables, and the views that read them, are dropped too.
    pub cascade: bool,
}

/// TRUNCATE of one or more tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// The tables to empty.
    pub tables: Vec<TableName>,
    /// RESTART IDENTITY: the sequences of their columns begin anew.
    pub restart_identity: bool,
}

/// CREATE MATERIALIZED COPY as written; [`CreateCopy::to_new_table`] turns it into the definition for meta.
#[derive(Clone, Debug)]
pub struct CreateCopy {
    /// The copy to create.
    pub name: TableName,
    /// The table whose rows it has.
    pub source: TableName,
    /// Key and partitions of the copy.
    pub layout: KeyLayout,
    /// No error when it exists.
    pub if_not_exists: bool,
}

/// PRIMARY KEY and the clauses that divide the rows in its order, as written.
#[derive(Clone, Debug)]
pub struct KeyLayout {
    /// The columns of PRIMARY KEY: those of the table's key, in another order.
    pub key: Vec<String>,
    /// The placement of rows.
    pub partitioning: Partitioning,
    /// The initial partition boundaries; `None`: those of the partitioning.
    pub cuts: Option<Vec<CutTuple>>,
}

/// ALTER TABLE ... PRIMARY KEY, or an order about such a change.
#[derive(Clone, Debug)]
pub struct Rekey {
    /// The table that gets another key.
    pub table: TableName,
    /// No error when it does not exist.
    pub if_exists: bool,
    /// The new key, or the order.
    pub change: RekeyChange,
}

/// A new key, or an order about the change to it.
#[derive(Clone, Debug)]
pub enum RekeyChange {
    /// PRIMARY KEY with its clauses.
    Begin(Box<KeyLayout>),
    /// PAUSE, RESUME, THROTTLE or CANCEL REKEYING.
    Steer(Steering),
}

/// DROP MATERIALIZED COPY of one or more copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCopy {
    /// The copies to drop.
    pub names: Vec<TableName>,
    /// No error when one does not exist.
    pub if_exists: bool,
}

/// CREATE [OR REPLACE] VIEW, with the query as a syntax tree.
#[derive(Clone, Debug)]
pub struct CreateView {
    /// The view to create.
    pub name: TableName,
    /// Names of its first columns; the others have those of the query.
    pub columns: Vec<String>,
    /// True to replace the query of a view that exists.
    pub or_replace: bool,
    /// No error when it exists.
    pub if_not_exists: bool,
    /// The query whose rows it has.
    pub query: Query,
}

/// DROP VIEW of one or more views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropView {
    /// The views to drop.
    pub names: Vec<TableName>,
    /// No error when one does not exist.
    pub if_exists: bool,
    /// CASCADE: the views that read them are dropped too.
    pub cascade: bool,
}

/// COMMENT ON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    /// Object that gets the comment.
    pub object: CommentObject,
    /// The text; `None`: the comment is removed.
    pub text: Option<String>,
}

/// What a comment is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommentObject {
    /// A stored table, by name.
    Table(TableName),
    /// A view, by name.
    View(TableName),
    /// A database, which PostgreSQL calls a schema, folded.
    Database(String),
    /// A column of a table or a view.
    Column {
        /// The table or view.
        table: TableName,
        /// Column name, folded.
        column: String,
    },
}

/// `SHOW SERIES CARDINALITY [EXACT] [ON database] [FROM table]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesCardinality {
    /// True to count by rows, not by sketches.
    pub exact: bool,
    /// The database whose tables are shown, if not the session's.
    pub database: Option<String>,
    /// The only table shown; `None`: all of the database.
    pub table: Option<TableName>,
}

/// SHOW of catalog objects or settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Show {
    /// `SHOW DATABASES [LIKE pattern]`.
    Databases {
        /// The LIKE pattern.
        like: Option<String>,
    },
    /// `SHOW [FULL] TABLES [FROM database] [LIKE pattern]`.
    Tables {
        /// The database, if not the session's.
        database: Option<String>,
        /// The LIKE pattern.
        like: Option<String>,
        /// True if the result has a column `Table_type`.
        full: bool,
    },
    /// SHOW CREATE TABLE.
    CreateTable(TableName),
    /// SHOW CREATE VIEW.
    CreateView(TableName),
    /// SHOW COLUMNS FROM.
    Columns(TableName),
    /// SHOW PARTITIONS FROM.
    Partitions(TableName),
    /// SHOW INDEX FROM.
    Indexes(TableName),
    /// `SHOW TAG KEYS [FROM table]`.
    TagKeys(Option<TableName>),
    /// `SHOW FIELD KEYS [FROM table]`.
    FieldKeys(Option<TableName>),
    /// `SHOW MEASUREMENTS [ON database]`.
    Measurements {
        /// The database, if not the session's.
        database: Option<String>,
    },
    /// SHOW setting: its name, folded.
    Variable(String),
    /// SHOW ALL.
    All,
}

/// SET name = value; RESET name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Setting name, folded, with dots; `SET TIME ZONE` is `timezone`, `SET NAMES` is `client_encoding`.
    pub name: String,
    /// New value, or the default.
    pub value: SetValue,
    /// SET LOCAL: until the transaction ends.
    pub local: bool,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetValue {
    /// The setting's default.
    Default,
    /// One value, or the members of a list such as `search_path`'s.
    Values(Vec<String>),
}

/// Isolation level, access mode and deferral that BEGIN and SET ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
    /// True for READ UNCOMMITTED, false for any other isolation level.
    pub uncommitted: Option<bool>,
    /// True if it requests more isolation than READ COMMITTED.
    pub isolated: bool,
}

/// Statements about transactions. They are accepted for clients that send them; a statement is atomic per partition
/// with or without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SAVEPOINT name.
    Savepoint(String),
    /// RELEASE SAVEPOINT.
    Release(String),
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo(String),
    /// SET TRANSACTION.
    Characteristics(TransactionModes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SessionCharacteristics(TransactionModes),
}

impl Transaction {
    fn tag(&self) -> &'static str {
        match self {
            Self::Begin(_) => "BEGIN",
            Self::Commit => "COMMIT",
            Self::Rollback | Self::RollbackTo(_) => "ROLLBACK",
            Self::Savepoint(_) => "SAVEPOINT",
            Self::Release(_) => "RELEASE",
            Self::Characteristics(_) | Self::SessionCharacteristics(_) => "SET",
        }
    }
}

/// PREPARE name AS statement.
#[derive(Clone, Debug)]
pub struct PrepareStatement {
    /// The statement's text.
    pub text: Arc<str>,
    /// Statement name, folded.
    pub name: String,
    /// The types of the first parameters; those of the others are inferred.
    pub types: Vec<DataType>,
    /// The prepared statement: a query, an INSERT or a DELETE.
    pub statement: Box<Statement>,
}

/// EXECUTE name (parameters).
#[derive(Clone, Debug)]
pub struct Execute {
    /// Name of the prepared statement.
    pub name: String,
    /// One expression for each parameter; [`super::literal::scalar`] evaluates it.
    pub parameters: Vec<Expr>,
}

/// DECLARE ... CURSOR FOR.
#[derive(Clone, Debug)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// True if its rows can be fetched in any direction.
    pub scroll: bool,
    /// True if it outlives its transaction (WITH HOLD).
    pub hold: bool,
    /// The query whose rows it returns.
    pub query: Query,
}

/// Rows of a cursor that FETCH asks for; a number of rows is `None` for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The next rows.
    Forward(Option<u64>),
    /// The rows before, from the nearest one; only of a SCROLL cursor, as all that follow.
    Backward(Option<u64>),
    /// The row with a number, from 1, or from the end if it is negative.
    Absolute(i64),
    /// The row that is so many rows later, or earlier.
    Relative(i64),
}

/// FETCH and MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor's name.
    pub name: String,
    /// Rows that are fetched.
    pub direction: Direction,
    /// MOVE: the rows are skipped.
    pub only_move: bool,
}

/// DISCARD of session state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Settings, prepared statements, cursors.
    All,
    /// Prepared plans.
    Plans,
    /// Temporary tables, which are dropped.
    Temporary,
    /// The session's memory of the last numbers of sequences.
    Sequences,
}

/// ADMIN function(arguments).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// Writes a table's memtables to files.
    FlushTable(TableName),
    /// Merges a table's files.
    CompactTable(TableName),
    /// An order that meta executes.
    Order(AdminOrder),
}
