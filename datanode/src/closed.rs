//! Answers to writes by what a partition remembers of them: to repeated ones, and while it is closed, because a copy is to
//! take its place ([`Capture::Close`]).
//!
//! ```text
//!   log:  write 7 | write 8 | close | write 8 again, write 9, refused when they are applied
//!   asked for 8: it was taken, and the copy has it          asked for 9: never taken, and never will be: write it to the
//!                                                           partitions that took this one's place
//! ```
//!
//! The leader gives the answer at any epoch, after every entry that is committed. It is final: a write whose first answer
//! was lost takes effect once, wherever it is sent next.
//!
//! An open partition answers a repeated write as the first one, also if it would refuse its rows by now.
//!
//! [`Capture::Close`]: partita_proto::materialized::Capture::Close

use partita_proto::error::Error;
use partita_proto::id::{PartitionId, TableId};
use partita_proto::service::{RequestId, WriteReply};

use crate::requests::{Known, Requests};

/// Answer to a write; `None` if the partition is open. Nothing else answers [`Error::NeverTaken`].
pub(crate) fn answer(
    requests: &Requests,
    partition: PartitionId,
    id: RequestId,
    earlier: &[RequestId],
) -> Option<Result<WriteReply, Error>> {
    if !requests.captures().is_closed() {
        return None;
    }
    Some(answer_or_refuse(requests, id, earlier, Error::NeverTaken { partition }))
}

/// Answer to a write that is refused unless it was taken before.
pub(crate) fn answer_or_refuse(
    requests: &Requests,
    id: RequestId,
    earlier: &[RequestId],
    refusal: Error,
) -> Result<WriteReply, Error> {
    match requests.known(id, earlier) {
        Known::Taken(first) => Ok(taken(requests, first)),
        Known::New => Err(refusal),
        Known::Perhaps => Err(too_late()),
    }
}

/// Reply to a write that was taken before; `None` if that is not known.
pub(crate) fn repeated(
    requests: &Requests,
    id: RequestId,
    earlier: &[RequestId],
) -> Option<WriteReply> {
    match requests.known(id, earlier) {
        Known::Taken(first) => Some(taken(requests, first)),
        Known::New | Known::Perhaps => None,
    }
}

/// Error of a write that is older than what the partition remembers.
pub(crate) fn too_late() -> Error {
    Error::Timeout(
        "the write was repeated too late to determine whether it had taken effect".to_owned(),
    )
}

/// Reply to a write that was taken at an index, perhaps of the log of a neighbour that this partition absorbed.
fn taken(requests: &Requests, first: u64) -> WriteReply {
    let index = first.min(requests.last_change());
    let owing = requests.captures().owing().into_iter();
    let owed: Vec<TableId> =
        owing.filter(|(_, shipped)| *shipped < index).map(|(copy, _)| copy).collect();
    WriteReply { index: if owed.is_empty() { first } else { index }, owed }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::record_batch::RecordBatch;
    use partita_proto::materialized::{Capture, CaptureOrder};
    use partita_proto::service::WriteKind;

    use super::*;
    use crate::capture::{TAIL_BYTES_MAX, Tail};

    const PARTITION: PartitionId = PartitionId(3);
    const COPY: TableId = TableId(5);

    fn id(sequence: u64) -> RequestId {
        RequestId { client: 1, sequence }
    }

    /// A partition that took request 1 at index 4 and is captured; `captures` are applied from index 5 on.
    fn partition(captures: &[Capture]) -> (Requests, Tail) {
        let (mut requests, mut tail) = (Requests::default(), Tail::new(0, 0, TAIL_BYTES_MAX));
        let order = |capture| CaptureOrder { copy: COPY, capture };
        assert!(requests.capture(&mut tail, order(Capture::Begin), 3));
        requests.insert(id(1), 4);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let rows = RecordBatch::try_from_iter([("v", values)]).unwrap();
        requests.change(&mut tail, 4, &[(WriteKind::Put, rows)]);
        for (index, capture) in (5..).zip(captures) {
            assert!(requests.capture(&mut tail, order(*capture), index));
        }
        (requests, tail)
    }

    #[test]
    fn a_closed_partition_tells_what_it_took_and_takes_nothing() {
        let (open, _) = partition(&[Capture::Sync]);
        assert_eq!(answer(&open, PARTITION, id(1), &[]), None);
        let (closed, _) = partition(&[Capture::Sync, Capture::Close]);
        let owed = Some(Ok(WriteReply { index: 4, owed: vec![COPY] }));
        assert_eq!(answer(&closed, PARTITION, id(1), &[]), owed);
        assert_eq!(answer(&closed, PARTITION, id(8), &[id(1)]), owed, "sent before, with others");
        let refused = Some(Err(Error::NeverTaken { partition: PARTITION }));
        assert_eq!(answer(&closed, PARTITION, id(2), &[]), refused);
        let (shipped, _) = partition(&[Capture::Sync, Capture::Close, Capture::Shipped(6)]);
        let settled = Some(Ok(WriteReply { index: 4, owed: vec![] }));
        assert_eq!(answer(&shipped, PARTITION, id(1), &[]), settled);
    }

    #[test]
    fn a_repeated_write_is_answered_as_the_first_one_and_a_new_one_is_refused() {
        let (open, _) = partition(&[Capture::Sync]);
        let reply = WriteReply { index: 4, owed: vec![COPY] };
        assert_eq!(repeated(&open, id(1), &[]), Some(reply.clone()));
        assert_eq!(repeated(&open, id(2), &[]), None);
        let refusal = Error::InvalidInput("full".to_owned());
        let answer = |id, earlier: &[_]| answer_or_refuse(&open, id, earlier, refusal.clone());
        assert_eq!(answer(id(1), &[]), Ok(reply.clone()));
        assert_eq!(answer(id(8), &[id(1)]), Ok(reply));
        assert_eq!(answer(id(2), &[]), Err(refusal));
    }

    #[test]
    fn a_write_of_an_absorbed_neighbour_is_owed_up_to_the_last_change_here() {
        let (mut closed, _) = partition(&[Capture::Sync, Capture::Close]);
        closed.insert(id(3), 900);
        let owed = Some(Ok(WriteReply { index: 4, owed: vec![COPY] }));
        assert_eq!(answer(&closed, PARTITION, id(3), &[]), owed);
    }

    #[test]
    fn a_partition_is_open_again_when_it_is_reopened_and_closed_after_a_restart() {
        let (reopened, _) = partition(&[Capture::Sync, Capture::Close, Capture::Reopen]);
        assert_eq!(answer(&reopened, PARTITION, id(2), &[]), None);
        assert!(reopened.captures().is_empty());
        // The end of the capture may come late.
        let (closed, _) = partition(&[Capture::Sync, Capture::Close, Capture::End]);
        assert!(closed.captures().is_closed());
        let (ended, _) = partition(&[Capture::Sync, Capture::End]);
        assert!(ended.captures().is_empty());
        let again = Requests::decode(&closed.encode()).unwrap();
        assert!(again.captures().is_closed());
        let child = Requests::decode(&closed.encode_for_child(PartitionId(9), 8));
        assert!(child.unwrap().captures().is_closed());
    }
}
