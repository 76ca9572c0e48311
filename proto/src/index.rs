//! Indexes of columns: what is declared, not what is stored.
//!
//! A column has at most one index of each kind. Names of indexes are unique in a table ([`TableSchema::validate`]).
//!
//! [`TableSchema::validate`]: crate::schema::TableSchema::validate

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::schema::{ColumnType, NAME_BYTES_MAX};

/// Default number of rows for each bloom filter.
pub const GRANULARITY: u32 = 10_240;
/// Default number of rows for each bloom filter of words. A filter of fewer rows has fewer words, so that all filters
/// together hardly grow, while a search looks at a fifth of the texts for each block that it hits.
pub const WORDS_GRANULARITY: u32 = 2048;
/// Default share of false positives of a bloom filter, in millionths: one in a hundred.
pub const FALSE_POSITIVES_PPM: u32 = 10_000;
/// Maximum number of rows for each bloom filter.
pub const GRANULARITY_MAX: u32 = 1 << 20;
/// Maximum share of false positives, in millionths: a filter that is wrong more often does not pay.
const FALSE_POSITIVES_PPM_MAX: u32 = 500_000;

/// Kind of an index, without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum IndexKind {
    /// Rows of each value: for columns of few values, and for ranges and patterns.
    Inverted,
    /// Bloom filters of blocks of rows: for single values of columns with many.
    Skipping,
    /// Words of texts.
    Fulltext,
}

impl IndexKind {
    /// Every kind, in the order in which they are printed.
    pub const ALL: [Self; 3] = [Self::Inverted, Self::Skipping, Self::Fulltext];

    /// Keyword before INDEX in SQL.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Inverted => "INVERTED",
            Self::Skipping => "SKIPPING",
            Self::Fulltext => "FULLTEXT",
        }
    }

    /// Access method in `CREATE INDEX ... USING`, and value in system tables.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Inverted => "inverted",
            Self::Skipping => "skipping",
            Self::Fulltext => "fulltext",
        }
    }

    /// The kind of an access method, in lower case.
    pub fn of_method(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == name)
    }
}

/// Bloom filters of blocks of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blooms {
    /// Rows of a block, 1 to [`GRANULARITY_MAX`].
    pub granularity: u32,
    /// Share of blocks that are read although none of their rows has the value, in millionths.
    pub false_positives_ppm: u32,
}

impl Default for Blooms {
    fn default() -> Self {
        Self { granularity: GRANULARITY, false_positives_ppm: FALSE_POSITIVES_PPM }
    }
}

impl Blooms {
    /// The default for words of texts.
    pub const fn of_words() -> Self {
        Self { granularity: WORDS_GRANULARITY, false_positives_ppm: FALSE_POSITIVES_PPM }
    }

    fn check(&self, column: &str) -> Result<(), Error> {
        if !(1..=GRANULARITY_MAX).contains(&self.granularity) {
            return Err(Error::InvalidInput(format!(
                "granularity {} of the index of column \"{column}\" is not between 1 and {GRANULARITY_MAX}",
                self.granularity
            )));
        }
        if !(1..=FALSE_POSITIVES_PPM_MAX).contains(&self.false_positives_ppm) {
            return Err(Error::InvalidInput(format!(
                "false positive rate {} of the index of column \"{column}\" is not between 0.000001 and 0.5",
                f64::from(self.false_positives_ppm) / 1e6
            )));
        }
        Ok(())
    }
}

/// Rule that cuts a text into words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Analyzer {
    /// Words between blanks and punctuation.
    #[default]
    English,
    /// The same, and single characters and pairs of scripts without blanks.
    Chinese,
}

/// Structure that holds the words of a full-text index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Backend {
    /// Rows of each word.
    Inverted,
    /// Bloom filters of the words of blocks of rows.
    Bloom(Blooms),
}

impl Default for Backend {
    fn default() -> Self {
        Self::Bloom(Blooms::of_words())
    }
}

/// Options of a full-text index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fulltext {
    /// Rule for words.
    pub analyzer: Analyzer,
    /// True if words that differ in case are different words.
    pub case_sensitive: bool,
    /// Structure of the stored words.
    pub backend: Backend,
}

/// Kind of an index with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexOptions {
    /// See [`IndexKind::Inverted`].
    Inverted,
    /// See [`IndexKind::Skipping`].
    Skipping(Blooms),
    /// See [`IndexKind::Fulltext`].
    Fulltext(Fulltext),
}

impl IndexOptions {
    /// Kind without the options.
    pub const fn kind(&self) -> IndexKind {
        match self {
            Self::Inverted => IndexKind::Inverted,
            Self::Skipping(_) => IndexKind::Skipping,
            Self::Fulltext(_) => IndexKind::Fulltext,
        }
    }

