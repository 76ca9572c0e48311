//! The column names that PostgreSQL clients expect of a query.
//!
//! `SELECT count(*), v::text, a + b` has the columns `count`, `v` and `?column?` in PostgreSQL, and clients that read
//! columns by name use these names. The planner's own names (`count(*)`, `t.a + t.b`) are more specific, mostly unique,
//! and used over HTTP: they stay, and the shown names are added as metadata of the fields. (Subqueries that need other
//! names: `given_names.rs`.)
//! The rules are those of PostgreSQL's `FigureColname` (src/backend/parser/parse_target.c).
//!
//! Invariant: a column with an alias has that as its name, and one from a wildcard has the planner's name.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, DataType, Expr, Ident, ObjectNamePart, Query, SelectItem, SetExpr, Statement,
    TimezoneInfo, TrimWhereField, Value,
};

use super::grouped_casts::of_call;

/// The key of the shown name in a field's metadata.
const SHOWN: &str = "partita.shown_name";
/// The name of a column without a name.
const NAMELESS: &str = "?column?";

/// The name of a result's column for PostgreSQL clients.
pub fn shown_name(field: &Field) -> &str {
    field.metadata().get(SHOWN).unwrap_or_else(|| field.name())
}

/// The columns of a query, with their shown names in the metadata.
pub fn with_shown_names(statement: &PlannerStatement, schema: SchemaRef) -> SchemaRef {
    let PlannerStatement::Statement(statement) = statement else { return schema };
    let Statement::Query(query) = statement.as_ref() else { return schema };
    let Some(items) = items(&query.body) else { return schema };
    let names = shown(items, schema.fields().len());
    let is_new = |(name, field): (&Option<String>, &Arc<Field>)| {
        name.as_ref().is_some_and(|name| name != field.name())
    };
    if !names.iter().zip(schema.fields()).any(is_new) {
        return schema;
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| {
        let mut field = field.as_ref().clone();
        if let Some(name) = name {
            field.metadata_mut().insert(SHOWN.to_owned(), name);
        }
        field
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The select list that names a query's columns: that of the first branch.
fn items(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::Query(query) => items(&query.body),
        SetExpr::SetOperation { left, .. } => items(left),
        _ => None,
    }
}

/// The shown names of all columns; `None` where the planner's name stays.
fn shown(items: &[SelectItem], columns: usize) -> Vec<Option<String>> {
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expression) => Some(of(expression)),
        // The planner's name has a number if an earlier column has the alias (`unique_names.rs`).
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    };
    let is_one = |item: &&SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    // The columns of a wildcard are those between the items before it and the items after the last one.
    let leading: Vec<_> = items.iter().take_while(is_one).map(name).collect();
    let rest = &items[leading.len()..];
    let mut trailing: Vec<_> = rest.iter().rev().take_while(is_one).map(name).collect();
    trailing.reverse();
    let fits = if rest.is_empty() {
        leading.len() == columns
    } else {
        leading.len() + trailing.len() <= columns
    };
    if !fits {
        return vec![None; columns];
    }
    let wildcard_columns = columns - leading.len() - trailing.len();
    leading.into_iter().chain(std::iter::repeat_n(None, wildcard_columns)).chain(trailing).collect()
}

fn of(expression: &Expr) -> String {
    given_name(expression).unwrap_or_else(|| NAMELESS.to_owned())
}

/// PostgreSQL's name for a computed column; `None` if it has none.
pub(super) fn given_name(expression: &Expr) -> Option<String> {
    figured(expression).map(|figured| figured.name)
}

/// A name, and whether a cast of the named expression keeps it.
struct Figured {
    name: String,
    is_strong: bool,
}

fn strong(name: impl Into<String>) -> Option<Figured> {
    Some(Figured { name: name.into(), is_strong: true })
}

fn weak(name: impl Into<String>) -> Option<Figured> {
    Some(Figured { name: name.into(), is_strong: false })
}

