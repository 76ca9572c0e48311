//! Turns a predicate into domains: the values of each column that its conjunctions allow.
//!
//! Invariants:
//! - a row that satisfies the predicate is in the domains; a part that domains cannot express does not restrict any
//!   column, so the domains may be too large but never too small;
//! - domains go by storage name, and their bounds are in the column's unit.
//!
//! A predicate is satisfied if it is true; NULL is not enough. Negations are pushed down to comparisons, which are
//! not true for NULL on either side.

mod exact;
mod probe;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, Like, Operator};
use partita_proto::domain::{Domain, Domains};
use partita_proto::rule::Comparison;
use partita_proto::schema::{Column, ColumnType, TableSchema, Unit};
use partita_proto::uuid::UUID_BYTES;
use partita_proto::value::Value;

pub(crate) use self::exact::is_exact;
pub(crate) use self::probe::{classes_of, is_probed, probes_of, shown};

/// Maximum members of an IN list; of a longer list only the least and the greatest count.
const POINTS_MAX: usize = 10_000;

const SECONDS_PER_DAY: i128 = 86_400;

/// Domains of the rows that satisfy all filters.
pub(crate) fn domains_of<'a>(
    filters: impl IntoIterator<Item = &'a Expr>,
    schema: &TableSchema,
) -> Domains {
    let mut domains = Domains::default();
    for filter in filters {
        restrict(&mut domains, &when(filter, true, schema));
    }
    domains
}

/// Returns true if a filter names only the table's columns and restricts a domain.
pub(crate) fn is_expressible(filter: &Expr, schema: &TableSchema) -> bool {
    !when(filter, true, schema).is_all() && !has_subquery(filter)
}

