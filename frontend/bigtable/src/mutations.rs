//! Changes of rows from their messages.

use bytes::Bytes;
use partita_proto::wide::{
    CellMutation, MUTATIONS_MAX, ReadModify, ReadModifyRule, RowMutation, Wide,
};
use tonic::Status;

use crate::api::data::mutation::Mutation as Kind;
use crate::api::data::read_modify_write_rule::Rule;
use crate::api::data::value::Kind as ValueKind;
use crate::api::data::{Mutation, ReadModifyWriteRule, Value};
use crate::status::{refused, unsupported};

/// Timestamp that stands for the time of the server.
const SERVER_TIME: i64 = -1;
/// Microseconds of the granularity of timestamps.
const GRANULARITY_US: i64 = 1_000;

/// The changes of a row that a request asks for, checked against its table. Cells without a timestamp get `now_us`.
///
/// # Errors
/// INVALID_ARGUMENT when a part of the request is not valid, NOT_FOUND for a family that the table does not have.
pub(crate) fn row_mutation(
    row_key: &Bytes,
    mutations: Vec<Mutation>,
    wide: &Wide,
    now_us: i64,
) -> Result<RowMutation, Status> {
    let mutations = mutations.into_iter().map(cell_mutation).collect::<Result<_, _>>()?;
    let mutation = RowMutation { row_key: row_key.to_vec(), mutations };
    mutation.check(wide).map_err(|error| refused(&error))?;
    Ok(mutation.stamped(now_us))
}

fn cell_mutation(mutation: Mutation) -> Result<CellMutation, Status> {
    let Some(kind) = mutation.mutation else {
        return Err(Status::invalid_argument(
            "a mutation is empty or of a kind that is not supported",
        ));
    };
    Ok(match kind {
        Kind::SetCell(cell) => CellMutation::SetCell {
            family: cell.family_name,
            qualifier: cell.column_qualifier.into(),
            timestamp: timestamp(cell.timestamp_micros)?,
            value: cell.value.into(),
        },
        Kind::DeleteFromColumn(column) => {
            let range = column.time_range.unwrap_or_default();
            // 0 does not restrict.
            let bound = |micros: i64| (micros != 0).then_some(micros);
            CellMutation::DeleteFromColumn {
                family: column.family_name,
                qualifier: column.column_qualifier.into(),
                start: bound(range.start_timestamp_micros),
                end: bound(range.end_timestamp_micros),
            }
        }
        Kind::DeleteFromFamily(family) => {
            CellMutation::DeleteFromFamily { family: family.family_name }
        }
        Kind::DeleteFromRow(_) => CellMutation::DeleteFromRow,
        Kind::AddToCell(cell) => {
            let Some(ValueKind::IntValue(number)) = kind_of(cell.input) else {
                return Err(Status::invalid_argument(
                    "the input of add_to_cell is not an int_value",
                ));
            };
            addition(cell.family_name, (cell.column_qualifier, cell.timestamp), number)?
        }
        Kind::MergeToCell(cell) => {
            let number = merged_number(cell.input)?;
            addition(cell.family_name, (cell.column_qualifier, cell.timestamp), number)?
        }
    })
}

fn kind_of(value: Option<Value>) -> Option<ValueKind> {
    value.and_then(|value| value.kind)
}

/// The number with which a cell is combined.
fn merged_number(input: Option<Value>) -> Result<i64, Status> {
    let number = match kind_of(input) {
        Some(ValueKind::IntValue(number)) => Some(number),
        Some(ValueKind::RawValue(bytes)) => {
            <[u8; 8]>::try_from(&bytes[..]).ok().map(i64::from_be_bytes)
        }
        Some(ValueKind::RawTimestampMicros(_)) | None => None,
    };
    number.ok_or_else(|| {
        Status::invalid_argument(
            "the input of merge_to_cell is neither a raw_value of 8 bytes nor an int_value",
        )
    })
}

/// The addition of a number to a cell of a column, at a timestamp.
fn addition(
    family: String,
    (qualifier, micros): (Option<Value>, Option<Value>),
    number: i64,
) -> Result<CellMutation, Status> {
    let Some(ValueKind::RawValue(qualifier)) = kind_of(qualifier) else {
        return Err(Status::invalid_argument("a column_qualifier is not a raw_value"));
    };
    let Some(ValueKind::RawTimestampMicros(micros)) = kind_of(micros) else {
        return Err(Status::invalid_argument("a timestamp is not a raw_timestamp_micros"));
    };
    // The server's time would name another cell each time.
    let timestamp = timestamp(micros)?.ok_or_else(|| {
        Status::invalid_argument(format!("timestamp {micros} of a cell to add to is negative"))
    })?;
    Ok(CellMutation::AddToCell { family, qualifier: qualifier.into(), timestamp, number })
}

