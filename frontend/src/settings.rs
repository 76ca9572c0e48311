//! A session's settings: the values of SET and SHOW.
//!
//! Most settings exist because PostgreSQL's clients set or read them when they connect; these keep any value. A
//! setting that promises a behaviour accepts only values that this version implements.

mod described;

use std::collections::BTreeMap;
use std::time::Duration;

use partita_worker::functions::POSTGRES_VERSION;

use crate::at_data;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError, UNDEFINED_OBJECT};

pub use self::described::{DescribedSetting, described_settings};

/// Maximum custom settings of a client, which have a dot in their name.
const CUSTOM_MAX: usize = 100;

/// Maximum bytes of a setting's name and value together.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// Values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Any text, which is kept as it is.
    Anything,
    /// A duration in milliseconds, or with a unit.
    Duration,
    /// One of several spellings of the same value, in any case.
    OneOf(&'static [&'static str]),
    /// An encoding of texts, of which only UTF-8 is converted.
    Encoding,
    /// One of several values, in any case.
    Choice(&'static [&'static str]),
    /// Consistency of reads; each has two spellings.
    Consistency,
    /// On or off.
    Switch,
    /// The style of dates, which is always ISO, and the order of day and month, which ISO does not need.
    DateStyle,
    /// No value: the setting is read-only.
    Nothing,
}

/// Name, accepted values, default.
const KNOWN: &[(&str, Takes, &str)] = &[
    ("application_name", Takes::Anything, ""),
    ("bytea_output", Takes::OneOf(&["hex"]), "hex"),
    ("check_function_bodies", Takes::Switch, "on"),
    ("client_encoding", Takes::Encoding, "UTF8"),
    ("client_min_messages", Takes::Anything, "notice"),
    ("datestyle", Takes::DateStyle, "ISO, MDY"),
    ("default_table_access_method", Takes::OneOf(&["heap"]), "heap"),
    ("default_tablespace", Takes::OneOf(&[""]), ""),
    ("default_transaction_deferrable", Takes::Switch, "off"),
    ("default_transaction_isolation", Takes::Choice(ISOLATION), "read committed"),
    ("default_transaction_read_only", Takes::Switch, "off"),
    ("extra_float_digits", Takes::Anything, "1"),
    ("follower_reads", Takes::Switch, "on"),
    ("idle_in_transaction_session_timeout", Takes::Duration, "0"),
    ("idle_session_timeout", Takes::Duration, "0"),
    ("integer_datetimes", Takes::Nothing, "on"),
    ("intervalstyle", Takes::OneOf(&["postgres"]), "postgres"),
    ("is_superuser", Takes::Nothing, "on"),
    ("jit", Takes::Anything, "off"),
    ("lc_messages", Takes::Anything, "C"),
    ("lock_timeout", Takes::Duration, "0"),
    ("max_identifier_length", Takes::Nothing, "128"),
    ("max_index_keys", Takes::Nothing, "32"),
    ("max_staleness", Takes::Duration, MAX_STALENESS),
    ("password_encryption", Takes::OneOf(&["scram-sha-256"]), "scram-sha-256"),
    ("read_consistency", Takes::Consistency, LINEARIZABLE),
    ("row_security", Takes::Anything, "on"),
    ("run_at_data", Takes::Choice(at_data::MODES), at_data::ON),
    ("search_path", Takes::Anything, "public"),
    ("server_encoding", Takes::Nothing, "UTF8"),
    ("server_version", Takes::Nothing, POSTGRES_VERSION),
    ("server_version_num", Takes::Nothing, "150018"),
    ("session_authorization", Takes::Nothing, ""),
    ("standard_conforming_strings", Takes::OneOf(&["on", "true", "1", "yes"]), "on"),
    ("statement_timeout", Takes::Duration, "0"),
    ("synchronize_seqscans", Takes::Switch, "on"),
    ("synchronous_commit", Takes::OneOf(&["on", "true", "1", "yes"]), "on"),
    ("timezone", Takes::Anything, "UTC"),
    ("transaction_deferrable", Takes::Switch, "off"),
    ("transaction_isolation", Takes::Choice(ISOLATION), "read committed"),
    ("transaction_read_only", Takes::Switch, "off"),
    ("uncollected_cells", Takes::Switch, "off"),
    ("xmloption", Takes::Choice(&["content", "document"]), "content"),
];

