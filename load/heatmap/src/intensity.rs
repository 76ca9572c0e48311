//! Brightness of each cell.
//!
//! * **Relative**: load per height of picture, as a share of the brightest cell's. It shows where load is, however
//!   small the total is.
//! * **Absolute**: the share of its capacity that the *partition* uses at that time. Within a partition the busiest
//!   keys have the partition's brightness, quieter ones proportionally less. A bright line is a partition near its
//!   limit because of a few keys; a partition that is bright throughout is near its limit evenly; a dark map has
//!   capacity left.
//!
//! In a picture of a part of the keys, a partition counts only with the load of those keys.
//!
//! Invariants: intensities are 0 to 1; no load is 0; the colour follows the square root, so that a hundredth of the
//! maximum is still visible.

use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::number::narrow;
use crate::picture::Heatmap;

/// Reference of the brightness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Share of one partition's capacity. Without a known capacity the picture is drawn as [`Mode::Relative`].
    #[default]
    Absolute,
    /// Share of the map's maximum.
    Relative,
}

/// Position of an intensity on the colour ramp, 0 to 1.
pub(crate) fn tone(intensity: f32) -> f64 {
    f64::from(intensity.clamp(0.0, 1.0)).sqrt()
}

impl Heatmap {
    /// Capacity of one partition, in the metric's unit; `None` if unknown. Busy shares always have 1.
    #[must_use]
    pub fn known_capacity(&self) -> Option<f64> {
        let configured = self.capacity.map(f64::from).filter(|capacity| *capacity > 0.0);
        configured.or((self.metric == Metric::Busy).then_some(1.0))
    }

    /// The mode to draw in: `mode`, or [`Mode::Relative`] without a known capacity.
    #[must_use]
    pub fn mode(&self, mode: Mode) -> Mode {
        if self.known_capacity().is_some() { mode } else { Mode::Relative }
    }

    /// Intensities from 0 to 1, by row, then by column.
    #[must_use]
    pub fn intensity(&self, mode: Mode) -> Vec<Vec<f32>> {
        match (self.mode(mode), self.known_capacity()) {
            (Mode::Absolute, Some(capacity)) => self.absolute(capacity),
            _ => self.relative(),
        }
    }

    /// Load per height, as the rate of a row of mean height.
    fn density(&self, row: usize, column: usize) -> f64 {
        let height = f64::from(self.rows[row].height) * self.rows.len() as f64;
        f64::from(self.cells[row][column]) / height.max(1e-6)
    }

    /// The maximum density of all cells, as the rate of a row of mean height.
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
            let has_bounds =
                self.bounds.iter().any(|bound| bound.from <= column && column < bound.to);
            if !has_bounds {
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
                // The load-weighted mean density. Samples are noisy, and the maximum would mostly show noise.
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
