//! Counted changes of wide rows: increments and check-and-mutates, decided on the cells that were read and written under a
//! condition of the row, as frontends do it.
//!
//! Every change writes both halves of an event, so a row of which one half is seen was cut in two or written in part.

use std::collections::BTreeSet;
use std::time::Duration;

use arrow::array::RecordBatch;
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::value::Value;
use partita_proto::wide::{CellMutation, ReadModify, ReadModifyRule, RowChange, RowMutation};
use tokio_util::sync::CancellationToken;

use super::Client;
use super::count::ANSWERED_WITHIN;
use super::read::LOOK;
use crate::ledger::Account;
use crate::nodes::SimClock;
use crate::wide_rows::{self, Cells, HALVES, SUM, TURN, WIDE, row_key};

/// Microseconds since 1970 by the clock of a client.
fn now_us() -> i64 {
    SimClock::default().now_ms() * 1000
}

/// The change that adds one to both halves.
fn increment(row: i64) -> ReadModify {
    let rule = |half: &str| ReadModifyRule::Increment {
        family: SUM.to_owned(),
        qualifier: half.as_bytes().to_vec(),
        amount: 1,
    };
    ReadModify { row_key: row_key(row).into_bytes(), rules: HALVES.map(rule).into() }
}

/// The change that replaces both halves by a number.
fn replacement(row: i64, number: i64) -> RowMutation {
    let (family, value) = (TURN.to_owned(), number.to_be_bytes().to_vec());
    let mut mutations = Vec::new();
    for half in HALVES {
        let (family, qualifier) = (family.clone(), half.as_bytes().to_vec());
        mutations.push(CellMutation::DeleteFromColumn {
            family: family.clone(),
            qualifier: qualifier.clone(),
            start: None,
            end: None,
        });
        let (timestamp, value) = (None, value.clone());
        mutations.push(CellMutation::SetCell { family, qualifier, timestamp, value });
    }
    RowMutation { row_key: row_key(row).into_bytes(), mutations }
}

/// The newest number of a family.
fn newest(cells: &Cells, family: &str) -> i64 {
    wide_rows::versions(cells, family, HALVES[0]).last().map_or(0, |version| version.1)
}

impl Client {
    /// Changes and reads rows until `stop`.
    pub(super) async fn change_rows(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let row = self.any_key();
            match self.below(8) {
                0..4 => self.increment(row).await,
                4..7 => self.check_and_mutate(row).await,
                _ => drop(self.look(row, ANSWERED_WITHIN).await),
            }
            tokio::time::sleep(Duration::from_millis(5 + self.below(120))).await;
        }
    }

    /// Changes of each kind of a row that are acknowledged.
    fn acknowledged(&self, row: i64) -> [u64; 2] {
        [Account::Sum(row), Account::Turn(row)]
            .map(|account| self.cluster.ledger.acknowledged(account))
    }

    /// The cells of a row that was read, after checks that both halves of each event are there and that the events are as
    /// many as were counted. `least`: changes of each kind that were acknowledged before the read.
    fn see(&self, row: i64, least: [u64; 2], batches: &[RecordBatch]) -> Cells {
        let cells = wide_rows::cells(batches).remove(&row_key(row)).unwrap_or_default();
        let [sums, turns] = least;
        let families = [(SUM, Account::Sum(row), sums), (TURN, Account::Turn(row), turns)];
        for (family, account, least) in families {
            let [left, right] = HALVES.map(|half| wide_rows::versions(&cells, family, half));
            if left != right {
                self.report(Some(format!(
                    "row {row} was seen in part: {family} has {left:?} and {right:?}"
                )));
            }
            self.report(self.cluster.ledger.fault(account, least, newest(&cells, family)));
        }
        if wide_rows::versions(&cells, TURN, HALVES[0]).len() > 1 {
            self.report(Some(format!("deleted cells of row {row} were seen")));
        }
        cells
    }

    /// Reads a row; `None` if it was not answered.
    pub(crate) async fn look(&self, row: i64, patience: Duration) -> Option<Cells> {
        let least = self.acknowledged(row);
        let found = self.rows_at(WIDE, Value::String(row_key(row)), LOOK, patience).await;
        match found {
            Ok(found) => Some(self.see(row, least, &found.batches)),
            Err(error) => {
                self.report(Some(format!("row {row} cannot be read: {error}")));
                None
            }
        }
    }

    /// Writes what `decide` makes of the cells of a row; false if that is nothing.
    async fn change_row(
        &self,
        row: i64,
        decide: impl Fn(&Cells) -> Result<RowChange, Error> + Send,
    ) -> Result<bool, Error> {
        let least = self.acknowledged(row);
        self.update(WIDE, Value::String(row_key(row)), ANSWERED_WITHIN, move |batches| {
            let change = decide(&self.see(row, least, batches))?;
            if change.is_empty() { Ok(None) } else { wide_rows::rows(row, &change).map(Some) }
        })
        .await
    }

    async fn increment(&self, row: i64) {
        let (account, request) = (Account::Sum(row), increment(row));
        self.cluster.ledger.begin(account);
        let outcome = self
            .change_row(row, |cells| {
                let written = request.change(cells, now_us())?;
                Ok(RowChange { written, removed: BTreeSet::new() })
            })
            .await;
        self.settle(account, &outcome);
    }

    /// Replaces a number by the next one if it still is the one that was read.
    async fn check_and_mutate(&self, row: i64) {
        let Some(cells) = self.look(row, ANSWERED_WITHIN).await else { return };
        let (account, expected) = (Account::Turn(row), newest(&cells, TURN));
        let request = replacement(row, expected + 1);
        self.cluster.ledger.begin(account);
        let outcome = self
            .change_row(row, |cells| match newest(cells, TURN) == expected {
                true => request.change(&wide_rows::families(), (cells, &BTreeSet::new()), now_us()),
                false => Ok(RowChange::default()),
            })
            .await;
        self.settle(account, &outcome);
    }
}
