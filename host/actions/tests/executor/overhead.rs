//! Measures the time from the call until an action runs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::stage::{PROBE, Stage, exited, grant};

const STARTS: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: cargo nextest run -p treadle-actions --release --run-ignored only \
            --no-capture overhead"]
async fn an_action_runs_within_milliseconds() {
    let mut stage = Stage::new().await;
    let body = json!({ "process": { "command": [PROBE, "now"] } });
    let (mut began, mut ran, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let called = Instant::now();
        let action = stage.start_with(&body, |order| order.grants = vec![grant("cpu", 1)]);
        stage.began().await;
        began.push(called.elapsed());
        let (outcome, output) = stage.end().await;
        ended.push(called.elapsed());
        assert_eq!(outcome, exited(0));
        let at = Duration::from_nanos(output.trim().parse().unwrap());
        ran.push(at.saturating_sub(now));
        stage.executor.acknowledge(action, 1);
    }
    show("from the call until its beginning is told", began);
    show("from the call until its end is told", ended);
    let (p50, p99) = show("from the call until its own program reads the clock", ran);
    assert!(p50 < Duration::from_millis(5) && p99 < Duration::from_millis(25));
    stage.executor.shutdown().await;
}

fn show(what: &str, mut all: Vec<Duration>) -> (Duration, Duration) {
    all.sort_unstable();
    let at = |percent: usize| all[(all.len() - 1) * percent / 100];
    println!(
        "{what}: p50 {:?}, p99 {:?}, most {:?}",
        at(50),
        at(99),
        at(100)
    );
    (at(50), at(99))
}
