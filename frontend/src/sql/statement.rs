//! What the parser makes of SQL: one [`Statement`] for each statement of the text.
//!
//! Statements that only DataFusion understands carry its own syntax tree ([`Query`]); everything else
//! is plain data that the session acts on without a planner. Names are already folded: unquoted ones
//! to lower case, quoted ones (`"x"` or `` `x` ``) exact.
//!
//! Invariants:
//! - a statement says only what this version does; whatever else the text asked for was an error of
//!   the parser, or is in [`CreateTable::notices`];
//! - `INSERT ... VALUES` keeps its rows as text: they are scanned straight into Arrow columns when
//!   the table is known, and no syntax tree of them is ever built.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::Expr;
use partita_proto::schema::{ColumnType, MergeMode, TableOptions, TextLength};
use partita_proto::service::AdminOrder;

use super::partitioning::PartitioningOption;
use super::repartition::Repartition;
use crate::output::Notice;

/// One SQL statement.
#[derive(Clone, Debug)]
pub enum Statement {
    /// SELECT, VALUES, TABLE, WITH: planned and run by DataFusion.
    Query(Query),
    /// EXPLAIN of a query, an INSERT or a DELETE.
    Explain(Explain),
    /// EXPLAIN HOTSPOT: why a table is hot.
    ExplainHotspot(TableName),
    /// INSERT, REPLACE or UPSERT: rows by key, the newest wins.
    Insert(Insert),
    /// DELETE FROM.
    Delete(Delete),
    /// COPY ... FROM STDIN.
    CopyFrom(CopyFrom),
    /// COPY ... TO STDOUT.
    CopyTo(CopyTo),
    /// CREATE DATABASE or SCHEMA.
    CreateDatabase(CreateDatabase),
    /// ALTER DATABASE or SCHEMA ... SET ('ttl' = ...).
    AlterDatabase(AlterDatabase),
    /// DROP DATABASE or SCHEMA.
    DropDatabase(DropDatabase),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// ALTER TABLE.
    AlterTable(AlterTable),
    /// ALTER TABLE ... SPLIT or MERGE.
    Repartition(Repartition),
    /// DROP TABLE.
    DropTable(DropTable),
    /// TRUNCATE.
    Truncate(Vec<TableName>),
    /// USE: the session's database from now on.
    Use(String),
    /// SHOW.
    Show(Show),
    /// DESCRIBE.
    Describe(TableName),
    /// SET and RESET of one setting.
    Set(Set),
    /// RESET ALL.
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
    /// DISCARD.
    Discard(Discard),
    /// ADMIN flush_table(...) and its like.
    Admin(Admin),
    /// UNLISTEN, which pools say when a connection comes back to them.
    Unlisten,
    /// Nothing between two semicolons, or only comments.
    Empty,
}

impl Statement {
    /// Whether it changes rows, tables or databases (EXECUTE does not say what it runs).
    pub fn writes(&self) -> bool {
        matches!(
            self,
            Self::Insert(_)
                | Self::Delete(_)
                | Self::CopyFrom(_)
                | Self::CreateDatabase(_)
                | Self::AlterDatabase(_)
                | Self::DropDatabase(_)
                | Self::CreateTable(_)
                | Self::AlterTable(_)
                | Self::Repartition(_)
                | Self::DropTable(_)
                | Self::Truncate(_)
        )
    }

    /// Whether it only reads, and leaves nothing behind in its session: what a GET request may run. EXECUTE does not
    /// say what it runs.
    pub fn reads(&self) -> bool {
        match self {
            Self::Query(_)
            | Self::ExplainHotspot(_)
            | Self::Show(_)
            | Self::Describe(_)
            | Self::Empty => true,
            // EXPLAIN ANALYZE runs what it explains.
            Self::Explain(explain) => explain.statement.reads(),
            _ => false,
        }
    }

