//! Compares columns exactly with literals that the column's type cannot hold.
//!
//! Both sides of a comparison are coerced to one type that holds either: `ts < '2024-01-01 00:00:00.1239'` compares
//! nanoseconds even if `ts` is a TIMESTAMP(3). A cast of the column for each row is slow and keeps the predicate from
//! the scan, so DataFusion casts the literal to the column's type instead and truncates it: `ts = ..123` is then true
//! for a row that is not equal. [`ExactComparisons`] does the same exactly, and leaves nothing for DataFusion to
//! cast: it runs before each simplification, and once after all rules.
//!
//! ```text
//!   literal   ts = literal        ts < literal, ts <= literal    ts > literal, ts >= literal
//!   .1230     ts = .123           ts < .123, ts <= .123          ts > .123, ts >= .123
//!   .1239     false, or NULL      ts <= .123                     ts > .123
//! ```
//!
//! Invariants:
//! - a comparison keeps the value that the wider type gives it, NULL included;
//! - a cast is removed only if it keeps all values of a type distinct and in order: times to finer units, integers to
//!   wider ones and to decimals, decimals to more digits.

use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit, i256};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use partita_proto::schema::Unit;

/// Compares columns with literals exactly; see the head of the file.
#[derive(Debug)]
pub(crate) struct ExactComparisons;

impl OptimizerRule for ExactComparisons {
    fn name(&self) -> &'static str {
        "exact_comparisons"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let schema = input_schema(&plan)?;
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(&schema))
            .with_config_options(config.options())
            .with_query_execution_start_time(config.query_execution_start_time())
            .build();
        let exact = Exact { schema, simplifier: ExprSimplifier::new(context) };
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expression| {
            let whole = |expression: Expr| {
                let name = names.save(&expression);
                let rewritten = expression.transform_up(|part| exact.rewrite(part))?;
                Ok(rewritten.update_data(|expression| name.restore(expression)))
            };
            // The members of a grouping set are columns of the plan, the set itself is not.
            if matches!(expression, Expr::GroupingSet(_)) {
                return expression.map_children(whole);
            }
            whole(expression)
        })
    }
}

/// Schema that the expressions of a node refer to.
fn input_schema(plan: &LogicalPlan) -> Result<DFSchemaRef> {
    if let LogicalPlan::TableScan(scan) = plan {
        // The filters of a scan may name columns outside of its projection.
        let schema =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        return Ok(Arc::new(schema));
    }
    Ok(Arc::new(merge_schema(&plan.inputs())))
}

/// Rewrites the expressions of one node.
struct Exact {
    schema: DFSchemaRef,
    simplifier: ExprSimplifier,
}

