//! Grammar of statements about sequences, and of the counters of columns.
//!
//! ```text
//! CREATE SEQUENCE [IF NOT EXISTS] [database.]name [clause ..]
//! ALTER SEQUENCE [IF EXISTS] [database.]name {clause .. | OWNER TO role}
//! DROP SEQUENCE [IF EXISTS] [database.]name, .. [RESTRICT]
//! column {SMALLSERIAL | SERIAL | BIGSERIAL}
//! column type GENERATED {ALWAYS | BY DEFAULT} AS IDENTITY [(clause ..)]
//!
//! clause: AS type, INCREMENT [BY] n, MINVALUE n, NO MINVALUE, MAXVALUE n, NO MAXVALUE, START [WITH] n,
//!         RESTART [[WITH] n], CACHE n, [NO] CYCLE, OWNED BY {table.column | NONE}
//! ```

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::schema::ColumnType;
use partita_proto::sequence::{Identity, SequenceType};

use super::access_statement::{AccessStatement, OwnedObject};
use super::roles::access;
use super::sequence_statement::{ColumnCounter, SequenceClauses, SequenceStatement};
use super::statement::Statement;
use super::table_name::TableName;
use super::tokens::Tokens;
use crate::error::SqlError;

/// Types of columns that count, with the type of the numbers.
const SERIALS: [(&str, ColumnType); 6] = [
    ("smallserial", ColumnType::Int16),
    ("serial2", ColumnType::Int16),
    ("serial", ColumnType::Int32),
    ("serial4", ColumnType::Int32),
    ("bigserial", ColumnType::Int64),
    ("serial8", ColumnType::Int64),
];

