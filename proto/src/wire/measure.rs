//! Measures of tables.

use super::{Wire, all, pb, required};
use crate::cardinality::Distinct;
use crate::error::Error;
use crate::id::ColumnId;
use crate::index::IndexKind;
use crate::measure::{
    ColumnMeasures, DISTINCT_PRECISION, INTERVAL_BUCKETS, IndexBuild, Intervals, LENGTH_BUCKETS,
    LargeRows, PartitionMeasures, RowSize, SAMPLE_MAX, Sampled, TableMeasures, hash_of_upper,
    upper_half,
};
use crate::value::Value;

impl Wire for TableMeasures {
    type Message = pb::TableMeasures;

    fn to_wire(&self) -> pb::TableMeasures {
        let shape = |(fields, rows): (&u64, &u64)| pb::RowShape { fields: *fields, rows: *rows };
        let column =
            |(column, measures): (&ColumnId, &ColumnMeasures)| column_to_wire(*column, measures);
        pb::TableMeasures {
            rows: self.rows,
            deletes: self.deletes,
            columns: self.columns.iter().map(column).collect(),
            shapes: self.shapes.iter().map(shape).collect(),
            intervals: (self.intervals != Intervals::default()).then(|| self.intervals.to_wire()),
            split_rows: self.split_rows,
            unmeasured: self.unmeasured,
            row_bytes_max: self.row_bytes_max,
            large_rows: self.large_rows.iter().map(large_row_to_wire).collect(),
        }
    }

    fn from_wire(message: pb::TableMeasures) -> Result<Self, Error> {
        let columns = message.columns.into_iter().map(column_from_wire);
        let shapes = message.shapes.into_iter().map(|shape| (shape.fields, shape.rows));
        Ok(Self {
            rows: message.rows,
            deletes: message.deletes,
            columns: columns.collect::<Result<_, _>>()?,
            shapes: shapes.collect(),
            intervals: message.intervals.map(Wire::from_wire).transpose()?.unwrap_or_default(),
            split_rows: message.split_rows,
            unmeasured: message.unmeasured,
            row_bytes_max: message.row_bytes_max,
            large_rows: large_rows_from_wire(message.large_rows)?,
        })
    }
}

fn large_row_to_wire((row_key, size): (&Value, &RowSize)) -> pb::LargeRow {
    let RowSize { bytes, cells } = *size;
    pb::LargeRow { row_key: Some(row_key.to_wire()), bytes, cells }
}

fn large_rows_from_wire(messages: Vec<pb::LargeRow>) -> Result<LargeRows, Error> {
    let mut rows = LargeRows::default();
    for message in messages {
        let size = RowSize { bytes: message.bytes, cells: message.cells };
        rows.add(required(message.row_key, "row key")?, size);
    }
    Ok(rows)
}

fn column_to_wire(column: ColumnId, measures: &ColumnMeasures) -> pb::ColumnMeasures {
    let (hashes, registers) = measures.distinct.parts();
    pb::ColumnMeasures {
        column: column.0,
        values: measures.values,
        nulls: measures.nulls,
        hashes: hashes.iter().map(|hash| upper_half(*hash)).collect(),
        registers: registers.to_vec(),
        bytes: measures.bytes,
        lengths: measures.lengths.clone(),
        length_max: measures.length_max,
        sample: measures.sample.iter().map(Wire::to_wire).collect(),
        min: measures.min.as_ref().map(Wire::to_wire),
        max: measures.max.as_ref().map(Wire::to_wire),
        ascending: measures.ascending,
        compared: measures.compared,
    }
}

