//! The operations of all clients on a key are linearizable: they have an order in which each takes effect at one
//! moment between its begin and its end.
//!
//! The search is the one of Wing, Gong and Lowe: take any operation that no unfinished one precedes, check that it
//! fits the current value, continue; backtrack when stuck. Each set of taken operations is remembered with the
//! value at that point, so that nothing is tried twice. An operation of unknown outcome may take effect at any time
//! after its begin, or never.

use std::collections::{BTreeMap, HashSet};

use crate::history::{Action, History, Operation};

/// Checks every key of a history and records violations.
pub(crate) fn check(history: &History) {
    let mut keys: BTreeMap<i64, Vec<Operation>> = BTreeMap::new();
    for operation in history.operations() {
        keys.entry(operation.key).or_default().push(operation);
    }
    for (key, operations) in keys {
        if let Some(stuck) = contradiction(&operations) {
            history.violation(format!(
                "key {key} is not linearizable: {:?} of client {} from {} to {:?} does not fit",
                stuck.action, stuck.client, stuck.begun, stuck.ended
            ));
        }
    }
}

/// The operations on one key, as the search sees them, and its state.
struct Search<'a> {
    operations: Vec<&'a Operation>,
    /// True for operations taken; all before `first` are taken.
    taken: Vec<bool>,
    first: usize,
    seen: HashSet<(Vec<usize>, usize, Option<i64>)>,
}

impl Search<'_> {
    fn end(&self, index: usize) -> u64 {
        self.operations[index].ended.unwrap_or(u64::MAX)
    }

    /// The operations that may come next: those that began before any other untaken one has ended.
    fn candidates(&self) -> Vec<usize> {
        let mut bound = u64::MAX;
        let mut candidates = Vec::new();
        for index in self.first..self.operations.len() {
            if self.operations[index].begun > bound {
                break;
            }
            if !self.taken[index] {
                bound = bound.min(self.end(index));
                candidates.push(index);
            }
        }
        candidates.retain(|index| self.operations[*index].begun <= bound);
        // The last one is tried first, and is the one that ended first.
        candidates.sort_by_key(|index| std::cmp::Reverse(self.end(*index)));
        candidates
    }

    /// True if all operations left may have had no effect.
    fn is_done(&self) -> bool {
        (self.first..self.operations.len())
            .all(|index| self.taken[index] || self.operations[index].ended.is_none())
    }

    fn take(&mut self, index: usize, is_taken: bool) {
        self.taken[index] = is_taken;
        self.first = self.first.min(index);
        while self.first < self.taken.len() && self.taken[self.first] {
            self.first += 1;
        }
    }

    /// Remembers this state of the search; false if it was known.
    fn remember(&mut self, value: Option<i64>) -> bool {
        let rest = (self.first..self.taken.len()).filter(|index| self.taken[*index]).collect();
        self.seen.insert((rest, self.first, value))
    }
}

/// The value that an operation must find; `None` if any.
fn found(action: Action) -> Option<Option<i64>> {
    match action {
        Action::Write(_) => None,
        Action::Read(value) | Action::Exchange(value, _) => Some(value),
    }
}

/// The relevant operations in the order of their begins. Of the operations without an answer, reads have no result
/// and are left out; one that wrote a value which no other found need not have happened and is left out; one whose
/// value was found took effect before the end of the first operation that did (no two have written the same value).
fn relevant(operations: &[Operation]) -> Vec<Operation> {
    let mut relevant: Vec<Operation> = Vec::new();
    let mut unknown: Vec<(i64, Operation)> = Vec::new();
    for operation in operations {
        match (operation.action, operation.ended) {
            (Action::Read(_), None) => {}
            (Action::Write(Some(value)) | Action::Exchange(_, Some(value)), None) => {
                unknown.push((value, *operation));
            }
            _ => relevant.push(*operation),
        }
    }
    // One that becomes relevant may itself have found the value of another.
    loop {
        let count = relevant.len();
        unknown.retain(|(value, operation)| {
            let finders = relevant.iter().filter(|other| found(other.action) == Some(Some(*value)));
            let ends: Vec<Option<u64>> = finders.map(|other| other.ended).collect();
            if ends.is_empty() {
                return true;
            }
            // Those that may not have happened set no end.
            relevant.push(Operation { ended: ends.into_iter().flatten().min(), ..*operation });
            false
        });
        if relevant.len() == count {
            break;
        }
    }
    relevant.sort_by_key(|operation| operation.begun);
    relevant
}

