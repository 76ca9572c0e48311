//! SQL functions whose result depends on the session; all others are in [`partita_worker::functions`].

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use partita_sql::statement::{Set, SetValue};
use partita_worker::functions::constant;
pub use partita_worker::functions::{POSTGRES_VERSION, version_text};

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::session::Session;

/// `current_database()`, `database()`, `current_schema()`, `session_user`, `current_user`: constants of a session until
/// its database or role changes.
pub(crate) fn of_session(database: &str, session_user: &str, current_user: &str) -> Vec<ScalarUDF> {
    vec![
        constant("current_database", &["database", "current_catalog"], database),
        constant("current_schema", &[], database),
        constant("session_user", &[], session_user),
        constant("current_user", &["user", "current_role"], current_user),
    ]
}

/// Functions that a door adds to every session, for its viewer. The door puts them into the configuration of the
/// frontend's context.
pub struct SessionFunctions(Box<MakeFunctions>);

type MakeFunctions = dyn Fn(&Arc<Viewer>) -> Vec<ScalarUDF> + Send + Sync;

impl SessionFunctions {
    /// The functions that `make` returns for a viewer.
    pub fn new(make: impl Fn(&Arc<Viewer>) -> Vec<ScalarUDF> + Send + Sync + 'static) -> Self {
        Self(Box::new(make))
    }
}

/// `current_setting(name [, missing_ok])` and `set_config(name, value, is_local)`: SHOW and SET as functions; and the
/// functions that doors add.
pub(crate) fn of_settings(session: &Arc<Session>) -> Vec<ScalarUDF> {
    let function = |sets: bool| {
        // Volatile functions are not evaluated before the statement runs.
        let signature = match sets {
            true => Signature::any(3, Volatility::Volatile),
            false => {
                let counts = vec![TypeSignature::Any(1), TypeSignature::Any(2)];
                Signature::one_of(counts, Volatility::Volatile)
            }
        };
        ScalarUDF::from(OfSettings { sets, signature, session: Arc::downgrade(session) })
    };
    let mut functions = vec![function(false), function(true)];
    let context = session.context();
    let added = context.state_ref().read().config().get_extension::<SessionFunctions>();
    if let Some(SessionFunctions(make)) = added.as_deref() {
        functions.extend(make(session.viewer()));
    }
    functions
}

#[derive(Debug)]
struct OfSettings {
    sets: bool,
    signature: Signature,
    session: Weak<Session>,
}

impl PartialEq for OfSettings {
    fn eq(&self, other: &Self) -> bool {
        self.sets == other.sets && Weak::ptr_eq(&self.session, &other.session)
    }
}

impl Eq for OfSettings {}

impl Hash for OfSettings {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sets.hash(state);
    }
}

impl OfSettings {
    fn row(&self, args: &[ArrayRef], row: usize) -> Result<Option<String>, SqlError> {
        let Some(session) = self.session.upgrade() else {
            return Err(SqlError::internal("the session has ended"));
        };
        let text = |position: usize| -> Result<Option<String>, SqlError> {
            let Some(array) = args.get(position) else { return Ok(None) };
            let texts = cast(array, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>();
            Ok(texts.iter().nth(row).flatten().map(str::to_owned))
        };
        let is =
            |position: usize| Ok::<_, SqlError>(text(position)?.is_some_and(|is| is == "true"));
        let Some(name) = text(0)?.map(|name| name.to_ascii_lowercase()) else { return Ok(None) };
        if !self.sets {
            return match session.setting(&name) {
                Ok(value) => Ok(Some(value)),
                Err(_) if is(1)? => Ok(None),
                Err(error) => Err(error),
            };
        }
        let value = text(1)?.map_or(SetValue::Default, |value| SetValue::Values(vec![value]));
        session.set(&Set { name: name.clone(), value, local: is(2)? })?;
        session.setting(&name).map(Some)
    }
}

impl ScalarUDFImpl for OfSettings {
    fn name(&self) -> &'static str {
        if self.sets { "set_config" } else { "current_setting" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.is_empty() {
            return exec_err!("{} requires the name of a setting", self.name());
        }
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let values: Vec<Option<String>> =
            (0..rows).map(|row| self.row(&arrays, row)).collect::<Result<_, SqlError>>()?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(
                values.into_iter().next().flatten(),
            )));
        }
        Ok(ColumnarValue::Array(Arc::new(StringArray::from(values))))
    }
}
