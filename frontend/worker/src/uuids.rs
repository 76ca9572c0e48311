//! UUIDs in statements: new ones, and texts that stand for them.
//!
//! ```text
//!   gen_random_uuid()              random bits (version 4)
//!   uuidv7()                       the time in milliseconds and their fractions, then random bits (version 7)
//!   uuid_in(text)                  CAST(text AS UUID)
//!   id = 'a0ee..', id IN ('a0ee..')   the literal is read while the statement is planned
//!   id || 'text'                   the text of the UUID
//! ```
//!
//! Arrow has no type for UUIDs: they are [`UUID`], 16 bytes, which no other value of a statement is. Arrow's own casts
//! would copy the characters of a text, so none between texts and UUIDs remains in a plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use partita_proto::schema::UUID;
use partita_proto::uuid::{self, UUID_BYTES};

use crate::checked::cannot_cast;
use crate::error::{INVALID_TEXT, SqlError};
use crate::functions::REGISTRY;
use crate::value_texts::text_of;
use crate::zone::Zone;

/// Name of the cast; nodes know it too.
const READ: &str = "uuid_in";
/// Bytes of a UUID, as Arrow counts them.
const WIDTH: i32 = 16;
/// Maximum characters of a text in an error.
const EXCERPT: usize = 100;
/// Fractions of a millisecond that a UUID of version 7 has room for.
const FRACTIONS: u64 = 4096;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let new = [UuidFunction::Random, UuidFunction::Ordered].into_iter().map(|function| {
        ScalarUDF::from(New { function, signature: Signature::nullary(Volatility::Volatile) })
    });
    let signature = Signature::any(1, Volatility::Immutable);
    new.chain([ScalarUDF::from(Read { signature })])
}

/// A function that makes UUIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UuidFunction {
    /// `gen_random_uuid()`.
    Random,
    /// `uuidv7()`.
    Ordered,
}

impl UuidFunction {
    /// The function that the text of a DEFAULT calls.
    #[must_use]
    pub fn of_default(text: &str) -> Option<Self> {
        let is_call = |function: &Self| function.default_text().eq_ignore_ascii_case(text);
        [Self::Random, Self::Ordered].into_iter().find(is_call)
    }

    /// The text of a DEFAULT that calls it.
    #[must_use]
    pub fn default_text(self) -> String {
        format!("{}()", self.name())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Random => "gen_random_uuid",
            Self::Ordered => "uuidv7",
        }
    }

    /// A new UUID.
    #[must_use]
    pub fn call(self) -> [u8; UUID_BYTES] {
        match self {
            Self::Random => ::uuid::Uuid::new_v4().into_bytes(),
            Self::Ordered => {
                let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                ordered(CLOCK.next(age), ::uuid::Uuid::new_v4().into_bytes())
            }
        }
    }
}

/// Time of the last UUID of version 7 that this process made, in fractions of milliseconds.
struct Clock(AtomicU64);

static CLOCK: Clock = Clock(AtomicU64::new(0));

impl Clock {
    /// The time, or the fraction after the last one if that is later.
    fn next(&self, age: Duration) -> u64 {
        let millis = u64::try_from(age.as_millis()).unwrap_or(0);
        let fraction = u64::from(age.subsec_nanos() % 1_000_000) * FRACTIONS / 1_000_000;
        let now = millis.saturating_mul(FRACTIONS).saturating_add(fraction);
        let advanced = |last: u64| Some(now.max(last.saturating_add(1)));
        let (Ok(last) | Err(last)) =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advanced);
        now.max(last.saturating_add(1))
    }
}

