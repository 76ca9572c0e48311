//! Bounds on the plan of a query, estimated from its syntax tree.
//!
//! The planner substitutes the query of a WITH for each reference to it. A chain in which each query refers twice to
//! the previous one grows to two to the power of its length. So relations are counted as the plan will have them.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, ObjectName, OrderByKind, Query, Select, SelectItem, Visit, Visitor,
};

use super::identifier::fold;
use crate::error::{STATEMENT_TOO_COMPLEX, SqlError};

/// Maximum nodes of an expression after columns of derived tables are replaced by their expressions. The optimizer
/// replaces them; a column that is used twice at each of `n` levels becomes two to the power of `n`.
const EXPRESSION_MAX: u64 = 1 << 16;
/// Maximum number of SELECTs and relations of a plan.
const WEIGHT_MAX: u64 = 4_096;
/// Maximum number of relations that one SELECT joins.
const RELATIONS_MAX: usize = 256;
/// Maximum depth of subqueries inside of expressions. Planning takes twice as long for each level.
const SUBQUERIES_MAX: usize = 12;
/// Maximum number of columns in a select list, ORDER BY or GROUP BY; as in PostgreSQL.
const COLUMNS_MAX: usize = 1_664;
/// Maximum number of grouping sets of one SELECT; as in PostgreSQL.
const GROUPING_SETS_MAX: u64 = 4_096;

