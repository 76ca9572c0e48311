//! Rewrites queries over `pg_catalog` for DataFusion.
//!
//! Clients write these queries in PostgreSQL's dialect. The library's parser translates most of it (operators with a
//! schema, `= ANY (..)`); the rest is translated here first, casts to the types of object ids by `reg_casts.rs`.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, CaseWhen, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, JoinOperator, SelectItem, SetExpr, Statement as Tree, TableFactor, Value,
    Visit, VisitMut, VisitorMut, visit_expressions, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use partita_frontend::functions::SETTING_PART;
use partita_frontend::sql::statement::{Query, Statement};
use partita_frontend::{DescribedSetting, Session, SqlError, described_settings};

use super::dump;
use super::functions::{COLUMN_DEFAULT, INDEX_COLUMNS, MEMBER_OF, NO_OID, NO_OIDS, NO_TEXTS};
use super::reg_casts;
use super::syntax::{expression_of, names};

static PARSER: LazyLock<PostgresCompatibilityParser> =
    LazyLock::new(PostgresCompatibilityParser::new);

/// Parts of a text that make it a query over the catalog.
const MENTIONS: &[&str] = &[
    "pg_",
    "::reg",
    "as reg",
    "current_schemas",
    "current_setting",
    "to_reg",
    "format_type",
    "_description(",
    "version()",
];