/// An identifier, folded unless it is quoted.
pub(super) fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

fn figured(expression: &Expr) -> Option<Figured> {
    // A strong name survives a cast or CASE; a weak one is replaced.
    let or_weak = |inner: Option<Figured>, name: &str| match inner {
        Some(inner) if inner.is_strong => Some(inner),
        _ => weak(name),
    };
    match expression {
        // Columns, functions and expressions around them.
        Expr::Identifier(name) => strong(folded(name)),
        Expr::CompoundIdentifier(path) => path.last().and_then(|name| strong(folded(name))),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(name)) => Some(folded(name)),
                _ => None,
            });
            field.map_or_else(|| figured(root), strong)
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figured(inner),
        Expr::Function(call) if let Some(cast) = of_call(call) => figured(cast),
        Expr::Function(call) => match call.name.0.last() {
            Some(ObjectNamePart::Identifier(name)) => of_function(name),
            _ => None,
        },
        Expr::Cast { expr, data_type, .. } => or_weak(figured(expr), &type_name(data_type)),
        Expr::TypedString(typed) => weak(type_name(&typed.data_type)),
        Expr::Interval(_) => weak("interval"),
        Expr::Case { else_result, .. } => {
            or_weak(else_result.as_ref().and_then(|result| figured(result)), "case")
        }
        // Subqueries and special syntax have strong names.
        Expr::Subquery(query) => of_subquery(query),
        Expr::Exists { negated: false, .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Position { .. } => strong("position"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Substring { shorthand, .. } => {
            strong(if *shorthand { "substr" } else { "substring" })
        }
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => weak("bool"),
        _ => None,
    }
}

/// The name of a function, or of what the parser replaced by it.
fn of_function(name: &Ident) -> Option<Figured> {
    match name.value.as_str() {
        "similar_to" | "regexp_matched" => None,
        "date_of_text" => strong("to_date"),
        "instant_of_pattern" => strong("to_timestamp"),
        _ => strong(folded(name)),
    }
}

/// A subquery has the name of its only column.
fn of_subquery(query: &Query) -> Option<Figured> {
    match items(&query.body)?.first()? {
        SelectItem::UnnamedExpr(expression) => figured(expression),
        SelectItem::ExprWithAlias { alias, .. } => strong(folded(alias)),
        _ => None,
    }
}

