//! Results of hash-index: figures beside the published ones, tables, and claims about the shape.
//!
//! Invariants: pure; rates of tables are compared within a round; without a known limit per partition, claims about
//! writes stay open.

use super::{KINDS, Kind, Runs, Slice, Written};
use crate::claim::{Claim, Unit, grows, is_flat, list};
use crate::experiment::told::{Figure, Table, heads};
use crate::report::short;
use crate::statistics::{Spread, median};

/// Reads and writes per second, and their 99th percentiles in milliseconds: unsharded, and sharded without
/// inference.
const PUBLISHED_PLAIN: [f64; 4] = [55_675.5, 6_184.4, 21.0, 56.6];
const PUBLISHED_NAIVE: [f64; 4] = [20_728.6, 2_304.5, 26.2, 14.7];

/// Maximum share of point reads lost by a hash that the planner infers.
const LOSS_MAX: f64 = 0.05;
/// Minimum factor that a hash costs reads if the planner cannot infer it; the published one is 2.7.
const PRICE_MIN: f64 = 1.5;
/// A rate that varies by no more than this factor is flat.
const FLAT: f64 = 1.25;

/// A figure of a table, in the order of rounds.
pub(super) fn of_table(slices: &[Slice], table: Kind, figure: impl Fn(&Slice) -> f64) -> Vec<f64> {
    slices.iter().filter(|slice| slice.table == table).map(figure).collect()
}

fn rates(written: &[Written], table: Kind) -> Vec<f64> {
    written.iter().filter(|run| run.table == table).map(|run| run.rows_per_s).collect()
}

/// Our figures beside the published ones.
pub(super) fn figures(runs: &Runs) -> Vec<Figure> {
    let middle = |kind, figure: fn(&Slice) -> f64| {
        let values = of_table(&runs.slices, kind, figure);
        (!values.is_empty()).then(|| median(&values))
    };
    // The mix, table by table.
    let mut figures = Vec::new();
    let published = [
        (Kind::Plain, Some(PUBLISHED_PLAIN)),
        (Kind::Hashed, None),
        (Kind::Naive, Some(PUBLISHED_NAIVE)),
    ];
    for (kind, published) in published {
        let name = format!("{kind:?}").to_lowercase();
        let parts: [(&str, fn(&Slice) -> f64); 4] = [
            ("reads/s", |slice| slice.reads_per_s),
            ("writes/s", |slice| slice.writes_per_s),
            ("read p99 ms", |slice| slice.read.p99_ms),
            ("write p99 ms", |slice| slice.write.p99_ms),
        ];
        for (index, (part, figure)) in parts.into_iter().enumerate() {
            let published = published.map(|published| published[index]);
            figures.push(Figure::new(&format!("{name}, {part}"), middle(kind, figure), published));
        }
    }
    // The cost of a hash: each figure is a median over ratios of two tables in the same round.
    let measured = |spread: &Spread| (spread.rounds > 0).then_some(spread.median);
    figures.push(Figure::new(
        "price of naive hashing",
        measured(&runs.price),
        Some(PUBLISHED_PLAIN[0] / PUBLISHED_NAIVE[0]),
    ));
    for (figure, loss) in [
        ("reads lost by hashing, %", &runs.loss),
        ("reads lost in the mix, where hashed writes use all logs, %", &runs.loss_in_mix),
    ] {
        figures.push(Figure::new(figure, measured(loss).map(|loss| loss * 100.0), None));
    }
    // Scaling of write-only runs: the rate with the most partitions, divided by the rate with the fewest.
    let growth = |kind| {
        let rates = rates(&runs.written, kind);
        let (first, last) = (rates.first().copied()?, rates.last().copied()?);
        (first > 0.0 && rates.len() > 1).then(|| last / first)
    };
    figures.push(Figure::new(
        "hashed writes, most / fewest partitions",
        growth(Kind::Hashed),
        None,
    ));
    figures.push(Figure::new(
        "sequential writes, most / fewest partitions",
        growth(Kind::Plain),
        None,
    ));
    figures
}