/// A UUID of version 7 of a time and random bits, whose variant is right already.
fn ordered(fractions: u64, mut bytes: [u8; UUID_BYTES]) -> [u8; UUID_BYTES] {
    let millis = (fractions / FRACTIONS).to_be_bytes();
    let [.., high, low] = (fractions % FRACTIONS).to_be_bytes();
    bytes[..6].copy_from_slice(&millis[2..]);
    bytes[6] = 0x70 | high;
    bytes[7] = low;
    bytes
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct New {
    function: UuidFunction,
    signature: Signature,
}

impl ScalarUDFImpl for New {
    fn name(&self) -> &'static str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(UUID)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut builder = FixedSizeBinaryBuilder::with_capacity(args.number_rows, WIDTH);
        for _ in 0..args.number_rows {
            builder.append_value(self.function.call())?;
        }
        Ok(ColumnarValue::Array(Arc::new(builder.finish())))
    }
}

/// A cast of a text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Read {
    signature: Signature,
}

impl ScalarUDFImpl for Read {
    fn name(&self) -> &'static str {
        READ
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if data_type.is_string() => Ok(UUID),
            _ => exec_err!("{READ} does not take {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{READ} takes one argument");
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let texts = argument.to_array(if constant { 1 } else { args.number_rows })?;
        let uuids = uuids_of(&texts)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&uuids, 0)?));
        }
        Ok(ColumnarValue::Array(uuids))
    }
}

/// The UUID of a text.
///
/// # Errors
/// SQLSTATE 22P02 when the text is not one of a UUID.
pub fn uuid_of(text: &str) -> Result<ScalarValue, SqlError> {
    Ok(ScalarValue::FixedSizeBinary(WIDTH, Some(bytes_of(text)?.to_vec())))
}

fn bytes_of(text: &str) -> Result<[u8; UUID_BYTES], SqlError> {
    uuid::parse(text).ok_or_else(|| {
        let excerpt: String = text.chars().take(EXCERPT).collect();
        let more = if excerpt.len() < text.len() { "..." } else { "" };
        let message = format!("invalid input syntax for type uuid: \"{excerpt}{more}\"");
        SqlError::new(INVALID_TEXT, message)
    })
}

