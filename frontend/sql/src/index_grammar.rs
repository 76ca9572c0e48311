//! Grammar of indexes.
//!
//! ```text
//! CREATE INDEX [CONCURRENTLY] [IF NOT EXISTS] [name] ON table USING {inverted | skipping | fulltext} (column)
//!     [WITH (..)]
//! DROP INDEX [CONCURRENTLY] [IF EXISTS] [database.]name [ON table]
//! {INVERTED | SKIPPING | FULLTEXT} INDEX [WITH (option = value, ..)]       in a column, and after ALTER COLUMN c SET
//! ```
//!
//! Options of every kind: `name`. SKIPPING: `granularity`, `false_positive_rate`, `type`. FULLTEXT: `analyzer`,
//! `case_sensitive`, `backend`, and those of SKIPPING but `type` with the backend `bloom`.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::index::{
    Analyzer, Backend, Blooms, Fulltext, GRANULARITY_MAX, IndexKind, IndexOptions,
};

use super::identifier::fold;
use super::index_statement::{CreateIndex, DropIndex};
use super::options::{OptionPair, OptionValue};
use super::statement::Statement;
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// Advice after an index of another kind than those of this version.
const KINDS: &str = "use USING inverted, skipping or fulltext";
/// Millionths in the largest rate of false positives.
const FALSE_POSITIVES_PPM_MAX: u32 = 500_000;

impl Tokens<'_> {
    /// Takes the name of a kind of index and INDEX.
    pub(super) fn take_index(&mut self) -> Option<IndexKind> {
        IndexKind::ALL.into_iter().find(|kind| self.take(&[kind.method(), "index"]))
    }

    /// Takes [WITH (..)] after the kind; the name is the option `name`.
    pub(super) fn index_options(
        &mut self,
        kind: IndexKind,
    ) -> Result<(Option<String>, IndexOptions), SqlError> {
        let pairs = if self.take(&["with"]) { self.options()? } else { Vec::new() };
        let mut draft = Draft { blooms: default_blooms(kind), ..Draft::default() };
        for pair in &pairs {
            draft.set(kind, pair)?;
        }
        let options = match kind {
            IndexKind::Inverted => IndexOptions::Inverted,
            IndexKind::Skipping => IndexOptions::Skipping(draft.blooms),
            IndexKind::Fulltext => {
                let backend = match draft.is_inverted {
                    true => Backend::Inverted,
                    false => Backend::Bloom(draft.blooms),
                };
                let Draft { analyzer, case_sensitive, .. } = draft;
                IndexOptions::Fulltext(Fulltext { analyzer, case_sensitive, backend })
            }
        };
        if draft.is_inverted
            && let Some(pair) = pairs.iter().find(|pair| is_of_blooms(&pair.key))
        {
            let message = format!("option '{}' requires the backend 'bloom'", pair.key);
            let error = SqlError::new(INVALID_PARAMETER_VALUE, message);
            return Err(error.with_position(pair.position));
        }
        Ok((draft.name, options))
    }

    /// Takes what follows CREATE INDEX.
    pub(super) fn create_index(&mut self) -> Result<Statement, SqlError> {
        self.take(&["concurrently"]);
        let if_not_exists = self.if_not_exists();
        let position = self.position();
        let name = if self.at("on") { None } else { Some(self.name("an index name")?) };
        self.expect("on")?;
        self.take(&["only"]);
        let table = self.table_name()?;
        if !self.at("using") && matches!(self.peek().token, Token::LParen) {
            return Err(self.unsupported("CREATE INDEX without USING").with_hint(KINDS));
        }
        self.expect("using")?;
        let method_position = self.position();
        let method = self.name("a kind of index")?;
        let kind = IndexKind::of_method(&method).ok_or_else(|| {
            let error = SqlError::unsupported(format!("an index USING {method}"));
            error.with_position(method_position).with_hint(KINDS)
        })?;
        let column = self.indexed_column()?;
        // Clauses of other databases are refused by name.
        for (word, clause) in
            [("include", "CREATE INDEX ... INCLUDE"), ("nulls", "CREATE INDEX ... NULLS")]
        {
            if self.at(word) {
                return Err(self.unsupported(clause));
            }
        }
        let (option_name, options) = self.index_options(kind)?;
        for (word, clause) in
            [("tablespace", "CREATE INDEX ... TABLESPACE"), ("where", "CREATE INDEX ... WHERE")]
        {
            if self.at(word) {
                return Err(self.unsupported(clause));
            }
        }
        if name.is_some() && option_name.is_some() {
            let error = SqlError::syntax("the name of the index is specified more than once");
            return Err(error.with_position(position));
        }
        let name = name.or(option_name);
        Ok(Statement::CreateIndex(CreateIndex { name, table, column, options, if_not_exists }))
    }

    /// Takes `(column)`.
    fn indexed_column(&mut self) -> Result<String, SqlError> {
        let position = self.position();
        let mut columns = self.list(|tokens| {
            if matches!(tokens.peek().token, Token::LParen) {
                return Err(tokens.unsupported("an index on an expression"));
            }
            let column = tokens.name("a column name")?;
            if matches!(tokens.peek().token, Token::LParen) {
                return Err(tokens.unsupported("an index on an expression"));
            }
            tokens.take(&["asc"]);
            Ok(column)
        })?;
        match (columns.pop(), columns.is_empty()) {
            (Some(column), true) => Ok(column),
            (Some(_), false) => Err(SqlError::unsupported("an index on several columns")
                .with_position(position)
                .with_hint("create an index for each column")),
            (None, _) => Err(SqlError::syntax("an index needs a column").with_position(position)),
        }
    }

    /// Takes what follows DROP INDEX.
    pub(super) fn drop_index(&mut self) -> Result<Statement, SqlError> {
        self.take(&["concurrently"]);
        let if_exists = self.if_exists();
        let mut name = self.name("an index name")?;
        let mut database = None;
        if self.take_mark(&Token::Period) {
            database = Some(std::mem::replace(&mut name, self.name("an index name")?));
        }
        if matches!(self.peek().token, Token::Comma) {
            return Err(self.unsupported("DROP INDEX of several indexes"));
        }
        let mut table = if self.take(&["on"]) { Some(self.table_name()?) } else { None };
        if let Some(table) = &mut table
            && table.database.is_none()
        {
            table.database.clone_from(&database);
        }
        let _ = self.take(&["cascade"]) || self.take(&["restrict"]);
        Ok(Statement::DropIndex(DropIndex { database, name, table, if_exists }))
    }
}

