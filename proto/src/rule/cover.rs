//! Checks that partition expressions cover every row exactly once.
//!
//! One column: each expression is a domain, so all ranges are sorted and swept. Several columns: one column is cut
//! wherever any comparison changes its result; in each piece the expressions are simplified, and the remainder is
//! checked over the other columns. A piece is represented by its first value, which is a value of the type: a row that
//! a message names can exist.
//!
//! Exact over types: nothing lies between the integers 9 and 10, but something between 9.0 and 10.0. NULL must be
//! covered where the column allows it.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use super::{Rule, column_of, compared, quote};
use crate::domain::Domain;
use crate::error::Error;
use crate::id::ColumnId;
use crate::neighbour::{least, predecessor, successor};
use crate::schema::{Column, TableSchema};
use crate::value::Value;

/// Maximum number of rules: as many as placements, which are u16.
const RULES_MAX: usize = 1 << 16;
/// Maximum nesting of AND and OR; people write two or three levels, and recursion uses the stack.
const DEPTH_MAX: usize = 64;
/// Maximum parts of expressions to be examined, well below a second's work: a grid of 64 by 64, as many partitions as a
/// table may have, takes 1.3 million.
const STEPS_MAX: usize = 5_000_000;

/// Checks that every row satisfies exactly one of the expressions.
///
/// # Errors
/// [`Error::InvalidInput`] that names a row which none or more than one covers, an expression that is duplicate or
/// malformed; or when they are too many to check.
pub fn check_cover(rules: &[Rule], schema: &TableSchema) -> Result<(), Error> {
    if rules.is_empty() {
        return Err(Error::InvalidInput("there is no partition expression".to_owned()));
    }
    if rules.len() > RULES_MAX {
        return Err(Error::InvalidInput(format!(
            "{} partition expressions exceed the limit of {RULES_MAX}",
            rules.len()
        )));
    }
    // Bound the recursion before anything recurses.
    for (position, rule) in rules.iter().enumerate() {
        if depth_exceeds(rule, DEPTH_MAX) {
            return Err(Error::InvalidInput(format!(
                "partition expression {} is nested deeper than {DEPTH_MAX} levels",
                position + 1
            )));
        }
    }
    // Only the columns that the rules name matter.
    let column_ids: BTreeSet<ColumnId> = rules.iter().flat_map(Rule::columns).collect();
    for id in &column_ids {
        column_of(schema, *id)?;
    }
    let columns: Vec<&Column> =
        schema.columns.iter().filter(|c| column_ids.contains(&c.id)).collect();
    let mut leaves = Vec::new();
    let nodes: Vec<Node> =
        rules.iter().map(|rule| Node::of(rule, &columns, &mut leaves)).collect::<Result<_, _>>()?;
    // Equal expressions cover nothing twice if they match no row, so look for them separately.
    let mut texts = BTreeSet::new();
    for rule in rules {
        let text = rule.to_sql(schema);
        if texts.contains(&text) {
            return Err(Error::InvalidInput(format!("duplicate partition expression `{text}`")));
        }
        texts.insert(text);
    }
    // Expressions that are true or false of every row need no search.
    let point = vec![None; columns.len()];
    let mut check = Check { rules, schema, columns, leaves, point, steps: 0 };
    let mut live = Vec::new();
    let mut satisfied = None;
    for (rule, node) in nodes.into_iter().enumerate() {
        match node {
            Node::Decided(false) => {}
            Node::Decided(true) => check.satisfy(&mut satisfied, rule)?,
            node => live.push((rule, node)),
        }
    }
    check.run(&live, satisfied)
}

fn depth_exceeds(rule: &Rule, levels: usize) -> bool {
    match rule {
        Rule::Compare { .. } => false,
        Rule::And(rules) | Rule::Or(rules) => {
            levels == 0 || rules.iter().any(|rule| depth_exceeds(rule, levels - 1))
        }
    }
}

/// An expression with its comparisons resolved.
enum Node {
    /// True or false, independent of the remaining columns.
    Decided(bool),
    /// A comparison, by its position in [`Check::leaves`].
    Leaf(usize),
    And(Vec<Node>),
    Or(Vec<Node>),
}

/// A comparison: its column's position and the values for which it is true.
struct Leaf {
    column: usize,
    domain: Domain,
}

