//! Context of functions over `pg_catalog`, which is the session's viewer and database, and values of arguments.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use partita_frontend::access::viewer::Viewer;

use super::objects::{Object, Objects};

/// The context of a call that shows objects.
pub(super) struct ViewerContext<'a> {
    pub(super) objects: &'a Objects,
    pub(super) viewer: &'a Viewer,
    /// The session's database.
    pub(super) database: &'a str,
}

impl ViewerContext<'_> {
    /// The object with the id of an argument, if the viewer sees it.
    pub(super) fn object(&self, values: &[ScalarValue], index: usize) -> Option<Object> {
        self.objects.find(&self.viewer.catalog(), number(values, index)?)
    }
}

pub(super) fn bool(value: bool) -> ScalarValue {
    ScalarValue::Boolean(Some(value))
}

pub(super) fn text(value: Option<String>) -> ScalarValue {
    ScalarValue::Utf8(value)
}

/// The argument at an index as a number.
pub(super) fn number(values: &[ScalarValue], index: usize) -> Option<i32> {
    match values.get(index)?.cast_to(&DataType::Int32).ok()? {
        ScalarValue::Int32(number) => number,
        _ => None,
    }
}

/// The argument at an index as text.
pub(super) fn string(values: &[ScalarValue], index: usize) -> Option<String> {
    match values.get(index)?.cast_to(&DataType::Utf8).ok()? {
        ScalarValue::Utf8(text) => text,
        _ => None,
    }
}
