//! History of the catalog on which an order is based.

use super::{Wire, all, pb};
use crate::catalog_history::{CatalogHistory, Leadership};
use crate::error::Error;

impl Wire for Leadership {
    type Message = pb::Leadership;

    fn to_wire(&self) -> pb::Leadership {
        pb::Leadership { first: self.first, term: self.term, nonce: self.nonce }
    }

    fn from_wire(message: pb::Leadership) -> Result<Self, Error> {
        Ok(Self { first: message.first, term: message.term, nonce: message.nonce })
    }
}

impl Wire for CatalogHistory {
    type Message = pb::CatalogHistory;

    fn to_wire(&self) -> pb::CatalogHistory {
        pb::CatalogHistory {
            cluster: self.cluster,
            version: self.version,
            leaderships: self.leaderships.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::CatalogHistory) -> Result<Self, Error> {
        Ok(Self {
            cluster: message.cluster,
            version: message.version,
            leaderships: all(message.leaderships)?,
        })
    }
}
