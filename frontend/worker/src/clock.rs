//! `now()` and `to_timestamp()` in microseconds, and the conversion of times to microseconds.
//!
//! DataFusion's functions return nanoseconds, which end in 2262; clients of PostgreSQL read at most six digits.
//!
//! `now()` is an instant whose type has the zone `+00:00`, where the type of a column has `UTC`. A TIMESTAMP that is
//! compared with it is therefore taken as UTC, as the times of events are: `ts > now() - INTERVAL '1 hour'` means the
//! same in every session. A TIMESTAMP beside a TIMESTAMPTZ column is in the session's zone, as in PostgreSQL, and so is
//! one beside `to_timestamp(seconds)`, which is a TIMESTAMPTZ like any other.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};

use crate::error::datetime_overflow;
use crate::functions::builtin;
use crate::plain::Plain;

/// Zone in the type of `now()`.
pub const NOW_ZONE: &str = "+00:00";

const MICROS: i64 = 1_000_000;

/// Functions to register, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let now = ScalarUDF::from(Now {
        aliases: ["current_timestamp", "transaction_timestamp", "statement_timestamp"]
            .map(str::to_owned)
            .into(),
        signature: Signature::nullary(Volatility::Stable),
    });
    let to_timestamp = builtin("to_timestamp")
        .map(|inner| ScalarUDF::from(ToTimestamp { inner: Arc::clone(inner) }));
    let clock = ScalarUDF::from(Clock { signature: Signature::nullary(Volatility::Volatile) });
    std::iter::once(now).chain(to_timestamp).chain([MICROSECONDS.function(), clock])
}

fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(NOW_ZONE.into()))
}

/// Type of columns of instants.
fn instant_of_columns() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Name of the function that converts times to microseconds; nodes know it too.
pub const IN_MICROSECONDS: &str = "in_microseconds";

/// Converts a time of a coarser unit to microseconds, PostgreSQL's unit.
static MICROSECONDS: Plain = Plain {
    name: IN_MICROSECONDS,
    takes: |types| match types {
        [DataType::Timestamp(..)] => Some(types.to_vec()),
        [DataType::Date32 | DataType::Null] => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, None)])
        }
        [data_type] if data_type.is_string() => {
            Some(vec![DataType::Timestamp(TimeUnit::Microsecond, None)])
        }
        _ => None,
    },
    gives: |types| match types {
        [DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone)] => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        [data_type] => data_type.clone(),
        _ => DataType::Null,
    },
    run: |arguments| {
        let target = (MICROSECONDS.gives)(&[arguments[0].data_type().clone()]);
        Ok(cast_with_options(&arguments[0], &target, &CHECKED)?)
    },
};

/// A time out of range of the target unit is an error.
const CHECKED: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// `now()`: the start time of the statement.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &'static str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(instant())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), instant(), false)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(now) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let micros = Some(now.timestamp_micros());
        let now = ScalarValue::TimestampMicrosecond(micros, Some(NOW_ZONE.into()));
        Ok(ExprSimplifyResult::Simplified(lit(now)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("now() was not replaced by a constant")
    }
}

/// `clock_timestamp()`: the time at which it is called, once for each batch of rows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    signature: Signature,
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &'static str {
        "clock_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(instant_of_columns())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(age.as_micros()).map_err(|_| out_of_range())?;
        let now = ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into()));
        Ok(ColumnarValue::Scalar(now))
    }
}

/// `to_timestamp(seconds)` in microseconds; DataFusion's function reads texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToTimestamp {
    inner: Arc<ScalarUDF>,
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

impl ToTimestamp {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }
}

fn out_of_range() -> ArrowError {
    datetime_overflow("timestamp")
}

/// Converts seconds to microseconds.
fn of_seconds(seconds: &dyn Array) -> Result<Int64Array> {
    if seconds.data_type().is_integer() {
        let seconds = cast(seconds, &DataType::Int64)?;
        let micros = seconds.as_primitive::<Int64Type>().try_unary::<_, Int64Type, ArrowError>(
            |seconds| seconds.checked_mul(MICROS).ok_or_else(out_of_range),
        )?;
        return Ok(micros);
    }
    let seconds = cast(seconds, &DataType::Float64)?;
    let micros =
        seconds.as_primitive::<Float64Type>().try_unary::<_, Int64Type, ArrowError>(|seconds| {
            let micros = (seconds * 1e6).round();
            // The double next to 2^63 is 2^63 itself, which does not fit.
            if !(-9.2e18..9.2e18).contains(&micros) {
                return Err(out_of_range());
            }
            #[expect(clippy::cast_possible_truncation, reason = "checked above")]
            Ok(micros as i64)
        })?;
    Ok(micros)
}

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if is_number(data_type) => Ok(instant_of_columns()),
            _ => self.inner().return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [field] if is_number(field.data_type()) => {
                let data_type = self.return_type(&[field.data_type().clone()])?;
                Ok(Arc::new(Field::new(self.name(), data_type, field.is_nullable())))
            }
            _ => self.inner().return_field_from_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [seconds] = args.args.as_slice() else { return self.inner().invoke_with_args(args) };
        if !is_number(&seconds.data_type()) {
            return self.inner().invoke_with_args(args);
        }
        let instants = of_seconds(&seconds.to_array(1)?)?;
        let instants = cast(&instants, &instant_of_columns())?;
        Ok(match seconds {
            ColumnarValue::Scalar(_) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&instants, 0)?)
            }
            ColumnarValue::Array(_) => ColumnarValue::Array(instants),
        })
    }
}
