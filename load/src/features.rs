//! Features of a window of samples: the quality of possible cuts, the motion of the load, and outstanding keys.
//!
//! Candidate cuts come from the older half of the window and are judged on the newer half: for a load that moves, every
//! in-sample median looks fair, and none that is judged later does.
//!
//! This goes beyond judging on the newer half alone: a load that moves *slowly* (reads of the latest keys) still looks
//! fair ten seconds later, but not a minute later. So a cut's share of the older half is compared with its share of the
//! newer one, and a difference too large to be chance is extrapolated over the minute in which the split will be judged
//! ([`Candidate::predicted`]).
//!
//! Invariants: pure; a window gives the same features wherever it is evaluated.

use std::collections::BTreeSet;

use crate::front::{Front, KnownEdges};
use crate::rows::{
    Half, Row, Sides, Top, drift_beside, drift_of_column, drift_of_keys, drift_within, share_of,
    top,
};
use crate::verdict::{Division, Evidence};

/// Number of quantiles that give candidate cuts: every 5 % of the older half.
const QUANTILES: u32 = 19;
/// Time after a split in which it is judged, seconds.
const HORIZON_S: f64 = 60.0;
/// Standard deviations up to which a change of a share counts as chance, in a steady load ...
const CHANCE_SIGMAS: f64 = 3.0;
/// ... and in one that is not quite steady. In a load that wanders no change counts as chance: on the contrary, a cut's
/// share may move by one deviation more than measured, in the direction of the load.
const CHANCE_SIGMAS_UNSTEADY: f64 = 1.0;
/// The same for the largest change among all candidates, which is larger by chance than that of one.
const UNSTEADY_SIGMAS: f64 = 4.0;
/// Largest change among all candidates from which a load is not steady ...
const UNSTEADY_MIN: f64 = 0.15;
/// ... and from which it wanders. Batches of some hundred rows of one user each stay below.
const WANDERING_MIN: f64 = 0.30;
/// Length of blocks for the test of turns: the sides of a cut through a sweep take turns; a cut beside a moving tail
/// has the same share all the time. The shares of blocks tell them apart ...
const BLOCK_S: u64 = 5;
/// ... if they differ by this much from the mean, on average (0.5 when the sides take turns).
const TURNS_MIN: f64 = 0.2;
/// Maximum motion of a side's keys towards the cut (a probability above 0.5); motion away from it is allowed: half of
/// the writers may lag behind the others by more than a window's length.
const TOWARDS_MAX: f64 = 0.12;
/// Predicted share up to which a cut is worth a closer look.
const PROMISE_MIN: f64 = 0.80;
/// Number of parts whose borders are looked for among the candidates: more than a partition is cut into at once.
const PARTS: u32 = 16;
/// Maximum share of scans across one of these borders: every one is a scan of two partitions afterwards.
const CONTAINED_MAX: f64 = 0.1;
/// Balance that a shorter cut may cost, because it keeps related rows together.
const SHORTER_WORTH: f64 = 0.05;
/// Probability that a newer key is greater than an older one, from which the keys behind a prefix move.
const DRIFT_MOVING: f64 = 0.8;
/// Share of the load from which a series (or a key) is hot.
pub(crate) const HOT_SHARE: f64 = 0.5;

/// Motion of the load from the older half to the newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Motion {
    /// The load stays in place.
    Steady,
    /// The load shifts a little.
    Unsteady,
    /// A good part of the load has moved elsewhere.
    Wandering,
}

/// A candidate cut, with its shares.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'s> {
    pub(crate) key: &'s [u8],
    /// Number of leading columns of the cut.
    pub(crate) depth: usize,
    pub(crate) old: Sides,
    pub(crate) new: Sides,
    /// Predicted share of the busier side in the minute to come.
    pub(crate) predicted: f64,
}

