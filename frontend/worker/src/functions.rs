//! SQL functions that DataFusion lacks, or that differ from DataFusion's.
//!
//! - `hash64(a, b, ..)`: the hash that places rows, so that a key column can be made of it;
//! - `xxh3(text or bytes)`: the plain 64-bit hash of the bytes;
//! - `version()`: queried by clients when they connect;
//! - those of JSON (`json.rs`);
//! - `to_char`: DataFusion's, with PostgreSQL's patterns (`to_char.rs`);
//! - `string_agg` and `array_agg`: DataFusion's, bounded in windows (`gathered.rs`);
//! - `avg` and `sum`: DataFusion's, faster over adjacent rows of a group (`runs.rs`), without wrapping sums of integers
//!   (`whole.rs`);
//! - `repeat`, `lpad` and others that make large values: DataFusion's, bounded (`bounded.rs`), and `arrow_cast`, whose
//!   type may be wide (`named_types.rs`);
//! - `approx_percentile_cont`: DataFusion's, with digests of a maximum size (`aggregates.rs`);
//! - replacements for `/` and `%` of floats, which refuse zero (`float_division.rs`), and for `+`, `-` and `*` of
//!   floats, whose NaN has no sign (`float_arithmetic.rs`);
//! - `mod` and `div` (`division.rs`); `sign`, `every` and `variance`, which have other names in DataFusion;
//! - `date_trunc` and `date_bin`: over times of every unit, faster where they ascend (`steps.rs`);
//! - `now` and `to_timestamp`: DataFusion's, in microseconds (`clock.rs`);
//! - `timezone`, which is AT TIME ZONE, and other functions that depend on a time zone (`zoned.rs`);
//! - replacements for `+`, `-` and `*` of integers, which do not wrap (`checked.rs`);
//! - a replacement for `||` of texts, bounded (`concatenation.rs`);
//! - a wrapper of constants that rows would repeat (`wide.rs`);
//! - `date_part`, and a replacement for `extract`: DataFusion's, with fractions of seconds (`parts.rs`);
//! - `max` and `min`: DataFusion's, with NaN as the greatest value, and of intervals (`extremes.rs`);
//! - replacements for `greatest` and `least` of intervals (`extremes.rs`);
//! - replacements for casts of decimals to doubles (`doubles.rs`);
//! - replacements for casts between texts and bytes (`bytea.rs`), and of other values to texts (`value_texts.rs`);
//! - replacements for `*` and `/` of intervals and numbers (`intervals.rs`);
//! - `round`, `ln`, `length` and others that take more or refuse more in PostgreSQL (`adjusted.rs`), `ceil`, `floor`
//!   and `trunc` of decimals (`digits.rs`), a replacement for `/` of exact numbers (`number_division.rs`), and
//!   functions that DataFusion lacks: `quote_ident` and `format` (`quoting.rs`), `age` and `make_interval`
//!   (`made_times.rs`), `width_bucket` (`numbers.rs`), `encode` (`encodings.rs`);
//! - replacements for SIMILAR TO (`similar.rs`) and OVERLAPS (`overlaps.rs`), and `pg_sleep` (`sleep.rs`);
//! - `matches_term` and `matches`, which look for words as full-text indexes do (`words.rs`);
//! - `bucket_key`, `bucket_start` and `bucket_end`, for row keys of time buckets (`buckets.rs`);
//! - `gen_random_uuid`, `uuidv7`, and a replacement for casts of texts to UUIDs (`uuids.rs`);
//! - bounds on positions within arrays (`positions.rs`), and a replacement for casts of texts to arrays
//!   (`array_texts.rs`) and for functions and comparisons that find NULL elements (`array_nulls.rs`);
//! - a replacement for casts to CHAR(n) (`padded.rs`);
//! - the value of a subquery that became a join (`only_row.rs`);
//! - replacements for intervals where they are compared (`interval_order.rs`), and for casts of texts to intervals
//!   (`interval_text.rs`) and to times of day (`times_of_day.rs`);
//! - wrappers of computed values of VALUES until their types are known (`listed.rs`);
//! - wrappers of values that are cast to fewer digits (`casts.rs`), and of group expressions (`apart.rs`).
//!
//! Query fragments that run at a node find them there under the same names.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, BinaryViewArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, cast::as_binary_view_array, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    adjusted, aggregates, apart, array_nulls, array_texts, arrays, bounded, buckets, bytea, casts,
    checked, clock, concatenation, differences, division, doubles, encodings, extremes,
    float_arithmetic, float_division, interval_order, interval_text, intervals, json, listed,
    made_times, named_types, number_division, numbers, only_row, overlaps, padded, parts,
    positions, quoting, regular, renamed, similar, sleep, steps, time_read, times_of_day, to_char,
    uuids, value_texts, wide, words, zoned,
};

