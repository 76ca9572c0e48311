//! CREATE TABLE: columns and constraints in any order, then clauses in any order.
//!
//! ```text
//! CREATE [UNLOGGED] TABLE [IF NOT EXISTS] [database.]table (
//!     column type [NULL | NOT NULL] [DEFAULT ..] [GENERATED ALWAYS AS (..) [STORED]] [COMMENT '..']
//!                 [PRIMARY KEY] [TIME INDEX] [{INVERTED | SKIPPING | FULLTEXT} INDEX [WITH (..)]], ..
//!     PRIMARY KEY (..), TIME INDEX (..), {INVERTED | SKIPPING | FULLTEXT} INDEX (..) [WITH (..)],
//!     LIKE table [{INCLUDING | EXCLUDING} property ..], ..
//! )
//! [PARTITION BY RANGE (..) | PARTITION BY HASH (..) PARTITIONS n | PARTITION ON COLUMNS (..) (rule, ..)]
//! [SPLIT AT ((value, ..), ..)] [ENGINE = mito] [COMMENT '..'] [WITH (option = value, ..)]
//!
//! CREATE [UNLOGGED] TABLE [IF NOT EXISTS] [database.]table WIDE (ROW KEY type) FAMILIES (..) [clauses]
//! CREATE [UNLOGGED] TABLE [IF NOT EXISTS] [database.]table LIKE table
//! CREATE [UNLOGGED] TABLE [IF NOT EXISTS] [database.]table [(column, .., PRIMARY KEY (..), ..)] [clauses] AS query
//! ```
//!
//! This file parses; [`super::new_table`] checks. What is like another table is in `like.rs`, what follows AS in
//! `create_as.rs`, what makes a table wide in `wide_statement.rs`.

use datafusion::sql::sqlparser::ast::{self, Expr};
use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::index::IndexOptions;
use partita_proto::schema::TableOptions;
use partita_proto::wide::Family;

use super::bound_words::CutTuple;
use super::options::{OptionPair, OptionValue, foreign_notice};
use super::statement::{
    CheckDefinition, ColumnDefinition, Copied, CreateTable, LikeTable, Partitioning, Statement,
    TableName, TableOption,
};
use super::tokens::Tokens;
use super::wide_statement::complete;
use crate::error::{SqlError, UNDEFINED_COLUMN};
use crate::notice::Notice;

/// The parts of the statement that have been parsed.
#[derive(Default)]
struct Draft {
    is_temporary: bool,
    columns: Vec<ColumnDefinition>,
    /// Names without types: those of a query's columns.
    names: Vec<String>,
    /// The error of the first of them, if no query follows.
    missing_type: Option<SqlError>,
    likes: Vec<LikeTable>,
    checks: Vec<CheckDefinition>,
    primary_key: Option<Vec<String>>,
    time_index: Option<String>,
    partitioning: Option<Partitioning>,
    /// `partitions = n` and `partition_by = '..'` may come in any order.
    partitions: Option<u16>,
    uniform: Option<u16>,
    cuts: Option<Vec<CutTuple>>,
    options: TableOptions,
    merge_mode_given: bool,
    /// Indexes that are declared beside the columns.
    indexes: Vec<DeclaredIndex>,
    schema_on_write: bool,
    /// WIDE, or `kind = 'wide'`.
    is_wide: bool,
    /// Options that have no effect.
    foreign: Vec<String>,
    notices: Vec<Notice>,
}

impl Draft {
    /// Checks that the columns are those of a query, whose types come from it.
    fn check_of_query(&self) -> Result<(), SqlError> {
        let feature = match (self.columns.first(), self.likes.is_empty(), self.indexes.is_empty()) {
            (Some(_), ..) => "a column with a type",
            (None, false, _) => "LIKE",
            (None, true, false) => "an index",
            (None, true, true) => return Ok(()),
        };
        let error = SqlError::unsupported(format!("{feature} in CREATE TABLE ... AS"));
        Err(error.with_hint("create the table, then INSERT INTO ... SELECT"))
    }
}

