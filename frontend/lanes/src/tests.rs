//! Statements in lanes: isolation, interruption, admission.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::{LaneError, LaneOptions, Lanes, Reason, Refusal, interrupt, pause};

fn lanes(options: LaneOptions) -> Arc<Lanes> {
    Lanes::new(options, &Handle::current())
}

/// Computes without a pause until it is interrupted.
fn spin() -> Reason {
    loop {
        if let Err(reason) = interrupt::check() {
            return reason;
        }
        std::hint::spin_loop();
    }
}

async fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "it did not come to that");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn statements_that_never_yield_hold_up_nobody_else() {
    let lanes = lanes(LaneOptions { threads: 1, ..LaneOptions::default() });
    let mut stuck = Vec::new();
    for _ in 0..6 {
        let lane = lanes.enter().await.unwrap();
        let of_task = lane.clone();
        stuck.push((lane, tokio::spawn(async move { of_task.run(async { spin() }).await })));
    }
    // This runtime has one thread, and every lane so far is busy: a further statement still runs.
    let lane = lanes.enter().await.unwrap();
    assert_eq!(lane.run(async { 7 }).await, Ok(7));
    for (lane, task) in stuck {
        lane.interrupt(Reason::TimedOut);
        lane.interrupt(Reason::Canceled);
        assert_eq!(task.await.unwrap(), Ok(Reason::TimedOut), "the first reason stays");
    }
}

#[tokio::test]
async fn a_lane_is_used_again_when_the_tasks_of_its_statement_have_ended() {
    let lanes = lanes(LaneOptions { threads: 1, ..LaneOptions::default() });
    let lane = lanes.enter().await.unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    lane.run(async move {
        tokio::spawn(async move {
            spin();
            std::thread::sleep(Duration::from_millis(50));
            count.fetch_add(1, Ordering::SeqCst);
        });
    })
    .await
    .unwrap();
    drop(lane);
    assert_eq!(lanes.stats().leaving, 1, "its task has still to end");
    let other = lanes.enter().await.unwrap();
    assert_eq!(other.run(async { interrupt::check() }).await, Ok(Ok(())), "another lane");
    until(|| lanes.stats().leaving == 0).await;
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    let again = lanes.enter().await.unwrap();
    assert_eq!(
        again.run(async { interrupt::check() }).await,
        Ok(Ok(())),
        "nothing is left of before"
    );
}

#[tokio::test]
async fn more_statements_than_places_wait_in_order_and_long_ones_make_room() {
    let options = LaneOptions {
        threads: 1,
        short_max: 1,
        long_max: 1,
        short_time: Duration::from_millis(100),
        ..LaneOptions::default()
    };
    let lanes = lanes(options);
    let first = lanes.enter().await.unwrap();
    let of_task = first.clone();
    let long = tokio::spawn(async move { of_task.run(async { spin() }).await });
    // The first statement moves to the long class, so another one may begin.
    let second = lanes.enter().await.unwrap();
    assert_eq!((lanes.stats().short, lanes.stats().long), (1, 1));
    let waiting = tokio::time::timeout(Duration::from_millis(300), lanes.enter()).await;
    assert!(waiting.is_err(), "both classes are full");
    drop(second);
    let third = lanes.enter().await.unwrap();
    drop(third);
    first.interrupt(Reason::Canceled);
    assert_eq!(long.await.unwrap(), Ok(Reason::Canceled));
}

#[tokio::test]
async fn a_statement_that_waits_for_its_client_holds_no_place() {
    let options = LaneOptions {
        threads: 1,
        short_max: 1,
        short_time: Duration::MAX,
        ..LaneOptions::default()
    };
    let lanes = lanes(options);
    let slow = lanes.enter().await.unwrap();
    let (go_on, told) = tokio::sync::oneshot::channel();
    let of_task = slow.clone();
    let task = tokio::spawn(async move {
        let work = async move {
            let pause = pause();
            told.await.unwrap();
            pause.end().await;
        };
        of_task.run(work).await
    });
    until(|| lanes.stats().short == 0).await;
    let other = lanes.enter().await.unwrap();
    go_on.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!task.is_finished(), "the place is taken by another statement");
    drop(other);
    assert_eq!(task.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_panic_ends_its_statement_only_and_bounds_are_kept() {
    let lanes = lanes(LaneOptions { threads: 1, lanes_max: 1, ..LaneOptions::default() });
    let lane = lanes.enter().await.unwrap();
    let panicked = lane.run(async { panic!("on purpose") }).await;
    assert_eq!(panicked, Err::<(), _>(LaneError::Panicked("on purpose".to_owned())));
    assert_eq!(lanes.enter().await.err(), Some(Refusal::Lanes));
    drop(lane);
    until(|| lanes.stats().leaving == 0).await;
}

#[tokio::test]
async fn under_pressure_a_few_statements_are_taken_and_no_more() {
    let lanes = lanes(LaneOptions { threads: 1, ..LaneOptions::default() });
    lanes.refuse(true);
    let mut few = Vec::new();
    for _ in 0..4 {
        few.push(lanes.enter().await.unwrap());
    }
    assert_eq!(lanes.enter().await.err(), Some(Refusal::Memory));
    lanes.refuse(false);
    assert!(lanes.enter().await.is_ok());
}

#[tokio::test]
async fn under_pressure_the_youngest_statement_goes_first() {
    let lanes = lanes(LaneOptions { threads: 1, ..LaneOptions::default() });
    let old = lanes.enter().await.unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let young = lanes.enter().await.unwrap();
    let interrupt = |age| lanes.interrupt_one(age, age, Reason::OutOfMemory);
    assert!(!interrupt(Duration::from_secs(60)), "none is old enough");
    assert!(interrupt(Duration::ZERO));
    assert_eq!((old.interrupted(), young.interrupted()), (None, Some(Reason::OutOfMemory)));
    assert!(interrupt(Duration::ZERO));
    assert!(!interrupt(Duration::ZERO));
}

#[tokio::test]
async fn a_deep_recursion_fits_the_stack_of_a_lane() {
    fn depth(left: usize) -> usize {
        let frame = std::hint::black_box([left; 64]);
        if left == 0 { 0 } else { 1 + depth(frame[0] - 1) }
    }
    let lane = lanes(LaneOptions::default()).enter().await.unwrap();
    assert_eq!(lane.run(async { depth(50_000) }).await, Ok(50_000));
}
