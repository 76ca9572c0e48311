//! Reading ahead: the next units of a stream are read in tasks of their own, while the stream's reader is still busy.
//!
//! What a look at a few series takes is mostly opening one small file after the other, which one stream would do on one
//! core. Invariants:
//! - units come in the order of the queue, so that a sorted stream stays sorted;
//! - what is read ahead is little: few units, small ones, and of a few series only;
//! - a stream that is dropped ends its tasks.

use std::collections::VecDeque;

use arrow::record_batch::RecordBatch;
use partita_proto::domain::Domains;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{EngineError, Result};
use crate::layout::Layout;
use crate::plan::Unit;

/// Units that are read at a time.
const UNITS_AHEAD: usize = 4;
/// The most that a unit's files may have.
const BYTES_MAX: u64 = 2 * 1024 * 1024;
/// The most rows that a unit may have.
const ROWS_MAX: u64 = if cfg!(test) { 64 } else { 64 * 1024 };
/// Values of a column of the key that are few.
const VALUES_FEW: usize = 16;

/// Whether a scan wants so little of what there is that several units of it fit into memory.
pub(crate) fn is_selective(layout: &Layout, domains: &Domains) -> bool {
    let time = layout.time.as_ref().map(|time| time.name.as_str());
    let mut tags = layout.codec.key_columns().iter().filter(|name| Some(name.as_str()) != time);
    let few =
        |name: &String| domains.get(name).is_some_and(|of| of.as_points(VALUES_FEW).is_some());
    tags.any(few)
}

fn is_small(unit: &Unit) -> bool {
    let bytes: u64 = unit.files.iter().map(|(file, _)| file.bytes()).sum();
    let of_files: u64 = unit.files.iter().map(|(file, _)| file.meta().rows).sum();
    let of_runs: u64 = unit.runs.iter().map(|piece| piece.run.rows() as u64).sum();
    bytes <= BYTES_MAX && of_files + of_runs <= ROWS_MAX
}

/// What becomes of a unit.
pub(crate) type Rows = Result<Vec<RecordBatch>>;

/// Units that are being read, in order.
#[derive(Default)]
pub(crate) struct Ahead {
    reading: VecDeque<AbortOnDropHandle<Rows>>,
}

impl Ahead {
    /// Takes small units from the front of a queue and has them read, as long as there are not too many.
    pub(crate) fn fill<F>(&mut self, queue: &mut VecDeque<Unit>, read: impl Fn(Unit) -> F)
    where
        F: Future<Output = Rows> + Send + 'static,
    {
        // A unit alone is read as well where it is wanted.
        if self.reading.is_empty() && queue.iter().take(2).filter(|unit| is_small(unit)).count() < 2
        {
            return;
        }
        while self.reading.len() < UNITS_AHEAD
            && let Some(unit) = queue.pop_front_if(|unit| is_small(unit))
        {
            self.reading.push_back(AbortOnDropHandle::new(tokio::spawn(read(unit))));
        }
    }

    /// The rows of the next unit that is being read.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        // The task stays where it is until it is done: whoever drops this future loses nothing.
        let Some(next) = self.reading.front_mut() else { return Ok(None) };
        let rows = next.await;
        self.reading.pop_front();
        rows.map_err(|error| EngineError::Internal(error.to_string()))?.map(Some)
    }
}