fn mentions(text: &str) -> bool {
    // Names in rows do not count: an INSERT, which may be long, is not searched.
    let start = text.trim_start();
    let first = start.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    if !["select", "with"].iter().any(|word| first.eq_ignore_ascii_case(word)) {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    MENTIONS.iter().any(|mention| lower.contains(mention))
}

/// Parts of a text that the library does not translate, or not correctly.
const OURS: &[&str] = &[
    "pg_attrdef",
    "generate_subscripts",
    "array(",
    "(select",
    " escape ",
    "::reg",
    "::pg_catalog.reg",
    "as reg",
    "as pg_catalog.reg",
    "nextval(",
    "currval(",
    "setval(",
    "_pg_expandarray",
    "regproc",
    "typreceive",
    "pg_settings",
    "'search_path'",
    "typtype",
];

/// Columns that name functions; here they are texts.
const FUNCTION_COLUMNS: &[&str] = &[
    "typinput",
    "typoutput",
    "typreceive",
    "typsend",
    "typmodin",
    "typmodout",
    "typanalyze",
    "typsubscript",
];

/// Parts of queries that the library recognizes and answers itself.
const KNOWN: &[&str] = &[
    "pol.polname,",
    "pg_publication",
    "fk.confkey",
    "t.typname type_name",
    "pg_get_statisticsobjdef_columns",
];

/// Tables of objects that do not exist here: a lookup in them finds nothing.
const ABSENT: &[&str] =
    &["pg_sequence", "pg_collation", "pg_foreign_table", "pg_inherits", "pg_trigger", "pg_policy"];

/// Views of ours that the library does not know.
const VIEWS: &[&str] = &[
    "pg_available_extensions",
    "pg_cursors",
    "pg_group",
    "pg_indexes",
    "pg_locks",
    "pg_policies",
    "pg_prepared_statements",
    "pg_prepared_xacts",
    "pg_rules",
    "pg_sequences",
    "pg_shadow",
    "pg_stat_activity",
    "pg_stat_all_indexes",
    "pg_stat_all_tables",
    "pg_stat_database",
    "pg_stat_user_indexes",
    "pg_user",
];

/// Parses the text of a client.
pub(crate) async fn parse(session: &Arc<Session>, text: &str) -> Result<Vec<Statement>, SqlError> {
    // The library's parser has no bounds, so the session's parser comes first.
    let statements = session.parse(text).await;
    if !mentions(text) || statements.as_ref().is_err_and(is_bound) || depth(text) > DEPTH_MAX {
        return statements;
    }
    // A text that cannot be translated is parsed as it is, for a better error.
    match trees(text) {
        Some(trees) if trees.iter().all(|tree| matches!(tree, Tree::Query(_))) => {
            Ok(trees.into_iter().map(|tree| translated(text, tree)).collect())
        }
        _ => statements,
    }
}

/// Maximum nesting of a query over the catalog. No client nests deeper, and the library's parser takes time that
/// doubles with each level.
const DEPTH_MAX: usize = 12;
/// Longest text that is translated, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Returns true if a statement was refused for its size or its depth.
fn is_bound(error: &SqlError) -> bool {
    error.sqlstate.starts_with("54")
}

/// The deepest nesting of parentheses and brackets in a text, including quoted ones.
fn depth(text: &str) -> usize {
    if text.len() > TEXT_BYTES_MAX {
        return usize::MAX;
    }
    let mut depth = 0_usize;
    let mut deepest = 0;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn translated(text: &str, tree: Tree) -> Statement {
    let statement = PlannerStatement::Statement(Box::new(tree));
    Statement::Query(Query { text: Arc::from(text), statement })
}

fn trees(text: &str) -> Option<Vec<Tree>> {
    // `pg_dump -t` writes it in joins and before ANY, where neither parser knows it.
    let text = &text.replace("OPERATOR(pg_catalog.=)", "=");
    let lower = text.to_ascii_lowercase();
    let is_known = KNOWN.iter().any(|mention| lower.contains(mention));
    let is_of_dump = dump::MENTIONS.iter().any(|mention| lower.contains(mention));
    let is_ours = OURS.iter().chain(VIEWS).any(|mention| lower.contains(mention));
    if !is_of_dump && (is_known || !is_ours) {
        return PARSER.parse(text).ok();
    }
    let trees = Parser::parse_sql(&PostgreSqlDialect {}, text).ok()?;
    let translate = |mut tree: Tree| {
        if is_of_dump {
            dump::translate(&mut tree);
        }
        reg_casts::translate(&mut tree);
        let _: ControlFlow<()> = VisitMut::visit(&mut tree, &mut Existence);
        let _: ControlFlow<()> = VisitMut::visit(&mut tree, &mut OfSettings);
        let _: ControlFlow<()> = VisitMut::visit(&mut tree, &mut Unqualified);
        let _: ControlFlow<()> = visit_expressions_mut(&mut tree, |expression| {
            if let Some(replacement) = replaced(expression) {
                *expression = replacement;
            }
            ControlFlow::Continue(())
        });
        PARSER.rewrite(tree)
    };
    Some(trees.into_iter().map(translate).collect())
}

/// Names the schema of views that the library does not know.
struct Unqualified;

impl VisitorMut for Unqualified {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ast::ObjectName) -> ControlFlow<()> {
        if let [ast::ObjectNamePart::Identifier(name)] = &relation.0[..]
            && VIEWS.iter().any(|view| name.value.eq_ignore_ascii_case(view))
        {
            let schema = ast::ObjectNamePart::Identifier(ast::Ident::new("pg_catalog"));
            relation.0.insert(0, schema);
        }
        ControlFlow::Continue(())
    }
}

/// Replaces `pg_settings` by the settings of the session, each read by its name.
struct OfSettings;

impl VisitorMut for OfSettings {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, .. } = table else {
            return ControlFlow::Continue(());
        };
        let is_settings = name
            .0
            .last()
            .and_then(|name| name.as_ident())
            .is_some_and(|name| name.value.eq_ignore_ascii_case("pg_settings"));
        if is_settings && let Some(TableFactor::Derived { lateral, subquery, .. }) = settings() {
            let alias = alias.take().or_else(|| {
                let name = ast::Ident::new("pg_settings");
                Some(ast::TableAlias { explicit: true, name, columns: Vec::new(), at: None })
            });
            *table = TableFactor::Derived { lateral, subquery, alias, sample: None };
        }
        ControlFlow::Continue(())
    }
}

