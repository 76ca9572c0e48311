//! `pg_sleep(seconds)`.
//!
//! It waits on a thread of the statement's own lane and yields the statement's place meanwhile, so that sleeping
//! statements block no others. Cancel requests, timeouts and closed connections are checked between short waits.
//! between short waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use partita_lanes::interrupt;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Interval between checks for an interrupt.
const STEP: Duration = Duration::from_millis(10);

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Volatile);
    ScalarUDF::from(Sleep { signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &'static str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// PostgreSQL returns void, whose text is empty.
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [seconds] = args.args.as_slice() else {
            return exec_err!("pg_sleep takes one argument");
        };
        // A constant argument is evaluated anew for each row.
        let seconds = cast(&seconds.to_array(args.number_rows)?, &DataType::Float64)?;
        let seconds = seconds.as_primitive::<Float64Type>();
        let total: f64 = seconds.iter().flatten().filter(|seconds| *seconds > 0.0).sum();
        wait(Duration::try_from_secs_f64(total).unwrap_or(Duration::MAX))?;
        let results: StringViewArray = seconds.iter().map(|seconds| seconds.map(|_| "")).collect();
        if matches!(args.args.as_slice(), [ColumnarValue::Scalar(_)]) && args.number_rows == 1 {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?));
        }
        debug_assert_eq!(results.len(), args.number_rows);
        Ok(ColumnarValue::Array(Arc::new(results)))
    }
}

/// Waits for a time, or until the statement is interrupted.
fn wait(time: Duration) -> Result<()> {
    let sleep = || {
        let started = Instant::now();
        loop {
            interrupt::check().map_err(|reason| DataFusionError::External(Box::new(reason)))?;
            let remaining = time.saturating_sub(started.elapsed());
            if remaining.is_zero() {
                return Ok(());
            }
            std::thread::sleep(remaining.min(STEP));
        }
    };
    match Handle::try_current() {
        // Other tasks of the statement continue on another thread.
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(|| {
                let pause = partita_lanes::pause();
                let slept = sleep();
                runtime.block_on(pause.end());
                slept
            })
        }
        _ => sleep(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_row_sleeps() {
        let context = SessionContext::new();
        context.register_udf(function());
        let started = Instant::now();
        let sql = "SELECT pg_sleep(x) FROM (VALUES (0.02), (NULL), (-1), (0.03)) AS t(x)";
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        assert!(started.elapsed() >= Duration::from_millis(50));
        let nulls: usize = batches.iter().map(|batch| batch.column(0).null_count()).sum();
        assert_eq!(nulls, 1);
    }
}
