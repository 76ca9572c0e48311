//! `WITH (key = value, ...)`: parsing the list, and the options of tables and databases.
//!
//! Keys are words with dots or strings (`ttl`, 'compaction.twcs.time_window'), values are strings, numbers or words.
//! Every clause of CREATE TABLE may be written as an option too, for tools that only know standard DDL. An unknown key
//! is an error that names it.

use std::collections::BTreeMap;
use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::schema::{MergeMode, TableOptions};
use partita_proto::wide::{Family, ROW_BYTES_MAX, ROW_BYTES_WARN};

use super::bound_words::CutTuple;
use super::identifier::fold;
use super::partitioning::canonical;
use super::quantity::{parse_duration, parse_size};
use super::statement::TableOption;
use super::tokens::{Tokens, word_name};
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};
use crate::notice::Notice;

/// GreptimeDB's options about its own files, buffers and log, which mean nothing here.
const FOREIGN: &[&str] = &[
    "compaction.override",
    "compaction.twcs.fallback_to_local",
    "compaction.twcs.max_output_file_size",
    "compaction.twcs.trigger_file_num",
    "compaction.type",
    "index.type",
    "memtable.partition_tree.data_freeze_threshold",
    "memtable.partition_tree.fork_dictionary_bytes",
    "memtable.partition_tree.index_max_keys_per_shard",
    "memtable.partition_tree.primary_key_encoding",
    "memtable.type",
    "skip_wal",
    "sst_format",
    "storage",
    "write_buffer_size",
];

/// The notice of options that were accepted and have no effect; `None` without any.
pub(super) fn foreign_notice(keys: &[String]) -> Option<Notice> {
    let quoted: Vec<String> = keys.iter().map(|key| format!("'{key}'")).collect();
    let noun = if quoted.len() == 1 { "option" } else { "options" };
    let message = format!("table {noun} without effect: {}", quoted.join(", "));
    (!quoted.is_empty()).then(|| Notice::notice(message))
}

/// One `key = value`.
#[derive(Clone, Debug)]
pub(super) struct OptionPair {
    /// The key, folded.
    pub(super) key: String,
    /// String, number or word, or a list of tuples.
    pub(super) value: OptionValue,
    /// Position of the key, in characters.
    pub(super) position: usize,
}

/// A parsed, untyped value.
#[derive(Clone, Debug)]
pub(super) enum OptionValue {
    /// The word NULL: the default.
    Null,
    /// A string, a number or a word, as text.
    Text(String),
    /// `((1, 'a'), (2, 'b'))`.
    Tuples(Vec<CutTuple>),
}

