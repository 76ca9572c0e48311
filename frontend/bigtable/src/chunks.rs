//! Rows as the responses of a read.
//!
//! ```text
//!   row k: f:a@2=v f:a@1=w g:b@3=x           chunks   row_key family qualifier  timestamp value
//!                                               1     k       f      a          2         v
//!                                               2                               1         w
//!                                               3             g      b          3         x   commit_row
//! ```
//!
//! A chunk says what differs from the one before it. The API allows more than is done here, because not all clients of
//! Google read it:
//! - a value is never cut in parts (`value_size`), and a row only when it is larger than 2 MiB;
//! - the first chunk of a response has the key of its row, also where the row began in the response before;
//! - no row is restarted (`reset_row`): a row is complete before its first chunk is made.
//!
//! After many rows without output, the client is told how far the scan has come, so that a retry goes on there.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::api::data::read_rows_response::CellChunk;
use crate::api::data::read_rows_response::cell_chunk::RowStatus;
use crate::api::data::{ReadRowsResponse, RequestStats};
use crate::cell::{Cell, Row};

/// Bytes of a response after which no further row is added to it.
const RESPONSE_BYTES: usize = 1 << 20;
/// Maximum bytes of a response with a part of a larger row, unless a single value is larger. Clients accept 256 MiB, but those
/// that are told of an emulator accept only gRPC's 4 MiB.
const PART_BYTES: usize = 2 << 20;
/// Consecutive rows without output after which the client is told the key of the last one.
const SILENT_ROWS_MAX: usize = 10_000;

/// Collects rows to responses.
#[derive(Debug)]
pub struct Chunker {
    ready: VecDeque<ReadRowsResponse>,
    chunks: Vec<CellChunk>,
    bytes: usize,
    response_bytes: usize,
    part_bytes: usize,
    /// Rows without output since the last response.
    silent_rows: usize,
}

impl Default for Chunker {
    fn default() -> Self {
        Self::new(RESPONSE_BYTES, PART_BYTES)
    }
}

impl Chunker {
    /// A chunker that completes a response at `response_bytes`, and cuts a row whose cells exceed `part_bytes`.
    #[must_use]
    pub fn new(response_bytes: usize, part_bytes: usize) -> Self {
        Self {
            ready: VecDeque::new(),
            chunks: Vec::new(),
            bytes: 0,
            response_bytes,
            part_bytes,
            silent_rows: 0,
        }
    }

    /// The next response that is complete.
    pub fn pop(&mut self) -> Option<ReadRowsResponse> {
        self.ready.pop_front()
    }

    /// Adds a row. One without cells is only counted.
    pub fn row(&mut self, row: Row) {
        let Row { key, cells } = row;
        if cells.is_empty() {
            self.silent(key);
            return;
        }
        self.silent_rows = 0;
        let last = cells.len() - 1;
        let mut previous: Option<Cell> = None;
        for (index, cell) in cells.into_iter().enumerate() {
            if !self.chunks.is_empty() && self.bytes + cell.bytes() > self.part_bytes {
                self.flush(Bytes::new(), None);
            }
            let has_key = index == 0 || self.chunks.is_empty();
            let row_key = if has_key { key.clone() } else { Bytes::new() };
            self.bytes += row_key.len() + cell.bytes();
            let chunk = chunk(row_key, previous.as_ref(), &cell);
            let row_status = (index == last).then_some(RowStatus::CommitRow(true));
            self.chunks.push(CellChunk { row_status, ..chunk });
            previous = Some(cell);
        }
        if self.bytes >= self.response_bytes {
            self.flush(Bytes::new(), None);
        }
    }

    /// Completes the last response, which has the statistics if they are wanted.
    pub fn finish(&mut self, request_stats: Option<RequestStats>) {
        if !self.chunks.is_empty() || request_stats.is_some() {
            self.flush(Bytes::new(), request_stats);
        }
    }

    fn silent(&mut self, key: Bytes) {
        self.silent_rows += 1;
        if self.silent_rows >= SILENT_ROWS_MAX {
            // Clients read a response's scanned key before its chunks, whose rows must not precede it.
            if !self.chunks.is_empty() {
                self.flush(Bytes::new(), None);
            }
            self.flush(key, None);
        }
    }

    fn flush(&mut self, last_scanned_row_key: Bytes, request_stats: Option<RequestStats>) {
        let chunks = std::mem::take(&mut self.chunks);
        self.bytes = 0;
        self.silent_rows = 0;
        self.ready.push_back(ReadRowsResponse { chunks, last_scanned_row_key, request_stats });
    }
}