    /// True when it takes planning, or work on expressions or rows that may be long: it runs on threads of its own.
    /// The others are over in microseconds, or only wait for another process. An INSERT of few literals does not
    /// need them either ([`Insert::is_light`]).
    pub fn needs_lane(&self) -> bool {
        match self {
            Self::Query(_)
            | Self::Explain(_)
            | Self::ExplainHotspot(_)
            | Self::Insert(_)
            | Self::Delete(_)
            | Self::CopyTo(_)
            | Self::CreateTable(_)
            | Self::AlterTable(_)
            | Self::Repartition(_)
            | Self::Prepare(_)
            | Self::Execute(_)
            | Self::Declare(_) => true,
            Self::CopyFrom(_)
            | Self::CreateDatabase(_)
            | Self::AlterDatabase(_)
            | Self::DropDatabase(_)
            | Self::DropTable(_)
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
            | Self::Unlisten
            | Self::Empty => false,
        }
    }

    /// What PostgreSQL's command tag says of it, without a row count; also its name in metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Query(_) => "SELECT",
            Self::Explain(_) | Self::ExplainHotspot(_) => "EXPLAIN",
            Self::Insert(_) => "INSERT",
            Self::Delete(_) => "DELETE",
            Self::CopyFrom(_) | Self::CopyTo(_) => "COPY",
            Self::CreateDatabase(_) => "CREATE DATABASE",
            Self::AlterDatabase(_) => "ALTER DATABASE",
            Self::DropDatabase(_) => "DROP DATABASE",
            Self::CreateTable(_) => "CREATE TABLE",
            Self::AlterTable(_) | Self::Repartition(_) => "ALTER TABLE",
            Self::DropTable(_) => "DROP TABLE",
            Self::Truncate(_) => "TRUNCATE TABLE",
            Self::Use(_) => "USE",
            Self::Show(_) => "SHOW",
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
            Self::Unlisten => "UNLISTEN",
            Self::Empty => "",
        }
    }

    /// Its text, for the statements whose work is worth a line in the query log.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Query(query) => Some(&query.text),
            Self::Explain(explain) => Some(&explain.text),
            Self::Insert(insert) => Some(&insert.text),
            Self::Delete(delete) => Some(&delete.text),
            Self::CopyFrom(copy) => Some(&copy.text),
            Self::CopyTo(copy) => Some(&copy.query.text),
            Self::Declare(declare) => Some(&declare.query.text),
            _ => None,
        }
    }
}

/// The name of a table; without a database it is in the session's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The database, when the text named one.
    pub database: Option<String>,
    /// The table.
    pub name: String,
}

impl TableName {
    /// A table of the session's database.
    pub fn bare(name: impl Into<String>) -> Self {
        Self { database: None, name: name.into() }
    }

    /// The database: the one named, else the session's.
    pub fn database_or<'a>(&'a self, session: &'a str) -> &'a str {
        self.database.as_deref().unwrap_or(session)
    }
}

impl fmt::Display for TableName {
    /// As the parser reads it back: quoted where folding or the grammar would change it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "{}.", super::identifier::quote(database))?;
        }
        f.write_str(&super::identifier::quote(&self.name))
    }
}

/// Something DataFusion plans.
#[derive(Clone, Debug)]
pub struct Query {
    /// The statement's text.
    pub text: Arc<str>,
    /// Its syntax tree, for `SessionState::statement_to_plan`.
    pub statement: PlannerStatement,
}

/// EXPLAIN.
#[derive(Clone, Debug)]
pub struct Explain {
    /// The statement's text.
    pub text: Arc<str>,
    /// ANALYZE, VERBOSE, FORMAT and the rest, in DataFusion's form.
    pub options: ExplainStatementOptions,
    /// A query, an INSERT or a DELETE.
    pub statement: Box<Statement>,
}