impl OptionPair {
    /// The error of a value that the key does not accept.
    pub(super) fn wrong(&self, expected: &str) -> SqlError {
        let value = match &self.value {
            OptionValue::Null => "NULL".to_owned(),
            OptionValue::Text(text) => format!("'{text}'"),
            OptionValue::Tuples(_) => "a list".to_owned(),
        };
        SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("option '{}' takes {expected}, not {value}", self.key),
        )
        .with_position(self.position)
    }

    /// True for an option of GreptimeDB that has no effect.
    pub(super) fn is_foreign(&self) -> bool {
        FOREIGN.contains(&self.key.as_str())
    }

    /// The error of an unknown key.
    pub(super) fn unknown(&self) -> SqlError {
        SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("unrecognized table option key: '{}'", self.key),
        )
        .with_position(self.position)
        .with_hint(
            "options are append_mode, merge_mode, ttl, time_window, replication_factor, comment, \
             advice_off, advice_thresholds, schema_on_write, time_index, primary_key, partition_by, \
             partitions, partition_at_keys, uniform_partitions, keep_together, hotspot_remedy, pin_expiry, forecast, \
             kind, families, row_size_warn, row_size_max and \
             auto_partitioning_by_load, _by_size, _partition_size_mb, _min_partitions_count, _max_partitions_count, _merge_after",
        )
    }

    /// The value as text.
    pub(super) fn text(&self) -> Result<&str, SqlError> {
        match &self.value {
            OptionValue::Text(text) => Ok(text),
            _ => Err(self.wrong("a string")),
        }
    }

    /// The value as a boolean.
    pub(super) fn bool(&self) -> Result<bool, SqlError> {
        match self.text().map(fold).as_deref() {
            Ok("true" | "on" | "yes" | "1") => Ok(true),
            Ok("false" | "off" | "no" | "0") => Ok(false),
            _ => Err(self.wrong("'true' or 'false'")),
        }
    }

    /// The value as an unsigned integer.
    pub(super) fn number(&self) -> Result<u64, SqlError> {
        self.text()?.trim().parse().map_err(|_| self.wrong("a whole number"))
    }

    /// The value as a list of column names, folded unless quoted.
    pub(super) fn names(&self) -> Result<Vec<String>, SqlError> {
        let text = format!("({})", self.text()?);
        let wrong = |_| self.wrong("names of columns between commas");
        let mut tokens = Tokens::new(&text, 0).map_err(wrong)?;
        let names = tokens.columns().map_err(wrong)?;
        tokens.expect_end().map_err(wrong)?;
        Ok(names)
    }

    /// The value as a time to live; `None` means forever.
    pub(super) fn ttl(&self) -> Result<Option<Duration>, SqlError> {
        let text = match &self.value {
            OptionValue::Null => return Ok(None),
            _ => self.text()?.trim(),
        };
        match fold(text).as_str() {
            "" | "forever" | "none" | "null" => Ok(None),
            "instant" => {
                Err(SqlError::unsupported("the ttl 'instant'").with_position(self.position))
            }
            text => match parse_duration(text) {
                Some(duration) => Ok(Some(duration).filter(|duration| !duration.is_zero())),
                None => Err(self.wrong("a time such as '7d', '12h', '90 days' or 'forever'")),
            },
        }
    }

    /// The value as a width of time windows; `None` means chosen from the data.
    pub(super) fn time_window(&self) -> Result<Option<Duration>, SqlError> {
        let text = match &self.value {
            OptionValue::Null => return Ok(None),
            _ => self.text()?.trim(),
        };
        if text.is_empty() || text == "auto" {
            return Ok(None);
        }
        match parse_duration(&fold(text)) {
            Some(window) if !window.is_zero() => Ok(Some(window)),
            _ => Err(self.wrong("a time such as '1d', '2h' or '30m'")),
        }
    }

    /// The value as rules of the advisor; NULL is no rule.
    fn rules(&self) -> Result<Vec<String>, SqlError> {
        let text = match &self.value {
            OptionValue::Null => return Ok(Vec::new()),
            _ => self.text()?,
        };
        let is_rule = |rule: &String| {
            let digits = rule.strip_prefix('A').unwrap_or_default();
            digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit())
        };
        let mut rules: Vec<String> =
            text.split(',').map(|rule| rule.trim().to_ascii_uppercase()).collect();
        rules.retain(|rule| !rule.is_empty());
        if !rules.iter().all(is_rule) {
            return Err(self.wrong("rules of the advisor such as 'A01, A20'"));
        }
        rules.sort_unstable();
        rules.dedup();
        Ok(rules)
    }

    /// The value as thresholds of the advisor, each `name=value`, by name; NULL is none. The advisor knows the names.
    fn thresholds(&self) -> Result<Vec<String>, SqlError> {
        let text = match &self.value {
            OptionValue::Null => return Ok(Vec::new()),
            _ => self.text()?,
        };
        let wrong = || self.wrong("thresholds of the advisor such as 'calls=50, many_tags=8'");
        let mut thresholds = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let name = fold(name.trim());
            let value: f64 = value.trim().parse().map_err(|_| wrong())?;
            let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            let is_first = !thresholds.contains_key(&name);
            if name.is_empty() || !is_name || !value.is_finite() || !is_first {
                return Err(wrong());
            }
            thresholds.insert(name, value);
        }
        Ok(thresholds.iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    /// The value as column families.
    fn families(&self) -> Result<Vec<Family>, SqlError> {
        let text = format!("({})", self.text()?);
        let wrong = |error: SqlError| {
            self.wrong("column families such as 'stats GC (MAX_VERSIONS = 3), meta'")
                .with_detail(error.to_string())
        };
        let mut tokens = Tokens::new(&text, 0).map_err(wrong)?;
        let families = tokens.families().map_err(wrong)?;
        tokens.expect_end().map_err(wrong)?;
        Ok(families)
    }

    /// The value as a size of rows; NULL is the default.
    fn row_size(&self, default: u64) -> Result<u64, SqlError> {
        match &self.value {
            OptionValue::Null => Ok(default),
            _ => parse_size(self.text()?).ok_or_else(|| self.wrong("a size such as '100MiB'")),
        }
    }

    /// The option of a table that may be changed later; `None` for other keys.
    pub(super) fn table_option(&self) -> Result<Option<TableOption>, SqlError> {
        Ok(Some(match self.key.as_str() {
            "ttl" => TableOption::Ttl(self.ttl()?),
            "time_window" | "compaction.twcs.time_window" => {
                TableOption::TimeWindow(self.time_window()?)
            }
            "comment" => TableOption::Comment(match &self.value {
                OptionValue::Null => None,
                _ => Some(self.text()?.to_owned()).filter(|text| !text.is_empty()),
            }),
            "replication_factor" => TableOption::ReplicationFactor(match &self.value {
                OptionValue::Null => None,
                _ => Some(u32::try_from(self.number()?).map_err(|_| self.wrong("a small number"))?),
            }),
            "append_mode" => TableOption::AppendMode(self.bool()?),
            "merge_mode" => TableOption::MergeMode(match fold(self.text()?).as_str() {
                "last_row" => MergeMode::LastRow,
                "last_non_null" => MergeMode::LastNonNull,
                _ => return Err(self.wrong("'last_row' or 'last_non_null'")),
            }),
            "advice_off" => TableOption::AdviceOff(self.rules()?),
            "advice_thresholds" => TableOption::AdviceThresholds(self.thresholds()?),
            "families" => TableOption::Families(match &self.value {
                OptionValue::Null => Vec::new(),
                _ => self.families()?,
            }),
            "row_size_warn" => TableOption::RowSizeWarn(self.row_size(ROW_BYTES_WARN)?),
            "row_size_max" => TableOption::RowSizeMax(self.row_size(ROW_BYTES_MAX)?),
            _ => return Ok(self.partitioning_option()?.map(TableOption::Partitioning)),
        }))
    }
}

