//! What a table's owner says of how it may be cut by itself: when partitions split and merge, how many there may be,
//! and what is to be done about load that no cut divides.
//!
//! Invariants: the defaults are what a table has whose owner says nothing; they split by load and by size, and never
//! change how rows are placed.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::range::Bound;

/// A partition is cut in two when it is larger, in MiB: what a gigabit moves in seconds.
pub const PARTITION_SIZE_MB: u32 = 512;
/// As many partitions as a table gets by itself unless its owner says otherwise.
pub const PARTITIONS_MAX: u32 = 1000;

/// When partitions of a table split and merge by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitioning {
    /// Split what is hot and merge what is idle.
    pub by_load: bool,
    /// Split what is large and merge what is small.
    pub by_size: bool,
    /// The size to split at, MiB.
    pub partition_size_mb: u32,
    /// Merges leave at least so many partitions.
    pub min_partitions: u32,
    /// Splits (but those by hand) make at most so many partitions; 0: as many as it takes.
    pub max_partitions: u32,
    /// What may be done about a hotspot that no split helps.
    pub hotspot_remedy: HotspotRemedy,
    /// Rows of one placement that agree in so many leading columns of the key stay in one partition: nobody cuts between
    /// them, by hand neither; 0: rows may be parted anywhere. Cuts that there are stay. (HBase has the like of it as
    /// `KeyPrefixRegionSplitPolicy`.)
    #[serde(default)]
    pub keep_together: u32,
}

impl Default for Partitioning {
    fn default() -> Self {
        Self {
            by_load: true,
            by_size: true,
            partition_size_mb: PARTITION_SIZE_MB,
            min_partitions: 1,
            max_partitions: PARTITIONS_MAX,
            hotspot_remedy: HotspotRemedy::Advise,
            keep_together: 0,
        }
    }
}

impl Partitioning {
    /// The most columns of the key, placement apart, that a cut may consist of.
    pub fn cut_columns_max(&self) -> usize {
        match self.keep_together {
            0 => usize::MAX,
            columns => columns as usize,
        }
    }

    /// Checks that a key of so many columns has those by which rows are kept together.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it has fewer.
    pub fn check_key(&self, columns: usize) -> Result<(), Error> {
        if self.keep_together as usize <= columns {
            return Ok(());
        }
        Err(Error::InvalidInput(format!(
            "'keep_together' is {}, but the key has {columns} columns",
            self.keep_together
        )))
    }

    /// Checks that a cut parts no rows that are to stay together.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it does.
    pub fn check_cut(&self, at: &Bound) -> Result<(), Error> {
        if at.key.len() <= self.cut_columns_max() {
            return Ok(());
        }
        Err(Error::InvalidInput(format!(
            "{at} would part rows that agree in the first {} of the key's columns, which 'keep_together' says stay in one \
             partition",
            self.keep_together
        )))
    }

    /// Checks that its numbers agree.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the first that does not.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |message: &str| Err(Error::InvalidInput(message.to_owned()));
        if self.partition_size_mb == 0 {
            return invalid("'auto_partitioning_partition_size_mb' must be 1 or more");
        }
        if self.min_partitions == 0 {
            return invalid("'auto_partitioning_min_partitions_count' must be 1 or more");
        }
        if self.max_partitions != 0 && self.max_partitions < self.min_partitions {
            return Err(Error::InvalidInput(format!(
                "'auto_partitioning_max_partitions_count' ({}) is below 'auto_partitioning_min_partitions_count' ({})",
                self.max_partitions, self.min_partitions
            )));
        }
        Ok(())
    }
}

/// What may be done about a hotspot that no split helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HotspotRemedy {
    /// Nothing, and nothing is advised.
    Off,
    /// The DDL that would cure it is shown.
    #[default]
    Advise,
    /// An append-mode table is given hash buckets for its new rows.
    Auto,
}

impl HotspotRemedy {
    /// Its name in `WITH ('hotspot_remedy' = ...)`.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Auto => "auto",
        }
    }
}