/// The UUIDs of texts.
///
/// # Errors
/// SQLSTATE 22P02 when a text is not one of a UUID.
pub fn uuids_of(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    let mut builder = FixedSizeBinaryBuilder::with_capacity(texts.len(), WIDTH);
    for text in texts {
        match text {
            Some(text) => builder.append_value(bytes_of(text)?)?,
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// UUIDs in their canonical form: 32 hexadecimal digits in five groups.
#[must_use]
pub fn uuid_texts(uuids: &dyn Array) -> ArrayRef {
    let texts = uuids.as_fixed_size_binary().iter().map(|bytes| bytes.map(uuid::text));
    Arc::new(texts.collect::<StringViewArray>())
}

/// Reads texts beside UUIDs, and texts that are cast to UUIDs; to be applied before types are coerced.
#[derive(Debug)]
pub struct UuidTexts;

fn is_uuid(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type == UUID)
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_string())
}

/// The UUID of a literal text; other expressions stay as they are.
fn read(expr: Expr) -> Result<Expr> {
    match &expr {
        Expr::Literal(value, _) => match value.try_as_str().flatten() {
            Some(text) => Ok(Expr::Literal(uuid_of(text)?, None)),
            None => Ok(expr),
        },
        _ => Ok(expr),
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Reads the literal on one side of a UUID.
fn read_beside(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let text = if is_uuid(left, schema) && is_text(right, schema) {
        right
    } else if is_uuid(right, schema) && is_text(left, schema) {
        left
    } else {
        return Ok(false);
    };
    *text = read(text.clone())?;
    Ok(true)
}

impl ExprPlanner for UuidTexts {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq, StringConcat};
        match raw.op {
            Eq | NotEq | Lt | LtEq | Gt | GtEq => {
                read_beside(&mut raw.left, &mut raw.right, schema)?;
            }
            StringConcat => {
                let written = |expr: &Expr| text_of(expr, &UUID, &DataType::Utf8View, Zone::UTC);
                if is_uuid(&raw.left, schema) && is_text(&raw.right, schema) {
                    raw.left = written(&raw.left).unwrap_or(raw.left);
                } else if is_uuid(&raw.right, schema) && is_text(&raw.left, schema) {
                    raw.right = written(&raw.right).unwrap_or(raw.right);
                }
            }
            _ => {}
        }
        Ok(PlannerResult::Original(raw))
    }
}

impl FunctionRewrite for UuidTexts {
    fn name(&self) -> &'static str {
        "uuid_texts"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        // Operators are planned with their literals read, but for IS DISTINCT FROM, which no planner sees.
        Ok(match expression {
            Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
                let is_read = read_beside(&mut left, &mut right, schema)?;
                let binary = Expr::BinaryExpr(BinaryExpr { left, op, right });
                Transformed::new_transformed(binary, is_read)
            }
            Expr::Between(Between { expr, negated, low, high }) if is_uuid(&expr, schema) => {
                let (low, high) = (read(*low)?, read(*high)?);
                let between = Between::new(expr, negated, Box::new(low), Box::new(high));
                Transformed::yes(Expr::Between(between))
            }
            Expr::InList(InList { expr, list, negated }) if is_uuid(&expr, schema) => {
                let members = list.into_iter().map(read).collect::<Result<_>>()?;
                Transformed::yes(Expr::InList(InList::new(expr, members, negated)))
            }
            Expr::Cast(Cast { expr, field })
                if *field.data_type() == UUID && is_text(&expr, schema) =>
            {
                Transformed::yes(match read(*expr)? {
                    text if is_text(&text, schema) => {
                        let Some(function) = REGISTRY.scalar.get(READ) else {
                            return exec_err!("{READ} is not registered");
                        };
                        let call = ScalarFunction::new_udf(Arc::clone(function), vec![text]);
                        Expr::ScalarFunction(call)
                    }
                    uuid => uuid,
                })
            }
            Expr::Cast(Cast { expr, field }) if *field.data_type() == UUID => {
                if let Ok(source) = expr.get_type(schema)
                    && (source.is_numeric() || source == DataType::Boolean || source.is_temporal())
                {
                    return Err(cannot_cast(&source, "uuid").into());
                }
                Transformed::no(Expr::Cast(Cast { expr, field }))
            }
            expression => Transformed::no(expression),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_uuids_are_written() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![
            Some("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}"),
            None,
        ]));
        let uuids = uuids_of(&texts).unwrap();
        assert_eq!(uuids.data_type(), &UUID);
        let written = uuid_texts(uuids.as_ref());
        let expected =
            StringViewArray::from(vec![Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), None]);
        assert_eq!(written.as_string_view(), &expected);
        let wrong: ArrayRef = Arc::new(StringViewArray::from(vec!["a0eebc99"]));
        let error = SqlError::from(uuids_of(&wrong).unwrap_err());
        assert_eq!(error.sqlstate, "22P02");
        assert_eq!(error.message, "invalid input syntax for type uuid: \"a0eebc99\"");
    }

    #[test]
    fn new_uuids_have_their_version_and_differ() {
        for (function, version) in [(UuidFunction::Random, 4), (UuidFunction::Ordered, 7)] {
            let (one, other) = (function.call(), function.call());
            assert_ne!(one, other);
            assert_eq!(one[6] >> 4, version);
            assert_eq!(one[8] >> 6, 0b10, "the variant of RFC 9562");
            assert_eq!(UuidFunction::of_default(&function.default_text()), Some(function));
        }
        assert_eq!(UuidFunction::of_default("now()"), None);
    }

    #[test]
    fn uuids_of_version_7_ascend_also_when_the_clock_goes_back() {
        let clock = Clock(AtomicU64::new(0));
        let ages = [1_000_000, 1_000_000, 1_000_244, 999_000, 5_000_000].map(Duration::from_micros);
        let times: Vec<u64> = ages.into_iter().map(|age| clock.next(age)).collect();
        assert!(times.is_sorted_by(|earlier, later| earlier < later), "{times:?}");
        assert_eq!(times[0], 1_000 * FRACTIONS);
        let bytes = ordered(times[0], [0xBF; UUID_BYTES]);
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0x03, 0xE8, 0x70, 0]);
        assert_eq!(bytes[8..], [0xBF; 8]);
    }
}