/// INSERT INTO.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The statement's text.
    pub text: Arc<str>,
    /// Where the text begins in what was parsed, in characters: error positions count from there.
    pub position: usize,
    /// The table.
    pub table: TableName,
    /// The columns in the order of the values; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Whether it is UPSERT: a row that exists keeps what the statement does not name.
    pub keeps: bool,
    /// Where the rows come from.
    pub source: InsertSource,
}

/// Longest text of an INSERT whose literals are scanned on the thread that read it, in bytes: a fraction of a
/// millisecond's work.
const LIGHT_BYTES_MAX: usize = 64 << 10;

impl Insert {
    /// True when its rows stand in a short text.
    pub fn is_light(&self) -> bool {
        !matches!(self.source, InsertSource::Query(_)) && self.text.len() <= LIGHT_BYTES_MAX
    }
}

/// Where an INSERT's rows come from.
#[derive(Clone, Debug)]
pub enum InsertSource {
    /// `VALUES (..), (..)`: this range of the text, from the first parenthesis.
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
    /// The table.
    pub table: TableName,
    /// What the predicate calls the table, if not by its name.
    pub alias: Option<String>,
    /// Which rows; `None`: all.
    pub predicate: Option<Expr>,
}

/// COPY ... FROM STDIN.
#[derive(Clone, Debug)]
pub struct CopyFrom {
    /// The statement's text.
    pub text: Arc<str>,
    /// The table.
    pub table: TableName,
    /// The columns in the order of the data; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Text, CSV or binary.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
}

/// COPY ... TO STDOUT.
#[derive(Clone, Debug)]
pub struct CopyTo {
    /// The rows: the query given, or a SELECT of the table's columns.
    pub query: Query,
    /// Text, CSV or binary.
    pub format: CopyFormat,
    /// Delimiter, quote and the rest.
    pub options: CopyOptions,
}

/// How COPY writes rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyFormat {
    /// Fields between delimiters, special characters behind backslashes.
    #[default]
    Text,
    /// Comma-separated values with quotes.
    Csv,
    /// PostgreSQL's binary form.
    Binary,
}

/// COPY's options; each is what PostgreSQL takes for its format unless said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Between fields: a tab in text, a comma in CSV.
    pub delimiter: u8,
    /// What stands for NULL: `\N` in text, nothing in CSV.
    pub null: String,
    /// Whether the first line names the columns.
    pub header: CopyHeader,
    /// CSV: around values.
    pub quote: u8,
    /// CSV: before a quote inside a value.
    pub escape: u8,
    /// CSV, in: the columns whose quoted values may be NULL too.
    pub force_null: CopyColumns,
    /// CSV, in: the columns that are never NULL.
    pub force_not_null: CopyColumns,
    /// CSV, out: the columns whose values are always quoted.
    pub force_quote: CopyColumns,
}

impl CopyOptions {
    /// What holds of a format when nothing is said.
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

/// What COPY's first line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyHeader {
    /// A row.
    None,
    /// Column names, not looked at.
    Skip,
    /// Column names, which must be the columns'.
    Match,
}

/// Which of the columns an option of COPY concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyColumns {
    /// No column.
    None,
    /// These.
    Some(Vec<String>),
    /// All.
    All,
}

impl CopyColumns {
    /// Whether it concerns a column.
    pub fn contains(&self, column: &str) -> bool {
        match self {
            Self::None => false,
            Self::Some(columns) => columns.iter().any(|name| name == column),
            Self::All => true,
        }
    }
}

/// CREATE DATABASE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDatabase {
    /// Its name.
    pub name: String,
    /// No error when it exists.
    pub if_not_exists: bool,
    /// `WITH ('ttl' = ...)`.
    pub ttl: Option<Duration>,
}

/// ALTER DATABASE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterDatabase {
    /// Its name.
    pub name: String,
    /// The new `ttl`; `None`: for ever.
    pub ttl: Option<Duration>,
}

/// DROP DATABASE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropDatabase {
    /// Its name.
    pub name: String,
    /// No error when it does not exist.
    pub if_exists: bool,
}

