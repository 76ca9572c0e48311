//! The queries of `pg_dump` over the catalog, in the forms that DataFusion runs.
//!
//! | query | becomes |
//! |---|---|
//! | `c.tableoid` of a table of the catalog | that table's object id |
//! | `unnest('{1,2}'::oid[]) AS src(tbloid)` | the rows of VALUES |
//! | rows of functions, operators, casts and all else that nobody can create here | no rows |
//! | options and lookups that have no value here | NULL |
//!
//! `pg_dump` asks for the object id of the table that has a row (`tableoid`) with every object, because this and the
//! row's own id identify it. Other clients hardly do, so their queries are not changed here.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, SelectItem, SetExpr, Statement as Tree, TableFactor, Value, VisitMut,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::objects::own_oid;
use super::syntax::{expression_of, names};

/// Parts of a text that make it such a query.
pub(super) const MENTIONS: &[&str] = &[
    "tableoid",
    "as src(tbloid)",
    "pg_depend",
    "pg_partitioned_table",
    "pg_largeobject_metadata",
    "pg_rewrite",
];

/// Tables with rows of which users can create none here.
const WITHOUT_OBJECTS: &[&str] = &[
    "pg_am",
    "pg_cast",
    "pg_collation",
    "pg_conversion",
    "pg_default_acl",
    "pg_event_trigger",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_language",
    "pg_opclass",
    "pg_operator",
    "pg_opfamily",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_rewrite",
    "pg_statistic_ext",
    "pg_subscription",
    "pg_transform",
    "pg_trigger",
    "pg_ts_config",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_type",
];

/// Tables that have no rows here, for queries without `tableoid`.
const EMPTY: &[&str] = &["pg_partitioned_table", "pg_largeobject_metadata"];

/// Columns that have no value here, by the names that `pg_dump` gives them.
const NULLS: &[&str] = &[
    "attfdwoptions",
    "checkoption",
    "foreignserver",
    "indstatcols",
    "indstatvals",
    "reloptions",
    "tablespace",
    "toast_reloptions",
];

/// Translates the queries of a statement.
pub(super) fn translate(tree: &mut Tree) {
    let _: ControlFlow<()> = VisitMut::visit(tree, &mut OfDump);
}

struct OfDump;

impl VisitorMut for OfDump {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        without_families(&mut query.body);
        // Views that are stored are read recursively, by their rules.
        let is_of_views = query.with.as_ref().is_some_and(|with| with.recursive)
            && query.to_string().to_ascii_lowercase().contains("pg_rewrite");
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        let tables: Vec<(String, String)> = select.from.iter().flat_map(names).collect();
        let has_table =
            |list: &[&str]| tables.iter().any(|(name, _)| list.contains(&name.as_str()));
        let asks_for_table = select.projection.iter().any(is_tableoid);
        let is_listed = select.from.iter().any(lists_ids);
        if is_of_views || has_table(EMPTY) || (asks_for_table && has_table(WITHOUT_OBJECTS)) {
            if let Some(empty) = without_rows(&select.projection) {
                *query = empty;
            }
            return ControlFlow::Continue(());
        }
        if asks_for_table || is_listed {
            for item in &mut select.projection {
                translate_item(item, &tables);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::UNNEST { alias, array_exprs, .. } = table
            && let [array] = array_exprs.as_slice()
            && let Some(ids) = ids_of(array)
            && let Some(TableFactor::Derived { lateral, subquery, .. }) = rows_of(&ids)
        {
            let alias = alias.take();
            *table = TableFactor::Derived { lateral, subquery, alias, sample: None };
        }
        ControlFlow::Continue(())
    }
}

/// Leaves out the branches of a UNION that list the members of families of operators.
fn without_families(body: &mut SetExpr) {
    while let SetExpr::SetOperation { left, right, .. } = body {
        let is_of_family = match right.as_ref() {
            SetExpr::Select(select) => select
                .from
                .iter()
                .flat_map(names)
                .any(|(name, _)| ["pg_amop", "pg_amproc"].contains(&name.as_str())),
            _ => false,
        };
        if !is_of_family {
            return;
        }
        *body = left.as_ref().clone();
    }
}

/// The last name of a column.
fn column_of(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(path) => path.last(),
        _ => None,
    }
}

