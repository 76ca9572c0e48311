//! COPY's text and CSV formats, output. Values are written as in PostgreSQL.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;
use partita_worker::Zone;
use partita_worker::value_text::TextColumn;

use super::WriteRow;
use crate::error::SqlError;
use crate::shown_names::shown_name;
use crate::statement::{CopyFormat, CopyHeader, CopyOptions};

pub(super) struct TextEncoder {
    csv: bool,
    options: CopyOptions,
    zone: Zone,
    /// For each column: whether all values are quoted.
    force_quote: Vec<bool>,
}

impl TextEncoder {
    pub(super) fn new(
        schema: &Schema,
        format: CopyFormat,
        options: &CopyOptions,
        zone: Zone,
    ) -> Self {
        let force = |field: &std::sync::Arc<arrow::datatypes::Field>| {
            options.force_quote.contains(shown_name(field))
        };
        Self {
            csv: format == CopyFormat::Csv,
            options: options.clone(),
            zone,
            force_quote: schema.fields().iter().map(force).collect(),
        }
    }

    /// The line of column names, if the options require one.
    pub(super) fn header(&self, schema: &Schema) -> Option<Vec<u8>> {
        if self.options.header == CopyHeader::None {
            return None;
        }
        let mut line = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            if index > 0 {
                line.push(self.options.delimiter);
            }
            self.value(shown_name(field), false, &mut line);
        }
        line.push(b'\n');
        Some(line)
    }

    pub(super) fn batch<'a>(&'a self, batch: &'a RecordBatch) -> Result<WriteRow<'a>, SqlError> {
        let columns = batch
            .columns()
            .iter()
            .map(|array| TextColumn::new(array, self.zone))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = BytesMut::new();
        Ok(Box::new(move |row, line| {
            for (index, column) in columns.iter().enumerate() {
                if index > 0 {
                    line.push(self.options.delimiter);
                }
                if column.is_null(row) {
                    line.extend_from_slice(self.options.null.as_bytes());
                    continue;
                }
                text.clear();
                column.write(row, &mut text)?;
                let text = std::str::from_utf8(&text)
                    .map_err(|_| SqlError::internal("a value's text is not UTF-8"))?;
                self.value(text, self.force_quote[index], line);
            }
            line.push(b'\n');
            Ok(())
        }))
    }

    fn value(&self, text: &str, force_quote: bool, line: &mut Vec<u8>) {
        if self.csv { self.csv_value(text, force_quote, line) } else { self.text_value(text, line) }
    }

    fn csv_value(&self, text: &str, force_quote: bool, line: &mut Vec<u8>) {
        let CopyOptions { delimiter, quote, escape, null, .. } = &self.options;
        let special =
            |byte: u8| byte == *delimiter || byte == *quote || byte == b'\n' || byte == b'\r';
        if !force_quote && text != null && text != "\\." && !text.bytes().any(special) {
            line.extend_from_slice(text.as_bytes());
            return;
        }
        line.push(*quote);
        for byte in text.bytes() {
            if byte == *quote || byte == *escape {
                line.push(*escape);
            }
            line.push(byte);
        }
        line.push(*quote);
    }

    fn text_value(&self, text: &str, line: &mut Vec<u8>) {
        for byte in text.bytes() {
            let letter = match byte {
                8 => b'b',
                12 => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                11 => b'v',
                b'\\' => b'\\',
                byte if byte == self.options.delimiter => byte,
                byte => {
                    line.push(byte);
                    continue;
                }
            };
            line.extend_from_slice(&[b'\\', letter]);
        }
    }
}

/// The ticks of a timestamp array's value.
pub(super) fn ticks(array: &dyn Array, unit: TimeUnit, row: usize) -> i64 {
    use arrow::datatypes::{
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType,
    };
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
    }
}
