//! The limit of open files: raised as far as it goes at the start, and shared out between storage and connections.
//!
//! A connection takes a file, and so does everything that the log, the catalog and the partitions do. Connections are
//! many and refused politely; storage that finds no file fails. So half of the files are kept for storage, and the doors
//! take fewer connections where the other half does not suffice.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections of the HTTP door, at most: requests come over few of them.
const HTTP_MAX: u64 = 1024;
/// Connections of the PostgreSQL door, at most.
const POSTGRES_MAX: u64 = 512;
/// The least that a door takes, so that it can be used at all.
const DOOR_MIN: u64 = 8;

/// Connections that the doors take at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    pub(crate) http: usize,
    pub(crate) postgres: usize,
}

impl Connections {
    /// Shares out the half of `files` that is not kept for storage: as much as each door takes at most, or in that
    /// proportion.
    fn of(files: u64) -> Self {
        let all = HTTP_MAX + POSTGRES_MAX;
        let half = (files / 2).min(all);
        let part = |max: u64| {
            let share = half * max / all;
            usize::try_from(share.max(DOOR_MIN)).unwrap_or(usize::MAX)
        };
        Self { http: part(HTTP_MAX), postgres: part(POSTGRES_MAX) }
    }

    /// As the limit of open files allows.
    pub(crate) fn allowed() -> Self {
        // No limit: as many as one may name.
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }
}

/// Raises the limit of open files to what the system lets this process have, and says so in the log.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (before, now) = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => (current, maximum),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            (current, current)
        }
    };
    let Connections { http, postgres } = Connections::allowed();
    let text = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    tracing::info!(before = text(before), now = text(now), http, postgres, "limit of open files");
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
        // Too few for anything: the doors open all the same.
        assert_eq!(Connections::of(10), Connections { http: 8, postgres: 8 });
    }
}
