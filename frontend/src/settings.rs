//! A session's settings: what SET changes and SHOW tells.
//!
//! Most exist because clients of PostgreSQL set or ask them when they connect; those keep whatever
//! they are given. A setting that would promise something this version does not do takes only the
//! value that is true.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::at_data;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError, UNDEFINED_OBJECT};
use crate::functions::POSTGRES_VERSION;

/// Settings with a dot in their name that a client may invent.
const CUSTOM_MAX: usize = 100;

/// Bytes of a setting's name and value.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// How a setting takes values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Anything.
    Anything,
    /// A duration in milliseconds, or with a unit.
    Duration,
    /// One of these, whatever its case.
    OneOf(&'static [&'static str]),
    /// One of these, each of which means something else.
    Choice(&'static [&'static str]),
    /// Whether something is so.
    Switch,
    /// The style of dates, of which there is one, and the order of day and month, which no text here leaves open.
    DateStyle,
    /// Nothing: it only tells.
    Nothing,
}

/// Name, what it takes, what it is when nobody sets it.
const KNOWN: &[(&str, Takes, &str)] = &[
    ("application_name", Takes::Anything, ""),
    ("bytea_output", Takes::OneOf(&["hex"]), "hex"),
    ("client_encoding", Takes::OneOf(&["UTF8", "UTF-8", "UNICODE"]), "UTF8"),
    ("client_min_messages", Takes::Anything, "notice"),
    ("datestyle", Takes::DateStyle, "ISO, MDY"),
    ("default_table_access_method", Takes::OneOf(&["heap"]), "heap"),
    ("default_transaction_isolation", Takes::OneOf(ISOLATION), "read committed"),
    ("default_transaction_read_only", Takes::Switch, "off"),
    ("extra_float_digits", Takes::Anything, "1"),
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
    ("read_consistency", Takes::OneOf(&["linearizable", "strong"]), "linearizable"),
    ("row_security", Takes::Anything, "on"),
    ("run_at_data", Takes::Choice(at_data::MODES), at_data::ON),
    ("search_path", Takes::Anything, "public"),
    ("server_encoding", Takes::Nothing, "UTF8"),
    ("server_version", Takes::Nothing, POSTGRES_VERSION),
    ("server_version_num", Takes::Nothing, "160006"),
    ("session_authorization", Takes::Nothing, ""),
    ("standard_conforming_strings", Takes::OneOf(&["on", "true", "1", "yes"]), "on"),
    ("statement_timeout", Takes::Duration, "0"),
    ("synchronous_commit", Takes::OneOf(&["on", "true", "1", "yes"]), "on"),
    ("timezone", Takes::Anything, "UTC"),
    ("transaction_isolation", Takes::OneOf(ISOLATION), "read committed"),
    ("transaction_read_only", Takes::Switch, "off"),
];

/// What a transaction gets, under the names that ask for no more.
const ISOLATION: &[&str] = &["read committed", "read uncommitted"];

/// The settings of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Those that were set.
    values: BTreeMap<String, String>,
    /// What those set by SET LOCAL were before; `None`: not set.
    local: BTreeMap<String, Option<String>>,
    /// What `statement_timeout` is when nobody sets it.
    statement_timeout: Option<Duration>,
}

impl Settings {
    pub(crate) fn new(statement_timeout: Option<Duration>, user: &str, application: &str) -> Self {
        let mut values = BTreeMap::new();
        values.insert("session_authorization".to_owned(), user.to_owned());
        values.insert("application_name".to_owned(), application.to_owned());
        Self { values, local: BTreeMap::new(), statement_timeout }
    }