/// The expression of a select item, and the name of its column.
fn named(item: &SelectItem) -> Option<(&Expr, String)> {
    let name = |name: &Ident| name.value.to_ascii_lowercase();
    match item {
        SelectItem::UnnamedExpr(expression) => {
            let column = match expression {
                Expr::Function(call) => call.name.0.last()?.as_ident().map(name)?,
                // A cast keeps the name of the column.
                Expr::Cast { expr, .. } => column_of(expr).map(name)?,
                _ => column_of(expression).map(name)?,
            };
            Some((expression, column))
        }
        SelectItem::ExprWithAlias { expr, alias } => Some((expr, name(alias))),
        _ => None,
    }
}

fn is_tableoid(item: &SelectItem) -> bool {
    let column = named(item).and_then(|(expression, _)| column_of(expression));
    column.is_some_and(|name| name.value.eq_ignore_ascii_case("tableoid"))
}

/// Returns true if a FROM item begins with a list of object ids.
fn lists_ids(item: &ast::TableWithJoins) -> bool {
    match &item.relation {
        TableFactor::UNNEST { array_exprs, .. } => {
            array_exprs.first().is_some_and(|array| ids_of(array).is_some())
        }
        _ => false,
    }
}

/// The object ids of a literal array of them: `'{1,2}'::pg_catalog.oid[]`.
fn ids_of(array: &Expr) -> Option<Vec<u32>> {
    let Expr::Cast { expr, data_type, .. } = array else { return None };
    let is_oids = ["oid[]", "pg_catalog.oid[]"]
        .contains(&data_type.to_string().to_ascii_lowercase().as_str());
    let Expr::Value(value) = expr.as_ref() else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let list = text.strip_prefix('{')?.strip_suffix('}')?;
    let ids = list.split(',').filter(|id| !id.is_empty()).map(|id| id.trim().parse().ok());
    if is_oids { ids.collect() } else { None }
}

/// A derived table with one column of these numbers.
fn rows_of(ids: &[u32]) -> Option<TableFactor> {
    let rows: Vec<String> = ids.iter().map(|id| format!("({id})")).collect();
    let text = match rows.is_empty() {
        true => "SELECT * FROM (SELECT CAST(NULL AS BIGINT) AS id WHERE FALSE) AS ids".to_owned(),
        false => format!("SELECT * FROM (VALUES {}) AS ids", rows.join(", ")),
    };
    let query = query_of(&text)?;
    let SetExpr::Select(select) = *query.body else { return None };
    select.from.into_iter().next().map(|item| item.relation)
}

/// A query with the columns of a select list, without rows.
fn without_rows(items: &[SelectItem]) -> Option<ast::Query> {
    let columns = items.iter().map(|item| {
        let (_, name) = named(item)?;
        Some(format!("CAST(NULL AS TEXT) AS \"{}\"", name.replace('"', "\"\"")))
    });
    let columns = columns.collect::<Option<Vec<String>>>()?;
    query_of(&format!("SELECT {} WHERE FALSE", columns.join(", ")))
}

fn query_of(text: &str) -> Option<ast::Query> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .ok()?
        .parse_query()
        .ok()
        .map(|query| *query)
}

/// The table of a column, by the alias before it; without one, the first table.
fn table_of<'a>(column: &Expr, tables: &'a [(String, String)]) -> Option<&'a str> {
    let table = match column {
        Expr::CompoundIdentifier(path) => {
            let alias = path.get(path.len().checked_sub(2)?)?.value.to_ascii_lowercase();
            tables.iter().find(|(_, candidate)| *candidate == alias)
        }
        _ => tables.first(),
    };
    table.map(|(name, _)| name.as_str())
}

