//! SQL functions that DataFusion does not have, or answers differently.
//!
//! - `hash64(a, b, ..)`: the hash that places rows, so that a key column can be made of it;
//! - `xxh3(text or bytes)`: the plain 64-bit hash of the bytes;
//! - `version()`: what clients ask when they connect;
//! - `json_build_object`: PostgreSQL's (`json.rs`);
//! - `to_char`: DataFusion's, with PostgreSQL's patterns (`to_char.rs`);
//! - `string_agg` and `array_agg`: DataFusion's, within bounds in windows (`gathered.rs`);
//! - `avg` and `sum`: DataFusion's, faster over rows that lie together (`runs.rs`), and without sums of integers that
//!   wrap (`whole.rs`);
//! - `repeat`, `lpad` and others that make large values: DataFusion's, within bounds (`bounded.rs`);
//! - what stands for `/` and `%` of floats, which refuse zero (`float_division.rs`), and for `+`, `-` and `*` of them, which
//!   know one NaN (`float_arithmetic.rs`);
//! - `mod` and `div` (`division.rs`), and `sign`, `every` and `variance`, which have other names there;
//! - `date_trunc` and `date_bin`: over times of every unit, faster where they ascend (`steps.rs`);
//! - `now` and `to_timestamp`: DataFusion's, in microseconds (`clock.rs`);
//! - `timezone`, which is AT TIME ZONE, and what else depends on a time zone (`zoned.rs`);
//! - what stands for `+`, `-` and `*` of integers, which do not wrap either (`checked.rs`);
//! - what stands for `||` of texts, within bounds too (`concatenation.rs`);
//! - what stands around constants that rows would hold many times (`wide.rs`);
//! - `date_part`, and what stands for `extract`: DataFusion's, with fractions of seconds (`parts.rs`);
//! - `max` and `min`: DataFusion's, with NaN as the greatest, and of intervals (`extremes.rs`);
//! - what stands for `greatest` and `least` of intervals (`extremes.rs`);
//! - what stands for casts of decimals to doubles (`doubles.rs`);
//! - what stands for casts between texts and bytes (`bytea.rs`), and of other values to texts (`value_texts.rs`);
//! - what stands for `*` and `/` of intervals by numbers (`intervals.rs`);
//! - `round`, `ln`, `length` and others that PostgreSQL's take more, or refuse more (`adjusted.rs`), `ceil`, `floor` and
//!   `trunc` of decimals (`digits.rs`), what stands for `/`
//!   of exact numbers (`number_division.rs`), and what DataFusion does not have: `quote_ident` and `format` (`quoting.rs`),
//!   `age` and `make_interval` (`made_times.rs`), `width_bucket` (`numbers.rs`), `encode` (`encodings.rs`);
//! - what stands for SIMILAR TO (`similar.rs`) and OVERLAPS (`overlaps.rs`), and `pg_sleep` (`sleep.rs`);
//! - what stands for casts to CHAR(n) (`padded.rs`);
//! - what stands for the value of a subquery that became a join (`only_row.rs`);
//! - what stands for intervals where they are compared (`interval_order.rs`), and for casts of texts to them
//!   (`interval_text.rs`);
//! - what stands around values of VALUES until their types are known (`listed.rs`);
//! - what stands around what is cast to fewer digits (`casts.rs`), and around what is grouped by (`apart.rs`).
//!
//! A part of a query that runs at a node finds them there under the same names.

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
    adjusted, aggregates, apart, arrays, bounded, bytea, casts, checked, clock, concatenation,
    division, doubles, encodings, extremes, float_arithmetic, float_division, interval_order,
    interval_text, intervals, json, listed, made_times, number_division, numbers, only_row,
    overlaps, padded, parts, quoting, regular, similar, sleep, steps, time_read, to_char,
    value_texts, wide, zoned,
};

/// The version of PostgreSQL whose clients know what to expect here.
pub const POSTGRES_VERSION: &str = "16.6";

/// What `version()` says; clients parse the number behind "PostgreSQL".
pub fn version_text() -> String {
    format!("PostgreSQL {POSTGRES_VERSION} (Partita {})", env!("CARGO_PKG_VERSION"))
}

