//! Forecasts from what nodes report, and what outlives a restart.

use std::path::Path;

use partita_heatmap::{Metric, View};
use partita_load::Counters as LoadCounters;
use partita_proto::beat::LoadBeat;
use partita_proto::load::ForecastAction;

use super::*;
use crate::load::{Keeper, LoadFiles, restore};

const DAY_S: u64 = 86_400;
/// A midnight.
const START_S: u64 = 19_676 * DAY_S;
const NINE_S: u64 = 9 * 3_600;
/// Interval of the reports, seconds.
const STEP_S: u64 = 15;

/// A table of one partition.
fn world(forecast: bool) -> World {
    let mut world = World::new();
    let mut table = NewTable { cuts: vec![], ..new_table("t") };
    table.schema.options.partitioning.forecast = forecast;
    world.done(create(table)).unwrap();
    world
}

/// Reports the load of some days to a keeper: nine tenths of the lane from nine to ten each day.
fn days(keeper: &mut Keeper, world: &World, days: std::ops::Range<u64>) {
    let partition = world.state.partitions().next().unwrap().id;
    let mut counters = LoadCounters::default();
    for second in (days.start * DAY_S..days.end * DAY_S).step_by(15) {
        let now_ms = (START_S + second) * 1_000;
        if (NINE_S..NINE_S + 3_600).contains(&(second % DAY_S)) {
            counters.busy_ns += STEP_S * 900_000_000;
            counters.write_batches += STEP_S * 100;
            counters.write_rows += STEP_S * 1_000;
        }
        let since_ms = (START_S + days.start * DAY_S) * 1_000;
        let beat = LoadBeat {
            partition,
            term: 1,
            since_ms,
            at_ms: now_ms,
            counters,
            ..LoadBeat::default()
        };
        keeper.learn(&world.state, |_| true, now_ms);
        keeper.heard(NodeId(1), &[beat], now_ms);
        keeper.tick(now_ms);
    }
}

#[test]
fn a_peak_of_two_days_is_expected_on_the_third() {
    let world = world(true);
    let mut keeper = Keeper::new(1);
    days(&mut keeper, &world, 0..2);
    assert!(keeper.forecasts(None).is_empty());
    days(&mut keeper, &world, 2..3);
    let forecasts = keeper.forecasts(None);
    let [forecast] = forecasts.as_slice() else { panic!("{forecasts:?}") };
    assert_eq!(forecast.from.0, (START_S + 2 * DAY_S + NINE_S) * 1_000);
    // No cut has ever divided it, so none is known.
    assert_eq!((forecast.action, forecast.cuts), (ForecastAction::NoPlace, 0));
    assert!(forecast.expected > 0.8 && forecast.actual.unwrap() > 0.8, "{forecast:?}");
    assert_eq!((forecast.days, forecast.useful), (2, None));
    assert!(keeper.forecasts(Some(TableId(77))).is_empty());
}

#[test]
fn a_table_or_a_cluster_may_do_without() {
    for (table, cluster) in [(false, true), (true, false)] {
        let world = world(table);
        let mut keeper = Keeper::new(1).with_forecasts(cluster);
        days(&mut keeper, &world, 0..3);
        assert!(keeper.forecasts(None).is_empty(), "{table} {cluster}");
    }
}

/// Cells of the picture of the last hour until a second.
fn picture(keeper: &Keeper, world: &World, until_s: u64) -> Vec<Vec<f32>> {
    let (history, _) = keeper.pictures.of(world.table("t").id).unwrap();
    let view = View {
        table: "t".to_owned(),
        metric: Metric::WriteRows,
        from: until_s - 3_600,
        to: until_s,
        columns_max: 60,
        rows_max: 10,
        keys: None,
        capacity: None,
    };
    history.lock().view(&view, |_| String::new()).cells
}

#[tokio::test]
async fn profiles_and_pictures_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(true);
    let mut keeper = Keeper::new(1);
    days(&mut keeper, &world, 0..2);
    let end_s = START_S + DAY_S + NINE_S + 3_600;
    let seen = picture(&keeper, &world, end_s);
    assert!(seen.iter().flatten().any(|rate| *rate > 0.0));
    let path: &Path = dir.path();
    LoadFiles::new(path.to_owned()).write(&keeper.content());
    let mut restarted = Keeper::new(1);
    restore(&mut restarted, path).await;
    // After a crash the catalog that was durable may not have the table yet.
    let mut early = World::new();
    early.change(create(new_table("t"))).unwrap();
    assert!(early.state.version() < world.state.version());
    restarted.look_on(&early.state, &[], (START_S + 2 * DAY_S) * 1_000);
    assert_eq!(picture(&restarted, &world, end_s), seen);
    days(&mut restarted, &world, 2..3);
    assert_eq!(restarted.forecasts(None).len(), 1);
}
