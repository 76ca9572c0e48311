//! What must count exactly once: changes that began, changes that were acknowledged, and what may be read meanwhile.
//!
//! Invariants, each with a method that says how it is violated:
//! - a value is at least the number of changes acknowledged before its read began, and at most that of the changes begun
//!   before the read ended; when none is open it is their number;
//! - no key is claimed by two clients, and no number of a sequence is given twice.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// Changes that add up to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Account {
    /// Additions to a counter.
    Counter(i64),
    /// Increments of a wide row.
    Sum(i64),
    /// Check-and-mutates of a wide row that found what they expected.
    Turn(i64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    begun: u64,
    acknowledged: u64,
}

#[derive(Default)]
struct State {
    accounts: BTreeMap<Account, Count>,
    /// Keys with the numbers of their claims.
    claims: BTreeMap<i64, i64>,
    numbers: BTreeSet<i64>,
}

/// The counted changes of all clients.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<State>);

impl Ledger {
    /// Begins a change; returns how many of the account are acknowledged, which is the least that it may read.
    pub(crate) fn begin(&self, account: Account) -> u64 {
        let mut state = self.0.lock();
        let count = state.accounts.entry(account).or_default();
        count.begun += 1;
        count.acknowledged
    }

    /// Records that a change took effect.
    pub(crate) fn acknowledge(&self, account: Account) {
        self.0.lock().accounts.entry(account).or_default().acknowledged += 1;
    }

    /// Records that a change had no effect and never will.
    pub(crate) fn cancel(&self, account: Account) {
        self.0.lock().accounts.entry(account).or_default().begun -= 1;
    }

    /// Number of acknowledged changes of an account.
    pub(crate) fn acknowledged(&self, account: Account) -> u64 {
        self.0.lock().accounts.get(&account).map_or(0, |count| count.acknowledged)
    }

    /// What is wrong with a value that was just read. `least`: changes that were acknowledged before.
    pub(crate) fn fault(&self, account: Account, least: u64, value: i64) -> Option<String> {
        let most = self.0.lock().accounts.get(&account).map_or(0, |count| count.begun);
        let is_possible = u64::try_from(value).is_ok_and(|value| (least..=most).contains(&value));
        (!is_possible).then(|| {
            format!(
                "{account:?} is {value}, after {least} changes were acknowledged and {most} begun"
            )
        })
    }

    /// The first of the keys from `first` on that no acknowledged claim has.
    pub(crate) fn unclaimed(&self, first: i64) -> i64 {
        let state = self.0.lock();
        let claimed = state.claims.range(first..).zip(first..);
        first
            + claimed.take_while(|((key, _), expected)| **key == *expected).map(|_| 1).sum::<i64>()
    }

    /// Records an acknowledged claim of a key; what is wrong with it.
    pub(crate) fn claim(&self, key: i64, number: i64) -> Option<String> {
        let former = self.0.lock().claims.insert(key, number)?;
        Some(format!("key {key} was claimed by {number} and by {former}"))
    }

    /// The acknowledged claims.
    pub(crate) fn claims(&self) -> BTreeMap<i64, i64> {
        self.0.lock().claims.clone()
    }

    /// Records numbers that a client got from the sequence; what is wrong with them.
    pub(crate) fn give(&self, numbers: impl Iterator<Item = i64>) -> Option<String> {
        let mut state = self.0.lock();
        let mut twice = None;
        for number in numbers {
            if !state.numbers.insert(number) {
                twice.get_or_insert(number);
            }
        }
        twice.map(|number| format!("number {number} of the sequence was given twice"))
    }

    /// Number of acknowledged changes and claims.
    pub(crate) fn counted(&self) -> u64 {
        let state = self.0.lock();
        let changes: u64 = state.accounts.values().map(|count| count.acknowledged).sum();
        changes + u64::try_from(state.claims.len()).unwrap_or(u64::MAX)
    }

    /// Number of numbers that clients got from the sequence.
    pub(crate) fn given(&self) -> usize {
        self.0.lock().numbers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_below_the_acknowledged_or_above_the_begun_changes_is_found() {
        let (ledger, account) = (Ledger::default(), Account::Counter(1));
        assert_eq!(ledger.begin(account), 0);
        assert!(ledger.fault(account, 0, 1).is_none(), "an open change may have taken effect");
        assert!(ledger.fault(account, 0, 2).is_some(), "it counted twice");
        ledger.acknowledge(account);
        assert_eq!(ledger.begin(account), 1);
        assert!(ledger.fault(account, 1, 0).is_some(), "an acknowledged change was lost");
        ledger.cancel(account);
        assert!(ledger.fault(account, 1, 2).is_some(), "nothing is open any more");
        assert!(ledger.fault(account, 1, 1).is_none());
        assert_eq!(ledger.counted(), 1);
    }

    #[test]
    fn a_key_claimed_twice_and_a_number_given_twice_are_found() {
        let ledger = Ledger::default();
        assert_eq!(ledger.unclaimed(11), 11);
        assert!(ledger.claim(11, 1).is_none());
        assert!(ledger.claim(13, 2).is_none());
        assert_eq!((ledger.unclaimed(11), ledger.unclaimed(12)), (12, 12));
        assert!(ledger.claim(11, 3).is_some());
        assert!(ledger.give(1..4).is_none());
        assert!(ledger.give(3..5).is_some());
        assert_eq!(ledger.given(), 4);
    }
}