/// Version of PostgreSQL whose behavior clients can expect.
pub const POSTGRES_VERSION: &str = "15.18";

/// Result of `version()`; clients parse the number after "PostgreSQL".
pub fn version_text() -> String {
    format!("PostgreSQL {POSTGRES_VERSION} (Partita {})", env!("CARGO_PKG_VERSION"))
}

/// Functions that are the same in every session.
pub fn shared() -> Vec<ScalarUDF> {
    // Functions that need no list of their own, then the lists of the modules.
    let functions = [
        ScalarUDF::from(Hash64::new()),
        ScalarUDF::from(Xxh3::new()),
        apart::function(),
        array_nulls::function(),
        array_texts::function(),
        concatenation::function(),
        differences::function(),
        interval_order::function(),
        interval_text::function(),
        only_row::function(),
        overlaps::function(),
        sleep::function(),
        to_char::function(),
        number_division::function(),
        wide::function(),
        constant("version", &[], &version_text()),
        constant("pg_client_encoding", &[], "UTF8"),
    ];
    let functions = functions.into_iter().chain(steps::functions()).chain(bounded::functions());
    let functions = functions.chain(casts::functions()).chain(checked::functions());
    let functions = functions.chain(division::functions()).chain(under_other_names());
    let functions = functions.chain(intervals::functions()).chain(clock::functions());
    let functions = functions.chain(extremes::functions()).chain(parts::functions());
    let functions = functions.chain(bytea::functions()).chain(doubles::functions());
    let functions = functions.chain(zoned::functions()).chain(value_texts::functions());
    let functions = functions.chain(adjusted::functions()).chain(encodings::functions());
    let functions = functions.chain(made_times::functions()).chain(numbers::functions());
    let functions = functions.chain(float_arithmetic::functions()).chain(listed::functions());
    let functions = functions.chain(float_division::functions()).chain(similar::functions());
    let functions = functions.chain(quoting::functions()).chain(regular::functions());
    let functions = functions.chain(named_types::functions()).chain(positions::functions());
    let functions = functions.chain(words::functions()).chain(uuids::functions());
    let functions = functions.chain(json::functions()).chain(buckets::functions());
    let functions = functions.chain(times_of_day::functions()).chain(padded::functions());
    let functions = functions.chain(renamed::functions());
    functions.chain(time_read::functions()).chain(arrays::functions()).collect()
}

/// DataFusion's functions under the names that they have in PostgreSQL.
fn under_other_names() -> impl Iterator<Item = ScalarUDF> {
    let renamed = [("signum", "sign")].into_iter();
    renamed.filter_map(|(name, alias)| Some(builtin(name)?.as_ref().clone().with_aliases([alias])))
}

/// Aggregates that are the same in every session.
pub fn shared_aggregates() -> Vec<Arc<AggregateUDF>> {
    let theirs = SessionStateDefaults::default_aggregate_functions();
    let variance = theirs.iter().find(|function| function.name() == "var");
    let variance =
        variance.map(|function| Arc::new(function.as_ref().clone().with_aliases(["variance"])));
    aggregates::replaced().chain(variance).collect()
}

