//! The names of column types: those of GreptimeDB, PostgreSQL, MySQL and YDB, as far as a column can store them.
//!
//! Where two of them disagree: `INT8` is PostgreSQL's (eight bytes), `FLOAT` without a number is double precision
//! (losing half of the digits is worse than storing four more bytes), and `TIMESTAMP` without a number has
//! milliseconds, because integers inserted into it count milliseconds: a column of microseconds would turn the
//! milliseconds of a log store into the year 1970. A notice informs clients that may expect PostgreSQL's microseconds.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::schema::{ColumnType, Element, JsonType, TextLength, Unit};

use super::tokens::Tokens;
use crate::error::{SqlError, UNDEFINED_OBJECT};
use crate::notice::Notice;

/// Precision and scale of a DECIMAL without either.
const DECIMAL_DEFAULT: (u8, i8) = (38, 10);
/// Maximum precision of a DECIMAL.
const DECIMAL_PRECISION_MAX: u64 = 38;
/// Maximum length of a text type in characters, as in PostgreSQL.
const TEXT_LENGTH_MAX: u32 = 10_485_760;

/// Types of other databases, with the type to use instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("json2", "JSON or JSONB"),
    ("xml", "STRING"),
    ("inet", "STRING"),
    ("enum", "STRING"),
    ("timetz", "TIME, or TIMESTAMP WITH TIME ZONE"),
    ("year", "SMALLINT"),
    ("money", "DECIMAL"),
    ("bit", "BINARY"),
    ("serial", "BIGINT and a DEFAULT, or the time index"),
    ("bigserial", "BIGINT and a DEFAULT, or the time index"),
    ("smallserial", "SMALLINT and a DEFAULT, or the time index"),
    ("vector", "BINARY"),
    ("array", "a type and brackets, as in INT[]"),
    ("struct", "JSONB, or one column for each member"),
    ("map", "JSONB, or one row for each member"),
];

/// The type of a column, with what distinguishes its texts from others.
pub(super) struct Declared {
    pub(super) column_type: ColumnType,
    /// Of VARCHAR(n) and CHAR(n).
    pub(super) length: Option<TextLength>,
    /// Of JSON and JSONB.
    pub(super) json: Option<JsonType>,
}

impl Declared {
    /// A type without such parts.
    pub(super) fn plain(column_type: ColumnType) -> Self {
        Self { column_type, length: None, json: None }
    }
}