/// A query for all settings, in parentheses.
fn settings() -> Option<TableFactor> {
    let rows: Vec<String> = described_settings().iter().map(setting_row).collect();
    let text = format!(
        "SELECT * FROM (SELECT s.name, {SETTING_PART}(s.name, 'setting') AS setting, s.unit, s.category, s.short_desc, \
         CAST(NULL AS TEXT) AS extra_desc, s.context, s.vartype, {SETTING_PART}(s.name, 'source') AS source, s.min_val, \
         s.max_val, string_to_array(s.choices, ',') AS enumvals, s.boot_val, \
         {SETTING_PART}(s.name, 'reset_val') AS reset_val, CAST(NULL AS TEXT) AS sourcefile, \
         CAST(NULL AS INTEGER) AS sourceline, FALSE AS pending_restart FROM (VALUES {}) AS s (name, unit, category, \
         short_desc, context, vartype, min_val, max_val, choices, boot_val)) AS pg_settings",
        rows.join(", ")
    );
    let query = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text).ok()?.parse_query().ok()?;
    let SetExpr::Select(select) = *query.body else { return None };
    select.from.into_iter().next().map(|item| item.relation)
}

/// A setting as a row of literals.
fn setting_row(setting: &DescribedSetting) -> String {
    let literal = |text: Option<&str>| match text {
        Some(text) => format!("'{}'", text.replace('\'', "''")),
        None => "CAST(NULL AS TEXT)".to_owned(),
    };
    let choices = setting.choices.join(",");
    let cells = [
        Some(setting.name),
        setting.unit,
        Some(setting.category),
        Some(setting.description),
        Some(setting.context),
        Some(setting.vartype),
        setting.bounds.map(|(least, _)| least),
        setting.bounds.map(|(_, greatest)| greatest),
        Some(choices.as_str()).filter(|choices| !choices.is_empty()),
        Some(setting.boot_value),
    ];
    format!("({})", cells.map(literal).join(", "))
}

/// Replaces EXISTS in a select list by a count, which DataFusion can join.
struct Existence;

impl VisitorMut for Existence {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) =
                item
            else {
                continue;
            };
            let _: ControlFlow<()> = visit_expressions_mut(value, |expression| {
                if let Expr::Exists { subquery, negated } = expression
                    && let SetExpr::Select(select) = subquery.body.as_mut()
                    && let Some(count) = expression_of("count(*)")
                {
                    select.projection = vec![SelectItem::UnnamedExpr(count)];
                    let comparison = if *negated { "=" } else { ">" };
                    if let Some(replacement) =
                        expression_of(&format!("({subquery}) {comparison} 0"))
                    {
                        *expression = replacement;
                    }
                }
                ControlFlow::Continue(())
            });
        }
        ControlFlow::Continue(())
    }
}

/// The replacement of an expression that DataFusion cannot run; others are changed in place or left alone.
fn replaced(expression: &mut Expr) -> Option<Expr> {
    match expression {
        Expr::Subquery(query) => scalar(query),
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
            match (name.as_str(), &function.args) {
                ("array", FunctionArguments::Subquery(query)) => {
                    let found = groups_of(query).or_else(|| index_columns_of(query));
                    found.or_else(|| elements_of(query)).or_else(|| {
                        // The others are lists of privileges of columns, or options, which do not exist.
                        expression_of("arrow_cast(make_array(), 'List(Utf8)')")
                    })
                }
                ("generate_subscripts", FunctionArguments::List(list)) => {
                    let FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) = list.args.first()?
                    else {
                        return None;
                    };
                    positions(array)
                }
                // Rows of a value `x` and its number `n`; the value alone represents both.
                ("_pg_expandarray", FunctionArguments::List(list)) => {
                    let FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) = list.args.first()?
                    else {
                        return None;
                    };
                    expression_of(&format!("unnest({array})"))
                }
                _ => None,
            }
        }
        // In DataFusion's LIKE, only a backslash escapes.
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            if let Some(escape) = escape_char.take() {
                let text = format!("replace(({pattern}), {escape}, '\\')");
                **pattern = expression_of(&text)?;
            }
            None
        }
        Expr::Case { operand: None, conditions, else_result, .. } => {
            absent_part(conditions, else_result.as_deref())
        }
        // The names in the search path, which has only one.
        Expr::InSubquery { expr, subquery, negated: false }
            if subquery.to_string().contains("current_setting('search_path')") =>
        {
            expression_of(&format!("({expr}) = CAST(current_schema() AS TEXT)"))
        }
        Expr::CompoundFieldAccess { root, access_chain } => field_of(root, access_chain),
        Expr::Cast { expr, data_type, .. }
            if ["regproc", "pg_catalog.regproc"]
                .contains(&data_type.to_string().to_ascii_lowercase().as_str()) =>
        {
            let text = match expr.as_ref() {
                Expr::Value(value) => match &value.value {
                    Value::SingleQuotedString(name) => name.rsplit('.').next()?.to_owned(),
                    _ => return expression_of(&format!("CAST({expr} AS TEXT)")),
                },
                _ => return expression_of(&format!("CAST({expr} AS TEXT)")),
            };
            Some(Expr::Value(Value::SingleQuotedString(text).into()))
        }
        // The absence of a function is 0 as a number and `-` as a name.
        Expr::BinaryOp { left, right, .. } => {
            let is_function = match left.as_ref() {
                Expr::Identifier(name) => is_function_column(&name.value),
                Expr::CompoundIdentifier(path) => {
                    path.last().is_some_and(|name| is_function_column(&name.value))
                }
                _ => false,
            };
            let is_zero = matches!(right.as_ref(), Expr::Value(value)
                if matches!(&value.value, Value::Number(text, _) if text == "0"));
            if is_function && is_zero {
                **right = Expr::Value(Value::SingleQuotedString("-".to_owned()).into());
            }
            None
        }
        _ => None,
    }
}

