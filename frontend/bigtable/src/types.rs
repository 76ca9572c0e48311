//! Types of families between their two forms: bytes, and aggregates of numbers.

use bytes::Bytes;
use partita_proto::wide::Aggregate;
use tonic::Status;

use crate::api::tables::aggregate::Aggregator;
use crate::api::tables::input_type::Kind as InputKind;
use crate::api::tables::int64::Encoding;
use crate::api::tables::int64::encoding::Encoding as EncodingKind;
use crate::api::tables::r#type::Kind;
use crate::api::tables::{self, InputType, Int64, Type};
use crate::status::unsupported;

/// The aggregate of a family with a type; `None` for a family of bytes.
///
/// # Errors
/// UNIMPLEMENTED for a type that there is not, INVALID_ARGUMENT for an aggregate that lacks a part.
pub(crate) fn aggregate_of(value_type: Option<&Type>) -> Result<Option<Aggregate>, Status> {
    let Some(value_type) = value_type else { return Ok(None) };
    match &value_type.kind {
        Some(Kind::BytesType(_)) => Ok(None),
        Some(Kind::AggregateType(message)) => {
            let aggregate = match &message.aggregator {
                Some(Aggregator::Sum(_)) => Aggregate::Sum,
                Some(Aggregator::Min(_)) => Aggregate::Min,
                Some(Aggregator::Max(_)) => Aggregate::Max,
                Some(Aggregator::HllppUniqueCount(_)) => {
                    return Err(unsupported("families of the aggregator hllpp_unique_count"));
                }
                None => return Err(Status::invalid_argument("an aggregate has no aggregator")),
            };
            check_input(message.input_type.as_ref())?;
            Ok(Some(aggregate))
        }
        None => Err(unsupported("families whose values are neither bytes nor aggregates")),
    }
}

/// Checks the type of the numbers of an aggregate.
fn check_input(input: Option<&InputType>) -> Result<(), Status> {
    let Some(input) = input else {
        return Err(Status::invalid_argument("an aggregate has no input_type"));
    };
    let Some(InputKind::Int64Type(number)) = &input.kind else {
        return Err(unsupported("aggregates of an input_type other than int64_type"));
    };
    match number.encoding.as_ref().and_then(|encoding| encoding.encoding.as_ref()) {
        Some(EncodingKind::BigEndianBytes(_)) => Ok(()),
        Some(EncodingKind::OrderedCodeBytes(_)) => {
            Err(unsupported("aggregates of the encoding ordered_code_bytes"))
        }
        None => Err(Status::invalid_argument("the input_type of an aggregate has no encoding")),
    }
}

/// The message of the type of an aggregate family.
pub(crate) fn message_of(aggregate: Aggregate) -> Type {
    let encoding = Encoding { encoding: Some(EncodingKind::BigEndianBytes(Bytes::new())) };
    let number = InputType { kind: Some(InputKind::Int64Type(Int64 { encoding: Some(encoding) })) };
    let aggregator = match aggregate {
        Aggregate::Sum => Aggregator::Sum(Bytes::new()),
        Aggregate::Min => Aggregator::Min(Bytes::new()),
        Aggregate::Max => Aggregator::Max(Bytes::new()),
    };
    let message = tables::Aggregate {
        input_type: Some(number.clone()),
        state_type: Some(number),
        aggregator: Some(aggregator),
    };
    Type { kind: Some(Kind::AggregateType(message)) }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_type_is_read_as_it_was_written() {
        for aggregate in Aggregate::ALL {
            assert_eq!(aggregate_of(Some(&message_of(aggregate))).unwrap(), Some(aggregate));
        }
        let bytes = Type { kind: Some(Kind::BytesType(Bytes::new())) };
        assert_eq!(aggregate_of(Some(&bytes)).unwrap(), None);
        assert_eq!(aggregate_of(None).unwrap(), None);
    }

    #[test]
    fn types_that_there_are_not_are_refused_by_name() {
        let refused = |change: &dyn Fn(&mut tables::Aggregate)| {
            let Some(Kind::AggregateType(mut message)) = message_of(Aggregate::Sum).kind else {
                panic!("not an aggregate");
            };
            change(&mut message);
            let value_type = Type { kind: Some(Kind::AggregateType(message)) };
            let status = aggregate_of(Some(&value_type)).unwrap_err();
            (status.code(), status.message().to_owned())
        };
        let encoded = |kind| {
            let encoding = Some(Encoding { encoding: kind });
            Some(InputType { kind: Some(InputKind::Int64Type(Int64 { encoding })) })
        };
        let (code, message) = refused(&|aggregate| {
            aggregate.aggregator = Some(Aggregator::HllppUniqueCount(Bytes::new()));
        });
        assert_eq!(code, Code::Unimplemented);
        assert!(message.contains("hllpp_unique_count"), "{message}");
        let ordered = || EncodingKind::OrderedCodeBytes(Bytes::new());
        let (code, message) = refused(&|aggregate| aggregate.input_type = encoded(Some(ordered())));
        assert_eq!(code, Code::Unimplemented);
        assert!(message.contains("ordered_code_bytes"), "{message}");
        let texts = InputType { kind: None };
        assert_eq!(
            refused(&|message| message.input_type = Some(texts.clone())).0,
            Code::Unimplemented
        );
        let invalid = Code::InvalidArgument;
        assert_eq!(refused(&|message| message.input_type = None).0, invalid);
        assert_eq!(refused(&|message| message.input_type = encoded(None)).0, invalid);
        assert_eq!(refused(&|message| message.aggregator = None).0, invalid);
        let error = aggregate_of(Some(&Type { kind: None })).unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented);
    }
}