impl TableOption {
    /// Sets the option among a table's options.
    pub(super) fn apply(&self, options: &mut TableOptions) {
        match self {
            Self::Ttl(ttl) => options.ttl = *ttl,
            Self::TimeWindow(window) => options.time_window = *window,
            Self::Comment(comment) => options.comment.clone_from(comment),
            Self::ReplicationFactor(replicas) => options.replication_factor = *replicas,
            Self::AppendMode(append) => options.append_mode = *append,
            Self::MergeMode(mode) => options.merge_mode = *mode,
            Self::Partitioning(option) => option.apply(&mut options.partitioning),
            Self::AdviceOff(rules) => options.advice_off.clone_from(rules),
            Self::AdviceThresholds(thresholds) => {
                options.advice_thresholds.clone_from(thresholds);
            }
            // The options of a wide table; any other is refused with them.
            Self::Families(families) => {
                options.wide.get_or_insert_default().families.clone_from(families);
            }
            Self::RowSizeWarn(bytes) => {
                options.wide.get_or_insert_default().row_bytes_warn = *bytes;
            }
            Self::RowSizeMax(bytes) => options.wide.get_or_insert_default().row_bytes_max = *bytes,
        }
    }

    /// The option with another value; `None` for families, each of which is changed for itself.
    pub(super) fn other(&self) -> Option<Self> {
        let other_list = |list: &[String]| match list {
            [] => vec![String::new()],
            _ => Vec::new(),
        };
        Some(match self {
            Self::Ttl(ttl) => Self::Ttl(other(ttl.as_ref())),
            Self::TimeWindow(window) => Self::TimeWindow(other(window.as_ref())),
            Self::Comment(comment) => Self::Comment(other(comment.as_ref())),
            Self::ReplicationFactor(replicas) => Self::ReplicationFactor(other(replicas.as_ref())),
            Self::AppendMode(append) => Self::AppendMode(!append),
            Self::MergeMode(MergeMode::LastRow) => Self::MergeMode(MergeMode::LastNonNull),
            Self::MergeMode(MergeMode::LastNonNull) => Self::MergeMode(MergeMode::LastRow),
            Self::Partitioning(option) => Self::Partitioning(option.other()),
            Self::AdviceOff(rules) => Self::AdviceOff(other_list(rules)),
            Self::AdviceThresholds(thresholds) => Self::AdviceThresholds(other_list(thresholds)),
            Self::Families(_) => return None,
            Self::RowSizeWarn(bytes) => Self::RowSizeWarn(!bytes),
            Self::RowSizeMax(bytes) => Self::RowSizeMax(!bytes),
        })
    }
}