fn has_subquery(filter: &Expr) -> bool {
    let mut has_any = false;
    let visited = filter.apply(|expr| {
        has_any |= matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
        );
        Ok(if has_any { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    has_any || visited.is_err()
}

fn restrict(domains: &mut Domains, restriction: &Domains) {
    for (column, domain) in restriction.iter() {
        domains.restrict(column, domain.clone());
    }
}

/// Domains of the rows for which `expr` is `truth`.
fn when(expr: &Expr, truth: bool, schema: &TableSchema) -> Domains {
    // Parts that domains cannot express leave every column unrestricted.
    match expr {
        Expr::Not(inner) => when(inner, !truth, schema),
        Expr::Alias(alias) => when(&alias.expr, truth, schema),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let (left, right) = (when(left, truth, schema), when(right, truth, schema));
            if truth { both(left, &right) } else { either(&left, &right) }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (left, right) = (when(left, truth, schema), when(right, truth, schema));
            if truth { either(&left, &right) } else { both(left, &right) }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            compare(left, *op, right, truth, schema).unwrap_or_default()
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let at_least = compare(expr, Operator::GtEq, low, truth != *negated, schema);
            let at_most = compare(expr, Operator::LtEq, high, truth != *negated, schema);
            let (at_least, at_most) = (at_least.unwrap_or_default(), at_most.unwrap_or_default());
            if truth == *negated { either(&at_least, &at_most) } else { both(at_least, &at_most) }
        }
        Expr::InList(list) => in_list(list, truth, schema).unwrap_or_default(),
        Expr::IsNull(inner) => null_test(inner, truth, schema),
        Expr::IsNotNull(inner) => null_test(inner, !truth, schema),
        Expr::IsTrue(inner) if truth => when(inner, true, schema),
        Expr::IsFalse(inner) if truth => when(inner, false, schema),
        Expr::Column(_) => bool_column(expr, truth, schema),
        Expr::Literal(ScalarValue::Boolean(value), _) => {
            if *value == Some(truth) {
                Domains::default()
            } else {
                nothing(schema)
            }
        }
        Expr::Like(like) if truth => starts_with(like, schema).unwrap_or_default(),
        _ => Domains::default(),
    }
}

/// Intersection of two sets of domains.
fn both(mut domains: Domains, restriction: &Domains) -> Domains {
    restrict(&mut domains, restriction);
    domains
}

/// Union of two sets of domains; a column that only one of them restricts is unrestricted.
fn either(left: &Domains, right: &Domains) -> Domains {
    if left.is_none() {
        return right.clone();
    }
    if right.is_none() {
        return left.clone();
    }
    let mut union = Domains::default();
    for (column, domain) in left.iter() {
        if let Some(right_domain) = right.get(column) {
            union.restrict(column, domain.union(right_domain));
        }
    }
    union
}

/// Domains that no row satisfies.
fn nothing(schema: &TableSchema) -> Domains {
    let mut domains = Domains::default();
    if let Some(column) = schema.columns.first() {
        domains.restrict(&column.storage_name, Domain::none());
    }
    domains
}

fn one(column: &Column, domain: Domain) -> Domains {
    let mut domains = Domains::default();
    domains.restrict(&column.storage_name, domain);
    domains
}

/// A column, possibly below casts that keep the order of its values.
struct Operand<'a> {
    column: &'a Column,
    /// Target types of the casts, innermost first.
    casts: Vec<&'a DataType>,
}

fn operand<'a>(expr: &'a Expr, schema: &'a TableSchema) -> Option<Operand<'a>> {
    match expr {
        Expr::Column(column) => {
            let column = schema.column(&column.name)?;
            Some(Operand { column, casts: Vec::new() })
        }
        Expr::Alias(alias) => operand(&alias.expr, schema),
        Expr::Cast(Cast { expr, field }) => {
            let mut inner = operand(expr, schema)?;
            inner.casts.push(field.data_type());
            Some(inner)
        }
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Alias(alias) => literal(&alias.expr),
        _ => None,
    }
}

fn compare(
    left: &Expr,
    op: Operator,
    right: &Expr,
    truth: bool,
    schema: &TableSchema,
) -> Option<Domains> {
    let (operand, op, value) = match (operand(left, schema), literal(right)) {
        (Some(operand), Some(value)) => (operand, op, value),
        _ => (operand(right, schema)?, op.swap()?, literal(left)?),
    };
    // IS [NOT] DISTINCT FROM treats NULL as a value.
    let distinct = match op {
        Operator::IsNotDistinctFrom => Some(truth),
        Operator::IsDistinctFrom => Some(!truth),
        _ => None,
    };
    if let Some(equal) = distinct {
        let value = bound(&operand, value)?.exact()?;
        let point = Domain::point(value.clone());
        let domain = match (equal, value.is_null()) {
            (true, _) => point,
            (false, true) => Domain::not_null(),
            (false, false) => point.complement_not_null().with_null(true),
        };
        return Some(one(operand.column, domain));
    }
    let op = if truth { op } else { op.negate()? };
    let comparison = comparison(op)?;
    if value.is_null() {
        return Some(nothing(schema));
    }
    let domain = bound(&operand, value)?.domain(comparison);
    Some(one(operand.column, domain))
}

fn comparison(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn in_list(list: &InList, truth: bool, schema: &TableSchema) -> Option<Domains> {
    let operand = operand(&list.expr, schema)?;
    let negated = truth == list.negated;
    let mut points = Vec::with_capacity(list.list.len());
    for member in &list.list {
        let value = literal(member)?;
        if value.is_null() {
            if negated {
                // `x NOT IN (.., NULL)` is never true.
                return Some(nothing(schema));
            }
            continue;
        }
        match bound(&operand, value)? {
            Place::At(value) => points.push(value),
            // The member equals no value of the column.
            Place::After(_) | Place::Below | Place::Above => {}
        }
    }
    if !negated && points.len() > POINTS_MAX {
        let (Some(first), Some(last)) = (points.iter().min(), points.iter().max()) else {
            return Some(nothing(schema));
        };
        let at_least = Domain::compare(Comparison::GreaterOrEqual, first.clone());
        let at_most = Domain::compare(Comparison::LessOrEqual, last.clone());
        return Some(one(operand.column, at_least.intersect(&at_most)));
    }
    if negated && points.len() > POINTS_MAX {
        return Some(one(operand.column, Domain::not_null()));
    }
    let points = Domain::points(points);
    Some(one(operand.column, if negated { points.complement_not_null() } else { points }))
}

fn null_test(expr: &Expr, is_null: bool, schema: &TableSchema) -> Domains {
    match expr {
        Expr::Column(column) => {
            schema.column(&column.name).map_or_else(Domains::default, |column| {
                one(column, if is_null { Domain::null_only() } else { Domain::not_null() })
            })
        }
        Expr::Alias(alias) => null_test(&alias.expr, is_null, schema),
        _ => Domains::default(),
    }
}

fn bool_column(expr: &Expr, truth: bool, schema: &TableSchema) -> Domains {
    match operand(expr, schema) {
        Some(Operand { column, casts })
            if casts.is_empty() && column.column_type == ColumnType::Bool =>
        {
            one(column, Domain::point(Value::Bool(truth)))
        }
        _ => Domains::default(),
    }
}

/// `x LIKE 'prefix%'`: from the prefix up to the least text after all texts with the prefix.
fn starts_with(like: &Like, schema: &TableSchema) -> Option<Domains> {
    if like.negated || like.case_insensitive || like.escape_char.is_some_and(|c| c != '\\') {
        return None;
    }
    let operand = operand(&like.expr, schema)?;
    if operand.column.column_type != ColumnType::String || !operand.casts.is_empty() {
        return None;
    }
    let pattern = text(literal(&like.pattern)?)?;
    let end = pattern.find(['%', '_', '\\']);
    let Some(end) = end else {
        return Some(one(operand.column, Domain::point(Value::String(pattern.to_owned()))));
    };
    let prefix = &pattern[..end];
    if prefix.is_empty() {
        return Some(one(operand.column, Domain::not_null()));
    }
    let mut domain = Domain::compare(Comparison::GreaterOrEqual, Value::String(prefix.to_owned()));
    if let Some(next) = after_prefix(prefix) {
        domain = domain.intersect(&Domain::compare(Comparison::Less, Value::String(next)));
    }
    Some(one(operand.column, domain))
}

/// The least text greater than every text with this prefix.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = match last {
            // Surrogates are not characters.
            '\u{D7FF}' => Some('\u{E000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// Position of a literal among the values that a column can have.
enum Place {
    /// Equal to this value.
    At(Value),
    /// Between this value and the next.
    After(Value),
    /// Less than all values.
    Below,
    /// Greater than all values.
    Above,
}

impl Place {
    fn exact(self) -> Option<Value> {
        match self {
            Self::At(value) => Some(value),
            Self::After(_) | Self::Below | Self::Above => None,
        }
    }

    /// Values for which `value comparison literal` is true.
    fn domain(self, comparison: Comparison) -> Domain {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        match (self, comparison) {
            (Self::At(value), comparison) => Domain::compare(comparison, value),
            (Self::After(_) | Self::Below | Self::Above, Equal) => Domain::none(),
            (Self::After(_) | Self::Below | Self::Above, NotEqual)
            | (Self::Below, Greater | GreaterOrEqual)
            | (Self::Above, Less | LessOrEqual) => Domain::not_null(),
            (Self::Below, Less | LessOrEqual) | (Self::Above, Greater | GreaterOrEqual) => {
                Domain::none()
            }
            (Self::After(value), Less | LessOrEqual) => Domain::compare(LessOrEqual, value),
            (Self::After(value), Greater | GreaterOrEqual) => Domain::compare(Greater, value),
        }
    }
}

/// A literal as a bound of the column below an operand's casts; `None` if a cast or the literal is not supported.
fn bound(operand: &Operand<'_>, literal: &ScalarValue) -> Option<Place> {
    let column_type = operand.column.column_type;
    if !operand.casts.is_empty() {
        return bound_behind_casts(column_type, &operand.casts, literal);
    }
    if literal.is_null() {
        return Some(Place::At(Value::Null));
    }
    let value = value(literal, column_type)?;
    Some(Place::At(value))
}

/// A literal as a value of a column of the same type; type coercion has made the types equal.
pub(crate) fn value(literal: &ScalarValue, column_type: ColumnType) -> Option<Value> {
    let value = match (literal, column_type) {
        (ScalarValue::Boolean(Some(v)), ColumnType::Bool) => Value::Bool(*v),
        (ScalarValue::Float32(Some(v)), ColumnType::Float32) => Value::Float(f64::from(*v)),
        (ScalarValue::Float64(Some(v)), ColumnType::Float64) => Value::Float(*v),
        (ScalarValue::Date32(Some(v)), ColumnType::Date) => Value::Date(*v),
        (ScalarValue::Decimal128(Some(v), _, scale), ColumnType::Decimal(_, column_scale))
            if *scale == column_scale =>
        {
            Value::Decimal(*v)
        }
        (
            ScalarValue::Binary(Some(v))
            | ScalarValue::BinaryView(Some(v))
            | ScalarValue::LargeBinary(Some(v)),
            ColumnType::Binary,
        ) => Value::Binary(v.clone()),
        (ScalarValue::Time64Microsecond(Some(v)), ColumnType::Time) => Value::Int(*v),
        (ScalarValue::FixedSizeBinary(_, Some(v)), ColumnType::Uuid) if v.len() == UUID_BYTES => {
            Value::Binary(v.clone())
        }
        (_, ColumnType::String) => Value::String(text(literal)?.to_owned()),
        (_, ColumnType::Timestamp(unit, _)) => {
            let (ticks, literal_unit) = timestamp(literal)?;
            // Type coercion gave both sides the same unit; ticks of another unit are another value.
            if literal_unit != unit.arrow() {
                return None;
            }
            Value::Timestamp(ticks)
        }
        _ => return integer(literal, column_type),
    };
    Some(value)
}

fn integer(literal: &ScalarValue, column_type: ColumnType) -> Option<Value> {
    let number = whole(literal)?;
    match column_type {
        ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => {
            i64::try_from(number).ok().map(Value::Int)
        }
        ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64 => {
            u64::try_from(number).ok().map(Value::UInt)
        }
        _ => None,
    }
}

fn whole(literal: &ScalarValue) -> Option<i128> {
    Some(match literal {
        ScalarValue::Int8(v) => i128::from((*v)?),
        ScalarValue::Int16(v) => i128::from((*v)?),
        ScalarValue::Int32(v) => i128::from((*v)?),
        ScalarValue::Int64(v) => i128::from((*v)?),
        ScalarValue::UInt8(v) => i128::from((*v)?),
        ScalarValue::UInt16(v) => i128::from((*v)?),
        ScalarValue::UInt32(v) => i128::from((*v)?),
        ScalarValue::UInt64(v) => i128::from((*v)?),
        _ => return None,
    })
}

fn text(literal: &ScalarValue) -> Option<&str> {
    match literal {
        ScalarValue::Utf8(v) | ScalarValue::LargeUtf8(v) | ScalarValue::Utf8View(v) => v.as_deref(),
        ScalarValue::Dictionary(_, inner) => text(inner),
        _ => None,
    }
}

fn timestamp(literal: &ScalarValue) -> Option<(i64, TimeUnit)> {
    let (ticks, unit, zone) = match literal {
        ScalarValue::TimestampSecond(v, zone) => (v, TimeUnit::Second, zone),
        ScalarValue::TimestampMillisecond(v, zone) => (v, TimeUnit::Millisecond, zone),
        ScalarValue::TimestampMicrosecond(v, zone) => (v, TimeUnit::Microsecond, zone),
        ScalarValue::TimestampNanosecond(v, zone) => (v, TimeUnit::Nanosecond, zone),
        _ => return None,
    };
    // Ticks are UTC if the zone is UTC or absent.
    let utc = |zone: &str| matches!(zone, "UTC" | "utc" | "Z" | "+00:00" | "+00" | "Etc/UTC");
    zone.as_deref().is_none_or(utc).then_some(())?;
    ticks.map(|ticks| (ticks, unit))
}

/// Bound below casts that multiply by a whole number: integers to wider ones, timestamps to finer units, dates to
/// timestamps. The literal is divided by the product of their factors.
fn bound_behind_casts(
    column_type: ColumnType,
    casts: &[&DataType],
    literal: &ScalarValue,
) -> Option<Place> {
    // The factor of all casts, and the type that the literal has.
    let mut literal_type = column_type.arrow();
    let mut factor = 1_i128;
    for target in casts {
        factor = factor.checked_mul(factor_of(&literal_type, target)?)?;
        literal_type = (*target).clone();
    }
    if literal.is_null() {
        return Some(Place::At(Value::Null));
    }
    let number = match &literal_type {
        DataType::Timestamp(unit, _) => {
            let (ticks, literal_unit) = timestamp(literal)?;
            (literal_unit == *unit).then_some(i128::from(ticks))?
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            return Some(Place::At(Value::String(text(literal)?.to_owned())));
        }
        _ => whole(literal)?,
    };
    // Round down, and remember below whether the division was exact.
    let quotient = number.div_euclid(factor);
    let place = |number: i128| -> Place {
        let outside = || if number < 0 { Place::Below } else { Place::Above };
        match column_type {
            ColumnType::Date => {
                i32::try_from(number).map_or_else(|_| outside(), |v| Place::At(Value::Date(v)))
            }
            ColumnType::Timestamp(..) => {
                i64::try_from(number).map_or_else(|_| outside(), |v| Place::At(Value::Timestamp(v)))
            }
            _ => {
                let (low, high) = whole_range(column_type);
                match number {
                    n if n < low => Place::Below,
                    n if n > high => Place::Above,
                    n if low < 0 => {
                        i64::try_from(n).map_or(Place::Above, |v| Place::At(Value::Int(v)))
                    }
                    n => u64::try_from(n).map_or(Place::Above, |v| Place::At(Value::UInt(v))),
                }
            }
        }
    };
    Some(match place(quotient) {
        Place::At(value) if number.rem_euclid(factor) != 0 => Place::After(value),
        place => place,
    })
}

fn whole_range(column_type: ColumnType) -> (i128, i128) {
    match column_type {
        ColumnType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        ColumnType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        ColumnType::UInt8 => (0, u8::MAX.into()),
        ColumnType::UInt16 => (0, u16::MAX.into()),
        ColumnType::UInt32 => (0, u32::MAX.into()),
        ColumnType::UInt64 => (0, u64::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    }
}

/// Factor by which a cast multiplies values; `None` for other casts.
fn factor_of(source: &DataType, target: &DataType) -> Option<i128> {
    let per_second = |unit: &TimeUnit| i128::from(Unit::from(*unit).per_second());
    match (source, target) {
        (DataType::Timestamp(source, _), DataType::Timestamp(target, zone)) => {
            let (source, target) = (per_second(source), per_second(target));
            let utc = zone.as_deref().is_none_or(|zone| matches!(zone, "UTC" | "+00:00"));
            (utc && target >= source).then(|| target / source)
        }
        (DataType::Date32, DataType::Timestamp(target, None)) => {
            Some(SECONDS_PER_DAY * per_second(target))
        }
        (
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
        ) => Some(1),
        (source, target) if source.is_integer() && target.is_integer() => {
            // Only a cast to a type that holds every value keeps them distinct, not NULL, and in order.
            let signed = |t: &DataType| t.is_signed_integer();
            let width = |t: &DataType| t.primitive_width();
            let fits = match (signed(source), signed(target)) {
                (true, true) | (false, false) => width(target) >= width(source),
                (false, true) => width(target) > width(source),
                (true, false) => false,
            };
            fits.then_some(1)
        }
        _ => None,
    }
}
