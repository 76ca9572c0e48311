//! SQL functions whose result depends on the session; all others are in [`partita_worker::functions`].

use std::hash::{Hash, Hasher};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use partita_lanes::interrupt;
use partita_proto::Error;
use partita_proto::access::Action;
use partita_proto::sequence::SequenceChange;
use partita_proto::service::Ddl;
use partita_sql::statement::{Set, SetValue};
use partita_worker::functions::constant;
pub use partita_worker::functions::{POSTGRES_VERSION, version_text};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::sequences::{CURRENT, NEXT};
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

/// Parts of the rows of `pg_settings`, `partita_setting(name, column)`: an internal function of which doors make that
/// table.
pub const SETTING_PART: &str = "partita_setting";

/// `current_setting(name [, missing_ok])` and `set_config(name, value, is_local)`: SHOW and SET as functions; the parts
/// of `pg_settings`; and the functions that doors add.
pub(crate) fn of_settings(session: &Arc<Session>) -> Vec<ScalarUDF> {
    let function = |call: SettingCall| {
        // Volatile functions are not evaluated before the statement runs.
        let signature = match call {
            SettingCall::Set => Signature::any(3, Volatility::Volatile),
            SettingCall::Part => Signature::any(2, Volatility::Volatile),
            SettingCall::Show => {
                let counts = vec![TypeSignature::Any(1), TypeSignature::Any(2)];
                Signature::one_of(counts, Volatility::Volatile)
            }
        };
        ScalarUDF::from(OfSettings { call, signature, session: Arc::downgrade(session) })
    };
    let calls = [SettingCall::Show, SettingCall::Set, SettingCall::Part];
    let mut functions: Vec<ScalarUDF> = calls.into_iter().map(function).collect();
    let context = session.context();
    let added = context.state_ref().read().config().get_extension::<SessionFunctions>();
    if let Some(SessionFunctions(make)) = added.as_deref() {
        functions.extend(make(session.viewer()));
    }
    functions
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SettingCall {
    Show,
    Set,
    Part,
}

#[derive(Debug)]
struct OfSettings {
    call: SettingCall,
    signature: Signature,
    session: Weak<Session>,
}

impl PartialEq for OfSettings {
    fn eq(&self, other: &Self) -> bool {
        self.call == other.call && Weak::ptr_eq(&self.session, &other.session)
    }
}

impl Eq for OfSettings {}

impl Hash for OfSettings {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.call.hash(state);
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
        match self.call {
            SettingCall::Show => {
                return match session.setting(&name) {
                    Ok(value) => Ok(Some(value)),
                    Err(_) if is(1)? => Ok(None),
                    Err(error) => Err(error),
                };
            }
            SettingCall::Part => {
                let part = text(1)?.unwrap_or_default();
                return session.setting_part(&name, &part).map(Some);
            }
            SettingCall::Set => {}
        }
        let value = text(1)?.map_or(SetValue::Default, |value| SetValue::Values(vec![value]));
        session.set(&Set { name: name.clone(), value, local: is(2)? })?;
        session.setting(&name).map(Some)
    }
}

impl ScalarUDFImpl for OfSettings {
    fn name(&self) -> &'static str {
        match self.call {
            SettingCall::Show => "current_setting",
            SettingCall::Set => "set_config",
            SettingCall::Part => SETTING_PART,
        }
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

/// SQLSTATE of a number that the session has not got yet.
const NOT_IN_PREREQUISITE_STATE: &str = "55000";
/// Interval between checks for an interrupt.
const STEP: Duration = Duration::from_millis(10);

/// `nextval`, `currval`, `lastval` and `setval` of a session. A call that needs a block waits for meta on a thread of the
/// statement's own lane and yields the statement's place meanwhile, as `pg_sleep` does.
pub(crate) fn of_sequences(session: &Arc<Session>) -> Vec<ScalarUDF> {
    let kinds = [Kind::Next, Kind::Current, Kind::Last, Kind::Set];
    let function = |kind: Kind| {
        // Volatile functions are evaluated for each row, when the statement runs.
        let volatility = Volatility::Volatile;
        let signature = match kind {
            Kind::Next | Kind::Current => Signature::any(1, volatility),
            Kind::Last => Signature::nullary(volatility),
            Kind::Set => {
                let counts = vec![TypeSignature::Any(2), TypeSignature::Any(3)];
                Signature::one_of(counts, volatility)
            }
        };
        ScalarUDF::from(OfSequence { kind, signature, session: Arc::downgrade(session) })
    };
    kinds.into_iter().map(function).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Next,
    Current,
    Last,
    Set,
}

#[derive(Debug)]
struct OfSequence {
    kind: Kind,
    signature: Signature,
    session: Weak<Session>,
}

impl PartialEq for OfSequence {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && Weak::ptr_eq(&self.session, &other.session)
    }
}

impl Eq for OfSequence {}

impl Hash for OfSequence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