/// Refuses a request that relies on a token to add to cells once, however often it is sent.
///
/// # Errors
/// UNIMPLEMENTED for such a request.
pub(crate) fn check_token(token: Option<&Bytes>, mutations: &[Mutation]) -> Result<(), Status> {
    let adds = |mutation: &Mutation| {
        matches!(mutation.mutation, Some(Kind::AddToCell(_) | Kind::MergeToCell(_)))
    };
    match token.is_some() && mutations.iter().any(adds) {
        true => Err(unsupported("idempotency tokens")),
        false => Ok(()),
    }
}

/// A cell's timestamp; `None` for the time of the server.
fn timestamp(micros: i64) -> Result<Option<i64>, Status> {
    if micros == SERVER_TIME {
        return Ok(None);
    }
    if micros < 0 {
        return Err(Status::invalid_argument(format!("timestamp {micros} is negative")));
    }
    if micros % GRANULARITY_US != 0 {
        return Err(Status::invalid_argument(format!(
            "timestamp {micros} is not a multiple of {GRANULARITY_US}: the granularity is a millisecond"
        )));
    }
    Ok(Some(micros))
}

/// Checks the number of mutations of a request with several rows.
///
/// # Errors
/// INVALID_ARGUMENT when there are none, or too many.
pub(crate) fn check_count(mutations: usize) -> Result<(), Status> {
    if mutations == 0 {
        return Err(Status::invalid_argument("a request must have at least one mutation"));
    }
    if mutations > MUTATIONS_MAX {
        return Err(Status::invalid_argument(format!(
            "{mutations} mutations in one request exceed the limit of {MUTATIONS_MAX}"
        )));
    }
    Ok(())
}

/// The read-modify-writes of a row that a request asks for, checked against its table.
///
/// # Errors
/// As [`row_mutation`].
pub(crate) fn read_modify(
    row_key: &Bytes,
    rules: Vec<ReadModifyWriteRule>,
    wide: &Wide,
) -> Result<ReadModify, Status> {
    let rules = rules.into_iter().map(rule_of).collect::<Result<_, _>>()?;
    let request = ReadModify { row_key: row_key.to_vec(), rules };
    request.check(wide).map_err(|error| refused(&error))?;
    Ok(request)
}

