//! ALTER TABLE ... SPLIT and MERGE: parsing them, and finding the partitions that they name.
//!
//! ```text
//! SPLIT PARTITION id [AT (key)]             one partition, in its middle or at a key
//! SPLIT AT ((key), ..)                      whichever partitions hold these keys
//! SPLIT PARTITION (expr) INTO (expr, ..)    GreptimeDB's form, for ranges of the first key column
//! MERGE PARTITIONS (id, id)                 two neighbours
//! MERGE PARTITION (expr, expr)              GreptimeDB's form, for such ranges and for rules
//!
//! key = [BUCKET n, | RULE n,] value, ..     values of the first key columns; AFTER (key): the key directly above
//! ```
//!
//! Without BUCKET or RULE, the key of a table that is placed by hash or rules begins with the placement, as in CREATE
//! TABLE's SPLIT AT and in SHOW PARTITIONS.
//!
//! Invariant: every step is resolved against the partition map at the time of its turn, because each split changes the
//! partition that the next one is in.

use bytes::Bytes;
use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::catalog::Table;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::route::Route;
use partita_proto::rule::{Comparison, Rule};
use partita_proto::service::AdminOrder;

use super::bound_words::CutTuple;
use super::new_table::bound;
use super::rule::rule;
use super::statement::TableName;
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// ALTER TABLE ... SPLIT or MERGE.
#[derive(Clone, Debug)]
pub struct Repartition {
    /// The table that is split or merged.
    pub table: TableName,
    /// No error when it does not exist.
    pub if_exists: bool,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    /// SPLIT PARTITION id [AT (key)].
    SplitPartition(PartitionId, Option<CutKey>),
    /// SPLIT AT ((key), ..).
    SplitAt(Vec<CutKey>),
    /// SPLIT PARTITION (expr) INTO (expr, ..).
    SplitInto(Box<Expr>, Vec<Expr>),
    /// MERGE PARTITIONS (id, id).
    Merge(PartitionId, PartitionId),
    /// MERGE PARTITION (expr, expr).
    MergeOf(Box<Expr>, Box<Expr>),
}

/// A key to split at, as written.
#[derive(Clone, Debug)]
struct CutKey {
    placed: Option<Placed>,
    tuple: CutTuple,
}

#[derive(Clone, Copy, Debug)]
enum Placed {
    Bucket(u16),
    Rule(u16),
}

/// One split or merge.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Splits the partition that holds the key (which must be this one, if it is named).
    Cut(Bound, Option<PartitionId>),
    /// Splits a partition in its middle, if it still has this epoch.
    Halve(PartitionId, Epoch),
    /// Merges two neighbours.
    Merge(PartitionId, PartitionId),
}

