//! Settings as `pg_settings` describes them: category, type, unit, bounds, choices.
//!
//! The type follows from the values that a setting accepts; what clients choose freely has the type that PostgreSQL gives it.

use super::{BOUNDED, KNOWN, LINEARIZABLE, Takes};

/// A setting without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedSetting {
    /// Name as PostgreSQL writes it; lookups ignore case.
    pub name: &'static str,
    /// Group of settings.
    pub category: &'static str,
    /// One sentence about its effect.
    pub description: &'static str,
    /// Unit of a number.
    pub unit: Option<&'static str>,
    /// `user` for settings that a session may change, otherwise `internal`.
    pub context: &'static str,
    /// `bool`, `enum`, `integer` or `string`.
    pub vartype: &'static str,
    /// Least and greatest number.
    pub bounds: Option<(&'static str, &'static str)>,
    /// Values of an `enum`.
    pub choices: &'static [&'static str],
    /// Value without any SET, in the setting's unit.
    pub boot_value: &'static str,
}

const CLIENT: &str = "Client Connection Defaults / Statement Behavior";
const LOCALE: &str = "Client Connection Defaults / Locale and Formatting";
const REPORTING: &str = "Reporting and Logging / What to Log";
const COMPATIBILITY: &str = "Version and Platform Compatibility / Previous PostgreSQL Versions";
const PLANNING: &str = "Query Tuning / Other Planner Options";
const READS: &str = "Replication / Reads";
const PRESET: &str = "Preset Options";

/// Name, category, description.
const ABOUT: &[(&str, &str, &str)] = &[
    ("application_name", REPORTING, "Sets the application name to be reported in statistics."),
    ("bytea_output", CLIENT, "Sets the output format for bytea."),
    ("check_function_bodies", CLIENT, "Accepted; there are no functions in SQL."),
    ("client_encoding", LOCALE, "Sets the client's character set encoding."),
    ("client_min_messages", CLIENT, "Accepted; all messages are sent to the client."),
    ("datestyle", LOCALE, "Sets the display format for date and time values."),
    ("default_table_access_method", CLIENT, "Sets the default table access method for new tables."),
    ("default_tablespace", CLIENT, "Sets the default tablespace, of which there is only one."),
    ("default_transaction_deferrable", CLIENT, "Accepted; no transaction waits to begin."),
    ("default_transaction_isolation", CLIENT, "Sets the isolation level of new transactions."),
    ("default_transaction_read_only", CLIENT, "Sets the read-only status of new transactions."),
    ("extra_float_digits", LOCALE, "Accepted; floats are shown exactly."),
    ("follower_reads", READS, "Allows reads at followers."),
    (
        "idle_in_transaction_session_timeout",
        CLIENT,
        "Sets the maximum idle time between statements in a transaction.",
    ),
    ("idle_session_timeout", CLIENT, "Sets the maximum idle time outside of a transaction."),
    ("integer_datetimes", PRESET, "Shows that datetimes are integers."),
    ("intervalstyle", LOCALE, "Sets the display format for interval values."),
    ("is_superuser", PRESET, "Shows whether the current user is a superuser."),
    ("jit", PLANNING, "Accepted; there is no compilation."),
    ("lc_messages", LOCALE, "Accepted; messages are in English."),
    ("lock_timeout", CLIENT, "Accepted; there are no locks."),
    ("max_identifier_length", PRESET, "Shows the maximum identifier length."),
    ("max_index_keys", PRESET, "Shows the maximum number of index keys."),
    ("max_staleness", READS, "Sets the age of writes that bounded reads may miss."),
    ("password_encryption", CLIENT, "Chooses the algorithm for encrypting passwords."),
    ("read_consistency", READS, "Sets the consistency of reads."),
    ("row_security", CLIENT, "Accepted; rights on rows are those of tokens."),
    ("run_at_data", PLANNING, "Sets where filters and partial aggregates run."),
    ("search_path", CLIENT, "Sets the database of names that are not qualified."),
    ("server_encoding", PRESET, "Shows the server character set encoding."),
    ("server_version", PRESET, "Shows the version of PostgreSQL that clients find."),
    ("server_version_num", PRESET, "Shows that version as an integer."),
    ("session_authorization", PRESET, "Shows the role that the session began as."),
    (
        "standard_conforming_strings",
        COMPATIBILITY,
        "Causes strings to treat backslashes literally.",
    ),
    ("statement_timeout", CLIENT, "Sets the maximum duration of any statement."),
    ("synchronize_seqscans", CLIENT, "Accepted; each scan is its own."),
    ("synchronous_commit", CLIENT, "Writes are durable before they are acknowledged."),
    ("timezone", LOCALE, "Sets the time zone of displaying and reading instants."),
    ("transaction_deferrable", CLIENT, "Accepted; no transaction waits to begin."),
    ("transaction_isolation", CLIENT, "Sets the isolation level of the current transaction."),
    ("transaction_read_only", CLIENT, "Sets the read-only status of the current transaction."),
    ("uncollected_cells", READS, "Shows cells of wide tables that are garbage."),
    ("xmloption", CLIENT, "Accepted; there is no type XML."),
];

