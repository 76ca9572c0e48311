//! GreptimeDB's queries with `RANGE .. ALIGN ..`, whose aggregates are of overlapping stretches of time.
//!
//! ```text
//!   SELECT ts, host, avg(v) RANGE '10s' FILL PREV FROM t WHERE .. ALIGN '5s'
//!
//!   the rows       of FROM and WHERE                                                       range_time
//!   by slot        each once for every slot whose range it is in                           range_slot
//!   range_data     the aggregates by slot and key                                          range_value1, ..
//!   range_filled   with FILL: also the slots between the first and the last one of a key
//!   range_lines    with PREV and LINEAR: the values around those that are NULL             range_before1, ..
//!   the items      over these rows
//! ```
//!
//! The slot at `t` has the rows from `t` up to, not including, `t + range`. A row is in the slot that `date_bin` says, and
//! in those before it that are long enough. Which column the time is, and by default the keys, only the catalog knows:
//! until a query is planned, names stand for them ([`sources`]), which [`resolve`] replaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    ObjectNamePart, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, Value, Visit,
    VisitMut, Visitor, VisitorMut, WindowType, visit_expressions_mut,
};
use partita_worker::interval_text;

use super::aligned_grammar::{ALIGNED_BY, CALENDAR, LINEAR, LISTED, NOTHING, NOW, PREV, RANGE_OF};
use super::gap_filled::{
    GROUPING_ERROR, has_aggregate, is_aggregate_call, parsed_expression, parsed_query,
};
use super::identifier::{quote, quote_string};
use super::shown_names::{folded, given_name};
use crate::error::{INVALID_PARAMETER_VALUE, STATEMENT_TOO_COMPLEX, SqlError};

/// The word without which nothing is aligned.
const ALIGN: &[u8] = b"align";
/// Beginning of the name that stands for the column of the time.
const TIME: &str = "range.time.";
/// Beginning of the name that stands for the columns of the key.
const KEYS: &str = "range.keys.";
/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;
/// Nanoseconds of a microsecond.
const MICROSECOND_NS: i64 = 1_000;
/// Microseconds of a millisecond, the shortest width.
const MILLISECOND_US: i64 = 1_000;
/// Most slots that a row can be in.
const SLOTS_MAX: i64 = 100_000;

/// A table whose rows are aligned.
pub struct Source {
    /// The number of its query in the statement.
    pub number: String,
    /// What FROM names.
    pub relation: TableFactor,
    /// True if the keys are those of the table.
    pub needs_keys: bool,
}

/// The columns of a table whose rows are aligned.
pub struct TimeAndKeys {
    /// The time index.
    pub time: String,
    /// The other columns of the primary key.
    pub keys: Vec<String>,
}

/// The tables whose times and keys [`resolve`] needs. One that is a subquery may have such names itself.
pub fn sources(statement: &PlannerStatement) -> Vec<Source> {
    let mut visitor = Sources { found: Vec::new(), with_keys: BTreeSet::new() };
    match statement {
        PlannerStatement::Statement(tree) => {
            let _nothing_breaks = tree.visit(&mut visitor);
        }
        PlannerStatement::Explain(explain) => return sources(&explain.statement),
        _ => {}
    }
    let Sources { found: mut list, with_keys } = visitor;
    for source in &mut list {
        source.needs_keys = with_keys.contains(&source.number);
    }
    list
}

struct Sources {
    found: Vec<Source>,
    with_keys: BTreeSet<String>,
}

impl Visitor for Sources {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { expr, .. } = item
                && let Some(number) = marked(expr, TIME)
                && let Some(from) = select.from.first()
            {
                self.found.push(Source {
                    number: number.to_owned(),
                    relation: from.relation.clone(),
                    needs_keys: false,
                });
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Some(number) = marked(expr, KEYS) {
            self.with_keys.insert(number.to_owned());
        }
        ControlFlow::Continue(())
    }
}

/// The number in a name that stands for columns.
fn marked<'a>(expr: &'a Expr, prefix: &str) -> Option<&'a str> {
    let Expr::Identifier(name) = expr else { return None };
    name.quote_style?;
    name.value.strip_prefix(prefix)
}

/// Replaces the names that stand for times and keys, by the numbers of the sources.
pub fn resolve(statement: &mut PlannerStatement, columns: &HashMap<String, TimeAndKeys>) {
    match statement {
        PlannerStatement::Statement(tree) => {
            let _nothing_breaks = tree.visit(&mut Resolved { columns });
        }
        PlannerStatement::Explain(explain) => resolve(&mut explain.statement, columns),
        _ => {}
    }
}