/// The statement of these parts.
fn created(table: TableName, if_not_exists: bool, draft: Draft) -> CreateTable {
    CreateTable {
        table,
        if_not_exists,
        is_temporary: draft.is_temporary,
        columns: draft.columns,
        likes: draft.likes,
        checks: draft.checks,
        primary_key: draft.primary_key,
        time_index: draft.time_index,
        partitioning: draft.partitioning.unwrap_or(Partitioning::Range { columns: Vec::new() }),
        cuts: draft.cuts,
        uniform: draft.uniform,
        schema_on_write: draft.schema_on_write,
        options: draft.options,
        notices: draft.notices,
    }
}

/// `INVERTED INDEX (column)` beside the columns.
struct DeclaredIndex {
    column: String,
    name: Option<String>,
    options: IndexOptions,
    /// Position of the clause, in characters.
    position: usize,
}

impl Tokens<'_> {
    /// Takes what follows CREATE [UNLOGGED | TEMPORARY] TABLE. `notices` are those of the words before.
    pub(super) fn create_table(
        &mut self,
        is_temporary: bool,
        notices: Vec<Notice>,
    ) -> Result<Statement, SqlError> {
        let if_not_exists = self.if_not_exists();
        let table = self.table_name()?;
        let mut draft = Draft { is_temporary, notices, ..Draft::default() };
        // Forms of other databases are refused by name.
        if self.at("partition") && self.at_nth(1, "of") {
            return Err(self
                .unsupported("CREATE TABLE ... PARTITION OF")
                .with_hint("give the partitions in the table's own PARTITION clause"));
        }
        if self.take(&["like"]) {
            let like =
                LikeTable { table: self.table_name()?, position: 0, copied: Copied::Everything };
            self.expect_end()?;
            draft.likes.push(like);
            let create = created(table, if_not_exists, draft);
            return Ok(Statement::CreateTable(Box::new(create)));
        }
        if self.at("wide") && matches!(self.peek_nth(1).token, Token::LParen) {
            self.next();
            draft.is_wide = true;
            draft.columns = self.wide_columns(&mut draft.notices)?;
            while self.create_clause(&mut draft)? {}
            self.expect_end()?;
            let create = created(table, if_not_exists, self.finish(draft)?);
            return Ok(Statement::CreateTable(Box::new(create)));
        }
        // Columns and constraints, then clauses. The columns may be those of a query.
        let position = self.position();
        let are_listed = self.take_mark(&Token::LParen);
        let without_list = self.unexpected("\"(\"");
        while are_listed && !self.take_mark(&Token::RParen) {
            self.create_item(&mut draft)?;
            if !self.take_mark(&Token::Comma) {
                self.expect_mark(&Token::RParen)?;
                break;
            }
        }
        while self.create_clause(&mut draft)? {}
        if self.at("as") {
            draft.check_of_query().map_err(|error| error.with_position(position))?;
            self.next();
            let names = std::mem::take(&mut draft.names);
            let create = created(table, if_not_exists, self.finish(draft)?);
            return self.create_table_as(create, names);
        }
        if !are_listed {
            return Err(without_list);
        }
        if let Some(error) = draft.missing_type.take() {
            return Err(error);
        }
        self.expect_end()?;
        let create = created(table, if_not_exists, self.finish(draft)?);
        Ok(Statement::CreateTable(Box::new(create)))
    }

    /// Checks that depend on clauses in any order.
    fn finish(&self, mut draft: Draft) -> Result<Draft, SqlError> {
        add_indexes(&mut draft)?;
        if draft.is_wide || draft.options.wide.is_some() {
            complete(&mut draft.columns, &mut draft.primary_key, &mut draft.options);
        }
        draft.notices.extend(foreign_notice(&draft.foreign));
        if draft.options.append_mode && draft.merge_mode_given {
            return Err(SqlError::new(
                "42P16",
                "'merge_mode' cannot be set on a table with 'append_mode' = 'true', which keeps \
                 every row",
            ));
        }
        if draft.uniform.is_some() && draft.cuts.is_some() {
            return Err(
                self.located(SqlError::syntax("partition boundaries are specified more than once"))
            );
        }
        // PARTITION BY HASH has its number of partitions in PARTITIONS; UNIFORM_PARTITIONS means the same.
        if let (Some(Partitioning::Hash { .. }), Some(number)) =
            (&draft.partitioning, draft.uniform)
        {
            draft.uniform = None;
            if draft.partitions.replace(number).is_some_and(|previous| previous != number) {
                return Err(
                    self.located(SqlError::syntax("PARTITIONS is specified more than once"))
                );
            }
        }
        if draft.uniform.is_some() && matches!(draft.partitioning, Some(Partitioning::Rules { .. }))
        {
            return Err(self.located(SqlError::syntax(
                "UNIFORM_PARTITIONS cannot be combined with PARTITION ON COLUMNS",
            )));
        }
        match (&mut draft.partitioning, draft.partitions) {
            (Some(Partitioning::Hash { partitions, .. }), Some(number)) => *partitions = number,
            (Some(Partitioning::Hash { partitions: 0, .. }), None) => {
                return Err(self.located(SqlError::syntax(
                    "PARTITION BY HASH requires PARTITIONS and a number",
                )));
            }
            (_, Some(_)) => {
                return Err(self.located(SqlError::syntax(
                    "PARTITIONS and a number require PARTITION BY HASH",
                )));
            }
            _ => {}
        }
        Ok(draft)
    }

    /// Takes a column or a constraint.
    fn create_item(&mut self, draft: &mut Draft) -> Result<(), SqlError> {
        // The name of another constraint than CHECK is accepted and not stored.
        let mut name = None;
        if self.at("constraint") && !matches!(self.peek_nth(2).token, Token::Comma | Token::RParen)
        {
            self.next();
            name = Some(self.name("a constraint's name")?);
        }
        if self.take(&["like"]) {
            draft.likes.push(self.like_table(draft.columns.len())?);
            return Ok(());
        }
        let parenthesis = |tokens: &Self, n| matches!(tokens.peek_nth(n).token, Token::LParen);
        // Constraints that Partita has.
        if self.at("check") && parenthesis(self, 1) {
            draft.checks.push(self.check_constraint(name, None)?);
            return Ok(());
        }
        if self.at("primary") && self.at_nth(1, "key") {
            let position = self.position();
            self.take(&["primary", "key"]);
            if self.at("using") {
                return Err(self.unsupported("PRIMARY KEY USING"));
            }
            let columns = self.key_columns()?;
            return set_primary_key(draft, columns).map_err(|error| error.with_position(position));
        }
        if self.at("time") && self.at_nth(1, "index") && parenthesis(self, 2) {
            let position = self.position();
            self.take(&["time", "index"]);
            let columns = self.columns()?;
            let [column] = columns.as_slice() else {
                return Err(SqlError::syntax("TIME INDEX takes one column").with_position(position));
            };
            return set_time_index(draft, column.clone())
                .map_err(|error| error.with_position(position));
        }
        if let Some(kind) = self.take_index() {
            let position = self.position();
            let columns = self.columns()?;
            let (name, options) = self.index_options(kind)?;
            draft.indexes.extend(columns.into_iter().map(|column| {
                let name = name.clone();
                DeclaredIndex { column, name, options, position }
            }));
            return Ok(());
        }
        // Constraints of other databases are refused; a column may have one of these names.
        for (word, kind) in [
            ("unique", "UNIQUE"),
            ("foreign", "FOREIGN KEY"),
            ("exclude", "EXCLUDE"),
            ("index", "INDEX"),
        ] {
            let constraint = self.at(word)
                && (parenthesis(self, 1) || self.at_nth(1, "key") || self.at_nth(1, "using"));
            if constraint {
                return Err(self.unsupported(format!("{kind} in CREATE TABLE")));
            }
        }
        // Everything else is a column; a name alone is that of a query's column.
        if matches!(self.peek_nth(1).token, Token::Comma | Token::RParen) {
            draft.names.push(self.name("a column name")?);
            let missing_type = self.unexpected("a type");
            draft.missing_type.get_or_insert(missing_type);
            return Ok(());
        }
        let position = self.position();
        let clause = self.column_clause(&mut draft.notices)?;
        let name = clause.definition.name.clone();
        draft.columns.push(clause.definition);
        draft.checks.extend(clause.checks);
        if clause.primary_key {
            set_primary_key(draft, vec![name.clone()]).map_err(|e| e.with_position(position))?;
        }
        if clause.time_index {
            set_time_index(draft, name).map_err(|error| error.with_position(position))?;
        }
        Ok(())
    }

    /// Takes the list of PRIMARY KEY: names, each optionally followed by ASC.
    pub(super) fn key_columns(&mut self) -> Result<Vec<String>, SqlError> {
        let columns = self.list(|tokens| {
            let column = tokens.name("a column name")?;
            if matches!(tokens.peek().token, Token::LParen) {
                return Err(tokens.unsupported("an expression in PRIMARY KEY").with_hint(
                    "make it a column: h BIGINT UNSIGNED GENERATED ALWAYS AS (hash64(a)) STORED, \
                     PRIMARY KEY (h, a, ..)",
                ));
            }
            tokens.take(&["asc"]);
            if tokens.at("desc") {
                return Err(tokens.unsupported("a descending key column"));
            }
            Ok(column)
        })?;
        if columns.is_empty() {
            return Err(self.located(SqlError::syntax("PRIMARY KEY requires at least one column")));
        }
        Ok(columns)
    }

    /// Takes one clause after the columns; false when none comes next.
    fn create_clause(&mut self, draft: &mut Draft) -> Result<bool, SqlError> {
        let position = self.position();
        // Partitioning.
        if self.take(&["partition", "by"]) {
            let kind = self.name("RANGE or HASH")?;
            let partitioning = match kind.as_str() {
                "range" => Partitioning::Range { columns: self.columns()? },
                "hash" => Partitioning::Hash { columns: self.columns()?, partitions: 0 },
                kind => {
                    return Err(SqlError::unsupported(format!(
                        "PARTITION BY {}",
                        kind.to_ascii_uppercase()
                    ))
                    .with_position(position)
                    .with_hint("use RANGE, HASH or PARTITION ON COLUMNS"));
                }
            };
            set_partitioning(draft, partitioning).map_err(|e| e.with_position(position))?;
        } else if self.take(&["partition", "on", "columns"]) {
            let columns = self.columns()?;
            let rules = self.list(Self::expression)?;
            if rules.is_empty() {
                return Err(self.located(SqlError::syntax(
                    "PARTITION ON COLUMNS requires at least one expression",
                )));
            }
            set_partitioning(draft, Partitioning::Rules { columns, rules })
                .map_err(|error| error.with_position(position))?;
        } else if self.take(&["partitions"]) {
            let number = self.unsigned("a number of partitions")?;
            set_partitions(draft, number).map_err(|error| error.with_position(position))?;
        } else if self.take(&["split", "at"]) {
            let cuts = self.tuples()?;
            set_cuts(draft, cuts).map_err(|error| error.with_position(position))?;
        } else if self.take(&["families"]) {
            let families = self.families()?;
            set_families(draft, families).map_err(|error| error.with_position(position))?;
        // Options, in clauses of their own or in WITH.
        } else if self.take(&["engine"]) {
            self.take_mark(&Token::Eq);
            let engine = match self.string() {
                Ok(engine) => engine,
                Err(_) => self.name("an engine's name")?,
            };
            if !engine.eq_ignore_ascii_case("mito") {
                return Err(SqlError::unsupported(format!("ENGINE = {engine}"))
                    .with_position(position)
                    .with_hint("there is one engine; leave the clause out"));
            }
        } else if self.take(&["comment"]) {
            self.take_mark(&Token::Eq);
            draft.options.comment = Some(self.string()?).filter(|text| !text.is_empty());
        } else if self.at("on") && self.at_nth(1, "commit") {
            if !draft.is_temporary {
                let message = "ON COMMIT can only be used on temporary tables";
                return Err(self.located(SqlError::new("42P16", message)));
            }
            if !self.take(&["on", "commit", "preserve", "rows"]) {
                return Err(self.unsupported("ON COMMIT DROP or DELETE ROWS"));
            }
        } else if self.take(&["with"]) {
            for pair in self.options()? {
                table_option(draft, &pair)?;
            }
        } else {
            // Clauses of other databases are refused by name.
            for (word, clause) in [
                ("inherits", "INHERITS"),
                ("tablespace", "TABLESPACE"),
                ("using", "USING"),
                ("order", "ORDER BY in CREATE TABLE"),
                ("clustered", "CLUSTERED BY"),
            ] {
                if self.at(word) {
                    return Err(self.unsupported(clause));
                }
            }
            return Ok(false);
        }
        Ok(true)
    }
}

