//! Skewed choices as in YCSB (Gray et al., "Quickly generating billion-record synthetic databases").
//!
//! Invariants: item 0 is the most frequent, and items are drawn in constant time after one sum over the items.

use partita_load::{Random, mix};

use crate::number::whole;

/// Skew of YCSB's workloads.
pub const YCSB_THETA: f64 = 0.99;

/// A zipfian choice among a fixed number of items.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

/// The sum of `1 / i^theta`, from 1 to `items`: the first thousand exactly, the rest as an integral (with the
/// trapezoid's correction the error is below one in a million).
fn zeta(items: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1_000;
    let term = |i: u64| (i as f64).powf(-theta);
    let head: f64 = (1..=items.min(EXACT)).map(term).sum();
    if items <= EXACT {
        return head;
    }
    let power = 1.0 - theta;
    let area = ((items as f64).powf(power) - (EXACT as f64).powf(power)) / power;
    head + area + (term(items) - term(EXACT)) / 2.0
}

impl Zipf {
    /// A choice among `items` items (at least 1), with `theta` between 0 (even) and 1 (exclusive).
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Self {
        let items = items.max(2);
        let zeta_all = zeta(items, theta);
        let eta =
            (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta(2, theta) / zeta_all);
        Self { items, theta, zeta: zeta_all, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// The rank of the chosen item, 0 for the most frequent.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        whole(rank).min(self.items - 1)
    }

    /// An item whose frequency is independent of its place in the order.
    pub fn scrambled(&self, random: &mut Random) -> u64 {
        mix(self.rank(random)) % self.items
    }

    /// The share of all choices that fall on the most frequent `ranks` items.
    #[must_use]
    pub fn share_of_first(&self, ranks: usize) -> f64 {
        zeta(ranks as u64, self.theta) / self.zeta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ranks_get_their_share() {
        let zipf = Zipf::new(1_000_000, YCSB_THETA);
        let mut random = Random::new(3);
        let draws = 50_000;
        let mut first = 0;
        let mut hundred = 0;
        for _ in 0..draws {
            let rank = zipf.rank(&mut random);
            first += u32::from(rank == 0);
            hundred += u32::from(rank < 100);
        }
        assert!((f64::from(first) / f64::from(draws) - zipf.share_of_first(1)).abs() < 0.005);
        // YCSB's formula is an approximation beyond the first two ranks.
        assert!((f64::from(hundred) / f64::from(draws) - zipf.share_of_first(100)).abs() < 0.03);
    }

    #[test]
    fn the_integral_stands_in_for_the_sum() {
        let exact: f64 = (1..=20_000_u32).map(|i| f64::from(i).powf(-0.99)).sum();
        assert!((zeta(20_000, 0.99) / exact - 1.0).abs() < 1e-6);
    }
}
