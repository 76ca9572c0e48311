//! COPY's NDJSON format: a JSON object on each line, whose keys are the names of columns.
//!
//! Numbers, booleans and null stand as such, everything else as a text of the form that COPY's text format has. So no
//! digit of a decimal is lost on the way, and a value comes back as it went out. On input a column without a key is
//! NULL, a key without a column is an error, and arrays and objects are taken as their JSON text; in columns of arrays
//! an array is taken by its elements.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;
use partita_worker::Zone;
use partita_worker::value_text::TextColumn;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::rows::Rows;
use super::{BAD_COPY_FORMAT, Decoded, WriteRow};
use crate::error::SqlError;
use crate::shown_names::shown_name;

/// Decodes lines.
pub(super) struct NdjsonDecoder {
    /// Positions of columns by name.
    positions: HashMap<String, usize>,
    /// Bytes of the current line that have been searched for its end.
    searched: usize,
}

impl NdjsonDecoder {
    pub(super) fn new(columns: &[String]) -> Self {
        let names = columns.iter().cloned();
        let positions = names.enumerate().map(|(position, name)| (name, position)).collect();
        Self { positions, searched: 0 }
    }

    /// Decodes the line at the start of the bytes, which are not empty.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
    ) -> Result<Decoded, SqlError> {
        let newline = bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let (end, used) = match newline {
            Some(offset) => (self.searched + offset, self.searched + offset + 1),
            None if last => (bytes.len(), bytes.len()),
            None => {
                self.searched = bytes.len();
                return Ok(Decoded::Partial);
            }
        };
        self.searched = 0;
        let line = rows.utf8(&bytes[..end])?.trim_ascii();
        if line.is_empty() {
            rows.skip_lines(1);
            return Ok(Decoded::Used(used));
        }
        self.row(line, rows)?;
        rows.end_row(used, 1)?;
        Ok(Decoded::Used(used))
    }

    fn row(&self, line: &str, rows: &mut Rows) -> Result<(), SqlError> {
        let mut text = serde_json::Deserializer::from_str(line);
        let object = ObjectOf(&self.positions).deserialize(&mut text);
        let object = object.and_then(|object| text.end().map(|()| object));
        let Object { values, unknown } = object.map_err(|error| malformed(rows, &error))?;
        if let Some(key) = unknown {
            return Err(rows.unknown(&key));
        }
        for (position, value) in values.into_iter().enumerate() {
            match value {
                Some(value) => append(position, value.get(), rows)?,
                None => rows.append_null(position),
            }
        }
        Ok(())
    }
}

/// The values of one row.
struct Object<'t> {
    /// By position of the column, as they are written.
    values: Vec<Option<&'t RawValue>>,
    /// First key that is no column.
    unknown: Option<String>,
}

/// Reads an object with these columns. Keys that are no columns take no memory, and of equal keys the last one counts.
struct ObjectOf<'c>(&'c HashMap<String, usize>);

impl<'t> DeserializeSeed<'t> for ObjectOf<'_> {
    type Value = Object<'t>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Object<'t>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for ObjectOf<'_> {
    type Value = Object<'t>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut entries: A) -> Result<Object<'t>, A::Error> {
        let mut object = Object { values: vec![None; self.0.len()], unknown: None };
        while let Some(key) = entries.next_key::<String>()? {
            match self.0.get(&key).and_then(|position| object.values.get_mut(*position)) {
                Some(value) => *value = Some(entries.next_value()?),
                None => {
                    entries.next_value::<IgnoredAny>()?;
                    object.unknown.get_or_insert(key);
                }
            }
        }
        Ok(object)
    }
}

