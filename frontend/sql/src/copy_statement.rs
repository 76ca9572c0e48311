//! COPY ... FROM and COPY ... TO a stream or a file, with PostgreSQL's options in both spellings: the list in parentheses,
//! and the older one without parentheses that psql's `\copy` and old clients send.

use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::identifier::{quote, quote_list};
use super::parser::parse_query;
use super::statement::{
    CopyColumns, CopyFormat, CopyFrom, CopyHeader, CopyOptions, CopyTo, Statement, TableName,
};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// Options as written. Defaults depend on the format, which may come last.
#[derive(Default)]
struct WrittenOptions {
    format: Option<CopyFormat>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<CopyHeader>,
    quote: Option<String>,
    escape: Option<String>,
    force_null: Option<CopyColumns>,
    force_not_null: Option<CopyColumns>,
    force_quote: Option<CopyColumns>,
    /// FREEZE is about row versions, which are not kept for rows of COPY: it changes nothing.
    freeze: Option<bool>,
}

impl Tokens<'_> {
    /// Takes a COPY statement.
    pub(super) fn copy(&mut self) -> Result<Statement, SqlError> {
        self.expect("copy")?;
        let mut written = WrittenOptions::default();
        if self.at("database") && matches!(self.peek_nth(1).token, Token::Word(_)) {
            return Err(self.unsupported("COPY DATABASE"));
        }
        if matches!(self.peek_nth(1).token, Token::Word(_)) && self.take(&["binary"]) {
            written.format = Some(CopyFormat::Binary);
        }
        // COPY (query) TO.
        if matches!(self.peek().token, Token::LParen) {
            return self.copy_query(written);
        }
        let table = self.table_name()?;
        let columns =
            if matches!(self.peek().token, Token::LParen) { Some(self.columns()?) } else { None };
        // COPY table FROM.
        if self.take(&["from"]) {
            let file = self.copy_file("COPY FROM PROGRAM")?;
            let (format, options) = self.copy_options(written)?;
            if options.force_quote != CopyColumns::None {
                return Err(SqlError::unsupported("FORCE_QUOTE with COPY FROM"));
            }
            if self.at("where") {
                return Err(self.unsupported("COPY FROM ... WHERE"));
            }
            let text = Arc::from(self.text);
            let copy = CopyFrom { text, table, columns, file, format, options };
            return Ok(Statement::CopyFrom(copy));
        }
        // COPY table TO is the query that reads the table.
        self.expect("to")?;
        let file = self.copy_file("COPY TO PROGRAM")?;
        let written_options = self.options_of_copy_to(written)?;
        copy_to(&select(&table, columns.as_deref()), 0, file, written_options)
    }

    /// Takes (query) TO and its target.
    fn copy_query(&mut self, written: WrittenOptions) -> Result<Statement, SqlError> {
        self.expect_mark(&Token::LParen)?;
        let (position, offset) = (self.position(), self.offset());
        self.query()?;
        let end = self.offset();
        self.expect_mark(&Token::RParen)?;
        self.expect("to")?;
        let file = self.copy_file("COPY TO PROGRAM")?;
        let written_options = self.options_of_copy_to(written)?;
        let text = self.text[offset..end].to_owned();
        copy_to(&text, position - 1, file, written_options)
    }

    /// Takes the path of a file; or STDIN or STDOUT, which is `None`.
    fn copy_file(&mut self, with_program: &str) -> Result<Option<String>, SqlError> {
        if self.take(&["stdin"]) || self.take(&["stdout"]) {
            return Ok(None);
        }
        if self.at("program") {
            let hint = "use STDIN or STDOUT; psql's \\copy runs programs of the client";
            return Err(self.unsupported(with_program).with_hint(hint));
        }
        self.string().map(Some)
    }

    /// Takes [WITH] and options in either spelling.
    fn copy_options(
        &mut self,
        written: WrittenOptions,
    ) -> Result<(CopyFormat, CopyOptions), SqlError> {
        let position = self.position();
        let written = self.written_options(written)?;
        written.check().map_err(|error| error.with_position(position))
    }

    fn written_options(&mut self, mut written: WrittenOptions) -> Result<WrittenOptions, SqlError> {
        self.take(&["with"]);
        if matches!(self.peek().token, Token::LParen) {
            self.list(|tokens| tokens.copy_option(&mut written))?;
        } else {
            while self.old_copy_option(&mut written)? {}
        }
        Ok(written)
    }

    /// Takes the options of COPY TO.
    fn options_of_copy_to(
        &mut self,
        written: WrittenOptions,
    ) -> Result<(CopyFormat, CopyOptions), SqlError> {
        let position = self.position();
        let written = self.written_options(written)?;
        if written.freeze == Some(true) {
            let error = SqlError::unsupported("FREEZE with COPY TO");
            return Err(error.with_position(position));
        }
        written.check().map_err(|error| error.with_position(position))
    }

    /// Takes one option of the list in parentheses.
    fn copy_option(&mut self, written: &mut WrittenOptions) -> Result<(), SqlError> {
        let position = self.position();
        let name = self.name("an option")?;
        // An option replaces its own default once.
        let twice = match name.as_str() {
            "format" => written.format.replace(self.copy_format()?).is_some(),
            "delimiter" => written.delimiter.replace(self.string()?).is_some(),
            "null" => written.null.replace(self.string()?).is_some(),
            "quote" => written.quote.replace(self.string()?).is_some(),
            "escape" => written.escape.replace(self.string()?).is_some(),
            "header" => written.header.replace(self.copy_header()?).is_some(),
            "force_quote" => written.force_quote.replace(self.copy_columns()?).is_some(),
            "force_null" => written.force_null.replace(self.copy_columns()?).is_some(),
            "force_not_null" => written.force_not_null.replace(self.copy_columns()?).is_some(),
            "encoding" => {
                self.encoding()?;
                false
            }
            "on_error" => {
                let value = self.word_or_string()?;
                if !value.eq_ignore_ascii_case("stop") {
                    return Err(
                        SqlError::unsupported(format!("ON_ERROR {value}")).with_position(position)
                    );
                }
                false
            }
            "freeze" => written.freeze.replace(self.freeze()?).is_some(),
            "default" | "log_verbosity" | "reject_limit" => {
                return Err(SqlError::unsupported(format!(
                    "option {} of COPY",
                    name.to_ascii_uppercase()
                ))
                .with_position(position));
            }
            _ => {
                return Err(SqlError::syntax(format!("option \"{name}\" of COPY not recognized"))
                    .with_position(position));
            }
        };
        // As in PostgreSQL, a repeated option is an error.
        if twice {
            return Err(
                SqlError::syntax("conflicting or redundant options").with_position(position)
            );
        }
        Ok(())
    }

    /// Takes one option of the older spelling; false when none follows.
    fn old_copy_option(&mut self, written: &mut WrittenOptions) -> Result<bool, SqlError> {
        // Formats.
        if self.take(&["binary"]) {
            written.format = Some(CopyFormat::Binary);
        } else if self.take(&["csv"]) {
            written.format = Some(CopyFormat::Csv);
        } else if self.take(&["header"]) {
            written.header = Some(CopyHeader::Skip);
        // Options with a text.
        } else if self.take(&["delimiter"]) || self.take(&["delimiters"]) {
            self.take(&["as"]);
            written.delimiter = Some(self.string()?);
        } else if self.take(&["null"]) {
            self.take(&["as"]);
            written.null = Some(self.string()?);
        } else if self.take(&["quote"]) {
            self.take(&["as"]);
            written.quote = Some(self.string()?);
        } else if self.take(&["escape"]) {
            self.take(&["as"]);
            written.escape = Some(self.string()?);
        // Options with columns.
        } else if self.take(&["force", "quote"]) {
            written.force_quote = Some(self.old_copy_columns()?);
        } else if self.take(&["force", "not", "null"]) {
            written.force_not_null = Some(self.old_copy_columns()?);
        } else if self.take(&["force", "null"]) {
            written.force_null = Some(self.old_copy_columns()?);
        } else if self.take(&["encoding"]) {
            self.encoding()?;
        } else if self.take(&["freeze"]) {
            written.freeze = Some(true);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn copy_format(&mut self) -> Result<CopyFormat, SqlError> {
        let position = self.position();
        match self.word_or_string()?.to_ascii_lowercase().as_str() {
            "text" => Ok(CopyFormat::Text),
            "csv" => Ok(CopyFormat::Csv),
            "binary" => Ok(CopyFormat::Binary),
            "ndjson" => Ok(CopyFormat::Ndjson),
            "parquet" => Ok(CopyFormat::Parquet),
            name => Err(SqlError::new(
                INVALID_PARAMETER_VALUE,
                format!("COPY format \"{name}\" not recognized"),
            )
            .with_position(position)),
        }
    }

    fn copy_header(&mut self) -> Result<CopyHeader, SqlError> {
        if matches!(self.peek().token, Token::Comma | Token::RParen) {
            return Ok(CopyHeader::Skip);
        }
        let position = self.position();
        match self.word_or_string()?.to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(CopyHeader::Skip),
            "false" | "off" | "0" => Ok(CopyHeader::None),
            "match" => Ok(CopyHeader::Match),
            _ => Err(SqlError::syntax("HEADER takes a boolean or MATCH").with_position(position)),
        }
    }

    fn freeze(&mut self) -> Result<bool, SqlError> {
        if matches!(self.peek().token, Token::Comma | Token::RParen) {
            return Ok(true);
        }
        let position = self.position();
        match self.word_or_string()?.to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(SqlError::syntax("FREEZE requires a boolean value").with_position(position)),
        }
    }

    fn copy_columns(&mut self) -> Result<CopyColumns, SqlError> {
        if self.take_mark(&Token::Mul) {
            return Ok(CopyColumns::All);
        }
        self.columns().map(CopyColumns::Some)
    }

    fn old_copy_columns(&mut self) -> Result<CopyColumns, SqlError> {
        if self.take_mark(&Token::Mul) {
            return Ok(CopyColumns::All);
        }
        let mut columns = vec![self.name("a column name")?];
        while self.take_mark(&Token::Comma) {
            columns.push(self.name("a column name")?);
        }
        Ok(CopyColumns::Some(columns))
    }

    fn encoding(&mut self) -> Result<(), SqlError> {
        let position = self.position();
        let encoding = self.word_or_string()?;
        if ["utf8", "utf-8", "unicode"].iter().any(|alias| encoding.eq_ignore_ascii_case(alias)) {
            return Ok(());
        }
        Err(SqlError::unsupported(format!("encoding \"{encoding}\"")).with_position(position))
    }

    fn word_or_string(&mut self) -> Result<String, SqlError> {
        if let Ok(text) = self.string() {
            return Ok(text);
        }
        let value = match &self.peek().token {
            Token::Word(word) => word.value.clone(),
            Token::Number(number, _) => number.clone(),
            _ => return Err(self.unexpected("a value")),
        };
        self.next();
        Ok(value)
    }
}

