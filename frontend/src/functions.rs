//! SQL functions whose answer depends on the session; those that are the same everywhere are
//! [`partita_worker::functions`].

use datafusion::logical_expr::ScalarUDF;
use partita_worker::functions::constant;
pub use partita_worker::functions::{POSTGRES_VERSION, version_text};

/// `current_database()`, `database()`, `current_schema()`, `current_user`: constants of the session's
/// context.
pub(crate) fn of_session(database: &str, user: &str) -> Vec<ScalarUDF> {
    vec![
        constant("current_database", &["database", "current_catalog"], database),
        constant("current_schema", &[], database),
        constant("current_user", &["user", "session_user", "current_role"], user),
    ]
}
