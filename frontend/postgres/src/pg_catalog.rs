//! The tables and functions that psql, drivers and ORMs look things up in.

use datafusion::error::DataFusionError;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::setup_pg_catalog;
use partita_frontend::{Session, SqlError, Statement};

/// The name of the one catalog.
const CATALOG: &str = "partita";

/// Gives a session pg_catalog.
pub(crate) fn install(session: &Session) -> Result<(), DataFusionError> {
    setup_pg_catalog(&session.context(), CATALOG, EmptyContextProvider).map_err(|error| *error)
}

/// Parses what a client sent.
pub(crate) fn parse(session: &Session, text: &str) -> Result<Vec<Statement>, SqlError> {
    session.parse(text)
}