impl OfSequence {
    /// Results for rows whose first arguments are names of sequences.
    fn results(
        &self,
        session: &Arc<Session>,
        args: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<Option<i64>>> {
        if self.kind == Kind::Last {
            return Ok(vec![Some(last_number(session)?); rows]);
        }
        let Some(names) = args.first() else {
            return exec_err!("{} requires the name of a sequence", self.name());
        };
        let names = cast(names, &DataType::Utf8)?;
        let names: Vec<Option<&str>> = names.as_string::<i32>().iter().collect();
        match self.kind {
            Kind::Next => next_number(session, &names),
            Kind::Set => set_number(session, &names, args),
            Kind::Current | Kind::Last => {
                let current = |name: &Option<&str>| {
                    name.map(|name| current_number(session, name)).transpose()
                };
                Ok(names.iter().map(current).collect::<Result<_, SqlError>>()?)
            }
        }
    }
}

/// The next numbers; those of equal names that follow each other are drawn at once.
fn next_number(session: &Arc<Session>, names: &[Option<&str>]) -> Result<Vec<Option<i64>>> {
    session.check_changes_sequences("nextval")?;
    let mut results = Vec::with_capacity(names.len());
    for run in names.chunk_by(|a, b| a == b) {
        let Some(name) = run[0] else {
            results.extend(run.iter().map(|_| None));
            continue;
        };
        let (sequence, _permit) = session.sequence_for(name, &NEXT)?;
        let (id, count) = (sequence.id, run.len() as u64);
        let sequences = session.frontend().sequences();
        let numbers = match sequences.draw_now(id, count) {
            Some(numbers) => numbers,
            None => {
                let sequences = Arc::clone(sequences);
                wait_for(session, async move { sequences.draw(id, count).await })?
            }
        };
        if let Some(number) = numbers.last() {
            session.last_numbers.lock().put(id, *number);
        }
        results.extend(numbers.into_iter().map(Some));
    }
    Ok(results)
}

fn current_number(session: &Session, name: &str) -> Result<i64, SqlError> {
    let (sequence, _permit) = session.sequence_for(name, &CURRENT)?;
    let number = session.last_numbers.lock().of(sequence.id);
    number.ok_or_else(|| {
        let name = &sequence.name;
        let message = format!("currval of sequence \"{name}\" is not yet defined in this session");
        SqlError::new(NOT_IN_PREREQUISITE_STATE, message)
    })
}

fn last_number(session: &Session) -> Result<i64, SqlError> {
    let last = session.last_numbers.lock().last();
    let exists = |id| session.frontend().catalog().sequences.contains_key(&id);
    let number = last.filter(|(id, _)| exists(*id)).map(|(_, number)| number);
    number.ok_or_else(|| {
        let message = "lastval is not yet defined in this session";
        SqlError::new(NOT_IN_PREREQUISITE_STATE, message)
    })
}

fn set_number(
    session: &Arc<Session>,
    names: &[Option<&str>],
    args: &[ArrayRef],
) -> Result<Vec<Option<i64>>> {
    session.check_changes_sequences("setval")?;
    let Some(values) = args.get(1) else {
        return exec_err!("setval requires a value");
    };
    let values = cast(values, &DataType::Int64)?;
    let values = values.as_primitive::<Int64Type>();
    let called = args.get(2).map(|flags| cast(flags, &DataType::Boolean)).transpose()?;
    let called = called.as_ref().map(|flags| flags.as_boolean().iter().collect::<Vec<_>>());
    let mut results = Vec::with_capacity(names.len());
    for (row, (name, value)) in names.iter().zip(values.iter()).enumerate() {
        let is_called = match &called {
            Some(flags) => flags.get(row).copied().flatten(),
            None => Some(true),
        };
        let (Some(name), Some(value), Some(is_called)) = (*name, value, is_called) else {
            results.push(None);
            continue;
        };
        let (sequence, permit) = session.sequence_for(name, &[Action::Update])?;
        let id = sequence.id;
        let frontend = Arc::clone(session.frontend());
        let change = SequenceChange::Set { sequence: id, value, is_called };
        wait_for(session, async move {
            frontend.change(&permit, Ddl::Sequence(Box::new(change))).await
        })?;
        if is_called {
            session.last_numbers.lock().set(id, value);
        }
        results.push(Some(value));
    }
    Ok(results)
}

/// Does work in the home runtime and waits for it, or until the statement is interrupted.
fn wait_for<T: Send + 'static>(
    session: &Session,
    work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = sync_channel(1);
    let task = session.frontend().view().home().spawn(async move {
        // Nobody waits any more after an interrupt.
        drop(sender.send(work.await));
    });
    let wait = || loop {
        match receiver.recv_timeout(STEP) {
            Ok(result) => return Ok(result?),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(reason) = interrupt::check() {
                    task.abort();
                    return Err(DataFusionError::External(Box::new(reason)));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SqlError::from(Error::Cancelled).into());
            }
        }
    };
    match Handle::try_current() {
        // Other tasks of the statement continue on another thread.
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(|| {
                let pause = partita_lanes::pause();
                let result = wait();
                runtime.block_on(pause.end());
                result
            })
        }
        _ => wait(),
    }
}

impl ScalarUDFImpl for OfSequence {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Next => "nextval",
            Kind::Current => "currval",
            Kind::Last => "lastval",
            Kind::Set => "setval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(session) = self.session.upgrade() else {
            return Err(SqlError::internal("the session has ended").into());
        };
        let rows = args.number_rows;
        let arrays: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let results = self.results(&session, &arrays, rows)?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(results))))
    }
}
