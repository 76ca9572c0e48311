//! Casts to PostgreSQL's types of objects' ids: `regclass`, `regtype`, `regproc`, `regnamespace` and `regrole`.
//!
//! ```text
//!   't'::regclass          partita_regclass('t')                           a number, or 42P01
//!   't'::regclass::text    partita_regclass_name(partita_regclass('t'))    a name, schema-qualified unless visible
//! ```
//!
//! To the planner an object id is an integer. PostgreSQL shows these types by names, so a cast that is a column of the
//! outermost query becomes a text too; everywhere else it stays a number, which is compared with object ids.
//! In queries of `pg_catalog` functions are their names, so a `regproc` is a text everywhere, unless it is cast to `oid`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, SelectItem, SetExpr,
    Statement as Tree, Value, VisitMut, VisitorMut,
};

use super::functions::{NAMESPACE_NAME, REGCLASS, REGCLASS_NAME, REGNAMESPACE, REGTYPE};
use super::syntax::expression_of;

/// A type whose values are object ids that are shown as names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reg {
    Class,
    Type,
    Proc,
    Namespace,
    Role,
}

impl Reg {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match type_name(data_type).as_str() {
            "regclass" => Self::Class,
            "regtype" => Self::Type,
            "regproc" => Self::Proc,
            "regnamespace" => Self::Namespace,
            "regrole" => Self::Role,
            _ => return None,
        })
    }

    /// The name of the type.
    fn name(self) -> &'static str {
        match self {
            Self::Class => "regclass",
            Self::Type => "regtype",
            Self::Proc => "regproc",
            Self::Namespace => "regnamespace",
            Self::Role => "regrole",
        }
    }

    /// The text of a value; `None` where the value is a text.
    fn text(self, value: &Expr) -> Option<Expr> {
        match self {
            Self::Class => expression_of(&format!("{REGCLASS_NAME}({value})")),
            Self::Type => expression_of(&format!("format_type({value}, NULL)")),
            Self::Namespace => expression_of(&format!("{NAMESPACE_NAME}({value})")),
            Self::Role => expression_of(&format!("pg_get_userbyid({value})")),
            Self::Proc => None,
        }
    }

    /// The object id of what a name means; `None` where the cast stays as it is.
    fn number(self, operand: &Expr) -> Option<Expr> {
        let name = match operand {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) if is_number(text) => return expression_of(text),
                Value::SingleQuotedString(_) => Some(operand.to_string()),
                Value::Placeholder(_) => Some(format!("CAST({operand} AS TEXT)")),
                _ => None,
            },
            _ => None,
        };
        match (self, name) {
            (Self::Class, Some(name)) => expression_of(&format!("{REGCLASS}({name})")),
            // A name or a number, which the function tells apart.
            (Self::Class, None) => expression_of(&format!("{REGCLASS}({operand})")),
            (Self::Type, Some(name)) => expression_of(&format!("{REGTYPE}({name})")),
            (Self::Namespace, Some(name)) => expression_of(&format!("{REGNAMESPACE}({name})")),
            (Self::Role, Some(name)) => expression_of(&format!(
                "(SELECT max(oid) FROM pg_catalog.pg_roles WHERE rolname = {name})"
            )),
            (Self::Type | Self::Namespace | Self::Role | Self::Proc, _) => None,
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name of a type in lower case, without the schema of PostgreSQL's own ones.
fn type_name(data_type: &DataType) -> String {
    let name = data_type.to_string().to_ascii_lowercase();
    match name.strip_prefix("pg_catalog.") {
        Some(bare) => bare.to_owned(),
        None => name,
    }
}

/// Translates the casts of a statement.
pub(super) fn translate(tree: &mut Tree) {
    show_columns(tree);
    let _: ControlFlow<()> = VisitMut::visit(tree, &mut RegCasts);
}

/// Shows the columns of a query that are casts as names. The branches of a set operation have common types, so they stay
/// numbers.
fn show_columns(tree: &mut Tree) {
    let Tree::Query(query) = tree else { return };
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item
        else {
            continue;
        };
        let Some((reg, name)) = shown(value) else { continue };
        let Some(text) = reg.text(value) else { continue };
        match item {
            SelectItem::ExprWithAlias { expr, .. } => *expr = text,
            _ => {
                let alias = Ident::with_quote('"', name);
                *item = SelectItem::ExprWithAlias { expr: text, alias };
            }
        }
    }
}

/// The type of a cast to one of the types, and PostgreSQL's name for the column.
fn shown(value: &Expr) -> Option<(Reg, String)> {
    let Expr::Cast { expr, data_type, .. } = bare(value) else { return None };
    let reg = Reg::of(data_type)?;
    let name = match expr.as_ref() {
        Expr::Identifier(name) => name.value.to_ascii_lowercase(),
        Expr::CompoundIdentifier(path) => path.last()?.value.to_ascii_lowercase(),
        _ => reg.name().to_owned(),
    };
    Some((reg, name))
}

