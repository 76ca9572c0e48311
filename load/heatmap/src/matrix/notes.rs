//! Annotations of a picture's cells: rows in SQL values, marks, verdicts.
//!
//! Invariant: anything outside the picture's time or keys is left out; every annotation names a row that exists.

use super::axis::row_of;
use super::history::{Finding, History};
use super::report::Key;
use crate::picture::{Heatmap, Mark, Row, VerdictNote};

/// Context for the annotations of one picture.
pub(crate) struct Notes<'a, L> {
    pub(crate) axis: &'a [Key],
    pub(crate) end: Option<&'a Key>,
    pub(crate) label: &'a L,
}

impl<L: Fn(&[u8]) -> String> Notes<'_, L> {
    pub(crate) fn add(&self, history: &History, heatmap: &mut Heatmap, heights: &[f32]) {
        heatmap.rows = self.rows(history, heights);
        let (start, stop) = (heatmap.times[0], heatmap.end());
        for event in history.events() {
            if (start..=stop).contains(&event.at) && self.contains(&event.key) {
                heatmap.marks.push(Mark {
                    at: event.at,
                    row: row_of(self.axis, &event.key),
                    kind: event.kind,
                    key: self.name(&event.key),
                    text: event.text.clone(),
                });
            }
        }
        let visible = |finding: &&Finding| {
            finding.since < stop
                && finding.until.is_none_or(|end| end >= start)
                && self.end.is_none_or(|end| finding.start < *end)
                && finding.end.as_ref().is_none_or(|end| *end > self.axis[0])
        };
        heatmap.verdicts =
            history.findings().filter(visible).map(|finding| self.note(finding)).collect();
    }

    fn rows(&self, history: &History, heights: &[f32]) -> Vec<Row> {
        let ends = self.axis.iter().skip(1).map(Some).chain([self.end]);
        let mut rows = Vec::with_capacity(self.axis.len());
        for ((start, end), height) in self.axis.iter().zip(ends).zip(heights) {
            let mut preceding = history.present().range::<Key, _>(..=start).rev();
            let owner = preceding
                .next()
                .filter(|(_, partition)| partition.end.as_ref().is_none_or(|end| end > start));
            let inner = history.present().range::<Key, _>(start..);
            let inner = inner
                .filter(|(key, _)| *key > start)
                .take_while(|(key, _)| end.is_none_or(|end| *key < end));
            let partitions = usize::from(owner.is_some()) + inner.count();
            rows.push(Row {
                start: self.name(start),
                end: end.map_or_else(|| "(highest)".to_owned(), |end| self.name(end)),
                key: start.iter().map(|byte| format!("{byte:02x}")).collect(),
                height: *height,
                partition: owner.map(|(_, partition)| partition.id),
                leader: owner.and_then(|(_, partition)| partition.leader),
                partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            });
        }
        rows
    }

    fn note(&self, finding: &Finding) -> VerdictNote {
        let from_row = row_of(self.axis, &finding.start);
        let to_row = finding.end.as_ref().map_or(self.axis.len(), |end| {
            self.axis.partition_point(|start| start < end).max(from_row + 1)
        });
        let end = finding.end.as_ref().map_or_else(|| "(highest)".to_owned(), |end| self.name(end));
        VerdictNote {
            partition: finding.partition,
            since: finding.since,
            until: finding.until,
            from_row,
            to_row,
            class: finding.class.clone(),
            range: format!("{} .. {end}", self.name(&finding.start)),
            evidence: finding.evidence.clone(),
            advice: finding.advice.clone(),
        }
    }

    fn contains(&self, key: &Key) -> bool {
        self.axis[0] <= *key && self.end.is_none_or(|end| key < end)
    }

    fn name(&self, key: &[u8]) -> String {
        if key.is_empty() { "(lowest)".to_owned() } else { (self.label)(key) }
    }
}
