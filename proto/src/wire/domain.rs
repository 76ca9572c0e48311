//! Domains: what predicates leave of columns.

use std::ops::Bound;

use super::{Wire, all, missing, pb, required};
use crate::domain::{Domain, Domains, Interval};
use crate::error::Error;
use crate::value::Value;

impl Wire for Bound<Value> {
    type Message = pb::Limit;

    fn to_wire(&self) -> pb::Limit {
        use pb::limit::Kind;
        let kind = match self {
            Self::Unbounded => Kind::Unbounded(true),
            Self::Included(value) => Kind::Included(value.to_wire()),
            Self::Excluded(value) => Kind::Excluded(value.to_wire()),
        };
        pb::Limit { kind: Some(kind) }
    }

    fn from_wire(message: pb::Limit) -> Result<Self, Error> {
        use pb::limit::Kind;
        let value = |message| match Value::from_wire(message)? {
            Value::Null => Err(Error::Corrupted("an interval ends at NULL".to_owned())),
            value => Ok(value),
        };
        Ok(match message.kind.ok_or_else(|| missing("end of an interval"))? {
            Kind::Unbounded(_) => Self::Unbounded,
            Kind::Included(message) => Self::Included(value(message)?),
            Kind::Excluded(message) => Self::Excluded(value(message)?),
        })
    }
}

impl Wire for Interval {
    type Message = pb::Interval;

    fn to_wire(&self) -> pb::Interval {
        pb::Interval { low: Some(self.low.to_wire()), high: Some(self.high.to_wire()) }
    }

    fn from_wire(message: pb::Interval) -> Result<Self, Error> {
        Ok(Self {
            low: required(message.low, "low end")?,
            high: required(message.high, "high end")?,
        })
    }
}

impl Wire for Domain {
    type Message = pb::Domain;

    fn to_wire(&self) -> pb::Domain {
        pb::Domain {
            null: self.allows_null(),
            intervals: self.intervals().iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::Domain) -> Result<Self, Error> {
        Ok(Self::from_intervals(message.null, all(message.intervals)?))
    }
}

impl Wire for Domains {
    type Message = pb::Domains;

    fn to_wire(&self) -> pb::Domains {
        let column = |(column, domain): (&str, &Domain)| pb::ColumnDomain {
            column: column.to_owned(),
            domain: Some(domain.to_wire()),
        };
        pb::Domains { columns: self.iter().map(column).collect() }
    }

    fn from_wire(message: pb::Domains) -> Result<Self, Error> {
        let mut domains = Self::default();
        for column in message.columns {
            domains.restrict(&column.column, required(column.domain, "domain")?);
        }
        Ok(domains)
    }
}
