//! Settings that clients follow: set at the start, reported whenever they change.

use std::collections::{BTreeMap, HashMap};

use partita_frontend::sql::statement::{Statement, Transaction};
use partita_frontend::{Session, SqlError};
use pgwire::api::ClientInfo;
use pgwire::api::auth::ServerParameterProvider;
use pgwire::error::PgWireResult;

use crate::error::{fatal_of, protocol};

/// The settings that PostgreSQL reports, by the session's name and the client's.
const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("server_encoding", "server_encoding"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// Parameters of a startup message that are not settings.
const NO_SETTINGS: &[&str] = &["user", "database", "replication", "options", "application_name"];

/// Settings as last reported to the client.
#[derive(Clone, Default)]
pub(crate) struct Reported(BTreeMap<&'static str, String>);

impl Reported {
    /// The current settings of a session.
    pub(crate) fn of(session: &Session) -> Result<Self, SqlError> {
        REPORTED
            .iter()
            .map(|(name, client_name)| Ok((*client_name, session.setting(name)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The settings that differ from `previous`.
    pub(crate) fn changes<'a>(
        &'a self,
        previous: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        self.0
            .iter()
            .filter(|(name, value)| previous.0.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.as_str()))
    }
}

/// The settings of a new session, for its first report.
pub(crate) struct AtStart {
    pub(crate) reported: Reported,
    pub(crate) server_version: String,
}

impl ServerParameterProvider for AtStart {
    fn server_parameters<C>(&self, _: &C) -> Option<HashMap<String, String>>
    where
        C: ClientInfo,
    {
        let mut parameters: HashMap<String, String> = self
            .reported
            .0
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        parameters.insert("server_version".to_owned(), self.server_version.clone());
        Some(parameters)
    }
}

/// Returns true if a statement may have changed settings.
pub(crate) fn may_change(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Set(_)
            | Statement::ResetAll
            | Statement::Discard(_)
            | Statement::SetRole(_)
            | Statement::Transaction(Transaction::Commit | Transaction::Rollback)
    )
}

/// Applies the settings of a startup message, which become the defaults of the session.
pub(crate) fn apply(session: &Session, parameters: &HashMap<String, String>) -> PgWireResult<()> {
    let mut settings: Vec<(String, String)> = parameters
        .iter()
        // Names with this prefix are options of the protocol.
        .filter(|(name, _)| !NO_SETTINGS.contains(&name.as_str()) && !name.starts_with("_pq_."))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    if let Some(options) = parameters.get("options") {
        settings.extend(of_options(options)?);
    }
    for (name, mut value) in settings {
        if name == "client_encoding" {
            // PostgreSQL compares letters and digits only; some clients send quotes.
            value.retain(|character| character.is_ascii_alphanumeric());
        }
        session.set_default(&name, &value).map_err(fatal_of)?;
    }
    Ok(())
}

/// Parses `-c name=value` and `--name=value`; a backslash before a blank makes it part of a word.
fn of_options(options: &str) -> PgWireResult<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        let Some(word) = words.last_mut() else { break };
        match character {
            '\\' => word.extend(characters.next()),
            blank if blank.is_whitespace() => words.push(String::new()),
            character => word.push(character),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            Some("") => words.next().unwrap_or_default(),
            Some(setting) => setting.to_owned(),
            None => {
                return Err(protocol("42601", format!("invalid command-line argument: {word}")));
            }
        };
        let Some((name, value)) = setting.split_once('=') else {
            return Err(protocol("42601", format!("invalid command-line argument: {word}")));
        };
        settings.push((name.replace('-', "_").to_ascii_lowercase(), value.to_owned()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::of_options;

    #[test]
    fn options_are_read_as_postgres_reads_them() {
        let options = r"-c statement_timeout=5s -cdatestyle=ISO --search-path=a\ b";
        let expected = [("statement_timeout", "5s"), ("datestyle", "ISO"), ("search_path", "a b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(of_options(options).unwrap(), expected);
        assert!(of_options("-x").is_err());
        assert!(of_options("-c nothing").is_err());
    }
}