    /// Checks that a column of the type can have the index.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it does not fit the type or an option is out of range.
    pub fn check(&self, column: &str, column_type: ColumnType) -> Result<(), Error> {
        if column_type.is_of_fields_only() {
            return Err(Error::InvalidInput(format!(
                "column \"{column}\" of type {} cannot have an index",
                column_type.sql()
            )));
        }
        match self {
            Self::Inverted => Ok(()),
            Self::Skipping(blooms) => blooms.check(column),
            Self::Fulltext(_) if column_type != ColumnType::String => {
                Err(Error::InvalidInput(format!(
                    "column \"{column}\" of type {} cannot have a fulltext index, which needs a STRING",
                    column_type.sql()
                )))
            }
            Self::Fulltext(Fulltext { backend: Backend::Bloom(blooms), .. }) => {
                blooms.check(column)
            }
            Self::Fulltext(Fulltext { backend: Backend::Inverted, .. }) => Ok(()),
        }
    }
}

/// An index of one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Name in SQL, unique in the table.
    pub name: String,
    /// Kind and options.
    pub options: IndexOptions,
}

/// Name of an index that its owner did not name: `{table}_{column}_{kind}`. If that is longer than
/// [`NAME_BYTES_MAX`] bytes, its end is replaced by a hash, so that two indexes still differ.
pub fn default_name(table: &str, column: &str, kind: IndexKind) -> String {
    let name = format!("{table}_{column}_{}", kind.method());
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let hash = format!("_{:016x}", xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
    let end = name.floor_char_boundary(NAME_BYTES_MAX - hash.len());
    format!("{}{hash}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: IndexOptions, column_type: ColumnType) -> String {
        options.check("c", column_type).unwrap_err().to_string()
    }

    #[test]
    fn kinds_are_found_by_their_method() {
        for kind in IndexKind::ALL {
            assert_eq!(IndexKind::of_method(kind.method()), Some(kind));
            assert_eq!(kind.sql().to_lowercase(), kind.method());
        }
        assert_eq!(IndexKind::of_method("INVERTED"), None);
        assert_eq!(IndexKind::of_method("btree"), None);
    }

    #[test]
    fn an_index_fits_the_type_of_its_column() {
        let fulltext = IndexOptions::Fulltext(Fulltext::default());
        let skipping = IndexOptions::Skipping(Blooms::default());
        for column_type in crate::arbitrary::TYPES {
            assert_eq!(IndexOptions::Inverted.check("c", column_type), Ok(()));
            assert_eq!(skipping.check("c", column_type), Ok(()));
            assert_eq!(fulltext.check("c", column_type).is_ok(), column_type == ColumnType::String);
        }
        let message = refusal(fulltext, ColumnType::Int64);
        assert_eq!(
            message,
            "column \"c\" of type BIGINT cannot have a fulltext index, which needs a STRING"
        );
    }

    #[test]
    fn options_out_of_range_are_refused_in_every_kind() {
        let both = |blooms| {
            let fulltext = Fulltext { backend: Backend::Bloom(blooms), ..Fulltext::default() };
            [IndexOptions::Skipping(blooms), IndexOptions::Fulltext(fulltext)]
        };
        for granularity in [0, GRANULARITY_MAX + 1] {
            for options in both(Blooms { granularity, ..Blooms::default() }) {
                let message = refusal(options, ColumnType::String);
                assert!(message.contains("is not between 1 and 1048576"), "{message}");
            }
        }
        for false_positives_ppm in [0, FALSE_POSITIVES_PPM_MAX + 1] {
            for options in both(Blooms { false_positives_ppm, ..Blooms::default() }) {
                let message = refusal(options, ColumnType::String);
                assert!(message.contains("is not between 0.000001 and 0.5"), "{message}");
            }
        }
        let widest =
            Blooms { granularity: GRANULARITY_MAX, false_positives_ppm: FALSE_POSITIVES_PPM_MAX };
        let narrowest = Blooms { granularity: 1, false_positives_ppm: 1 };
        for options in both(widest).into_iter().chain(both(narrowest)) {
            assert_eq!(options.check("c", ColumnType::String), Ok(()));
        }
    }

    #[test]
    fn long_default_names_are_cut_at_a_character_and_stay_different() {
        assert_eq!(default_name("t", "c", IndexKind::Skipping), "t_c_skipping");
        let table = "é".repeat(NAME_BYTES_MAX / 2);
        let names = IndexKind::ALL.map(|kind| default_name(&table, "c", kind));
        for name in &names {
            assert!(name.starts_with(&"é".repeat(55)), "{name}");
            assert!(name.len() <= NAME_BYTES_MAX, "{} bytes", name.len());
        }
        assert_ne!(names[0], names[1]);
        assert_ne!(names[1], names[2]);
    }
}
