//! The same seed gives the same run, and faults do not end it.

use partita_hotspot::cluster::{Cluster, Fault, FaultKind, Options, Policy};
use partita_hotspot::metrics::Summary;
use partita_hotspot::workload::{Design, all, find};

use crate::knobs;

fn run(seed: u64, policy: Policy) -> Cluster {
    let faults = vec![
        Fault { at_s: 40, node: 0, kind: FaultKind::Crash },
        Fault { at_s: 60, node: 2, kind: FaultKind::Speed(0.3) },
        Fault { at_s: 100, node: 0, kind: FaultKind::Return },
    ];
    let options = Options {
        nodes: 10,
        background: 2_000,
        beats_lost: 0.1,
        beat_delay_ms: 3_000,
        policy,
        faults,
        seed,
        ..Options::default()
    };
    let knobs = partita_hotspot::workload::Knobs { partitions: 2, ..knobs(Design::UidTs) };
    let mut cluster = Cluster::new(options, find("W1").unwrap().tables(&knobs));
    cluster.run(200);
    cluster
}

#[test]
fn a_seed_repeats_its_log_and_another_does_not() {
    for policy in [Policy::Ours, Policy::CrdbLike] {
        let (first, second, reseeded) = (run(7, policy), run(7, policy), run(8, policy));
        assert_eq!(first.log_hash(), second.log_hash(), "{}", policy.name());
        assert_ne!(first.log_hash(), reseeded.log_hash(), "{}", policy.name());
        let lines = |cluster: &Cluster| serde_json::to_string(&cluster.books().seconds).unwrap();
        assert_eq!(lines(&first), lines(&second), "{}", policy.name());
    }
}

#[test]
fn a_crashed_node_leads_nothing_a_few_seconds_later() {
    let cluster = run(3, Policy::Ours);
    let seconds = &cluster.books().seconds;
    assert!(seconds[41].served < seconds[39].served, "the crash is felt");
    let recovered = &seconds[50];
    assert!(
        recovered.served >= 0.8 * seconds[39].served,
        "{} of {}",
        recovered.served,
        seconds[39].served
    );
}

#[test]
fn every_workload_runs_under_every_policy() {
    for workload in all() {
        for policy in Policy::ALL {
            let options = Options { nodes: 5, policy, ..Options::default() };
            let mut cluster = Cluster::new(options, workload.tables(&knobs(Design::TsUid)));
            cluster.run(30);
            let summary = Summary::of(&cluster);
            let name = format!("{} {}", workload.name, policy.name());
            assert!(summary.served_rows > 0.0, "{name} serves nothing");
            assert!(summary.served_share <= 1.0 + 1e-9, "{name} {}", summary.served_share);
            assert!(
                summary.n_eff >= 1.0 - 1e-9 && summary.n_eff <= summary.partitions as f64 + 1e-9,
                "{name}"
            );
        }
    }
}