impl Tokens<'_> {
    /// Takes what follows ALTER TABLE if it is a SPLIT or a MERGE, and nothing otherwise.
    pub(super) fn repartition(&mut self) -> Result<Option<Repartition>, SqlError> {
        // ALTER TABLE [IF EXISTS] [ONLY] [database.]table {SPLIT | MERGE}: the number of tokens before the word.
        let mut ahead = usize::from(self.at("if")) * 2;
        ahead += usize::from(self.at_nth(ahead, "only"));
        ahead += 1;
        while matches!(self.peek_nth(ahead).token, Token::Period) {
            ahead += 2;
        }
        if !self.at_nth(ahead, "split") && !self.at_nth(ahead, "merge") {
            return Ok(None);
        }
        let if_exists = self.if_exists();
        self.take(&["only"]);
        let table = self.table_name()?;
        let change = if self.take(&["split", "at"]) {
            let keys = self.list(Self::cut_key)?;
            if keys.is_empty() {
                return Err(self.located(SqlError::syntax("SPLIT AT requires at least one key")));
            }
            Change::SplitAt(keys)
        } else if self.take(&["split", "partition"]) {
            self.split_partition()?
        } else if self.take(&["merge", "partitions"]) {
            self.merge_partitions()?
        } else if self.take(&["merge", "partition"]) {
            let position = self.position();
            let mut parts = self.list(Self::expression)?;
            match (parts.pop(), parts.pop(), parts.is_empty()) {
                (Some(second), Some(first), true) => {
                    Change::MergeOf(Box::new(first), Box::new(second))
                }
                _ => return Err(two_at_a_time().with_position(position)),
            }
        } else if self.take(&["split"]) {
            return Err(self.unexpected("PARTITION or AT"));
        } else {
            self.expect("merge")?;
            return Err(self.unexpected("PARTITIONS (id, id)"));
        };
        self.expect_end()?;
        Ok(Some(Repartition { table, if_exists, change }))
    }

    fn split_partition(&mut self) -> Result<Change, SqlError> {
        if matches!(self.peek().token, Token::LParen) {
            let position = self.position();
            let mut parts = self.list(Self::expression)?;
            if self.at("on") {
                return Err(self.unsupported("SPLIT PARTITION ... ON COLUMNS"));
            }
            self.expect("into")?;
            let parts_after = self.list(Self::expression)?;
            return match (parts.pop(), parts.is_empty()) {
                (Some(whole), true) if parts_after.len() > 1 => {
                    Ok(Change::SplitInto(Box::new(whole), parts_after))
                }
                _ => Err(SqlError::syntax(
                    "SPLIT PARTITION takes one expression, and INTO two or more",
                )
                .with_position(position)),
            };
        }
        let id = PartitionId(self.unsigned("a partition's number, or its expression")?);
        let key = if self.take(&["at"]) { Some(self.cut_key()?) } else { None };
        Ok(Change::SplitPartition(id, key))
    }

    fn merge_partitions(&mut self) -> Result<Change, SqlError> {
        let position = self.position();
        let ids = if matches!(self.peek().token, Token::LParen) {
            self.list(|tokens| tokens.unsigned("a partition's number"))?
        } else {
            let mut ids = vec![self.unsigned("a partition's number")?];
            while self.take_mark(&Token::Comma) {
                ids.push(self.unsigned("a partition's number")?);
            }
            ids
        };
        match ids.as_slice() {
            [a, b] => Ok(Change::Merge(PartitionId(*a), PartitionId(*b))),
            _ => Err(two_at_a_time().with_position(position)),
        }
    }

    /// Takes `(value, ..)`, `(BUCKET 3, value, ..)`, or one value, perhaps after AFTER.
    fn cut_key(&mut self) -> Result<CutKey, SqlError> {
        let position = self.position();
        let is_after = self.take_after();
        if !matches!(self.peek().token, Token::LParen) {
            let tuple = CutTuple { values: vec![self.expression()?], is_after };
            return Ok(CutKey { placed: None, tuple });
        }
        let mut placed = None;
        let mut first = true;
        let values = self.list(|tokens| {
            let number = matches!(tokens.peek_nth(1).token, Token::Number(..));
            if std::mem::take(&mut first) && number && (tokens.at("bucket") || tokens.at("rule")) {
                let rule = tokens.at("rule");
                tokens.next();
                let number = tokens.unsigned("a number")?;
                let number = u16::try_from(number).map_err(|_| {
                    tokens.located(SqlError::new("42P16", "a placement must be less than 65536"))
                })?;
                placed = Some(if rule { Placed::Rule(number) } else { Placed::Bucket(number) });
                return Ok(None);
            }
            tokens.expression().map(Some)
        })?;
        let values: Vec<Expr> = values.into_iter().flatten().collect();
        if values.is_empty() && placed.is_none() {
            return Err(
                SqlError::syntax("a key to split at must not be empty").with_position(position)
            );
        }
        Ok(CutKey { placed, tuple: CutTuple { values, is_after } })
    }
}

fn two_at_a_time() -> SqlError {
    SqlError::syntax("exactly two partitions can be merged at a time")
}

impl Repartition {
    /// The steps, in order. Nothing has been done when this fails.
    ///
    /// # Errors
    /// When a key does not fit the table's key, or there is no such partition.
    pub fn steps(&self, table: &Table) -> Result<Vec<Step>, SqlError> {
        match &self.change {
            Change::SplitPartition(id, key) => {
                let route = route_of(table, *id)?;
                Ok(vec![match key {
                    Some(key) => Step::Cut(key.bound(table)?, Some(*id)),
                    None => Step::Halve(*id, route.epoch),
                }])
            }
            Change::SplitAt(keys) => {
                keys.iter().map(|key| Ok(Step::Cut(key.bound(table)?, None))).collect()
            }
            Change::SplitInto(whole, parts) => split_into(table, whole, parts),
            Change::Merge(a, b) => Ok(vec![neighbours(table, *a, *b)?]),
            Change::MergeOf(first, second) => {
                let a = partition_of(table, first)?;
                let b = partition_of(table, second)?;
                Ok(vec![neighbours(table, a, b)?])
            }
        }
    }
}