struct Resolved<'a> {
    columns: &'a HashMap<String, TimeAndKeys>,
}

impl Resolved<'_> {
    fn time(&self, number: &str) -> Option<Ident> {
        self.columns.get(number).map(|columns| Ident::with_quote('"', &columns.time))
    }

    /// The keys that a name stands for.
    fn keys(&self, expr: &Expr) -> Option<Vec<Expr>> {
        let columns = self.columns.get(marked(expr, KEYS)?)?;
        let identifier = |name: &String| Expr::Identifier(Ident::with_quote('"', name));
        Some(columns.keys.iter().map(identifier).collect())
    }

    fn with_keys(&self, list: &mut Vec<Expr>) {
        let expressions = std::mem::take(list).into_iter();
        *list =
            expressions.flat_map(|expr| self.keys(&expr).unwrap_or_else(|| vec![expr])).collect();
    }
}

impl VisitorMut for Resolved<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut items = Vec::with_capacity(select.projection.len());
        for mut item in std::mem::take(&mut select.projection) {
            match &mut item {
                SelectItem::UnnamedExpr(expr) => {
                    if let Some(keys) = self.keys(expr) {
                        items.extend(keys.into_iter().map(SelectItem::UnnamedExpr));
                        continue;
                    }
                }
                SelectItem::ExprWithAlias { alias, .. } => {
                    let time = alias.value.strip_prefix(TIME).and_then(|number| self.time(number));
                    if let Some(time) = time {
                        *alias = time;
                    }
                }
                _ => {}
            }
            items.push(item);
        }
        select.projection = items;
        if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
            self.with_keys(groups);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(time) = marked(expr, TIME).and_then(|number| self.time(number)) {
            *expr = Expr::Identifier(time);
        }
        if let Expr::Function(Function { over: Some(WindowType::WindowSpec(window)), .. }) = expr {
            self.with_keys(&mut window.partition_by);
        }
        ControlFlow::Continue(())
    }
}