fn other<T: Default>(value: Option<&T>) -> Option<T> {
    if value.is_some() { None } else { Some(T::default()) }
}

impl Tokens<'_> {
    /// Takes `(key = value, ...)`; the equals sign may be left out, as PostgreSQL does.
    pub(super) fn options(&mut self) -> Result<Vec<OptionPair>, SqlError> {
        let pairs = self.list(|tokens| {
            let position = tokens.position();
            let key = tokens.option_key()?;
            tokens.take_mark(&Token::Eq);
            let value = tokens.option_value()?;
            Ok(OptionPair { key, value, position })
        })?;
        for (index, pair) in pairs.iter().enumerate() {
            if pairs[..index].iter().any(|earlier| earlier.key == pair.key) {
                return Err(SqlError::syntax(format!(
                    "option '{}' is specified more than once",
                    pair.key
                ))
                .with_position(pair.position));
            }
        }
        Ok(pairs)
    }

    /// Takes a key: a string, or words with dots.
    pub(super) fn option_key(&mut self) -> Result<String, SqlError> {
        if let Ok(key) = self.string() {
            return Ok(canonical(fold(&key)));
        }
        let mut key = self.name("an option")?;
        while self.take_mark(&Token::Period) {
            key.push('.');
            key.push_str(&self.name("the rest of an option's name")?);
        }
        Ok(canonical(fold(&key)))
    }

    pub(super) fn option_value(&mut self) -> Result<OptionValue, SqlError> {
        if self.take(&["null"]) {
            return Ok(OptionValue::Null);
        }
        if let Ok(text) = self.string() {
            return Ok(OptionValue::Text(text));
        }
        let sign = if self.take_mark(&Token::Minus) { "-" } else { "" };
        let text = match &self.peek().token {
            Token::Number(number, _) => format!("{sign}{number}"),
            Token::Word(word) if sign.is_empty() => word_name(word),
            Token::LParen if sign.is_empty() => return Ok(OptionValue::Tuples(self.tuples()?)),
            _ => return Err(self.unexpected("a value")),
        };
        self.next();
        Ok(OptionValue::Text(text))
    }

    /// Takes `((1, 'a'), AFTER (2, 'b'))`, or `(1, 2)` for tuples of one.
    pub(super) fn tuples(&mut self) -> Result<Vec<CutTuple>, SqlError> {
        self.list(|tokens| {
            let is_after = tokens.take_after();
            let values = if matches!(tokens.peek().token, Token::LParen) {
                tokens.list(Self::expression)?
            } else {
                vec![tokens.expression()?]
            };
            Ok(CutTuple { values, is_after })
        })
    }

    /// Takes AFTER or BEFORE in front of the values of a boundary; true for AFTER.
    pub(super) fn take_after(&mut self) -> bool {
        let is_after = self.take(&["after"]);
        if !is_after {
            self.take(&["before"]);
        }
        is_after
    }
}
