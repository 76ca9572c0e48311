//! Concentration of a partition's load by the second: a few keys may have all of a second's load, and others that of the
//! next one, although all are equal in the mean.
//!
//! Invariants: pure; only seconds with enough samples and operations count, and all of them equally.

use crate::rotation::{SPELLS_MIN, Spells};
use crate::rows::{Half, Row};

/// Numbers of parts into which the keys are divided, each with the same share of the load in all: the more spots there
/// were, the more parts tell them apart. The first one is shown.
const PARTS: [u32; 3] = [20, 8, 4];
/// Minimum samples of a second.
const SAMPLES_MIN: usize = 8;
/// Minimum operations of a second, as a share of the mean second's.
const OPERATIONS_MIN: f64 = 0.25;
/// Minimum number of such seconds.
const SECONDS_MIN: usize = 8;
/// Minimum mean share of a second's busiest part. Two tails that grow side by side have 0.57.
const CONCENTRATION_MIN: f64 = 0.6;
/// Correlation of the busiest places with the time from which a load moves on, to and fro, and does not rotate. Twelve
/// spots in a minute have that by chance once in a hundred times.
const TREND_MAX: f64 = 0.7;
/// Minimum seconds for that: of a few spots, those of half a minute often lie in order.
const TREND_SECONDS_MIN: usize = 40;
/// Share of the parts by which an ordered load may go on within a second.
const STEPS: usize = 4;

/// The concentration of a load by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spots {
    /// Mean over seconds of the share of the busiest part of the keys; 0 if there are too few samples.
    pub(crate) concentration: f64,
    /// True if few keys have all of a second's load, and other ones, in no order, that of another second.
    pub(crate) rotate: bool,
    /// True if the same may prove true after a few more changes.
    pub(crate) may_rotate: bool,
}

impl Spots {
    /// The spots of rows, ascending by second.
    pub(crate) fn of(rows: &[Row<'_>]) -> Self {
        let whole = Half::new(rows);
        let mut spots = Self::default();
        for parts in PARTS {
            let Some(Divided { concentration, spells, places, seconds, trend }) =
                divided(rows, &whole, parts)
            else {
                return spots;
            };
            if parts == PARTS[0] {
                spots.concentration = concentration;
            }
            let changes = concentration >= CONCENTRATION_MIN
                && spells.count > 1
                && !spells.is_ordered(places, (places / STEPS).max(1));
            let moves = trend.abs() >= TREND_MAX;
            if changes && moves && seconds >= TREND_SECONDS_MIN {
                continue;
            }
            if changes && !moves && spells.count >= SPELLS_MIN {
                return Self { concentration, rotate: true, may_rotate: false };
            }
            spots.may_rotate |= changes;
        }
        spots
    }
}

/// A load by parts of the keys.
struct Divided {
    /// Mean share of a second's busiest part.
    concentration: f64,
    /// Spells of the busiest part.
    spells: Spells,
    /// Number of parts that differ.
    places: usize,
    /// Number of seconds that count.
    seconds: usize,
    /// Correlation of the busiest parts with the time.
    trend: f64,
}

/// The load by so many parts. `None` if there are too few samples.
fn divided(rows: &[Row<'_>], whole: &Half<'_, '_>, parts: u32) -> Option<Divided> {
    let share = |part: u32| f64::from(part) / f64::from(parts);
    let mut bounds: Vec<&[u8]> =
        (1..parts).filter_map(|part| Some(whole.quantile(share(part))?.key)).collect();
    bounds.dedup();
    let (mut sum, mut busiest_places) = (0.0, Vec::new());
    let mut counts = vec![0_usize; bounds.len() + 1];
    let seconds = || rows.chunk_by(|a, b| a.second == b.second);
    let operations = |rows: &[Row<'_>]| rows.iter().map(|row| row.weight).sum::<f64>();
    let mean = operations(rows) / seconds().count().max(1) as f64;
    for second in seconds() {
        if second.len() < SAMPLES_MIN || operations(second) < OPERATIONS_MIN * mean {
            continue;
        }
        counts.fill(0);
        for row in second {
            counts[bounds.partition_point(|bound| *bound <= row.key)] += 1;
        }
        let most = counts.iter().enumerate().max_by_key(|(_, count)| **count);
        let Some((place, count)) = most else { continue };
        sum += *count as f64 / second.len() as f64;
        busiest_places.push(place);
    }
    let count = busiest_places.len();
    (count >= SECONDS_MIN).then(|| Divided {
        concentration: sum / count as f64,
        spells: Spells::of(&busiest_places),
        places: bounds.len() + 1,
        seconds: count,
        trend: trend(&busiest_places),
    })
}

/// Correlation of places with their order, -1 to 1; 0 if all are the same.
fn trend(places: &[usize]) -> f64 {
    let count = places.len() as f64;
    let mean = places.iter().sum::<usize>() as f64 / count;
    let middle = (count - 1.0) / 2.0;
    let (mut product, mut of_places, mut of_order) = (0.0, 0.0, 0.0);
    for (order, place) in places.iter().enumerate() {
        let (from_mean, from_middle) = (*place as f64 - mean, order as f64 - middle);
        product += from_mean * from_middle;
        of_places += from_mean * from_mean;
        of_order += from_middle * from_middle;
    }
    product / (of_places * of_order).sqrt().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, mix};
    use crate::rows::rows_of;
    use crate::sample::{Sample, Sketch, Tick};

    fn spots(seconds: u64, mut key: impl FnMut(u64, &mut Random) -> u64) -> Spots {
        let mut random = Random::new(4);
        let tick = |second| {
            let sample = |_| Sample {
                key: Box::from(key(second, &mut random).to_be_bytes()),
                end: None,
                above: false,
                below: false,
            };
            Tick { second, count: 1_000, samples: (0..32).map(sample).collect() }
        };
        let ticks = (0..seconds).map(tick).collect();
        let sketch = Sketch { ticks, ..Sketch::default() };
        Spots::of(&rows_of(&sketch, &|_| Vec::new()))
    }

    #[test]
    fn keys_that_are_hot_in_turn_rotate_and_others_do_not() {
        let nearly =
            |random: &mut Random, key| if random.chance(0.97) { key } else { random.bits() };
        for spell_s in [1, 3, 5] {
            let found = spots(60, |second, random| nearly(random, mix(second / spell_s)));
            assert!(found.rotate && found.concentration > 0.6, "{spell_s}: {found:?}");
        }
        let hot = spots(60, |_, random| nearly(random, 1 << 60));
        assert!(!hot.rotate && !hot.may_rotate && hot.concentration > 0.9, "{hot:?}");
        let even = spots(60, |_, random| random.bits());
        assert!(!even.rotate && even.concentration < 0.3, "{even:?}");
        let tail = spots(60, |second, random| second * 1_000 + random.below(1_000));
        assert!(!tail.rotate && !tail.may_rotate, "{tail:?}");
        let round = spots(60, |second, random| second % 10 * 1_000 + random.below(1_000));
        assert!(!round.rotate, "{round:?}");
        // Two groups of writers, of which one lags by ten seconds.
        let lagging = spots(60, |second, random| {
            let lag = if mix(second).is_multiple_of(2) { 10 } else { 0 };
            (100 + second - lag) * 1_000 + random.below(1_000)
        });
        assert!(!lagging.rotate && !lagging.may_rotate, "{lagging:?}");
        assert_eq!(spots(7, |second, _| mix(second)), Spots::default(), "too short");
    }
}