/// CREATE TABLE as it was written; [`CreateTable::to_new_table`] makes of it what meta is told.
#[derive(Clone, Debug)]
pub struct CreateTable {
    /// The table.
    pub table: TableName,
    /// No error when it exists.
    pub if_not_exists: bool,
    /// The columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// The columns named by PRIMARY KEY, wherever it stood.
    pub primary_key: Option<Vec<String>>,
    /// The column named by TIME INDEX, wherever it stood.
    pub time_index: Option<String>,
    /// How rows are placed.
    pub partitioning: Partitioning,
    /// Where the key space is cut from the beginning: ascending tuples of literals, the placement
    /// first for tables that have one. `None`: as the partitioning says.
    pub cuts: Option<Vec<Vec<Expr>>>,
    /// `UNIFORM_PARTITIONS` of a table placed by range: so many equal parts of the first key column's values.
    pub uniform: Option<u16>,
    /// Whether rows that bring unknown columns add them.
    pub schema_on_write: bool,
    /// What WITH and ENGINE said.
    pub options: TableOptions,
    /// What was accepted but is not what its writer may expect.
    pub notices: Vec<Notice>,
}

/// One column of CREATE TABLE or ADD COLUMN.
#[derive(Clone, Debug)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// The number of characters of VARCHAR(n) and CHAR(n).
    pub length: Option<TextLength>,
    /// NULL or NOT NULL, when said.
    pub nullable: Option<bool>,
    /// DEFAULT, as SQL text.
    pub default: Option<String>,
    /// GENERATED ALWAYS AS (..) STORED, as SQL text.
    pub generated: Option<String>,
    /// COMMENT.
    pub comment: Option<String>,
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
        /// How many partitions there are from the beginning.
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

/// ALTER TABLE.
#[derive(Clone, Debug)]
pub struct AlterTable {
    /// The table.
    pub table: TableName,
    /// No error when it does not exist.
    pub if_exists: bool,
    /// What changes, in order.
    pub changes: Vec<AlterChange>,
    /// What was accepted but is not what its writer may expect.
    pub notices: Vec<Notice>,
}

/// One change of ALTER TABLE.
#[derive(Clone, Debug)]
pub enum AlterChange {
    /// ADD COLUMN.
    AddColumn {
        /// The column.
        column: Box<ColumnDefinition>,
        /// It becomes part of the key (before the time index).
        tag: bool,
        /// No error when it exists with the same type and meaning.
        if_not_exists: bool,
    },
    /// DROP COLUMN.
    DropColumn {
        /// The column.
        name: String,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// RENAME COLUMN.
    RenameColumn {
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// ALTER COLUMN ... SET DEFAULT or DROP DEFAULT.
    SetDefault {
        /// The column.
        column: String,
        /// The expression; `None`: no default.
        default: Option<Box<Expr>>,
    },
    /// SET ('option' = 'value') and UNSET 'option'.
    SetOption(TableOption),
    /// RENAME TO.
    Rename(String),
    /// PARTITION BY, or SET 'hash_buckets': new rows are placed otherwise.
    Repartition(NewPlacement),
}

/// How new rows of a table are to be placed.
#[derive(Clone, Debug)]
pub enum NewPlacement {
    /// `PARTITION BY HASH (columns) PARTITIONS n`.
    Hash {
        /// The hashed columns.
        columns: Vec<String>,
        /// How many partitions there are from the beginning.
        partitions: u16,
    },
    /// `SET ('hash_buckets' = n)`: by hash of what tells series apart.
    BySeries {
        /// How many partitions there are from the beginning.
        partitions: u16,
    },
    /// `PARTITION BY RANGE (columns) [SPLIT AT ((value, ..), ..)]`.
    Range {
        /// The columns, which must be the key's first ones.
        columns: Vec<String>,
        /// Where the key space is cut from the beginning.
        cuts: Vec<Vec<Expr>>,
    },
}

/// One option of a table that may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableOption {
    /// `'ttl'`; `None`: for ever.
    Ttl(Option<Duration>),
    /// `'time_window'`; `None`: chosen from the data.
    TimeWindow(Option<Duration>),
    /// `'comment'`.
    Comment(Option<String>),
    /// `'replication_factor'`; `None`: as the cluster has it.
    ReplicationFactor(Option<u32>),
    /// `'append_mode'`.
    AppendMode(bool),
    /// `'merge_mode'`.
    MergeMode(MergeMode),
    /// `'auto_partitioning_..'` and `'hotspot_remedy'`.
    Partitioning(PartitioningOption),
}

/// DROP TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropTable {
    /// The tables.
    pub tables: Vec<TableName>,
    /// No error when one does not exist.
    pub if_exists: bool,
}

