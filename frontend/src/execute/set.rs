//! SET, RESET and SHOW of settings, and their effect on the session's plans.

use std::collections::BTreeMap;

use datafusion::common::config::ConfigOptions;
use partita_proto::catalog::DEFAULT_DATABASE;
use partita_sql::Notice;
use partita_sql::statement::{Set, SetValue};
use partita_worker::Zone;

use crate::at_data;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError, UNDEFINED_OBJECT};
use crate::output::Output;
use crate::session::Session;

/// DataFusion's settings that a session may change: they affect planning and execution, not results.
const PLANNER_PREFIXES: &[&str] =
    &["datafusion.execution.", "datafusion.optimizer.", "datafusion.explain."];

/// The setting that names the database, also called `schema`.
const SEARCH_PATH: &str = "search_path";

impl Session {
    pub(crate) fn set(&self, set: &Set) -> Result<Output, SqlError> {
        let tag = if set.value == SetValue::Default { "RESET" } else { "SET" };
        let mut value = match &set.value {
            SetValue::Default => None,
            SetValue::Values(values) => Some(values.join(", ")),
        };
        if set.name.starts_with("datafusion.") {
            self.set_planner(&set.name, value.as_deref())?;
            return Ok(Output::done(tag));
        }
        if set.name == SEARCH_PATH || set.name == "schema" {
            self.set_search_path(&set.value)?;
            return Ok(Output::done(tag));
        }
        if set.name == "timezone" {
            value = self.set_timezone(value.as_deref())?;
        }
        self.settings.lock().set(&set.name, value.as_deref(), set.local)?;
        if set.name == at_data::SETTING {
            self.follow_run_at_data()?;
        }
        let notices = if set.local && !self.in_transaction() {
            vec![Notice::warning("SET LOCAL can only be used in transaction blocks")]
        } else {
            Vec::new()
        };
        Ok(Output::done_with(tag, notices))
    }

    /// Sets a setting to a default of the session, which RESET goes back to: one of the role that the session began as,
    /// or of the client's startup message, which is set later and precedes the role's.
    ///
    /// # Errors
    /// When this version does not know the setting, or does not accept the value.
    pub fn set_default(&self, name: &str, value: &str) -> Result<(), SqlError> {
        let is_path = name == SEARCH_PATH || name == "schema";
        let values = match is_path {
            true => value.split(',').map(str::to_owned).collect(),
            false => vec![value.to_owned()],
        };
        let value = SetValue::Values(values);
        self.set(&Set { name: name.to_owned(), value, local: false })?;
        let name = if is_path { SEARCH_PATH } else { name };
        let default = self.show_setting(name)?;
        self.settings.lock().set_default(name, default);
        Ok(())
    }

    /// Uses the database of the session's default, or else the default one.
    fn reset_search_path(&self) {
        let default = self.settings.lock().session_default(SEARCH_PATH);
        // As in PostgreSQL, the default is taken as it is, even if the identity sees nothing in it.
        self.enter(default.as_deref().unwrap_or(DEFAULT_DATABASE));
    }

    /// Uses the first database of the path that exists.
    fn set_search_path(&self, value: &SetValue) -> Result<(), SqlError> {
        let SetValue::Values(names) = value else {
            self.reset_search_path();
            return Ok(());
        };
        let catalog = self.catalog();
        let database =
            names.iter().map(|name| name.trim()).find(|name| catalog.databases.contains_key(*name));
        match (database, names.first()) {
            (Some(name), _) => self.set_database(name),
            // An empty path asks for qualified names; others are found where they were.
            (None, Some(name)) if names.len() == 1 && name.trim().is_empty() => Ok(()),
            (None, Some(name)) => Err(SqlError::undefined_database(name)),
            (None, None) => Ok(()),
        }
    }

