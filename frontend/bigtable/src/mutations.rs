//! Changes of rows from their messages.

use bytes::Bytes;
use partita_proto::wide::{
    CellMutation, MUTATIONS_MAX, ReadModify, ReadModifyRule, RowMutation, Wide,
};
use tonic::Status;

use crate::api::data::mutation::Mutation as Kind;
use crate::api::data::read_modify_write_rule::Rule;
use crate::api::data::{Mutation, ReadModifyWriteRule};
use crate::status::{refused, unsupported};

/// Timestamp that stands for the time of the server.
const SERVER_TIME: i64 = -1;
/// Microseconds of the granularity of timestamps.
const GRANULARITY_US: i64 = 1_000;

/// The changes of a row that a request asks for, checked against its table. Cells without a timestamp get `now_us`.
///
/// # Errors
/// INVALID_ARGUMENT when a part of the request is not valid, NOT_FOUND for a family that the table does not have,
/// UNIMPLEMENTED for a mutation of an aggregate.
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
        Kind::AddToCell(_) | Kind::MergeToCell(_) => return Err(unsupported("aggregate families")),
    })
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
    use partita_proto::wide::Family;
    use tonic::Code;

    use super::*;
    use crate::api::data::TimestampRange;
    use crate::api::data::mutation::{DeleteFromColumn, DeleteFromRow, SetCell};

    fn wide() -> Wide {
        Wide { families: vec![Family { name: "f".to_owned(), gc: None }], ..Wide::default() }
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
        let aggregate = mutation(Kind::AddToCell(Bytes::new()));
        assert_eq!(checked("r", vec![aggregate]), Err(Code::Unimplemented));
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