/// Writes the aligned queries in a query, and those within it, as ordinary SQL.
pub(super) fn rewrite(text: &str, query: &mut Query) -> Result<(), SqlError> {
    let mut windows = text.as_bytes().windows(ALIGN.len());
    if !windows.any(|window| window.eq_ignore_ascii_case(ALIGN)) {
        return Ok(());
    }
    match query.visit(&mut Queries { count: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Queries {
    /// Number of aligned queries so far.
    count: usize,
}

impl VisitorMut for Queries {
    type Break = Box<SqlError>;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let Query { body, order_by, .. } = query;
        let sort_keys: Vec<&mut Expr> = match order_by.as_mut().map(|order| &mut order.kind) {
            Some(OrderByKind::Expressions(keys)) => {
                keys.iter_mut().map(|key| &mut key.expr).collect()
            }
            _ => Vec::new(),
        };
        match self.rewrite_body(body, sort_keys) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Queries {
    /// Rewrites the SELECTs of a query; `sort_keys` are those behind it.
    fn rewrite_body(
        &mut self,
        body: &mut SetExpr,
        sort_keys: Vec<&mut Expr>,
    ) -> Result<(), SqlError> {
        match body {
            SetExpr::Select(select) => self.rewrite_select(select, sort_keys),
            SetExpr::SetOperation { left, right, .. } => {
                self.rewrite_body(left, Vec::new())?;
                self.rewrite_body(right, Vec::new())
            }
            _ => Ok(()),
        }
    }

    fn rewrite_select(
        &mut self,
        select: &mut Select,
        sort_keys: Vec<&mut Expr>,
    ) -> Result<(), SqlError> {
        let clause = match &select.group_by {
            GroupByExpr::Expressions(groups, _) => match groups.as_slice() {
                [group] => arguments_of(group, ALIGNED_BY),
                _ => None,
            },
            GroupByExpr::All(_) => None,
        };
        let Some(arguments) = clause else { return Ok(()) };
        self.count += 1;
        let mut aligned = Aligned::of(&arguments, self.count)?;
        check(select)?;
        for item in &mut select.projection {
            let name = match item {
                SelectItem::UnnamedExpr(expr) => given_name(&without_range(expr)),
                SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
                _ => return Err(unsupported("a wildcard")),
            };
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
            else {
                continue;
            };
            if aligned.replace_in(expr)? {
                let name = name.unwrap_or_else(|| "?column?".to_owned());
                let alias = Ident::with_quote('"', name);
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        if aligned.values.is_empty() {
            return Err(SqlError::syntax("syntax error: ALIGN without an aggregate with RANGE"));
        }
        for key in sort_keys {
            let _is_new = aligned.replace_in(key)?;
        }
        let from = aligned.query(select)?;
        let SetExpr::Select(replacement) = *parsed_query(&from)?.body else {
            return Err(SqlError::internal("an aligned query is no SELECT"));
        };
        select.from = replacement.from;
        select.selection = None;
        select.group_by = replacement.group_by;
        Ok(())
    }
}

/// Refuses clauses that have no meaning beside ALIGN.
fn check(select: &Select) -> Result<(), SqlError> {
    if select.having.is_some() {
        return Err(unsupported("HAVING"));
    }
    match select.from.as_slice() {
        [from] if from.joins.is_empty() => Ok(()),
        _ => Err(unsupported("a join").with_hint("align the rows of a subquery")),
    }
}

/// What a gap has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fill {
    Null,
    Prev,
    Linear,
    Constant(String),
}

impl Fill {
    /// `None` if there are no rows for gaps.
    fn of(expr: &Expr) -> Option<Self> {
        if let Expr::Identifier(name) = expr {
            return match name.value.to_ascii_lowercase().as_str() {
                PREV => Some(Self::Prev),
                LINEAR => Some(Self::Linear),
                NOTHING => None,
                _ => Some(Self::Constant(expr.to_string())),
            };
        }
        match expr {
            Expr::Value(value) if value.value == Value::Null => Some(Self::Null),
            constant => Some(Self::Constant(constant.to_string())),
        }
    }
}

/// A key that BY lists.
struct Key {
    /// Its text in the query.
    text: String,
    /// The column that it becomes.
    name: String,
    /// True for a column, which keeps its name.
    is_column: bool,
}

/// An aggregate of a range.
struct Ranged {
    call: Function,
    /// Width of the range in microseconds.
    range: i64,
}

/// An aligned query.
struct Aligned {
    number: usize,
    /// Distance of slots in microseconds.
    width: i64,
    /// A moment at which a slot begins, as an SQL text; `None`: the beginning of 1970.
    origin: Option<String>,
    /// What fills the gaps of an aggregate that does not say it.
    fill: Option<Fill>,
    /// `None`: those of the table.
    keys: Option<Vec<Key>>,
    values: Vec<Ranged>,
    has_gaps: bool,
    /// Values that need the one before them, and those that need all their neighbours too.
    with_lines: BTreeMap<usize, bool>,
}

impl Aligned {
    fn of(arguments: &[&Expr], number: usize) -> Result<Self, SqlError> {
        let [width, origin, fill, keys, expressions @ ..] = arguments else {
            return Err(SqlError::syntax("syntax error in ALIGN"));
        };
        let origin = match origin {
            Expr::Identifier(name) if name.value.eq_ignore_ascii_case(CALENDAR) => None,
            Expr::Identifier(name) if name.value.eq_ignore_ascii_case(NOW) => {
                Some("CAST(now() AS TIMESTAMP(9))".to_owned())
            }
            Expr::Identifier(name) => {
                let message = format!("ALIGN is not TO {name}: it takes NOW, CALENDAR or a time");
                return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
            }
            origin => Some(format!("CAST({origin} AS TIMESTAMP(9))")),
        };
        let is_listed = matches!(keys, Expr::Identifier(name) if name.value == LISTED);
        let keys = is_listed.then(|| keys_of(expressions));
        Ok(Self {
            number,
            width: width_of(width, "ALIGN")?,
            origin,
            fill: Fill::of(fill),
            keys,
            values: Vec::new(),
            has_gaps: false,
            with_lines: BTreeMap::new(),
        })
    }

    /// Replaces the aggregates with RANGE and the keys in an expression; returns true if there are any.
    fn replace_in(&mut self, expr: &mut Expr) -> Result<bool, SqlError> {
        let mut outer = Outer { aligned: self, is_new: false };
        if let ControlFlow::Break(error) = expr.visit(&mut outer) {
            return Err(*error);
        }
        let is_new = outer.is_new;
        if has_aggregate(expr) {
            let message = format!("{expr} has an aggregate without RANGE");
            return Err(SqlError::new(GROUPING_ERROR, message));
        }
        Ok(is_new)
    }

    /// The value of an operand with RANGE: that of its aggregates.
    fn value(&mut self, arguments: &[&Expr]) -> Result<Expr, SqlError> {
        let [operand, width, fill @ ..] = arguments else {
            return Err(SqlError::syntax("syntax error in RANGE"));
        };
        let fill = match fill {
            [fill, ..] => Fill::of(fill),
            [] => self.fill.clone(),
        };
        let range = width_of(width, "RANGE")?;
        if range.saturating_sub(1) / self.width >= SLOTS_MAX {
            let message = format!("a range has at most {SLOTS_MAX} times the width of ALIGN");
            return Err(SqlError::new(STATEMENT_TOO_COMPLEX, message));
        }
        self.has_gaps |= fill.is_some();
        let mut value = Expr::clone(operand);
        let mut error = None;
        let mut count = 0;
        let _: ControlFlow<()> = visit_expressions_mut(&mut value, |part| {
            if arguments_of(part, RANGE_OF).is_some() {
                error = Some(SqlError::new(GROUPING_ERROR, "RANGE cannot be within RANGE"));
            }
            if is_aggregate_call(part)
                && let Expr::Function(call) = part
            {
                count += 1;
                let number = self.numbered(call, range);
                match parsed_expression(&self.filled(number, fill.as_ref())) {
                    Ok(expression) => *part = Expr::Nested(Box::new(expression)),
                    Err(unreadable) => error = Some(unreadable),
                }
            }
            ControlFlow::Continue(())
        });
        match error {
            Some(error) => Err(error),
            None if count == 0 => {
                let message = format!("RANGE needs an aggregate: {operand}");
                Err(SqlError::new(GROUPING_ERROR, message))
            }
            None => Ok(value),
        }
    }

    /// The number of an aggregate, from 1.
    fn numbered(&mut self, call: &Function, range: i64) -> usize {
        let is_same = |value: &Ranged| value.range == range && value.call == *call;
        match self.values.iter().position(is_same) {
            Some(position) => position + 1,
            None => {
                self.values.push(Ranged { call: call.clone(), range });
                self.values.len()
            }
        }
    }

    /// A value with what fills it where it is NULL.
    fn filled(&mut self, number: usize, fill: Option<&Fill>) -> String {
        match fill {
            None | Some(Fill::Null) => format!("range_value{number}"),
            Some(Fill::Constant(constant)) => {
                format!("coalesce(range_value{number}, {constant})")
            }
            Some(Fill::Prev) => {
                self.with_lines.entry(number).or_insert(false);
                format!("range_before{number}")
            }
            Some(Fill::Linear) => {
                self.with_lines.insert(number, true);
                let point = |from: &str, to: &str| {
                    let (from, to) = (format!("range_{from}"), format!("range_{to}"));
                    let value = double(&format!("{from}{number}"));
                    let (start, end) = (format!("{from}_at{number}"), format!("{to}_at{number}"));
                    format!(
                        "{value} + ({} - {value}) * {} / {}",
                        double(&format!("{to}{number}")),
                        ticks_between("range_slot", &start),
                        ticks_between(&end, &start),
                    )
                };
                format!(
                    "CASE WHEN range_value{number} IS NOT NULL THEN {} \
                     WHEN range_up{number} > 0 AND range_down{number} > 0 THEN {} \
                     WHEN range_up{number} = 0 THEN {} ELSE {} END",
                    double(&format!("range_value{number}")),
                    point("before", "after"),
                    point("first", "second"),
                    point("last_but_one", "last"),
                )
            }
        }
    }

    /// The query whose FROM has the rows of the slots.
    fn query(&self, select: &Select) -> Result<String, SqlError> {
        let Some(from) = select.from.first() else { return Err(unsupported("no table")) };
        let (relation, name) = named(&from.relation)?;
        let condition = match &select.selection {
            Some(condition) => format!(" WHERE {condition}"),
            None => String::new(),
        };
        let time = quote_name(&format!("{TIME}{}", self.number));
        let rows = format!("SELECT *, {time} AS range_time FROM {relation}{condition}");
        let mut data = self.data(&self.by_slot(&rows, &name), &name);
        if self.has_gaps {
            data = self.with_gaps(&data);
        }
        if !self.with_lines.is_empty() {
            data = self.with_neighbours(&data);
        }
        Ok(format!(
            "SELECT 1 FROM (SELECT *, range_slot AS {time} FROM ({data}) AS range_lines) AS {name}"
        ))
    }

    /// Each row with the slots that it is in.
    fn by_slot(&self, rows: &str, name: &str) -> String {
        let width = microseconds(self.width);
        let origin = self.origin.as_ref().map_or_else(String::new, |origin| format!(", {origin}"));
        let slot = format!("date_bin({width}, range_time{origin})");
        let steps = (self.longest() - 1) / self.width;
        if steps == 0 {
            return format!("SELECT *, {slot} AS range_slot FROM ({rows}) AS {name}");
        }
        format!(
            "SELECT *, range_bin - range_step * {width} AS range_slot \
             FROM (SELECT *, {slot} AS range_bin FROM ({rows}) AS {name}) AS {name} \
             CROSS JOIN generate_series(0, {steps}) AS range_steps(range_step)"
        )
    }

    /// The longest range in microseconds.
    fn longest(&self) -> i64 {
        self.values.iter().map(|value| value.range).max().unwrap_or(self.width)
    }

    /// The aggregates by slot and key.
    fn data(&self, rows: &str, name: &str) -> String {
        let longest = self.longest();
        let within = |range: i64| format!("range_time < range_slot + {}", microseconds(range));
        let mut items = vec!["range_slot".to_owned()];
        let mut groups = items.clone();
        match &self.keys {
            None => {
                items.push(self.table_keys());
                groups.push(self.table_keys());
            }
            Some(keys) => {
                let item = |key: &Key| format!("{} AS {}", key.text, quote_name(&key.name));
                items.extend(keys.iter().map(item));
                groups.extend(keys.iter().map(|key| key.text.clone()));
            }
        }
        for (position, value) in self.values.iter().enumerate() {
            let mut text = value.call.to_string();
            if value.range < longest {
                let mut call = value.call.clone();
                let within = within(value.range);
                let filter = match call.filter.take() {
                    Some(filter) => format!("({filter}) AND {within}"),
                    None => within.clone(),
                };
                // Without rows in its own range a count is NULL too.
                text = format!(
                    "CASE WHEN count(*) FILTER (WHERE {within}) > 0 THEN {call} FILTER (WHERE {filter}) END"
                );
            }
            items.push(format!("{text} AS range_value{}", position + 1));
        }
        let condition = match longest % self.width {
            0 => String::new(),
            _ => format!(" WHERE {}", within(longest)),
        };
        format!(
            "SELECT {} FROM ({rows}) AS {name}{condition} GROUP BY {}",
            items.join(", "),
            groups.join(", ")
        )
    }

    /// The name that stands for the keys of the table.
    fn table_keys(&self) -> String {
        quote_name(&format!("{KEYS}{}", self.number))
    }

    /// The output columns by which rows are grouped, in the order of BY.
    fn key_names(&self) -> Vec<String> {
        match &self.keys {
            None => vec![self.table_keys()],
            Some(keys) => keys.iter().map(|key| quote_name(&key.name)).collect(),
        }
    }

    /// A window over the slots of a key, and of what else is listed.
    fn window(&self, also: Option<String>, order: &str) -> String {
        let mut keys = self.key_names();
        keys.extend(also);
        let order = order.trim_start();
        match keys.is_empty() {
            true => format!("OVER ({order})"),
            false => format!("OVER (PARTITION BY {} {order})", keys.join(", ")),
        }
    }

    /// The rows with those of the slots between them.
    fn with_gaps(&self, data: &str) -> String {
        let width = microseconds(self.width);
        let numbers = 1..=self.values.len();
        let mut columns = self.key_names();
        columns.extend(numbers.clone().map(|number| format!("range_value{number}")));
        let columns = columns.join(", ");
        let mut items = self.key_names();
        items.extend(numbers.map(|number| {
            format!("CASE WHEN range_gap = 0 THEN range_value{number} END AS range_value{number}")
        }));
        let steps = format!(
            "({} - {}) / {}",
            ticks("range_next"),
            ticks("range_slot"),
            self.width.saturating_mul(MICROSECOND_NS)
        );
        let next = format!("lead(range_slot) {}", self.window(None, "ORDER BY range_slot"));
        format!(
            "SELECT range_first + range_gap * {width} AS range_slot, {} FROM \
             (SELECT range_slot AS range_first, {columns}, generate_series(0, \
             CASE WHEN range_next IS NULL THEN 0 ELSE {steps} - 1 END) AS range_gap FROM \
             (SELECT range_slot, {columns}, {next} AS range_next FROM ({data}) AS range_data) \
             AS range_rows) AS range_filled",
            items.join(", ")
        )
    }

    /// The rows with the values that are around those that are NULL.
    fn with_neighbours(&self, data: &str) -> String {
        let (upwards, downwards) = ("ORDER BY range_slot", "ORDER BY range_slot DESC");
        let mut counts = Vec::new();
        let mut items = Vec::new();
        for (number, is_line) in &self.with_lines {
            let count =
                |order: &str| format!("count(range_value{number}) {}", self.window(None, order));
            counts.push(format!("{} AS range_up{number}", count(upwards)));
            let value = format!("range_value{number}");
            // Behind a value that is there, the same one counts up to the next.
            let mut nearest = |counted: &str, order: &str, name: &str| {
                let window = self.window(Some(format!("range_{counted}{number}")), order);
                items.push(format!("first_value({value}) {window} AS range_{name}{number}"));
                if *is_line {
                    let moment = format!("first_value(range_slot) {window}");
                    items.push(format!("{moment} AS range_{name}_at{number}"));
                }
            };
            nearest("up", upwards, "before");
            if !is_line {
                continue;
            }
            nearest("down", downwards, "after");
            counts.push(format!("{} AS range_down{number}", count(downwards)));
            let all = self.window(None, "");
            for (name, counted, nth, chosen) in [
                ("first", "up", 1, "min"),
                ("second", "up", 2, "min"),
                ("last", "down", 1, "max"),
                ("last_but_one", "down", 2, "max"),
            ] {
                let when = format!("CASE WHEN range_{counted}{number} = {nth} THEN");
                items.push(format!("max({when} {value} END) {all} AS range_{name}{number}"));
                items.push(format!(
                    "{chosen}({when} range_slot END) {all} AS range_{name}_at{number}"
                ));
            }
        }
        format!(
            "SELECT *, {} FROM (SELECT *, {} FROM ({data}) AS range_data) AS range_counted",
            items.join(", "),
            counts.join(", ")
        )
    }
}

/// Replaces aggregates with RANGE, and keys that are no columns.
struct Outer<'a> {
    aligned: &'a mut Aligned,
    is_new: bool,
}

impl VisitorMut for Outer<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let mut keys = self.aligned.keys.iter().flatten();
        let key = keys.find(|key| !key.is_column && key.text == expr.to_string());
        if let Some(key) = key {
            *expr = Expr::Identifier(Ident::with_quote('"', key.name.as_str()));
            self.is_new = true;
            return ControlFlow::Continue(());
        }
        let Some(arguments) = arguments_of(expr, RANGE_OF) else {
            return ControlFlow::Continue(());
        };
        match self.aligned.value(&arguments) {
            Ok(value) => *expr = value,
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        self.is_new = true;
        ControlFlow::Continue(())
    }
}

/// The keys that BY lists; constants make no groups.
fn keys_of(expressions: &[&Expr]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for expr in expressions {
        let column = match expr {
            Expr::Value(_) => continue,
            Expr::Identifier(name) => Some(folded(name)),
            Expr::CompoundIdentifier(path) => path.last().map(folded),
            _ => None,
        };
        let is_column = column.is_some();
        let name = column.unwrap_or_else(|| format!("range_key{}", keys.len() + 1));
        if !keys.iter().any(|key| key.name == name) {
            keys.push(Key { text: expr.to_string(), name, is_column });
        }
    }
    keys
}

/// An item of FROM as it is written, with a name, and this name.
fn named(relation: &TableFactor) -> Result<(String, String), SqlError> {
    let name = match relation {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => folded(&alias.name),
        TableFactor::Table { name, alias: None, args: None, .. } => {
            name.0.last().and_then(ObjectNamePart::as_ident).map(folded).unwrap_or_default()
        }
        TableFactor::Derived { alias: None, .. } => {
            return Ok((format!("{relation} AS range_rows"), "range_rows".to_owned()));
        }
        _ => return Err(unsupported("this item of FROM").with_hint("put it into a subquery")),
    };
    Ok((relation.to_string(), quote_name(&name)))
}

/// An expression with the operands of RANGE in place of these.
fn without_range(expr: &Expr) -> Expr {
    let mut plain = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut plain, |part| {
        let operand = arguments_of(part, RANGE_OF)
            .and_then(|arguments| arguments.first().map(|operand| Expr::clone(operand)));
        if let Some(operand) = operand {
            *part = operand;
        }
        ControlFlow::Continue(())
    });
    plain
}

/// The arguments of a call that stands for one of the words.
fn arguments_of<'a>(expr: &'a Expr, name: &str) -> Option<Vec<&'a Expr>> {
    let Expr::Function(function) = expr else { return None };
    let [part] = function.name.0.as_slice() else { return None };
    let is_named = part.as_ident().is_some_and(|part| part.value == name);
    let FunctionArguments::List(list) = &function.args else { return None };
    let plain = |argument: &'a FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    };
    if is_named { list.args.iter().map(plain).collect() } else { None }
}

