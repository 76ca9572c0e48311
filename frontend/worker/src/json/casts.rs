//! Casts of texts to JSON, and the key by which values of JSONB are compared.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray};
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::Volatility;
use partita_proto::json::JsonType;

use super::define::{Call, Definition, Gives};
use super::normal::{Value, normalised, sort_key};
use super::text::checked;
use crate::error::SqlError;
use crate::plain::{Texts, all, is_text};

/// Name of the function that is a cast to JSON.
pub const IN_JSON: &str = "json_in";
/// Name of the function that is a cast to JSONB.
pub const IN_JSONB: &str = "jsonb_in";
/// Name of the function whose results compare as values of JSONB do.
pub const KEY: &str = "jsonb_key";

/// The functions to register.
pub(super) static FUNCTIONS: &[Definition] = &[
    Definition {
        name: IN_JSON,
        takes: text,
        gives: Gives::Json(JsonType::Json),
        volatility: Volatility::Immutable,
        run: |call| each(call, |text| checked(text).map(|_| text.to_owned())),
    },
    Definition {
        name: IN_JSONB,
        takes: text,
        gives: Gives::Json(JsonType::Jsonb),
        volatility: Volatility::Immutable,
        run: |call| each(call, normalised),
    },
    // GreptimeDB's names of casts.
    Definition {
        name: "parse_json",
        takes: text,
        gives: Gives::Json(JsonType::Jsonb),
        volatility: Volatility::Immutable,
        run: |call| each(call, normalised),
    },
    Definition {
        name: "json_to_string",
        takes: text,
        gives: Gives::Text,
        volatility: Volatility::Immutable,
        run: |call| each(call, |text| checked(text).map(str::to_owned)),
    },
    Definition {
        name: KEY,
        takes: text,
        gives: Gives::Bytes,
        volatility: Volatility::Immutable,
        run: keys,
    },
];

fn text(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 1, is_text, &DataType::Utf8View)
}

fn each(call: &Call<'_>, make: impl Fn(&str) -> Result<String, SqlError>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    let mut results = Texts::new(call.name, call.rows);
    for text in &texts {
        results.push(text.map(&make).transpose()?)?;
    }
    Ok(results.finish())
}

fn keys(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    let key = |text: &str| Ok::<_, SqlError>(sort_key(&Value::read(text)?));
    let keys: Vec<Option<Vec<u8>>> =
        texts.iter().map(|text| text.map(key).transpose()).collect::<Result<_, SqlError>>()?;
    Ok(Arc::new(keys.iter().map(Option::as_deref).collect::<BinaryViewArray>()))
}
