//! Indexes: what is declared of them, and how scans used them.

use std::collections::BTreeMap;

use super::{Wire, missing, pb, required};
use crate::error::Error;
use crate::index::{Analyzer, Backend, Blooms, Fulltext, Index, IndexKind, IndexOptions};
use crate::service::{IndexKey, IndexUse};

impl Wire for IndexKind {
    type Message = u32;

    fn to_wire(&self) -> u32 {
        match self {
            Self::Inverted => 1,
            Self::Skipping => 2,
            Self::Fulltext => 3,
        }
    }

    fn from_wire(message: u32) -> Result<Self, Error> {
        let kind = Self::ALL.into_iter().find(|kind| kind.to_wire() == message);
        kind.ok_or_else(|| missing("kind of index"))
    }
}

impl Wire for Blooms {
    type Message = pb::Blooms;

    fn to_wire(&self) -> pb::Blooms {
        pb::Blooms { granularity: self.granularity, false_positives_ppm: self.false_positives_ppm }
    }

    fn from_wire(message: pb::Blooms) -> Result<Self, Error> {
        Ok(Self {
            granularity: message.granularity,
            false_positives_ppm: message.false_positives_ppm,
        })
    }
}

impl Wire for Fulltext {
    type Message = pb::Fulltext;

    fn to_wire(&self) -> pb::Fulltext {
        pb::Fulltext {
            chinese: match self.analyzer {
                Analyzer::English => false,
                Analyzer::Chinese => true,
            },
            case_sensitive: self.case_sensitive,
            bloom: match &self.backend {
                Backend::Inverted => None,
                Backend::Bloom(blooms) => Some(blooms.to_wire()),
            },
        }
    }

    fn from_wire(message: pb::Fulltext) -> Result<Self, Error> {
        let blooms = message.bloom.map(Blooms::from_wire).transpose()?;
        Ok(Self {
            analyzer: if message.chinese { Analyzer::Chinese } else { Analyzer::English },
            case_sensitive: message.case_sensitive,
            backend: blooms.map_or(Backend::Inverted, Backend::Bloom),
        })
    }
}

impl Wire for IndexOptions {
    type Message = pb::IndexOptions;

    fn to_wire(&self) -> pb::IndexOptions {
        use pb::index_options::Kind;
        let kind = match self {
            Self::Inverted => Kind::Inverted(true),
            Self::Skipping(blooms) => Kind::Skipping(blooms.to_wire()),
            Self::Fulltext(fulltext) => Kind::Fulltext(fulltext.to_wire()),
        };
        pb::IndexOptions { kind: Some(kind) }
    }

    fn from_wire(message: pb::IndexOptions) -> Result<Self, Error> {
        use pb::index_options::Kind;
        Ok(match message.kind.ok_or_else(|| missing("kind of index"))? {
            Kind::Inverted(_) => Self::Inverted,
            Kind::Skipping(blooms) => Self::Skipping(Wire::from_wire(blooms)?),
            Kind::Fulltext(fulltext) => Self::Fulltext(Wire::from_wire(fulltext)?),
        })
    }
}

impl Wire for Index {
    type Message = pb::Index;

    fn to_wire(&self) -> pb::Index {
        pb::Index { name: self.name.clone(), options: Some(self.options.to_wire()) }
    }

    fn from_wire(message: pb::Index) -> Result<Self, Error> {
        Ok(Self { name: message.name, options: required(message.options, "options of an index")? })
    }
}

/// The messages of the uses of a scan's indexes.
pub(super) fn uses_to_wire(uses: &BTreeMap<IndexKey, IndexUse>) -> Vec<pb::IndexUse> {
    let message = |((column, kind), counted): (&IndexKey, &IndexUse)| pb::IndexUse {
        column: column.clone(),
        kind: kind.to_wire(),
        examined: counted.examined,
        skipped: counted.skipped,
    };
    uses.iter().map(message).collect()
}

/// Merges uses from messages: counters only grow, so the larger figure is the newer one. A kind of a later version is
/// left out.
pub(super) fn merge_uses(uses: &mut BTreeMap<IndexKey, IndexUse>, messages: &[pb::IndexUse]) {
    for message in messages {
        let Ok(kind) = IndexKind::from_wire(message.kind) else { continue };
        let counted = uses.entry((message.column.clone(), kind)).or_default();
        counted.examined = counted.examined.max(message.examined);
        counted.skipped = counted.skipped.max(message.skipped);
    }
}
