//! Digests of answers that can be compared between servers: the number of rows, and the sum of their numbers.
//!
//! A row counts if it has a number (InfluxDB adds rows for minutes without data). Times and tags are not summed,
//! since servers format them differently; tags such as `rack` look like numbers.

use anyhow::{Context, bail};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;

use crate::cpu::{TAGS, TIME};

/// Form of an answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// PostgreSQL's simple protocol.
    Messages(Vec<SimpleQueryMessage>),
    /// Lines of separated values; the first line has the names.
    Lines(Bytes, char),
    /// InfluxDB 1's JSON.
    Influx(Bytes),
    /// The JSON of Prometheus and VictoriaMetrics.
    Matrix(Bytes),
    /// Arrow batches, from the yardstick in this process.
    Batches(Vec<RecordBatch>),
}

/// Maximum relative difference of equal sums: servers add numbers in different orders.
const SUM_TOLERANCE: f64 = 1e-9;

/// Comparable digest of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Digest {
    pub(crate) rows: u64,
    pub(crate) sum: f64,
}

impl Digest {
    pub(crate) fn add(&mut self, digest: Self) {
        self.rows += digest.rows;
        self.sum += digest.sum;
    }

    /// True if the two may be the same answer.
    pub(crate) fn agrees(self, digest: Self) -> bool {
        let size = self.sum.abs().max(digest.sum.abs()).max(1.0);
        self.rows == digest.rows && (self.sum - digest.sum).abs() <= SUM_TOLERANCE * size
    }

    /// Adds a row, given its values to sum.
    fn row(&mut self, values: impl Iterator<Item = Option<f64>>) {
        let mut has_value = false;
        for value in values.flatten() {
            self.sum += value;
            has_value = true;
        }
        self.rows += u64::from(has_value);
    }
}

/// True if a column's values are summed.
fn is_summed(name: &str) -> bool {
    name != TIME && name != "bucket" && !TAGS.contains(&name)
}

/// Computes the digest of an answer.
///
/// # Errors
/// If it has an unexpected form, or is an error.
pub(crate) fn digest(answer: &Answer) -> anyhow::Result<Digest> {
    match answer {
        Answer::Messages(messages) => of_messages(messages),
        Answer::Lines(body, separator) => of_lines(std::str::from_utf8(body)?, *separator),
        Answer::Influx(body) => of_influx(&serde_json::from_slice(body)?),
        Answer::Matrix(body) => of_matrix(&serde_json::from_slice(body)?),
        Answer::Batches(batches) => of_batches(batches),
    }
}

fn of_messages(messages: &[SimpleQueryMessage]) -> anyhow::Result<Digest> {
    let mut digest = Digest::default();
    let mut summed: Vec<usize> = Vec::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                let places = columns.iter().enumerate();
                summed =
                    places.filter(|(_, c)| is_summed(c.name())).map(|(column, _)| column).collect();
            }
            SimpleQueryMessage::Row(row) => {
                let mut values = Vec::with_capacity(summed.len());
                for column in &summed {
                    values.push(row.get(*column).map(number).transpose()?);
                }
                digest.row(values.into_iter());
            }
            _ => {}
        }
    }
    Ok(digest)
}

fn number(text: &str) -> anyhow::Result<f64> {
    text.parse().with_context(|| format!("\"{text}\" is not a number"))
}

