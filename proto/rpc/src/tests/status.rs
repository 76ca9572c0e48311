//! Errors there and back.

use partita_proto::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, TableId};
use partita_proto::materialized::Position;
use tonic::{Code, Status};

use super::NODE;
use crate::status::{Peer, from_status, to_status};

fn peer() -> Peer {
    Peer { node: Some(NODE), address: "host:1".to_owned() }
}

pub(super) fn every_error() -> Vec<Error> {
    let text = || "äöü \n \"text\"".to_owned();
    vec![
        Error::InvalidInput(text()),
        Error::NotFound { kind: "partition", name: text() },
        Error::AlreadyExists { kind: "table", name: text() },
        Error::NotAllowed(text()),
        Error::Unauthenticated(text()),
        Error::Unsupported(text()),
        Error::StaleRoute { partition: PartitionId(1), requested: Epoch(2), current: Epoch(3) },
        Error::StaleSchema { table: TableId(4) },
        Error::NeverTaken { partition: PartitionId(11) },
        Error::NotLeader { partition: PartitionId(5), leader: Some(NodeId(6)) },
        Error::NotLeader { partition: PartitionId(0), leader: None },
        Error::Overloaded(text()),
        Error::LimitReached { message: text(), hint: text() },
        Error::Dependents { message: text(), hint: text() },
        Error::Gap { partition: PartitionId(7) },
        Error::ShipAhead { stored: Position { index: 8, part: 9 } },
        Error::Changed { partition: PartitionId(10) },
        Error::DiskFull(text()),
        Error::Unavailable(text()),
        Error::Timeout(text()),
        Error::Cancelled,
        Error::Corrupted(text()),
        Error::Query { sqlstate: "22012".to_owned(), message: text(), hint: None },
        Error::Query { sqlstate: "53200".to_owned(), message: text(), hint: Some(text()) },
        Error::Internal(text()),
    ]
}

#[test]
fn a_status_holds_the_error_itself() {
    for error in every_error() {
        assert_eq!(from_status(&peer(), to_status(error.clone())), error);
    }
}

#[test]
fn a_text_too_long_for_a_header_is_cut_short() {
    let status = to_status(Error::InvalidInput("ä".repeat(1 << 20)));
    assert!(status.message().len() < 300 && status.details().len() < 5000);
    let Error::InvalidInput(text) = from_status(&peer(), status) else { panic!() };
    assert!(text.starts_with("ää") && text.ends_with("ä…"));
}

#[test]
fn what_the_transport_says_is_about_the_peer() {
    let of = |code| from_status(&peer(), Status::new(code, "why")).to_string();
    assert_eq!(of(Code::Unavailable), "node 7 at host:1 is not reachable: why");
    assert_eq!(of(Code::Unknown), "node 7 at host:1 is not reachable: why");
    assert_eq!(of(Code::DeadlineExceeded), "timed out: node 7 at host:1: why");
    let refused = from_status(&peer(), Status::new(Code::OutOfRange, "too large"));
    assert!(!refused.is_retryable(), "{refused}");
    let unknown = from_status(&peer(), Status::new(Code::Unimplemented, ""));
    assert!(matches!(unknown, Error::Unsupported(_)), "{unknown}");
}

#[test]
fn details_that_are_not_understood_are_not_taken_for_something_else() {
    let status = Status::with_details(Code::Unavailable, "", vec![255, 255].into());
    assert!(matches!(from_status(&peer(), status), Error::Internal(_)));
}
