//! The last lines of line protocol that were not stored: `sys.rejected_points`.
//!
//! An identity sees the lines that it sent itself: those of the same role, and of the same token. The owner of a database
//! sees all lines for it, and MONITOR shows all lines. Those for a database that was dropped are not those of a later one
//! with its name.
//!
//! A ring of bounded length that drops the oldest lines; a line is cut to its beginning, as in the response.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::access::{Action, Identity, Need, Object};
use partita_proto::id::DatabaseId;

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Maximum number of lines.
const LEN_MAX: usize = 1_000;
/// Maximum bytes of a message; longer ones are cut.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Columns of `sys.rejected_points`.
pub(crate) const REJECTED_POINTS: &[(&str, Kind)] = &[
    ("time", Kind::Time),
    ("database", Kind::Text),
    ("user", Kind::Text),
    ("line_number", Kind::Count),
    ("reason", Kind::Text),
    ("message", Kind::Text),
    ("line", Kind::Text),
];

/// A line that was not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedPoint {
    /// Time of the request in milliseconds since 1970-01-01T00:00:00Z.
    pub time_ms: i64,
    /// Database of the request.
    pub database: String,
    /// Id of the database; `None` if it did not exist.
    pub database_id: Option<DatabaseId>,
    /// Identity of the writer.
    pub identity: Identity,
    /// Number of the line in its request, from 1.
    pub line_number: u64,
    /// Class of the error: `syntax`, `schema`, `columns`, `denied`, `retention` or `series`.
    pub reason: &'static str,
    /// Description of the error.
    pub message: String,
    /// The beginning of the line.
    pub line: String,
}

/// The last lines that were not stored; see the head of the file.
#[derive(Debug, Default)]
pub struct RejectedPoints {
    points: Mutex<VecDeque<Arc<RejectedPoint>>>,
}

impl RejectedPoints {
    /// Adds lines of a request; drops the oldest ones beyond the maximum.
    pub fn add(&self, points: impl IntoIterator<Item = RejectedPoint>) {
        let mut queue = self.points.lock();
        for mut point in points {
            if point.message.len() > MESSAGE_BYTES_MAX {
                let end = point.message.floor_char_boundary(MESSAGE_BYTES_MAX);
                point.message.truncate(end);
            }
            while queue.len() >= LEN_MAX {
                queue.pop_front();
            }
            queue.push_back(Arc::new(point));
        }
    }

    /// All lines, oldest first.
    pub fn points(&self) -> Vec<Arc<RejectedPoint>> {
        self.points.lock().iter().map(Arc::clone).collect()
    }

    /// Rows of `sys.rejected_points` for a viewer.
    pub(crate) fn batch(&self, viewer: &Viewer) -> Result<RecordBatch, SqlError> {
        let (access, identity, monitors) = (viewer.access(), viewer.identity(), viewer.monitors());
        let catalog = viewer.catalog();
        let owns = |point: &RejectedPoint| {
            let database = catalog.databases.get(&point.database);
            let database = database.filter(|database| Some(database.id) == point.database_id);
            database.is_some_and(|database| {
                let object = Object::Database(Arc::clone(database));
                viewer.check(&[Need::new(Action::Own, object)]).is_ok()
            })
        };
        let mut points = self.points();
        points.retain(|point| monitors || is_of(point.identity, identity) || owns(point));
        let row = |point: &Arc<RejectedPoint>| {
            let user = access.role(point.identity.login).map(|role| role.name.clone());
            vec![
                Cell::Time(Some(point.time_ms)),
                point.database.as_str().into(),
                user.into(),
                point.line_number.into(),
                point.reason.into(),
                point.message.as_str().into(),
                point.line.as_str().into(),
            ]
        };
        batch(&schema(REJECTED_POINTS), points.iter().map(row).collect())
    }
}

/// True if both began as the same role, and with the same token or none.
fn is_of(writer: Identity, reader: Identity) -> bool {
    (writer.login, writer.token) == (reader.login, reader.token)
}

#[cfg(test)]
mod tests {
    use partita_proto::access::Door;
    use partita_proto::id::{RoleId, TokenId};

    use super::*;

    fn point(line_number: u64) -> RejectedPoint {
        let identity = Identity {
            login: RoleId(1),
            acting: None,
            token: None,
            secret_version: 0,
            org: None,
            door: Door::Http,
        };
        RejectedPoint {
            time_ms: 0,
            database: "b".to_owned(),
            database_id: None,
            identity,
            line_number,
            reason: "schema",
            message: "ä".repeat(MESSAGE_BYTES_MAX),
            line: "m v=1".to_owned(),
        }
    }

    #[test]
    fn the_oldest_lines_go_first_and_messages_are_cut() {
        let kept = RejectedPoints::default();
        kept.add((0..=1_000).map(point));
        let points = kept.points();
        assert_eq!((points.len(), points[0].line_number), (LEN_MAX, 1));
        assert!(points[0].message.len() <= MESSAGE_BYTES_MAX);
    }

    #[test]
    fn tokens_of_one_role_do_not_see_each_other() {
        let role = point(1).identity;
        let token = |id| Identity { token: TokenId::new(id), ..role };
        assert!(is_of(role, role) && is_of(token(1), token(1)));
        assert!(!is_of(role, token(1)) && !is_of(token(1), token(2)));
        assert!(!is_of(role, Identity { login: RoleId(2), ..role }));
    }
}