/// The operation at which the search got furthest, if no order explains all; `None` if an order exists.
fn contradiction(operations: &[Operation]) -> Option<Operation> {
    let relevant = relevant(operations);
    let sorted: Vec<&Operation> = relevant.iter().collect();
    let mut search = Search {
        taken: vec![false; sorted.len()],
        operations: sorted,
        first: 0,
        seen: HashSet::new(),
    };
    let mut value: Option<i64> = None;
    let mut furthest = 0;
    // The operation taken, the value before it, and the alternatives not tried yet.
    let mut path: Vec<(usize, Option<i64>, Vec<usize>)> = Vec::new();
    let mut choices = search.candidates();
    loop {
        if search.is_done() {
            return None;
        }
        let mut stepped = false;
        while let Some(index) = choices.pop() {
            let next = match search.operations[index].action {
                Action::Write(written) => written,
                Action::Read(result) if result == value => value,
                Action::Exchange(previous, written) if previous == value => written,
                Action::Read(_) | Action::Exchange(..) => continue,
            };
            search.take(index, true);
            if search.remember(next) {
                path.push((index, value, std::mem::take(&mut choices)));
                value = next;
                choices = search.candidates();
                furthest = furthest.max(search.first);
                stepped = true;
                break;
            }
            search.take(index, false);
        }
        if stepped {
            continue;
        }
        let Some((index, previous, alternatives)) = path.pop() else {
            return search.operations.get(furthest).map(|operation| **operation);
        };
        search.take(index, false);
        value = previous;
        choices = alternatives;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(action: Action, begin: u64, ended: Option<u64>) -> Operation {
        Operation { client: 0, key: 0, action, begun: begin, ended }
    }

    fn write(value: i64, begin: u64, ended: u64) -> Operation {
        operation(Action::Write(Some(value)), begin, Some(ended))
    }

    fn read(value: Option<i64>, begin: u64, ended: u64) -> Operation {
        operation(Action::Read(value), begin, Some(ended))
    }

    #[test]
    fn what_happened_one_after_the_other_must_be_seen_so() {
        assert!(contradiction(&[write(1, 1, 2), read(Some(1), 3, 4)]).is_none());
        assert!(contradiction(&[write(1, 1, 2), read(None, 3, 4)]).is_some());
        assert!(contradiction(&[write(1, 1, 2), write(2, 3, 4), read(Some(1), 5, 6)]).is_some());
    }

    #[test]
    fn what_happened_at_once_may_be_seen_in_any_one_order() {
        let writes = [write(1, 1, 10), write(2, 2, 9)];
        let outcome = |reads: &[Operation]| contradiction(&[&writes[..], reads].concat());
        assert!(outcome(&[read(Some(1), 11, 12)]).is_none());
        assert!(outcome(&[read(Some(2), 11, 12)]).is_none());
        assert!(outcome(&[read(None, 3, 4), read(Some(2), 5, 6), read(Some(1), 7, 8)]).is_none());
        let back = [read(Some(1), 3, 4), read(Some(2), 5, 6), read(Some(1), 7, 8)];
        assert!(outcome(&back).is_some());
    }

    #[test]
    fn a_write_of_unknown_outcome_may_come_late_or_never_but_not_twice() {
        let unknown = operation(Action::Write(Some(7)), 1, None);
        assert!(contradiction(&[unknown, read(None, 2, 3)]).is_none());
        assert!(contradiction(&[unknown, read(None, 2, 3), read(Some(7), 4, 5)]).is_none());
        let twice = [
            unknown,
            read(Some(7), 2, 3),
            write(1, 4, 5),
            read(Some(1), 6, 7),
            read(Some(7), 8, 9),
        ];
        assert!(contradiction(&twice).is_some());
    }

    fn exchange(from: Option<i64>, to: i64, begin: u64, ended: u64) -> Operation {
        operation(Action::Exchange(from, Some(to)), begin, Some(ended))
    }

    #[test]
    fn an_exchange_finds_what_the_last_operation_wrote() {
        let alone = [write(1, 1, 2), exchange(Some(1), 2, 3, 4), read(Some(2), 5, 6)];
        assert!(contradiction(&alone).is_none());
        let both = [write(1, 1, 2), exchange(Some(1), 2, 3, 9), exchange(Some(1), 3, 4, 8)];
        assert!(contradiction(&both).is_some(), "one of two was lost");
        let chained = [write(1, 1, 2), exchange(Some(1), 2, 3, 9), exchange(Some(2), 3, 4, 8)];
        assert!(contradiction(&chained).is_none());
        let overwritten =
            [write(1, 1, 2), write(2, 3, 4), exchange(Some(1), 3, 5, 6), read(Some(3), 7, 8)];
        assert!(contradiction(&overwritten).is_some());
    }

    #[test]
    fn an_exchange_of_unknown_outcome_may_come_late_or_never_and_shows_what_it_found() {
        let unknown = |from, to, begin| operation(Action::Exchange(from, to), begin, None);
        let first = write(1, 1, 2);
        let outcome = |rest: &[Operation]| contradiction(&[&[first][..], rest].concat());
        assert!(outcome(&[unknown(Some(1), Some(2), 3), read(Some(1), 4, 5)]).is_none());
        let late = [unknown(Some(1), Some(2), 3), read(Some(1), 4, 5), read(Some(2), 6, 7)];
        assert!(outcome(&late).is_none());
        // Neither answered, and only the second was seen.
        let chain = [unknown(Some(1), Some(2), 3), unknown(Some(2), Some(3), 4)];
        assert!(outcome(&[&chain[..], &[read(Some(3), 6, 7)][..]].concat()).is_none());
        assert!(outcome(&[chain[1], read(Some(3), 6, 7)]).is_some(), "nothing wrote 2");
        let removed = [unknown(Some(1), Some(2), 3), unknown(Some(2), None, 4)];
        assert!(outcome(&[&removed[..], &[read(None, 6, 7)][..]].concat()).is_none());
        assert!(outcome(&[removed[1], read(None, 6, 7)]).is_some());
    }

    #[test]
    fn a_long_history_is_checked_quickly() {
        let mut operations = Vec::new();
        for number in 0..2000 {
            let begin = 10 * u64::try_from(number).unwrap();
            operations.push(write(number, begin, begin + 25));
            operations.push(read(Some(number), begin + 26, begin + 27));
            if number % 50 == 0 {
                operations.push(operation(Action::Write(Some(-number)), begin, None));
            }
        }
        // Not every read fits; the test is that the search ends.
        contradiction(&operations);
    }
}
