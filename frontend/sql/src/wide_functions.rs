//! Functions in FROM that read wide tables, as queries of these tables.
//!
//! ```text
//!   cells(w, prefix => 'us#', family => 'f')        cells of some rows, families or columns
//!   cells(w, row => 'r', versions => 1)             the newest cells of a row
//!   w(row_key, pressure => 'stats:pressure')        the newest cell of each column, a row for each row
//!   w(row_key, cell_ts, pressure => 'stats:p')      one row for each time
//! ```
//!
//! Conditions stand in the query itself, so a scan reads only the range of keys of a prefix or a row. Row keys that are bytes
//! are written `X'6162'`.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, TableFactor, Value,
};

use super::from_functions::{factor_of, last, shown};
use super::identifier::{quote, quote_string};
use super::shown_names::folded;
use crate::error::SqlError;

/// SQLSTATE of an argument that a function does not have, or that is missing.
const UNDEFINED_FUNCTION: &str = "42883";
/// SQLSTATE of an argument with a wrong value.
const INVALID_PARAMETER_VALUE: &str = "22023";
const CELLS: &str = "cells";
const COLUMNS: &str = "row_key, family, qualifier, cell_ts, value";

/// A constant argument.
enum Constant {
    Text(String),
    /// Bytes, as hexadecimal digits.
    Bytes(String),
    Number(u64),
}

/// A function in FROM that reads a wide table as a query; `None` if it is none.
///
/// # Errors
/// When an argument does not exist, or has a value that the function does not take.
pub(super) fn adapted(table: &TableFactor) -> Result<Option<TableFactor>, SqlError> {
    let TableFactor::Table { name, args: Some(args), alias, with_ordinality: false, .. } = table
    else {
        return Ok(None);
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(first)), rest @ ..] = args.args.as_slice()
    else {
        return Ok(None);
    };
    let function = last(name).unwrap_or_default();
    let is_source = matches!(first, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let query = if function == CELLS && name.0.len() == 1 && is_source {
        cells(&first.to_string(), rest)?
    } else if is_named(first, "row_key") && !rest.is_empty() {
        pivot(name, rest)?
    } else {
        return Ok(None);
    };
    let alias = alias.as_ref().map_or_else(|| quote(&function).into_owned(), shown);
    let text = format!("SELECT * FROM ({query}) AS {alias}");
    factor_of(&text)
        .map(Some)
        .ok_or_else(|| SqlError::internal("a function of wide tables was not read again"))
}

/// Query of cells.
fn cells(source: &str, arguments: &[FunctionArg]) -> Result<String, SqlError> {
    let (mut conditions, mut versions) = (Vec::new(), None);
    for argument in arguments {
        let (name, constant) = named_constant(CELLS, argument)?;
        let wrong = || wrong(&name);
        match (name.as_str(), constant) {
            ("prefix", constant) => conditions.extend(begins_with(constant).ok_or_else(wrong)?),
            ("row", constant) => {
                conditions.push(format!("row_key = {}", literal(constant).ok_or_else(wrong)?));
            }
            ("family", Constant::Text(family)) => {
                conditions.push(format!("family = {}", quote_string(&family)));
            }
            ("qualifier", constant) => {
                conditions.push(format!("qualifier = {}", bytes(constant).ok_or_else(wrong)?));
            }
            ("versions", Constant::Number(number)) if number > 0 => versions = Some(number),
            ("family" | "versions", _) => return Err(wrong()),
            _ => return Err(unknown(CELLS, &name)),
        }
    }
    let filter = match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    };
    Ok(match versions {
        None => format!("SELECT {COLUMNS} FROM {source}{filter}"),
        Some(versions) => format!(
            "SELECT {COLUMNS} FROM (SELECT {COLUMNS}, row_number() OVER (PARTITION BY row_key, family, qualifier \
             ORDER BY cell_ts DESC) AS version FROM {source}{filter}) AS numbered WHERE version <= {versions}"
        ),
    })
}

