//! Probes of a predicate: tests for indexes that domains cannot express.
//!
//! ```text
//!   msg ~ 'x'   msg LIKE '%x%'   msg ILIKE 'x_'         a pattern in a text
//!   matches_term(msg, 'x')   matches(msg, 'x OR y')     terms of a text
//!   a = 1 OR b = 2                                      alternatives over several columns
//! ```
//!
//! Invariants:
//! - a row that satisfies a predicate passes its probes; a part that no probe expresses is left out. The plan above
//!   evaluates the whole predicate;
//! - a probe is sent only if an index of the table may answer it, and domains do not say the same; all probes of a scan
//!   together stay within the limits of a request.

use std::collections::BTreeMap;

use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Like, Operator};
use partita_advice::FilterClass;
use partita_proto::domain::Domain;
use partita_proto::id::ColumnId;
use partita_proto::index::IndexOptions;
use partita_proto::probe::{ColumnTest, PROBE_DEPTH_MAX, PROBE_NODES_MAX, Probe};
use partita_proto::schema::{Column, ColumnType, TableSchema};
use partita_proto::text::TextQuery;
use partita_sql::identifier::quote_string;

use super::{POINTS_MAX, has_subquery, literal, operand, text, when};

/// Probes of the rows that satisfy all filters, for what domains cannot say.
pub(crate) fn probes_of<'a>(
    filters: impl IntoIterator<Item = &'a Expr>,
    schema: &TableSchema,
) -> Vec<Probe> {
    let mut probes = Vec::new();
    if schema.columns.iter().all(|column| column.indexes.is_empty()) {
        return probes;
    }
    let mut nodes = 0;
    for filter in filters {
        let parts = match probe(filter, schema) {
            Some(Probe::All(parts)) => parts,
            Some(single) => vec![single],
            None => continue,
        };
        for part in parts {
            let (part_nodes, depth) = size(&part);
            let fits = depth <= PROBE_DEPTH_MAX && nodes + part_nodes <= PROBE_NODES_MAX;
            if fits && !is_domain(&part) && is_answered(&part, schema) && !probes.contains(&part) {
                nodes += part_nodes;
                probes.push(part);
            }
        }
    }
    probes
}

/// Returns true if a filter names only the table's columns and has a probe. Scans want to know such filters even where
/// no index answers them: which index is missing follows from them.
pub(crate) fn is_probed(filter: &Expr, schema: &TableSchema) -> bool {
    probe(filter, schema).is_some() && !has_subquery(filter)
}

/// Columns that filters test, and the class of each test, without repetitions.
pub(crate) fn classes_of<'a>(
    filters: impl IntoIterator<Item = &'a Expr>,
    schema: &TableSchema,
) -> Vec<(ColumnId, FilterClass)> {
    let mut classes = Vec::new();
    let mut waiting: Vec<Probe> =
        filters.into_iter().filter_map(|filter| probe(filter, schema)).collect();
    while let Some(next) = waiting.pop() {
        match next {
            Probe::All(parts) | Probe::Any(parts) => waiting.extend(parts),
            Probe::Column { column, test } => {
                if let Some(column) = stored(&column, schema) {
                    let tested = (column.id, class(&test));
                    if !classes.contains(&tested) {
                        classes.push(tested);
                    }
                }
            }
        }
    }
    classes
}

/// A probe as text, with the columns by their SQL names.
pub(crate) fn shown(probe: &Probe, schema: &TableSchema) -> String {
    let joined = |parts: &[Probe], operator: &str| {
        let texts: Vec<String> = parts.iter().map(|part| shown(part, schema)).collect();
        format!("({})", texts.join(operator))
    };
    match probe {
        Probe::All(parts) => joined(parts, " AND "),
        Probe::Any(parts) => joined(parts, " OR "),
        Probe::Column { column, test } => {
            let name =
                stored(column, schema).map_or(column.as_str(), |column| column.name.as_str());
            match test {
                ColumnTest::Within(domain) => format!("{name} in {domain}"),
                ColumnTest::Like(pattern) => format!("{name} LIKE {}", quote_string(pattern)),
                ColumnTest::Regex { pattern, case_insensitive } => {
                    let operator = if *case_insensitive { "~*" } else { "~" };
                    format!("{name} {operator} {}", quote_string(pattern))
                }
                ColumnTest::Terms { terms, folded } => {
                    let terms: Vec<String> = terms.iter().map(|term| quote_string(term)).collect();
                    let terms = terms.join(" ");
                    if *folded {
                        format!("lower({name}) @@ {terms}")
                    } else {
                        format!("{name} @@ {terms}")
                    }
                }
            }
        }
    }
}

/// The column of a storage name.
fn stored<'a>(storage_name: &str, schema: &'a TableSchema) -> Option<&'a Column> {
    schema.columns.iter().find(|column| column.storage_name == storage_name)
}