    /// Sets the zone and returns the name for SHOW; `None` resets it to the default.
    fn set_timezone(&self, requested: Option<&str>) -> Result<Option<String>, SqlError> {
        let requested = requested.filter(|name| {
            !["default", "local"].iter().any(|word| name.eq_ignore_ascii_case(word))
        });
        let default = self.settings.lock().session_default("timezone");
        let name = requested.or(default.as_deref()).unwrap_or("UTC").trim();
        let zone = Zone::of_setting(name).ok_or_else(|| {
            SqlError::new(
                INVALID_PARAMETER_VALUE,
                format!("invalid value for parameter \"TimeZone\": \"{name}\""),
            )
        })?;
        self.configure("datafusion.execution.time_zone", &zone.arrow())?;
        self.set_zone(zone);
        // An offset that was given a name is shown by that name.
        let has_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '<');
        let is_offset = matches!(zone, Zone::Fixed(east) if east != 0);
        let display_name = if is_offset && has_name { name.to_owned() } else { zone.to_string() };
        Ok(requested.map(|_| display_name))
    }

    /// Applies the setting `run_at_data` to the planner.
    fn follow_run_at_data(&self) -> Result<(), SqlError> {
        let mode = self.settings.lock().get(at_data::SETTING)?;
        self.configure(at_data::OPTION, &mode)
    }

    fn set_planner(&self, name: &str, value: Option<&str>) -> Result<(), SqlError> {
        if !PLANNER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(SqlError::new("55P02", format!("parameter \"{name}\" cannot be changed")));
        }
        match value {
            Some(value) => self.configure(name, value),
            None => {
                let default = self.settings.lock().session_default(name);
                if let Some(default) = default {
                    return self.configure(name, &default);
                }
                let defaults = self.frontend().context().state();
                let entries = defaults.config_options().entries();
                let entry =
                    entries.into_iter().find(|entry| entry.key == name).ok_or_else(|| {
                        SqlError::new(
                            UNDEFINED_OBJECT,
                            format!("unrecognized configuration parameter \"{name}\""),
                        )
                    })?;
                match entry.value {
                    Some(value) => self.configure(name, &value),
                    None => Ok(()),
                }
            }
        }
    }

    fn configure(&self, name: &str, value: &str) -> Result<(), SqlError> {
        let context = self.context();
        let state = context.state_ref();
        let mut state = state.write();
        let mut changed: ConfigOptions = state.config_options().as_ref().clone();
        changed.set(name, value).map_err(|error| {
            SqlError::new(INVALID_PARAMETER_VALUE, SqlError::from(error).message)
        })?;
        *state.config_mut().options_mut() = changed;
        Ok(())
    }

    pub(super) fn reset_all(&self) -> Result<Output, SqlError> {
        self.settings.lock().reset();
        self.reset_planner()?;
        self.set_timezone(None)?;
        self.follow_run_at_data()?;
        self.reset_search_path();
        Ok(Output::done("RESET"))
    }

    /// Resets the planner's settings that differ from their defaults.
    fn reset_planner(&self) -> Result<(), SqlError> {
        let current = self.context().state();
        let current = current.config_options().entries().into_iter();
        let current: BTreeMap<String, Option<String>> =
            current.map(|entry| (entry.key, entry.value)).collect();
        let defaults = self.frontend().context().state();
        for entry in defaults.config_options().entries() {
            let name = entry.key.as_str();
            if !PLANNER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let default = self.settings.lock().session_default(name).or(entry.value);
            if let Some(default) = default
                && current.get(name).and_then(Option::as_ref) != Some(&default)
            {
                self.configure(name, &default)?;
            }
        }
        Ok(())
    }

    /// Undoes SET LOCAL at the end of a transaction.
    pub(super) fn end_local_settings(&self) -> Result<(), SqlError> {
        let changed = self.settings.lock().end_transaction();
        if changed.iter().any(|name| name == "timezone") {
            let zone = self.settings.lock().get("timezone")?;
            self.set_timezone(Some(&zone))?;
        }
        if changed.iter().any(|name| name == at_data::SETTING) {
            self.follow_run_at_data()?;
        }
        Ok(())
    }

    pub(crate) fn show_setting(&self, name: &str) -> Result<String, SqlError> {
        if name == SEARCH_PATH || name == "schema" {
            return Ok(self.database());
        }
        if name == "is_superuser" {
            let (identity, access) = (self.identity(), self.viewer().access());
            let role = access.role(identity.acting.unwrap_or(identity.login));
            let is_superuser = role.is_some_and(|role| role.superuser);
            return Ok((if is_superuser { "on" } else { "off" }).to_owned());
        }
        if name.starts_with("datafusion.") {
            let state = self.context().state();
            let entries = state.config_options().entries();
            let entry = entries.into_iter().find(|entry| entry.key == name);
            return entry.and_then(|entry| entry.value).ok_or_else(|| {
                SqlError::new(
                    UNDEFINED_OBJECT,
                    format!("unrecognized configuration parameter \"{name}\""),
                )
            });
        }
        self.settings.lock().get(name)
    }

    pub(super) fn all_settings(&self) -> BTreeMap<String, String> {
        let mut settings = self.settings.lock().all();
        settings.insert(SEARCH_PATH.to_owned(), self.database());
        if let Ok(value) = self.show_setting("is_superuser") {
            settings.insert("is_superuser".to_owned(), value);
        }
        settings
    }
}