/// A cell as a chunk, without what it shares with the one before it.
fn chunk(row_key: Bytes, previous: Option<&Cell>, cell: &Cell) -> CellChunk {
    let is_family = previous.is_none_or(|previous| previous.family != cell.family);
    let is_column =
        is_family || previous.is_none_or(|previous| previous.qualifier != cell.qualifier);
    CellChunk {
        row_key,
        family_name: is_family.then(|| cell.family.to_string()),
        qualifier: is_column.then(|| cell.qualifier.to_vec()),
        timestamp_micros: cell.timestamp_us,
        labels: cell.label.iter().map(ToString::to_string).collect(),
        value: cell.value.clone(),
        value_size: 0,
        row_status: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::api::data::FullReadStatsView;
    use crate::api::data::request_stats::StatsView;

    /// Reads responses as clients do, those that are stricter than the API's comments too.
    #[derive(Default)]
    struct Client {
        rows: Vec<Row>,
        row: Option<Row>,
    }

    impl Client {
        fn read(&mut self, response: ReadRowsResponse) {
            let scanned = response.last_scanned_row_key;
            if !scanned.is_empty() {
                assert!(self.row.is_none() && response.chunks.is_empty());
                assert!(self.rows.last().is_none_or(|row| row.key < scanned));
            }
            assert!(response.chunks.first().is_none_or(|chunk| !chunk.row_key.is_empty()));
            for chunk in response.chunks {
                self.chunk(chunk);
            }
        }

        fn chunk(&mut self, chunk: CellChunk) {
            if self.row.is_none() {
                assert!(!chunk.row_key.is_empty() && chunk.family_name.is_some());
                assert!(self.rows.last().is_none_or(|row| row.key < chunk.row_key));
                self.row = Some(Row { key: chunk.row_key.clone(), cells: Vec::new() });
            }
            let row = self.row.as_mut().unwrap();
            assert!(chunk.row_key.is_empty() || chunk.row_key == row.key);
            assert!(chunk.family_name.is_none() || chunk.qualifier.is_some());
            let last = row.cells.last();
            let family = chunk.family_name.map(Arc::<str>::from);
            let qualifier = chunk.qualifier.map(Bytes::from);
            let cell = Cell {
                family: family.unwrap_or_else(|| Arc::clone(&last.unwrap().family)),
                qualifier: qualifier.unwrap_or_else(|| last.unwrap().qualifier.clone()),
                timestamp_us: chunk.timestamp_micros,
                value: chunk.value,
                label: chunk.labels.first().map(|label| label.as_str().into()),
            };
            row.cells.push(cell);
            if chunk.row_status == Some(RowStatus::CommitRow(true)) {
                self.rows.extend(self.row.take());
            }
        }
    }

    fn cells() -> impl Strategy<Value = Vec<Cell>> {
        let column = ("[ab]", "[xy]?", 1..4_i64);
        let value = ("[a-z]{0,40}", proptest::option::of("[a-c]"));
        proptest::collection::btree_map(column, value, 0..6).prop_map(|cells| {
            let cells = cells.into_iter().map(|((family, qualifier, time), (value, label))| Cell {
                family: family.into(),
                qualifier: qualifier.into(),
                timestamp_us: -time,
                value: value.into(),
                label: label.map(Arc::from),
            });
            cells.collect()
        })
    }

    proptest! {
        #[test]
        fn clients_read_the_rows_that_were_sent(
            rows in proptest::collection::btree_map("[a-z]{1,3}", cells(), 0..8),
            response_bytes in 1..200_usize,
            part_bytes in 1..400_usize,
        ) {
            let mut chunker = Chunker::new(response_bytes, part_bytes);
            let mut client = Client::default();
            let mut expected = Vec::new();
            for (key, cells) in rows {
                let row = Row { key: key.into(), cells };
                chunker.row(row.clone());
                if !row.cells.is_empty() {
                    expected.push(row);
                }
                while let Some(response) = chunker.pop() {
                    client.read(response);
                }
            }
            chunker.finish(None);
            while let Some(response) = chunker.pop() {
                prop_assert!(!response.chunks.is_empty());
                client.read(response);
            }
            prop_assert_eq!(client.rows, expected);
        }
    }

    #[test]
    fn a_client_is_told_of_rows_that_have_no_output() {
        let mut chunker = Chunker::default();
        let key = |number: usize| Bytes::from(format!("{number:06}"));
        let cell = Cell {
            family: "f".into(),
            qualifier: Bytes::new(),
            timestamp_us: 1,
            value: Bytes::new(),
            label: None,
        };
        chunker.row(Row { key: Bytes::from_static(b"#"), cells: vec![cell] });
        for number in 0..SILENT_ROWS_MAX {
            assert!(chunker.pop().is_none());
            chunker.row(Row { key: key(number), cells: Vec::new() });
        }
        let mut client = Client::default();
        client.read(chunker.pop().unwrap());
        assert_eq!(client.rows.len(), 1);
        let response = chunker.pop().unwrap();
        assert_eq!(response.last_scanned_row_key, key(SILENT_ROWS_MAX - 1));
        client.read(response);
        chunker.finish(None);
        assert!(chunker.pop().is_none());
    }

    #[test]
    fn statistics_come_last_also_without_rows() {
        let mut chunker = Chunker::default();
        let stats = RequestStats {
            stats_view: Some(StatsView::FullReadStatsView(FullReadStatsView::default())),
        };
        chunker.finish(Some(stats));
        let response = chunker.pop().unwrap();
        assert!(response.request_stats.is_some() && response.chunks.is_empty());
    }
}