/// Query of a row for each row of a wide table, or for each time of one, with some columns.
fn pivot(source: &ObjectName, arguments: &[FunctionArg]) -> Result<String, SqlError> {
    let mut key = "row_key";
    let mut arguments = arguments;
    if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(second)), rest @ ..] = arguments
        && is_named(second, "cell_ts")
    {
        (key, arguments) = ("row_key, cell_ts", rest);
    }
    let (mut columns, mut families, mut qualifiers) = (Vec::new(), Vec::new(), Vec::new());
    for argument in arguments {
        let (name, text) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (None, constant_of(expr)),
            _ => {
                let (name, constant) = named_constant("a wide table", argument)?;
                (Some(name), Some(constant))
            }
        };
        let Some(Constant::Text(text)) = text else { return Err(no_column()) };
        let (family, qualifier) = text.split_once(':').ok_or_else(no_column)?;
        let (family, name) = (quote_string(family), name.as_deref().unwrap_or(qualifier));
        let qualifier = bytes(Constant::Text(qualifier.to_owned())).ok_or_else(no_column)?;
        columns.push(format!(
            "first_value(value ORDER BY cell_ts DESC) FILTER (WHERE family = {family} AND qualifier = {qualifier}) \
             AS {}",
            quote(name)
        ));
        families.push(family);
        qualifiers.push(qualifier);
    }
    if columns.is_empty() {
        return Err(no_column());
    }
    Ok(format!(
        "SELECT {key}, {} FROM {source} WHERE family IN ({}) AND qualifier IN ({}) GROUP BY {key}",
        columns.join(", "),
        families.join(", "),
        qualifiers.join(", ")
    ))
}

/// True for a column of this name.
fn is_named(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Identifier(ident) if folded(ident) == name)
}

/// Name and value of an argument.
fn named_constant(function: &str, argument: &FunctionArg) -> Result<(String, Constant), SqlError> {
    let FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } = argument else {
        let message = format!("arguments of {function} are written name => value");
        return Err(SqlError::new(UNDEFINED_FUNCTION, message));
    };
    let name = folded(name);
    match constant_of(value) {
        Some(constant) => Ok((name, constant)),
        None => Err(wrong(&name).with_detail("it must be a constant")),
    }
}

fn constant_of(expr: &Expr) -> Option<Constant> {
    let Expr::Value(value) = expr else { return None };
    match &value.value {
        Value::SingleQuotedString(text) => Some(Constant::Text(text.clone())),
        Value::HexStringLiteral(digits) => {
            let is_hex = digits.len().is_multiple_of(2)
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| Constant::Bytes(digits.clone()))
        }
        Value::Number(number, _) => number.parse().ok().map(Constant::Number),
        _ => None,
    }
}

/// Conditions of row keys that begin with a text or with bytes.
fn begins_with(prefix: Constant) -> Option<Vec<String>> {
    match prefix {
        Constant::Text(text) => {
            let mut pattern = String::with_capacity(text.len() + 1);
            for letter in text.chars() {
                if matches!(letter, '\\' | '%' | '_') {
                    pattern.push('\\');
                }
                pattern.push(letter);
            }
            pattern.push('%');
            Some(vec![format!("row_key LIKE {}", quote_string(&pattern))])
        }
        Constant::Bytes(digits) => {
            let mut conditions = vec![format!("row_key >= X'{digits}'")];
            conditions.extend(successor(&digits).map(|next| format!("row_key < X'{next}'")));
            Some(conditions)
        }
        Constant::Number(_) => None,
    }
}

/// The least bytes behind all that begin with some, as hexadecimal digits; `None` if there are none.
fn successor(digits: &str) -> Option<String> {
    let digits = digits.to_ascii_uppercase();
    let mut trimmed = digits.as_str();
    while let Some(shorter) = trimmed.strip_suffix("FF") {
        trimmed = shorter;
    }
    let (start, last) = trimmed.split_at_checked(trimmed.len().checked_sub(2)?)?;
    let last = u8::from_str_radix(last, 16).ok()?;
    Some(format!("{start}{:02X}", last + 1))
}

/// A text or bytes as written in SQL.
fn literal(constant: Constant) -> Option<String> {
    match constant {
        Constant::Text(text) => Some(quote_string(&text)),
        Constant::Bytes(digits) => Some(format!("X'{digits}'")),
        Constant::Number(_) => None,
    }
}

/// Bytes as written in SQL, of a text or of themselves.
fn bytes(constant: Constant) -> Option<String> {
    match constant {
        Constant::Text(text) => {
            let digits: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
            Some(format!("X'{digits}'"))
        }
        constant => literal(constant),
    }
}

fn wrong(argument: &str) -> SqlError {
    SqlError::new(INVALID_PARAMETER_VALUE, format!("argument {argument} has an invalid value"))
}