impl Node {
    fn of(rule: &Rule, columns: &[&Column], leaves: &mut Vec<Leaf>) -> Result<Self, Error> {
        let nodes_of = |rules: &[Rule], leaves: &mut Vec<Leaf>| {
            rules.iter().map(|rule| Self::of(rule, columns, leaves)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match rule {
            Rule::Compare { column, comparison, value } => {
                let position = columns.iter().position(|c| c.id == *column);
                let position = position.expect("the columns are those that the rules name");
                let column = columns[position];
                let domain = compared(column, *comparison, value)?.typed(column.column_type)?;
                leaves.push(Leaf { column: position, domain });
                Self::Leaf(leaves.len() - 1)
            }
            Rule::And(rules) => Self::join(nodes_of(rules, leaves)?, true),
            Rule::Or(rules) => Self::join(nodes_of(rules, leaves)?, false),
        })
    }

    /// AND (`and`) or OR of nodes, simplified.
    fn join(nodes: Vec<Self>, and: bool) -> Self {
        let mut undecided = Vec::with_capacity(nodes.len());
        for node in nodes {
            match node {
                Self::Decided(value) if value == and => {}
                Self::Decided(value) => return Self::Decided(value),
                node => undecided.push(node),
            }
        }
        match undecided.len() {
            0 => Self::Decided(and),
            1 => undecided.remove(0),
            _ if and => Self::And(undecided),
            _ => Self::Or(undecided),
        }
    }
}

struct Check<'a> {
    rules: &'a [Rule],
    schema: &'a TableSchema,
    /// The columns that the rules name, in the schema's order.
    columns: Vec<&'a Column>,
    leaves: Vec<Leaf>,
    /// Values of the columns that were cut already.
    point: Vec<Option<Value>>,
    steps: usize,
}

impl Check<'_> {
    /// Checks the remaining expressions over the remaining columns. `satisfied` is the expression that covers all of
    /// this piece already.
    fn run(&mut self, live: &[(usize, Node)], satisfied: Option<usize>) -> Result<(), Error> {
        let mut remaining = BTreeSet::new();
        for (_, node) in live {
            self.columns_of(node, &mut remaining);
        }
        let Some(&column) = remaining.first() else {
            return if satisfied.is_some() { Ok(()) } else { Err(self.uncovered()) };
        };
        if remaining.len() == 1 {
            return self.sweep(column, live, satisfied);
        }
        for value in self.pieces(column, live) {
            let mut satisfied = satisfied;
            self.point[column] = Some(value);
            let mut inner = Vec::new();
            for (rule, node) in live {
                match self.simplify(node, column)? {
                    Node::Decided(false) => {}
                    Node::Decided(true) => self.satisfy(&mut satisfied, *rule)?,
                    node => inner.push((*rule, node)),
                }
            }
            self.run(&inner, satisfied)?;
        }
        self.point[column] = None;
        Ok(())
    }

    fn satisfy(&self, satisfied: &mut Option<usize>, rule: usize) -> Result<(), Error> {
        match satisfied.replace(rule) {
            None => Ok(()),
            Some(earlier) => Err(self.doubled(earlier, rule)),
        }
    }

    fn columns_of(&self, node: &Node, columns: &mut BTreeSet<usize>) {
        match node {
            Node::Decided(_) => {}
            Node::Leaf(leaf) => {
                columns.insert(self.leaves[*leaf].column);
            }
            Node::And(nodes) | Node::Or(nodes) => {
                nodes.iter().for_each(|node| self.columns_of(node, columns));
            }
        }
    }

    /// The first value of each piece in which no comparison with the column changes its result.
    fn pieces(&self, column: usize, live: &[(usize, Node)]) -> BTreeSet<Value> {
        let column_type = self.columns[column].column_type;
        let mut firsts = BTreeSet::from([least(column_type)]);
        if self.columns[column].nullable {
            firsts.insert(Value::Null);
        }
        let mut nodes: Vec<&Node> = live.iter().map(|(_, node)| node).collect();
        while let Some(node) = nodes.pop() {
            match node {
                Node::Decided(_) => {}
                Node::And(inner) | Node::Or(inner) => nodes.extend(inner),
                Node::Leaf(leaf) if self.leaves[*leaf].column != column => {}
                Node::Leaf(leaf) => {
                    for piece in pieces_of(&self.leaves[*leaf].domain, self.columns[column]) {
                        firsts.extend(piece.start);
                        firsts.extend(piece.end);
                    }
                }
            }
        }
        firsts
    }

    /// Simplifies an expression for a column's value at the current point.
    fn simplify(&mut self, node: &Node, column: usize) -> Result<Node, Error> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Error::InvalidInput(format!(
                "{} partition expressions over {} columns are too many to check; use fewer, or \
                 fewer columns",
                self.rules.len(),
                self.columns.len()
            )));
        }
        Ok(match node {
            Node::Decided(value) => Node::Decided(*value),
            Node::Leaf(leaf) if self.leaves[*leaf].column != column => Node::Leaf(*leaf),
            Node::Leaf(leaf) => {
                let value = self.point[column].as_ref().expect("the column stands at a point");
                Node::Decided(self.leaves[*leaf].domain.contains(value))
            }
            Node::And(nodes) => Node::join(self.simplify_all(nodes, column)?, true),
            Node::Or(nodes) => Node::join(self.simplify_all(nodes, column)?, false),
        })
    }

    fn simplify_all(&mut self, nodes: &[Node], column: usize) -> Result<Vec<Node>, Error> {
        nodes.iter().map(|node| self.simplify(node, column)).collect()
    }

    /// The values for which an expression over one column is true.
    fn domain_of(&self, node: &Node) -> Domain {
        match node {
            Node::Decided(true) => Domain::all(),
            Node::Decided(false) => Domain::none(),
            Node::Leaf(leaf) => self.leaves[*leaf].domain.clone(),
            Node::And(nodes) => nodes
                .iter()
                .fold(Domain::all(), |domain, node| domain.intersect(&self.domain_of(node))),
            Node::Or(nodes) => {
                let domains: Vec<Domain> = nodes.iter().map(|node| self.domain_of(node)).collect();
                let null = domains.iter().any(Domain::allows_null);
                let intervals = domains.iter().flat_map(|d| d.intervals().iter().cloned());
                Domain::from_intervals(null, intervals.collect())
            }
        }
    }

    /// Checks expressions over one column.
    fn sweep(
        &mut self,
        position: usize,
        live: &[(usize, Node)],
        satisfied: Option<usize>,
    ) -> Result<(), Error> {
        let column = self.columns[position];
        let domains: Vec<(usize, Domain)> =
            live.iter().map(|(rule, node)| (*rule, self.domain_of(node))).collect();
        if column.nullable {
            self.point[position] = Some(Value::Null);
            let mut covered = satisfied;
            for (rule, _) in domains.iter().filter(|(_, domain)| domain.allows_null()) {
                self.satisfy(&mut covered, *rule)?;
            }
            if covered.is_none() {
                return Err(self.uncovered());
            }
        }
        let mut pieces: Vec<(Piece, usize)> = Vec::new();
        for (rule, domain) in &domains {
            pieces.extend(pieces_of(domain, column).into_iter().map(|piece| (piece, *rule)));
        }
        pieces.sort_by(|(a, _), (b, _)| a.start.cmp(&b.start));
        // End of the covered values, and the expression that covered last. `None`: to the end; `Some(None)`: nothing is
        // covered, the next piece has to begin at the least value of the type.
        let mut end: Option<Option<Value>> = if satisfied.is_some() { None } else { Some(None) };
        let mut last = satisfied;
        for (piece, rule) in pieces {
            let reached = end.as_ref().map(|end| piece.start.cmp(end));
            match reached {
                Some(Ordering::Equal) => {}
                Some(Ordering::Greater) => {
                    self.point[position] = Some(sample(end.flatten(), piece.start, column));
                    return Err(self.uncovered());
                }
                Some(Ordering::Less) | None => {
                    self.point[position] = Some(sample(piece.start, piece.end, column));
                    return Err(self.doubled(last.unwrap_or(rule), rule));
                }
            }
            end = piece.end.map(Some);
            last = Some(rule);
        }
        if let Some(end) = end {
            self.point[position] = Some(sample(end, None, column));
            return Err(self.uncovered());
        }
        self.point[position] = None;
        Ok(())
    }

    fn uncovered(&self) -> Error {
        Error::InvalidInput(format!(
            "checkpoint `{}` is not covered by any partition expression",
            self.checkpoint()
        ))
    }

    fn doubled(&self, first: usize, second: usize) -> Error {
        Error::InvalidInput(format!(
            "checkpoint `{}` is covered by both `{}` and `{}`",
            self.checkpoint(),
            self.rules[first.min(second)].to_sql(self.schema),
            self.rules[first.max(second)].to_sql(self.schema)
        ))
    }

    /// A row of the piece under examination. Columns that do not matter there have any value.
    fn checkpoint(&self) -> String {
        let values = self.columns.iter().zip(&self.point).map(|(column, point)| {
            let value = match point {
                Some(value) => value.clone(),
                None if column.nullable => Value::Null,
                None => least(column.column_type),
            };
            format!("{}={}", quote(&column.name), value.display(column.column_type))
        });
        values.collect::<Vec<_>>().join(", ")
    }
}