/// Levels of messages that clients choose.
const LEVELS: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];

/// All settings except custom ones and those of the planner.
pub fn described_settings() -> Vec<DescribedSetting> {
    KNOWN.iter().map(|(name, takes, default)| described(name, *takes, default)).collect()
}

fn described(name: &'static str, takes: Takes, default: &'static str) -> DescribedSetting {
    let entry = ABOUT.iter().find(|(candidate, ..)| *candidate == name);
    let (category, description) =
        entry.map_or((PRESET, ""), |(_, category, description)| (*category, *description));
    let context = if takes == Takes::Nothing { "internal" } else { "user" };
    let (vartype, bounds, choices): (&str, Option<(&str, &str)>, &'static [&'static str]) =
        match (takes, name) {
            (Takes::Duration, _) => ("integer", Some(("0", "2147483647")), &[]),
            (_, "extra_float_digits") => ("integer", Some(("-15", "3")), &[]),
            (_, "max_identifier_length" | "max_index_keys" | "server_version_num") => {
                ("integer", Some((default, default)), &[])
            }
            (_, "client_min_messages") => ("enum", None, LEVELS),
            (Takes::Consistency, _) => ("enum", None, &[LINEARIZABLE, BOUNDED]),
            (Takes::Encoding, _) | (_, "default_table_access_method" | "default_tablespace") => {
                ("string", None, &[])
            }
            (Takes::OneOf(values), _) if values.first() != Some(&"on") => ("enum", None, values),
            (Takes::Choice(values), _) => ("enum", None, values),
            (Takes::Switch | Takes::OneOf(_), _) => ("bool", None, &[]),
            (_, "integer_datetimes" | "is_superuser" | "jit" | "row_security") => {
                ("bool", None, &[])
            }
            (Takes::Anything | Takes::DateStyle | Takes::Nothing, _) => ("string", None, &[]),
        };
    let shown_name = match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        name => name,
    };
    DescribedSetting {
        name: shown_name,
        category,
        description,
        unit: (takes == Takes::Duration).then_some("ms"),
        context,
        vartype,
        bounds,
        choices,
        boot_value: if name == "max_staleness" { "5000" } else { default },
    }
}

#[cfg(test)]
mod tests {
    use super::super::duration;
    use super::*;

    #[test]
    fn each_setting_is_described_once() {
        let settings = described_settings();
        assert_eq!(settings.len(), ABOUT.len());
        for setting in &settings {
            assert!(!setting.description.is_empty(), "{setting:?}");
            // A query is made of them.
            assert!(setting.choices.iter().all(|choice| !choice.contains(',')), "{setting:?}");
            assert_eq!(setting.vartype == "enum", !setting.choices.is_empty(), "{setting:?}");
        }
        let setting_of = |name: &str| settings.iter().find(|setting| setting.name == name).unwrap();
        assert_eq!(setting_of("statement_timeout").unit, Some("ms"));
        assert_eq!(setting_of("max_staleness").bounds, Some(("0", "2147483647")));
        assert_eq!(setting_of("read_consistency").choices, ["linearizable", "bounded"]);
        assert_eq!(setting_of("jit").vartype, "bool");
        assert_eq!(setting_of("server_version").context, "internal");
        assert_eq!(setting_of("TimeZone").boot_value, "UTC");
        let (_, _, default) = KNOWN.iter().find(|(name, ..)| *name == "max_staleness").unwrap();
        let boot = duration(setting_of("max_staleness").boot_value);
        assert_eq!(boot, duration(default));
    }
}