impl Tokens<'_> {
    /// Takes what follows CREATE SEQUENCE.
    pub(super) fn create_sequence(&mut self) -> Result<Statement, SqlError> {
        let if_not_exists = self.if_not_exists();
        let name = self.table_name()?;
        let clauses = self.sequence_clauses()?;
        if clauses.restart.is_some() || clauses.name.is_some() {
            return Err(self.unexpected("a clause of CREATE SEQUENCE"));
        }
        Ok(Statement::Sequence(SequenceStatement::Create { name, if_not_exists, clauses }))
    }

    /// Takes what follows ALTER SEQUENCE.
    pub(super) fn alter_sequence(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let name = self.table_name()?;
        for (words, clause) in [
            (["rename", "to"], "ALTER SEQUENCE ... RENAME"),
            (["set", "schema"], "ALTER SEQUENCE ... SET SCHEMA"),
        ] {
            if self.at(words[0]) && self.at_nth(1, words[1]) {
                return Err(self.unsupported(clause));
            }
        }
        if self.take(&["owner", "to"]) {
            let object = OwnedObject::Sequence { name, if_exists };
            let owner = self.role_name()?;
            return Ok(access(AccessStatement::SetOwner { object, owner }));
        }
        let clauses = self.sequence_clauses()?;
        if clauses == SequenceClauses::default() || clauses.name.is_some() {
            return Err(self.unexpected("a clause of ALTER SEQUENCE"));
        }
        Ok(Statement::Sequence(SequenceStatement::Alter { name, if_exists, clauses }))
    }

    /// Takes what follows DROP SEQUENCE.
    pub(super) fn drop_sequence(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let mut names = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            names.push(self.table_name()?);
        }
        if self.at("cascade") {
            return Err(self
                .unsupported("DROP SEQUENCE ... CASCADE")
                .with_hint("drop the defaults that use the sequence first"));
        }
        self.take(&["restrict"]);
        Ok(Statement::Sequence(SequenceStatement::Drop { names, if_exists }))
    }

    /// Takes a type of a column that counts; `None` when another type comes next.
    pub(super) fn serial(&mut self) -> Option<(ColumnType, ColumnCounter)> {
        let (word, column_type) = SERIALS.into_iter().find(|(word, _)| self.at(word))?;
        self.take(&[word]);
        let clauses = SequenceClauses::default();
        Some((column_type, ColumnCounter { identity: None, clauses }))
    }

    /// Takes what follows GENERATED of an identity column; `None` when it is another generated column.
    pub(super) fn identity(&mut self) -> Result<Option<ColumnCounter>, SqlError> {
        let identity = if self.at("always") && self.at_nth(1, "as") && self.at_nth(2, "identity") {
            self.take(&["always", "as", "identity"]);
            Identity::Always
        } else if self.take(&["by", "default"]) {
            self.expect("as")?;
            self.expect("identity")?;
            Identity::ByDefault
        } else {
            return Ok(None);
        };
        let mut clauses = SequenceClauses::default();
        if self.take_mark(&Token::LParen) {
            clauses = self.sequence_clauses()?;
            self.expect_mark(&Token::RParen)?;
        }
        if clauses.restart.is_some() || clauses.owned_by.is_some() || clauses.data_type.is_some() {
            return Err(self.unexpected("a clause of an identity column"));
        }
        Ok(Some(ColumnCounter { identity: Some(identity), clauses }))
    }

    fn sequence_clauses(&mut self) -> Result<SequenceClauses, SqlError> {
        let mut clauses = SequenceClauses::default();
        while self.sequence_clause(&mut clauses)? {}
        Ok(clauses)
    }

    /// Takes one clause; false when none comes next.
    fn sequence_clause(&mut self, clauses: &mut SequenceClauses) -> Result<bool, SqlError> {
        let position = self.position();
        let is_repeated = if self.take(&["as"]) {
            clauses.data_type.replace(self.sequence_type()?).is_some()
        } else if self.take(&["increment"]) {
            self.take(&["by"]);
            clauses.increment.replace(self.signed()?).is_some()
        } else if self.take(&["minvalue"]) {
            clauses.min_value.replace(Some(self.signed()?)).is_some()
        } else if self.take(&["no", "minvalue"]) {
            clauses.min_value.replace(None).is_some()
        } else if self.take(&["maxvalue"]) {
            clauses.max_value.replace(Some(self.signed()?)).is_some()
        } else if self.take(&["no", "maxvalue"]) {
            clauses.max_value.replace(None).is_some()
        } else if self.take(&["start"]) {
            self.take(&["with"]);
            clauses.start.replace(self.signed()?).is_some()
        } else if self.take(&["restart"]) {
            let is_given = self.take(&["with"])
                || matches!(self.peek().token, Token::Number(..) | Token::Minus | Token::Plus);
            let value = if is_given { Some(self.signed()?) } else { None };
            clauses.restart.replace(value).is_some()
        } else if self.take(&["cache"]) {
            clauses.cache.replace(self.unsigned("a number of values")?).is_some()
        } else if self.take(&["cycle"]) {
            clauses.cycle.replace(true).is_some()
        } else if self.take(&["no", "cycle"]) {
            clauses.cycle.replace(false).is_some()
        } else if self.take(&["owned", "by"]) {
            clauses.owned_by.replace(self.owned_by()?).is_some()
        } else if self.take(&["sequence", "name"]) {
            clauses.name.replace(self.table_name()?).is_some()
        } else {
            return Ok(false);
        };
        if is_repeated {
            let error = SqlError::syntax("conflicting or redundant options");
            return Err(error.with_position(position));
        }
        Ok(true)
    }

    /// Takes the type of a sequence.
    fn sequence_type(&mut self) -> Result<SequenceType, SqlError> {
        let position = self.position();
        match self.column_type(&mut Vec::new())? {
            ColumnType::Int16 => Ok(SequenceType::Small),
            ColumnType::Int32 => Ok(SequenceType::Integer),
            ColumnType::Int64 => Ok(SequenceType::Big),
            _ => {
                let message = "sequence type must be smallint, integer, or bigint";
                Err(SqlError::new("22023", message).with_position(position))
            }
        }
    }

    /// Takes NONE, or `[[catalog.]database.]table.column`.
    fn owned_by(&mut self) -> Result<Option<(TableName, String)>, SqlError> {
        if self.at("none") && !matches!(self.peek_nth(1).token, Token::Period) {
            self.take(&["none"]);
            return Ok(None);
        }
        let position = self.position();
        let mut parts = vec![self.name("table.column")?];
        while self.take_mark(&Token::Period) {
            parts.push(self.name("a name")?);
        }
        let column = parts.pop().unwrap_or_default();
        let table = parts.pop();
        let (Some(name), true) = (table, parts.len() <= 2) else {
            let error = SqlError::syntax("invalid OWNED BY option");
            return Err(error
                .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")
                .with_position(position));
        };
        Ok(Some((TableName { database: parts.pop(), name }, column)))
    }

    /// Takes a whole number with a sign.
    pub(super) fn signed(&mut self) -> Result<i64, SqlError> {
        let expected = self.unexpected("a whole number");
        let negative = self.take_mark(&Token::Minus);
        if !negative {
            self.take_mark(&Token::Plus);
        }
        let magnitude = i128::from(self.unsigned("a whole number")?);
        i64::try_from(if negative { -magnitude } else { magnitude }).map_err(|_| expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;
    use crate::sequence_statement::{sequence_default, sequence_of};

    fn clauses(sql: &str) -> SequenceClauses {
        match parse(sql).unwrap().remove(0) {
            Statement::Sequence(
                SequenceStatement::Create { clauses, .. }
                | SequenceStatement::Alter { clauses, .. },
            ) => clauses,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn clauses_come_in_any_order() {
        let given = clauses(
            "CREATE SEQUENCE IF NOT EXISTS d.s CYCLE AS integer START WITH 5 INCREMENT BY -2 \
             NO MINVALUE MAXVALUE +7 CACHE 9 OWNED BY t.c",
        );
        let options = given.options(SequenceType::Big).unwrap();
        assert_eq!((options.data_type, options.start), (SequenceType::Integer, 5));
        assert_eq!((options.min_value, options.max_value), (i64::from(i32::MIN), 7));
        assert_eq!((options.increment, options.cache, options.cycle), (-2, 9, true));
        assert_eq!(given.owned_by, Some(Some((TableName::bare("t"), "c".to_owned()))));
        let default = clauses("CREATE SEQUENCE s").options(SequenceType::Big).unwrap();
        assert_eq!((default.start, default.max_value, default.cycle), (1, i64::MAX, false));
        assert_eq!(clauses("ALTER SEQUENCE s RESTART").restart, Some(None));
        assert_eq!(clauses("ALTER SEQUENCE s RESTART 7").restart, Some(Some(7)));
        assert_eq!(clauses("ALTER SEQUENCE s OWNED BY NONE").owned_by, Some(None));
    }

    #[test]
    fn a_descending_sequence_begins_at_its_maximum() {
        let options = clauses("CREATE SEQUENCE s INCREMENT -1").options(SequenceType::Big).unwrap();
        assert_eq!((options.start, options.max_value, options.min_value), (-1, -1, i64::MIN));
    }

    #[test]
    fn what_is_no_sequence_is_refused() {
        for (sql, sqlstate) in [
            ("CREATE SEQUENCE", "42601"),
            ("CREATE SEQUENCE s RESTART", "42601"),
            ("CREATE SEQUENCE s CYCLE NO CYCLE", "42601"),
            ("CREATE SEQUENCE s AS text", "22023"),
            ("CREATE SEQUENCE s START WITH x", "42601"),
            ("CREATE SEQUENCE s START WITH 9223372036854775808", "42601"),
            ("CREATE SEQUENCE s OWNED BY t", "42601"),
            ("ALTER SEQUENCE s", "42601"),
            ("ALTER SEQUENCE s RENAME TO r", "0A000"),
            ("DROP SEQUENCE s CASCADE", "0A000"),
        ] {
            let error = parse(sql).unwrap_err();
            assert_eq!(error.sqlstate, sqlstate, "{sql}: {}", error.message);
        }
    }

    #[test]
    fn a_query_that_takes_numbers_does_not_only_read() {
        for (sql, reads) in [
            ("SELECT currval('s')", true),
            ("SELECT nextval('s')", false),
            ("EXPLAIN ANALYZE SELECT SetVal('s', 1)", false),
        ] {
            assert_eq!(parse(sql).unwrap().remove(0).reads(), reads, "{sql}");
        }
    }

    #[test]
    fn the_default_of_a_counter_names_its_sequence() {
        let name = TableName { database: Some("D".to_owned()), name: "it's".to_owned() };
        assert_eq!(sequence_of(&sequence_default(&name)), Some(name));
        let plain = TableName::bare("s");
        assert_eq!(sequence_default(&plain), "nextval('s')");
        assert_eq!(sequence_of("nextval('s'::regclass)"), Some(plain));
        assert_eq!(
            sequence_of("nextval('d.s')"),
            Some(TableName { database: Some("d".to_owned()), name: "s".to_owned() })
        );
        for other in [
            "now()",
            "1",
            "nextval('a.b.c.d')",
            "nextval('s'::text)",
            "nextval('a b')",
            "nextval(s)",
            "nextval('s') + 1",
            "nextval('')",
        ] {
            assert_eq!(sequence_of(other), None, "{other}");
        }
    }
}