fn class(test: &ColumnTest) -> FilterClass {
    match test {
        ColumnTest::Within(domain) => {
            let is_null_test = *domain == Domain::null_only() || *domain == Domain::not_null();
            match domain.as_points(POINTS_MAX) {
                _ if is_null_test => FilterClass::Null,
                Some(points) if points.len() <= 1 => FilterClass::Point,
                Some(_) => FilterClass::Points,
                None => FilterClass::Range,
            }
        }
        ColumnTest::Like(_) | ColumnTest::Regex { .. } => FilterClass::Pattern,
        ColumnTest::Terms { .. } => FilterClass::Terms,
    }
}

/// A test that every row passes for which `expr` is true; `None`: none is known.
fn probe(expr: &Expr, schema: &TableSchema) -> Option<Probe> {
    match expr {
        Expr::Alias(alias) => probe(&alias.expr, schema),
        Expr::IsTrue(inner) => probe(inner, schema),
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
            let parts = operands(expr, Operator::And);
            all(parts.into_iter().filter_map(|part| probe(part, schema)).collect())
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let parts = operands(expr, Operator::Or);
            // An alternative that no probe expresses may be satisfied by any row.
            let parts: Option<Vec<Probe>> =
                parts.into_iter().map(|part| probe(part, schema)).collect();
            any(parts?)
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::RegexMatch | Operator::RegexIMatch),
            right,
        }) => {
            let column = text_column(left, schema)?;
            let pattern = text(literal(right)?)?.to_owned();
            let case_insensitive = *op == Operator::RegexIMatch;
            Some(test(column, ColumnTest::Regex { pattern, case_insensitive }))
        }
        Expr::Like(like) if !like.negated => like_probe(like, expr, schema),
        Expr::ScalarFunction(call) => call_probe(call, schema),
        _ => within(expr, schema),
    }
}

/// Operands of a chain of ANDs, or of ORs, in order. A chain may be long, and its operators are nested.
fn operands(chain: &Expr, chain_op: Operator) -> Vec<&Expr> {
    let mut operands = Vec::new();
    let mut waiting: Vec<&Expr> = vec![chain];
    while let Some(next) = waiting.pop() {
        match next {
            Expr::Alias(alias) => waiting.push(&alias.expr),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == chain_op => {
                waiting.push(right);
                waiting.push(left);
            }
            operand => operands.push(operand),
        }
    }
    operands
}

/// Conjunction of probes; `None` of no probe.
fn all(parts: Vec<Probe>) -> Option<Probe> {
    let mut flat = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Probe::All(inner) => flat.extend(inner),
            Probe::Any(_) | Probe::Column { .. } => flat.push(part),
        }
    }
    if flat.len() > 1 { Some(Probe::All(flat)) } else { flat.pop() }
}

/// Disjunction of probes, without those that no row passes. Domains of one column are one test.
fn any(parts: Vec<Probe>) -> Option<Probe> {
    let mut flat: Vec<Probe> = Vec::with_capacity(parts.len());
    // Positions of the domains by their columns.
    let mut domains = BTreeMap::new();
    let mut impossible = None;
    let parts = parts.into_iter().flat_map(|part| match part {
        Probe::Any(inner) => inner,
        Probe::All(_) | Probe::Column { .. } => vec![part],
    });
    for part in parts {
        let Probe::Column { column, test: ColumnTest::Within(domain) } = &part else {
            flat.push(part);
            continue;
        };
        if domain.is_none() {
            impossible = Some(part);
            continue;
        }
        let position = *domains.entry(column.clone()).or_insert(flat.len());
        match flat.get_mut(position) {
            Some(Probe::Column { test: ColumnTest::Within(union), .. }) => {
                *union = union.union(domain);
            }
            _ => flat.push(part),
        }
    }
    match flat.len() {
        0 => impossible,
        1 => flat.pop(),
        _ => Some(Probe::Any(flat)),
    }
}

fn test(column: &Column, test: ColumnTest) -> Probe {
    Probe::Column { column: column.storage_name.clone(), test }
}

/// Domains of an expression as a probe.
fn within(expr: &Expr, schema: &TableSchema) -> Option<Probe> {
    let domains = when(expr, true, schema);
    let tests = domains.iter().map(|(column, domain)| Probe::Column {
        column: column.to_owned(),
        test: ColumnTest::Within(domain.clone()),
    });
    all(tests.collect())
}

/// A column of texts, possibly below casts to other types of texts.
fn text_column<'a>(expr: &'a Expr, schema: &'a TableSchema) -> Option<&'a Column> {
    let operand = operand(expr, schema)?;
    let is_text = operand.column.column_type == ColumnType::String
        && operand.casts.iter().all(|target| target.is_string());
    is_text.then_some(operand.column)
}