impl WrittenOptions {
    /// The options, with defaults in place of those not given, if they fit together.
    fn check(self) -> Result<(CopyFormat, CopyOptions), SqlError> {
        // Some options require a format.
        let format = self.format.unwrap_or_default();
        let csv = format == CopyFormat::Csv;
        let not_csv = [
            (self.quote.is_some(), "QUOTE"),
            (self.escape.is_some(), "ESCAPE"),
            (self.force_null.is_some(), "FORCE_NULL"),
            (self.force_not_null.is_some(), "FORCE_NOT_NULL"),
            (self.force_quote.is_some(), "FORCE_QUOTE"),
        ];
        if let Some((_, option)) = not_csv.iter().find(|(is_given, _)| *is_given && !csv) {
            return Err(SqlError::new(FEATURE, format!("COPY {option} requires CSV mode")));
        }
        let without_options = match format {
            CopyFormat::Text | CopyFormat::Csv => None,
            CopyFormat::Binary => Some("BINARY"),
            CopyFormat::Ndjson => Some("NDJSON"),
            CopyFormat::Parquet => Some("PARQUET"),
        };
        if let Some(mode) = without_options {
            let not_binary = [
                (self.delimiter.is_some(), "DELIMITER"),
                (self.null.is_some(), "NULL"),
                (self.header.is_some_and(|header| header != CopyHeader::None), "HEADER"),
            ];
            if let Some((_, option)) = not_binary.iter().find(|(is_given, _)| *is_given) {
                return Err(SqlError::syntax(format!("cannot specify {option} in {mode} mode")));
            }
        }
        // Options replace the format's defaults.
        let mut options = CopyOptions::new(format);
        if let Some(delimiter) = self.delimiter {
            options.delimiter = one_byte(&delimiter, "delimiter")?;
        }
        if let Some(quote) = self.quote {
            options.quote = one_byte(&quote, "quote")?;
            options.escape = options.quote;
        }
        if let Some(escape) = self.escape {
            options.escape = one_byte(&escape, "escape")?;
        }
        if let Some(null) = self.null {
            options.null = null;
        }
        options.header = self.header.unwrap_or(CopyHeader::None);
        options.force_null = self.force_null.unwrap_or(CopyColumns::None);
        options.force_not_null = self.force_not_null.unwrap_or(CopyColumns::None);
        options.force_quote = self.force_quote.unwrap_or(CopyColumns::None);
        // Delimiter, quote and NULL must be distinguishable from each other and from data.
        if options.null.contains(['\n', '\r']) {
            return Err(invalid("COPY null representation cannot use newline or carriage return"));
        }
        if without_options.is_none() && options.null.as_bytes().contains(&options.delimiter) {
            return Err(invalid(
                "COPY delimiter character must not appear in the NULL specification",
            ));
        }
        if csv && options.delimiter == options.quote {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        if csv && options.null.as_bytes().contains(&options.quote) {
            return Err(invalid("CSV quote character must not appear in the NULL specification"));
        }
        if !csv
            && (options.delimiter.is_ascii_lowercase()
                || options.delimiter.is_ascii_digit()
                || matches!(options.delimiter, b'\\' | b'.'))
        {
            return Err(invalid(
                "COPY delimiter cannot be a lower-case letter, digit, dot or backslash",
            ));
        }
        Ok((format, options))
    }
}

/// COPY ... TO of a query, whose text begins at a position of the statement.
fn copy_to(
    text: &str,
    start: usize,
    file: Option<String>,
    (format, options): (CopyFormat, CopyOptions),
) -> Result<Statement, SqlError> {
    if options.header == CopyHeader::Match {
        return Err(SqlError::unsupported("HEADER MATCH with COPY TO"));
    }
    if options.force_null != CopyColumns::None || options.force_not_null != CopyColumns::None {
        return Err(SqlError::unsupported("FORCE_NULL and FORCE_NOT_NULL with COPY TO"));
    }
    let query = parse_query(text, start)?;
    Ok(Statement::CopyTo(CopyTo { query, file, format, options }))
}

/// PostgreSQL's SQLSTATE for options of another format.
const FEATURE: &str = crate::error::FEATURE_NOT_SUPPORTED;

fn invalid(message: &str) -> SqlError {
    SqlError::new(INVALID_PARAMETER_VALUE, message)
}

fn one_byte(text: &str, option: &str) -> Result<u8, SqlError> {
    match text.as_bytes() {
        [b'\n' | b'\r', ..] => {
            Err(invalid(&format!("COPY {option} cannot be newline or carriage return")))
        }
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(SqlError::new(
            FEATURE,
            format!("COPY {option} must be a single one-byte character"),
        )),
    }
}

/// The query whose rows COPY table TO writes.
fn select(table: &TableName, columns: Option<&[String]>) -> String {
    let list = match columns {
        None => "*".to_owned(),
        Some(columns) => quote_list(columns.iter().map(String::as_str)),
    };
    match &table.database {
        Some(database) => format!("SELECT {list} FROM {}.{}", quote(database), quote(&table.name)),
        None => format!("SELECT {list} FROM {}", quote(&table.name)),
    }
}
