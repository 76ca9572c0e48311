//! JSON and JSONB: casts, operators and functions as in PostgreSQL.
//!
//! ```text
//!   '{"a": 1}'::json       json_in(..)           a text that is checked
//!   '{"a": 1}'::jsonb      jsonb_in(..)          its normal form
//!   j -> 'a', j ->> 'a'    json_member(j, 'a'), json_member_text(j, 'a')
//!   a @> b, a = b          jsonb_contains(a, b), jsonb_key(a) = jsonb_key(b)
//! ```
//!
//! A value is a text whose field has a mark (`partita_proto::json`): the planner sees the mark where an operator is
//! planned ([`JsonOperators`]), and functions that make JSON of other values see it where they run. Those are not
//! immutable, so that they run at the frontend only: fragments do not keep marks of computed columns.
//!
//! Invariants: a JSONB text is always in its normal form, which is a valid JSON, too, so that parts of both types are
//! slices of their texts; what is written and what is read is bounded (`json/text.rs`).

mod build;
mod casts;
mod changes;
mod containment;
mod define;
mod members;
mod normal;
mod operators;
mod paths;
mod text;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
pub use partita_proto::json::JsonType;

pub use self::build::{GATHERED, GATHERED_OBJECT};
pub use self::casts::{IN_JSON, IN_JSONB, KEY};
pub use self::operators::JsonOperators;
use crate::error::SqlError;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let lists = [casts::FUNCTIONS, members::FUNCTIONS, changes::FUNCTIONS, build::FUNCTIONS];
    lists.into_iter().flatten().map(define::Definition::function)
}

/// Texts as values of a type: checked, and in their normal form for JSONB.
///
/// # Errors
/// 22P02 for a text that is no JSON, 54000 for one that is too long as it is written or in its normal form, and others of
/// its parts.
pub fn stored(texts: &ArrayRef, json: JsonType) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let views = texts.as_string_view();
    match json {
        JsonType::Json => {
            for text in views.iter().flatten() {
                text::checked(text)?;
            }
            Ok(texts)
        }
        JsonType::Jsonb => {
            let normal = views.iter().map(|text| text.map(normal::normalised).transpose());
            Ok(Arc::new(normal.collect::<Result<StringViewArray, SqlError>>()?))
        }
    }
}