/// Features of one window.
#[derive(Clone, Debug)]
pub(crate) struct Features<'s> {
    pub(crate) window_s: u32,
    pub(crate) samples: (u32, u32),
    /// Number of columns of a key.
    pub(crate) columns: usize,
    pub(crate) best: Option<Candidate<'s>>,
    /// Candidates that divide the load into about equal parts, ascending.
    pub(crate) divisions: Vec<Division>,
    /// The largest share of scans across a candidate, however bad a cut it is.
    pub(crate) contained_most: f64,
    /// The largest change of the share right of a place from the older to the newer half, and its interpretation.
    pub(crate) shift: f64,
    pub(crate) motion: Motion,
    pub(crate) auc: f64,
    pub(crate) append_high: f64,
    pub(crate) append_low: f64,
    /// The most frequent prefixes, by number of leading columns less one; the last is the whole key.
    pub(crate) tops: Vec<Top<'s>>,
    /// Motion of the columns behind the first one, or of the keys of each series: the value farthest from 0.5.
    pub(crate) tail: f64,
    /// The gap into which newer keys go.
    pub(crate) front: Front,
    /// Number of leading columns of a frequent prefix, not of a series, whose keys move on behind it.
    pub(crate) moving_prefix: Option<usize>,
}

/// Restrictions on cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of leading columns by which rows are kept together; 0 for no restriction.
    pub keep_together: usize,
    /// Number of leading columns that the system puts before the user's (a hash bucket, the number of a rule).
    pub placement: usize,
    /// The column (from 0) that contains the time, if it is known: rows of one instant are never separated.
    pub time_column: Option<usize>,
}

impl Options {
    /// Maximum number of columns of a cut.
    fn depth_max(&self, columns: usize, series_is_hot: bool) -> usize {
        let series = if series_is_hot { columns } else { columns.saturating_sub(1) };
        let instant = self.time_column.map_or(usize::MAX, |column| column + 1);
        let colocated = if self.keep_together == 0 { usize::MAX } else { self.keep_together };
        series.min(instant).max(1).min(colocated)
    }
}

impl<'s> Features<'s> {
    /// The features of a window's rows; its newer half begins at the second `middle`.
    pub(crate) fn of(
        rows: &[Row<'s>],
        middle: u64,
        window_s: u32,
        options: &Options,
        edges: KnownEdges<'_>,
    ) -> Self {
        let (old, new) = rows.split_at(rows.partition_point(|row| row.second < middle));
        let columns = rows.iter().map(|row| row.ends.len()).max().unwrap_or(0);
        let mut features = Self {
            window_s,
            samples: (0, 0),
            columns,
            best: None,
            divisions: Vec::new(),
            contained_most: 0.0,
            shift: 0.0,
            motion: Motion::Steady,
            auc: 0.5,
            append_high: 0.0,
            append_low: 0.0,
            tops: Vec::new(),
            tail: 0.5,
            front: Front::default(),
            moving_prefix: None,
        };
        let (old, new) = (Half::new(old), Half::new(new));
        features.samples = (old.samples(), new.samples());
        if features.samples.0 == 0 || features.samples.1 == 0 {
            return features;
        }
        features.auc = drift_of_keys(&old, &new);
        features.append_high = share_of(rows, |row| row.above);
        features.append_low = share_of(rows, |row| row.below);
        features.tops = (1..=columns).map(|depth| top(&old, &new, depth, columns)).collect();
        features.find_cut(&old, &new, options);
        // The tail only decides the class of a cut.
        if features.best.is_some() {
            features.tail = features.find_tail(&old, &new);
        }
        features.front = Front::of(&old, &new, edges, f64::from(window_s) / 2.0);
        features.moving_prefix = features.find_moving_prefix(&old, &new, options);
        features
    }

    /// Finds a frequent prefix, shorter than a series, behind which keys grow (or fall) by the next column or with the
    /// time. Its load goes to one place, as that of a table whose key begins behind the prefix.
    fn find_moving_prefix(
        &self,
        old: &Half<'_, 's>,
        new: &Half<'_, 's>,
        options: &Options,
    ) -> Option<usize> {
        let series_depth = self.columns.checked_sub(1)?;
        let is_far = |drift: f64| !(1.0 - DRIFT_MOVING..=DRIFT_MOVING).contains(&drift);
        (options.placement + 1..series_depth).find(|depth| {
            let top = &self.tops[depth - 1];
            let is_behind = |key: &[u8]| key.starts_with(top.prefix);
            top.lasting >= HOT_SHARE
                && is_far(drift_beside(old, new, self.columns, is_behind))
                && (options.time_column == Some(*depth)
                    || is_far(drift_beside(old, new, depth + 1, is_behind)))
        })
    }

    /// The most frequent series: all columns except the last.
    pub(crate) fn top_series(&self) -> Option<&Top<'s>> {
        self.columns.checked_sub(2).and_then(|index| self.tops.get(index))
    }