/// None of the values contains a separator, so none is quoted.
fn of_lines(text: &str, separator: char) -> anyhow::Result<Digest> {
    let mut lines = text.lines();
    let Some(names) = lines.next() else { return Ok(Digest::default()) };
    let summed: Vec<bool> = names.split(separator).map(is_summed).collect();
    let mut digest = Digest::default();
    for line in lines {
        let mut values = Vec::with_capacity(summed.len());
        for (cell, summed) in line.split(separator).zip(&summed) {
            if *summed {
                let missing = cell.is_empty() || cell == "\\N";
                values.push(if missing { None } else { Some(number(cell)?) });
            }
        }
        digest.row(values.into_iter());
    }
    Ok(digest)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn of_influx(answer: &Value) -> anyhow::Result<Digest> {
    let mut digest = Digest::default();
    for result in array(&answer["results"]) {
        if let Some(error) = result["error"].as_str() {
            bail!("{error}");
        }
        for series in array(&result["series"]) {
            let names = array(&series["columns"]).iter();
            let summed: Vec<_> =
                names.map(|name| is_summed(name.as_str().unwrap_or_default())).collect();
            for row in array(&series["values"]) {
                let values = array(row).iter().zip(&summed).filter(|(_, summed)| **summed);
                digest.row(values.map(|(value, _)| value.as_f64()));
            }
        }
    }
    Ok(digest)
}

fn of_matrix(answer: &Value) -> anyhow::Result<Digest> {
    if answer["status"] != "success" {
        bail!("{}", answer["error"].as_str().unwrap_or("the answer has no status \"success\""));
    }
    let mut digest = Digest::default();
    for series in array(&answer["data"]["result"]) {
        for point in array(&series["values"]) {
            let value = point[1].as_str().context("a point has no value")?;
            digest.row(std::iter::once(Some(number(value)?)));
        }
    }
    Ok(digest)
}

fn of_batches(batches: &[RecordBatch]) -> anyhow::Result<Digest> {
    let mut digest = Digest::default();
    for batch in batches {
        let schema = batch.schema();
        let columns = schema.fields().iter().zip(batch.columns());
        let summed = columns.filter(|(field, _)| is_summed(field.name()));
        let numbers = summed.map(|(_, column)| cast(column, &DataType::Float64));
        let numbers: Vec<ArrayRef> = numbers.collect::<Result<_, _>>()?;
        let numbers: Vec<_> = numbers.iter().map(|c| c.as_primitive::<Float64Type>()).collect();
        for row in 0..batch.num_rows() {
            let values = numbers.iter();
            digest.row(values.map(|column| column.is_valid(row).then(|| column.value(row))));
        }
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn batches_come_down_as_other_answers_do() {
        let hosts: ArrayRef = Arc::new(StringArray::from(vec!["1", "2", "3"]));
        let means: ArrayRef = Arc::new(Float64Array::from(vec![Some(42.5), None, Some(2.0)]));
        let most: ArrayRef = Arc::new(Int64Array::from(vec![None, None, Some(1)]));
        let columns = [("hostname", hosts), ("avg_usage_user", means), ("max", most)];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let answer = digest(&Answer::Batches(vec![batch])).unwrap();
        assert!(answer.agrees(Digest { rows: 2, sum: 45.5 }), "{answer:?}");
        assert!(!answer.agrees(Digest { rows: 3, sum: 45.5 }));
        assert!(!answer.agrees(Digest { rows: 2, sum: 45.6 }));
    }

    #[test]
    fn answers_of_all_servers_come_down_to_the_same() {
        let expected = Digest { rows: 2, sum: 44.5 };
        let csv = "bucket,hostname,avg_usage_user\n2016-01-01T00:00:00,host_1,42.5\n\
                   2016-01-01T01:00:00,host_1,2\n";
        let lines = |text: String, separator| Answer::Lines(text.into(), separator);
        assert_eq!(digest(&lines(csv.to_owned(), ',')).unwrap(), expected);
        assert_eq!(digest(&lines(csv.replace(',', "\t"), '\t')).unwrap(), expected);
        let influx = r#"{"results":[{"statement_id":0,"series":[{"name":"cpu",
            "tags":{"hostname":"host_1"},"columns":["time","mean"],
            "values":[["2016-01-01T00:00:00Z",42.5],["2016-01-01T01:00:00Z",2],
                      ["2016-01-01T02:00:00Z",null]]}]}]}"#;
        assert_eq!(digest(&Answer::Influx(influx.into())).unwrap(), expected);
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{},"values":[[1451606400,"42.5"],[1451610000,"2"]]}]}}"#;
        assert_eq!(digest(&Answer::Matrix(matrix.into())).unwrap(), expected);
    }

    #[test]
    fn tags_that_look_like_numbers_are_not_summed() {
        let text = "hostname,rack,service_version,time,usage_user,usage_idle\n\
                    host_1,17,1,2016-01-01T00:00:00,91,\n";
        let answer = Answer::Lines(text.into(), ',');
        assert_eq!(digest(&answer).unwrap(), Digest { rows: 1, sum: 91.0 });
    }

    #[test]
    fn an_error_is_no_empty_answer() {
        let influx = r#"{"results":[{"statement_id":0,"error":"database not found"}]}"#;
        assert!(digest(&Answer::Influx(influx.into())).is_err());
        assert!(digest(&Answer::Matrix(r#"{"status":"error","error":"x"}"#.into())).is_err());
        assert!(digest(&Answer::Lines("a\nx\n".into(), ',')).is_err());
    }
}