/// Adds the indexes that are declared beside the columns to them.
fn add_indexes(draft: &mut Draft) -> Result<(), SqlError> {
    for index in std::mem::take(&mut draft.indexes) {
        let DeclaredIndex { column: column_name, name, options, position } = index;
        let column = draft.columns.iter_mut().find(|column| column.name == column_name);
        let column = column.ok_or_else(|| {
            let kind = options.kind().sql();
            let message = format!("column \"{column_name}\" named in {kind} INDEX does not exist");
            SqlError::new(UNDEFINED_COLUMN, message).with_position(position)
        })?;
        column.add_index(name, options).map_err(|error| error.with_position(position))?;
    }
    Ok(())
}

fn set_primary_key(draft: &mut Draft, columns: Vec<String>) -> Result<(), SqlError> {
    if draft.primary_key.replace(columns).is_some() {
        return Err(SqlError::new("42P16", "multiple primary keys for a table are not allowed")
            .with_hint("a key of several columns is written PRIMARY KEY (a, b)"));
    }
    Ok(())
}

fn set_time_index(draft: &mut Draft, column: String) -> Result<(), SqlError> {
    match &draft.time_index {
        Some(previous) if *previous != column => Err(SqlError::new(
            "42P16",
            format!(
                "a table can have only one TIME INDEX, but both \"{previous}\" and \"{column}\" are declared so"
            ),
        )),
        _ => {
            draft.time_index = Some(column);
            Ok(())
        }
    }
}

