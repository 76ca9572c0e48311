//! Statements about the session: SET and RESET, transactions, prepared statements, cursors, DISCARD.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::access_statement::SetRole;
use super::parser::parse_one;
use super::statement::{
    Declare, Direction, Discard, Execute, Fetch, PrepareStatement, Set, SetValue, Statement,
    Transaction, TransactionModes,
};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes a SET statement.
    pub(super) fn set(&mut self) -> Result<Statement, SqlError> {
        self.expect("set")?;
        // Transaction modes.
        if self.take(&["session", "characteristics", "as", "transaction"]) {
            let modes = self.transaction_modes();
            return Ok(Statement::Transaction(Transaction::SessionCharacteristics(modes)));
        }
        if self.at("transaction") && matches!(self.peek_nth(1).token, Token::Word(_)) {
            self.take(&["transaction"]);
            let modes = self.transaction_modes();
            return Ok(Statement::Transaction(Transaction::Characteristics(modes)));
        }
        // The current role. SESSION AUTHORIZATION never differs from the role that the session began as.
        if self.at("session") && self.at_nth(1, "authorization") {
            if self.take(&["session", "authorization", "default"]) {
                return Ok(Statement::SetRole(SetRole { role: None, is_reset: false }));
            }
            return Err(self.unsupported("SET SESSION AUTHORIZATION").with_hint("use SET ROLE"));
        }
        if self.at("local") && self.at_nth(1, "role") {
            return Err(self.unsupported("SET LOCAL ROLE"));
        }
        if self.take(&["session", "role"]) || self.take(&["role"]) {
            return self.set_role();
        }
        // Other databases' forms; a setting may have one of these names.
        for (words, form) in [
            (&["constraints"][..], "SET CONSTRAINTS"),
            (&["global"], "SET GLOBAL"),
            (&["xml", "option"], "SET XML OPTION"),
        ] {
            let next = &self.peek_nth(words.len()).token;
            if words.iter().enumerate().all(|(n, word)| self.at_nth(n, word))
                && !matches!(next, Token::Eq | Token::Period)
            {
                return Err(self.unsupported(form));
            }
        }
        // LOCAL and SESSION precede the name of a setting.
        let mut local = false;
        if matches!(self.peek_nth(1).token, Token::Word(_)) {
            local = self.take(&["local"]);
            self.take(&["session"]);
        }
        // SQL's forms for the time zone and the client's encoding.
        if self.take(&["time", "zone"]) {
            let value = if self.take(&["local"]) {
                SetValue::Default
            } else if self.take(&["interval"]) {
                SetValue::Values(vec![self.zone_interval()?])
            } else {
                self.set_value("timezone")?
            };
            return Ok(set("timezone", value, local));
        }
        if self.at("names") && !matches!(self.peek_nth(1).token, Token::Eq) {
            self.next();
            let value = self.set_value("client_encoding")?;
            if self.at("collate") {
                return Err(self.unsupported("SET NAMES ... COLLATE"));
            }
            return Ok(set("client_encoding", value, local));
        }
        // All other settings.
        let name = self.setting()?;
        if !self.take_mark(&Token::Eq) && !self.take(&["to"]) {
            return Err(self.unexpected("TO or \"=\""));
        }
        if name == "time_zone" {
            return Ok(set("timezone", zone_of_mysql(self.set_value("timezone")?), local));
        }
        let value = self.set_value(&name)?;
        Ok(set(&name, value, local))
    }

    /// Takes the rest of `INTERVAL '-08:00' HOUR TO MINUTE`, as hours east of Greenwich.
    fn zone_interval(&mut self) -> Result<String, SqlError> {
        let wrong = self.located(SqlError::new(
            INVALID_PARAMETER_VALUE,
            "the interval of a time zone must be hours and minutes, such as '-08:00'",
        ));
        let text = self.string()?;
        let _ = self.take(&["hour", "to", "minute"]) || self.take(&["hour"]);
        let text = text.trim().to_ascii_lowercase();
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text.strip_prefix('+').unwrap_or(&text)),
        };
        let hours = match rest.split_once(':') {
            Some((hours, minutes)) => {
                let minutes: f64 = minutes.parse().map_err(|_| wrong.clone())?;
                hours.parse::<f64>().map_err(|_| wrong.clone())? + minutes / 60.0
            }
            None => rest
                .trim_end_matches("hours")
                .trim_end_matches("hour")
                .trim()
                .parse()
                .map_err(|_| wrong)?,
        };
        Ok((sign * hours).to_string())
    }

    /// Takes a RESET statement.
    pub(super) fn reset(&mut self) -> Result<Statement, SqlError> {
        self.expect("reset")?;
        if self.take(&["all"]) {
            return Ok(Statement::ResetAll);
        }
        if self.take(&["role"]) || self.take(&["session", "authorization"]) {
            return Ok(Statement::SetRole(SetRole { role: None, is_reset: true }));
        }
        let name = if self.take(&["time", "zone"]) || self.take(&["time_zone"]) {
            "timezone".to_owned()
        } else {
            self.setting()?
        };
        Ok(set(&name, SetValue::Default, false))
    }

    /// Takes a setting's name.
    pub(super) fn setting(&mut self) -> Result<String, SqlError> {
        let mut name = self.name("a setting")?;
        while self.take_mark(&Token::Period) {
            name.push('.');
            name.push_str(&self.name("the rest of a setting's name")?);
        }
        Ok(name.to_lowercase())
    }

    /// Takes the value of a setting.
    pub(super) fn set_value(&mut self, name: &str) -> Result<SetValue, SqlError> {
        if self.take(&["default"]) {
            return Ok(SetValue::Default);
        }
        let mut values = Vec::new();
        loop {
            values.push(self.set_item(name)?);
            if !self.take_mark(&Token::Comma) {
                return Ok(SetValue::Values(values));
            }
        }
    }

    fn set_item(&mut self, name: &str) -> Result<String, SqlError> {
        if let Ok(text) = self.string() {
            return Ok(text);
        }
        // Names of databases fold like names; other words keep their case (`ISO`, `UTC`).
        if name == "search_path" {
            return self.name("a database's name");
        }
        let sign = if self.take_mark(&Token::Minus) {
            "-"
        } else {
            self.take_mark(&Token::Plus);
            ""
        };
        let value = match &self.peek().token {
            Token::Number(number, _) => format!("{sign}{number}"),
            Token::Word(word) if sign.is_empty() => word.value.clone(),
            _ => return Err(self.unexpected("a value")),
        };
        self.next();
        Ok(value)
    }

    /// Takes a statement about transactions.
    pub(super) fn transaction(&mut self) -> Result<Statement, SqlError> {
        // BEGIN and START TRANSACTION.
        let transaction = if self.take(&["begin"]) {
            let _ = self.take(&["transaction"]) || self.take(&["work"]);
            Transaction::Begin(self.transaction_modes())
        } else if self.take(&["start"]) {
            self.expect("transaction")?;
            Transaction::Begin(self.transaction_modes())
        // COMMIT and ROLLBACK, each also by PostgreSQL's other name.
        } else if self.take(&["commit"]) || self.take(&["end"]) {
            if self.at("prepared") {
                return Err(self.unsupported("COMMIT PREPARED"));
            }
            self.chain()?;
            Transaction::Commit
        } else if self.take(&["rollback"]) || self.take(&["abort"]) {
            if self.at("prepared") {
                return Err(self.unsupported("ROLLBACK PREPARED"));
            }
            self.chain()?;
            if self.take(&["to"]) {
                if matches!(self.peek_nth(1).token, Token::Word(_)) {
                    self.take(&["savepoint"]);
                }
                Transaction::RollbackTo(self.name("a savepoint")?)
            } else {
                Transaction::Rollback
            }
        // Savepoints. A savepoint may have the name savepoint.
        } else if self.take(&["savepoint"]) {
            Transaction::Savepoint(self.name("a savepoint")?)
        } else {
            self.expect("release")?;
            if matches!(self.peek_nth(1).token, Token::Word(_)) {
                self.take(&["savepoint"]);
            }
            Transaction::Release(self.name("a savepoint")?)
        };
        Ok(Statement::Transaction(transaction))
    }

    /// Takes [WORK | TRANSACTION] [AND NO CHAIN].
    fn chain(&mut self) -> Result<(), SqlError> {
        let _ = self.take(&["work"]) || self.take(&["transaction"]);
        if self.at("and") && self.at_nth(1, "chain") {
            return Err(self.unsupported("AND CHAIN"));
        }
        self.take(&["and", "no", "chain"]);
        Ok(())
    }

    fn transaction_modes(&mut self) -> TransactionModes {
        let mut modes = TransactionModes::default();
        loop {
            if self.take(&["isolation", "level", "serializable"])
                || self.take(&["isolation", "level", "repeatable", "read"])
            {
                (modes.isolated, modes.uncommitted) = (true, Some(false));
            } else if self.take(&["isolation", "level", "read", "committed"]) {
                (modes.isolated, modes.uncommitted) = (false, Some(false));
            } else if self.take(&["isolation", "level", "read", "uncommitted"]) {
                (modes.isolated, modes.uncommitted) = (false, Some(true));
            } else if self.take(&["read", "only"]) {
                modes.read_only = Some(true);
            } else if self.take(&["read", "write"]) {
                modes.read_only = Some(false);
            } else if self.take(&["not", "deferrable"]) {
                modes.deferrable = Some(false);
            } else if self.take(&["deferrable"]) {
                modes.deferrable = Some(true);
            } else {
                return modes;
            }
            self.take_mark(&Token::Comma);
        }
    }

    /// Takes PREPARE name [(type, ..)] AS statement.
    pub(super) fn prepare(&mut self) -> Result<Statement, SqlError> {
        self.expect("prepare")?;
        if self.at("transaction") && !self.at_nth(1, "as") {
            return Err(self.unsupported("PREPARE TRANSACTION"));
        }
        let name = self.name("a statement's name")?;
        let types = if matches!(self.peek().token, Token::LParen) {
            self.list(|tokens| {
                let mut notices = Vec::new();
                Ok(tokens.declared_type(&mut notices)?.column_type.arrow())
            })?
        } else {
            Vec::<DataType>::new()
        };
        self.expect("as")?;
        let position = self.position();
        let statement = parse_one(&self.text[self.offset()..], position - 1)?;
        if !statement.is_planned() {
            return Err(self.unsupported(format!("PREPARE ... AS {}", statement.tag())));
        }
        self.skip_all();
        let (text, statement) = (Arc::from(self.text), Box::new(statement));
        Ok(Statement::Prepare(PrepareStatement { text, name, types, statement }))
    }

    /// Takes EXECUTE name [(literal, ..)].
    pub(super) fn execute(&mut self) -> Result<Statement, SqlError> {
        self.expect("execute")?;
        if self.at("immediate") {
            return Err(self.unsupported("EXECUTE IMMEDIATE"));
        }
        let name = self.name("a statement's name")?;
        let parameters = if matches!(self.peek().token, Token::LParen) {
            self.list(Self::expression)?
        } else {
            Vec::new()
        };
        Ok(Statement::Execute(Execute { name, parameters }))
    }

    /// Takes LISTEN channel.
    pub(super) fn listen(&mut self) -> Result<Statement, SqlError> {
        self.expect("listen")?;
        self.name("a channel")?;
        Ok(Statement::Listen)
    }

    /// Takes NOTIFY channel [, 'payload'].
    pub(super) fn notify(&mut self) -> Result<Statement, SqlError> {
        self.expect("notify")?;
        self.name("a channel")?;
        if self.take_mark(&Token::Comma) {
            self.string()?;
        }
        Ok(Statement::Notify)
    }

    /// Takes UNLISTEN {channel | *}.
    pub(super) fn unlisten(&mut self) -> Result<Statement, SqlError> {
        self.expect("unlisten")?;
        if !self.take_mark(&Token::Mul) {
            self.name("a channel")?;
        }
        Ok(Statement::Unlisten)
    }

    /// Takes DEALLOCATE [PREPARE] {name | ALL}.
    pub(super) fn deallocate(&mut self) -> Result<Statement, SqlError> {
        self.expect("deallocate")?;
        if matches!(self.peek_nth(1).token, Token::Word(_)) {
            self.take(&["prepare"]);
        }
        if self.take(&["all"]) {
            return Ok(Statement::Deallocate(None));
        }
        Ok(Statement::Deallocate(Some(self.name("a statement's name")?)))
    }

    /// Takes DECLARE name [INSENSITIVE] [[NO] SCROLL] CURSOR [WITH HOLD] FOR query.
    pub(super) fn declare(&mut self) -> Result<Statement, SqlError> {
        self.expect("declare")?;
        let name = self.name("a cursor's name")?;
        let mut scroll = false;
        loop {
            if self.at("binary") {
                return Err(self.unsupported("a BINARY cursor"));
            }
            if self.take(&["scroll"]) {
                scroll = true;
            } else if self.take(&["no", "scroll"]) {
                scroll = false;
            } else if !self.take(&["insensitive"]) && !self.take(&["asensitive"]) {
                break;
            }
        }
        self.expect("cursor")?;
        let hold = self.take(&["with", "hold"]);
        self.take(&["without", "hold"]);
        self.expect("for")?;
        let query = self.query()?;
        Ok(Statement::Declare(Declare { name, scroll, hold, query }))
    }

    /// Takes FETCH or MOVE [direction] [FROM | IN] name.
    pub(super) fn fetch(&mut self) -> Result<Statement, SqlError> {
        let only_move = self.take(&["move"]);
        if !only_move {
            self.expect("fetch")?;
        }
        // A word of a direction may be the name of a cursor, which is the last one.
        let more = !matches!(self.peek_nth(1).token, Token::EOF);
        let direction = if more { self.direction()? } else { self.rows_forward(false)? };
        let _ = self.take(&["from"]) || self.take(&["in"]);
        let name = self.name("a cursor's name")?;
        Ok(Statement::Fetch(Fetch { name, direction, only_move }))
    }

    /// Takes the direction of a FETCH, which is NEXT if there is none.
    fn direction(&mut self) -> Result<Direction, SqlError> {
        if self.take(&["prior"]) {
            return Ok(Direction::Backward(Some(1)));
        }
        if self.take(&["first"]) {
            return Ok(Direction::Absolute(1));
        }
        if self.take(&["last"]) {
            return Ok(Direction::Absolute(-1));
        }
        if self.take(&["absolute"]) {
            return self.signed().map(Direction::Absolute);
        }
        if self.take(&["relative"]) {
            return self.signed().map(Direction::Relative);
        }
        if self.take(&["backward"]) {
            return Ok(match self.rows_forward(true)? {
                Direction::Forward(count) => Direction::Backward(count),
                Direction::Backward(count) => Direction::Forward(count),
                direction => direction,
            });
        }
        if !self.take(&["forward"]) {
            self.take(&["next"]);
        }
        self.rows_forward(true)
    }

    /// Takes a number of rows, which is negative for rows before, or ALL if a name follows.
    fn rows_forward(&mut self, more: bool) -> Result<Direction, SqlError> {
        let is_backward = self.take_mark(&Token::Minus);
        let count = if is_backward || matches!(self.peek().token, Token::Number(..)) {
            Some(self.unsigned("a number of rows")?)
        } else if more && self.take(&["all"]) {
            None
        } else {
            Some(1)
        };
        Ok(if is_backward { Direction::Backward(count) } else { Direction::Forward(count) })
    }

    /// Takes CLOSE {name | ALL}.
    pub(super) fn close(&mut self) -> Result<Statement, SqlError> {
        self.expect("close")?;
        if self.take(&["all"]) {
            return Ok(Statement::Close(None));
        }
        Ok(Statement::Close(Some(self.name("a cursor's name")?)))
    }

    /// Takes DISCARD {ALL | PLANS | TEMPORARY | SEQUENCES}.
    pub(super) fn discard(&mut self) -> Result<Statement, SqlError> {
        self.expect("discard")?;
        let discard = match self.name("ALL, PLANS, TEMPORARY or SEQUENCES")?.as_str() {
            "all" => Discard::All,
            "plans" => Discard::Plans,
            "temp" | "temporary" => Discard::Temporary,
            "sequences" => Discard::Sequences,
            name => {
                return Err(SqlError::syntax(format!("unrecognized DISCARD target \"{name}\"")));
            }
        };
        Ok(Statement::Discard(discard))
    }
}

/// A value of MySQL's `time_zone`: an offset is east of Greenwich there, and SYSTEM is the default.
fn zone_of_mysql(value: SetValue) -> SetValue {
    let SetValue::Values(values) = value else { return SetValue::Default };
    let is_default = values.iter().any(|text| text.eq_ignore_ascii_case("system"));
    if is_default {
        return SetValue::Default;
    }
    let zone = |text: String| hours_east(&text).unwrap_or(text);
    SetValue::Values(values.into_iter().map(zone).collect())
}

/// The hours of an offset such as `+05:30`, as SET TIME ZONE takes them; `None` for other texts.
fn hours_east(text: &str) -> Option<String> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1.0, rest),
        ("-", rest) => (-1.0, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let is_sound = hours < 24 && minutes < 60;
    is_sound.then(|| (sign * (f64::from(hours) + f64::from(minutes) / 60.0)).to_string())
}

fn set(name: &str, value: SetValue, local: bool) -> Statement {
    Statement::Set(Set { name: name.to_owned(), value, local })
}