/// SHOW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Show {
    /// `SHOW DATABASES [LIKE pattern]`.
    Databases {
        /// The LIKE pattern.
        like: Option<String>,
    },
    /// `SHOW [FULL] TABLES [FROM database] [LIKE pattern]`.
    Tables {
        /// Of which database, if not the session's.
        database: Option<String>,
        /// The LIKE pattern.
        like: Option<String>,
        /// Whether a column `Table_type` is wanted.
        full: bool,
    },
    /// SHOW CREATE TABLE.
    CreateTable(TableName),
    /// SHOW COLUMNS FROM.
    Columns(TableName),
    /// SHOW PARTITIONS FROM.
    Partitions(TableName),
    /// `SHOW TAG KEYS [FROM table]`.
    TagKeys(Option<TableName>),
    /// `SHOW FIELD KEYS [FROM table]`.
    FieldKeys(Option<TableName>),
    /// `SHOW MEASUREMENTS [ON database]`.
    Measurements {
        /// Of which database, if not the session's.
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
    /// Its name, folded, with dots; `SET TIME ZONE` is `timezone`, `SET NAMES` is `client_encoding`.
    pub name: String,
    /// Its value.
    pub value: SetValue,
    /// SET LOCAL: until the transaction ends.
    pub local: bool,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetValue {
    /// What it is when nobody sets it.
    Default,
    /// One value, or the members of a list such as `search_path`'s.
    Values(Vec<String>),
}

/// What is asked of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// Whether it asks for more than READ COMMITTED.
    pub isolated: bool,
}

/// Statements about transactions. They are accepted for the clients that send them; a statement is
/// atomic per partition with or without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SAVEPOINT.
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

/// PREPARE.
#[derive(Clone, Debug)]
pub struct PrepareStatement {
    /// Its name.
    pub name: String,
    /// The types of the first parameters; the others' are inferred.
    pub types: Vec<DataType>,
    /// What is prepared: a query, an INSERT or a DELETE.
    pub statement: Box<Statement>,
}

/// EXECUTE.
#[derive(Clone, Debug)]
pub struct Execute {
    /// What PREPARE called it.
    pub name: String,
    /// One expression for each parameter; [`super::literal::scalar`] evaluates it.
    pub parameters: Vec<Expr>,
}

/// DECLARE ... CURSOR FOR.
#[derive(Clone, Debug)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Its rows.
    pub query: Query,
}

/// FETCH and MOVE, forward only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor's name.
    pub name: String,
    /// At most so many rows; `None`: all that are left.
    pub count: Option<u64>,
    /// MOVE: skip them.
    pub only_move: bool,
}

/// DISCARD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Settings, prepared statements, cursors.
    All,
    /// Prepared plans.
    Plans,
    /// Temporary tables, sequences: there are none.
    Temporary,
}

/// ADMIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// Writes a table's memtables to files.
    FlushTable(TableName),
    /// Merges a table's files.
    CompactTable(TableName),
    /// What meta carries out.
    Order(AdminOrder),
}
