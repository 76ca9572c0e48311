//! Sketches of series.

use std::collections::BTreeMap;

use super::{Wire, missing, pb};
use crate::cardinality::{
    Distinct, Partner, SERIES_PRECISION, SeriesSketch, TagSketch, VALUE_PRECISION,
};
use crate::error::Error;
use crate::id::ColumnId;

impl Wire for SeriesSketch {
    type Message = pb::SeriesSketch;

    fn to_wire(&self) -> pb::SeriesSketch {
        pb::SeriesSketch {
            tag_sets: Some(distinct_to_wire(&self.tag_sets)),
            series: Some(distinct_to_wire(&self.series)),
            tags: self.tags.iter().map(|(column, tag)| tag_to_wire(*column, tag)).collect(),
            fields: self.fields.iter().map(|column| column.0).collect(),
            unsketched: self.unsketched,
        }
    }

    fn from_wire(message: pb::SeriesSketch) -> Result<Self, Error> {
        Ok(Self {
            tag_sets: distinct_from_wire(message.tag_sets, SERIES_PRECISION)?,
            series: distinct_from_wire(message.series, SERIES_PRECISION)?,
            tags: message.tags.into_iter().map(tag_from_wire).collect::<Result<_, _>>()?,
            fields: message.fields.into_iter().map(ColumnId).collect(),
            unsketched: message.unsketched,
        })
    }
}

fn distinct_to_wire(sketch: &Distinct) -> pb::DistinctSketch {
    let (hashes, registers) = sketch.parts();
    pb::DistinctSketch { hashes: hashes.to_vec(), registers: registers.to_vec() }
}

fn distinct_from_wire(
    message: Option<pb::DistinctSketch>,
    precision: u32,
) -> Result<Distinct, Error> {
    let message = message.ok_or_else(|| missing("sketch of distinct values"))?;
    Distinct::of_parts(precision, message.hashes, message.registers)
}

fn tag_to_wire(column: ColumnId, tag: &TagSketch) -> pb::TagSketch {
    let sampled = |(hash, partners): (&u64, &BTreeMap<ColumnId, Partner>)| {
        let partner_hash = |partner: &Partner| match partner {
            Partner::One(hash) => *hash,
            Partner::Several => 0,
        };
        let several = partners.iter().filter(|(_, partner)| **partner == Partner::Several);
        pb::SampledValue {
            hash: *hash,
            columns: partners.keys().map(|column| column.0).collect(),
            partners: partners.values().map(partner_hash).collect(),
            several: several.map(|(column, _)| column.0).collect(),
        }
    };
    pb::TagSketch {
        column: column.0,
        values: Some(distinct_to_wire(&tag.values)),
        has_null: tag.has_null,
        sample: tag.sample.iter().map(sampled).collect(),
    }
}

fn tag_from_wire(message: pb::TagSketch) -> Result<(ColumnId, TagSketch), Error> {
    let mut sample = BTreeMap::new();
    for value in message.sample {
        if value.columns.len() != value.partners.len() {
            return Err(Error::Corrupted("a sample of tags is malformed".to_owned()));
        }
        let mut partners: BTreeMap<ColumnId, Partner> = value
            .columns
            .into_iter()
            .zip(value.partners)
            .map(|(column, hash)| (ColumnId(column), Partner::One(hash)))
            .collect();
        for column in value.several {
            partners.insert(ColumnId(column), Partner::Several);
        }
        sample.insert(value.hash, partners);
    }
    let values = distinct_from_wire(message.values, VALUE_PRECISION)?;
    Ok((ColumnId(message.column), TagSketch { values, has_null: message.has_null, sample }))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sketches_come_back(
            rows in vec((option::of(any::<u64>()), option::of(0_u64..3), 0_u32..4), 0..700),
        ) {
            let mut sketch = SeriesSketch::default();
            for (a, b, field) in rows {
                sketch.add(&[(ColumnId(1), a), (ColumnId(2), b)], &[ColumnId(10 + field)]);
            }
            prop_assert_eq!(SeriesSketch::decode_wire(sketch.encode_wire()).unwrap(), sketch);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(sketch) = SeriesSketch::decode_wire(bytes.into()) {
                sketch.cardinality();
            }
        }
    }
}
