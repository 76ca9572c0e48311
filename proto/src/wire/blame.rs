//! Samples of what statements write and read, and stalls of writes.

use std::time::Duration;

use partita_load::{Blamed, Cause, Intaken, IntakenSecond, PartitionId};

use super::{Wire, pb};
use crate::blame::{
    BlameReport, CAUSES_MAX, SAMPLES_MAX, SECONDS_MAX, STALLS_MAX, Stall, TEXT_BYTES_MAX,
};
use crate::error::Error;
use crate::id;

/// Refuses a number that is greater than its bound.
fn at_most(number: usize, most: usize, name: &str) -> Result<(), Error> {
    if number <= most {
        return Ok(());
    }
    Err(Error::InvalidInput(format!(
        "a report of causes has {number} {name}, at most {most} are allowed"
    )))
}

impl Wire for BlameReport {
    type Message = pb::BlameReport;

    fn to_wire(&self) -> pb::BlameReport {
        pb::BlameReport {
            source: self.source,
            causes: self.taken.causes.iter().map(cause_to_wire).collect(),
            seconds: self.taken.seconds.iter().map(second_to_wire).collect(),
            stalls: self.stalls.iter().map(stall_to_wire).collect(),
        }
    }

    /// Refuses a report that exceeds a bound with [`Error::InvalidInput`].
    fn from_wire(message: pb::BlameReport) -> Result<Self, Error> {
        at_most(message.causes.len(), CAUSES_MAX, "causes")?;
        at_most(message.seconds.len(), SECONDS_MAX, "seconds")?;
        at_most(message.stalls.len(), STALLS_MAX, "stalls")?;
        let causes = message.causes.into_iter().map(cause).collect::<Result<Vec<_>, _>>()?;
        let second = |message| second(message, causes.len());
        let seconds = message.seconds.into_iter().map(second).collect::<Result<_, _>>()?;
        let stalls = message.stalls.into_iter().map(stall).collect();
        Ok(Self { source: message.source, taken: Intaken { causes, seconds }, stalls })
    }
}

fn stall_to_wire(stall: &Stall) -> pb::BlameStall {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    pb::BlameStall { partition: stall.partition.0, time_us: us(stall.time), ago_us: us(stall.ago) }
}

fn stall(message: pb::BlameStall) -> Stall {
    Stall {
        partition: id::PartitionId(message.partition),
        time: Duration::from_micros(message.time_us),
        ago: Duration::from_micros(message.ago_us),
    }
}

fn cause_to_wire(cause: &Cause) -> pb::BlameCause {
    pb::BlameCause {
        statement: cause.statement.clone(),
        kind: cause.kind.clone(),
        user: cause.user.clone(),
        application: cause.application.clone(),
        client: cause.client.clone(),
    }
}

fn cause(message: pb::BlameCause) -> Result<Cause, Error> {
    let pb::BlameCause { statement, kind, user, application, client } = message;
    for text in [&statement, &kind, &user, &application, &client] {
        at_most(text.len(), TEXT_BYTES_MAX, "bytes in a text")?;
    }
    Ok(Cause { statement, kind, user, application, client })
}

fn second_to_wire(second: &IntakenSecond) -> pb::BlameSecond {
    let sample = |(partition, blamed): &(PartitionId, Blamed)| pb::BlameSample {
        partition: partition.0,
        key: blamed.key.as_ref().map(|key| key.to_vec()),
        cause: blamed.cause,
        weight: blamed.weight,
    };
    pb::BlameSecond {
        second: second.second,
        read: second.read,
        samples: second.samples.iter().map(sample).collect(),
    }
}

fn second(message: pb::BlameSecond, causes: usize) -> Result<IntakenSecond, Error> {
    at_most(message.samples.len(), SAMPLES_MAX, "samples of a second")?;
    let samples = message.samples.into_iter().map(|message| sample(message, causes));
    Ok(IntakenSecond {
        second: message.second,
        read: message.read,
        samples: samples.collect::<Result<_, _>>()?,
    })
}

fn sample(message: pb::BlameSample, causes: usize) -> Result<(PartitionId, Blamed), Error> {
    let pb::BlameSample { partition, key, cause, weight } = message;
    if !usize::try_from(cause).is_ok_and(|position| position < causes) {
        return Err(Error::InvalidInput(format!(
            "a report of causes has a sample of cause {cause}, but {causes} causes"
        )));
    }
    if !weight.is_finite() || weight < 0.0 {
        return Err(Error::InvalidInput(format!(
            "a report of causes has a sample of weight {weight}"
        )));
    }
    Ok((PartitionId(partition), Blamed { key: key.map(Into::into), cause, weight }))
}