/// Probe of LIKE and ILIKE. A pattern that is a text or a prefix is a domain.
fn like_probe(like: &Like, expr: &Expr, schema: &TableSchema) -> Option<Probe> {
    let pattern = text(literal(&like.pattern)?)?;
    if like.escape_char.is_some_and(|escape| escape != '\\') || ends_in_escape(pattern) {
        return None;
    }
    let column = text_column(&like.expr, schema)?;
    if like.case_insensitive {
        let case_insensitive = true;
        let pattern = regular(pattern);
        return Some(test(column, ColumnTest::Regex { pattern, case_insensitive }));
    }
    let is_domain = match pattern.find(['%', '_', '\\']) {
        Some(end) => pattern[end..].bytes().all(|byte| byte == b'%'),
        None => true,
    };
    let of_domain = if is_domain { within(expr, schema) } else { None };
    of_domain.or_else(|| Some(test(column, ColumnTest::Like(pattern.to_owned()))))
}

/// Returns true if nothing follows the last escape character of a pattern.
fn ends_in_escape(pattern: &str) -> bool {
    pattern.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// A pattern of LIKE as a regular expression of the crate `regex`.
fn regular(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len() + 8);
    written.push_str("(?s)^");
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => written.push_str(".*"),
            '_' => written.push('.'),
            '\\' => push_literal(&mut written, letters.next().unwrap_or(letter)),
            _ => push_literal(&mut written, letter),
        }
    }
    written.push('$');
    written
}

/// Writes a character that stands for itself; a backslash before `<` or `>` would give it a meaning.
fn push_literal(written: &mut String, letter: char) {
    if letter.is_ascii_punctuation() && !matches!(letter, '<' | '>') {
        written.push('\\');
    }
    written.push(letter);
}

/// Probe of the functions `matches_term` and `matches`.
fn call_probe(call: &ScalarFunction, schema: &TableSchema) -> Option<Probe> {
    let [value, sought] = call.args.as_slice() else { return None };
    match call.func.name() {
        "matches_term" => {
            let (column, folded) = term_column(value, schema)?;
            let terms = vec![text(literal(sought)?)?.to_owned()];
            Some(test(column, ColumnTest::Terms { terms, folded }))
        }
        "matches" => {
            let column = text_column(value, schema)?;
            TextQuery::parse(text(literal(sought)?)?).ok()?.probe(&column.storage_name)
        }
        _ => None,
    }
}

/// A column of texts, and true if its texts are in lower case.
fn term_column<'a>(expr: &'a Expr, schema: &'a TableSchema) -> Option<(&'a Column, bool)> {
    match expr {
        Expr::Alias(alias) => term_column(&alias.expr, schema),
        Expr::Cast(Cast { expr: inner, field }) if field.data_type().is_string() => {
            term_column(inner, schema)
        }
        Expr::ScalarFunction(call) if call.func.name() == "lower" => match call.args.as_slice() {
            [inner] => Some((text_column(inner, schema)?, true)),
            _ => None,
        },
        _ => Some((text_column(expr, schema)?, false)),
    }
}

/// Number of tests and operators, and depth: 1 for a test of a column.
fn size(probe: &Probe) -> (usize, usize) {
    match probe {
        Probe::All(parts) | Probe::Any(parts) => {
            let sizes = parts.iter().map(size);
            let (nodes, depth) = sizes.fold((0, 0), |(nodes, depth), (part_nodes, part_depth)| {
                (nodes + part_nodes, depth.max(part_depth))
            });
            (nodes + 1, depth + 1)
        }
        Probe::Column { .. } => (1, 1),
    }
}

/// Returns true if the domains of a scan say what the probe says: it tests values of one column.
fn is_domain(probe: &Probe) -> bool {
    fn tests_values(probe: &Probe) -> bool {
        match probe {
            Probe::All(parts) | Probe::Any(parts) => parts.iter().all(tests_values),
            Probe::Column { test, .. } => matches!(test, ColumnTest::Within(_)),
        }
    }
    tests_values(probe) && probe.columns().len() <= 1
}

/// Returns true if indexes may exclude rows that do not pass the probe.
fn is_answered(probe: &Probe, schema: &TableSchema) -> bool {
    match probe {
        Probe::All(parts) => parts.iter().any(|part| is_answered(part, schema)),
        Probe::Any(parts) => parts.iter().all(|part| is_answered(part, schema)),
        Probe::Column { column, test } => stored(column, schema)
            .is_some_and(|column| column.indexes.iter().any(|index| answers(&index.options, test))),
    }
}

/// Returns true if an index may answer a test of its column.
fn answers(options: &IndexOptions, test: &ColumnTest) -> bool {
    match options {
        IndexOptions::Inverted => !matches!(test, ColumnTest::Terms { .. }),
        IndexOptions::Skipping(_) => match test {
            ColumnTest::Within(domain) => domain.as_points(POINTS_MAX).is_some(),
            ColumnTest::Like(_) | ColumnTest::Regex { .. } | ColumnTest::Terms { .. } => false,
        },
        // Words that differ in case are different words of a case-sensitive index.
        IndexOptions::Fulltext(fulltext) => match test {
            ColumnTest::Terms { folded, .. } => !(*folded && fulltext.case_sensitive),
            ColumnTest::Within(_) | ColumnTest::Like(_) | ColumnTest::Regex { .. } => false,
        },
    }
}

#[cfg(test)]
mod tests;