/// PostgreSQL's encodings that a client may ask for, and that are not converted.
const OTHER_ENCODINGS: &[&str] = &[
    "BIG5",
    "EUCCN",
    "EUCJIS2004",
    "EUCJP",
    "EUCKR",
    "EUCTW",
    "GB18030",
    "GBK",
    "ISO88591",
    "ISO88595",
    "ISO88596",
    "ISO88597",
    "ISO88598",
    "ISO885915",
    "JOHAB",
    "KOI8R",
    "KOI8U",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "MULEINTERNAL",
    "SHIFTJIS2004",
    "SJIS",
    "UHC",
    "WIN866",
    "WIN874",
    "WIN1250",
    "WIN1251",
    "WIN1252",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1256",
    "WIN1257",
    "WIN1258",
];

/// Reads see every acknowledged write.
const LINEARIZABLE: &str = "linearizable";
/// Reads see every write that was acknowledged longer ago than `max_staleness`.
const BOUNDED: &str = "bounded";
/// Default of `max_staleness`.
const MAX_STALENESS: &str = "5s";

/// Isolation levels that are fulfilled, the actual one first. As in PostgreSQL, the other one is the same under its own
/// name.
const ISOLATION: &[&str] = &["read committed", "read uncommitted"];

/// Settings of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Explicit values.
    values: BTreeMap<String, String>,
    /// Values from before SET LOCAL; `None`: the default.
    local: BTreeMap<String, Option<String>>,
    /// Defaults of the session, by its startup message or the role that it began as; they precede those of the server.
    defaults: BTreeMap<String, String>,
    /// Default of `statement_timeout`.
    statement_timeout: Option<Duration>,
}

impl Settings {
    /// Settings of a session that begins as a user, in a database.
    pub(crate) fn new(
        statement_timeout: Option<Duration>,
        user: &str,
        application: &str,
        database: &str,
    ) -> Self {
        let authorization = ("session_authorization".to_owned(), user.to_owned());
        let mut defaults = BTreeMap::from([("search_path".to_owned(), database.to_owned())]);
        // A client that gives no name has the default.
        if !application.is_empty() {
            defaults.insert("application_name".to_owned(), application.to_owned());
        }
        let values = BTreeMap::from([authorization]);
        Self { values, defaults, statement_timeout, ..Self::default() }
    }

    /// Makes a value, as SHOW returns it, the one that holds and that RESET goes back to.
    pub(crate) fn set_default(&mut self, name: &str, value: String) {
        self.defaults.insert(name.to_owned(), value);
        self.values.remove(name);
    }

    /// Default of the session; `None` if that of the server holds.
    pub(crate) fn session_default(&self, name: &str) -> Option<String> {
        self.defaults.get(name).cloned()
    }

    /// Value that RESET goes back to; `None` for settings that are read-only or do not exist.
    pub(crate) fn reset_value(&self, name: &str) -> Option<String> {
        known(name).filter(|(_, takes, _)| *takes != Takes::Nothing)?;
        let unset = Self {
            defaults: self.defaults.clone(),
            statement_timeout: self.statement_timeout,
            ..Self::default()
        };
        unset.get(name).ok()
    }

