//! Findings of the advisor: a rule that fires, with its evidence, and what to do about it.

use serde::Serialize;
use serde_json::Value;

/// A mistake in a schema, or a chance to improve it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Rule that fires.
    pub rule: Rule,
    /// Severity of the mistake.
    pub severity: Severity,
    /// Place of the mistake: `database.table` or `database.table.column`.
    pub object: String,
    /// Figures on which the finding rests, as a JSON object.
    pub evidence: Value,
    /// Remedy in words.
    pub advice: String,
    /// Remedy as statements; `None` if only the owner can decide.
    pub ddl: Option<String>,
    /// Expected effect of the remedy.
    pub effect: Option<Effect>,
}

/// Severity of a finding; a greater one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A chance to improve.
    Info,
    /// A mistake that costs space or time.
    Warning,
    /// A mistake that limits the table.
    Error,
}

impl Severity {
    /// Word in `sys.advice`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The severity with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Info, Self::Warning, Self::Error]
            .into_iter()
            .find(|severity| severity.as_str() == name)
    }
}

/// Expected effect of a remedy; figures are factors, after divided by before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Effect {
    /// Rows that the statements concerned read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_read: Option<f64>,
    /// Stored bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Number of partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<f64>,
    /// Duration of the statements concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<f64>,
    /// The same in words.
    pub text: String,
}

impl Effect {
    /// An effect that only words describe.
    pub(crate) fn in_words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

macro_rules! rules {
    ($($id:ident $title:literal)*) => {
        /// Rule of the advisor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Rule {
            $(
                #[doc = $title]
                $id,
            )*
        }

        impl Rule {
            /// All rules, in the order of their ids.
            pub const ALL: [Self; 40] = [$(Self::$id),*];

            /// Id in `sys.advice` and in the table option `advice_off`.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$id => stringify!($id),)*
                }
            }

            /// Mistake that the rule finds, in a few words.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$id => $title,)*
                }
            }
        }
    };
}

rules! {
    A01 "too many columns"
    A02 "too many tags"
    A03 "mostly NULL"
    A04 "rows of several shapes in one table"
    A05 "numbers stored as text"
    A06 "long texts in filters"
    A07 "several attributes in one value"
    A08 "data in names"
    A09 "fields of one moment with different timestamps"
    A10 "names that must be quoted"
    A11 "too many series"
    A12 "log text or id as tag"
    A13 "tables that are always joined"
    A14 "key that grows at its end"
    A15 "NULL in the key"
    A16 "long key or row"
    A17 "key type without exact equality"
    A18 "missing index"
    A19 "unused index"
    A20 "index on the time index"
    A21 "index of the wrong kind"
    A22 "partitioned by time"
    A23 "too many partitions"
    A24 "too few partitions"
    A25 "partitions of unequal load"
    A26 "statements that read all partitions"
    A27 "values in one blob"
    A28 "versions that never expire"
    A29 "time buckets too long"
    A30 "one small value in each row"
    A31 "tag that depends on another"
    A32 "hash that scatters an entity"
    A33 "first key column with few values"
    A34 "single hot key"
    A35 "deduplication without duplicates"
    A36 "merge mode does not fit"
    A37 "partition column outside the key"
    A38 "irregular metric"
    A39 "different retention in one database"
    A40 "partition limits far apart"
}

impl Rule {
    /// The rule with an id, in any case.
    pub fn of_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.id().eq_ignore_ascii_case(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_rules() {
        for (number, rule) in (1..).zip(Rule::ALL) {
            assert_eq!(rule.id(), format!("A{number:02}"));
            assert_eq!(Rule::of_id(&rule.id().to_lowercase()), Some(rule));
        }
        assert_eq!(Rule::of_id("A41"), None);
    }

    #[test]
    fn a_worse_severity_is_greater() {
        assert!(Severity::Info < Severity::Warning && Severity::Warning < Severity::Error);
        assert_eq!(Severity::of_name("warning"), Some(Severity::Warning));
        assert_eq!(Severity::of_name("fatal"), None);
    }
}
