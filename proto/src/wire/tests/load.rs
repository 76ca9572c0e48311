//! Reports of load, there and back.

use partita_load::{Class, Standing};

use super::*;
use crate::history::{Cause, ReshapeOutcome};
use crate::load::{
    BalanceEvent, BalanceKind, Busy, Evidence, ForecastAction, ForecastEvent, HeatmapRequest,
    HotCause, HotKey, Instant, KeySample, Latency, LoadHistory, LoadReport, LoadRequest, NodeLoad,
    OfferedRows, PartitionLoad, Rates, ShownReason, SplitEvent, TableRotation, Verdict,
};

/// Numbers that equal themselves.
fn number() -> impl Strategy<Value = f64> {
    use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, ZERO};
    POSITIVE | NEGATIVE | NORMAL | ZERO
}

fn at() -> impl Strategy<Value = Instant> {
    any::<u64>().prop_map(Instant)
}

fn table_id() -> impl Strategy<Value = TableId> {
    any::<u32>().prop_map(TableId)
}

fn partition_id() -> impl Strategy<Value = PartitionId> {
    any::<u64>().prop_map(PartitionId)
}

fn node_id() -> impl Strategy<Value = NodeId> {
    any::<u64>().prop_map(NodeId)
}

fn rates() -> impl Strategy<Value = Rates> {
    (number(), number(), number(), number(), number(), number()).prop_map(
        |(write_rows, write_bytes, read_rows, point_reads, scans, rejected)| Rates {
            write_rows,
            write_bytes,
            read_rows,
            point_reads,
            scans,
            rejected,
        },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let prefixes = (vec(number(), 0..3), vec(any::<u32>(), 0..3));
    let numbers = (number(), number(), number(), number(), number(), number());
    let motion = (number(), number(), number(), number(), number());
    let motion = (motion, option::of(number()), any::<bool>());
    (any::<(u32, u32)>(), duration(), prefixes, numbers, motion).prop_map(
        |((samples_old, samples_new), window, (top_prefix, distinct_prefix), numbers, motion)| {
            let (p_out, auc, append_high, append_low, top_key, contained) = numbers;
            let ((shift, hot_share, lead, front, concentration), passes_in_s, reads) = motion;
            Evidence {
                samples_old,
                samples_new,
                window,
                p_out,
                auc,
                append_high,
                append_low,
                top_key,
                top_prefix,
                distinct_prefix,
                contained,
                shift,
                hot_share,
                lead,
                front,
                passes_in_s,
                concentration,
                reads,
            }
        },
    )
}

fn class() -> impl Strategy<Value = Class> {
    proptest::sample::select(Class::ALL.to_vec())
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let cut = option::of((bound(), number()));
    (class(), at(), evidence(), cut, option::of(bound())).prop_map(
        |(class, since, evidence, cut, hot_key)| Verdict { class, since, evidence, cut, hot_key },
    )
}

fn key_sample() -> impl Strategy<Value = KeySample> {
    (at(), bound(), number(), any::<bool>()).prop_map(|(at, key, weight, read)| KeySample {
        at,
        key,
        weight,
        read,
    })
}

fn partition_load() -> impl Strategy<Value = PartitionLoad> {
    let place = (table_id(), partition_id(), range(), option::of(node_id()), any::<u64>());
    let busy = (number(), number(), number(), number()).prop_map(|(s10, s60, s600, max)| Busy {
        s10,
        s60,
        s600,
        max,
    });
    let latency = any::<(u64, u64, u64, u64)>().prop_map(|(p50, p99, p999, max)| Latency {
        p50,
        p99,
        p999,
        max,
    });
    let judged = (option::of(verdict()), vec(key_sample(), 0..3), number());
    let sizes = (duration(), any::<(u64, u64, u64)>());
    let offered = (number(), any::<bool>())
        .prop_map(|(rows_per_s, is_floor)| OfferedRows { rows_per_s, is_floor });
    let standing = proptest::sample::select(Standing::ALL.to_vec());
    let told = (standing, number(), offered, number(), (number(), any::<bool>()));
    (place, busy, rates(), option::of(latency), judged, sizes, told).prop_map(
        |(place, busy, rates, write_latency, (verdict, samples, share), (age, sizes), told)| {
            let (table, partition, range, leader, epoch) = place;
            let (standing, reads_busy, offered, read_share, capacity) = told;
            let (queue, size_bytes, rows) = sizes;
            PartitionLoad {
                table,
                partition,
                range,
                leader,
                epoch: Epoch(epoch),
                age,
                busy,
                rates,
                queue,
                size_bytes,
                rows,
                write_latency,
                share,
                verdict,
                samples,
                standing,
                reads_busy,
                offered,
                read_share,
                capacity,
            }
        },
    )
}

fn hot_cause() -> impl Strategy<Value = HotCause> {
    let place = (table_id(), partition_id(), any::<bool>(), option::of(bound()));
    let cause = (name(), name(), name(), name(), name()).prop_map(
        |(statement, kind, user, application, client)| partita_load::Cause {
            statement,
            kind,
            user,
            application,
            client,
        },
    );
    (place, cause, number(), any::<u64>()).prop_map(
        |((table, partition, read, key), cause, share, samples)| HotCause {
            table,
            partition,
            read,
            key,
            cause,
            share,
            samples,
        },
    )
}

fn rotation() -> impl Strategy<Value = TableRotation> {
    (table_id(), number(), number(), number(), any::<u32>(), number()).prop_map(
        |(table, concentration, n_eff_second, n_eff_mean, spells, spell_s)| TableRotation {
            table,
            concentration,
            n_eff_second,
            n_eff_mean,
            spells,
            spell_s,
        },
    )
}

fn node_load() -> impl Strategy<Value = NodeLoad> {
    (node_id(), any::<(u64, u64)>(), number(), rates(), option::of(number())).prop_map(
        |(node, (leaders, replicas), busy, rates, cpu_cores)| NodeLoad {
            node,
            leaders,
            replicas,
            busy,
            rates,
            cpu_cores,
        },
    )
}

fn reason() -> impl Strategy<Value = ShownReason> {
    let known = (proptest::sample::select(Cause::ALL.to_vec()), name())
        .prop_map(|(cause, note)| ShownReason { cause: Some(cause), note });
    let unknown = name()
        .prop_map(|note| ShownReason { cause: None, note: format!("of a newer version: {note}") });
    prop_oneof![known, unknown]
}

fn outcome() -> impl Strategy<Value = ReshapeOutcome> {
    prop_oneof![
        Just(ReshapeOutcome::UnderWay),
        Just(ReshapeOutcome::Done),
        name().prop_map(ReshapeOutcome::GivenUp),
    ]
}

fn split_event() -> impl Strategy<Value = SplitEvent> {
    let place = (table_id(), partition_id(), vec(partition_id(), 0..3), option::of(bound()));
    let shares = (option::of(number()), option::of(number()), option::of(any::<bool>()));
    let times = (option::of(duration()), option::of(duration()), option::of(duration()));
    (at(), place, any::<bool>(), (reason(), option::of(outcome())), shares, times).prop_map(
        |(at, (table, partition, children, key), merge, (why, outcome), shares, times)| {
            let (predicted_share, actual_share, in_vain) = shares;
            let (stall, took, relief) = times;
            SplitEvent {
                at,
                table,
                partition,
                children,
                merge,
                key,
                why,
                predicted_share,
                actual_share,
                in_vain,
                stall,
                took,
                relief,
                outcome,
            }
        },
    )
}

fn balance_event() -> impl Strategy<Value = BalanceEvent> {
    let kind = prop_oneof![Just(BalanceKind::Transfer), Just(BalanceKind::Move)];
    (at(), partition_id(), kind, node_id(), node_id(), name()).prop_map(
        |(at, partition, kind, from, to, why)| BalanceEvent { at, partition, kind, from, to, why },
    )
}

fn hot_key() -> impl Strategy<Value = HotKey> {
    (table_id(), partition_id(), bound(), number(), number(), any::<bool>()).prop_map(
        |(table, partition, key, share, per_second, read)| HotKey {
            table,
            partition,
            key,
            share,
            per_second,
            read,
        },
    )
}

fn history() -> impl Strategy<Value = LoadHistory> {
    let place = (table_id(), partition_id(), option::of(node_id()));
    (at(), duration(), place, (number(), number()), rates(), any::<u64>(), option::of(class()))
        .prop_map(
            |(at, span, (table, partition, leader), (busy, busy_max), rates, size_bytes, class)| {
                LoadHistory {
                    at,
                    span,
                    table,
                    partition,
                    leader,
                    busy,
                    busy_max,
                    rates,
                    size_bytes,
                    class,
                }
            },
        )
}

fn forecast() -> impl Strategy<Value = ForecastEvent> {
    let action = proptest::sample::select(vec![
        ForecastAction::Cut,
        ForecastAction::NoPlace,
        ForecastAction::Off,
    ]);
    let times = (at(), at(), at());
    let counts = (any::<u32>(), any::<u32>());
    let outcome = (option::of(number()), option::of(any::<bool>()));
    (times, table_id(), range(), (number(), number()), action, counts, outcome).prop_map(
        |(
            (at, from, until),
            table,
            range,
            (expected, confidence),
            action,
            (days, cuts),
            outcome,
        )| {
            let (actual, useful) = outcome;
            ForecastEvent {
                at,
                table,
                range,
                from,
                until,
                expected,
                confidence,
                days,
                action,
                cuts,
                actual,
                useful,
            }
        },
    )
}

fn report() -> impl Strategy<Value = LoadReport> {
    let now = (vec(partition_load(), 0..3), vec(node_load(), 0..3));
    let events = (vec(split_event(), 0..3), vec(balance_event(), 0..3));
    let hot = (vec(hot_key(), 0..3), vec(hot_cause(), 0..3), vec(rotation(), 0..3));
    (at(), now, events, hot, (vec(history(), 0..3), vec(forecast(), 0..3))).prop_map(
        |(at, (partitions, nodes), (splits, balances), hot, (history, forecasts))| LoadReport {
            at,
            partitions,
            nodes,
            splits,
            balances,
            hot_keys: hot.0,
            history,
            hot_causes: hot.1,
            rotations: hot.2,
            forecasts,
        },
    )
}

fn load_request() -> impl Strategy<Value = LoadRequest> {
    (option::of(table_id()), option::of(at()), any::<bool>())
        .prop_map(|(table, history_since, samples)| LoadRequest { table, history_since, samples })
}

fn heatmap_request() -> impl Strategy<Value = HeatmapRequest> {
    let bytes = || vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    let span = (any::<u64>(), option::of(any::<u64>()));
    let keys = (bytes(), option::of(bytes()));
    (table_id(), "[a-z_]{0,12}", span, any::<(u32, u32)>(), keys).prop_map(
        |(table, metric, (since_s, until_s), (rows, columns), (from_key, to_key))| HeatmapRequest {
            table,
            metric,
            since_s,
            until_s,
            rows,
            columns,
            from_key,
            to_key,
        },
    )
}

round_trips! {
    reports_of_load_survive: report();
    requests_for_load_survive: load_request();
    requests_for_pictures_survive: heatmap_request();
}

#[test]
fn what_a_newer_version_names_is_unknown_and_no_error() {
    let verdict = Verdict { class: Class::Sweep, ..Verdict::default() };
    let message = pb::LoadVerdict { class: "SPIRAL".to_owned(), ..verdict.to_wire() };
    assert_eq!(Verdict::from_wire(message).unwrap().class, Class::Unknown);
    let load = PartitionLoad { standing: Standing::Hot, ..PartitionLoad::default() };
    let message = pb::PartitionLoad { standing: String::new(), ..load.to_wire() };
    assert_eq!(PartitionLoad::from_wire(message).unwrap().standing, Standing::Idle);
    let span = LoadHistory::default().to_wire();
    let message = pb::LoadHistory { class: "SPIRAL".to_owned(), ..span };
    assert_eq!(LoadHistory::from_wire(message).unwrap().class, Some(Class::Unknown));
    assert_eq!(LoadHistory::from_wire(span).unwrap().class, None);
    let (why, outcome) = ("whim: none".to_owned(), "postponed".to_owned());
    let message = pb::SplitEvent { why, outcome, ..SplitEvent::default().to_wire() };
    let event = SplitEvent::from_wire(message).unwrap();
    assert_eq!((event.why.cause, event.why.to_string()), (None, "whim: none".to_owned()));
    assert_eq!(event.outcome, None);
}