    /// PostgreSQL's word for where a value comes from.
    pub(crate) fn source(&self, name: &str) -> &'static str {
        match (self.values.contains_key(name), self.defaults.contains_key(name)) {
            (true, _) => "session",
            (false, true) => "client",
            (false, false) => "default",
        }
    }

    /// Explicit value, or else the session's default.
    fn value(&self, name: &str) -> Option<&String> {
        self.values.get(name).or_else(|| self.defaults.get(name))
    }

    /// Value of a setting as SHOW returns it.
    pub(crate) fn get(&self, name: &str) -> Result<String, SqlError> {
        if let Some(value) = self.value(name) {
            return Ok(value.clone());
        }
        if name == "statement_timeout" {
            return Ok(self
                .statement_timeout
                .map_or_else(|| "0".to_owned(), |timeout| format!("{}ms", timeout.as_millis())));
        }
        if matches!(
            name,
            "transaction_deferrable" | "transaction_isolation" | "transaction_read_only"
        ) {
            return self.get(&format!("default_{name}"));
        }
        known(name).map(|(_, _, default)| (*default).to_owned()).ok_or_else(|| unknown(name))
    }

    /// Sets a setting; `None` resets it to its default.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
    ) -> Result<(), SqlError> {
        let checked = match (known(name), value) {
            (Some((_, takes, _)), Some(value)) => Some(check(name, *takes, value)?),
            (Some((_, Takes::Nothing, _)), None) => return Err(read_only(name)),
            (Some(_), None) => None,
            // As in PostgreSQL, names with a dot are free for the client.
            (None, value) if name.contains('.') => {
                if self.value(name).is_none() && self.custom_count() >= CUSTOM_MAX {
                    return Err(SqlError::new("54000", "too many custom settings"));
                }
                value.map(str::to_owned)
            }
            (None, _) => return Err(unknown(name)),
        };
        if name.len() + checked.as_ref().map_or(0, String::len) > VALUE_BYTES_MAX {
            // Settings are sent to clients in messages of bounded size.
            return Err(SqlError::new(
                INVALID_PARAMETER_VALUE,
                format!("a setting can have at most {VALUE_BYTES_MAX} bytes with its name"),
            ));
        }
        let previous = match checked {
            Some(value) => self.values.insert(name.to_owned(), value),
            None => self.values.remove(name),
        };
        if local {
            self.local.entry(name.to_owned()).or_insert(previous);
        } else {
            self.local.remove(name);
        }
        Ok(())
    }

    /// Custom settings that have a value.
    fn custom_count(&self) -> usize {
        let of_defaults = self.defaults.keys().filter(|name| !self.values.contains_key(*name));
        self.values.keys().chain(of_defaults).filter(|name| known(name).is_none()).count()
    }

    /// Undoes SET LOCAL; returns the names of the changed settings.
    pub(crate) fn end_transaction(&mut self) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, previous) in std::mem::take(&mut self.local) {
            match previous {
                Some(value) => self.values.insert(name.clone(), value),
                None => self.values.remove(&name),
            };
            changed.push(name);
        }
        changed
    }

    /// Resets every setting to its default: that of the session, or else that of the server.
    pub(crate) fn reset(&mut self) {
        self.values.retain(|name, _| name == "session_authorization");
        self.local.clear();
    }

    /// All settings with their values, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let mut settings: BTreeMap<String, String> = KNOWN
            .iter()
            .map(|(name, _, _)| *name)
            .filter_map(|name| self.get(name).ok().map(|value| (name.to_owned(), value)))
            .collect();
        // The planner's settings are kept by the planner.
        let defaults = self.defaults.iter().filter(|(name, _)| !name.starts_with("datafusion."));
        settings.extend(
            defaults.chain(&self.values).map(|(name, value)| (name.clone(), value.clone())),
        );
        settings
    }

    /// Returns true if the transaction may not write.
    pub(crate) fn is_read_only(&self) -> bool {
        self.value("transaction_read_only")
            .or_else(|| self.value("default_transaction_read_only"))
            .is_some_and(|value| value == "on")
    }

    /// Value of a duration setting; `None` if it is not set or 0.
    pub(crate) fn timeout(&self, name: &str) -> Option<Duration> {
        duration(self.value(name)?).filter(|timeout| !timeout.is_zero())
    }

    /// Age of acknowledged writes that reads may miss; zero: none.
    pub(crate) fn staleness_max(&self) -> Duration {
        let is_bounded = self.value("read_consistency").is_some_and(|value| value == BOUNDED);
        if !is_bounded || !self.reads_at_followers() {
            return Duration::ZERO;
        }
        let bound = self.value("max_staleness").map_or(MAX_STALENESS, String::as_str);
        // The value was checked by SET.
        duration(bound).unwrap_or_default()
    }

    /// False if only leaders are read.
    pub(crate) fn reads_at_followers(&self) -> bool {
        self.value("follower_reads").is_none_or(|value| value != "off")
    }

    /// True if queries see garbage of wide tables that is not yet removed.
    pub(crate) fn reads_uncollected(&self) -> bool {
        self.value("uncollected_cells").is_some_and(|value| value == "on")
    }

    /// Maximum run time of a statement; `None`: no limit.
    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        match self.value("statement_timeout") {
            // The value was checked by SET.
            Some(value) => duration(value).filter(|timeout| !timeout.is_zero()),
            None => self.statement_timeout,
        }
    }
}

