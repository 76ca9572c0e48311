//! A history as bytes, so that it outlives the process.
//!
//! ```text
//!   version u8 | layers (step, columns, blocks) | partitions | marks | findings
//!   block: keys of rows | columns (from, seconds, covered, bounds, cells)
//!   cell:  a bit for each metric that is not zero, and these metrics as f32: most cells are one byte
//! ```
//!
//! Numbers are little-endian; a text or key is its length (u32) and its bytes.
//!
//! Invariants: bytes that this version has not written, or that are cut short, are no history; a history from bytes is as
//! bounded as any other.

use std::collections::{BTreeMap, VecDeque};

use super::{Event, Finding, History, Layer, MARKS_MAX, MarkKind, Present, VERDICTS_MAX};
use crate::matrix::block::{Block, Cell, Column, ROWS_MAX};
use crate::matrix::report::Key;
use crate::metric::METRICS;

/// Version of the form; another one is not read.
const VERSION: u8 = 1;
/// Maximum layers of a history.
const LAYERS_MAX: u32 = 16;
const KINDS: [MarkKind; 4] = [MarkKind::Split, MarkKind::Merge, MarkKind::Move, MarkKind::Transfer];

impl History {
    /// The history as bytes, for [`History::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put_count(&mut bytes, self.layers.len());
        for (layer, blocks) in &self.layers {
            bytes.extend(layer.step.to_le_bytes());
            put_count(&mut bytes, layer.columns);
            put_count(&mut bytes, blocks.len());
            for block in blocks {
                put_block(&mut bytes, block);
            }
        }
        put_count(&mut bytes, self.present.len());
        for (start, partition) in &self.present {
            put_bytes(&mut bytes, start);
            bytes.extend(partition.id.to_le_bytes());
            put_number(&mut bytes, partition.leader);
            put_key(&mut bytes, partition.end.as_ref());
            for rate in partition.rates {
                bytes.extend(rate.to_le_bytes());
            }
        }
        put_count(&mut bytes, self.events.len());
        for event in &self.events {
            bytes.extend(event.at.to_le_bytes());
            put_bytes(&mut bytes, &event.key);
            let kind = KINDS.iter().position(|kind| *kind == event.kind);
            bytes.push(kind.and_then(|kind| u8::try_from(kind).ok()).unwrap_or(u8::MAX));
            put_bytes(&mut bytes, event.text.as_bytes());
        }
        put_count(&mut bytes, self.findings.len());
        for finding in &self.findings {
            put_number(&mut bytes, finding.partition);
            bytes.extend(finding.since.to_le_bytes());
            put_number(&mut bytes, finding.until);
            put_bytes(&mut bytes, &finding.start);
            put_key(&mut bytes, finding.end.as_ref());
            for text in [&finding.class, &finding.evidence, &finding.advice] {
                put_bytes(&mut bytes, text.as_bytes());
            }
        }
        bytes
    }

    /// A history from bytes; `None` if they are damaged or of another version. Findings that were open end with the
    /// newest column, because nobody knows what came after it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        if reader.byte()? != VERSION {
            return None;
        }
        let mut layers = Vec::new();
        for _ in 0..reader.count().filter(|count| (1..=LAYERS_MAX).contains(count))? {
            let layer =
                Layer { step: reader.count()?, columns: usize::try_from(reader.count()?).ok()? };
            let mut blocks = VecDeque::new();
            for _ in 0..reader.count()? {
                blocks.push_back(reader.block()?);
            }
            layers.push((layer, blocks));
        }
        let steps: Vec<u32> = layers.iter().map(|(layer, _)| layer.step).collect();
        let are_multiples = steps.windows(2).all(|pair| pair[1].checked_rem(pair[0]) == Some(0));
        if steps[0] == 0 || !are_multiples {
            return None;
        }
        let mut present = BTreeMap::new();
        for _ in 0..reader.count()? {
            let start = reader.key()?;
            let (id, leader, end) = (reader.long()?, reader.number()?, reader.optional_key()?);
            present.insert(start, Present { id, leader, end, rates: reader.rates()? });
        }
        let mut events = VecDeque::new();
        for _ in 0..reader.count().filter(|count| *count as usize <= MARKS_MAX)? {
            let (time, key) = (reader.long()?, reader.key()?);
            let kind = *KINDS.get(usize::from(reader.byte()?))?;
            events.push_back(Event { at: time, key, kind, text: reader.text()? });
        }
        let mut findings = VecDeque::new();
        for _ in 0..reader.count().filter(|count| *count as usize <= VERDICTS_MAX)? {
            findings.push_back(Finding {
                partition: reader.number()?,
                since: reader.long()?,
                until: reader.number()?,
                start: reader.key()?,
                end: reader.optional_key()?,
                class: reader.text()?,
                evidence: reader.text()?,
                advice: reader.text()?,
            });
        }
        if !reader.rest.is_empty() {
            return None;
        }
        let mut history = Self { layers, present, events, findings };
        let newest = history.newest().unwrap_or(0);
        for finding in history.findings.iter_mut().filter(|finding| finding.until.is_none()) {
            finding.until = Some(newest.max(finding.since));
        }
        Some(history)
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, text: &[u8]) {
    put_count(bytes, text.len());
    bytes.extend(text);
}