/// Values from `start` up to, but not including, `end`. `None` is the end of the type on its side; a start is never the
/// least value, which is written as `None`.
struct Piece {
    start: Option<Value>,
    end: Option<Value>,
}

/// A domain's intervals as pieces, ascending; only those that hold a value.
fn pieces_of(domain: &Domain, column: &Column) -> Vec<Piece> {
    let column_type = column.column_type;
    let piece = |interval: &crate::domain::Interval| {
        let start = match &interval.low {
            Bound::Unbounded => None,
            Bound::Included(low) => Some(low.clone()),
            // No value is above the greatest one.
            Bound::Excluded(low) => Some(successor(low, column_type)?),
        };
        let start = start.filter(|start| *start != least(column_type));
        let end = match &interval.high {
            Bound::Unbounded => None,
            Bound::Excluded(high) => Some(high.clone()),
            Bound::Included(high) => successor(high, column_type),
        };
        let first = start.clone().unwrap_or_else(|| least(column_type));
        end.as_ref().is_none_or(|end| first < *end).then_some(Piece { start, end })
    };
    domain.intervals().iter().filter_map(piece).collect()
}

/// A value between a start and an end, for a message.
fn sample(start: Option<Value>, end: Option<Value>, column: &Column) -> Value {
    let near_end = || predecessor(&end?, column.column_type);
    start.or_else(near_end).unwrap_or_else(|| least(column.column_type))
}
