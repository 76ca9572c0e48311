//! What the scheduler costs: nanoseconds a report, milliseconds a tick, bytes a partition.
//!
//! `cargo run -p partita-load --release --example scheduler_cost [partitions] [nodes]`; 100,000 over 1,000 unless told
//! otherwise. Every partition reports every 5 s, and each second is ticked; one in a hundred is hot, and its verdict
//! is one that no cut helps, so that the detector is asked again and again. Reports come node by node, as heartbeats
//! do (times are the thread's own, not the wall's); partitions lie scattered over the nodes, so that each report finds
//! its partition in cold memory.

#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::time::Duration;

use partita_load::{
    Class, Counters, Evidence, Failed, NodeFacts, NodeId, Options, PartitionFacts, PartitionId,
    PartitionReport, Scheduler, Step, TableFacts, TableId, Verdict,
};

const SECONDS: u64 = 300;
const START_MS: u64 = 1_700_000_000_000;
const REPORT_EVERY_S: u64 = 5;

/// Time that this thread has run, by the kernel's books: other work on the machine does not count.
fn spent() -> Duration {
    let books = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux keeps books");
    let first = books.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(first.expect("nanoseconds"))
}

/// One in a hundred, scattered over the nodes.
fn is_hot(partition: u64) -> bool {
    (partition.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).is_multiple_of(100)
}

/// Busy millionths of a lane.
fn busy_of(partition: u64) -> u64 {
    if is_hot(partition) { 800_000 } else { 2_000 + (partition * 7_919) % 9_000 }
}

fn main() {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let partitions = arguments.next().unwrap_or(100_000);
    let nodes = arguments.next().unwrap_or(1_000);
    let tables = 100;

    let mut scheduler = Scheduler::new(Options::default(), 1);
    for node in 0..nodes {
        let id = NodeId(node);
        scheduler.set_node(id, NodeFacts { capacity: 4.0, ..NodeFacts::default() });
    }
    let node_of = |partition: u64, replica: u64| {
        // A multiplier without a common factor with the number of nodes spreads all three replicas.
        NodeId((partition * 7_919 + replica * 331) % nodes)
    };
    let mut by_node: Vec<Vec<u64>> = vec![Vec::new(); usize::try_from(nodes).expect("few nodes")];
    for partition in 0..partitions {
        by_node[usize::try_from(node_of(partition, 0).0).expect("few nodes")].push(partition);
    }
    let began = spent();
    for table in 0..tables {
        let id = TableId(u32::try_from(table).expect("few tables"));
        scheduler.set_table(id, TableFacts { partitions_max: usize::MAX, ..TableFacts::default() });
        let facts: Vec<PartitionFacts> = (0..partitions)
            .filter(|partition| partition % tables == table)
            .map(|partition| PartitionFacts {
                id: PartitionId(partition),
                voters: (0..3).map(|replica| node_of(partition, replica)).collect(),
                leader: Some(node_of(partition, 0)),
                born_ms: START_MS,
                ..PartitionFacts::default()
            })
            .collect();
        scheduler.set_partitions(id, &facts);
    }
    println!("{partitions} partitions on {nodes} nodes, known after {:.0} ms", ms(spent() - began));
    println!("bytes a partition: {:.0}", scheduler.memory_bytes() as f64 / partitions as f64);

    let (mut observing, mut ticking, mut longest) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut reports, mut asked, mut transfers) = (0_u64, 0_u64, 0_u64);
    let unsplittable = |class| Verdict {
        class,
        cut: None,
        divisions: Vec::new(),
        hot_key: None,
        evidence: Evidence::default(),
    };
    for second in 1..=SECONDS {
        let now_ms = START_MS + second * 1_000;
        let began = spent();
        for node in (0..nodes).filter(|node| node % REPORT_EVERY_S == second % REPORT_EVERY_S) {
            let own = &by_node[usize::try_from(node).expect("few nodes")];
            let id = NodeId(node);
            let beat: Vec<PartitionReport> =
                own.iter().map(|partition| report(*partition, now_ms)).collect();
            scheduler.observe_all(now_ms, id, &beat);
            reports += own.len() as u64;
        }
        observing += spent() - began;
        let began = spent();
        let mut judge = |_, _| {
            asked += 1;
            Some(unsplittable(Class::MovingRight))
        };
        let actions = scheduler.tick(now_ms, &mut judge);
        let took = spent() - began;
        ticking += took;
        longest = longest.max(took);
        for action in actions {
            if let Step::TransferLeader { .. } = action.step {
                transfers += 1;
            }
            // The fluid stays where it is: what is measured is the cost of thinking about it.
            scheduler.failed(action.id, Failed::Other, now_ms);
        }
    }
    println!("reports {reports}: {:.0} ns each", ns(observing, reports));
    println!(
        "ticks {SECONDS}: {:.3} ms each, the longest {:.3} ms; hot {}, asked the detector {asked} times, transfers {transfers}",
        ms(ticking) / SECONDS as f64,
        ms(longest),
        scheduler.hot(START_MS).len(),
    );
    let virtual_s = SECONDS as f64;
    println!("real time x {:.0}", virtual_s / (observing + ticking).as_secs_f64());
}

fn report(partition: u64, now_ms: u64) -> PartitionReport {
    let lived_ms = now_ms - START_MS;
    let busy_ns = lived_ms * busy_of(partition);
    let counters = Counters {
        busy_ns,
        write_rows: busy_ns / 20_000,
        write_bytes: busy_ns / 100,
        write_batches: busy_ns / 500_000,
        ..Counters::default()
    };
    PartitionReport {
        partition: PartitionId(partition),
        term: 1,
        since_ms: START_MS,
        at_ms: now_ms,
        counters,
        size_bytes: 100 << 20,
        queue_depth: 0,
    }
}

fn ns(time: Duration, times: u64) -> f64 {
    time.as_secs_f64() * 1e9 / times.max(1) as f64
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