    fn find_tail(&self, old: &Half<'_, 's>, new: &Half<'_, 's>) -> f64 {
        // A column counts if the columns before it have several values: otherwise its drift is that of the key.
        let later_columns = (1..self.columns).filter(|column| self.tops[column - 1].distinct > 1);
        let by_column = later_columns.map(|column| drift_of_column(old, new, column));
        let by_series = self.columns.checked_sub(1).filter(|depth| *depth > 0);
        let by_series = by_series.filter(|depth| self.tops[depth - 1].distinct > 1);
        let by_series = by_series.and_then(|depth| drift_within(old, new, depth));
        let farther = |a: f64, b: f64| if (b - 0.5).abs() > (a - 0.5).abs() { b } else { a };
        by_column.chain(by_series).fold(0.5, farther)
    }

    /// Measures the motion of the load at quantiles of both halves, by the first `depth` columns. Motion within a hot
    /// series is ignored: it does not affect the cuts beside it.
    fn find_motion(
        old: &Half<'_, 's>,
        new: &Half<'_, 's>,
        depth: usize,
        scatter: &Scatter,
    ) -> (f64, Motion) {
        let (mut shift, mut most) = (0.0_f64, Motion::Steady);
        for half in [old, new] {
            let places = quantiles(half).filter_map(|row| row.prefix(depth.min(row.ends.len())));
            for place in places.collect::<BTreeSet<_>>() {
                let (old_share, new_share) = (old.sides(place).right, new.sides(place).right);
                let moved = (new_share - old_share).abs();
                let chance = UNSTEADY_SIGMAS * scatter.sigma(old_share, new_share);
                let motion = match moved {
                    moved if moved > WANDERING_MIN.max(chance) => Motion::Wandering,
                    moved if moved > UNSTEADY_MIN.max(chance) => Motion::Unsteady,
                    _ => Motion::Steady,
                };
                shift = shift.max(moved);
                most = most.max(motion);
            }
        }
        (shift, most)
    }

    fn find_cut(&mut self, old: &Half<'_, 's>, new: &Half<'_, 's>, options: &Options) {
        // Cuts are prefixes of the keys at the older half's quantiles, within a series only if that series is hot.
        let hot = self.top_series().is_some_and(|series| series.lasting >= HOT_SHARE);
        let depth_max = options.depth_max(self.columns, hot);
        let scatter = Scatter { old: old.effective(), new: new.effective() };
        // What moves behind a cut's columns does not affect it.
        let moving_depth = options.depth_max(self.columns, false);
        let motions: Vec<(f64, Motion)> =
            (1..=moving_depth).map(|depth| Self::find_motion(old, new, depth, &scatter)).collect();
        let motion_at = |depth: usize| motions[depth.min(moving_depth) - 1];
        (self.shift, self.motion) = motion_at(moving_depth);
        let cuts: BTreeSet<(&[u8], usize)> = quantiles(old)
            .flat_map(|row| {
                (1..=depth_max).filter_map(|depth| row.prefix(depth).map(|cut| (cut, depth)))
            })
            .collect();
        let mut candidates: Vec<Candidate<'s>> = cuts
            .into_iter()
            .map(|(key, depth)| {
                let (old, new) = (old.sides(key), new.sides(key));
                Candidate { key, depth, old, new, predicted: 1.0 }
            })
            .collect();
        // Judge each on the newer half, and extrapolate what has moved.
        let contained = candidates.iter().map(|candidate| candidate.new.contained);
        self.contained_most = contained.fold(0.0, f64::max);
        for candidate in &mut candidates {
            let sigma = scatter.sigma(candidate.old.right, candidate.new.right);
            let (_, motion) = motion_at(candidate.depth);
            let moved = self.sure_move(candidate.new.right - candidate.old.right, sigma, motion);
            candidate.predicted = predict(candidate, moved, f64::from(self.window_s));
        }
        // In a load that wanders, a cut that looks fair may be so by accident.
        if self.motion == Motion::Wandering {
            candidates.retain(|candidate| {
                let cut = candidate.key;
                candidate.predicted > PROMISE_MIN
                    || !(takes_turns(cut, old.rows, new.rows)
                        || is_approached(cut, old, new, moving_depth.min(candidate.depth)))
            });
        }
        self.divisions = divisions(&candidates);
        self.best = choose(candidates);
    }