impl Tokens<'_> {
    /// Takes a type of values; a length is ignored. JSON is refused, because its values are not any texts.
    pub(super) fn column_type(
        &mut self,
        notices: &mut Vec<Notice>,
    ) -> Result<ColumnType, SqlError> {
        let json_type = self.unsupported("JSON as the type of this value");
        let declared = self.declared_type(notices)?;
        if declared.json.is_some() {
            return Err(json_type);
        }
        Ok(declared.column_type)
    }

    /// Takes a column type. Parts of it that are not stored are reported in `notices`.
    pub(super) fn declared_type(
        &mut self,
        notices: &mut Vec<Notice>,
    ) -> Result<Declared, SqlError> {
        let (mut length, mut json) = (None, None);
        // The name decides; names of other databases' types are refused.
        let name = match &self.peek().token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
            _ => return Err(self.unexpected("a type")),
        };
        if let Some((_, instead)) = UNSUPPORTED.iter().find(|(candidate, _)| *candidate == name) {
            let error = self.unsupported(format!("type {}", name.to_ascii_uppercase()));
            return Err(error.with_hint(format!("use {instead}")));
        }
        let unknown = self
            .located(SqlError::new(UNDEFINED_OBJECT, format!("type \"{name}\" does not exist")));
        self.next();
        // Integers share their modifiers.
        let column_type = if let Some(integer) = integer(&name) {
            self.integer_modifiers(integer)?
        } else {
            // Other types have modifiers of their own.
            match name.as_str() {
                "bool" | "boolean" => ColumnType::Bool,
                "real" | "float4" | "float32" => ColumnType::Float32,
                "float8" | "float64" => ColumnType::Float64,
                "float" => match self.modifier()? {
                    Some(digits) if digits <= 24 => ColumnType::Float32,
                    _ => ColumnType::Float64,
                },
                "double" => {
                    self.take(&["precision"]);
                    ColumnType::Float64
                }
                "decimal" | "numeric" | "dec" => self.decimal()?,
                "string" | "text" | "utf8" | "tinytext" | "mediumtext" | "longtext" => {
                    ColumnType::String
                }
                "json" | "jsonb" => {
                    let is_binary = name == "jsonb";
                    json = Some(if is_binary { JsonType::Jsonb } else { JsonType::Json });
                    ColumnType::String
                }
                "varchar" | "char" | "character" | "bpchar" | "nvarchar" | "nchar" => {
                    let varying = self.take(&["varying"]);
                    length = self.text_length(&name, varying)?;
                    ColumnType::String
                }
                "binary" | "varbinary" | "bytea" | "bytes" | "blob" | "tinyblob" | "mediumblob"
                | "longblob" => {
                    if let Some(length) = self.modifier()? {
                        notices.push(length_notice(&name, length));
                    }
                    ColumnType::Binary
                }
                "date" | "date32" => ColumnType::Date,
                "uuid" => ColumnType::Uuid,
                "interval" => ColumnType::Interval,
                "time" => self.time_modifiers()?,
                _ => match moment(&name) {
                    Some(moment) => self.timestamp_modifiers(moment, notices)?,
                    None => return Err(unknown),
                },
            }
        };
        let declared = Declared { column_type, length, json };
        if matches!(self.peek().token, Token::LBracket) || self.at("array") {
            return Ok(Declared::plain(self.array_of(&declared)?));
        }
        Ok(declared)
    }

    /// Takes `[]` or ARRAY after the type of the elements. As in PostgreSQL, a number in it means nothing.
    fn array_of(&mut self, elements: &Declared) -> Result<ColumnType, SqlError> {
        let name = match (elements.length, elements.json) {
            (Some(length), _) => Some(length.sql()),
            (None, Some(json)) => Some(json.sql().to_owned()),
            (None, None) => None,
        };
        let element = match name {
            None => Element::of(elements.column_type),
            Some(_) => None,
        };
        let Some(element) = element else {
            let name = name.unwrap_or_else(|| elements.column_type.sql());
            return Err(self
                .unsupported(format!("an array of {name}"))
                .with_hint("use an array of another type, as STRING[], or JSONB"));
        };
        let is_named = self.take(&["array"]);
        if !is_named || matches!(self.peek().token, Token::LBracket) {
            self.expect_mark(&Token::LBracket)?;
            if !self.take_mark(&Token::RBracket) {
                self.unsigned("a number")?;
                self.expect_mark(&Token::RBracket)?;
            }
        }
        if matches!(self.peek().token, Token::LBracket) {
            return Err(self.unsupported("an array of several dimensions as a column"));
        }
        Ok(ColumnType::Array(element))
    }

    /// Takes `(n)`.
    fn modifier(&mut self) -> Result<Option<u64>, SqlError> {
        if !self.take_mark(&Token::LParen) {
            return Ok(None);
        }
        let number = self.unsigned("a number")?;
        self.expect_mark(&Token::RParen)?;
        Ok(Some(number))
    }

    /// Takes a display width, which is ignored, and UNSIGNED.
    fn integer_modifiers(&mut self, integer: ColumnType) -> Result<ColumnType, SqlError> {
        self.modifier()?;
        if self.take(&["unsigned"]) {
            return Ok(match integer {
                ColumnType::Int8 => ColumnType::UInt8,
                ColumnType::Int16 => ColumnType::UInt16,
                ColumnType::Int32 => ColumnType::UInt32,
                ColumnType::Int64 => ColumnType::UInt64,
                unsigned => unsigned,
            });
        }
        self.take(&["signed"]);
        Ok(integer)
    }

    fn decimal(&mut self) -> Result<ColumnType, SqlError> {
        if !self.take_mark(&Token::LParen) {
            return Ok(ColumnType::Decimal(DECIMAL_DEFAULT.0, DECIMAL_DEFAULT.1));
        }
        let wrong = self.located(SqlError::new(
            "22023",
            format!("DECIMAL takes 1 to {DECIMAL_PRECISION_MAX} digits and a scale up to them"),
        ));
        let precision = self.unsigned("a number of digits")?;
        let scale = if self.take_mark(&Token::Comma) { self.unsigned("a scale")? } else { 0 };
        self.expect_mark(&Token::RParen)?;
        if !(1..=DECIMAL_PRECISION_MAX).contains(&precision) || scale > precision {
            return Err(wrong);
        }
        match (u8::try_from(precision), i8::try_from(scale)) {
            (Ok(precision), Ok(scale)) => Ok(ColumnType::Decimal(precision, scale)),
            _ => Err(wrong),
        }
    }

    /// Takes the number of characters of a text; the default of CHAR is 1.
    fn text_length(&mut self, name: &str, varying: bool) -> Result<Option<TextLength>, SqlError> {
        let fixed = !varying && !matches!(name, "varchar" | "nvarchar");
        let wrong = |says: &str| {
            let name = if fixed { "char" } else { "varchar" };
            SqlError::new("22023", format!("length for type {name} {says}"))
        };
        let position = self.position();
        let located = |error: SqlError| Err(error.with_position(position));
        let characters = match self.modifier()? {
            Some(0) => return located(wrong("must be at least 1")),
            Some(characters) => match u32::try_from(characters) {
                Ok(characters) if characters <= TEXT_LENGTH_MAX => characters,
                _ => return located(wrong(&format!("cannot exceed {TEXT_LENGTH_MAX}"))),
            },
            None if fixed && name != "bpchar" => 1,
            None => return Ok(None),
        };
        Ok(Some(TextLength { characters, fixed }))
    }

    /// Takes `(6)` and WITHOUT TIME ZONE after TIME.
    fn time_modifiers(&mut self) -> Result<ColumnType, SqlError> {
        let wrong = self.unsupported("a TIME of other than 6 digits");
        if !matches!(self.modifier()?, None | Some(6)) {
            return Err(wrong);
        }
        if self.at("with") {
            return Err(self
                .unsupported("type TIME WITH TIME ZONE")
                .with_hint("use TIME, or TIMESTAMP WITH TIME ZONE"));
        }
        self.take(&["without", "time", "zone"]);
        Ok(ColumnType::Time)
    }

    /// Takes `(digits)` and WITH or WITHOUT TIME ZONE.
    fn timestamp_modifiers(
        &mut self,
        moment: Moment,
        notices: &mut Vec<Notice>,
    ) -> Result<ColumnType, SqlError> {
        let Moment { mut unit, mut zoned, adjustable } = moment;
        if matches!(self.peek().token, Token::LParen) {
            let wrong = self.unsupported("a TIMESTAMP of other than 0, 3, 6 or 9 digits");
            if !adjustable {
                return Err(self.unexpected("no digits after a type that names its unit"));
            }
            unit = Some(match self.modifier()? {
                Some(0) => Unit::Second,
                Some(3) => Unit::Millisecond,
                Some(6) => Unit::Microsecond,
                Some(9) => Unit::Nanosecond,
                _ => return Err(wrong),
            });
        }
        if self.take(&["with", "time", "zone"]) {
            zoned = true;
        } else if self.take(&["without", "time", "zone"]) && zoned {
            return Err(self.unexpected("no WITHOUT TIME ZONE after a type with one"));
        }
        if unit.is_none() && !zoned {
            let message =
                "TIMESTAMP without a precision has milliseconds; TIMESTAMP(6) has microseconds";
            notices.push(Notice::notice(message));
        }
        let default = if zoned { Unit::Microsecond } else { Unit::Millisecond };
        Ok(ColumnType::Timestamp(unit.unwrap_or(default), zoned))
    }
}

