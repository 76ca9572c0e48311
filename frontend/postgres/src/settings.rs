//! Settings that clients follow: set when they connect, told again whenever they change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use partita_frontend::sql::statement::{Set, SetValue, Statement, Transaction};
use partita_frontend::{Session, SqlError};
use pgwire::api::ClientInfo;
use pgwire::api::auth::ServerParameterProvider;
use pgwire::error::PgWireResult;

use crate::error::{fatal_of, protocol};

/// What PostgreSQL reports, as the session calls it and as clients know it.
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

/// Parameters of a startup message that are no settings.
const NO_SETTINGS: &[&str] = &["user", "database", "replication", "options", "application_name"];

/// Settings as a client was last told.
#[derive(Clone, Default)]
pub(crate) struct Reported(BTreeMap<&'static str, String>);

impl Reported {
    /// What the session has now.
    pub(crate) fn of(session: &Session) -> Result<Self, SqlError> {
        REPORTED
            .iter()
            .map(|(name, known)| Ok((*known, session.setting(name)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// What has changed since `before`.
    pub(crate) fn changes<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        self.0
            .iter()
            .filter(|(name, value)| before.0.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.as_str()))
    }
}

/// Tells the settings of a new session.
pub(crate) struct AtStart {
    pub(crate) reported: Reported,
    pub(crate) server_version: String,
}

impl ServerParameterProvider for AtStart {
    fn server_parameters<C>(&self, _: &C) -> Option<HashMap<String, String>>
    where
        C: ClientInfo,
    {
        let mut all: HashMap<String, String> = self
            .reported
            .0
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        all.insert("server_version".to_owned(), self.server_version.clone());
        Some(all)
    }
}

/// Whether a statement may have changed settings.
pub(crate) fn may_change(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Set(_)
            | Statement::ResetAll
            | Statement::Discard(_)
            | Statement::Transaction(Transaction::Commit | Transaction::Rollback)
    )
}

/// Sets what a startup message asks for.
pub(crate) async fn apply(
    session: &Arc<Session>,
    asked: &HashMap<String, String>,
) -> PgWireResult<()> {
    let mut settings: Vec<(String, String)> = asked
        .iter()
        // Names that begin so are options of the protocol.
        .filter(|(name, _)| !NO_SETTINGS.contains(&name.as_str()) && !name.starts_with("_pq_."))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    if let Some(options) = asked.get("options") {
        settings.extend(of_options(options)?);
    }
    for (name, mut value) in settings {
        if name == "client_encoding" {
            // PostgreSQL looks at letters and digits only; there are clients that send quotes.
            value.retain(|character| character.is_ascii_alphanumeric());
        }
        let set = Set { name, value: SetValue::Values(vec![value]), local: false };
        session.run(&Statement::Set(set)).await.map_err(fatal_of)?;
    }
    Ok(())
}

/// `-c name=value` and `--name=value`, with backslashes before blanks that do not separate.
fn of_options(options: &str) -> PgWireResult<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        let Some(word) = words.last_mut() else { break };
        match character {
            '\\' => word.extend(characters.next()),
            blank if blank.is_whitespace() => words.push(String::new()),
            other => word.push(other),
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