/// A value in the unit of its setting, in which `pg_settings` has it.
pub(crate) fn in_unit(name: &str, value: String) -> String {
    match (known(name), duration(&value)) {
        (Some((_, Takes::Duration, _)), Some(time)) => time.as_millis().to_string(),
        _ => value,
    }
}

fn known(name: &str) -> Option<&'static (&'static str, Takes, &'static str)> {
    KNOWN.iter().find(|(setting, _, _)| *setting == name)
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

fn read_only(name: &str) -> SqlError {
    SqlError::new("55P02", format!("parameter \"{name}\" cannot be changed"))
}

fn check(name: &str, takes: Takes, value: &str) -> Result<String, SqlError> {
    let invalid = |hint: String| {
        SqlError::new(
            INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
        .with_hint(hint)
    };
    match takes {
        Takes::Anything => Ok(value.to_owned()),
        Takes::Nothing => Err(read_only(name)),
        Takes::Duration => {
            duration(value)
                .ok_or_else(|| invalid("use a duration such as 500, 500ms, 5s or 1min".into()))?;
            Ok(value.to_owned())
        }
        Takes::Switch => match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".to_owned()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".to_owned()),
            _ => Err(invalid("use on or off".into())),
        },
        Takes::DateStyle => {
            date_style(value).ok_or_else(|| invalid("only the ISO date style is supported".into()))
        }
        Takes::OneOf(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value)) {
            // All spellings mean the first one.
            Some(_) => Ok(values[0].to_owned()),
            None => Err(invalid(format!("only {} is supported", values[0]))),
        },
        Takes::Encoding => {
            // As in PostgreSQL, only letters and digits count.
            let mut letters = value.to_ascii_uppercase();
            letters.retain(|character| character.is_ascii_alphanumeric());
            match letters.as_str() {
                "UTF8" | "UNICODE" => Ok("UTF8".to_owned()),
                // Bytes are passed as they are, and have to be UTF-8 all the same.
                "SQLASCII" => Ok("SQL_ASCII".to_owned()),
                other if OTHER_ENCODINGS.contains(&other) => {
                    let message = format!("conversion between {value} and UTF8");
                    Err(SqlError::unsupported(message).with_hint("SET client_encoding = 'UTF8'"))
                }
                _ => Err(invalid("use UTF8 or SQL_ASCII".into())),
            }
        }
        Takes::Consistency => match value.to_ascii_lowercase().as_str() {
            LINEARIZABLE | "strong" => Ok(LINEARIZABLE.to_owned()),
            BOUNDED | "bounded_stale" => Ok(BOUNDED.to_owned()),
            _ => {
                Err(invalid(format!("use {LINEARIZABLE} or {BOUNDED}, which max_staleness bounds")))
            }
        },
        Takes::Choice(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value)) {
            Some(value) => Ok((*value).to_owned()),
            None => Err(invalid(format!("use one of {}", values.join(", ")))),
        },
    }
}