fn unknown(function: &str, argument: &str) -> SqlError {
    let message = format!("function {function} has no argument {argument}");
    SqlError::new(UNDEFINED_FUNCTION, message)
        .with_hint("its arguments are prefix, row, family, qualifier and versions")
}

fn no_column() -> SqlError {
    let message = "columns of a wide table are written name => 'family:qualifier'";
    SqlError::new(INVALID_PARAMETER_VALUE, message)
}

#[cfg(test)]
mod tests {
    use super::super::statement::Statement;
    use super::*;
    use crate::adapted::adapt;
    use crate::parser::parse;

    /// What a query of a function in FROM becomes, or the SQLSTATE and message of its error.
    fn query_of(from: &str) -> Result<String, String> {
        let sql = format!("SELECT * FROM {from}");
        let Some(Statement::Query(query)) = parse(&sql).unwrap().pop() else { panic!("{sql}") };
        let mut statement = query.statement;
        adapt(&mut statement).map_err(|error| format!("{}: {}", error.sqlstate, error.message))?;
        Ok(statement.to_string())
    }

    #[test]
    fn cells_are_a_query_with_conditions_of_the_key() {
        let all = "SELECT row_key, family, qualifier, cell_ts, value FROM";
        for (written, meant) in [
            ("cells(w)", format!("SELECT * FROM ({all} w) AS cells")),
            ("cells(d.\"W\") AS c", format!("SELECT * FROM ({all} d.\"W\") AS c")),
            (
                "cells(w, prefix => 'us_1#', family => 'f')",
                format!(
                    "SELECT * FROM ({all} w WHERE row_key LIKE 'us\\_1#%' AND family = 'f') AS cells"
                ),
            ),
            (
                "cells(w, prefix => X'61FF', qualifier => 'q')",
                format!(
                    "SELECT * FROM ({all} w WHERE row_key >= X'61FF' AND row_key < X'62' AND qualifier = X'71') \
                     AS cells"
                ),
            ),
        ] {
            assert_eq!(query_of(written).unwrap(), meant, "{written}");
        }
        let newest = query_of("cells(w, row => 'r', versions => 2)").unwrap();
        assert!(newest.contains("row_key = 'r'"), "{newest}");
        assert!(newest.contains("ORDER BY cell_ts DESC) AS version"), "{newest}");
        assert!(newest.contains("WHERE version <= 2"), "{newest}");
    }

    #[test]
    fn a_table_with_columns_is_a_row_for_each_row_or_time() {
        let pivot = query_of("w(row_key, p => 'stats:pressure', 'stats:temp') AS t").unwrap();
        let pressure = "FILTER (WHERE family = 'stats' AND qualifier = X'7072657373757265') AS p";
        assert!(pivot.contains(pressure), "{pivot}");
        assert!(pivot.contains("AS temp FROM w WHERE family IN ('stats', 'stats')"), "{pivot}");
        assert!(pivot.ends_with("GROUP BY row_key) AS t"), "{pivot}");
        let timed = query_of("w(row_key, cell_ts, p => 'stats:p')").unwrap();
        assert!(timed.ends_with("GROUP BY row_key, cell_ts) AS w"), "{timed}");
    }

    #[test]
    fn arguments_that_do_not_exist_or_fit_are_refused() {
        for (from, message) in [
            ("cells(w, 'f')", "42883: arguments of cells are written name => value"),
            ("cells(w, suffix => 'f')", "42883: function cells has no argument suffix"),
            ("cells(w, versions => 0)", "22023: argument versions has an invalid value"),
            ("cells(w, prefix => 1)", "22023: argument prefix has an invalid value"),
            ("cells(w, row => a)", "22023: argument row has an invalid value"),
            ("w(row_key, p => 'pressure')", "22023: columns of a wide table are written"),
            ("w(row_key, cell_ts)", "22023: columns of a wide table are written"),
        ] {
            let error = query_of(from).unwrap_err();
            assert!(error.starts_with(message), "{from}: {error}");
        }
        assert_eq!(
            query_of("generate_series(1, 2)").unwrap(),
            "SELECT * FROM generate_series(1, 2)"
        );
    }

    #[test]
    fn bytes_have_a_successor_unless_all_are_the_greatest() {
        for (digits, next) in [("61", Some("62")), ("00ff", Some("01")), ("ffFF", None), ("", None)]
        {
            assert_eq!(successor(digits).as_deref(), next, "{digits}");
        }
    }
}
