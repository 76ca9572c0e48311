//! `pg_backend_pid`, `pg_cancel_backend` and `pg_terminate_backend`: the number of a session, and what one session does to
//! another of the same frontend by this number.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::access::life::{Life, Signal};
use crate::error::SqlError;

/// The functions of a session.
pub(crate) fn functions(life: &Arc<Life>) -> Vec<ScalarUDF> {
    let pid = Pid { pid: life.pid(), signature: Signature::nullary(Volatility::Stable) };
    let signal = |signal| {
        // Evaluated for each row, when the statement runs.
        let signature = Signature::any(1, Volatility::Volatile);
        ScalarUDF::from(Signals { signal, signature, life: Arc::downgrade(life) })
    };
    vec![ScalarUDF::from(pid), signal(Signal::Cancel), signal(Signal::Terminate)]
}

/// `pg_backend_pid()`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Pid {
    pid: i32,
    signature: Signature,
}

impl ScalarUDFImpl for Pid {
    fn name(&self) -> &'static str {
        "pg_backend_pid"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Int32(Some(self.pid))))
    }
}

/// `pg_cancel_backend(pid)` and `pg_terminate_backend(pid)`; false when there is no such session.
struct Signals {
    signal: Signal,
    signature: Signature,
    /// The session that calls.
    life: Weak<Life>,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Signals {
    fn eq(&self, other: &Self) -> bool {
        self.signal == other.signal && Weak::ptr_eq(&self.life, &other.life)
    }
}

impl Eq for Signals {}

impl Hash for Signals {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signal.hash(state);
    }
}

impl ScalarUDFImpl for Signals {
    fn name(&self) -> &'static str {
        match self.signal {
            Signal::Cancel => "pg_cancel_backend",
            Signal::Terminate => "pg_terminate_backend",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [pids] = args.args.as_slice() else {
            return exec_err!("{} takes the number of a session", self.name());
        };
        let Some(life) = self.life.upgrade() else {
            return Err(SqlError::internal("the session has ended").into());
        };
        // A number that is too large is an error.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let pids =
            cast_with_options(&pids.to_array(args.number_rows)?, &DataType::Int32, &options)?;
        let signal = |pid: Option<i32>| pid.map(|pid| life.signal(pid, self.signal)).transpose();
        let results: BooleanArray =
            pids.as_primitive::<Int32Type>().iter().map(signal).collect::<Result<_, SqlError>>()?;
        Ok(ColumnarValue::Array(Arc::new(results)))
    }
}
