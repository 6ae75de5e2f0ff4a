//! Rows that can't be stored do not block others.

use treadle_store::{
    BATCH_ROWS_MAX, Batch, EventRow, Order, RefusedRow, Store, StoreError, TEXT_BYTES_MAX,
};

use super::backends::schema;
use super::rows::{self, ALL};

/// The placeholder of an event in these tests.
fn placeholder(event: &EventRow, cause: &str) -> EventRow {
    EventRow {
        seq: event.seq,
        at_us: 0,
        kind: "refused".into(),
        job: String::new(),
        program: None,
        body: cause.to_owned(),
    }
}

/// A name that no database can compress.
fn long_name() -> String {
    let mut state = 7_u64;
    let letter = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    (0..9_000).map(letter).collect()
}

/// Appends a batch that is refused permanently; returns the refused rows.
async fn salvage(store: &dyn Store, batch: &Batch) -> Vec<RefusedRow> {
    let before = store.last_seq().await.unwrap();
    let error = store.append(batch).await.unwrap_err();
    assert!(error.is_permanent() && !error.passes(), "{error}");
    assert_eq!(store.last_seq().await.unwrap(), before);
    store.append_what_fits(batch, placeholder).await.unwrap()
}

fn named(refused: &[RefusedRow]) -> Vec<(&str, &str)> {
    refused.iter().map(|row| (row.table, &*row.key)).collect()
}

pub(crate) async fn rows_that_no_store_can_hold_are_left_out(store: &dyn Store) {
    let mut batch = rows::events(1..=40);
    batch.events[6].body = "{\"text\":\"a\u{0}b\"}".into();
    for n in 0..9 {
        batch.programs.push(rows::program(&format!("p{n}"), n));
        batch.workers.push(rows::worker(&format!("w{n}")));
        batch.decisions.push(rows::decision(n + 1, None, "pause"));
        batch.steps.push(rows::step(&format!("p{n}"), n));
    }
    batch.programs[1].tokens_total = u64::MAX;
    batch.programs[2].job = "a\u{0}b".into();
    batch.workers[3].capacity_tokens = Some(u64::MAX);
    batch.workers[8].used_tokens = 1 << 63;
    batch.decisions[4].at_us = u64::MAX;
    batch.steps[5].prompt_tokens = u64::MAX;

    let refused = salvage(store, &batch).await;
    let expected = [
        ("decisions", "5"),
        ("programs", "p1"),
        ("workers", "w3"),
        ("workers", "w8"),
        // Its program is not stored.
        ("steps", "1"),
        ("steps", "5"),
    ];
    assert_eq!(named(&refused), expected);
    assert!(refused.iter().all(|row| row.event.is_none()));
    assert!(refused[2].cause.contains("workers.capacity_tokens is"));

    assert_eq!(store.events_after(0, ALL).await.unwrap(), batch.events);
    for (n, program) in batch.programs.iter().enumerate() {
        let stored = store.program(&program.program).await.unwrap();
        assert_eq!(stored.as_ref(), (n != 1).then_some(program));
    }
    assert_eq!(store.workers().await.unwrap().len(), 7);
    let all = rows::range(None, None, Order::OldestFirst, ALL);
    assert_eq!(
        store.decisions(&rows::decisions(&all)).await.unwrap().len(),
        8
    );
    assert_eq!(store.append(&rows::events(41..=42)).await.unwrap(), 42);
}

pub(crate) async fn an_event_that_no_store_can_hold_leaves_its_number(store: &dyn Store) {
    let mut batch = rows::events(1..=20);
    batch.events[4].at_us = u64::MAX;
    batch.events[13].body = "x".repeat(TEXT_BYTES_MAX + 1);
    batch.programs.push(rows::program("p", 1));
    let refused = salvage(store, &batch).await;
    assert_eq!(named(&refused), [("events", "5"), ("events", "14")]);
    assert_eq!((refused[0].event, refused[1].event), (Some(5), Some(14)));

    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events.len(), 20);
    for (n, (event, sent)) in events.iter().zip(&batch.events).enumerate() {
        match n {
            4 => assert_eq!(*event, placeholder(sent, &refused[0].cause)),
            13 => assert_eq!(*event, placeholder(sent, &refused[1].cause)),
            _ => assert_eq!(event, sent),
        }
    }
    assert!(store.program("p").await.unwrap().is_some());
    assert_eq!(store.append(&rows::events(21..=21)).await.unwrap(), 21);
}

pub(crate) async fn more_rows_than_a_batch_may_have_fit(store: &dyn Store) {
    let mut batch = rows::events(1..=3);
    let worker = rows::worker("w");
    batch.workers = vec![worker.clone(); BATCH_ROWS_MAX];
    assert_eq!(salvage(store, &batch).await, []);
    assert_eq!(store.workers().await.unwrap(), [worker]);
    assert_eq!(store.last_seq().await.unwrap(), 3);
}

pub(crate) async fn a_gap_is_still_one(store: &dyn Store) {
    let batch = rows::events(2..=3);
    let error = store
        .append_what_fits(&batch, placeholder)
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Gap { .. }), "{error}");
    let nothing = Batch::default();
    let refused = store.append_what_fits(&nothing, placeholder).await.unwrap();
    assert_eq!(refused, []);
}

/// PostgreSQL limits the size of index rows, and reports that only on insertion.
#[tokio::test]
async fn names_that_no_index_can_hold() {
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    let mut batch = rows::events(1..=9);
    batch.events[3].program = Some(long_name());
    // Jobs in the journal have no index.
    batch.events[5].job = long_name();
    batch.programs = (0..5).map(|n| rows::program(&format!("p{n}"), n)).collect();
    batch.programs[2].job = long_name();
    batch.steps = (0..5).map(|n| rows::step(&format!("p{n}"), n)).collect();
    let refused = salvage(&*store, &batch).await;
    let expected = [("events", "4"), ("programs", "p2"), ("steps", "2")];
    assert_eq!(named(&refused), expected);
    assert!(refused[0].cause.contains("index row"), "{refused:?}");
    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events[3], placeholder(&batch.events[3], &refused[0].cause));
    assert_eq!(events[5], batch.events[5]);
    assert_eq!(store.append(&rows::events(10..=10)).await.unwrap(), 10);
    store.close().await.unwrap();
}
