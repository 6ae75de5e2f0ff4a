//! Tests of the outbox, on a store in memory and a broker in the process.

use super::{Outbox, SINK, Status};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_broker::{Broker, Deliveries, InProcess, Names, Subscription};
use treadle_store::{Batch, EventRow, Location, Retention, Snapshot, Store};

/// Timeout of all waits, generous for busy machines.
const TIMEOUT: Duration = Duration::from_mins(1);

struct Fixture {
    store: Arc<dyn Store>,
    broker: Arc<InProcess>,
    events: Deliveries,
    committed: watch::Sender<u64>,
}

/// A running outbox.
struct Work {
    status: Arc<Status>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Work {
    async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.expect("it ends");
    }
}

impl Fixture {
    async fn new() -> Self {
        let broker = Arc::new(InProcess::new(Names::default()));
        let all = Subscription::new("all", ["#"]);
        Self {
            store: treadle_store::open(&Location::Memory)
                .await
                .expect("a store"),
            events: broker.subscribe(&all).await.expect("a subscription"),
            broker,
            committed: watch::Sender::new(0),
        }
    }

    async fn append(&self, seqs: std::ops::RangeInclusive<u64>) {
        let row = |seq| EventRow {
            seq,
            at_us: seq,
            kind: "step_finished".into(),
            job: "j".into(),
            program: Some(format!("p-{}", seq % 3)),
            body: "{}".into(),
        };
        let batch = Batch {
            events: seqs.clone().map(row).collect(),
            ..Batch::default()
        };
        self.store.append(&batch).await.expect("it appends");
        self.committed.send_replace(*seqs.end());
    }

    fn start(&self) -> Work {
        let status = Arc::new(Status::new(self.broker.health(), 1_000));
        let stop = watch::Sender::new(false);
        let outbox = Outbox {
            store: self.store.clone(),
            broker: self.broker.clone(),
            status: status.clone(),
            committed: self.committed.subscribe(),
            stop: stop.subscribe(),
        };
        let task = tokio::spawn(outbox.run());
        Work { status, stop, task }
    }

    async fn expect(&mut self, seqs: std::ops::RangeInclusive<u64>) {
        for seq in seqs {
            let delivery = tokio::time::timeout(TIMEOUT, self.events.next());
            let delivery = delivery.await.expect("in time").expect("an event");
            assert_eq!(delivery.id, Some(seq.to_string()));
            delivery.ack().await.expect("it is settled");
        }
    }
}

#[tokio::test]
async fn what_is_committed_is_published_and_goes_on_after_a_restart() {
    let mut fixture = Fixture::new().await;
    // More than one batch, before the outbox starts.
    fixture.append(1..=6_500).await;
    let work = fixture.start();
    fixture.expect(1..=6_500).await;
    fixture.append(6_501..=6_510).await;
    fixture.expect(6_501..=6_510).await;
    work.end().await;
    let cursor = fixture.store.sink_cursor(SINK).await.expect("a cursor");
    assert_eq!(cursor, 6_510);

    fixture.append(6_511..=6_512).await;
    let work = fixture.start();
    fixture.expect(6_511..=6_512).await;
    work.end().await;
}

#[tokio::test]
async fn a_broker_that_is_away_makes_a_lag_an_alarm_and_a_catch_up() {
    let mut fixture = Fixture::new().await;
    fixture.append(1..=1).await;
    let work = fixture.start();
    fixture.expect(1..=1).await;
    fixture.broker.cut();
    fixture.append(2..=1_500).await;
    let late = async {
        let untried = "treadle_broker_failures_total 0\n";
        while !work.status.is_late() || work.status.render().contains(untried) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let late = tokio::time::timeout(TIMEOUT, late);
    late.await.expect("the alarm is raised");
    assert_eq!(work.status.lag_events(), 1_499);
    fixture.broker.mend();
    fixture.expect(2..=1_500).await;
    let status = work.status.clone();
    work.end().await;
    assert_eq!((status.lag_events(), status.is_late()), (0, false));
    assert!(
        !status
            .render()
            .contains("treadle_broker_failures_total 0\n")
    );
}

#[tokio::test]
async fn what_was_removed_meanwhile_is_counted() {
    let mut fixture = Fixture::new().await;
    fixture.append(1..=20).await;
    let snapshot = Snapshot {
        seq: 20,
        saved_at_us: 20,
        state: Vec::new(),
    };
    fixture
        .store
        .save_snapshot(&snapshot)
        .await
        .expect("it is saved");
    fixture
        .store
        .advance_sink(SINK, 5)
        .await
        .expect("it is noted");
    let retention = Retention {
        keep_events: 0,
        ended_before_us: 0,
        sink_lag_events_max: 10,
    };
    fixture.store.prune(&retention).await.expect("it prunes");
    let work = fixture.start();
    fixture.expect(11..=20).await;
    let status = work.status.clone();
    work.end().await;
    let text = status.render();
    assert!(
        text.contains("treadle_broker_missed_events_total 5\n"),
        "{text}"
    );
}
