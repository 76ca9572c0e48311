//! Automatic partitioning options of a table: when partitions split and merge, limits on their number, and remedies for
//! load that no split divides.
//!
//! Invariants: the defaults apply to a table whose owner sets nothing; they split by load and by size, and never change
//! the placement of rows.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::range::Bound;

/// Default size in MiB above which a partition is split: a gigabit link moves it in seconds.
pub const PARTITION_SIZE_MB: u32 = 512;
/// Default maximum of partitions that automatic splits create in a table.
pub const PARTITIONS_MAX: u32 = 1000;
/// Default time, in seconds, for which two neighbours must have been quiet before they are merged.
pub const MERGE_AFTER_S: u32 = 3_600;
/// Maximum number of partitions that a table is created with. A partition map of this size still fits into one message
/// (about 200 KiB), and a node can hold 4,096 idle groups.
pub const TABLE_PARTITIONS_MAX: usize = 4_096;

/// Automatic splits and merges of a table's partitions. Fields that a stored form lacks have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Partitioning {
    /// True to split hot partitions and merge idle ones.
    pub by_load: bool,
    /// True to split large partitions and merge small ones.
    pub by_size: bool,
    /// Size above which a partition is split, in MiB.
    pub partition_size_mb: u32,
    /// Minimum number of partitions that merges leave.
    pub min_partitions: u32,
    /// Maximum number of partitions that splits (except those by hand) create; 0: no limit.
    pub max_partitions: u32,
    /// Remedy for a hotspot that no split helps.
    pub hotspot_remedy: HotspotRemedy,
    /// Number of leading key columns by which rows are kept together: no split, not even by hand, separates rows of one
    /// placement that agree in them; 0: rows may be separated anywhere. Existing bounds stay. (HBase has a similar
    /// `KeyPrefixRegionSplitPolicy`.)
    pub keep_together: u32,
    /// Time for which two neighbours must have been quiet before they are merged, seconds.
    pub merge_after_s: u32,
    /// Time after which boundaries that were set by hand may be merged away automatically, seconds; 0: never.
    pub pin_expiry_s: u32,
    /// True to cut and place partitions ahead of peaks that come every day; only with `by_load`.
    pub forecast: bool,
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
            merge_after_s: MERGE_AFTER_S,
            pin_expiry_s: 0,
            forecast: true,
        }
    }
}

impl Partitioning {
    /// Maximum number of key columns, without the placement, in a split key.
    pub fn cut_columns_max(&self) -> usize {
        match self.keep_together {
            0 => usize::MAX,
            columns => columns as usize,
        }
    }

    /// Checks that a key with this number of columns has the columns by which rows are kept together.
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

    /// Checks that a split key separates no rows that are to be kept together.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it does.
    pub fn check_cut(&self, cut: &Bound) -> Result<(), Error> {
        if cut.key.len() <= self.cut_columns_max() {
            return Ok(());
        }
        Err(Error::InvalidInput(format!(
            "{cut} separates rows that agree in the first {} key columns, which 'keep_together' keeps in one partition",
            self.keep_together
        )))
    }

    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the first inconsistency.
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |message: &str| Err(Error::InvalidInput(message.to_owned()));
        if self.partition_size_mb == 0 {
            return invalid("'auto_partitioning_partition_size_mb' must be 1 or more");
        }
        if self.min_partitions == 0 {
            return invalid("'auto_partitioning_min_partitions_count' must be 1 or more");
        }
        if self.min_partitions as usize > TABLE_PARTITIONS_MAX {
            return Err(Error::InvalidInput(format!(
                "'auto_partitioning_min_partitions_count' must be {TABLE_PARTITIONS_MAX} or less"
            )));
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

/// Remedy for a hotspot that no split helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HotspotRemedy {
    /// No remedy and no advice.
    Off,
    /// The DDL that would remove the hotspot is shown.
    #[default]
    Advise,
    /// An append-mode table gets hash buckets for its new rows.
    Auto,
}

impl HotspotRemedy {
    /// Value in `WITH ('hotspot_remedy' = ...)`.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Auto => "auto",
        }
    }
}