fn put_number(bytes: &mut Vec<u8>, number: Option<u64>) {
    bytes.push(u8::from(number.is_some()));
    bytes.extend(number.into_iter().flat_map(u64::to_le_bytes));
}

fn put_key(bytes: &mut Vec<u8>, key: Option<&Key>) {
    bytes.push(u8::from(key.is_some()));
    if let Some(key) = key {
        put_bytes(bytes, key);
    }
}

fn put_block(bytes: &mut Vec<u8>, block: &Block) {
    put_count(bytes, block.axis.len());
    for key in &block.axis {
        put_bytes(bytes, key);
    }
    put_count(bytes, block.columns.len());
    for column in &block.columns {
        bytes.extend(column.from.to_le_bytes());
        bytes.extend(column.seconds.to_le_bytes());
        bytes.extend(column.covered.to_le_bytes());
        put_count(bytes, column.bounds.len());
        bytes.extend(column.bounds.iter().flat_map(|bound| bound.to_le_bytes()));
        for cell in &column.cells {
            let used = |metric: &usize| cell[*metric] != 0.0;
            bytes.push((0..METRICS).filter(used).fold(0, |bits, metric| bits | (1_u8 << metric)));
            for amount in cell.iter().filter(|amount| **amount != 0.0) {
                bytes.extend(amount.to_le_bytes());
            }
        }
    }
}