fn set_partitioning(draft: &mut Draft, partitioning: Partitioning) -> Result<(), SqlError> {
    if draft.partitioning.replace(partitioning).is_some() {
        return Err(SqlError::syntax("the partitioning is specified more than once"));
    }
    Ok(())
}

fn set_partitions(draft: &mut Draft, number: u64) -> Result<(), SqlError> {
    let number = u16::try_from(number).ok().filter(|number| *number > 0);
    let Some(number) = number else {
        return Err(SqlError::new("22023", "PARTITIONS takes a number from 1 to 65535"));
    };
    if draft.partitions.replace(number).is_some() {
        return Err(SqlError::syntax("PARTITIONS is specified more than once"));
    }
    Ok(())
}

fn set_families(draft: &mut Draft, families: Vec<Family>) -> Result<(), SqlError> {
    let wide = draft.options.wide.get_or_insert_default();
    if !wide.families.is_empty() {
        return Err(SqlError::syntax("the column families are specified more than once"));
    }
    wide.families = families;
    Ok(())
}

fn set_cuts(draft: &mut Draft, cuts: Vec<CutTuple>) -> Result<(), SqlError> {
    if cuts.iter().any(|cut| cut.values.is_empty()) {
        return Err(SqlError::syntax("a partition boundary must have at least one value"));
    }
    if draft.cuts.replace(cuts).is_some() {
        return Err(SqlError::syntax("partition boundaries are specified more than once"));
    }
    Ok(())
}