/// PostgreSQL's own name of a type.
fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Real | DataType::Float4 => "float4",
        DataType::DoublePrecision | DataType::Double(_) | DataType::Float8 | DataType::Float(_) => {
            "float8"
        }
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Boolean | DataType::Bool => "bool",
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => {
            "varchar"
        }
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::String(_) | DataType::Text => "text",
        DataType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => "timestamptz",
        DataType::Timestamp(..) => "timestamp",
        DataType::Time(..) => "time",
        DataType::Interval { .. } => "interval",
        DataType::Array(_) => "array",
        data_type => {
            let text = data_type.to_string().to_ascii_lowercase();
            let end = text.find(['(', ' ']).unwrap_or(text.len());
            return text[..end].to_owned();
        }
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    /// What the columns of a query are called, given what the planner calls them.
    fn names(sql: &str, planned: &[&str]) -> Vec<String> {
        let Some(crate::Statement::Query(query)) = parse(sql).unwrap().pop() else {
            panic!("{sql}")
        };
        let fields: Vec<_> = planned
            .iter()
            .map(|name| Field::new(*name, arrow::datatypes::DataType::Null, true))
            .collect();
        let schema = with_shown_names(&query.statement, Arc::new(Schema::new(fields)));
        schema.fields().iter().map(|field| shown_name(field).to_owned()).collect()
    }

    #[test]
    fn columns_are_called_as_postgres_calls_them() {
        for (expression, name) in [
            ("a", "a"),
            ("t.a", "a"),
            ("A", "a"),
            ("\"A\"", "A"),
            ("(a)", "a"),
            ("count(*)", "count"),
            ("COUNT(DISTINCT a)", "count"),
            ("sum(a) OVER (ORDER BY b)", "sum"),
            ("pg_catalog.version()", "version"),
            ("now()", "now"),
            ("current_date", "current_date"),
            ("coalesce(a, b)", "coalesce"),
            ("a::text", "a"),
            ("max(a)::BIGINT", "max"),
            ("1::BIGINT", "int8"),
            ("'x'::varchar(3)", "varchar"),
            ("CAST(a + b AS DOUBLE PRECISION)", "float8"),
            ("a + b", "?column?"),
            ("-a", "?column?"),
            ("a IS NULL", "?column?"),
            ("a = ANY (ARRAY[1])", "?column?"),
            ("'text'", "?column?"),
            ("NULL", "?column?"),
            ("true", "bool"),
            ("DATE '2026-01-01'", "date"),
            ("TIMESTAMP '2026-01-01 00:00:00'", "timestamp"),
            ("INTERVAL '1 day'", "interval"),
            ("CASE WHEN a THEN b ELSE c END", "c"),
            ("CASE WHEN a THEN b ELSE 1 END", "case"),
            ("CASE a WHEN 1 THEN b END", "case"),
            ("(SELECT max(a) FROM t)", "max"),
            ("(SELECT a + 1 AS next FROM t)", "next"),
            ("EXISTS (SELECT 1)", "exists"),
            ("ARRAY[1, 2]", "array"),
            ("a[1]", "a"),
            ("extract(hour FROM ts)", "extract"),
            ("date_trunc('day', ts)", "date_trunc"),
            ("ts AT TIME ZONE 'UTC'", "timezone"),
            ("substring(a FROM 2)", "substring"),
            ("substr(a, 2)", "substr"),
            ("trim(a)", "btrim"),
            ("trim(LEADING 'x' FROM a)", "ltrim"),
            ("floor(a)", "floor"),
            ("to_date(a, 'YYYY')", "to_date"),
            ("to_timestamp(a, 'YYYY')", "to_timestamp"),
            ("a SIMILAR TO 'x'", "?column?"),
            ("a ~ b", "?column?"),
        ] {
            assert_eq!(
                names(&format!("SELECT {expression} FROM t"), &["planned"]),
                [name],
                "{expression}"
            );
        }
    }

    #[test]
    fn aliases_and_wildcards_keep_their_names() {
        assert_eq!(names("SELECT 1 AS one, 2", &["one", "Int64(2)"]), ["one", "?column?"]);
        assert_eq!(names("SELECT v, v FROM t", &["v", "v:2"]), ["v", "v"]);
        assert_eq!(names("SELECT v AS X, w AS x FROM t", &["x", "x:2"]), ["x", "x"]);
        assert_eq!(names("SELECT *, w AS v FROM t", &["v", "w", "v:2"]), ["v", "w", "v"]);
        assert_eq!(names("SELECT * FROM t", &["a", "b"]), ["a", "b"]);
        assert_eq!(names("SELECT count(*), t.* FROM t", &["c", "a", "b"]), ["count", "a", "b"]);
        assert_eq!(
            names("SELECT 1, *, now(), t.*, max(a) FROM t", &["1", "a", "n", "b", "m"]),
            ["?column?", "a", "n", "b", "max"]
        );
    }

    #[test]
    fn the_first_branch_names_the_columns_of_a_union() {
        assert_eq!(names("SELECT count(*) FROM t UNION SELECT 1", &["count(*)"]), ["count"]);
        assert_eq!(names("(SELECT 1) EXCEPT SELECT max(a) FROM t", &["1"]), ["?column?"]);
        assert_eq!(names("WITH c AS (SELECT 1 AS x) SELECT min(x) FROM c", &["m"]), ["min"]);
        assert_eq!(names("VALUES (1, 2)", &["column1", "column2"]), ["column1", "column2"]);
    }
}
