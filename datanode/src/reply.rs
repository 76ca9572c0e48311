//! Result of applying an entry, passed from the machine to the proposer. Never stored or sent.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::materialized::Position;
use partita_proto::reshape::Reshaped;

/// Result of a part of an entry: the index at which it took effect, `None` as in [`Outcome::At`]; or the reason why it
/// had no effect.
pub(crate) type PartResult = Result<Option<u64>, Refusal>;

/// Reason why a part of an entry had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Rows of a source were taken up to this position before, which lies among them.
    Ahead(Position),
    /// The condition of the part does not hold.
    Changed,
}

/// The result of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The index at which each part took effect; `None` for a part without effect now, which may have taken effect long
    /// before.
    At(Vec<Option<u64>>),
    /// The entry named another epoch, and had no effect.
    Stale { current: Epoch },
    /// The entry does not fit the partition's state, and had no effect.
    Unfit(String),
    /// The partition's range has changed.
    Reshaped(Reshaped),
    /// As [`Outcome::At`], with parts that were refused and had no effect.
    Parts(Vec<PartResult>),
    /// The entry needs a capture that does not exist, and had no effect.
    Absent,
}

const AT: u8 = 1;
const STALE: u8 = 2;
const UNFIT: u8 = 3;
const RESHAPED: u8 = 4;
const PARTS: u8 = 5;
const ABSENT: u8 = 6;

impl Outcome {
    /// The outcome of an entry of parts.
    pub(crate) fn of_parts(parts: Vec<PartResult>) -> Self {
        let indexes: Result<Vec<_>, Refusal> = parts.iter().copied().collect();
        match indexes {
            Ok(indexes) => Self::At(indexes),
            Err(_) => Self::Parts(parts),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        match self {
            Self::At(indexes) => {
                bytes.reserve(1 + indexes.len() * 8);
                bytes.put_u8(AT);
                // There is no entry 0.
                indexes.iter().for_each(|index| bytes.put_u64_le(index.unwrap_or_default()));
            }
            Self::Stale { current } => {
                bytes.put_u8(STALE);
                bytes.put_u64_le(current.0);
            }
            Self::Unfit(why) => {
                bytes.put_u8(UNFIT);
                bytes.put_slice(why.as_bytes());
            }
            Self::Reshaped(reshaped) => {
                bytes.put_u8(RESHAPED);
                bytes.put_u64_le(reshaped.index);
                bytes.put_u64_le(u64::try_from(reshaped.stall.as_nanos()).unwrap_or(u64::MAX));
            }
            Self::Parts(parts) => {
                bytes.reserve(1 + parts.len() * 24);
                bytes.put_u8(PARTS);
                for part in parts {
                    // Nothing is ahead of the first position, and no entry has the last index.
                    let (index, position) = match part {
                        Ok(index) => (index.unwrap_or_default(), Position::default()),
                        Err(Refusal::Ahead(position)) => (0, *position),
                        Err(Refusal::Changed) => (u64::MAX, Position::default()),
                    };
                    bytes.put_u64_le(index);
                    bytes.put_u64_le(position.index);
                    bytes.put_u64_le(position.part);
                }
            }
            Self::Absent => bytes.put_u8(ABSENT),
        }
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let numbers = |bytes: &[u8]| -> Option<Vec<u64>> {
            let (numbers, []) = bytes.as_chunks::<8>() else { return None };
            Some(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
        };
        let outcome = match bytes {
            [AT, rest @ ..] => numbers(rest).map(|numbers| {
                Self::At(numbers.into_iter().map(|index| (index != 0).then_some(index)).collect())
            }),
            [STALE, rest @ ..] => match numbers(rest).as_deref() {
                Some([current]) => Some(Self::Stale { current: Epoch(*current) }),
                _ => None,
            },
            [UNFIT, why @ ..] => Some(Self::Unfit(String::from_utf8_lossy(why).into_owned())),
            [RESHAPED, rest @ ..] => match numbers(rest).as_deref() {
                Some([index, nanos]) => {
                    let stall = Duration::from_nanos(*nanos);
                    Some(Self::Reshaped(Reshaped { index: *index, stall }))
                }
                _ => None,
            },
            [PARTS, rest @ ..] => numbers(rest).as_deref().and_then(parts).map(Self::Parts),
            [ABSENT] => Some(Self::Absent),
            _ => None,
        };
        outcome.ok_or_else(|| Error::Internal("the reply to an entry cannot be read".to_owned()))
    }

    /// Translates the outcome for a request that expected another one; `requested` is the epoch of the request.
    pub(crate) fn refused(self, partition: PartitionId, requested: Epoch) -> Error {
        match self {
            Self::Stale { current } => Error::StaleRoute { partition, requested, current },
            Self::Unfit(why) => Error::InvalidInput(why),
            outcome @ (Self::At(_) | Self::Reshaped(_) | Self::Parts(_) | Self::Absent) => {
                Error::Internal(format!("unexpected outcome of an entry: {outcome:?}"))
            }
        }
    }
}

/// The results of parts, each of three numbers.
fn parts(numbers: &[u64]) -> Option<Vec<PartResult>> {
    let (parts, []) = numbers.as_chunks::<3>() else { return None };
    let result = |[index, stored, part]: &[u64; 3]| {
        let position = Position { index: *stored, part: *part };
        match *index {
            u64::MAX => Err(Refusal::Changed),
            _ if position != Position::default() => Err(Refusal::Ahead(position)),
            index => Ok((index != 0).then_some(index)),
        }
    };
    Some(parts.iter().map(result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back_from_their_bytes_and_nothing_else_does() {
        for outcome in [
            Outcome::At(vec![Some(7), None, Some(9)]),
            Outcome::At(Vec::new()),
            Outcome::Stale { current: Epoch(3) },
            Outcome::Unfit("no".to_owned()),
            Outcome::Reshaped(Reshaped { index: 4, stall: Duration::from_millis(3) }),
            Outcome::of_parts(vec![
                Ok(Some(7)),
                Ok(None),
                Err(Refusal::Ahead(Position { index: 5, part: 2 })),
                Err(Refusal::Changed),
            ]),
            Outcome::Absent,
        ] {
            assert_eq!(Outcome::decode(&outcome.encode()), Ok(outcome));
        }
        assert_eq!(
            Outcome::of_parts(vec![Ok(Some(7)), Ok(None)]),
            Outcome::At(vec![Some(7), None])
        );
        for bytes in [
            &b""[..],
            &[AT, 1],
            &[PARTS, 0, 0, 0, 0, 0, 0, 0, 0],
            &[STALE],
            &[RESHAPED, 0, 0, 0, 0, 0, 0, 0, 0],
            &[9],
        ] {
            assert!(Outcome::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