    /// The value of a setting, as SHOW says it.
    pub(crate) fn get(&self, name: &str) -> Result<String, SqlError> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if name == "statement_timeout" {
            return Ok(self
                .statement_timeout
                .map_or_else(|| "0".to_owned(), |timeout| format!("{}ms", timeout.as_millis())));
        }
        if name == "transaction_read_only" {
            return self.get("default_transaction_read_only");
        }
        known(name).map(|(_, _, default)| (*default).to_owned()).ok_or_else(|| unknown(name))
    }

    /// Sets a setting; `None` makes it what it is when nobody sets it.
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
            // As in PostgreSQL, a name with a dot is the client's own.
            (None, value) if name.contains('.') => {
                if self.values.len() >= KNOWN.len() + CUSTOM_MAX && !self.values.contains_key(name)
                {
                    return Err(SqlError::new("54000", "too many custom settings"));
                }
                value.map(str::to_owned)
            }
            (None, _) => return Err(unknown(name)),
        };
        if name.len() + checked.as_ref().map_or(0, String::len) > VALUE_BYTES_MAX {
            // Clients are told settings in messages that they bound.
            return Err(SqlError::new(
                INVALID_PARAMETER_VALUE,
                format!("a setting and its name take at most {VALUE_BYTES_MAX} bytes"),
            ));
        }
        let before = match checked {
            Some(value) => self.values.insert(name.to_owned(), value),
            None => self.values.remove(name),
        };
        if local {
            self.local.entry(name.to_owned()).or_insert(before);
        } else {
            self.local.remove(name);
        }
        Ok(())
    }

    /// Undoes SET LOCAL; returns the names of what changed.
    pub(crate) fn end_transaction(&mut self) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, before) in std::mem::take(&mut self.local) {
            match before {
                Some(value) => self.values.insert(name.clone(), value),
                None => self.values.remove(&name),
            };
            changed.push(name);
        }
        changed
    }

    /// Makes every setting what it is when nobody sets it.
    pub(crate) fn reset(&mut self) {
        let kept = ["session_authorization", "application_name"];
        self.values.retain(|name, _| kept.contains(&name.as_str()));
        self.local.clear();
    }

    /// All settings with their values, by name.
    pub(crate) fn all(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = KNOWN
            .iter()
            .map(|(name, _, _)| *name)
            .filter_map(|name| self.get(name).ok().map(|value| (name.to_owned(), value)))
            .collect();
        all.extend(self.values.clone());
        all
    }

    /// Whether statements may not write.
    pub(crate) fn is_read_only(&self) -> bool {
        let own = self.values.get("transaction_read_only");
        own.or_else(|| self.values.get("default_transaction_read_only"))
            .is_some_and(|is| is == "on")
    }

    /// The value of a setting that is a duration; `None`: none, or 0.
    pub(crate) fn timeout(&self, name: &str) -> Option<Duration> {
        duration(self.values.get(name)?).filter(|timeout| !timeout.is_zero())
    }

    /// How long a statement may run.
    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        match self.values.get("statement_timeout") {
            // It was checked when it was set.
            Some(value) => duration(value).filter(|timeout| !timeout.is_zero()),
            None => self.statement_timeout,
        }
    }
}

/// The names of all settings but those that a client invents.
pub fn setting_names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, _, _)| *name).collect()
}

fn known(name: &str) -> Option<&'static (&'static str, Takes, &'static str)> {
    KNOWN.iter().find(|(known, _, _)| *known == name)
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
                .ok_or_else(|| invalid("a duration such as 500, 500ms, 5s or 1min".into()))?;
            Ok(value.to_owned())
        }
        Takes::Switch => match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".to_owned()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".to_owned()),
            _ => Err(invalid("on or off".into())),
        },
        Takes::DateStyle => date_style(value)
            .ok_or_else(|| invalid("dates are written as ISO 8601 has them".into())),
        Takes::OneOf(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value)) {
            // The first is what the others are called too.
            Some(_) => Ok(values[0].to_owned()),
            None => Err(invalid(format!("this version takes {}", values[0]))),
        },
        Takes::Choice(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value)) {
            Some(value) => Ok((*value).to_owned()),
            None => Err(invalid(format!("one of {}", values.join(", ")))),
        },
    }
}

/// `ISO` with an order, or one of them; `None` for another style.
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

/// PostgreSQL's durations: milliseconds, or a number with a unit.
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
        let mut settings = Settings::new(None, "me", "psql");
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
            settings.set("client_encoding", Some("latin1"), false).unwrap_err().sqlstate,
            "22023"
        );
        settings.set("client_encoding", Some("utf-8"), false).unwrap();
        assert_eq!(settings.get("client_encoding").unwrap(), "UTF8");
    }

    #[test]
    fn what_is_not_given_is_refused() {
        let mut settings = Settings::new(None, "", "");
        for (name, value) in [
            ("datestyle", "German"),
            ("datestyle", "SQL, DMY"),
            ("intervalstyle", "iso_8601"),
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_read_only", "maybe"),
        ] {
            let error = settings.set(name, Some(value), false).unwrap_err();
            assert_eq!(error.sqlstate, "22023", "{name} {value}");
        }
    }

    #[test]
    fn a_transaction_is_read_only_as_the_session_is_unless_it_says() {
        let mut settings = Settings::new(None, "", "");
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
    fn set_local_ends_with_the_transaction() {
        let mut settings = Settings::new(Some(Duration::from_millis(7)), "", "");
        settings.set("datestyle", Some("ISO, DMY"), true).unwrap();
        settings.set("datestyle", Some("ymd"), true).unwrap();
        assert_eq!(settings.get("datestyle").unwrap(), "ISO, YMD");
        assert_eq!(settings.end_transaction(), ["datestyle"]);
        assert_eq!(settings.get("datestyle").unwrap(), "ISO, MDY");
        assert_eq!(settings.get("statement_timeout").unwrap(), "7ms");
    }
}
