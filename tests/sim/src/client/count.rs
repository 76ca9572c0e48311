//! Counted changes: additions to counters, claims of keys, and numbers of a sequence.
//!
//! An addition reads a row and writes it under a condition, as UPDATE and INSERT ... ON CONFLICT DO UPDATE do. A claim inserts
//! a row whose key is free, as ON CONFLICT DO NOTHING does. Numbers are taken in blocks, as frontends take them.
//!
//! Invariant: a client sends a change until it knows the outcome, so that the ledger is exact in the end.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::sequence::SequenceChange;
use partita_proto::service::Ddl;
use partita_proto::value::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Client, PATIENCE, PAUSE};
use crate::ledger::Account;
use crate::tables::{self, CLAIMS, COUNTERS, DATABASE, SEQUENCE};

/// Time within which a change must be answered: longer than all faults and repairs of a run.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(600);

impl Client {
    /// Adds, claims and draws numbers until `stop`.
    pub(super) async fn count(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let counter = self.any_key();
            match self.below(16) {
                0..11 => self.add(counter).await,
                11..15 => self.claim(counter).await,
                _ => self.draw().await,
            }
            tokio::time::sleep(Duration::from_millis(5 + self.below(120))).await;
        }
    }

    /// Records how a change ended.
    pub(super) fn settle(&self, account: Account, outcome: &Result<bool, Error>) {
        let (history, ledger) = (&self.cluster.history, &self.cluster.ledger);
        history.note(format_args!("client {} changes {account:?}: {outcome:?}", self.number));
        match outcome {
            Ok(true) => ledger.acknowledge(account),
            Ok(false) => ledger.cancel(account),
            Err(error) => self.report(Some(format!("a change of {account:?} failed: {error}"))),
        }
    }

    /// Reports a fault that was found, if any, as a violation.
    pub(super) fn report(&self, fault: Option<String>) {
        if let Some(fault) = fault {
            self.cluster.history.violation(format!("client {}: {fault}", self.number));
        }
    }

    /// Adds one to a counter.
    async fn add(&self, counter: i64) {
        let (ledger, account) = (&self.cluster.ledger, Account::Counter(counter));
        let key = counter * CLAIMS;
        let padding = usize::try_from(self.below(300)).unwrap_or_default();
        let least = ledger.begin(account);
        let outcome = self
            .update(COUNTERS, Value::Int(key), ANSWERED_WITHIN, |batches| {
                let pairs = tables::pairs(batches);
                let value = pairs.iter().find(|row| row.0 == key).map_or(0, |row| row.1);
                self.report(ledger.fault(account, least, value));
                tables::rows(&[(key, value + 1)], padding).map(Some)
            })
            .await;
        self.settle(account, &outcome);
    }

    /// Claims the next free key behind a counter, unless another client does.
    async fn claim(&self, counter: i64) {
        let (ledger, first) = (&self.cluster.ledger, counter * CLAIMS + 1);
        let (key, number) = (ledger.unclaimed(first), self.number_of(self.identity()));
        if key >= first + CLAIMS - 1 {
            return;
        }
        let outcome = self
            .update(COUNTERS, Value::Int(key), ANSWERED_WITHIN, |batches| {
                let is_taken = tables::pairs(batches).iter().any(|row| row.0 == key);
                if is_taken { Ok(None) } else { tables::rows(&[(key, number)], 0).map(Some) }
            })
            .await;
        let history = &self.cluster.history;
        history.note(format_args!("client {} claims key {key}: {outcome:?}", self.number));
        self.report(match outcome {
            Ok(true) => ledger.claim(key, number),
            Ok(false) => None,
            Err(error) => Some(format!("a claim of key {key} failed: {error}")),
        });
    }

    /// Takes a block of numbers. One whose answer is lost is a gap.
    async fn draw(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let catalog = Arc::clone(&self.catalog.lock());
            let database = catalog.databases.get(DATABASE);
            let sequence = database.and_then(|database| catalog.sequence(database.id, SEQUENCE));
            if let Some(sequence) = sequence {
                let (counter, count) = (sequence.counter, 1 + self.below(8));
                let block = match sequence.block(&counter, count) {
                    Ok(block) => block,
                    Err(error) => return self.report(Some(format!("no number: {error}"))),
                };
                let allot = SequenceChange::Allot { sequence: sequence.id, counter, count };
                let outcome = self.change(Ddl::Sequence(Box::new(allot)), PATIENCE).await;
                let history = &self.cluster.history;
                history.note(format_args!("client {} draws {block:?}: {outcome:?}", self.number));
                if outcome == Ok(true) {
                    let numbers = (0..block.count).map(|position| block.at(position));
                    return self.report(self.cluster.ledger.give(numbers));
                }
            }
            self.refresh().await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