/// The functions that are the same in every session.
pub fn shared() -> Vec<ScalarUDF> {
    let own = [
        ScalarUDF::from(Hash64::new()),
        ScalarUDF::from(Xxh3::new()),
        apart::function(),
        concatenation::function(),
        interval_order::function(),
        interval_text::function(),
        json::function(),
        only_row::function(),
        overlaps::function(),
        sleep::function(),
        padded::function(),
        to_char::function(),
        number_division::function(),
        wide::function(),
        constant("version", &[], &version_text()),
    ];
    let own = own.into_iter().chain(steps::functions()).chain(bounded::functions());
    let own = own.chain(casts::functions()).chain(checked::functions());
    let own = own.chain(division::functions()).chain(under_other_names());
    let own = own.chain(intervals::functions()).chain(clock::functions());
    let own = own.chain(extremes::functions()).chain(parts::functions());
    let own = own.chain(bytea::functions()).chain(doubles::functions());
    let own = own.chain(zoned::functions()).chain(value_texts::functions());
    let own = own.chain(adjusted::functions()).chain(encodings::functions());
    let own = own.chain(made_times::functions()).chain(numbers::functions());
    let own = own.chain(float_arithmetic::functions()).chain(listed::functions());
    let own = own.chain(float_division::functions()).chain(similar::functions());
    let own = own.chain(quoting::functions()).chain(regular::functions());
    own.chain(time_read::functions()).chain(arrays::functions()).collect()
}

/// Functions of DataFusion's under the names that they have in PostgreSQL.
fn under_other_names() -> impl Iterator<Item = ScalarUDF> {
    // An array's functions of one element are of the first one there.
    let named = [
        ("signum", "sign"),
        ("array_remove_all", "array_remove"),
        ("array_replace_all", "array_replace"),
    ]
    .into_iter();
    named.filter_map(|(name, other)| Some(builtin(name)?.as_ref().clone().with_aliases([other])))
}

/// The aggregates that are the same in every session.
pub fn shared_aggregates() -> Vec<Arc<AggregateUDF>> {
    let theirs = SessionStateDefaults::default_aggregate_functions();
    let variance = theirs.iter().find(|function| function.name() == "var");
    let variance =
        variance.map(|function| Arc::new(function.as_ref().clone().with_aliases(["variance"])));
    aggregates::replaced().chain(variance).collect()
}

/// A function of DataFusion's, by its name or an alias.
pub(crate) fn builtin(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    static ALL: LazyLock<Vec<Arc<ScalarUDF>>> =
        LazyLock::new(SessionStateDefaults::default_scalar_functions);
    let is_named = |function: &&Arc<ScalarUDF>| {
        function.name() == name || function.aliases().iter().any(|alias| alias == name)
    };
    ALL.iter().find(is_named)
}

/// The functions that every node has: DataFusion's, and [`shared`] and [`shared_aggregates`] over them.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) scalar: HashMap<String, Arc<ScalarUDF>>,
    pub(crate) aggregate: HashMap<String, Arc<AggregateUDF>>,
}

/// The one there is.
pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let own = shared().into_iter().map(Arc::new);
    let mut scalar = HashMap::new();
    for function in SessionStateDefaults::default_scalar_functions().into_iter().chain(own) {
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

/// Whether an aggregate has this name.
pub fn is_aggregate(name: &str) -> bool {
    REGISTRY.aggregate.contains_key(name)
}

/// A function without arguments and with one answer, under a name and others.
pub fn constant(name: &str, aliases: &[&str], value: &str) -> ScalarUDF {
    ScalarUDF::from(Constant {
        name: name.to_owned(),
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        value: value.to_owned(),
        signature: Signature::nullary(Volatility::Stable),
    })
}

/// A function without arguments and with one answer.
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

/// `hash64(a, ..)`.
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

/// `xxh3(text or bytes)`.
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
            _ => exec_err!("xxh3 takes a text or bytes; hash64 takes anything"),
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