struct RegCasts;

impl VisitorMut for RegCasts {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Some(replacement) = replaced(expression) {
            *expression = replacement;
        }
        ControlFlow::Continue(())
    }
}

fn replaced(expression: &mut Expr) -> Option<Expr> {
    match expression {
        // A sequence is named by a text.
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
            if ["nextval", "currval", "setval"].contains(&name.as_str()) {
                name_by_text(&mut function.args);
            }
            None
        }
        Expr::Cast { expr, data_type, .. } => {
            let value: &Expr = expr;
            let inner = match bare(value) {
                Expr::Cast { expr: name, data_type, .. } => Reg::of(data_type).zip(Some(name)),
                _ => None,
            };
            match (type_name(data_type).as_str(), inner) {
                ("text" | "varchar" | "name", Some((reg, _))) => reg.text(value),
                ("oid" | "int" | "integer" | "int4" | "bigint", Some((Reg::Proc, name))) => {
                    function_number(name)
                }
                _ => match Reg::of(data_type)? {
                    Reg::Proc => function_name(value),
                    reg => reg.number(value),
                },
            }
        }
        _ => None,
    }
}

/// An expression without the parentheses around it.
fn bare(expression: &Expr) -> &Expr {
    match expression {
        Expr::Nested(inner) => bare(inner),
        expression => expression,
    }
}

/// The object id of one of PostgreSQL's functions, by its name.
fn function_number(name: &Expr) -> Option<Expr> {
    let Expr::Value(value) = name else { return None };
    let Value::SingleQuotedString(name) = &value.value else { return None };
    let name = name.rsplit('.').next()?.replace('\'', "''");
    expression_of(&format!("(SELECT min(oid) FROM pg_catalog.pg_proc WHERE proname = '{name}')"))
}

/// The name of one of PostgreSQL's functions, by a literal object id.
fn function_name(number: &Expr) -> Option<Expr> {
    let Expr::Value(value) = number else { return None };
    let digits = match &value.value {
        Value::Number(digits, _) => digits.clone(),
        Value::SingleQuotedString(text) if is_number(text) => text.clone(),
        _ => return None,
    };
    expression_of(&format!(
        "coalesce((SELECT max(proname) FROM pg_catalog.pg_proc WHERE oid = {digits}), '{digits}')"
    ))
}

/// Replaces a first argument that is cast to `regclass` by the text that is cast.
fn name_by_text(args: &mut FunctionArguments) {
    let FunctionArguments::List(list) = args else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut() else {
        return;
    };
    if let Expr::Cast { expr, data_type, .. } = first
        && Reg::of(data_type) == Some(Reg::Class)
    {
        *first = expr.as_ref().clone();
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn translated(text: &str) -> String {
        let mut tree = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0);
        translate(&mut tree);
        tree.to_string()
    }

    #[test]
    fn casts_become_lookups_and_shown_ones_names() {
        for (text, expected) in [
            (
                "SELECT 't'::regclass",
                "SELECT partita_regclass_name(partita_regclass('t')) AS \"regclass\"",
            ),
            ("SELECT 't'::regclass::oid", "SELECT partita_regclass('t')::oid"),
            (
                "SELECT 1 FROM pg_class WHERE oid = 's.t'::pg_catalog.regclass",
                "SELECT 1 FROM pg_class WHERE oid = partita_regclass('s.t')",
            ),
            (
                "SELECT conrelid::regclass FROM pg_constraint",
                "SELECT partita_regclass_name(partita_regclass(conrelid)) AS \"conrelid\" FROM pg_constraint",
            ),
            (
                "SELECT (1259::regclass)::text AS n",
                "SELECT partita_regclass_name((partita_regclass(1259))) AS n",
            ),
            ("SELECT 1259::regclass::text", "SELECT partita_regclass_name(partita_regclass(1259))"),
            (
                "SELECT 'integer'::regtype",
                "SELECT format_type(partita_regtype('integer'), NULL) AS \"regtype\"",
            ),
            ("SELECT '23'::regtype::oid", "SELECT 23::oid"),
            (
                "SELECT 'a'::regclass AS x UNION ALL SELECT 2",
                "SELECT partita_regclass('a') AS x UNION ALL SELECT 2",
            ),
            ("SELECT nextval('s'::regclass)", "SELECT nextval('s')"),
            (
                "SELECT 'pg_catalog.array_in'::regproc::oid",
                "SELECT (SELECT min(oid) FROM pg_catalog.pg_proc WHERE proname = 'array_in')",
            ),
            ("SELECT typinput::regproc FROM pg_type", "SELECT typinput::regproc FROM pg_type"),
        ] {
            assert_eq!(translated(text), expected, "{text}");
        }
    }
}