    /// The part of a share's change that is not chance; `sigma` is its standard deviation.
    fn sure_move(&self, moved: f64, sigma: f64, motion: Motion) -> f64 {
        let excess = |chance: f64| moved.signum() * (moved.abs() - chance).max(0.0);
        match motion {
            Motion::Steady => excess(CHANCE_SIGMAS * sigma),
            Motion::Unsteady => excess(CHANCE_SIGMAS_UNSTEADY * sigma),
            Motion::Wandering => {
                let direction = (self.auc - 0.5).signum();
                direction * ((moved * direction).max(0.0) + sigma)
            }
        }
    }

    /// The numbers as they are reported.
    pub(crate) fn evidence(&self) -> Evidence {
        let leading = self.tops.len().saturating_sub(1);
        Evidence {
            samples: self.samples,
            window_s: self.window_s,
            p_out: self.best.as_ref().map_or(1.0, |best| best.new.larger()),
            predicted: self.best.as_ref().map_or(1.0, |best| best.predicted),
            shift: self.shift,
            auc: self.auc,
            tail: self.tail,
            append_high: self.append_high,
            append_low: self.append_low,
            top_key: self.tops.last().map_or(0.0, |top| top.share),
            top_prefix: self.tops[..leading].iter().map(|top| top.share).collect(),
            distinct_prefix: self.tops[..leading].iter().map(|top| top.distinct).collect(),
            contained: self.best.as_ref().map_or(0.0, |best| best.new.contained),
            front: self.front.share,
            passes_in_s: self.front.passes_in_s,
            ..Evidence::default()
        }
    }
}

/// The rows at every 5 % of a half.
fn quantiles<'r, 's>(half: &Half<'r, 's>) -> impl Iterator<Item = &'r Row<'s>> {
    let share = |i: u32| f64::from(i) / f64::from(QUANTILES + 1);
    (1..=QUANTILES).filter_map(move |i| half.quantile(share(i)))
}

/// True if the sides of a cut are busy in turns.
fn takes_turns(cut: &[u8], old: &[Row<'_>], new: &[Row<'_>]) -> bool {
    let mut blocks: Vec<(u64, f64, f64)> = Vec::new();
    for row in old.iter().chain(new) {
        let block = row.second / BLOCK_S;
        if blocks.last().is_none_or(|(last, ..)| *last != block) {
            blocks.push((block, 0.0, 0.0));
        }
        if let Some((_, right, total)) = blocks.last_mut() {
            *right += if row.key >= cut { row.weight } else { 0.0 };
            *total += row.weight;
        }
    }
    let (right, total) =
        blocks.iter().fold((0.0, 0.0), |sum, block| (sum.0 + block.1, sum.1 + block.2));
    let deviation =
        |(_, of_right, of_all): &(u64, f64, f64)| (of_right - of_all * right / total).abs();
    blocks.iter().map(deviation).sum::<f64>() / total > TURNS_MIN
}

