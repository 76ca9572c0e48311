//! JSON and JSONB: the two types whose values are texts of JSON.
//!
//! Columns of both are stored as texts, so that keys, files, logs and messages treat them as any other text. A mark tells
//! them apart: [`Column::json`](crate::schema::Column::json) in a schema, and metadata of the field in rows and plans.
//! The metadata is Arrow's extension type `arrow.json`, which casts to other types remove, and a key of our own that
//! says which of both it is.

use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};

/// Arrow's key of the name of an extension type.
const EXTENSION_NAME: &str = "ARROW:extension:name";
/// Arrow's extension type of JSON.
const EXTENSION: &str = "arrow.json";
/// Key of the type's name in SQL. It counts only beside the extension type.
const NAME: &str = "partita.json";

/// One of both types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JsonType {
    /// JSON: the text as it was written.
    Json,
    /// JSONB: the text in a normal form, in which keys are unique and ordered.
    Jsonb,
}

impl JsonType {
    /// Name of the type in SQL, in upper case.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Jsonb => "JSONB",
        }
    }

    /// PostgreSQL's name of the type.
    pub const fn postgres(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Jsonb => "jsonb",
        }
    }

    /// Marks a field of texts.
    #[must_use]
    pub fn marked(self, mut field: Field) -> Field {
        let metadata = field.metadata_mut();
        metadata.insert(EXTENSION_NAME.to_owned(), EXTENSION.to_owned());
        metadata.insert(NAME.to_owned(), self.postgres().to_owned());
        field
    }

    /// The type of a field; `None` for fields of other types. A mark counts on texts only.
    pub fn of_field(field: &Field) -> Option<Self> {
        if field.data_type().is_string() { Self::of_mark(field) } else { None }
    }

    /// The type of the elements of a list: aggregates pass the mark of an element on to the list of all.
    pub fn of_elements(field: &Field) -> Option<Self> {
        if field.data_type().is_list() { Self::of_mark(field) } else { None }
    }

    fn of_mark(field: &Field) -> Option<Self> {
        let metadata = field.metadata();
        if metadata.get(EXTENSION_NAME).map(String::as_str) != Some(EXTENSION) {
            return None;
        }
        // JSON that a client marks has no name of ours.
        match metadata.get(NAME).map(String::as_str) {
            Some("jsonb") => Some(Self::Jsonb),
            _ => Some(Self::Json),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn a_mark_counts_on_texts_and_with_the_extension_type() {
        for json in [JsonType::Json, JsonType::Jsonb] {
            let field = json.marked(Field::new("j", DataType::Utf8View, true));
            assert_eq!(JsonType::of_field(&field), Some(json));
            assert_eq!(JsonType::of_elements(&field), None);
            let bytes = field.clone().with_data_type(DataType::BinaryView);
            assert_eq!(JsonType::of_field(&bytes), None);
            let list = field.clone().with_data_type(DataType::new_list(DataType::Utf8View, true));
            assert_eq!(JsonType::of_elements(&list), Some(json));
            // As a cast to another type leaves it.
            let mut text = field;
            text.metadata_mut().remove(EXTENSION_NAME);
            assert_eq!(JsonType::of_field(&text), None);
        }
        assert_eq!(JsonType::of_field(&Field::new("t", DataType::Utf8View, true)), None);
    }
}
