//! The limit of open files: raised to the maximum at the start, and divided between storage and connections.
//!
//! Each connection needs a file, and so do the log, the catalog and the partitions. Connections are many and can be
//! refused politely; storage without a free file fails. So half of the files are reserved for storage, and the
//! doors accept fewer connections if the other half is not enough.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum connections of the HTTP door: requests share few of them.
const HTTP_MAX: u64 = 1024;
/// Maximum connections of the PostgreSQL door.
const POSTGRES_MAX: u64 = 512;
/// Minimum of a door, so that it can be used at all.
const DOOR_MIN: u64 = 8;

/// Maximum connections of the doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    pub(crate) http: usize,
    pub(crate) postgres: usize,
}

impl Connections {
    /// Divides the half of `files` that is not reserved for storage: each door's maximum, or less in the same
    /// proportion.
    fn of(files: u64) -> Self {
        let total = HTTP_MAX + POSTGRES_MAX;
        let half = (files / 2).min(total);
        let part = |max: u64| {
            let share = half * max / total;
            usize::try_from(share.max(DOOR_MIN)).unwrap_or(usize::MAX)
        };
        Self { http: part(HTTP_MAX), postgres: part(POSTGRES_MAX) }
    }

    /// Maximum connections under the present limit of open files.
    pub(crate) fn allowed() -> Self {
        // No limit counts as the largest number.
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }
}

/// Raises the limit of open files to the hard limit, and logs it.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (old, new) = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => (current, maximum),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            (current, current)
        }
    };
    let Connections { http, postgres } = Connections::allowed();
    let text = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    tracing::info!(before = text(old), now = text(new), http, postgres, "limit of open files");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_no_more_than_half_of_the_files() {
        for files in [256, 1024, 2048, 3071] {
            let Connections { http, postgres } = Connections::of(files);
            assert!((http + postgres) as u64 <= files / 2, "{files}: {http} + {postgres}");
            assert!(http as u64 >= DOOR_MIN && postgres as u64 >= DOOR_MIN, "{files}");
        }
        let whole = Connections { http: 1024, postgres: 512 };
        for files in [3072, 1 << 20, u64::MAX] {
            assert_eq!(Connections::of(files), whole, "{files}");
        }
        // Too few for anything: the doors open in spite of that.
        assert_eq!(Connections::of(10), Connections { http: 8, postgres: 8 });
    }
}
