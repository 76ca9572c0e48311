//! Grammar of ADVISE.
//!
//! ```text
//! ADVISE TABLE table
//! ADVISE PARTITIONS FOR table RATE rows_per_second
//! ADVISE PARTITION BY (column) FOR table
//! ```
//!
//! Each may end with WITH (threshold = value, ..); the names are the advisor's.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::advise_statement::{Advise, AdviseKind};
use super::identifier::fold;
use super::statement::Statement;
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes an ADVISE statement.
    pub(super) fn advise(&mut self) -> Result<Statement, SqlError> {
        self.expect("advise")?;
        let (kind, table) = if self.take(&["table"]) {
            (AdviseKind::Table, self.table_name()?)
        } else if self.take(&["partitions"]) {
            self.expect("for")?;
            let table = self.table_name()?;
            self.expect("rate")?;
            (AdviseKind::Partitions { rate: self.rate()? }, table)
        } else if self.take(&["partition", "by"]) {
            let column = self.partition_column()?;
            self.expect("for")?;
            (AdviseKind::PartitionBy { column }, self.table_name()?)
        } else {
            return Err(self.unexpected("TABLE, PARTITIONS FOR or PARTITION BY"));
        };
        let thresholds = if self.take(&["with"]) { self.thresholds()? } else { Vec::new() };
        Ok(Statement::Advise(Advise { table, kind, thresholds }))
    }

    /// Takes a number of rows per second.
    fn rate(&mut self) -> Result<f64, SqlError> {
        let position = self.position();
        let rate = self.decimal_number("a number of rows per second")?;
        if rate > 0.0 {
            return Ok(rate);
        }
        let error = SqlError::new(INVALID_PARAMETER_VALUE, "RATE takes a positive number");
        Err(error.with_position(position))
    }

    /// Takes `(column)`.
    fn partition_column(&mut self) -> Result<String, SqlError> {
        let position = self.position();
        let mut columns = self.columns()?;
        match (columns.pop(), columns.is_empty()) {
            (Some(column), true) => Ok(column),
            _ => {
                let error = SqlError::unsupported("ADVISE PARTITION BY several columns");
                Err(error.with_position(position))
            }
        }
    }

    /// Takes `(name = value, ..)`.
    fn thresholds(&mut self) -> Result<Vec<(String, f64)>, SqlError> {
        let mut thresholds: Vec<(String, f64)> = Vec::new();
        self.list(|tokens| {
            let position = tokens.position();
            let name = match tokens.string() {
                Ok(name) => fold(&name),
                Err(_) => tokens.name("a threshold")?,
            };
            if thresholds.iter().any(|(earlier, _)| *earlier == name) {
                let message = format!("threshold '{name}' is specified more than once");
                return Err(SqlError::syntax(message).with_position(position));
            }
            tokens.expect_mark(&Token::Eq)?;
            let value = tokens.decimal_number("a number")?;
            thresholds.push((name, value));
            Ok(())
        })?;
        Ok(thresholds)
    }

    /// Takes a finite number, perhaps with a sign or in quotes.
    fn decimal_number(&mut self, expected: &str) -> Result<f64, SqlError> {
        let error = self.unexpected(expected);
        let number = if let Ok(text) = self.string() {
            text.trim().parse::<f64>().ok()
        } else {
            let sign = if self.take_mark(&Token::Minus) { -1.0 } else { 1.0 };
            match self.next().token {
                Token::Number(text, _) => text.parse::<f64>().ok().map(|number| sign * number),
                _ => None,
            }
        };
        number.filter(|number| number.is_finite()).ok_or(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;
    use crate::table_name::TableName;

    fn advise(sql: &str) -> Advise {
        match parse(sql).unwrap().remove(0) {
            Statement::Advise(advise) => advise,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn a_table_is_looked_at_with_thresholds() {
        let asked =
            advise("ADVISE TABLE d.\"T\" WITH (wide_columns = 50, 'Sparse' = '0.5', x = -1)");
        let table = TableName { database: Some("d".to_owned()), name: "T".to_owned() };
        assert_eq!(asked.table, table);
        assert!(matches!(asked.kind, AdviseKind::Table));
        let thresholds: Vec<_> =
            asked.thresholds.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(thresholds, [("wide_columns", 50.0), ("sparse", 0.5), ("x", -1.0)]);
        let statement = parse("advise table t").unwrap().remove(0);
        assert_eq!(
            (statement.tag(), statement.reads(), statement.writes()),
            ("ADVISE", true, false)
        );
        assert!(statement.needs_lane());
    }

    #[test]
    fn partitions_are_advised_for_a_rate_or_a_column() {
        let asked = advise("ADVISE PARTITIONS FOR t RATE 1.5e5 WITH (a = 1)");
        assert!(matches!(asked.kind, AdviseKind::Partitions { rate } if rate == 150_000.0));
        assert_eq!((asked.table, asked.thresholds.len()), (TableName::bare("t"), 1));
        let asked = advise("ADVISE PARTITION BY (\"User id\") FOR t");
        assert!(
            matches!(&asked.kind, AdviseKind::PartitionBy { column } if column == "User id"),
            "{asked:?}"
        );
    }

    #[test]
    fn other_questions_are_refused() {
        for (sql, sqlstate, says) in [
            ("ADVISE", "42601", "expected TABLE, PARTITIONS FOR or PARTITION BY"),
            ("ADVISE t", "42601", "expected TABLE, PARTITIONS FOR or PARTITION BY"),
            ("ADVISE PARTITIONS FOR t", "42601", "expected RATE"),
            ("ADVISE PARTITIONS FOR t RATE many", "42601", "a number of rows per second"),
            ("ADVISE PARTITIONS FOR t RATE 0", "22023", "a positive number"),
            ("ADVISE PARTITIONS FOR t RATE -5", "22023", "a positive number"),
            ("ADVISE PARTITION BY (a, b) FOR t", "0A000", "several columns"),
            ("ADVISE TABLE t WITH (a = 1, a = 2)", "42601", "more than once"),
            ("ADVISE TABLE t WITH (a = b)", "42601", "expected a number"),
            ("ADVISE TABLE t WITH (a = 'nan')", "42601", "expected a number"),
            ("ADVISE TABLE t x", "42601", "the end of the statement"),
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.sqlstate, sqlstate, "{sql}: {}", error.message);
            assert!(error.message.contains(says), "{sql}: {}", error.message);
        }
    }
}
