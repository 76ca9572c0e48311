//! Statistics of inequality: figures that tell a balanced list of loads from one with a single bearer.
//!
//! Invariants: a pure function of the list, whatever its order; loads that are negative or NaN count as zero; an empty
//! list, or one without any load, has the shape of perfect balance over nothing (see [`Shape::of`]).

/// The shape of a list of loads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Number of loads.
    pub count: usize,
    /// Sum of the loads, in their unit.
    pub total: f64,
    /// Maximum over mean; 1 when all are equal, `count` when one has everything.
    pub max_over_mean: f64,
    /// Maximum share of the total, 0 to 1.
    pub max_share: f64,
    /// Standard deviation (of the whole list, not of a sample) over the mean; 0 when all are equal.
    pub variation: f64,
    /// Gini's coefficient: 0 when all are equal, `1 - 1/count` when one has everything.
    pub gini: f64,
    /// Effective number: of equal loads that would be as concentrated, `1 / sum of share^2`, 1 to `count`.
    pub effective: f64,
}

impl Shape {
    /// The shape of these loads. Without any load all shares count as equal, so that an idle table is not shown as a
    /// hot one; without entries all figures are 0, except `max_over_mean`, which is 1.
    pub fn of(loads: impl IntoIterator<Item = f64>) -> Self {
        let clean = |load: f64| if load > 0.0 && load.is_finite() { load } else { 0.0 };
        let mut sorted: Vec<f64> = loads.into_iter().map(clean).collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let n = count as f64;
        let total: f64 = sorted.iter().sum();
        if count == 0 || total <= 0.0 {
            let max_share = if count == 0 { 0.0 } else { 1.0 / n };
            return Self {
                count,
                total: 0.0,
                max_over_mean: 1.0,
                max_share,
                variation: 0.0,
                gini: 0.0,
                effective: n,
            };
        }
        let mean = total / n;
        let max = sorted[count - 1];
        let squares: f64 = sorted.iter().map(|load| (load / total).powi(2)).sum();
        let spread: f64 = sorted.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / n;
        // Sum over i of (2i - n + 1) x_i, with i from 0 and x ascending: half the mean difference of all pairs.
        let pairs: f64 = sorted
            .iter()
            .enumerate()
            .map(|(index, load)| (2.0 * index as f64 - n + 1.0) * load)
            .sum();
        Self {
            count,
            total,
            max_over_mean: max / mean,
            max_share: max / total,
            variation: spread.sqrt() / mean,
            gini: (pairs / (n * total)).max(0.0),
            effective: 1.0 / squares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn equal_loads_are_in_balance() {
        let shape = Shape::of([3.0; 8]);
        near(shape.max_over_mean, 1.0);
        near(shape.variation, 0.0);
        near(shape.gini, 0.0);
        near(shape.effective, 8.0);
        near(shape.max_share, 0.125);
    }

    #[test]
    fn one_bearer_of_all_has_the_extreme_of_each_figure() {
        let shape = Shape::of([0.0, 0.0, 5.0, 0.0]);
        near(shape.max_over_mean, 4.0);
        near(shape.variation, 3f64.sqrt());
        near(shape.gini, 0.75);
        near(shape.effective, 1.0);
        near(shape.max_share, 1.0);
    }

    #[test]
    fn an_arithmetic_series_has_the_closed_forms() {
        // 1..=n: mean (n+1)/2, Gini (n-1)/(3n), sum of squares n(n+1)(2n+1)/6.
        let n = 20.0_f64;
        let shape = Shape::of((1..=20).map(f64::from));
        near(shape.gini, (n - 1.0) / (3.0 * n));
        near(shape.variation, ((n * n - 1.0) / 12.0).sqrt() / f64::midpoint(n, 1.0));
        near(shape.max_over_mean, 2.0 * n / (n + 1.0));
        near(shape.effective, 3.0 * n * (n + 1.0) / (2.0 * (2.0 * n + 1.0)));
    }

    #[test]
    fn order_and_scale_change_nothing() {
        let a = Shape::of([5.0, 1.0, 4.0, 2.0]);
        let b = Shape::of([200.0, 400.0, 100.0, 500.0]);
        near(a.gini, b.gini);
        near(a.effective, b.effective);
        near(a.variation, b.variation);
    }

    #[test]
    fn nothing_is_in_balance() {
        near(Shape::of([0.0, 0.0]).effective, 2.0);
        near(Shape::of([0.0, 0.0]).max_share, 0.5);
        near(Shape::of([]).effective, 0.0);
        near(Shape::of([f64::NAN, -1.0, 2.0]).effective, 1.0);
    }
}