/// The options that have been read.
#[derive(Default)]
struct Draft {
    name: Option<String>,
    blooms: Blooms,
    analyzer: Analyzer,
    case_sensitive: bool,
    /// True for a full-text index that holds rows of words.
    is_inverted: bool,
}

impl Draft {
    /// Sets one option. NULL is the default.
    fn set(&mut self, kind: IndexKind, pair: &OptionPair) -> Result<(), SqlError> {
        let is_of_words = kind == IndexKind::Fulltext;
        let has_blooms = kind != IndexKind::Inverted;
        let is_null = matches!(pair.value, OptionValue::Null);
        match pair.key.as_str() {
            "name" => self.name = if is_null { None } else { Some(pair.text()?.to_owned()) },
            "granularity" if has_blooms => {
                self.blooms.granularity = match is_null {
                    true => default_blooms(kind).granularity,
                    false => granularity(pair)?,
                }
            }
            "false_positive_rate" if has_blooms => {
                self.blooms.false_positives_ppm = match is_null {
                    true => default_blooms(kind).false_positives_ppm,
                    false => false_positives_ppm(pair)?,
                }
            }
            "type" if kind == IndexKind::Skipping => {
                if !is_null && fold(pair.text()?) != "bloom" {
                    return Err(pair.wrong("'BLOOM'"));
                }
            }
            "analyzer" if is_of_words => {
                self.analyzer = match is_null {
                    true => Analyzer::default(),
                    false => match fold(pair.text()?).as_str() {
                        "english" => Analyzer::English,
                        "chinese" => Analyzer::Chinese,
                        _ => return Err(pair.wrong("'English' or 'Chinese'")),
                    },
                }
            }
            "case_sensitive" if is_of_words => self.case_sensitive = !is_null && pair.bool()?,
            "backend" if is_of_words => {
                self.is_inverted = !is_null
                    && match fold(pair.text()?).as_str() {
                        "bloom" => false,
                        "inverted" => true,
                        _ => return Err(pair.wrong("'bloom' or 'inverted'")),
                    }
            }
            _ => return Err(unknown(kind, pair)),
        }
        Ok(())
    }
}

fn default_blooms(kind: IndexKind) -> Blooms {
    match kind {
        IndexKind::Fulltext => Blooms::of_words(),
        IndexKind::Inverted | IndexKind::Skipping => Blooms::default(),
    }
}

fn is_of_blooms(key: &str) -> bool {
    ["granularity", "false_positive_rate"].contains(&key)
}

fn granularity(pair: &OptionPair) -> Result<u32, SqlError> {
    let number = pair.number().ok().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| (1..=GRANULARITY_MAX).contains(number))
        .ok_or_else(|| pair.wrong(&format!("a number of rows from 1 to {GRANULARITY_MAX}")))
}

fn false_positives_ppm(pair: &OptionPair) -> Result<u32, SqlError> {
    let rate = pair.text().ok().and_then(|text| text.trim().parse::<f64>().ok());
    // As text, a number that is negative, infinite or none does not become another one.
    let millionths = rate.and_then(|rate| format!("{:.0}", rate * 1e6).parse::<u32>().ok());
    millionths
        .filter(|millionths| (1..=FALSE_POSITIVES_PPM_MAX).contains(millionths))
        .ok_or_else(|| pair.wrong("a number from 0.000001 to 0.5"))
}

/// The error of a key that the kind does not have.
fn unknown(kind: IndexKind, pair: &OptionPair) -> SqlError {
    let keys = match kind {
        IndexKind::Inverted => "the only option of an INVERTED INDEX is name",
        IndexKind::Skipping => {
            "options of a SKIPPING INDEX are name, granularity, false_positive_rate and type"
        }
        IndexKind::Fulltext => {
            "options of a FULLTEXT INDEX are name, analyzer, case_sensitive, backend, granularity and \
             false_positive_rate"
        }
    };
    SqlError::new(INVALID_PARAMETER_VALUE, format!("unrecognized index option key: '{}'", pair.key))
        .with_position(pair.position)
        .with_hint(keys)
}
