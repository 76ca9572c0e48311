//! How bright each cell is.
//!
//! * **Relative**: load per height of picture, as a share of the brightest cell's. It shows where load is, however little
//!   it is in all.
//! * **Absolute**: how much of its capacity the *partition* uses at that time; within a partition the busiest keys have
//!   the partition's brightness, quieter ones less in proportion. A bright line is a partition near its limit because of
//!   few keys, an all bright partition one that is near its limit evenly, and a dark map has room left.
//!
//! In a picture of some keys only, a partition counts with the load of those.
//!
//! Invariants: 0 to 1; no load is 0; the colour is that of the square root, so that a hundredth is still seen.

use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::number::narrow;
use crate::picture::Heatmap;

/// What a colour is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Of what one partition can bear. Without a known capacity it is shown as [`Mode::Relative`].
    #[default]
    Absolute,
    /// Of the map's maximum.
    Relative,
}

/// Where on the ramp an intensity lies.
pub(crate) fn tone(intensity: f32) -> f64 {
    f64::from(intensity.clamp(0.0, 1.0)).sqrt()
}

impl Heatmap {
    /// What one partition can bear, in the metric's unit.
    #[must_use]
    pub fn known_capacity(&self) -> Option<f64> {
        let given = self.capacity.map(f64::from).filter(|capacity| *capacity > 0.0);
        given.or((self.metric == Metric::Busy).then_some(1.0))
    }

    /// The mode in which it can be shown.
    #[must_use]
    pub fn mode(&self, wanted: Mode) -> Mode {
        if self.known_capacity().is_some() { wanted } else { Mode::Relative }
    }

    /// By row, then by column.
    #[must_use]
    pub fn intensity(&self, mode: Mode) -> Vec<Vec<f32>> {
        match (self.mode(mode), self.known_capacity()) {
            (Mode::Absolute, Some(capacity)) => self.absolute(capacity),
            _ => self.relative(),
        }
    }

    /// Load per height, in rates of a row of mean height.
    fn density(&self, row: usize, column: usize) -> f64 {
        let height = f64::from(self.rows[row].height) * self.rows.len() as f64;
        f64::from(self.cells[row][column]) / height.max(1e-6)
    }

    /// The brightest cell's load, in rates of a row of mean height.
    pub(crate) fn density_max(&self) -> f64 {
        let column =
            |row: usize| (0..self.times.len()).map(move |column| self.density(row, column));
        (0..self.rows.len()).flat_map(column).fold(0.0, f64::max)
    }

    fn relative(&self) -> Vec<Vec<f32>> {
        let max = self.density_max().max(f64::MIN_POSITIVE);
        let shade = |row, column| narrow(self.density(row, column) / max);
        let line = |row| (0..self.times.len()).map(|column| shade(row, column)).collect();
        (0..self.rows.len()).map(line).collect()
    }

    fn absolute(&self, capacity: f64) -> Vec<Vec<f32>> {
        let mut shades = vec![vec![0.0; self.times.len()]; self.rows.len()];
        for column in 0..self.times.len() {
            let known = self.bounds.iter().any(|bound| bound.from <= column && column < bound.to);
            if !known {
                for (row, line) in shades.iter_mut().enumerate() {
                    let bears = capacity * f64::from(self.rows[row].partitions.max(1));
                    line[column] = narrow((f64::from(self.cells[row][column]) / bears).min(1.0));
                }
                continue;
            }
            for (start, end) in self.partitions_in(column) {
                let load = |row: usize| f64::from(self.cells[row][column]);
                let rate: f64 = (start..end).map(load).sum();
                if rate <= 0.0 {
                    continue;
                }
                // The density that a row of load is in on average; samples are noisy, and the maximum would be noise.
                let typical: f64 =
                    (start..end).map(|row| load(row) * self.density(row, column)).sum::<f64>()
                        / rate;
                let busy = (rate / capacity).min(1.0);
                for (row, line) in shades.iter_mut().enumerate().take(end).skip(start) {
                    line[column] = narrow(busy * (self.density(row, column) / typical).min(1.0));
                }
            }
        }
        shades
    }
}
