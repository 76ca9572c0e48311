//! `sys.audit`: the entries that a viewer may see.
//!
//! With MONITOR it sees all of them, otherwise those of the role that its session began as, and of its token. A failed
//! sign-in belongs to no one.

use arrow::record_batch::RecordBatch;

use super::{Audit, AuditEntry};
use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.audit`.
pub(crate) const AUDIT: &[(&str, Kind)] = &[
    ("at", Kind::Time),
    ("kind", Kind::Text),
    ("user", Kind::Text),
    ("role", Kind::Text),
    ("token_id", Kind::Text),
    ("door", Kind::Text),
    ("peer", Kind::Text),
    ("database", Kind::Text),
    ("action", Kind::Text),
    ("object", Kind::Text),
    ("detail", Kind::Text),
    ("outcome", Kind::Text),
    ("sqlstate", Kind::Text),
    ("count", Kind::Count),
];

/// Rows of `sys.audit`, oldest first.
pub(crate) fn rows(audit: &Audit, viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let mut entries = audit.entries();
    if !viewer.monitors() {
        let identity = viewer.identity();
        entries.retain(|entry| entry.owner == Some((identity.login, identity.token)));
    }
    batch(&schema(AUDIT), entries.iter().map(|entry| cells(entry)).collect())
}

fn cells(entry: &AuditEntry) -> Vec<Cell> {
    vec![
        Cell::Time(Some(entry.at_ms)),
        entry.event.name().into(),
        entry.user.clone().into(),
        entry.role.clone().into(),
        entry.token.map(|token| token.to_string()).into(),
        entry.door.name().into(),
        entry.peer.map(|peer| peer.to_string()).into(),
        entry.database.clone().into(),
        entry.action.into(),
        entry.object.clone().into(),
        entry.detail.clone().into(),
        entry.outcome.name().into(),
        entry.sqlstate.clone().into(),
        entry.count.into(),
    ]
}