/// Claims about tables with this number of partitions.
pub(super) fn claims(runs: &Runs, partitions: u32, bound: Option<f64>) -> Vec<Claim> {
    // Partitions touched, as the store logged them.
    let partitions_of = |kind| {
        let entry = runs.asked.iter().find(|entry| entry.table == kind);
        entry.and_then(|entry| entry.partitions)
    };
    let inferred =
        "a point read touches one partition if its bucket is inferred, and all otherwise";
    let touched = [Kind::Plain, Kind::Hashed, Kind::Naive].map(partitions_of);
    let first = match touched {
        [Some(plain), Some(hashed), Some(naive)] => Claim::judged(
            inferred,
            format!("plain {plain:.0}, hashed {hashed:.0}, naive {naive:.0} of {partitions}"),
            plain == 1.0 && hashed == 1.0 && naive == f64::from(partitions),
        ),
        _ => Claim::open(inferred, "the query log has no figures"),
    };
    let mut claims = vec![
        first,
        Claim::at_most(
            "point reads lose at most 5 % by hashing",
            &runs.loss,
            LOSS_MAX,
            Unit::Percent,
        ),
        Claim::at_least(
            "naive hashing slows point reads by a multiple",
            &runs.price,
            PRICE_MIN,
            Unit::Times,
        ),
    ];
    // Writes can be judged only if the limit of one partition is known.
    let grown = "hashed writes grow with the number of partitions";
    let flat = "sequential writes do not grow with it";
    let (hashed, plain) = (rates(&runs.written, Kind::Hashed), rates(&runs.written, Kind::Plain));
    if bound.is_none() {
        let why = "the limit of one partition is unknown; give --partition-rate with --connect";
        claims.extend([grown, flat].map(|claim| Claim::open(claim, why)));
    } else if hashed.len() < 2 {
        claims.extend(
            [grown, flat]
                .map(|claim| Claim::open(claim, "only one number of partitions was measured")),
        );
    } else {
        let hashed_on = runs.written.iter().filter(|run| run.table == Kind::Hashed);
        let partitions: Vec<u32> = hashed_on.map(|run| run.partitions).collect();
        let text = format!("{} rows/s", list(&hashed));
        claims.push(Claim::judged(grown, text, grows(&partitions, &hashed)));
        claims.push(Claim::judged(flat, format!("{} rows/s", list(&plain)), is_flat(&plain, FLAT)));
    }
    claims
}

/// Results of reads.
pub(super) fn read_table(runs: &Runs) -> Table {
    let mut table = heads(&[
        "table",
        "reads/s",
        "least",
        "most",
        "writes/s",
        "read p50 ms",
        "read p99 ms",
        "partitions touched",
        "failed",
    ]);
    // One line for each table, with medians over the rounds.
    for kind in KINDS {
        let reads = of_table(&runs.slices, kind, |slice| slice.reads_per_s);
        let middle =
            |figure: fn(&Slice) -> f64| short(median(&of_table(&runs.slices, kind, figure)));
        let entry = runs.asked.iter().find(|entry| entry.table == kind);
        let touched = entry.and_then(|entry| entry.partitions);
        let failed: u64 =
            runs.slices.iter().filter(|slice| slice.table == kind).map(|slice| slice.failed).sum();
        table.push(vec![
            format!("{kind:?}").to_lowercase(),
            short(median(&reads)),
            short(reads.iter().copied().fold(f64::INFINITY, f64::min)),
            short(reads.iter().copied().fold(0.0, f64::max)),
            middle(|slice| slice.writes_per_s),
            middle(|slice| slice.read.p50_ms),
            middle(|slice| slice.read.p99_ms),
            touched.map_or_else(|| "-".to_owned(), |touched| format!("{touched:.0}")),
            failed.to_string(),
        ]);
    }
    table
}

/// Results of write-only runs.
pub(super) fn written_table(written: &[Written]) -> Table {
    let mut table = heads(&["written, rows/s (p99 ms), by partitions"]);
    for (kind, name) in [(Kind::Plain, "sequential"), (Kind::Hashed, "hashed")] {
        let runs = written.iter().filter(|run| run.table == kind);
        if kind == Kind::Plain {
            table[0].extend(runs.clone().map(|run| run.partitions.to_string()));
        }
        let mut line = vec![name.to_owned()];
        line.extend(
            runs.map(|run| format!("{} ({})", short(run.rows_per_s), short(run.latency.p99_ms))),
        );
        table.push(line);
    }
    table
}