/// The number `n` or the value `x` of the rows of `_pg_expandarray`.
fn field_of(root: &Expr, access_chain: &[AccessExpr]) -> Option<Expr> {
    let [AccessExpr::Dot(Expr::Identifier(field))] = access_chain else { return None };
    let Expr::Nested(inner) = root else { return None };
    match (field.value.to_ascii_lowercase().as_str(), inner.as_ref()) {
        ("n", Expr::Function(function)) => positions(unnested(function)?),
        ("x", Expr::Function(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {
            Some(inner.as_ref().clone())
        }
        _ => None,
    }
}

/// The replacement of the list of the groups that a role is a member of.
fn groups_of(query: &ast::Query) -> Option<Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let tables: Vec<(String, String)> = select.from.iter().flat_map(names).collect();
    if !tables.iter().any(|(table, _)| table == "pg_auth_members") {
        return None;
    }
    let is_inner = |name: &str| tables.iter().any(|(_, alias)| alias.eq_ignore_ascii_case(name));
    let mut role = None;
    let _: ControlFlow<()> = visit_expressions(&**select, |expression| {
        if let Expr::CompoundIdentifier(parts) = expression
            && let [.., table, column] = parts.as_slice()
            && column.value.eq_ignore_ascii_case("oid")
            && !is_inner(&table.value)
        {
            role = Some(expression.clone());
        }
        ControlFlow::Continue(())
    });
    expression_of(&format!("{MEMBER_OF}({})", role?))
}

/// The columns of an index, where a client asks for each by its number:
/// `ARRAY(SELECT pg_get_indexdef(i.indexrelid, k + 1, true) FROM generate_subscripts(i.indkey, 1) AS k)`.
fn index_columns_of(query: &ast::Query) -> Option<Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [from] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, alias: Some(alias), args: Some(_), .. } = &from.relation else {
        return None;
    };
    let [SelectItem::UnnamedExpr(Expr::Function(function))] = select.projection.as_slice() else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(index)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(number)),
        ..,
    ] = list.args.as_slice()
    else {
        return None;
    };
    let is_each_column = from.joins.is_empty()
        && select.selection.is_none()
        && is_named(name, "generate_subscripts")
        && is_named(&function.name, "pg_get_indexdef")
        && number.to_string() == format!("{} + 1", alias.name);
    if !is_each_column {
        return None;
    }
    expression_of(&format!("{INDEX_COLUMNS}({index})"))
}

