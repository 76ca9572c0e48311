//! Events that may come by the thousand, such as failed sign-ins: the first of a kind is an entry at once, the others
//! are counted until the end of a window.
//!
//! ```text
//!   ann, wrong ──▶ entry          ann, wrong ×41 ─┐                     ┌▶ entry of 41
//!   bob, wrong ──▶ entry                          ├─ end of the window ─┤
//!   beyond keys_max kinds: ×500 ──────────────────┘                     └▶ entry of 500, without a name
//! ```
//!
//! A window begins with the first event. A kind that was counted in a window goes on in the next one without an entry at
//! its beginning.
//!
//! Invariants:
//! - a window yields at most `2 * keys_max + 1` entries;
//! - the counts of all entries, those of [`Repeats::open`] included, are together the number of events.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::entry::AuditEntry;

/// Events of one sort, by kind.
#[derive(Debug)]
pub(crate) struct Repeats<K> {
    window: Duration,
    keys_max: usize,
    /// Entries of the kinds of this window; their counts are of what is not an entry yet.
    kinds: HashMap<K, AuditEntry>,
    /// Entry of the kinds beyond the maximum.
    overflow: Option<AuditEntry>,
    /// End of the window; `None` before the first event.
    end: Option<Instant>,
}

impl<K: Eq + Hash> Repeats<K> {
    /// No events; windows of a length, with at most `keys_max` kinds each.
    pub(crate) fn new(window: Duration, keys_max: usize) -> Self {
        Self { window, keys_max, kinds: HashMap::new(), overflow: None, end: None }
    }

    /// Notes an event of a kind at a time, which is also given in milliseconds since 1970. Returns the entry to record
    /// now; `make` makes it if it is needed.
    pub(crate) fn note(
        &mut self,
        kind: K,
        (now, now_ms): (Instant, i64),
        make: impl FnOnce() -> AuditEntry,
    ) -> Option<AuditEntry> {
        if self.end.is_none() {
            self.end = Some(now + self.window);
        }
        if let Some(entry) = self.kinds.get_mut(&kind) {
            (entry.count, entry.at_ms) = (entry.count + 1, now_ms);
            return None;
        }
        if self.kinds.len() < self.keys_max {
            let entry = AuditEntry { at_ms: now_ms, count: 1, ..make() };
            self.kinds.insert(kind, AuditEntry { count: 0, ..entry.clone() });
            return Some(entry);
        }
        let empty = || AuditEntry { count: 0, ..make().of_several() };
        let entry = self.overflow.get_or_insert_with(empty);
        (entry.count, entry.at_ms) = (entry.count + 1, now_ms);
        None
    }

    /// Entries of what was counted in a window that has ended; none before its end.
    pub(crate) fn close(&mut self, now: Instant) -> Vec<AuditEntry> {
        if self.end.is_none_or(|end| now < end) {
            return Vec::new();
        }
        let closed = self.open();
        self.overflow = None;
        self.kinds.retain(|_, entry| std::mem::take(&mut entry.count) > 0);
        self.end = (!self.kinds.is_empty()).then(|| now + self.window);
        closed
    }

    /// Entries of what was counted and is no entry yet, by the time of their last events.
    pub(crate) fn open(&self) -> Vec<AuditEntry> {
        let counted = self.kinds.values().chain(&self.overflow).filter(|entry| entry.count > 0);
        let mut entries: Vec<AuditEntry> = counted.cloned().collect();
        entries.sort_by_key(|entry| entry.at_ms);
        entries
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::access::Door;
    use proptest::prelude::*;

    use super::super::entry::Event;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn entry(user: u64) -> AuditEntry {
        AuditEntry {
            user: Some(user.to_string()),
            ..AuditEntry::unauthenticated(Event::SignIn, "SIGN IN", Door::Http, None)
        }
    }

    /// Windows of ten seconds with three users.
    fn repeats() -> Repeats<u64> {
        Repeats::new(10 * SECOND, 3)
    }

    /// Users and counts of entries.
    fn counts(entries: &[AuditEntry]) -> Vec<(Option<&str>, u64)> {
        entries.iter().map(|entry| (entry.user.as_deref(), entry.count)).collect()
    }

    #[test]
    fn the_first_event_is_an_entry_and_the_others_are_counted() {
        let (mut repeats, now) = (repeats(), Instant::now());
        let first = repeats.note(1, (now, 5), || entry(1)).unwrap();
        assert_eq!((first.at_ms, first.count), (5, 1));
        for ms in 6..9 {
            assert_eq!(repeats.note(1, (now + SECOND, ms), || panic!("not needed")), None);
        }
        assert_eq!(counts(&repeats.open()), [(Some("1"), 3)]);
        assert!(repeats.close(now + 9 * SECOND).is_empty());
        let closed = repeats.close(now + 10 * SECOND);
        assert_eq!(counts(&closed), [(Some("1"), 3)]);
        assert_eq!(closed[0].at_ms, 8);
        assert!(repeats.open().is_empty());
    }

    #[test]
    fn a_kind_that_goes_on_is_one_entry_a_window() {
        let (mut repeats, start) = (repeats(), Instant::now());
        let mut recorded = Vec::new();
        for second in 0..40_u32 {
            let now = start + second * SECOND;
            recorded.extend(repeats.close(now));
            recorded.extend(repeats.note(1, (now, 0), || entry(1)));
        }
        assert_eq!(
            counts(&recorded),
            [(Some("1"), 1), (Some("1"), 9), (Some("1"), 10), (Some("1"), 10)]
        );
        // After a window without it, it is new again.
        let minute = start + 60 * SECOND;
        assert_eq!(counts(&repeats.close(minute)), [(Some("1"), 10)]);
        assert!(repeats.close(minute + 10 * SECOND).is_empty());
        assert!(repeats.note(1, (minute + 11 * SECOND, 0), || entry(1)).is_some());
    }

    #[test]
    fn kinds_beyond_the_maximum_are_counted_together() {
        let (mut repeats, now) = (repeats(), Instant::now());
        let recorded: Vec<_> =
            (0..100).filter_map(|user| repeats.note(user, (now, 0), || entry(user))).collect();
        assert_eq!(counts(&recorded), [(Some("0"), 1), (Some("1"), 1), (Some("2"), 1)]);
        assert_eq!(counts(&repeats.close(now + 10 * SECOND)), [(None, 97)]);
    }

    proptest! {
        #[test]
        fn no_event_is_lost_and_a_window_is_bounded(
            steps in prop::collection::vec((0..6_u64, 0..4_u32), 1..300),
        ) {
            let (mut repeats, start) = (repeats(), Instant::now());
            let (mut now, mut recorded) = (start, Vec::new());
            for (user, seconds) in &steps {
                now += *seconds * SECOND;
                recorded.extend(repeats.close(now));
                recorded.extend(repeats.note(*user, (now, 0), || entry(*user)));
            }
            let windows = (now - start).as_secs() / 10 + 1;
            prop_assert!(recorded.len() as u64 <= 7 * windows);
            recorded.extend(repeats.open());
            let events = recorded.iter().map(|entry| entry.count).sum::<u64>();
            prop_assert_eq!(events, steps.len() as u64);
        }
    }
}