impl Exact {
    fn rewrite(&self, expression: Expr) -> Result<Transformed<Expr>> {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
                let compared = match self.compare(&left, op, &right)? {
                    None => match op.swap() {
                        Some(swapped) => self.compare(&right, swapped, &left)?,
                        None => None,
                    },
                    rewritten => rewritten,
                };
                Ok(match compared {
                    Some(exact) => Transformed::yes(exact),
                    None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
                })
            }
            Expr::Between(expression) => self.between(expression),
            Expr::InList(list) => self.in_list(list),
            expression => Ok(Transformed::no(expression)),
        }
    }

    /// `cast op literal` without the cast; `None` if the cast does not widen or the literal is not constant.
    fn compare(&self, cast: &Expr, op: Operator, literal: &Expr) -> Result<Option<Expr>> {
        let Some((operand, grid)) = self.widened(cast) else { return Ok(None) };
        let Some(literal) = self.constant(literal)? else { return Ok(None) };
        let Some(place) = grid.place(&literal) else { return Ok(None) };
        let exact = comparison(operand, op, place, &grid);
        // The operand may itself be a cast.
        Ok(Some(match &exact {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                self.compare(left, *op, right)?.unwrap_or(exact)
            }
            _ => exact,
        }))
    }

    /// `BETWEEN` as two comparisons if either bound needs rewriting.
    fn between(&self, expression: Between) -> Result<Transformed<Expr>> {
        let Between { expr, negated, low, high } = &expression;
        if self.widened(expr).is_none() {
            return Ok(Transformed::no(Expr::Between(expression)));
        }
        let (low_op, high_op) =
            if *negated { (Operator::Lt, Operator::Gt) } else { (Operator::GtEq, Operator::LtEq) };
        let (at_low, at_high) =
            (self.compare(expr, low_op, low)?, self.compare(expr, high_op, high)?);
        if at_low.is_none() && at_high.is_none() {
            return Ok(Transformed::no(Expr::Between(expression)));
        }
        let plain = |op: Operator, bound: &Expr| {
            Expr::BinaryExpr(BinaryExpr::new(expr.clone(), op, Box::new(bound.clone())))
        };
        let at_low = at_low.unwrap_or_else(|| plain(low_op, low));
        let at_high = at_high.unwrap_or_else(|| plain(high_op, high));
        Ok(Transformed::yes(if *negated { at_low.or(at_high) } else { at_low.and(at_high) }))
    }

    /// `IN` without the members that the operand cannot be equal to.
    fn in_list(&self, list: InList) -> Result<Transformed<Expr>> {
        // Only operands below a widening cast need exact members.
        let Some((operand, grid)) = self.widened(&list.expr) else {
            return Ok(Transformed::no(Expr::InList(list)));
        };
        // Keep the members that the operand can equal; members that are not constant stay as they are.
        let mut members = Vec::with_capacity(list.list.len());
        let mut literals = true;
        for member in &list.list {
            match self.constant(member)?.map(|literal| (grid.place(&literal), literal)) {
                Some((Some(Place::At(value)), _)) => members.push((grid.literal(value), member)),
                Some((Some(_), _)) => {}
                Some((None, literal)) if literal.is_null() => {
                    members.push((ScalarValue::try_from(&grid.data_type).ok(), member));
                }
                _ => {
                    literals = false;
                    members.push((None, member));
                }
            }
        }
        // No member can match, so the result depends on NULL alone.
        if members.is_empty() && !list.list.is_empty() {
            let unequal = if list.negated { always(operand) } else { never(operand) };
            return Ok(Transformed::yes(unequal));
        }
        // All members are literals: drop the cast, and try again, since the operand may be another cast.
        if literals && members.iter().all(|(value, _)| value.is_some()) {
            let values = members.into_iter().filter_map(|(value, _)| value).map(lit).collect();
            let exact = InList::new(Box::new(operand.clone()), values, list.negated);
            return Ok(Transformed::yes(self.in_list(exact)?.data));
        }
        // Otherwise keep the cast and drop the members that cannot match.
        if members.len() == list.list.len() {
            return Ok(Transformed::no(Expr::InList(list)));
        }
        let members = members.into_iter().map(|(_, member)| member.clone()).collect();
        let InList { expr, negated, .. } = list;
        Ok(Transformed::yes(Expr::InList(InList::new(expr, members, negated))))
    }

    /// The operand of a cast that keeps all values distinct, and the values that it can have.
    fn widened<'a>(&self, cast: &'a Expr) -> Option<(&'a Expr, Grid)> {
        let (operand, target) = match cast {
            Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
                (expr.as_ref(), field.data_type())
            }
            Expr::Alias(alias) => return self.widened(&alias.expr),
            _ => return None,
        };
        let operand_type = operand.get_type(self.schema.as_ref()).ok()?;
        let grid = Grid::new(&operand_type)?;
        grid.fits_into(target).then_some((operand, grid))
    }

    /// The value of an expression that names no row.
    fn constant(&self, expression: &Expr) -> Result<Option<ScalarValue>> {
        if let Expr::Literal(value, _) = expression {
            return Ok(Some(value.clone()));
        }
        // A literal that overflows the finer unit is compared in its own unit.
        if let Expr::Cast(Cast { expr, field }) = expression
            && let Expr::Literal(value, _) = expr.as_ref()
            && matches!(field.data_type(), DataType::Timestamp(..))
            && Grid::new(&value.data_type()).is_some_and(|grid| grid.fits_into(field.data_type()))
        {
            return Ok(Some(value.clone()));
        }
        if !is_constant(expression)? {
            return Ok(None);
        }
        Ok(match self.simplifier.simplify(expression.clone())? {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        })
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_constant(expression: &Expr) -> Result<bool> {
    let mut constant = !expression.is_volatile();
    expression.apply(|part| {
        constant &= matches!(
            part,
            Expr::Literal(..)
                | Expr::Alias(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::BinaryExpr(_)
                | Expr::Negative(_)
                | Expr::ScalarFunction(_)
                | Expr::Case(_)
        );
        Ok(if constant { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(constant)
}

/// False for every value, NULL for NULL.
fn never(operand: &Expr) -> Expr {
    operand.clone().is_null().and(lit(ScalarValue::Boolean(None)))
}

/// True for every value, NULL for NULL.
fn always(operand: &Expr) -> Expr {
    operand.clone().is_not_null().or(lit(ScalarValue::Boolean(None)))
}

fn comparison(operand: &Expr, op: Operator, place: Place, grid: &Grid) -> Expr {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let compare = |op: Operator, value: i256| {
        let value = lit(grid.literal(value).unwrap_or(ScalarValue::Null));
        Expr::BinaryExpr(BinaryExpr::new(Box::new(operand.clone()), op, Box::new(value)))
    };
    match (place, op) {
        (Place::At(value), op) => compare(op, value),
        (_, IsDistinctFrom) => lit(true),
        (_, IsNotDistinctFrom) => lit(false),
        (Place::After(value), Lt | LtEq) => compare(LtEq, value),
        (Place::After(value), Gt | GtEq) => compare(Gt, value),
        (_, NotEq) | (Place::Below, Gt | GtEq) | (Place::Above, Lt | LtEq) => always(operand),
        (_, Eq) | (Place::Below | Place::Above, _) | (Place::After(_), _) => never(operand),
    }
}

/// Position of a literal among the values of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Equal to this value.
    At(i256),
    /// Between this value and the next.
    After(i256),
    /// Less than all values.
    Below,
    /// Greater than all values.
    Above,
}

/// Values of a type as whole multiples of a step; `10^scale` steps make one unit.
#[derive(Debug)]
struct Grid {
    data_type: DataType,
    is_time: bool,
    scale: i8,
    low: i256,
    high: i256,
}

impl Grid {
    fn new(data_type: &DataType) -> Option<Self> {
        let grid = |scale: i8, low: i128, high: i128| Self {
            data_type: data_type.clone(),
            is_time: matches!(data_type, DataType::Timestamp(..)),
            scale,
            low: i256::from_i128(low),
            high: i256::from_i128(high),
        };
        Some(match data_type {
            DataType::Timestamp(unit, _) => grid(digits(*unit), i64::MIN.into(), i64::MAX.into()),
            DataType::Int8 => grid(0, i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => grid(0, i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => grid(0, i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => grid(0, i64::MIN.into(), i64::MAX.into()),
            DataType::UInt8 => grid(0, 0, u8::MAX.into()),
            DataType::UInt16 => grid(0, 0, u16::MAX.into()),
            DataType::UInt32 => grid(0, 0, u32::MAX.into()),
            DataType::UInt64 => grid(0, 0, u64::MAX.into()),
            DataType::Decimal128(precision, scale) => {
                let high = 10_i128.checked_pow(u32::from(*precision))?.checked_sub(1)?;
                grid(*scale, -high, high)
            }
            _ => return None,
        })
    }

    /// Returns true if a cast to `target` keeps all values distinct and in order.
    fn fits_into(&self, target: &DataType) -> bool {
        if let (DataType::Timestamp(_, own_zone), DataType::Timestamp(unit, target_zone)) =
            (&self.data_type, target)
        {
            let is_utc = |zone: &str| matches!(zone, "UTC" | "+00:00");
            // A cast between no zone and a zone other than UTC shifts times.
            let same_ticks = match (own_zone.as_deref(), target_zone.as_deref()) {
                (None, None) | (Some(_), Some(_)) => true,
                (Some(zone), None) | (None, Some(zone)) => is_utc(zone),
            };
            return same_ticks && digits(*unit) >= self.scale;
        }
        if let DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale) = target {
            // Type coercion caps the precision here where a wider type would be needed.
            // scale.
            return !self.is_time && *scale >= self.scale;
        }
        let decimal = |precision: u8, scale: i8| {
            let ten = i256::from_i128(10);
            let wider = u32::try_from(i16::from(scale) - i16::from(self.scale)).ok();
            let low = wider.and_then(|wider| ten.checked_pow(wider)?.checked_mul(self.low));
            let high = wider.and_then(|wider| ten.checked_pow(wider)?.checked_mul(self.high));
            let end = ten.checked_pow(u32::from(precision));
            low.zip(high).zip(end).is_some_and(|((low, high), end)| {
                high < end && low.checked_neg().is_some_and(|low| low < end)
            })
        };
        match target {
            _ if self.is_time => false,
            DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                decimal(*precision, *scale)
            }
            target if target.is_integer() => Self::new(target).is_some_and(|grid| {
                self.scale == 0 && grid.low <= self.low && self.high <= grid.high
            }),
            _ => false,
        }
    }

    /// Position of a literal; `None` if it is NULL or of another kind.
    fn place(&self, literal: &ScalarValue) -> Option<Place> {
        let (value, scale, is_time) = number(literal)?;
        if is_time != self.is_time {
            return None;
        }
        let ten = i256::from_i128(10);
        let finer = i16::from(scale) - i16::from(self.scale);
        let power = ten.checked_pow(u32::from(finer.unsigned_abs()))?;
        let overflow = if value < i256::ZERO { Place::Below } else { Place::Above };
        let place = if finer > 0 {
            let (quotient, rest) = (value.checked_div(power)?, value.checked_rem(power)?);
            match rest.cmp(&i256::ZERO) {
                std::cmp::Ordering::Equal => Place::At(quotient),
                std::cmp::Ordering::Greater => Place::After(quotient),
                std::cmp::Ordering::Less => Place::After(quotient.checked_sub(i256::ONE)?),
            }
        } else {
            value.checked_mul(power).map_or(overflow, Place::At)
        };
        let (Place::At(step) | Place::After(step)) = place else { return Some(place) };
        Some(if step < self.low {
            Place::Below
        } else if step > self.high || (step == self.high && place != Place::At(step)) {
            Place::Above
        } else {
            place
        })
    }

    /// The value at a step; `None` if the type cannot hold it.
    fn literal(&self, step: i256) -> Option<ScalarValue> {
        let step = step.to_i128()?;
        let ticks = || i64::try_from(step).ok();
        // Arrow has one literal per unit and width.
        Some(match &self.data_type {
            DataType::Timestamp(TimeUnit::Second, zone) => {
                ScalarValue::TimestampSecond(ticks(), zone.clone())
            }
            DataType::Timestamp(TimeUnit::Millisecond, zone) => {
                ScalarValue::TimestampMillisecond(ticks(), zone.clone())
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                ScalarValue::TimestampMicrosecond(ticks(), zone.clone())
            }
            DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                ScalarValue::TimestampNanosecond(ticks(), zone.clone())
            }
            DataType::Int8 => ScalarValue::Int8(i8::try_from(step).ok()),
            DataType::Int16 => ScalarValue::Int16(i16::try_from(step).ok()),
            DataType::Int32 => ScalarValue::Int32(i32::try_from(step).ok()),
            DataType::Int64 => ScalarValue::Int64(i64::try_from(step).ok()),
            DataType::UInt8 => ScalarValue::UInt8(u8::try_from(step).ok()),
            DataType::UInt16 => ScalarValue::UInt16(u16::try_from(step).ok()),
            DataType::UInt32 => ScalarValue::UInt32(u32::try_from(step).ok()),
            DataType::UInt64 => ScalarValue::UInt64(u64::try_from(step).ok()),
            DataType::Decimal128(precision, scale) => {
                ScalarValue::Decimal128(Some(step), *precision, *scale)
            }
            _ => return None,
        })
    }
}

/// Number of fractional digits of a second.
fn digits(unit: TimeUnit) -> i8 {
    i8::try_from(Unit::from(unit).digits()).unwrap_or(i8::MAX)
}

/// A literal as a number of steps, the scale of a step, and whether it is a time.
fn number(literal: &ScalarValue) -> Option<(i256, i8, bool)> {
    use ScalarValue::{
        Decimal128, Decimal256, Int8, Int16, Int32, Int64, TimestampMicrosecond,
        TimestampMillisecond, TimestampNanosecond, TimestampSecond, UInt8, UInt16, UInt32, UInt64,
    };
    let whole = |value: i128| (i256::from_i128(value), 0, false);
    let time = |ticks: i64, unit: TimeUnit| (i256::from_i128(ticks.into()), digits(unit), true);
    Some(match literal {
        Int8(v) => whole((*v)?.into()),
        Int16(v) => whole((*v)?.into()),
        Int32(v) => whole((*v)?.into()),
        Int64(v) => whole((*v)?.into()),
        UInt8(v) => whole((*v)?.into()),
        UInt16(v) => whole((*v)?.into()),
        UInt32(v) => whole((*v)?.into()),
        UInt64(v) => whole((*v)?.into()),
        Decimal128(v, _, scale) => (i256::from_i128((*v)?), *scale, false),
        Decimal256(v, _, scale) => ((*v)?, *scale, false),
        TimestampSecond(v, _) => time((*v)?, TimeUnit::Second),
        TimestampMillisecond(v, _) => time((*v)?, TimeUnit::Millisecond),
        TimestampMicrosecond(v, _) => time((*v)?, TimeUnit::Microsecond),
        TimestampNanosecond(v, _) => time((*v)?, TimeUnit::Nanosecond),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(of: &DataType, literal: &ScalarValue) -> Option<Place> {
        Grid::new(of)?.place(literal)
    }

    fn at(step: i128) -> Option<Place> {
        Some(Place::At(i256::from_i128(step)))
    }

    fn after(step: i128) -> Option<Place> {
        Some(Place::After(i256::from_i128(step)))
    }

    #[test]
    fn a_literal_lies_at_a_value_or_between_two() {
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        let nanos = |ticks| ScalarValue::TimestampNanosecond(Some(ticks), None);
        assert_eq!(place(&millis, &nanos(123_000_000)), at(123));
        assert_eq!(place(&millis, &nanos(123_900_000)), after(123));
        assert_eq!(place(&millis, &nanos(-1)), after(-1));
        assert_eq!(place(&millis, &nanos(-1_000_000)), at(-1));
        assert_eq!(place(&millis, &ScalarValue::TimestampNanosecond(None, None)), None);
        assert_eq!(place(&millis, &ScalarValue::Int64(Some(3))), None);

        let decimal = |value, scale| ScalarValue::Decimal128(Some(value), 38, scale);
        assert_eq!(place(&DataType::Int32, &decimal(15, 1)), after(1));
        assert_eq!(place(&DataType::Int32, &decimal(-15, 1)), after(-2));
        assert_eq!(place(&DataType::Int32, &decimal(20, 1)), at(2));
        assert_eq!(place(&DataType::UInt8, &decimal(-1, 1)), Some(Place::Below));
        assert_eq!(place(&DataType::UInt8, &decimal(2551, 1)), Some(Place::Above));
        assert_eq!(place(&DataType::UInt8, &decimal(2550, 1)), at(255));
        assert_eq!(place(&DataType::Decimal128(5, 2), &decimal(1_005, 3)), after(100));
        assert_eq!(place(&DataType::Decimal128(5, 2), &decimal(1, 0)), at(100));
        assert_eq!(place(&DataType::Decimal128(5, 2), &decimal(1_000, 0)), Some(Place::Above));
        let least = ScalarValue::Decimal128(Some(-10_i128.pow(37)), 38, -1);
        assert_eq!(place(&DataType::Decimal128(38, 38), &least), Some(Place::Below));
    }

    #[test]
    fn only_casts_that_keep_values_apart_are_taken_away() {
        let fits = |of: &DataType, to: &DataType| Grid::new(of).unwrap().fits_into(to);
        let time = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Arc::from));
        let millis = time(TimeUnit::Millisecond, None);
        assert!(fits(&millis, &time(TimeUnit::Nanosecond, None)));
        assert!(fits(&millis, &time(TimeUnit::Nanosecond, Some("+00:00"))));
        assert!(!fits(&millis, &time(TimeUnit::Nanosecond, Some("Europe/Berlin"))));
        assert!(!fits(&millis, &time(TimeUnit::Second, None)));
        assert!(!fits(&millis, &DataType::Int64));
        assert!(fits(&DataType::Int32, &DataType::Int64));
        assert!(!fits(&DataType::Int64, &DataType::Int32));
        assert!(!fits(&DataType::Int32, &DataType::UInt64));
        assert!(fits(&DataType::Int64, &DataType::Decimal128(20, 1)));
        assert!(!fits(&DataType::Int64, &DataType::Decimal128(19, 1)));
        assert!(!fits(&DataType::Int64, &DataType::Float64));
        assert!(fits(&DataType::Decimal128(38, 2), &DataType::Decimal128(38, 5)));
        assert!(!fits(&DataType::Decimal128(10, 2), &DataType::Decimal128(10, 1)));
        assert!(!fits(&DataType::Decimal128(10, 2), &DataType::Decimal128(10, 3)));
    }
}