fn column_from_wire(message: pb::ColumnMeasures) -> Result<(ColumnId, ColumnMeasures), Error> {
    let hashes = message.hashes.into_iter().map(hash_of_upper).collect();
    let sample: Vec<Sampled> = all(message.sample)?;
    let ascends = sample.windows(2).all(|pair| pair[0].hash < pair[1].hash);
    if sample.len() > SAMPLE_MAX || !ascends || !has(&message.lengths, LENGTH_BUCKETS) {
        return Err(malformed());
    }
    let measures = ColumnMeasures {
        values: message.values,
        nulls: message.nulls,
        distinct: Distinct::of_parts(DISTINCT_PRECISION, hashes, message.registers)?,
        bytes: message.bytes,
        lengths: message.lengths,
        length_max: message.length_max,
        sample,
        min: message.min.map(Value::from_wire).transpose()?,
        max: message.max.map(Value::from_wire).transpose()?,
        ascending: message.ascending,
        compared: message.compared,
    };
    Ok((ColumnId(message.column), measures))
}

/// True for a histogram of so many buckets, or of nothing.
fn has(histogram: &[u64], buckets: usize) -> bool {
    histogram.is_empty() || histogram.len() == buckets
}

fn malformed() -> Error {
    Error::Corrupted("measures of a table are malformed".to_owned())
}

impl Wire for Sampled {
    type Message = pb::MeasuredValue;

    fn to_wire(&self) -> pb::MeasuredValue {
        pb::MeasuredValue { hash: self.hash, value: Some(self.value.to_wire()) }
    }

    fn from_wire(message: pb::MeasuredValue) -> Result<Self, Error> {
        Ok(Self { hash: message.hash, value: required(message.value, "sampled value")? })
    }
}

impl Wire for Intervals {
    type Message = pb::IntervalMeasures;

    fn to_wire(&self) -> pb::IntervalMeasures {
        let ((sum_low, sum_high), (squares_low, squares_high)) =
            (halves(self.sum), halves(self.squares));
        pb::IntervalMeasures {
            histogram: self.histogram.clone(),
            sum_low,
            sum_high,
            squares_low,
            squares_high,
        }
    }

    fn from_wire(message: pb::IntervalMeasures) -> Result<Self, Error> {
        if !has(&message.histogram, INTERVAL_BUCKETS) {
            return Err(malformed());
        }
        Ok(Self {
            histogram: message.histogram,
            sum: joined(message.sum_low, message.sum_high),
            squares: joined(message.squares_low, message.squares_high),
        })
    }
}

/// The lower and the upper 64 bits.
fn halves(number: u128) -> (u64, u64) {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    (half(number), half(number >> 64))
}

fn joined(low: u64, high: u64) -> u128 {
    (u128::from(high) << 64) | u128::from(low)
}

impl Wire for PartitionMeasures {
    type Message = pb::PartitionMeasures;

    fn to_wire(&self) -> pb::PartitionMeasures {
        let bytes = |(column, bytes): (&ColumnId, &u64)| pb::ColumnBytes {
            column: column.0,
            bytes: *bytes,
        };
        pb::PartitionMeasures {
            measures: Some(self.measures.to_wire()),
            indexes: self.indexes.iter().map(Wire::to_wire).collect(),
            column_bytes: self.column_bytes.iter().map(bytes).collect(),
            folded: self.folded,
        }
    }

    fn from_wire(message: pb::PartitionMeasures) -> Result<Self, Error> {
        let bytes = message.column_bytes.into_iter();
        Ok(Self {
            measures: required(message.measures, "measures")?,
            indexes: all(message.indexes)?,
            column_bytes: bytes.map(|bytes| (ColumnId(bytes.column), bytes.bytes)).collect(),
            folded: message.folded,
        })
    }
}

impl Wire for IndexBuild {
    type Message = pb::IndexBuild;

    fn to_wire(&self) -> pb::IndexBuild {
        pb::IndexBuild {
            column: self.column.0,
            kind: self.kind.to_wire(),
            files: self.files,
            files_done: self.files_done,
            bytes: self.bytes,
        }
    }