fn length_notice(name: &str, length: u64) -> Notice {
    Notice::notice(format!("the length of {}({length}) is not enforced", name.to_ascii_uppercase()))
}

/// The integer type with this name.
fn integer(name: &str) -> Option<ColumnType> {
    Some(match name {
        "tinyint" => ColumnType::Int8,
        "smallint" | "int2" | "int16" => ColumnType::Int16,
        "int" | "integer" | "int4" | "int32" | "mediumint" => ColumnType::Int32,
        "bigint" | "int8" | "int64" => ColumnType::Int64,
        "uint8" | "utinyint" => ColumnType::UInt8,
        "uint16" | "usmallint" => ColumnType::UInt16,
        "uint32" | "uint" => ColumnType::UInt32,
        "uint64" | "ubigint" => ColumnType::UInt64,
        _ => return None,
    })
}

/// The parts of a timestamp type that its name determines.
struct Moment {
    /// Unit of its ticks, if the name determines it.
    unit: Option<Unit>,
    /// True if it has a time zone.
    zoned: bool,
    /// True if a number of digits may follow.
    adjustable: bool,
}

/// The timestamp type with this name.
fn moment(name: &str) -> Option<Moment> {
    let fixed = |unit| Some(Moment { unit: Some(unit), zoned: false, adjustable: false });
    match name {
        "timestamp" => Some(Moment { unit: None, zoned: false, adjustable: true }),
        "timestamptz" => Some(Moment { unit: None, zoned: true, adjustable: true }),
        // MySQL's and GreptimeDB's; microseconds unless digits follow.
        "datetime" => {
            Some(Moment { unit: Some(Unit::Microsecond), zoned: false, adjustable: true })
        }
        "timestamp_s" | "timestamp_sec" | "timestampsecond" => fixed(Unit::Second),
        "timestamp_ms" | "timestampmillisecond" => fixed(Unit::Millisecond),
        "timestamp_us" | "timestampmicrosecond" => fixed(Unit::Microsecond),
        "timestamp_ns" | "timestampnanosecond" => fixed(Unit::Nanosecond),
        _ => None,
    }
}