impl Step {
    /// The order for meta; `None` when there is nothing left to do.
    ///
    /// # Errors
    /// When the key is outside of the partition that was named.
    pub fn order(&self, table: &Table) -> Result<Option<AdminOrder>, SqlError> {
        match self {
            // A boundary that exists is not split again.
            Self::Cut(bound, expected) => {
                let codec = KeyCodec::new(&table.schema, &table.placement)?;
                let key = codec.encode_bound(bound)?;
                let route = table.partitions.find(&key);
                if route.keys.start == key {
                    return Ok(None);
                }
                if let Some(expected) = expected.filter(|expected| *expected != route.partition) {
                    return Err(SqlError::new(
                        INVALID_PARAMETER_VALUE,
                        format!(
                            "{bound} is in partition {}, not in partition {expected}",
                            route.partition
                        ),
                    ));
                }
                Ok(Some(AdminOrder::SplitPartition {
                    partition: route.partition,
                    at: Some(bound.clone()),
                }))
            }
            // Another epoch means that the partition was split or merged since.
            Self::Halve(partition, epoch) => Ok(table
                .partitions
                .route(*partition)
                .filter(|route| route.epoch == *epoch)
                .map(|_| AdminOrder::SplitPartition { partition: *partition, at: None })),
            // A right neighbour that is gone was merged.
            Self::Merge(left, right) => Ok(table
                .partitions
                .route(*right)
                .map(|_| AdminOrder::MergePartitions { left: *left, right: *right })),
        }
    }
}

impl CutKey {
    fn bound(&self, table: &Table) -> Result<Bound, SqlError> {
        let key: Vec<_> = table.schema.key_columns().collect();
        let bound_of_key = match (self.placed, &table.placement) {
            (None, placement) => bound(&self.tuple, &key, placement)?,
            (Some(Placed::Bucket(number)), Placement::Hash { .. })
            | (Some(Placed::Rule(number)), Placement::Rules { .. }) => {
                Bound { placement: Some(number), ..bound(&self.tuple, &key, &Placement::Range)? }
            }
            (Some(placed), _) => {
                let word = if matches!(placed, Placed::Rule(_)) { "RULE" } else { "BUCKET" };
                return Err(SqlError::new(
                    "42P16",
                    format!("table \"{}\" is not partitioned by {word}", table.name),
                )
                .with_hint(
                    "use BUCKET with PARTITION BY HASH, and RULE with PARTITION ON COLUMNS",
                ));
            }
        };
        let codec = KeyCodec::new(&table.schema, &table.placement)?;
        Ok(codec.coerce_bound(&bound_of_key)?.into_owned())
    }
}

fn route_of(table: &Table, id: PartitionId) -> Result<&Route, SqlError> {
    table.partitions.route(id).ok_or_else(|| {
        SqlError::new("42704", format!("table \"{}\" has no partition {id}", table.name))
            .with_hint("SHOW PARTITIONS lists them")
    })
}

/// The merge of two partitions, the one with lower keys first.
fn neighbours(table: &Table, a: PartitionId, b: PartitionId) -> Result<Step, SqlError> {
    let (a, b) = (route_of(table, a)?, route_of(table, b)?);
    let (left, right) = if a.keys.start <= b.keys.start { (a, b) } else { (b, a) };
    if left.partition == right.partition || left.keys.end.as_ref() != Some(&right.keys.start) {
        return Err(SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("partitions {} and {} are not neighbours", a.partition, b.partition),
        )
        .with_hint("SHOW PARTITIONS lists them in order"));
    }
    Ok(Step::Merge(left.partition, right.partition))
}

/// The splits between the parts that INTO lists, which must tile one partition.
fn split_into(
    table: &Table,
    whole_expr: &Expr,
    part_exprs: &[Expr],
) -> Result<Vec<Step>, SqlError> {
    if !matches!(table.placement, Placement::Range) {
        return Err(SqlError::unsupported(format!(
            "SPLIT PARTITION ({whole_expr}) INTO on a table that is not placed by range"
        ))
        .with_hint("split it by key: ALTER TABLE .. SPLIT PARTITION id AT (RULE n, value, ..)"));
    }
    let whole = interval(table, whole_expr)?;
    let route = exact(table, &whole, whole_expr)?;
    let mut parts =
        part_exprs.iter().map(|part| interval(table, part)).collect::<Result<Vec<_>, _>>()?;
    parts.sort_by(|a, b| a.start.cmp(&b.start));
    let tiles = parts.first().map(|part| &part.start) == Some(&route.keys.start)
        && parts.last().map(|part| &part.end) == Some(&route.keys.end)
        && parts.windows(2).all(|pair| pair[0].end.as_ref() == Some(&pair[1].start));
    if !tiles {
        return Err(SqlError::new(
            "42P16",
            format!("the parts of INTO do not cover `{whole_expr}` without gap or overlap"),
        ));
    }
    Ok(parts.into_iter().skip(1).map(|part| Step::Cut(part.bound, None)).collect())
}

