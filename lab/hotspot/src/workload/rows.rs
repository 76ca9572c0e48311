//! The rows of a table of entities and times, and the bounds of its first partitions, for a real cluster.
//!
//! Invariants: the same stream as the virtual cluster's, row by row; times count from the begin of the run; entities are
//! halved, so that they fit a signed column, which keeps their order.

use partita_load::streams::Op;

use super::design::Design;
use super::law::columns_of;
use super::source::{Kind, Stream};
use super::stamp::BEGIN_US;
use super::table::TableLoad;

/// A row to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When it arrives, microseconds since the begin.
    pub at_us: u64,
    /// Its time, microseconds since the begin: a little earlier.
    pub time_us: i64,
    /// Whose it is.
    pub entity: i64,
}

/// A stream of rows; see the head of the file.
pub struct Rows<'a> {
    stream: Stream<'a>,
    widths: &'a [usize],
    time: usize,
    entity: usize,
    op: Op,
}

fn entity_of(value: u64) -> i64 {
    (value >> 1).cast_signed()
}

fn time_of(value: u64) -> i64 {
    value.cast_signed() - BEGIN_US.cast_signed()
}

impl<'a> Rows<'a> {
    /// The rows of a table, by a seed; nothing for a table without entity and time, or one whose times are not plain.
    #[must_use]
    pub fn of(load: &'a TableLoad, seed: u64) -> Option<Self> {
        let events = load.events.as_ref()?;
        if events.time.descending || events.time.grain_us != 1 {
            return None;
        }
        let at = |name: &str| load.shape.names.iter().position(|own| own == name);
        Some(Self {
            stream: Stream::new(&load.sources, seed),
            widths: &load.shape.widths,
            time: at("ts")?,
            entity: at(events.entity)?,
            op: Op::default(),
        })
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        loop {
            let (at_us, kind) = self.stream.next(&mut self.op)?;
            if kind != Kind::Write {
                continue;
            }
            let columns = columns_of(&self.op.key, self.widths);
            let (time, entity) = (*columns.get(self.time)?, *columns.get(self.entity)?);
            return Some(Row { at_us, time_us: time_of(time), entity: entity_of(entity) });
        }
    }
}

/// Where the first partitions of a real table are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// At these times, microseconds since the begin.
    Times(Vec<i64>),
    /// At these entities.
    Entities(Vec<i64>),
    /// By a hash, into so many.
    Buckets(usize),
}

impl Cuts {
    /// Those of a table; nothing for a table without entity and time.
    #[must_use]
    pub fn of(load: &TableLoad) -> Option<Self> {
        let events = load.events.as_ref()?;
        let first = |cut: &Vec<u8>| columns_of(cut, &load.shape.widths).first().copied();
        let firsts = load.cuts.iter().filter_map(first);
        Some(match events.design {
            Design::TsUid => Self::Times(firsts.map(time_of).collect()),
            Design::UidTs | Design::Single => {
                let mut cuts: Vec<i64> = firsts.map(entity_of).collect();
                cuts.dedup();
                Self::Entities(cuts)
            }
            Design::HashUid | Design::HashAll => Self::Buckets(load.cuts.len() + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Knobs, find};

    fn load(design: Design) -> TableLoad {
        let knobs = Knobs {
            design,
            rate: 1_000.0,
            entities: 500,
            theta: 0.5,
            disorder_us: 50_000,
            late_share: 0.0,
            partitions: 8,
            day_s: 86_400,
        };
        find("W1").unwrap().tables(&knobs).remove(0)
    }

    #[test]
    fn rows_are_a_little_earlier_than_they_arrive_and_repeat_by_the_seed() {
        for design in Design::ALL {
            let load = load(design);
            let rows: Vec<Row> = Rows::of(&load, 3).unwrap().take(2_000).collect();
            assert_eq!(rows, Rows::of(&load, 3).unwrap().take(2_000).collect::<Vec<_>>());
            for row in &rows {
                let behind = row.at_us.cast_signed() - row.time_us;
                assert!((0..=50_001).contains(&behind), "{design:?} {row:?}");
                assert!(row.entity >= 0, "{row:?}");
            }
            assert!((1_500_000..2_500_000).contains(&rows[1_999].at_us), "{:?}", rows[1_999]);
            let users: std::collections::BTreeSet<i64> =
                rows.iter().map(|row| row.entity).collect();
            assert_eq!(users.len() > 1, design != Design::Single, "{design:?}");
        }
    }

    #[test]
    fn a_real_table_is_cut_where_the_virtual_one_is() {
        let Some(Cuts::Times(times)) = Cuts::of(&load(Design::TsUid)) else { panic!("by time") };
        assert_eq!((times.len(), times[6]), (7, -3_600_000_000), "an hour before the begin");
        let uid = load(Design::UidTs);
        let Some(Cuts::Entities(cuts)) = Cuts::of(&uid) else { panic!("by entity") };
        assert!(cuts.len() == 7 && cuts.is_sorted(), "{cuts:?}");
        // Rows fall on both sides of each cut, about evenly.
        let rows: Vec<Row> = Rows::of(&uid, 1).unwrap().take(8_000).collect();
        let below = rows.iter().filter(|row| row.entity < cuts[3]).count();
        assert!((3_000..5_000).contains(&below), "{below}");
        assert_eq!(Cuts::of(&load(Design::HashAll)), Some(Cuts::Buckets(8)));
    }
}