/// `ISO`, an order of day and month, or both; `None` for another style.
fn date_style(text: &str) -> Option<String> {
    let mut order = "MDY";
    for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        match word.as_str() {
            "iso" => {}
            "mdy" | "us" | "noneuro" | "noneuropean" => order = "MDY",
            "dmy" | "euro" | "european" => order = "DMY",
            "ymd" => order = "YMD",
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}

/// A duration in PostgreSQL's syntax: milliseconds, or a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let milliseconds = match text[digits..].trim() {
        "" | "ms" => number,
        "us" => number / 1e3,
        "s" => number * 1e3,
        "min" => number * 6e4,
        "h" => number * 3.6e6,
        "d" => number * 8.64e7,
        _ => return None,
    };
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_shown_and_reset() {
        let mut settings = Settings::new(None, "me", "psql", "public");
        assert_eq!(settings.get("application_name").unwrap(), "psql");
        settings.set("statement_timeout", Some("2s"), false).unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        assert_eq!(settings.timeout("idle_session_timeout"), None);
        settings.set("idle_session_timeout", Some("1500"), false).unwrap();
        assert_eq!(settings.timeout("idle_session_timeout"), Some(Duration::from_millis(1500)));
        let long = "x".repeat(5 << 20);
        for name in ["application_name", "my.own"] {
            let error = settings.set(name, Some(&long), false).unwrap_err();
            assert_eq!(error.sqlstate, "22023", "{name}");
        }
        settings.set("statement_timeout", Some("0"), false).unwrap();
        assert_eq!(settings.statement_timeout(), None);
        assert_eq!(
            settings.set("statement_timeout", Some("soon"), false).unwrap_err().sqlstate,
            "22023"
        );
        assert_eq!(settings.set("nope", Some("1"), false).unwrap_err().sqlstate, "42704");
        assert_eq!(settings.set("server_version", Some("1"), false).unwrap_err().sqlstate, "55P02");
        settings.set("my.own", Some("1"), false).unwrap();
        assert_eq!(settings.get("my.own").unwrap(), "1");
        settings.reset();
        assert!(settings.get("my.own").is_err());
        assert_eq!(settings.get("session_authorization").unwrap(), "me");
        assert_eq!(
            settings.set("client_encoding", Some("latin1"), false).unwrap_err().message,
            "conversion between latin1 and UTF8 is not supported"
        );
        for (encoding, sqlstate) in [("win-1252", "0A000"), ("klingon", "22023")] {
            let error = settings.set("client_encoding", Some(encoding), false).unwrap_err();
            assert_eq!(error.sqlstate, sqlstate, "{encoding}");
        }
        settings.set("client_encoding", Some("sql_ascii"), false).unwrap();
        assert_eq!(settings.get("client_encoding").unwrap(), "SQL_ASCII");
        settings.set("client_encoding", Some("utf-8"), false).unwrap();
        assert_eq!(settings.get("client_encoding").unwrap(), "UTF8");
    }

    #[test]
    fn a_reset_goes_back_to_the_default_of_the_session() {
        let mut settings = Settings::new(Some(Duration::from_secs(9)), "me", "", "public");
        settings.set_default("statement_timeout", "2s".to_owned());
        settings.set_default("application_name", "of the role".to_owned());
        settings.set_default("my.own", "1".to_owned());
        settings.set_default("default_transaction_read_only", "on".to_owned());
        assert!(settings.is_read_only());
        for (name, default) in
            [("statement_timeout", "2s"), ("application_name", "of the role"), ("my.own", "1")]
        {
            assert_eq!(settings.get(name).unwrap(), default);
            settings.set(name, Some("7"), false).unwrap();
            assert_eq!(settings.get(name).unwrap(), "7");
            settings.set(name, None, false).unwrap();
            assert_eq!(settings.get(name).unwrap(), default);
            settings.set(name, Some("8"), true).unwrap();
            settings.end_transaction();
            assert_eq!(settings.all()[name], default);
        }
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        settings.set("statement_timeout", Some("0"), false).unwrap();
        assert_eq!(settings.statement_timeout(), None);
        settings.reset();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        assert_eq!(settings.get("my.own").unwrap(), "1");
    }

    #[test]
    fn values_have_a_source_a_unit_and_a_value_to_go_back_to() {
        let mut settings = Settings::new(None, "me", "", "public");
        assert_eq!(settings.source("statement_timeout"), "default");
        settings.set_default("statement_timeout", "2s".to_owned());
        assert_eq!(settings.source("statement_timeout"), "client");
        settings.set("statement_timeout", Some("1min"), false).unwrap();
        assert_eq!(settings.source("statement_timeout"), "session");
        assert_eq!(settings.reset_value("statement_timeout").unwrap(), "2s");
        for (name, value, expected) in [
            ("statement_timeout", "1min", "60000"),
            ("max_staleness", "5s", "5000"),
            ("application_name", "5s", "5s"),
        ] {
            assert_eq!(in_unit(name, value.to_owned()), expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_given_is_refused() {
        let mut settings = Settings::new(None, "", "", "public");
        for (name, value) in [
            ("datestyle", "German"),
            ("datestyle", "SQL, DMY"),
            ("intervalstyle", "iso_8601"),
            ("password_encryption", "md5"),
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_read_only", "maybe"),
        ] {
            let error = settings.set(name, Some(value), false).unwrap_err();
            assert_eq!(error.sqlstate, "22023", "{name} {value}");
        }
    }

    #[test]
    fn a_transaction_is_read_only_as_the_session_is_unless_it_says() {
        let mut settings = Settings::new(None, "", "", "public");
        assert!(!settings.is_read_only());
        settings.set("default_transaction_read_only", Some("true"), false).unwrap();
        assert!(settings.is_read_only());
        assert_eq!(settings.get("transaction_read_only").unwrap(), "on");
        settings.set("transaction_read_only", Some("off"), true).unwrap();
        assert!(!settings.is_read_only());
        settings.end_transaction();
        assert!(settings.is_read_only());
    }

    #[test]
    fn a_transaction_has_the_modes_of_the_session_unless_it_says() {
        let mut settings = Settings::new(None, "", "", "public");
        for (name, first, second) in [
            ("transaction_deferrable", "off", "on"),
            ("transaction_isolation", "read committed", "read uncommitted"),
        ] {
            assert_eq!(settings.get(name).unwrap(), first);
            settings.set(&format!("default_{name}"), Some(second), false).unwrap();
            assert_eq!(settings.get(name).unwrap(), second);
            settings.set(name, Some(first), true).unwrap();
            assert_eq!(settings.get(name).unwrap(), first);
            settings.end_transaction();
            assert_eq!(settings.get(name).unwrap(), second);
        }
    }

    #[test]
    fn reads_are_linearizable_unless_the_session_accepts_a_bounded_staleness() {
        let mut settings = Settings::new(None, "", "", "public");
        assert_eq!(settings.get("read_consistency").unwrap(), "linearizable");
        settings.set("max_staleness", Some("10s"), false).unwrap();
        assert_eq!(settings.staleness_max(), Duration::ZERO, "a bound alone asks for nothing");
        for (value, shown, bound) in [
            ("Bounded", "bounded", Duration::from_secs(10)),
            ("strong", "linearizable", Duration::ZERO),
            ("bounded_stale", "bounded", Duration::from_secs(10)),
        ] {
            settings.set("read_consistency", Some(value), false).unwrap();
            assert_eq!(settings.get("read_consistency").unwrap(), shown);
            assert_eq!(settings.staleness_max(), bound, "{value}");
        }
        settings.set("max_staleness", None, false).unwrap();
        assert_eq!(settings.staleness_max(), Duration::from_secs(5));
        settings.set("max_staleness", Some("0"), true).unwrap();
        assert_eq!(settings.staleness_max(), Duration::ZERO);
        settings.end_transaction();
        assert_eq!(settings.staleness_max(), Duration::from_secs(5));
        settings.set("follower_reads", Some("no"), true).unwrap();
        assert!(!settings.reads_at_followers());
        assert_eq!(settings.staleness_max(), Duration::ZERO, "leaders have all rows");
        settings.end_transaction();
        assert!(settings.reads_at_followers());
        for (name, value) in [("read_consistency", "eventual"), ("max_staleness", "soon")] {
            let error = settings.set(name, Some(value), false).unwrap_err();
            assert_eq!(error.sqlstate, "22023", "{name}");
        }
    }

    #[test]
    fn set_local_ends_with_the_transaction() {
        let mut settings = Settings::new(Some(Duration::from_millis(7)), "", "", "public");
        settings.set("datestyle", Some("ISO, DMY"), true).unwrap();
        settings.set("datestyle", Some("ymd"), true).unwrap();
        assert_eq!(settings.get("datestyle").unwrap(), "ISO, YMD");
        assert_eq!(settings.end_transaction(), ["datestyle"]);
        assert_eq!(settings.get("datestyle").unwrap(), "ISO, MDY");
        assert_eq!(settings.get("statement_timeout").unwrap(), "7ms");
    }
}