/// The values of a query over one table, collected by an aggregate; `None` for objects that do not exist here.
fn elements_of(query: &ast::Query) -> Option<Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let is_absent = |(table, _): (String, String)| ABSENT.contains(&table.as_str());
    if !(is_joined(query) || reads_an_array(query))
        || is_aggregate(value)
        || select.from.iter().flat_map(names).any(is_absent)
        || select.to_string().to_ascii_lowercase().contains("acl")
    {
        return None;
    }
    // The order of the rows is that of the elements.
    let order = query.order_by.as_ref().map_or_else(String::new, |order| {
        let order = order.to_string();
        if order == "ORDER BY 1" { format!(" ORDER BY {value}") } else { format!(" {order}") }
    });
    let collected = expression_of(&format!("array_agg({value}{order})"))?;
    let mut rows = query.clone();
    rows.order_by = None;
    if let SetExpr::Select(select) = rows.body.as_mut() {
        select.projection = vec![SelectItem::UnnamedExpr(collected)];
    }
    expression_of(&format!("coalesce(({rows}), make_array())"))
}

/// Returns true if a subquery reads one table, and depends on the outer row only by equality of columns, if at all:
/// DataFusion can join it.
fn is_joined(query: &ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let [from] = select.from.as_slice() else { return false };
    let TableFactor::Table { name, alias, args: None, .. } = &from.relation else { return false };
    let Some(table) = name.0.last().and_then(|name| name.as_ident()) else { return false };
    let inner = alias.as_ref().map_or(&table.value, |alias| &alias.name.value);
    from.joins.is_empty()
        && is_plain(query, select)
        && !depends(&select.projection, inner)
        && select.selection.as_ref().is_none_or(|condition| joins_by_equality(condition, inner))
}

/// Returns true if a subquery reads the elements of an array, perhaps joined to tables:
/// `SELECT attname FROM unnest(c.conkey) WITH ORDINALITY AS k (n, i) JOIN pg_attribute AS a ON k.n = a.attnum ORDER BY k.i`.
fn reads_an_array(query: &ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let [from] = select.from.as_slice() else { return false };
    let is_inner = |join: &ast::Join| {
        matches!(join.relation, TableFactor::Table { args: None, .. })
            && matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_))
    };
    matches!(from.relation, TableFactor::UNNEST { .. })
        && from.joins.iter().all(is_inner)
        && is_plain(query, select)
}

/// Returns true if a subquery has neither groups nor a limit.
fn is_plain(query: &ast::Query, select: &ast::Select) -> bool {
    query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty())
}

/// Returns true if a condition refers to tables other than `inner` only by equality of columns.
fn joins_by_equality(condition: &Expr, inner: &str) -> bool {
    match condition {
        Expr::Nested(condition) => joins_by_equality(condition, inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            joins_by_equality(left, inner) && joins_by_equality(right, inner)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right }
            if depends(&**left, inner) != depends(&**right, inner) =>
        {
            is_column(left) && is_column(right)
        }
        condition => !depends(condition, inner),
    }
}