/// The one partition that holds exactly the rows of an expression.
fn partition_of(table: &Table, expression: &Expr) -> Result<PartitionId, SqlError> {
    match &table.placement {
        // A range is an interval of the first key column.
        Placement::Range => {
            let keys = interval(table, expression)?;
            Ok(exact(table, &keys, expression)?.partition)
        }
        // A rule is one of the table's, and its partition must not have been split.
        Placement::Rules { columns, rules } => {
            let names = columns.iter().filter_map(|id| table.schema.column_by_id(*id));
            let names: Vec<_> = names.map(|column| column.name.clone()).collect();
            let wanted_rule = rule(expression, &table.schema, &names)?;
            let position = rules.iter().position(|rule| *rule == wanted_rule);
            let number = position
                .and_then(|position| u16::try_from(position).ok())
                .ok_or_else(|| unknown(expression))?;
            let codec = KeyCodec::new(&table.schema, &table.placement)?;
            let start = codec.encode_bound(&Bound::placed(number))?;
            let last = usize::from(number) + 1 == rules.len();
            let end = match number.checked_add(1) {
                Some(next) if !last => Some(codec.encode_bound(&Bound::placed(next))?),
                _ => None,
            };
            let route = table.partitions.find(&start);
            let begins = route.keys.start == start || (number == 0 && route.keys.start.is_empty());
            if begins && route.keys.end == end {
                Ok(route.partition)
            } else {
                Err(unknown(expression))
            }
        }
        // The keys of one bucket have no expression.
        Placement::Hash { .. } => Err(SqlError::unsupported(format!(
            "naming a partition by `{expression}` in a table placed by hash"
        ))
        .with_hint("name partitions by their numbers: MERGE PARTITIONS (id, id)")),
    }
}

/// Keys between two values of the first key column.
struct Interval {
    bound: Bound,
    start: Bytes,
    end: Option<Bytes>,
}

/// The interval of the first key column that `column >= low AND column < high` stands for; one of the bounds may be
/// missing.
fn interval(table: &Table, expression: &Expr) -> Result<Interval, SqlError> {
    let refuse = || {
        SqlError::unsupported(format!("`{expression}` as a range of the first key column"))
            .with_hint("write column >= low AND column < high, or cut with SPLIT AT ((value), ..)")
    };
    // One comparison, or several joined by AND.
    let Some(first) = table.schema.key_columns().next() else { return Err(refuse()) };
    let members = match rule(expression, &table.schema, std::slice::from_ref(&first.name))? {
        Rule::And(members) => members,
        comparison @ Rule::Compare { .. } => vec![comparison],
        Rule::Or(_) => return Err(refuse()),
    };
    // Each bound may occur once, the lower inclusive, the upper exclusive.
    let (mut low, mut high) = (None, None);
    for member in members {
        let Rule::Compare { comparison, value, .. } = member else { return Err(refuse()) };
        let side = match comparison {
            Comparison::GreaterOrEqual => &mut low,
            Comparison::Less => &mut high,
            _ => return Err(refuse()),
        };
        if side.replace(value).is_some() {
            return Err(refuse());
        }
    }
    // The same interval in encoded keys.
    let codec = KeyCodec::new(&table.schema, &table.placement)?;
    let bound = |value| Bound { placement: None, key: Vec::from_iter(value) };
    let start = bound(low);
    let end = match high {
        Some(value) => Some(codec.encode_bound(&bound(Some(value)))?),
        None => None,
    };
    Ok(Interval { start: codec.encode_bound(&start)?, end, bound: start })
}

fn exact<'t>(table: &'t Table, keys: &Interval, expression: &Expr) -> Result<&'t Route, SqlError> {
    let route = table.partitions.find(&keys.start);
    if route.keys.start == keys.start && route.keys.end == keys.end {
        return Ok(route);
    }
    Err(unknown(expression))
}

fn unknown(expression: &Expr) -> SqlError {
    SqlError::new("42704", format!("no partition holds exactly the rows of `{expression}`"))
        .with_hint("SHOW PARTITIONS lists them; they can be named by their numbers")
}
