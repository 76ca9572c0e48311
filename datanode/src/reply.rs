//! Result of applying an entry, passed from the machine to the proposer. Never stored or sent.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::reshape::Reshaped;

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
}

const AT: u8 = 1;
const STALE: u8 = 2;
const UNFIT: u8 = 3;
const RESHAPED: u8 = 4;

impl Outcome {
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
            _ => None,
        };
        outcome.ok_or_else(|| Error::Internal("the reply to an entry cannot be read".to_owned()))
    }

    /// Translates the outcome for a request that expected another one; `requested` is the epoch of the request.
    pub(crate) fn refused(self, partition: PartitionId, requested: Epoch) -> Error {
        match self {
            Self::Stale { current } => Error::StaleRoute { partition, requested, current },
            Self::Unfit(why) => Error::InvalidInput(why),
            outcome @ (Self::At(_) | Self::Reshaped(_)) => {
                Error::Internal(format!("unexpected outcome of an entry: {outcome:?}"))
            }
        }
    }
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
        ] {
            assert_eq!(Outcome::decode(&outcome.encode()), Ok(outcome));
        }
        for bytes in [&b""[..], &[AT, 1], &[STALE], &[RESHAPED, 0, 0, 0, 0, 0, 0, 0, 0], &[9]] {
            assert!(Outcome::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
