//! Key designs of a table with an entity (user, host, sensor ...) and a time, and their effect on queries.
//!
//! Invariant: a design changes only the order of the key and the placement; the rows are the same.

use std::sync::Arc;

use partita_load::{Columns, DetectOptions, Tail};

use super::law::Law;
use super::listed::Listed;
use super::part::Part;
use super::stamp::Stamp;
use crate::streams::prefix_ends;

/// Number of hash buckets: the upper 16 bits of a hash.
pub(crate) const BUCKETS: u64 = 1 << 16;

/// Key design of a table.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// PRIMARY KEY (ts, entity): all new rows go to one place.
    TsUid,
    /// The same in an append-only table with `hotspot_remedy = auto`, which repartitions itself.
    TsUidAuto,
    /// PRIMARY KEY (entity, ts).
    UidTs,
    /// PARTITION BY HASH (entity), PRIMARY KEY (entity, ts).
    HashUid,
    /// PARTITION BY HASH (ts, entity), PRIMARY KEY (entity, ts).
    HashAll,
    /// PRIMARY KEY (entity, ts), and a single entity.
    Single,
}

impl Design {
    /// All designs.
    pub const ALL: [Self; 6] =
        [Self::TsUid, Self::TsUidAuto, Self::UidTs, Self::HashUid, Self::HashAll, Self::Single];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TsUid => "ts-uid",
            Self::TsUidAuto => "ts-uid-auto",
            Self::UidTs => "uid-ts",
            Self::HashUid => "hash-uid",
            Self::HashAll => "hash-all",
            Self::Single => "single",
        }
    }

    /// True if the key begins with a hash bucket.
    #[must_use]
    pub fn hashed(self) -> bool {
        matches!(self, Self::HashUid | Self::HashAll)
    }

    /// True if the key begins with the time.
    #[must_use]
    pub fn time_first(self) -> bool {
        matches!(self, Self::TsUid | Self::TsUidAuto)
    }

    /// True if the store repartitions the table by itself when its growing end stays hot.
    #[must_use]
    pub fn cures_itself(self) -> bool {
        self == Self::TsUidAuto
    }

    /// Options of CREATE TABLE; empty if there are none.
    pub(crate) fn options(self) -> &'static str {
        if self.cures_itself() {
            " WITH ('append_mode' = 'true', 'hotspot_remedy' = 'auto')"
        } else {
            ""
        }
    }

    /// Clauses of CREATE TABLE, with this name for the entity.
    #[must_use]
    pub fn clauses(self, entity: &str, buckets: u32) -> String {
        match self {
            Self::TsUid | Self::TsUidAuto => {
                format!("PRIMARY KEY (ts, {entity}){}", self.options())
            }
            Self::UidTs | Self::Single => format!("PRIMARY KEY ({entity}, ts)"),
            Self::HashUid => format!(
                "PARTITION BY HASH ({entity}) PARTITIONS {buckets}, PRIMARY KEY ({entity}, ts)"
            ),
            Self::HashAll => format!(
                "PARTITION BY HASH (ts, {entity}) PARTITIONS {buckets}, PRIMARY KEY ({entity}, ts)"
            ),
        }
    }
}

/// Columns of a key.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Names, in key order.
    pub names: Vec<String>,
    /// Width of each, in bytes.
    pub widths: Vec<usize>,
    /// Options of the detector.
    pub options: DetectOptions,
    /// End at which the table grows, by its schema.
    pub tail: Tail,
}

impl Shape {
    /// A key with one column of 8 bytes.
    #[must_use]
    pub fn single(name: &str) -> Self {
        let options = DetectOptions { keep_together: 0, placement: 0, time_column: None };
        Self { names: vec![name.to_owned()], widths: vec![8], options, tail: Tail::None }
    }

    /// Function that finds the ends of columns in an encoded key.
    #[must_use]
    pub fn columns(&self) -> Columns {
        let widths = self.widths.clone();
        Arc::new(move |key| prefix_ends(&widths, key))
    }

    /// A key as text: `userid=17 ts=...`.
    #[must_use]
    pub fn label(&self, key: &[u8]) -> String {
        let columns = super::law::columns_of(key, &self.widths);
        let cells = self.names.iter().zip(columns).map(|(name, value)| format!("{name}={value}"));
        cells.collect::<Vec<_>>().join(" ")
    }
}

/// Distribution and shape of the keys of entities and times under a design.
pub(crate) fn keys(
    design: Design,
    name: &str,
    entities: &Arc<Listed>,
    time: Stamp,
) -> (Law, Shape) {
    let entity = Part::Listed(Arc::clone(entities));
    let stamp = Part::Stamp(time);
    let bucket = Part::Even(0, BUCKETS);
    let growing_end = if time.descending { Tail::Left } else { Tail::Right };
    let (parts, names, placement, tail) = match design {
        Design::TsUid | Design::TsUidAuto => {
            (vec![stamp, entity], vec!["ts", name], 0, growing_end)
        }
        Design::UidTs | Design::Single => (vec![entity, stamp], vec![name, "ts"], 0, Tail::None),
        Design::HashUid => {
            let pairs = Part::Listed(Arc::new(entities.bucketed()));
            (vec![pairs, stamp], vec!["hash", name, "ts"], 1, Tail::None)
        }
        Design::HashAll => (vec![bucket, entity, stamp], vec!["hash", name, "ts"], 1, Tail::None),
    };
    let time_column = names.iter().position(|name| *name == "ts");
    let widths = names.iter().map(|name| if *name == "hash" { 2 } else { 8 }).collect::<Vec<_>>();
    let options = DetectOptions { keep_together: 0, placement, time_column };
    let names = names.into_iter().map(str::to_owned).collect();
    (Law { parts, widths: widths.clone() }, Shape { names, widths, options, tail })
}