fn is_column(expression: &Expr) -> bool {
    matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// Returns true if a part of a query refers to a column of a table other than `inner`.
fn depends<V: Visit>(part: &V, inner: &str) -> bool {
    visit_expressions(part, |expression| match expression {
        Expr::CompoundIdentifier(path)
            if matches!(path.as_slice(), [.., table, _] if !table.value.eq_ignore_ascii_case(inner)) =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Returns true if the last part of a name is the given one.
fn is_named(name: &ast::ObjectName, last: &str) -> bool {
    let part = name.0.last().and_then(|part| part.as_ident());
    part.is_some_and(|part| part.value.eq_ignore_ascii_case(last))
}

/// The replacement of a CASE that is NULL for types of all kinds that exist here.
fn absent_part(conditions: &[CaseWhen], otherwise: Option<&Expr>) -> Option<Expr> {
    let [CaseWhen { condition, result }] = conditions else { return None };
    let is_null = |expr: &Expr| matches!(expr, Expr::Value(expr) if expr.value == Value::Null);
    if !otherwise.is_none_or(is_null) {
        return None;
    }
    expression_of(&format!("{}()", part_of_absent_type(condition, result)?))
}

/// The function whose NULL replaces a part of a type of a kind that does not exist here: the base of a domain, the
/// columns of a composite.
fn part_of_absent_type(condition: &Expr, part: &Expr) -> Option<&'static str> {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else { return None };
    let column = match left.as_ref() {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(path) => path.last()?,
        _ => return None,
    };
    let Expr::Value(kind) = right.as_ref() else { return None };
    if !column.value.eq_ignore_ascii_case("typtype") {
        return None;
    }
    match &kind.value {
        Value::SingleQuotedString(kind) if kind == "d" => Some(NO_OID),
        Value::SingleQuotedString(kind) if kind == "c" => {
            let part = if let Expr::Nested(part) = part { part.as_ref() } else { part };
            let Expr::Subquery(query) = part else { return None };
            let SetExpr::Select(select) = query.body.as_ref() else { return None };
            match select.projection.first()?.to_string().to_ascii_lowercase() {
                names if names.starts_with("array_agg(") && names.contains("attname") => {
                    Some(NO_TEXTS)
                }
                types if types.starts_with("array_agg(") && types.contains("atttypid") => {
                    Some(NO_OIDS)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_function_column(name: &str) -> bool {
    FUNCTION_COLUMNS.iter().any(|column| name.eq_ignore_ascii_case(column))
}

/// The positions of an array's elements, one in each row.
fn positions(array: &Expr) -> Option<Expr> {
    let range = format!("generate_series(1, CAST(cardinality({array}) AS BIGINT))");
    expression_of(&format!("unnest({range})"))
}

/// The argument of a call of `unnest`.
fn unnested(function: &ast::Function) -> Option<&Expr> {
    let name = function.name.0.last()?.as_ident()?;
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.first()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(array))
            if name.value.eq_ignore_ascii_case("unnest") =>
        {
            Some(array)
        }
        _ => None,
    }
}

/// Rewrites a scalar subquery. DataFusion can join one that depends on the outer row only if it is an aggregate, so it
/// becomes one: the maximum of at most one row is that row.
fn scalar(query: &mut ast::Query) -> Option<Expr> {
    // The chain of a domain's base types: no column has a domain.
    if query.with.as_ref().is_some_and(|clause| clause.recursive)
        && query.to_string().contains("typbasetype")
    {
        return expression_of("CAST(NULL AS OID)");
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let tables: Vec<String> = select.from.iter().flat_map(names).map(|(table, _)| table).collect();
    if tables.iter().any(|table| ABSENT.contains(&table.as_str())) {
        return expression_of("NULL");
    }
    let aliases: Vec<String> = select.from.iter().flat_map(names).map(|(_, alias)| alias).collect();
    let mut outer = Vec::new();
    let _: ControlFlow<()> = visit_expressions(&*select, |expression| {
        if let Expr::CompoundIdentifier(parts) = expression
            && let [.., table, column] = parts.as_slice()
            && !aliases.contains(&table.value.to_ascii_lowercase())
        {
            outer.push((column.value.to_ascii_lowercase(), expression.clone()));
        }
        ControlFlow::Continue(())
    });
    let outer_column =
        |name: &str| outer.iter().find(|(column, _)| column == name).map(|(_, expr)| expr);
    if tables == ["pg_attrdef"] {
        let (relation, number) = (outer_column("attrelid")?, outer_column("attnum")?);
        return expression_of(&format!("{COLUMN_DEFAULT}({relation}, {number})"));
    }
    if outer.is_empty() {
        return None;
    }
    if let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_mut_slice()
        && !is_aggregate(value)
    {
        *value = expression_of(&format!("max({value})"))?;
    }
    // The library answers NULL for a subquery that is a whole column and depends on the outer row, unless it stands in
    // parentheses.
    is_joined(query).then(|| Expr::Nested(Box::new(Expr::Subquery(Box::new(query.clone())))))
}

fn is_aggregate(expression: &Expr) -> bool {
    const AGGREGATES: &[&str] =
        &["max", "min", "count", "sum", "array_agg", "string_agg", "bool_or"];
    matches!(
        expression,
        Expr::Function(function)
            if function.name.0.last().and_then(|name| name.as_ident()).is_some_and(|name| {
                AGGREGATES.contains(&name.value.to_ascii_lowercase().as_str())
            })
    )
}

#[cfg(test)]
mod tests {
    use super::{mentions, trees};

    fn translated(text: &str) -> String {
        trees(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn sequences_are_named_by_texts() {
        for text in [
            "SELECT nextval('s'::regclass)",
            "SELECT setval(CAST('s' AS regclass), 7), 1::regclass",
        ] {
            assert!(mentions(text));
            let translated = translated(text);
            assert!(translated.contains("val('s'"), "{translated}");
        }
    }

    #[test]
    fn an_operator_of_the_catalog_compares_with_any() {
        let translated = translated(
            "SELECT c.oid FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n \
             ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
             WHERE c.relkind OPERATOR(pg_catalog.=) ANY\n    (array['r', 'v'])",
        );
        assert!(!translated.contains("OPERATOR"), "{translated}");
        assert!(translated.contains("n.oid = c.relnamespace"), "{translated}");
    }

    #[test]
    fn only_queries_that_mention_the_catalog_are_looked_at() {
        assert!(mentions("  SELECT relname FROM PG_CLASS"));
        assert!(mentions("select 'x'::regclass"));
        assert!(!mentions("SELECT * FROM events"));
        assert!(!mentions("INSERT INTO t VALUES ('pg_class')"));
    }

    #[test]
    fn arrays_are_expanded_and_functions_are_texts() {
        for (text, expected) in [
            (
                "SELECT (information_schema._pg_expandarray(i.indkey)).n AS seq FROM pg_index i",
                "unnest(generate_series(1, CAST(cardinality(i.indkey) AS BIGINT))) AS seq",
            ),
            (
                "SELECT information_schema._pg_expandarray(i.indkey) AS keys FROM pg_index i",
                "unnest(i.indkey) AS keys",
            ),
            (
                "SELECT 1 FROM pg_index r WHERE _pg_expandarray(a) = 1 AND 2 = (r.keys).x",
                "2 = r.keys",
            ),
            (
                "SELECT typinput = 'pg_catalog.array_in'::regproc FROM pg_type",
                "typinput = 'array_in'",
            ),
            ("SELECT 1 FROM pg_type WHERE typreceive != 0", "typreceive <> '-'"),
            ("SELECT setting FROM pg_catalog.pg_settings", "partita_setting(s.name, 'setting')"),
            (
                "SELECT 1 FROM t WHERE quote_ident(s) IN (SELECT trim(p[i]) FROM generate_series(1, 2) AS i, \
                 string_to_array(current_setting('search_path'), ',') p)",
                "(quote_ident(s)) = CAST(current_schema() AS TEXT)",
            ),
        ] {
            let translated = translated(text);
            assert!(translated.contains(expected), "{text}: {translated}");
        }
    }

    #[test]
    fn the_groups_of_a_role_are_listed_by_a_function() {
        let text = "SELECT r.rolname, ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m \
                    JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid) WHERE m.member = r.oid) AS memberof \
                    FROM pg_catalog.pg_roles r WHERE r.rolname !~ '^pg_' ORDER BY 1";
        let translated = translated(text);
        assert!(translated.contains("partita_member_of(r.oid) AS memberof"), "{translated}");
    }

    #[test]
    fn arrays_of_subqueries_are_collected() {
        for (text, expected) in [
            (
                "SELECT ARRAY(SELECT attname FROM pg_attribute a WHERE attrelid = c.oid ORDER BY a.attnum) \
                 FROM pg_class c",
                "coalesce((SELECT array_agg(attname ORDER BY a.attnum) FROM ",
            ),
            (
                "SELECT ARRAY(SELECT typname FROM pg_type WHERE typname = 'int4' ORDER BY 1)",
                "coalesce((SELECT array_agg(typname ORDER BY typname) FROM ",
            ),
            // As Django reads the columns of a constraint.
            (
                "SELECT array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY k(n, i) \
                 JOIN pg_attribute AS a ON k.n = a.attnum WHERE a.attrelid = c.conrelid ORDER BY k.i) \
                 FROM pg_constraint c",
                "coalesce((SELECT array_agg(attname ORDER BY k.i) FROM UNNEST(c.conkey) WITH ORDINALITY ",
            ),
            // Privileges of columns do not exist.
            (
                "SELECT ARRAY(SELECT attname FROM pg_attribute a WHERE attrelid = c.oid AND attacl IS NOT NULL) \
                 FROM pg_class c",
                "SELECT arrow_cast(make_array()",
            ),
            (
                "SELECT ARRAY(SELECT polname FROM pg_policy p WHERE p.polrelid = c.oid) FROM pg_class c",
                "SELECT arrow_cast(make_array()",
            ),
        ] {
            let translated = translated(text);
            assert!(translated.contains(expected), "{text}: {translated}");
        }
    }

    #[test]
    fn lookups_that_can_be_joined_are_kept() {
        for (text, expected) in [
            (
                "SELECT (SELECT nspname FROM pg_namespace n WHERE n.oid = c.relnamespace) AS s FROM pg_class c",
                "((SELECT max(nspname) FROM ",
            ),
            (
                "SELECT (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND attnum > 0) AS n \
                 FROM pg_class c",
                "((SELECT count(*) FROM ",
            ),
            // Not by equality: the library's answer remains.
            (
                "SELECT (SELECT count(*) FROM pg_attribute a WHERE a.attnum > c.relnatts) AS n FROM pg_class c",
                "SELECT NULL AS n",
            ),
        ] {
            let translated = translated(text);
            assert!(translated.contains(expected), "{text}: {translated}");
        }
    }

    #[test]
    fn the_columns_of_an_index_are_listed_by_a_function() {
        let columns = |number: &str| {
            translated(&format!(
                "SELECT array_to_string(ARRAY(SELECT pg_get_indexdef(i.indexrelid, {number}, TRUE) \
                 FROM generate_subscripts(i.indkey, 1) AS k ORDER BY k), ',') FROM pg_catalog.pg_index i"
            ))
        };
        let each = columns("k + 1");
        assert!(
            each.contains("array_to_string(partita_index_columns(i.indexrelid), ',')"),
            "{each}"
        );
        let others = columns("0");
        assert!(!others.contains("partita_index_columns"), "{others}");
    }

    #[test]
    fn lookups_of_one_row_become_functions_nulls_or_aggregates() {
        let text = "SELECT (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_catalog.pg_attrdef d \
                    WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef) AS x \
                    FROM pg_attribute a";
        assert!(translated(text).contains("partita_column_default(a.attrelid, a.attnum)"));
        let text = "SELECT (SELECT c.collname FROM pg_collation c WHERE c.oid = a.attcollation) AS x \
                    FROM pg_attribute a";
        assert!(translated(text).starts_with("SELECT NULL AS x"));
        let text = "SELECT CASE WHEN t.typtype = 'd' THEN (WITH RECURSIVE b(oid) AS (SELECT u.typbasetype \
                    FROM pg_type u WHERE u.oid = t.oid UNION ALL SELECT u.typbasetype FROM pg_type u, b \
                    WHERE b.oid = u.oid) SELECT oid FROM b LIMIT 1) END AS base FROM pg_type t";
        assert!(
            translated(text).starts_with("SELECT partita_no_oid() AS base"),
            "{}",
            translated(text)
        );
        let text = "SELECT CASE WHEN t.typtype = 'c' THEN (SELECT array_agg(ia.atttypid ORDER BY ia.attnum) \
                    FROM pg_attribute ia INNER JOIN pg_class c ON ia.attrelid = c.oid WHERE c.reltype = t.oid) \
                    ELSE NULL END AS types, basetype::regtype::text AS name FROM pg_type t";
        let columns =
            "SELECT partita_no_oids() AS types, format_type(basetype::regtype, NULL) AS name";
        assert!(translated(text).starts_with(columns), "{}", translated(text));
        let text = "SELECT CASE WHEN true THEN (SELECT t.typname FROM pg_type t \
                    WHERE t.oid = a.atttypid) END AS x FROM pg_attribute a";
        assert!(translated(text).contains("SELECT max(t.typname)"), "{}", translated(text));
    }
}