    fn from_wire(message: pb::IndexBuild) -> Result<Self, Error> {
        Ok(Self {
            column: ColumnId(message.column),
            kind: IndexKind::from_wire(message.kind)?,
            files: message.files,
            files_done: message.files_done,
            bytes: message.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{TYPES, batch, nullable, table};
    use crate::schema::{ColumnType, Semantic};

    fn report(measures: TableMeasures) -> PartitionMeasures {
        let build = |kind| IndexBuild {
            column: ColumnId(3),
            kind,
            files: 5,
            files_done: 2,
            bytes: 1 << 40,
        };
        PartitionMeasures {
            measures,
            indexes: IndexKind::ALL.map(build).to_vec(),
            column_bytes: BTreeMap::from([(ColumnId(1), 7), (ColumnId(2), u64::MAX)]),
            folded: 9,
        }
    }

    #[test]
    fn measures_of_many_values_come_back() {
        let schema = table(&[ColumnType::Int64, ColumnType::String]);
        let rows: Vec<Vec<Value>> = (0..2_000)
            .map(|number| vec![Value::Int(number), Value::String(format!("value {number}"))])
            .collect();
        let mut measures = TableMeasures::default();
        measures.add_rows(&schema, &batch(&schema, &rows)).unwrap();
        assert!(!measures.columns[&ColumnId(1)].distinct.is_exact());
        measures.intervals = Intervals {
            histogram: vec![3; INTERVAL_BUCKETS],
            sum: u128::MAX - 5,
            squares: 1 << 64,
        };
        measures.add_unmeasured();
        let size = RowSize { bytes: 1 << 40, cells: 9 };
        measures.large_rows.add(Value::Binary(vec![0, 255]), size);
        let report = report(measures);
        assert_eq!(PartitionMeasures::decode_wire(report.encode_wire()).unwrap(), report);
    }

    #[test]
    fn measures_that_no_rows_have_are_refused() {
        let column = pb::ColumnMeasures::default();
        assert!(column_from_wire(column.clone()).is_ok());
        let lengths = pb::ColumnMeasures { lengths: vec![1; 32], ..column.clone() };
        assert!(column_from_wire(lengths).is_err());
        let value = pb::MeasuredValue { hash: 5, value: Some(Value::Int(1).to_wire()) };
        let sample = pb::ColumnMeasures { sample: vec![value.clone(), value], ..column.clone() };
        assert!(column_from_wire(sample).is_err(), "a hash twice");
        let hashes = pb::ColumnMeasures { hashes: vec![2, 1], ..column };
        assert!(column_from_wire(hashes).is_err(), "hashes that descend");
        let intervals = pb::IntervalMeasures { histogram: vec![1], ..Default::default() };
        assert!(Intervals::from_wire(intervals).is_err());
    }

    proptest! {
        #[test]
        fn measures_come_back(rows in {
            let row: Vec<_> = TYPES.map(|column_type| nullable(column_type).boxed()).to_vec();
            vec(row, 0..20)
        }) {
            let mut schema = table(&TYPES);
            schema.key.truncate(1);
            for column in &mut schema.columns[1..] {
                column.semantic = Semantic::Field;
            }
            // The last of the types is a timestamp.
            schema.columns.last_mut().unwrap().semantic = Semantic::TimeIndex;
            let mut measures = TableMeasures::default();
            measures.add_rows(&schema, &batch(&schema, &rows)).unwrap();
            prop_assert_eq!(&TableMeasures::decode_wire(measures.encode_wire()).unwrap(), &measures);
            let report = report(measures);
            prop_assert_eq!(PartitionMeasures::decode_wire(report.encode_wire()).unwrap(), report);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(measures) = TableMeasures::decode_wire(bytes.clone().into()) {
                let mut sum = measures.clone();
                sum.merge(&measures);
                for column in sum.columns.values() {
                    column.length_quantile(0.95);
                    column.numeric_share();
                }
                sum.intervals.deviation();
            }
            if let Ok(report) = PartitionMeasures::decode_wire(bytes.into()) {
                let mut sum = report.clone();
                sum.merge(&report);
            }
        }
    }
}