/// Translates a column of a query of `pg_dump`; `tables` are those that it reads, with their aliases.
fn translate_item(item: &mut SelectItem, tables: &[(String, String)]) {
    let Some((expression, name)) = named(item) else { return };
    let column = column_of(expression).map(|column| column.value.to_ascii_lowercase());
    let replacement = match column.as_deref() {
        Some("tableoid") => {
            let table = table_of(expression, tables);
            table.and_then(own_oid).and_then(|oid| expression_of(&format!("CAST({oid} AS oid)")))
        }
        // PostgreSQL's vectors of numbers have a text of their own.
        Some("indkey") => expression_of(&format!("array_to_string({expression}, ' ')")),
        _ if NULLS.contains(&name.as_str()) => expression_of("CAST(NULL AS TEXT)"),
        _ => None,
    };
    if let Some(expr) = replacement {
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(text: &str) -> String {
        let mut tree = Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0);
        translate(&mut tree);
        // Derived tables are written over several lines.
        tree.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_tables_of_objects_are_numbers() {
        for (text, expected) in [
            (
                "SELECT n.tableoid, n.oid FROM pg_namespace n",
                "SELECT CAST(2615 AS oid) AS \"tableoid\", n.oid FROM pg_namespace n",
            ),
            (
                "SELECT t.tableoid, c.tableoid AS contableoid, i.indkey FROM unnest('{16388,16392}'::pg_catalog.oid[]) \
                 AS src(tbloid) JOIN pg_catalog.pg_index i ON (src.tbloid = i.indrelid) JOIN pg_catalog.pg_class t \
                 ON (t.oid = i.indexrelid) LEFT JOIN pg_catalog.pg_constraint c ON (i.indexrelid = c.conindid)",
                "SELECT CAST(1259 AS oid) AS \"tableoid\", CAST(2606 AS oid) AS \"contableoid\", \
                 array_to_string(i.indkey, ' ') AS \"indkey\" FROM (VALUES (16388), (16392))",
            ),
            // The names of other queries' columns stay.
            (
                "SELECT indkey, reloptions FROM pg_index, pg_class",
                "SELECT indkey, reloptions FROM pg_index, pg_class",
            ),
        ] {
            let translated = translated(text);
            assert!(translated.contains(expected), "{text}: {translated}");
        }
    }

    #[test]
    fn objects_that_nobody_can_create_are_not_listed() {
        for (text, expected) in [
            (
                "SELECT tableoid, oid, oprname, oprcode::oid FROM pg_operator",
                "SELECT CAST(NULL AS TEXT) AS \"tableoid\", CAST(NULL AS TEXT) AS \"oid\", \
                 CAST(NULL AS TEXT) AS \"oprname\", CAST(NULL AS TEXT) AS \"oprcode\" WHERE false",
            ),
            (
                "SELECT partrelid FROM pg_partitioned_table WHERE (SELECT c.oid FROM pg_opclass c) = ANY(partclass)",
                "SELECT CAST(NULL AS TEXT) AS \"partrelid\" WHERE false",
            ),
            (
                "WITH RECURSIVE w AS (SELECT ev_class AS objid FROM pg_rewrite UNION SELECT w.objid FROM w) \
                 SELECT 'pg_class'::regclass::oid AS classid, objid FROM w",
                "SELECT CAST(NULL AS TEXT) AS \"classid\", CAST(NULL AS TEXT) AS \"objid\" WHERE false",
            ),
            (
                "SELECT classid FROM pg_depend UNION ALL SELECT classid FROM pg_depend d, pg_amop o \
                 UNION ALL SELECT classid FROM pg_depend d, pg_amproc p ORDER BY 1",
                "SELECT classid FROM pg_depend ORDER BY 1",
            ),
        ] {
            assert_eq!(translated(text).to_lowercase(), expected.to_lowercase(), "{text}");
        }
        let operators = "SELECT oprname FROM pg_operator";
        assert_eq!(translated(operators), operators);
    }

    #[test]
    fn lists_of_object_ids_may_be_empty() {
        let text = "SELECT t.tgname FROM unnest('{}'::pg_catalog.oid[]) AS src(tbloid) JOIN pg_trigger t \
                    ON (src.tbloid = t.tgrelid)";
        let translated = translated(text);
        assert!(translated.contains("CAST(NULL AS BIGINT) AS id WHERE false"), "{translated}");
        assert_eq!(ids_of(&expression_of("'{1, 2}'::oid[]").unwrap()), Some(vec![1, 2]));
        assert_eq!(ids_of(&expression_of("'{1, 2}'::INT[]").unwrap()), None);
    }
}
