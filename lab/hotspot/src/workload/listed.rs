//! A list of values with weights, in ascending order.
//!
//! Invariants: values ascend and are distinct; the cumulative weights end at 1.

use partita_load::mix;

/// Values of one or two columns with their shares.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    values: Vec<[u64; 2]>,
    sums: Vec<f64>,
    columns: usize,
}

/// Hash bucket of a value: the upper 16 bits of a hash that is independent of the order of [`mix`]ed ids.
pub(crate) fn bucket_of(value: u64) -> u64 {
    mix(value ^ 0x5bd1_e995_97f4_a7c1) >> 48
}

impl Listed {
    fn new(mut weights: Vec<([u64; 2], f64)>, columns: usize) -> Self {
        weights.sort_by_key(|(value, _)| *value);
        weights.dedup_by(|next, previous| {
            let same = next.0 == previous.0;
            if same {
                previous.1 += next.1;
            }
            same
        });
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let mut sums: Vec<f64> = Vec::with_capacity(weights.len());
        for (_, weight) in &weights {
            sum += weight / total;
            sums.push(sum);
        }
        if let Some(last) = sums.last_mut() {
            *last = 1.0;
        }
        Self { values: weights.into_iter().map(|(value, _)| value).collect(), sums, columns }
    }

    /// `items` values by Zipf's law: the share of rank `r`, from 0, is proportional to `1 / (r + 1)^theta`; `id`
    /// gives the value of a rank.
    pub(crate) fn zipf(items: u64, theta: f64, id: impl Fn(u64) -> u64) -> Self {
        let weight = |rank: u64| ((rank + 1) as f64).powf(-theta);
        Self::new((0..items).map(|rank| ([id(rank), 0], weight(rank))).collect(), 1)
    }

    /// The same values with their hash buckets before them.
    pub(crate) fn bucketed(&self) -> Self {
        let share =
            |index: usize| self.sums[index] - if index == 0 { 0.0 } else { self.sums[index - 1] };
        let pair = |index: usize| {
            ([bucket_of(self.values[index][0]), self.values[index][0]], share(index))
        };
        Self::new((0..self.values.len()).map(pair).collect(), 2)
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = u64> {
        self.values.iter().map(|value| value[self.columns - 1])
    }

    /// See [`super::part::Part::before`].
    pub(crate) fn before(&self, value: &[u64]) -> (f64, f64) {
        let whole = value.len() >= self.columns;
        let second = if self.columns == 2 { value.get(1).copied().unwrap_or(0) } else { 0 };
        let sought = [value[0], second];
        let index = self.values.partition_point(|entry| *entry < sought);
        let share_below = if index == 0 { 0.0 } else { self.sums[index - 1] };
        let is_listed = whole && self.values.get(index) == Some(&sought);
        (share_below, if is_listed { self.sums[index] - share_below } else { 0.0 })
    }

    /// See [`super::part::Part::place`].
    pub(crate) fn place(&self, u: f64, columns: &mut Vec<u64>) -> f64 {
        let index = self.sums.partition_point(|sum| *sum <= u).min(self.values.len() - 1);
        columns.extend_from_slice(&self.values[index][..self.columns]);
        let share_below = if index == 0 { 0.0 } else { self.sums[index - 1] };
        ((u - share_below) / (self.sums[index] - share_below)).clamp(0.0, 1.0)
    }
}
