//! The same runs in the virtual cluster, and how well the two agree.
//!
//! Invariant: the same workload, seed, nodes, partitions and capacity; only if the capacity of a partition is
//! known.

use partita_hotspot::cluster::{Cluster, Options, Policy};
use partita_hotspot::metrics::Summary;
use partita_hotspot::report::Section;
use partita_hotspot::workload::TableLoad;

/// Maximum relative difference of N_eff up to which real and virtual count as equal.
const AGREED: f64 = 0.1;

/// Runs the virtual cluster with these tables under load.
pub(super) fn run(
    loads: Vec<TableLoad>,
    nodes: usize,
    rate: f64,
    seconds: u64,
    seed: u64,
) -> (Summary, Vec<u64>) {
    let options = Options {
        nodes,
        lane_rows_per_s: rate,
        policy: Policy::Ours,
        // Like the lab's clients.
        patient: true,
        seed,
        ..Options::default()
    };
    let mut cluster = Cluster::new(options, loads);
    cluster.run(seconds);
    let mut splits = Vec::new();
    let mut previous = 0;
    for second in &cluster.books().seconds {
        splits.extend((previous..second.splits_load).map(|_| second.second));
        previous = second.splits_load;
    }
    (Summary::of(&cluster), splits)
}

/// A run and its virtual counterpart.
pub(super) struct Pair<'a> {
    pub(super) name: &'a str,
    pub(super) real: &'a Summary,
    pub(super) real_splits: &'a [u64],
    pub(super) twin: &'a Summary,
    pub(super) twin_splits: &'a [u64],
}

fn times(splits: &[u64]) -> String {
    if splits.is_empty() {
        return "none".to_owned();
    }
    let times: Vec<String> = splits.iter().take(8).map(u64::to_string).collect();
    format!("{} s", times.join(", "))
}

/// Relative difference of a value from another.
fn off(value: f64, base: f64) -> f64 {
    if base > 0.0 { (value - base) / base } else { 0.0 }
}

/// The comparison of all pairs; `None` if there are none.
pub(super) fn section(pairs: &[Pair<'_>]) -> Option<Section> {
    if pairs.is_empty() {
        return None;
    }
    let head = [
        "design",
        "N_eff",
        "virtual",
        "off by",
        "served",
        "virtual",
        "verdict after",
        "virtual",
        "splits by load at",
        "virtual",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    let mut far = 0;
    // One line for each pair, and the number of pairs that differ.
    for pair in pairs {
        let error = off(pair.twin.n_eff, pair.real.n_eff);
        far += usize::from(error.abs() > AGREED);
        let cell = |seconds: Option<u64>| {
            seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds} s"))
        };
        lines.push(vec![
            pair.name.to_owned(),
            format!("{:.2}", pair.real.n_eff),
            format!("{:.2}", pair.twin.n_eff),
            format!("{:+.1} %", error * 100.0),
            format!("{:.0} %", pair.real.served_share * 100.0),
            format!("{:.0} %", pair.twin.served_share * 100.0),
            cell(pair.real.t_verdict_s),
            cell(pair.twin.t_verdict_s),
            times(pair.real_splits),
            times(pair.twin_splits),
        ]);
    }
    let verdict = match far {
        0 => "N_eff agrees within 10 % in all of them.".to_owned(),
        far => format!("N_eff is off by more than 10 % in {far} of {}.", pairs.len()),
    };
    let text = format!(
        "The same scenario simulated by the virtual cluster, with the same scheduler and detector. {verdict}"
    );
    Some(Section { title: "Real and virtual".to_owned(), text, lines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use partita_hotspot::metrics::Told;

    #[test]
    fn a_twin_that_is_off_is_counted() {
        let summary = |n_eff| Summary { n_eff, ..Summary::of_seconds(&[], Told::default()) };
        let (real, near, far) = (summary(8.0), summary(7.5), summary(6.0));
        let pair =
            |twin| Pair { name: "one", real: &real, real_splits: &[3, 40], twin, twin_splits: &[] };
        let comparison = section(&[pair(&near)]).unwrap();
        assert!(comparison.text.contains("within 10 % in all"), "{}", comparison.text);
        assert_eq!(comparison.lines[1][3], "-6.2 %");
        assert_eq!(
            (comparison.lines[1][8].as_str(), comparison.lines[1][9].as_str()),
            ("3, 40 s", "none")
        );
        let comparison = section(&[pair(&near), pair(&far)]).unwrap();
        assert!(comparison.text.contains("more than 10 % in 1 of 2"), "{}", comparison.text);
        assert!(section(&[]).is_none());
    }
}