/// Bytes that are still to be read.
struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    fn count(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// A number that may be missing; the outer `None` is damage.
    fn number(&mut self) -> Option<Option<u64>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.long()?)),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.count()?).ok()?;
        self.take(length)
    }

    fn key(&mut self) -> Option<Key> {
        self.bytes().map(Key::from)
    }

    /// A key that may be missing; the outer `None` is damage.
    fn optional_key(&mut self) -> Option<Option<Key>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.key()?)),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn amount(&mut self) -> Option<f32> {
        self.fixed().map(f32::from_le_bytes).filter(|amount| amount.is_finite())
    }

    fn rates(&mut self) -> Option<[f32; METRICS]> {
        let mut rates = [0.0; METRICS];
        for rate in &mut rates {
            *rate = self.amount()?;
        }
        Some(rates)
    }

    fn cell(&mut self) -> Option<Cell> {
        let used = self.byte().filter(|used| usize::from(*used) < (1_usize << METRICS))?;
        let mut cell = [0.0; METRICS];
        for (metric, amount) in cell.iter_mut().enumerate() {
            if (used >> metric) & 1 == 1 {
                *amount = self.amount()?;
            }
        }
        Some(cell)
    }

    fn block(&mut self) -> Option<Block> {
        let rows = usize::try_from(self.count()?).ok().filter(|rows| *rows <= ROWS_MAX)?;
        let mut axis = Vec::with_capacity(rows);
        for _ in 0..rows {
            axis.push(self.key()?);
        }
        let begins = axis.first().is_some_and(|first| first.is_empty());
        if !begins || !axis.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut columns = VecDeque::new();
        for _ in 0..self.count()? {
            let (start, seconds, covered) = (self.long()?, self.count()?, self.count()?);
            let mut bounds = Vec::new();
            for _ in 0..self.count().filter(|count| *count as usize <= rows)? {
                let bound = self.fixed().map(u16::from_le_bytes)?;
                bounds.push(Some(bound).filter(|bound| usize::from(*bound) < rows)?);
            }
            let mut cells = Vec::with_capacity(rows);
            for _ in 0..rows {
                cells.push(self.cell()?);
            }
            columns.push_back(Column { from: start, seconds, covered, bounds, cells });
        }
        Some(Block { axis, columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::report::{PartitionLoad, Report, Shares};
    use crate::{Metric, View};

    const START: u64 = 1_790_000_000;

    fn history() -> History {
        let mut history = History::default();
        for second in 0..2_000 {
            let load = |id: u8, rate: f32| PartitionLoad {
                id: u64::from(id),
                leader: Some(1),
                start: Key::from(if id == 0 { Vec::new() } else { vec![id * 100] }),
                end: (id == 0).then(|| Key::from([100])),
                rates: [rate, 0.0, rate * 100.0, 0.25],
                writes: Shares::of_samples(vec![Key::from([id * 100 + 3]); 4]),
                reads: Shares::default(),
            };
            let partitions = vec![load(0, 10.0), load(1, (second % 7) as f32)];
            history.push(&Report { from: START + second, seconds: 1, partitions });
        }
        history.mark(Event {
            at: START + 100,
            key: Key::from([100]),
            kind: MarkKind::Merge,
            text: "merged".to_owned(),
        });
        history.find(Finding {
            partition: Some(1),
            since: START + 50,
            until: None,
            start: Key::from([100]),
            end: None,
            class: "HOT_KEY".to_owned(),
            evidence: "one key".to_owned(),
            advice: String::new(),
        });
        history
    }

    fn picture(history: &History) -> String {
        let view = View {
            table: "t".to_owned(),
            metric: Metric::WriteRows,
            from: START,
            to: START + 2_000,
            columns_max: 100,
            rows_max: 50,
            keys: None,
            capacity: None,
        };
        serde_json::to_string(&history.view(&view, |key| format!("{key:?}"))).unwrap()
    }

    #[test]
    fn what_is_written_is_drawn_as_before() {
        let mut history = history();
        let restored = History::from_bytes(&history.to_bytes()).unwrap();
        // What held when it was written is known until then.
        history.clear(&[100], START + 2_000);
        assert_eq!(picture(&restored), picture(&history));
        assert_eq!(restored.to_bytes(), history.to_bytes());
    }

    #[test]
    fn a_restored_history_goes_on() {
        let mut restored = History::from_bytes(&history().to_bytes()).unwrap();
        restored.push(&Report { from: START + 2_100, seconds: 1, partitions: Vec::new() });
        assert_eq!(restored.newest(), Some(START + 2_101));
    }

    #[test]
    fn bytes_that_are_cut_short_or_of_another_version_are_no_history() {
        let bytes = history().to_bytes();
        for length in (0..bytes.len()).step_by(997) {
            assert!(History::from_bytes(&bytes[..length]).is_none(), "{length}");
        }
        assert!(History::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
        let mut other = bytes;
        other[0] = VERSION + 1;
        assert!(History::from_bytes(&other).is_none());
    }

    #[test]
    fn the_form_stays() {
        let mut history = History::new(&[Layer { step: 1, columns: 2 }]);
        history.mark(Event {
            at: 7,
            key: Key::from([9]),
            kind: MarkKind::Transfer,
            text: "t".to_owned(),
        });
        let bytes = [
            &[1][..],                              // version
            &[1, 0, 0, 0],                         // one layer
            &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], // step, columns, no blocks
            &[0, 0, 0, 0],                         // no partitions
            &[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0], // one mark, its time
            &[1, 0, 0, 0, 9, 3, 1, 0, 0, 0, b't'], // key, kind, text
            &[0, 0, 0, 0],                         // no findings
        ];
        assert_eq!(history.to_bytes(), bytes.concat());
    }
}