/// Looks up a function of DataFusion by its name or an alias.
pub(crate) fn builtin(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    static ALL: LazyLock<Vec<Arc<ScalarUDF>>> =
        LazyLock::new(SessionStateDefaults::default_scalar_functions);
    let is_named = |function: &&Arc<ScalarUDF>| {
        function.name() == name || function.aliases().iter().any(|alias| alias == name)
    };
    ALL.iter().find(is_named)
}

/// Functions that every node has: DataFusion's, overridden by [`shared`] and [`shared_aggregates`].
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) scalar: HashMap<String, Arc<ScalarUDF>>,
    pub(crate) aggregate: HashMap<String, Arc<AggregateUDF>>,
}

/// The registry of this process.
pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let overrides = shared().into_iter().map(Arc::new);
    let mut scalar = HashMap::new();
    for function in SessionStateDefaults::default_scalar_functions().into_iter().chain(overrides) {
        for name in
            std::iter::once(function.name()).chain(function.aliases().iter().map(|n| n.as_str()))
        {
            scalar.insert(name.to_owned(), Arc::clone(&function));
        }
    }
    let mut aggregate = HashMap::new();
    let theirs = SessionStateDefaults::default_aggregate_functions().into_iter();
    for function in theirs.chain(shared_aggregates()) {
        for name in
            std::iter::once(function.name()).chain(function.aliases().iter().map(|n| n.as_str()))
        {
            aggregate.insert(name.to_owned(), Arc::clone(&function));
        }
    }
    Registry { scalar, aggregate }
});

/// Returns true if there is an aggregate of this name.
pub fn is_aggregate(name: &str) -> bool {
    REGISTRY.aggregate.contains_key(name)
}

/// A function without arguments that returns a constant text, with aliases.
pub fn constant(name: &str, aliases: &[&str], value: &str) -> ScalarUDF {
    ScalarUDF::from(Constant {
        name: name.to_owned(),
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        value: value.to_owned(),
        signature: Signature::nullary(Volatility::Stable),
    })
}

/// A function without arguments that returns a constant text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    name: String,
    aliases: Vec<String>,
    value: String,
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(self.value.clone()))))
    }
}

/// `hash64(a, ..)`: the 64-bit hash by which rows are placed.
#[derive(Debug)]
struct Hash64 {
    signature: Signature,
}

impl Hash64 {
    fn new() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

impl PartialEq for Hash64 {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Hash64 {}

impl Hash for Hash64 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for Hash64 {
    fn name(&self) -> &'static str {
        "hash64"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args.is_empty() {
            return exec_err!("hash64 needs at least one argument");
        }
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns: Vec<ArrayRef> =
            args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<_>>()?;
        let hashes = partita_proto::hash::hash64(&columns)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::UInt64(hashes.first().copied())));
        }
        Ok(ColumnarValue::Array(Arc::new(UInt64Array::from(hashes))))
    }
}

/// `xxh3(text or bytes)`: the plain 64-bit hash of the bytes.
#[derive(Debug)]
struct Xxh3 {
    signature: Signature,
}

impl Xxh3 {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl PartialEq for Xxh3 {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Xxh3 {}

impl Hash for Xxh3 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl ScalarUDFImpl for Xxh3 {
    fn name(&self) -> &'static str {
        "xxh3"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [
                DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::Null,
            ] => Ok(DataType::UInt64),
            _ => exec_err!("xxh3 takes a text or bytes; hash64 takes any value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [array] = arrays.as_slice() else {
            return exec_err!("xxh3 takes one argument");
        };
        let bytes = cast(array, &DataType::BinaryView)?;
        let bytes: &BinaryViewArray = as_binary_view_array(&bytes)?;
        let hashes: UInt64Array = bytes.iter().map(|value| value.map(xxh3_64)).collect();
        if matches!(args.args.as_slice(), [ColumnarValue::Scalar(_)]) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&hashes, 0)?));
        }
        debug_assert_eq!(hashes.len(), bytes.len());
        Ok(ColumnarValue::Array(Arc::new(hashes)))
    }
}