/// Applies one option of WITH.
fn table_option(draft: &mut Draft, pair: &OptionPair) -> Result<(), SqlError> {
    let located = |error: SqlError| error.with_position(pair.position);
    if pair.is_foreign() {
        draft.foreign.push(pair.key.clone());
        return Ok(());
    }
    // Options that ALTER TABLE has too.
    if let Some(option) = pair.table_option()? {
        draft.merge_mode_given |= matches!(option, TableOption::MergeMode(_));
        option.apply(&mut draft.options);
        return Ok(());
    }
    // Options that stand for clauses of CREATE TABLE.
    match pair.key.as_str() {
        "schema_on_write" => draft.schema_on_write = pair.bool()?,
        "kind" => match pair.text()? {
            "wide" => draft.is_wide = true,
            _ => return Err(pair.wrong("'wide'")),
        },
        "time_index" => {
            let names = pair.names()?;
            let [name] = names.as_slice() else { return Err(pair.wrong("one column")) };
            set_time_index(draft, name.clone()).map_err(located)?;
        }
        "primary_key" => set_primary_key(draft, pair.names()?).map_err(located)?,
        "partition_by" => {
            let partitioning = partition_by(pair)?;
            set_partitioning(draft, partitioning).map_err(located)?;
        }
        "partitions" => set_partitions(draft, pair.number()?).map_err(located)?,
        "partition_at_keys" => match &pair.value {
            OptionValue::Tuples(tuples) => {
                let tuple = |tuple: &CutTuple| CutTuple {
                    values: tuple.values.iter().map(unquoted).collect(),
                    is_after: tuple.is_after,
                };
                set_cuts(draft, tuples.iter().map(tuple).collect()).map_err(located)?;
            }
            _ => return Err(pair.wrong("a list of keys such as ((100, 'abc'), (200, 'x'))")),
        },
        "uniform_partitions" => {
            let number = u16::try_from(pair.number()?).ok().filter(|number| *number > 0);
            draft.uniform =
                Some(number.ok_or_else(|| pair.wrong("a number of partitions from 1 to 65535"))?);
        }
        // PostgreSQL's only storage parameter that its own tools set.
        "fillfactor" => {
            if !(10..=100).contains(&pair.number()?) {
                return Err(pair.wrong("a number from 10 to 100"));
            }
            let message = "option 'fillfactor' changes nothing: files are always full";
            draft.notices.push(Notice::notice(message));
        }
        "hash_buckets" => {
            return Err(located(
                SqlError::unsupported("option 'hash_buckets'")
                    .with_hint("PARTITION BY HASH (columns) PARTITIONS n places rows by hash"),
            ));
        }
        _ => return Err(pair.unknown()),
    }
    Ok(())
}

/// `'hash(host)'` or `'range(host, ts)'`.
fn partition_by(pair: &OptionPair) -> Result<Partitioning, SqlError> {
    let wrong = |_| pair.wrong("'hash(columns)' or 'range(columns)'");
    let mut tokens = Tokens::new(pair.text()?, 0).map_err(wrong)?;
    let kind = tokens.name("").map_err(wrong)?;
    let columns = tokens.columns().map_err(wrong)?;
    tokens.expect_end().map_err(wrong)?;
    match kind.as_str() {
        "hash" => Ok(Partitioning::Hash { columns, partitions: 0 }),
        "range" => Ok(Partitioning::Range { columns }),
        _ => Err(wrong(SqlError::syntax(""))),
    }
}

/// YQL writes strings in double quotes, which are identifiers in all other dialects.
fn unquoted(expression: &Expr) -> Expr {
    match expression {
        Expr::Identifier(name) if name.quote_style.is_some() => {
            Expr::Value(ast::Value::SingleQuotedString(name.value.clone()).with_empty_span())
        }
        literal => literal.clone(),
    }
}
