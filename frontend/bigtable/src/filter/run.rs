//! Applies a filter to the cells of a row.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Filter, Node};
use crate::cell::{Cell, Row};

/// Number of 32-bit values: a sample hashes each row key to one of them.
const PARTS: f64 = 4_294_967_296.0;
/// Maximum cells that interleaves and conditions may copy for one row, plus [`COPIES_PER_CELL`] for each cell of the
/// row. Every interleave in a chain multiplies the cells, so without a maximum a short filter could exhaust the memory
/// with copies of one cell.
const COPIES_MAX: usize = 1 << 20;
/// Copies that each cell of a row adds to [`COPIES_MAX`].
const COPIES_PER_CELL: usize = 8;

/// Reason for which a filter is not applied to a row: it copies too many cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooManyCopies {
    copies_max: usize,
}

impl fmt::Display for TooManyCopies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the filter copies more than {} cells of one row", self.copies_max)
    }
}

impl std::error::Error for TooManyCopies {}

impl Filter {
    /// Applies the filter to a row. The output has the row's key, and may have no cells.
    ///
    /// # Errors
    /// When interleaves and conditions copy too many cells.
    pub fn apply(&self, row: Row) -> Result<Row, TooManyCopies> {
        let copies_max = row.cells.len().saturating_mul(COPIES_PER_CELL).saturating_add(COPIES_MAX);
        let mut run =
            Run { key: &row.key, seed: self.seed, sunk: Vec::new(), copies: 0, copies_max };
        let mut cells = run.apply(&self.root, row.cells)?;
        let mut sunk = run.sunk;
        if !sunk.is_empty() {
            cells.append(&mut sunk);
            sort(&mut cells);
        }
        Ok(Row { key: row.key, cells })
    }
}

/// The evaluation for one row.
struct Run<'a> {
    key: &'a [u8],
    seed: u64,
    /// Cells that reached a sink.
    sunk: Vec<Cell>,
    /// Cells that were copied.
    copies: usize,
    copies_max: usize,
}

impl Run<'_> {
    fn apply(&mut self, node: &Node, mut cells: Vec<Cell>) -> Result<Vec<Cell>, TooManyCopies> {
        match node {
            Node::Pass => {}
            Node::Block => cells.clear(),
            Node::Sink => self.sunk.append(&mut cells),
            Node::Chain(filters) => {
                for filter in filters {
                    cells = self.apply(filter, cells)?;
                }
            }
            Node::Interleave(filters) => cells = self.interleave(filters, cells)?,
            Node::Condition { predicate, matched, unmatched } => {
                let copy = self.copy(&cells)?;
                let output = self.apply(predicate, copy)?;
                let branch = if output.is_empty() { unmatched } else { matched };
                match branch {
                    Some(filter) => cells = self.apply(filter, cells)?,
                    None => cells.clear(),
                }
            }
            Node::RowKey(pattern) => {
                if !pattern.matches(self.key) {
                    cells.clear();
                }
            }
            Node::Sample { share, number } => {
                if !self.is_sampled(*share, *number) {
                    cells.clear();
                }
            }
            Node::Family(pattern) => {
                retain_columns(&mut cells, |cell| pattern.matches(cell.family.as_bytes()));
            }
            Node::Qualifier(pattern) => {
                retain_columns(&mut cells, |cell| pattern.matches(&cell.qualifier));
            }
            Node::Columns { family, qualifiers } => retain_columns(&mut cells, |cell| {
                *cell.family == **family && qualifiers.contains(&cell.qualifier)
            }),
            Node::Times(times) => cells.retain(|cell| times.contains(cell.timestamp_us)),
            Node::Value(pattern) => cells.retain(|cell| pattern.matches(&cell.value)),
            Node::Values(values) => cells.retain(|cell| values.contains(&cell.value)),
            Node::Mask(mask) => cells.retain(|cell| has_bits(&cell.value, mask)),
            Node::RowOffset(count) => drop(cells.drain(..(*count).min(cells.len()))),
            Node::RowLimit(count) => cells.truncate(*count),
            Node::ColumnLimit(count) => retain_newest(&mut cells, *count),
            Node::Strip => cells.iter_mut().for_each(|cell| cell.value = Bytes::new()),
            Node::Label(label) => {
                cells.iter_mut().for_each(|cell| cell.label = Some(Arc::clone(label)));
            }
        }
        Ok(cells)
    }

    /// A copy of cells, which is counted.
    fn copy(&mut self, cells: &[Cell]) -> Result<Vec<Cell>, TooManyCopies> {
        self.copies = self.copies.saturating_add(cells.len());
        if self.copies > self.copies_max {
            return Err(TooManyCopies { copies_max: self.copies_max });
        }
        Ok(cells.to_vec())
    }

    /// The outputs of filters that each get the same cells, merged.
    fn interleave(
        &mut self,
        filters: &[Node],
        cells: Vec<Cell>,
    ) -> Result<Vec<Cell>, TooManyCopies> {
        let Some((last, filters)) = filters.split_last() else { return Ok(Vec::new()) };
        let mut merged = Vec::new();
        for filter in filters {
            let copy = self.copy(&cells)?;
            merged.append(&mut self.apply(filter, copy)?);
        }
        merged.append(&mut self.apply(last, cells)?);
        sort(&mut merged);
        Ok(merged)
    }

    fn is_sampled(&self, share: f64, number: u64) -> bool {
        let hash = xxh3_64_with_seed(self.key, self.seed.wrapping_add(number));
        // The upper half fits.
        let part = u32::try_from(hash >> 32).unwrap_or(u32::MAX);
        f64::from(part) < share * PARTS
    }
}

/// Restores the order of cells; cells with equal positions keep their relative order.
fn sort(cells: &mut [Cell]) {
    // Runs that are sorted already are merged.
    cells.sort_by(|first, second| first.position().cmp(&second.position()));
}

/// Keeps the cells of some columns; each column in a row of cells is decided once.
fn retain_columns(cells: &mut Vec<Cell>, mut keeps: impl FnMut(&Cell) -> bool) {
    let mut decided: Option<(Arc<str>, Bytes, bool)> = None;
    cells.retain(|cell| {
        if let Some((family, qualifier, keep)) = &decided
            && *family == cell.family
            && *qualifier == cell.qualifier
        {
            return *keep;
        }
        let keep = keeps(cell);
        decided = Some((Arc::clone(&cell.family), cell.qualifier.clone(), keep));
        keep
    });
}

/// Keeps the first `most` cells of each column.
fn retain_newest(cells: &mut Vec<Cell>, most: usize) {
    let mut column: Option<(Arc<str>, Bytes)> = None;
    let mut count = 0;
    cells.retain(|cell| {
        let is_same = column.as_ref().is_some_and(|(family, qualifier)| {
            *family == cell.family && *qualifier == cell.qualifier
        });
        if !is_same {
            column = Some((Arc::clone(&cell.family), cell.qualifier.clone()));
            count = 0;
        }
        count += 1;
        count <= most
    });
}

/// Returns true if a value is as long as a mask and has all its bits.
fn has_bits(value: &[u8], mask: &[u8]) -> bool {
    value.len() == mask.len() && value.iter().zip(mask).all(|(byte, bits)| byte & bits == *bits)
}