/// Checks that a query's plan will not be too large.
///
/// # Errors
/// 54001, or 54011 for columns.
pub(super) fn check(query: &Query) -> Result<(), SqlError> {
    match query.visit(&mut Weigher::default()) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// One query that is being visited.
#[derive(Default)]
struct Frame {
    weight: u64,
    /// Largest number of columns that one expression of its SELECTs refers to, outside of subqueries.
    references: u64,
    /// Total size of the scalar subqueries in its select lists.
    beside: u64,
    /// Size of the largest expression of the relations that it reads.
    inner: u64,
    /// Weights and sizes of the visited queries of its WITH, by name.
    known: HashMap<String, (u64, u64)>,
    /// Names of the queries of its WITH, by the address of their trees.
    named: HashMap<usize, String>,
}

#[derive(Default)]
struct Weigher {
    frames: Vec<Frame>,
    /// Subqueries in expressions, by the address of their trees; true if the value is part of a select list.
    values: HashMap<usize, bool>,
    /// Number of subqueries around the current expression.
    subqueries: usize,
}

type Flow = ControlFlow<Box<SqlError>>;

fn refuse(sqlstate: &str, message: String) -> Flow {
    ControlFlow::Break(Box::new(SqlError::new(sqlstate, message)))
}

/// The address of a tree, which identifies it during the visit.
fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

impl Weigher {
    fn add(&mut self, weight: u64, size: u64) -> Flow {
        if let Some(frame) = self.frames.last_mut() {
            frame.inner = frame.inner.max(size);
            frame.weight = frame.weight.saturating_add(weight);
            if frame.weight > WEIGHT_MAX {
                let message = format!(
                    "the plan of the statement would have more than {WEIGHT_MAX} relations, counting each use of a WITH query"
                );
                return refuse(STATEMENT_TOO_COMPLEX, message);
            }
        }
        Flow::Continue(())
    }
}

impl Visitor for Weigher {
    type Break = Box<SqlError>;

    fn pre_visit_expr(&mut self, expression: &Expr) -> Flow {
        if let Some(query) = subquery(expression) {
            self.values.entry(address(query)).or_insert(false);
            self.subqueries += 1;
            if self.subqueries > SUBQUERIES_MAX {
                let message = format!("subqueries are nested more than {SUBQUERIES_MAX} deep");
                return refuse(STATEMENT_TOO_COMPLEX, message);
            }
        }
        Flow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> Flow {
        if subquery(expression).is_some() {
            self.subqueries -= 1;
        }
        Flow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let ctes = query.with.iter().flat_map(|clause| &clause.cte_tables);
        let names = ctes.map(|cte| {
            (address(&cte.query), name(&cte.alias.name.value, cte.alias.name.quote_style))
        });
        self.frames.push(Frame { named: names.collect(), ..Frame::default() });
        let keys = query.order_by.as_ref().map_or(0, |order| match &order.kind {
            OrderByKind::Expressions(keys) => keys.len(),
            OrderByKind::All(_) => 1,
        });
        if keys > COLUMNS_MAX {
            return too_many_columns("ORDER BY");
        }
        Flow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> Flow {
        let Some(frame) = self.frames.pop() else { return Flow::Continue(()) };
        let references = frame.references.saturating_add(frame.beside);
        let size = references.max(1).saturating_mul(frame.inner.max(1));
        if size > EXPRESSION_MAX {
            let message = format!(
                "an expression would have more than {EXPRESSION_MAX} parts with the columns of derived tables in place"
            );
            return refuse(STATEMENT_TOO_COMPLEX, message);
        }
        // A scalar subquery occurs once, whatever the size of the relations beside it.
        if let Some(is_given) = self.values.remove(&address(query)) {
            if let Some(parent) = self.frames.last_mut().filter(|_| is_given) {
                parent.beside = parent.beside.saturating_add(size);
            }
            return self.add(frame.weight, 1);
        }
        let parent = self.frames.last_mut();
        if let Some(parent) = parent
            && let Some(name) = parent.named.get(&address(query)).cloned()
        {
            parent.known.insert(name, (frame.weight, size));
            return Flow::Continue(());
        }
        self.add(frame.weight, size)
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Flow {
        let weight = match relation.0.as_slice() {
            [part] => part.as_ident().and_then(|ident| {
                let name = name(&ident.value, ident.quote_style);
                self.frames.iter().rev().find_map(|frame| frame.known.get(&name).copied())
            }),
            _ => None,
        };
        let (weight, size) = weight.unwrap_or((1, 1));
        self.add(weight, size)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        let relations: usize = select.from.iter().map(|item| 1 + item.joins.len()).sum();
        // Relations.
        if relations > RELATIONS_MAX {
            return refuse(
                STATEMENT_TOO_COMPLEX,
                format!("a SELECT joins at most {RELATIONS_MAX} relations"),
            );
        }
        // Columns of the select list and of GROUP BY.
        let columns =
            select.projection.iter().filter(|item| !matches!(item, SelectItem::Wildcard(_)));
        if columns.count() > COLUMNS_MAX {
            return too_many_columns("a SELECT");
        }
        if let GroupByExpr::Expressions(keys, _) = &select.group_by {
            if keys.len() > COLUMNS_MAX {
                return too_many_columns("GROUP BY");
            }
            let sets = keys.iter().map(grouping_sets).fold(1, u64::saturating_mul);
            if sets > GROUPING_SETS_MAX {
                return refuse(
                    STATEMENT_TOO_COMPLEX,
                    format!("too many grouping sets present (maximum {GROUPING_SETS_MAX})"),
                );
            }
        }
        // The largest expression of the select list.
        let mut most = 0;
        for item in &select.projection {
            let mut references = References::default();
            let _: ControlFlow<()> = item.visit(&mut references);
            most = most.max(references.columns);
            self.values.extend(references.values.into_iter().map(|value| (value, true)));
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.references = frame.references.max(most);
        }
        self.add(1, 1)
    }
}

fn subquery(expression: &Expr) -> Option<&Query> {
    match expression {
        Expr::Subquery(query)
        | Expr::Exists { subquery: query, .. }
        | Expr::InSubquery { subquery: query, .. } => Some(query),
        _ => None,
    }
}

/// The columns and subqueries that an expression refers to.
#[derive(Default)]
struct References {
    /// Columns, outside of subqueries.
    columns: u64,
    /// Subqueries, by the address of their trees.
    values: HashSet<usize>,
    /// Depth of queries around the current expression.
    depth: usize,
}

impl Visitor for References {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            self.columns += 1;
        }
        self.values.extend(subquery(expression).map(address));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

fn too_many_columns(place: &str) -> Flow {
    refuse("54011", format!("{place} can have at most {COLUMNS_MAX} entries"))
}

fn name(value: &str, quote: Option<char>) -> String {
    if quote.is_some() { value.to_owned() } else { fold(value) }
}

/// The number of grouping sets of an element of GROUP BY.
fn grouping_sets(element: &Expr) -> u64 {
    match element {
        Expr::Cube(parts) => u32::try_from(parts.len())
            .ok()
            .and_then(|parts| 1_u64.checked_shl(parts))
            .unwrap_or(u64::MAX),
        Expr::Rollup(parts) => parts.len() as u64 + 1,
        Expr::GroupingSets(sets) => sets.len() as u64,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parser::parse;

    /// The SQLSTATE that a statement is refused with.
    fn refused(sql: &str) -> Option<String> {
        parse(sql).err().map(|error| error.sqlstate)
    }

    fn nested(open: &str, middle: &str, close: &str, depth: usize) -> String {
        format!("SELECT {}{middle}{}", open.repeat(depth), close.repeat(depth))
    }

    fn chain_of_ctes(links: usize, body: impl Fn(usize) -> String) -> String {
        let links: Vec<_> =
            (1..=links).map(|link| format!("c{link} AS ({})", body(link - 1))).collect();
        format!("WITH c0 AS (SELECT 1 AS a), {} SELECT * FROM c{}", links.join(", "), links.len())
    }

    #[test]
    fn with_queries_count_as_often_as_they_are_used() {
        let twice = |below: usize| format!("SELECT l.a FROM c{below} l, c{below} r");
        assert_eq!(refused(&chain_of_ctes(8, twice)), None);
        assert_eq!(refused(&chain_of_ctes(30, twice)).as_deref(), Some("54001"));
        let once = |below: usize| format!("SELECT a FROM c{below}");
        assert_eq!(refused(&chain_of_ctes(200, once)), None);
    }

    #[test]
    fn columns_of_derived_tables_count_as_what_they_stand_for() {
        let doubling = |levels: usize| {
            let (open, close) = ("SELECT a || a AS a FROM (".repeat(levels), ") q".repeat(levels));
            format!("{open}SELECT 'x' AS a{close}")
        };
        assert_eq!(refused(&doubling(8)), None);
        assert_eq!(refused(&doubling(30)).as_deref(), Some("54001"));
        let by_values = |levels: usize| {
            let open = "SELECT (SELECT a) || (SELECT a) AS a FROM (".repeat(levels);
            format!("{open}SELECT 'x' AS a{}", ") q".repeat(levels))
        };
        assert_eq!(refused(&by_values(6)), None);
        assert_eq!(refused(&by_values(30)).as_deref(), Some("54001"));
        // Drivers ask for the base types of domains so, with a branch for each type.
        let branches = "WHEN b.oid = 7 THEN 1 ".repeat(500);
        let cases =
            format!("SELECT (SELECT CASE {branches} END FROM b WHERE b.oid = t.base) FROM t");
        assert_eq!(refused(&cases), None);
    }

    #[test]
    fn bounds_of_one_select_are_kept() {
        let list = |count: usize, item: &str| vec![item; count].join(", ");
        assert_eq!(refused(&format!("SELECT {}", list(1_664, "1"))), None);
        assert_eq!(refused(&format!("SELECT {}", list(1_665, "1"))).as_deref(), Some("54011"));
        assert_eq!(refused(&format!("SELECT 1 FROM {}", list(300, "t"))).as_deref(), Some("54001"));
        let cube = |count: usize| format!("SELECT 1 FROM t GROUP BY CUBE ({})", list(count, "a"));
        assert_eq!((refused(&cube(12)), refused(&cube(28)).as_deref()), (None, Some("54001")));
        assert_eq!(refused(&cube(70)).as_deref(), Some("54001"));
        assert_eq!(refused(&nested("(SELECT ", "1", ")", 12)), None);
        assert_eq!(refused(&nested("(SELECT ", "1", ")", 13)).as_deref(), Some("54001"));
        let unions = |count: usize| vec!["SELECT 1"; count].join(" UNION ALL ");
        assert_eq!(
            (refused(&unions(257)), refused(&unions(258)).as_deref()),
            (None, Some("54001"))
        );
        let types = |count: usize| format!("SELECT CAST(NULL AS INT{})", "[]".repeat(count));
        assert_eq!((refused(&types(6)), refused(&types(7)).as_deref()), (None, Some("54000")));
        let case = "WHEN a = 1 THEN 2 ".repeat(1_000);
        assert_eq!(refused(&format!("SELECT CASE {case} END FROM t")), None, "no chain");
    }

    /// Each of these took minutes with the parser's own backtracking.
    #[test]
    fn readings_that_nest_take_no_time() {
        // The stack of the threads that serve clients.
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(check_nested_readings);
        thread.unwrap().join().unwrap();
    }

    fn check_nested_readings() {
        let pairs = [
            ("abs(", ")"),
            ("coalesce(round(", "), 0)"),
            ("CAST(", " AS INT)"),
            ("NOT (", ")"),
            ("replace(", ", 'a', 'b')"),
            ("ARRAY[", "]"),
            ("SUBSTRING(", " FROM 1)"),
            ("TRY_CAST(", " AS INT)"),
            ("OVERLAY(", " PLACING 'a' FROM 1)"),
            ("TRIM(", ")"),
            ("CASE WHEN ", " THEN 1 END"),
            ("EXTRACT(hour FROM ", ")"),
            ("ceil(", ")"),
        ];
        for (open, close) in pairs {
            for depth in [20, 30] {
                for (middle, is_wrong) in [("1", false), ("1 1", true)] {
                    let answer = refused(&nested(open, middle, close, depth));
                    let expected = if is_wrong { answer.is_some() } else { true };
                    assert!(expected, "{open} {depth}: {answer:?}");
                    assert!(
                        answer.is_none_or(|state| ["42601", "54001"].contains(&state.as_str())),
                        "{open}"
                    );
                }
            }
        }
        let tables = format!("SELECT * FROM {}", "(t JOIN ".repeat(40));
        assert!(refused(&tables).is_some());
        assert!(refused(&format!("SELECT * FROM {}", "(".repeat(60))).is_some());
    }
}