/// True if the keys beside a cut move towards it, and will cross it: by their first columns, as many as the cut has. What
/// moves behind those does not cross it.
fn is_approached(cut: &[u8], old: &Half<'_, '_>, new: &Half<'_, '_>, depth: usize) -> bool {
    let left_drift = drift_beside(old, new, depth, |key| key < cut);
    let right_drift = drift_beside(old, new, depth, |key| key >= cut);
    left_drift > 0.5 + TOWARDS_MAX || right_drift < 0.5 - TOWARDS_MAX
}

/// Chance variation of shares between the halves.
struct Scatter {
    old: f64,
    new: f64,
}

impl Scatter {
    /// Standard deviation of the difference of two measurements of one share.
    fn sigma(&self, old: f64, new: f64) -> f64 {
        let share = (old * self.old + new * self.new) / (self.old + self.new);
        (share * (1.0 - share) * (1.0 / self.old + 1.0 / self.new)).sqrt()
    }
}

/// Predicted share of the busier side in the minute to come, if the right side continues to grow by `moved` from half
/// to half.
fn predict(candidate: &Candidate<'_>, moved: f64, window_s: f64) -> f64 {
    // From the middle of the newer half to the middle of the minute, in steps from half to half.
    let half_s = window_s / 2.0;
    let steps = (HORIZON_S / 2.0 + half_s / 2.0) / half_s;
    let contained = candidate.new.contained;
    let right = (candidate.new.right + moved * steps).clamp(0.0, 1.0 - contained);
    // An improvement without action is not promised.
    Sides { left: 1.0 - contained - right, right, contained }.larger().max(candidate.new.larger())
}

/// Candidates at the borders of [`PARTS`] equal parts: of those about as near, the one with the fewest columns. Only
/// shares that stay count, because nobody looks again before the cuts are made.
fn divisions(candidates: &[Candidate<'_>]) -> Vec<Division> {
    let stays = |candidate: &&Candidate<'_>| {
        candidate.new.contained <= CONTAINED_MAX && candidate.predicted <= candidate.new.larger()
    };
    let steady: Vec<&Candidate<'_>> = candidates.iter().filter(stays).collect();
    let mut divisions: Vec<Division> = Vec::new();
    for number in 1..PARTS {
        let place = f64::from(number) / f64::from(PARTS);
        let distance = |candidate: &Candidate<'_>| (candidate.new.left - place).abs();
        let nearest =
            steady.iter().map(|candidate| distance(candidate)).fold(f64::INFINITY, f64::min);
        let nearby =
            steady.iter().filter(|candidate| distance(candidate) <= nearest + SHORTER_WORTH / 2.0);
        let best =
            nearby.min_by(|a, b| a.depth.cmp(&b.depth).then(distance(a).total_cmp(&distance(b))));
        let Some(best) = best else { break };
        let is_next = divisions
            .last()
            .is_none_or(|last| *best.key > *last.key && best.new.left > last.left_share);
        if is_next {
            divisions.push(Division { key: best.key.into(), left_share: best.new.left });
        }
    }
    divisions
}

/// The candidate with the best prediction; among about equal ones, the one with the fewest columns.
fn choose(candidates: Vec<Candidate<'_>>) -> Option<Candidate<'_>> {
    // Judged on the newer half; the older half breaks ties, which lessens the effect of chance in one of them.
    let score = |candidate: &Candidate<'_>| candidate.predicted + 0.25 * candidate.old.larger();
    let order = |a: &Candidate<'_>, b: &Candidate<'_>| {
        score(a).total_cmp(&score(b)).then(a.new.contained.total_cmp(&b.new.contained))
    };
    let least = score(candidates.iter().min_by(|a, b| order(a, b))?);
    let good = candidates.into_iter().filter(|candidate| score(candidate) <= least + SHORTER_WORTH);
    good.min_by(|a, b| a.depth.cmp(&b.depth).then_with(|| order(a, b)))
}