/// Appends a value by its JSON text.
fn append(position: usize, value: &str, rows: &mut Rows) -> Result<(), SqlError> {
    if value == "null" {
        rows.append_null(position);
        return Ok(());
    }
    if value.starts_with('[') && rows.is_array(position) {
        let elements: Vec<&RawValue> =
            serde_json::from_str(value).map_err(|error| malformed(rows, &error))?;
        let texts = elements.into_iter().map(|element| match element.get() {
            "null" => Ok(None),
            element => text_of(element, rows).map(|text| Some(text.into_owned())),
        });
        let texts = texts.collect::<Result<Vec<_>, SqlError>>()?;
        return rows.append(position, |builder| builder.append_texts(&texts));
    }
    let text = text_of(value, rows)?;
    rows.append_text(position, &text)
}

/// The text of a JSON value: of a string its content.
fn text_of<'t>(value: &'t str, rows: &Rows) -> Result<Cow<'t, str>, SqlError> {
    if !value.starts_with('"') {
        return Ok(Cow::Borrowed(value));
    }
    let text: String = serde_json::from_str(value).map_err(|error| malformed(rows, &error))?;
    // An escape may stand for a zero byte, which no text has.
    rows.utf8(text.as_bytes())?;
    Ok(Cow::Owned(text))
}

fn malformed(rows: &Rows, error: &serde_json::Error) -> SqlError {
    rows.located(SqlError::new(BAD_COPY_FORMAT, format!("invalid JSON object: {error}")))
}

/// Encodes rows.
pub(super) struct NdjsonEncoder {
    /// Before the value of each column: its name and a colon.
    keys: Vec<Vec<u8>>,
    forms: Vec<ValueForm>,
    zone: Zone,
}

/// How values of a column stand in JSON.
#[derive(Clone, Copy)]
enum ValueForm {
    Number,
    Boolean,
    Text,
}

impl NdjsonEncoder {
    /// An encoder for rows of a schema.
    ///
    /// # Errors
    /// When a name cannot be written.
    pub(super) fn new(schema: &Schema, zone: Zone) -> Result<Self, SqlError> {
        let mut keys = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let mut key = Vec::new();
            append_string(shown_name(field), &mut key)?;
            key.push(b':');
            keys.push(key);
        }
        let form = |data_type: &DataType| match data_type {
            DataType::Boolean => ValueForm::Boolean,
            numeric if numeric.is_numeric() => ValueForm::Number,
            _ => ValueForm::Text,
        };
        let forms = schema.fields().iter().map(|field| form(field.data_type())).collect();
        Ok(Self { keys, forms, zone })
    }

    pub(super) fn batch<'a>(&'a self, batch: &'a RecordBatch) -> Result<WriteRow<'a>, SqlError> {
        let columns = batch
            .columns()
            .iter()
            .map(|array| TextColumn::new(array, self.zone))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = BytesMut::new();
        Ok(Box::new(move |row, line| {
            line.push(b'{');
            for (position, column) in columns.iter().enumerate() {
                if position > 0 {
                    line.push(b',');
                }
                line.extend_from_slice(&self.keys[position]);
                if column.is_null(row) {
                    line.extend_from_slice(b"null");
                    continue;
                }
                text.clear();
                column.write(row, &mut text)?;
                let text = std::str::from_utf8(&text)
                    .map_err(|_| SqlError::internal("a value's text is not UTF-8"))?;
                append_value(self.forms[position], text, line)?;
            }
            line.extend_from_slice(b"}\n");
            Ok(())
        }))
    }
}

fn append_value(form: ValueForm, text: &str, line: &mut Vec<u8>) -> Result<(), SqlError> {
    match form {
        ValueForm::Boolean => {
            let word: &[u8] = if text == "t" { b"true" } else { b"false" };
            line.extend_from_slice(word);
            Ok(())
        }
        // NaN and the infinities are no numbers of JSON.
        ValueForm::Number if text.ends_with(|last: char| last.is_ascii_digit()) => {
            line.extend_from_slice(text.as_bytes());
            Ok(())
        }
        ValueForm::Number | ValueForm::Text => append_string(text, line),
    }
}

fn append_string(text: &str, line: &mut Vec<u8>) -> Result<(), SqlError> {
    serde_json::to_writer(line, text)
        .map_err(|error| SqlError::internal(format!("a text cannot be written as JSON: {error}")))
}