/// A width in microseconds.
fn width_of(width: &Expr, of: &str) -> Result<i64, SqlError> {
    let nanoseconds = text_of(width)
        .and_then(|text| interval_text::parse(&text))
        .filter(|interval| interval.months == 0)
        .and_then(|interval| {
            i64::from(interval.days).checked_mul(DAY_NS)?.checked_add(interval.nanoseconds)
        });
    let microseconds = nanoseconds.map(|nanoseconds| nanoseconds / MICROSECOND_NS);
    match microseconds {
        Some(width) if width > 0 && width % MILLISECOND_US == 0 => Ok(width),
        _ => {
            let message = format!(
                "{of} takes a constant time of whole milliseconds, without months, and not {width}"
            );
            Err(SqlError::new(INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// The text of an interval.
fn text_of(width: &Expr) -> Option<String> {
    match width {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => text_of(inner),
        Expr::Interval(interval) => {
            let text = text_of(&interval.value)?;
            match &interval.leading_field {
                Some(unit) => Some(format!("{text} {unit}")),
                None => Some(text),
            }
        }
        Expr::TypedString(typed) => text_of(&Expr::Value(typed.value.clone())),
        _ => None,
    }
}

fn microseconds(width: i64) -> String {
    format!("INTERVAL {}", quote_string(&format!("{width} microseconds")))
}

/// Nanoseconds of a time.
fn ticks(time: &str) -> String {
    format!("arrow_cast(arrow_cast({time}, 'Timestamp(Nanosecond, None)'), 'Int64')")
}

/// Nanoseconds between two times, as a double.
fn ticks_between(later: &str, earlier: &str) -> String {
    double(&format!("{} - {}", ticks(later), ticks(earlier)))
}

fn double(value: &str) -> String {
    format!("CAST({value} AS DOUBLE PRECISION)")
}

fn quote_name(name: &str) -> String {
    quote(name).into_owned()
}

fn unsupported(feature: &str) -> SqlError {
    SqlError::unsupported(format!("{feature} beside ALIGN"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::sql::sqlparser::ast::TableFactor;

    use super::{TimeAndKeys, resolve, sources};
    use crate::{Statement, parse};

    /// A query over a table with the time `ts` and the key `host`, as the planner gets it.
    fn written(sql: &str) -> String {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        let mut statement = query.statement;
        let columns = || TimeAndKeys { time: "ts".to_owned(), keys: vec!["host".to_owned()] };
        let columns: HashMap<String, TimeAndKeys> =
            sources(&statement).into_iter().map(|source| (source.number, columns())).collect();
        assert!(!columns.is_empty(), "{sql}");
        resolve(&mut statement, &columns);
        statement.to_string()
    }

    #[test]
    fn a_range_as_wide_as_the_slots_is_a_bin() {
        let sql =
            written("SELECT ts, host, max(v) RANGE '5s' FROM t WHERE v > 0 ALIGN '5s' ORDER BY ts");
        for part in [
            "SELECT ts, host, (range_value1) AS \"max\" FROM (SELECT *, range_slot AS \"ts\" FROM (",
            "SELECT range_slot, \"host\", max(v) AS range_value1 FROM (",
            "SELECT *, \"ts\" AS range_time FROM t WHERE v > 0) AS t",
            "GROUP BY range_slot, \"host\"",
            "AS t ORDER BY ts",
        ] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
        for part in ["generate_series", "range_time <", "OVER", "range.", "WHERE range"] {
            assert!(!sql.contains(part), "{part}: {sql}");
        }
    }

    #[test]
    fn rows_are_in_each_slot_whose_range_they_are_in() {
        // Four slots: 0, 10, 20 and 30 seconds before the row's own, the last one only for rows of its first five seconds.
        let sql = written(
            "SELECT ts, min(v) RANGE '35s' + count(*) RANGE '10s' AS x FROM db.t AS u ALIGN '10s' TO NOW BY (u.zone, length(host))",
        );
        for part in [
            "CROSS JOIN generate_series(0, 3) AS range_steps",
            "range_bin - range_step * INTERVAL",
            "SELECT range_slot, u.zone AS zone, length(host) AS range_key2, min(v) AS range_value1",
            "THEN count(*) FILTER (WHERE range_time < range_slot + INTERVAL",
            "GROUP BY range_slot, u.zone, length(host)",
            "CAST(now() AS TIMESTAMP(9))",
            "FROM db.t AS u) AS u",
        ] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
        let whole = written("SELECT max(v) RANGE '30s' FROM t ALIGN '10s' BY ()");
        assert!(whole.contains("generate_series(0, 2)"), "{whole}");
        assert!(
            !whole.contains("range_time <") && whole.contains("GROUP BY range_slot)"),
            "{whole}"
        );
    }

    #[test]
    fn gaps_are_filled_as_each_aggregate_says() {
        let sql = written(
            "SELECT ts, sum(v) RANGE '5s' FILL PREV, avg(v) RANGE '5s' FILL LINEAR, max(v) RANGE '5s' FROM t ALIGN '5s' FILL 0",
        );
        for part in [
            "(range_before1) AS sum",
            "(coalesce(range_value3, 0)) AS \"max\"",
            "lead(range_slot) OVER (PARTITION BY \"host\" ORDER BY range_slot)",
            "first_value(range_value1) OVER (PARTITION BY \"host\", range_up1 ORDER BY range_slot)",
            "CASE WHEN range_gap = 0 THEN range_value2 END AS range_value2",
            "AS range_last_but_one_at2",
        ] {
            assert!(sql.replace("\"sum\"", "sum").contains(part), "{part}: {sql}");
        }
        assert!(!sql.contains("range_up3") && !sql.contains("range_down1"), "{sql}");
    }

    #[test]
    fn subqueries_are_aligned_too() {
        let sql = "WITH a AS (SELECT ts, host, avg(v) RANGE '2s' AS v FROM t ALIGN '2s' FILL PREV) \
                   SELECT a.ts, b, min(a.v) FROM a JOIN (SELECT ts, host AS b, max(v) RANGE '4s' FROM u ALIGN '2s') AS x ON a.ts = x.ts GROUP BY 1, 2";
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!() };
        let list = sources(&query.statement);
        let relations: Vec<String> =
            list.iter().map(|source| source.relation.to_string()).collect();
        assert_eq!(relations, ["t", "u"]);
        assert!(list.iter().all(|source| source.needs_keys));
        assert!(list.iter().all(|source| matches!(source.relation, TableFactor::Table { .. })));
        assert_ne!(list[0].number, list[1].number);
        let explained = parse("EXPLAIN SELECT max(v) RANGE '4s' FROM u ALIGN '2s' BY ()").unwrap();
        let Some(Statement::Explain(explain)) = explained.into_iter().next() else { panic!() };
        let Statement::Query(query) = explain.statement.as_ref() else { panic!() };
        let list = sources(&explain.planned(query));
        assert!(list.len() == 1 && !list[0].needs_keys);
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for (sql, sqlstate) in [
            ("SELECT min(v) RANGE 'soon' FROM t ALIGN '5s'", "22023"),
            ("SELECT min(v) RANGE '5s' FROM t ALIGN '1 month'", "22023"),
            ("SELECT min(v) RANGE '5s' FROM t ALIGN '0s'", "22023"),
            ("SELECT min(v) RANGE '5s' FROM t ALIGN '5s' TO later", "22023"),
            ("SELECT min(v) FROM t ALIGN '5s'", "42803"),
            ("SELECT min(v) RANGE '10s', max(v) FROM t ALIGN '5s'", "42803"),
            ("SELECT ts FROM t ALIGN '5s'", "42601"),
            ("SELECT min(v) * 2 RANGE '10s' FROM t ALIGN '5s'", "42601"),
            ("SELECT min(v) RANGE '5s' FROM t", "42601"),
            ("SELECT round(v) RANGE '5s' FROM t ALIGN '5s'", "42803"),
            ("SELECT min(max(v) RANGE '20s') RANGE '20s' FROM t ALIGN '10s'", "42803"),
            ("SELECT *, min(v) RANGE '5s' FROM t ALIGN '5s'", "0A000"),
            ("SELECT min(v) RANGE '5s' FROM t JOIN u ON t.k = u.k ALIGN '5s'", "0A000"),
            ("SELECT min(v) RANGE '5s' FROM t ALIGN '5s' HAVING min(v) > 0", "0A000"),
            ("SELECT min(v) RANGE '2 days' FROM t ALIGN '1ms'", "54001"),
        ] {
            assert_eq!(parse(sql).unwrap_err().sqlstate, sqlstate, "{sql}");
        }
        // The words are names elsewhere.
        assert!(parse("SELECT align, 'align' AS x FROM t AS align").is_ok());
        assert_eq!(parse("SELECT align FROM t WHERE").unwrap_err().sqlstate, "42601");
    }
}