fn rule_of(message: ReadModifyWriteRule) -> Result<ReadModifyRule, Status> {
    let (family, qualifier) = (message.family_name, message.column_qualifier.into());
    match message.rule {
        Some(Rule::AppendValue(value)) => {
            Ok(ReadModifyRule::Append { family, qualifier, value: value.into() })
        }
        Some(Rule::IncrementAmount(amount)) => {
            Ok(ReadModifyRule::Increment { family, qualifier, amount })
        }
        None => Err(Status::invalid_argument("a rule neither appends nor increments")),
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::wide::{Aggregate, Family};
    use tonic::Code;

    use super::*;
    use crate::api::data::TimestampRange;
    use crate::api::data::mutation::{
        AddToCell, DeleteFromColumn, DeleteFromRow, MergeToCell, SetCell,
    };

    fn wide() -> Wide {
        let family = |name: &str, aggregate| Family { name: name.to_owned(), gc: None, aggregate };
        let families = vec![family("f", None), family("n", Some(Aggregate::Sum))];
        Wide { families, ..Wide::default() }
    }

    fn mutation(kind: Kind) -> Mutation {
        Mutation { mutation: Some(kind) }
    }

    fn set(family: &str, timestamp_micros: i64) -> Mutation {
        mutation(Kind::SetCell(SetCell {
            family_name: family.to_owned(),
            column_qualifier: Bytes::from_static(b"q"),
            timestamp_micros,
            value: Bytes::from_static(b"v"),
        }))
    }

    fn checked(key: &'static str, mutations: Vec<Mutation>) -> Result<RowMutation, Code> {
        row_mutation(&Bytes::from_static(key.as_bytes()), mutations, &wide(), 77_000)
            .map_err(|status| status.code())
    }

    #[test]
    fn cells_without_a_timestamp_get_the_time() {
        let row = checked("r", vec![set("f", -1), set("f", 5_000)]).unwrap();
        let times = row.mutations.iter().map(|mutation| match mutation {
            CellMutation::SetCell { timestamp, .. } => *timestamp,
            _ => None,
        });
        assert_eq!(times.collect::<Vec<_>>(), [Some(77_000), Some(5_000)]);
    }

    #[test]
    fn a_range_of_versions_without_bounds_is_the_whole_column() {
        let delete = |start, end| {
            mutation(Kind::DeleteFromColumn(DeleteFromColumn {
                family_name: "f".to_owned(),
                column_qualifier: Bytes::from_static(b"q"),
                time_range: Some(TimestampRange {
                    start_timestamp_micros: start,
                    end_timestamp_micros: end,
                }),
            }))
        };
        let row = checked("r", vec![delete(0, 0), delete(1_000, 2_000)]).unwrap();
        let bounds = row.mutations.iter().map(|mutation| match mutation {
            CellMutation::DeleteFromColumn { start, end, .. } => (*start, *end),
            _ => (None, None),
        });
        assert_eq!(bounds.collect::<Vec<_>>(), [(None, None), (Some(1_000), Some(2_000))]);
        assert_eq!(checked("r", vec![delete(2_000, 2_000)]), Err(Code::InvalidArgument));
    }

    fn value(kind: ValueKind) -> Option<Value> {
        Some(Value { kind: Some(kind) })
    }

    fn add(family: &str, micros: i64, input: Option<Value>) -> Mutation {
        mutation(Kind::AddToCell(AddToCell {
            family_name: family.to_owned(),
            column_qualifier: value(ValueKind::RawValue(Bytes::from_static(b"q"))),
            timestamp: value(ValueKind::RawTimestampMicros(micros)),
            input,
        }))
    }

    fn merge(input: Option<Value>) -> Mutation {
        mutation(Kind::MergeToCell(MergeToCell {
            family_name: "n".to_owned(),
            column_qualifier: value(ValueKind::RawValue(Bytes::from_static(b"q"))),
            timestamp: value(ValueKind::RawTimestampMicros(0)),
            input,
        }))
    }

    #[test]
    fn numbers_are_added_to_the_cell_that_is_named() {
        let raw = Bytes::copy_from_slice(&(-3_i64).to_be_bytes());
        let mutations = vec![
            add("n", 5_000, value(ValueKind::IntValue(7))),
            merge(value(ValueKind::RawValue(raw))),
            merge(value(ValueKind::IntValue(4))),
            set("f", 0),
        ];
        let row = checked("r", mutations).unwrap();
        let numbers = row.mutations.iter().map(|mutation| match mutation {
            CellMutation::AddToCell { timestamp, number, .. } => Some((*timestamp, *number)),
            _ => None,
        });
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            [Some((5_000, 7)), Some((0, -3)), Some((0, 4)), None]
        );
    }

    #[test]
    fn what_is_no_addition_to_an_aggregate_is_refused() {
        let invalid = || Err(Code::InvalidArgument);
        let seven = || value(ValueKind::IntValue(7));
        let short = || value(ValueKind::RawValue(Bytes::from_static(b"7")));
        assert_eq!(checked("r", vec![add("n", 0, short())]), invalid());
        assert_eq!(checked("r", vec![add("n", 0, None)]), invalid());
        assert_eq!(checked("r", vec![add("n", -1, seven())]), invalid());
        assert_eq!(checked("r", vec![add("n", 1, seven())]), invalid());
        assert_eq!(checked("r", vec![add("f", 0, seven())]), invalid());
        assert_eq!(checked("r", vec![add("g", 0, seven())]), Err(Code::NotFound));
        assert_eq!(checked("r", vec![merge(short())]), invalid());
        assert_eq!(checked("r", vec![merge(Some(Value { kind: None }))]), invalid());
        assert_eq!(checked("r", vec![set("n", 0)]), invalid());
        let no_column =
            AddToCell { family_name: "n".to_owned(), input: seven(), ..AddToCell::default() };
        assert_eq!(checked("r", vec![mutation(Kind::AddToCell(no_column))]), invalid());
        let token = Bytes::from_static(b"t");
        let refused = check_token(Some(&token), &[set("f", 0), add("n", 0, seven())]);
        assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
        check_token(Some(&token), &[set("f", 0)]).unwrap();
        check_token(None, &[merge(seven())]).unwrap();
    }

    #[test]
    fn what_a_table_cannot_take_is_refused() {
        let long = "k".repeat(4_097);
        let invalid = Err(Code::InvalidArgument);
        assert_eq!(checked("", vec![set("f", 0)]), invalid);
        assert_eq!(checked(long.leak(), vec![set("f", 0)]), invalid);
        assert_eq!(checked("r", vec![]), invalid);
        assert_eq!(checked("r", vec![Mutation { mutation: None }]), invalid);
        assert_eq!(checked("r", vec![set("f", -2)]), invalid);
        assert_eq!(checked("r", vec![set("f", 1_500)]), invalid);
        assert_eq!(checked("r", vec![set("g", 0)]), Err(Code::NotFound));
        let whole = checked("r", vec![mutation(Kind::DeleteFromRow(DeleteFromRow {}))]).unwrap();
        assert_eq!(whole.mutations, [CellMutation::DeleteFromRow]);
        assert!(check_count(0).is_err() && check_count(MUTATIONS_MAX).is_ok());
        assert!(check_count(MUTATIONS_MAX + 1).is_err());
    }

    #[test]
    fn a_rule_must_say_what_becomes_of_the_cell() {
        let rule = |rule| ReadModifyWriteRule {
            family_name: "f".to_owned(),
            column_qualifier: Bytes::from_static(b"q"),
            rule,
        };
        let key = Bytes::from_static(b"r");
        let request = read_modify(&key, vec![rule(Some(Rule::IncrementAmount(-3)))], &wide());
        let expected = ReadModifyRule::Increment {
            family: "f".to_owned(),
            qualifier: b"q".to_vec(),
            amount: -3,
        };
        assert_eq!(request.unwrap().rules, [expected]);
        for rules in [vec![], vec![rule(None)]] {
            assert!(read_modify(&key, rules, &wide()).is_err());
        }
    }
}
