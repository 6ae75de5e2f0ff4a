//! Tests of events, decisions and snapshots. Each check starts with an empty store.

use treadle_store::{
    BATCH_ROWS_MAX, Batch, COMPONENT_BYTES_MAX, DecisionPage, EventPage, Order, ProgramPage,
    Retention, SeqPage, Store, StoreError,
};

use super::rows::{self, ALL, range, snapshot};

async fn seqs(store: &dyn Store, page: EventPage) -> Vec<u64> {
    let events = store.events_page(&page).await.unwrap();
    for event in &events {
        assert_eq!(*event, rows::event(event.seq));
    }
    events.iter().map(|event| event.seq).collect()
}

pub(crate) async fn the_journal_counts_from_one_without_gaps(store: &dyn Store) {
    assert_eq!(store.last_seq().await.unwrap(), 0);
    assert_eq!(store.append(&Batch::default()).await.unwrap(), 0);
    assert_eq!(store.append(&rows::events(1..=3)).await.unwrap(), 3);
    assert_eq!(store.append(&rows::events(4..=4)).await.unwrap(), 4);
    assert_eq!(store.last_seq().await.unwrap(), 4);
    for (first, got) in [(4, 4), (1, 1), (6, 6), (0, 0)] {
        match store.append(&rows::events(first..=first)).await {
            Err(StoreError::Gap {
                last_seq: 4,
                got: found,
            }) => assert_eq!(found, got),
            other => panic!("event {first} after 4: {other:?}"),
        }
    }
    let after = store.events_after(2, ALL).await.unwrap();
    assert_eq!(after, [rows::event(3), rows::event(4)]);
    assert_eq!(store.events_after(0, 1).await.unwrap(), [rows::event(1)]);
    assert!(store.events_after(u64::MAX, ALL).await.unwrap().is_empty());
}

pub(crate) async fn a_refused_batch_leaves_nothing(store: &dyn Store) {
    let mut batch = rows::events(1..=3);
    batch.events[2].seq = 5;
    batch.programs.push(rows::program("p", 1));
    let error = store.append(&batch).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Gap {
                last_seq: 2,
                got: 5
            }
        ),
        "{error}"
    );

    let mut batch = rows::events(1..=3);
    batch.workers.push(rows::worker("w"));
    batch.steps.push(rows::step("nobody", 1));
    let error = store.append(&batch).await.unwrap_err();
    assert!(matches!(error, StoreError::Orphan), "{error}");

    assert_eq!(store.last_seq().await.unwrap(), 0);
    assert!(store.events_after(0, ALL).await.unwrap().is_empty());
    assert!(store.program("p").await.unwrap().is_none());
    assert!(store.workers().await.unwrap().is_empty());
    assert_eq!(store.append(&rows::events(1..=1)).await.unwrap(), 1);
}

pub(crate) async fn events_are_found_by_program_kind_and_range(store: &dyn Store) {
    store.append(&rows::events(1..=60)).await.unwrap();
    let by = |program: Option<&str>, kind: Option<&str>, range: SeqPage| EventPage {
        program: program.map(Into::into),
        kind: kind.map(Into::into),
        range,
        ..EventPage::default()
    };
    let pages = [
        by(None, None, range(None, None, Order::OldestFirst, 7)),
        by(None, None, range(Some(20), Some(30), Order::NewestFirst, 4)),
        by(
            Some("p-1"),
            None,
            range(None, None, Order::NewestFirst, ALL),
        ),
        by(
            None,
            Some("step-arrived"),
            range(Some(3), None, Order::OldestFirst, ALL),
        ),
        by(
            Some("p-2"),
            Some("step-finished"),
            range(None, Some(40), Order::OldestFirst, 3),
        ),
        by(
            Some("nobody"),
            None,
            range(None, None, Order::OldestFirst, ALL),
        ),
        by(None, None, range(None, None, Order::OldestFirst, 0)),
    ];
    for page in pages {
        let mut expected: Vec<u64> = (1..=60)
            .map(rows::event)
            .filter(|event| page.program.is_none() || event.program == page.program)
            .filter(|event| page.kind.as_ref().is_none_or(|kind| *kind == event.kind))
            .filter(|event| page.range.after.is_none_or(|after| event.seq > after))
            .filter(|event| page.range.before.is_none_or(|before| event.seq < before))
            .map(|event| event.seq)
            .collect();
        if page.range.order == Order::NewestFirst {
            expected.reverse();
        }
        expected.truncate(page.range.limit as usize);
        assert_eq!(seqs(store, page.clone()).await, expected, "{page:?}");
    }
}

/// Numbers of rows around those of the store's bulk inserts.
pub(crate) async fn batches_of_any_length_come_back_whole(store: &dyn Store) {
    let mut last = 0;
    for length in [1, 2, 15, 16, 17, 31, 255, 256, 257, 273, 512, 800] {
        let mut batch = rows::events(last + 1..=last + length);
        for n in 0..length {
            batch
                .programs
                .push(rows::program(&format!("p-{last}-{n}"), n));
        }
        last += length;
        assert_eq!(store.append(&batch).await.unwrap(), last);
        let page = ProgramPage {
            limit: ALL,
            ..ProgramPage::default()
        };
        assert_eq!(store.programs(&page).await.unwrap().len() as u64, last);
    }
    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events, (1..=last).map(rows::event).collect::<Vec<_>>());
}

pub(crate) async fn decisions_come_back_in_order(store: &dyn Store) {
    let mut batch = rows::events(1..=2);
    batch.decisions = vec![
        rows::decision(1, Some("p"), "pause"),
        rows::decision(1, None, "nothing"),
        rows::decision(2, Some("p"), "resume"),
    ];
    store.append(&batch).await.unwrap();
    let rising = range(None, None, Order::OldestFirst, ALL);
    let falling = range(None, None, Order::NewestFirst, ALL);
    assert_eq!(
        store.decisions(&rows::decisions(&rising)).await.unwrap(),
        batch.decisions
    );
    let reversed: Vec<_> = batch.decisions.iter().rev().cloned().collect();
    assert_eq!(
        store.decisions(&rows::decisions(&falling)).await.unwrap(),
        reversed
    );
    let of_one = DecisionPage {
        program: Some("p".into()),
        ..rows::decisions(&rising)
    };
    let of_one = store.decisions(&of_one).await.unwrap();
    assert_eq!(
        of_one,
        [batch.decisions[0].clone(), batch.decisions[2].clone()]
    );
}

pub(crate) async fn the_newest_snapshots_stay(store: &dyn Store) {
    assert!(store.latest_snapshot().await.unwrap().is_none());
    let error = store.save_snapshot(&snapshot(1)).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Ahead {
                seq: 1,
                last_seq: 0
            }
        ),
        "{error}"
    );
    store.append(&rows::events(1..=9)).await.unwrap();
    for seq in [3, 9, 6] {
        store.save_snapshot(&snapshot(seq)).await.unwrap();
    }
    assert_eq!(store.latest_snapshot().await.unwrap(), Some(snapshot(9)));
}

pub(crate) async fn pruning_spares_what_recovery_needs(store: &dyn Store) {
    let mut batch = rows::events(1..=50);
    batch.decisions = (1..=50)
        .map(|seq| rows::decision(seq, None, "pause"))
        .collect();
    store.append(&batch).await.unwrap();
    let keep = |keep_events| Retention {
        keep_events,
        ended_before_us: 0,
        sink_lag_events_max: 0,
    };
    let pruned = store.prune(&keep(0)).await.unwrap();
    assert_eq!(
        pruned.events, 0,
        "nothing can be recovered without the events"
    );

    store.save_snapshot(&snapshot(40)).await.unwrap();
    let pruned = store.prune(&keep(20)).await.unwrap();
    assert_eq!(
        (pruned.events, pruned.decisions, pruned.more),
        (30, 30, false)
    );
    assert_eq!(store.events_after(0, 1).await.unwrap(), [rows::event(31)]);
    let pruned = store.prune(&keep(0)).await.unwrap();
    assert_eq!(pruned.events, 10, "the snapshot's own and older ones");

    store.save_snapshot(&snapshot(50)).await.unwrap();
    assert_eq!(store.prune(&keep(0)).await.unwrap().events, 10);
    assert!(store.events_after(0, ALL).await.unwrap().is_empty());
    assert_eq!(
        store.last_seq().await.unwrap(),
        50,
        "numbers are not reused"
    );
    assert_eq!(store.append(&rows::events(51..=51)).await.unwrap(), 51);
}

pub(crate) async fn the_journal_is_bounded_in_bytes(store: &dyn Store) {
    let mut batch = rows::events(1..=2_010);
    for seq in [500, 900] {
        batch.events[seq - 1].body = "x".repeat(20 << 20);
    }
    let mut large = rows::decision(2_008, None, "pause");
    large.why = "x".repeat(70_000);
    batch.decisions.push(large);
    store.append(&batch).await.unwrap();
    store.save_snapshot(&snapshot(2_010)).await.unwrap();
    let keep = |keep_events| Retention {
        keep_events,
        ended_before_us: 0,
        sink_lag_events_max: 0,
    };
    let first = async || store.events_after(0, 1).await.unwrap()[0].seq;
    store.prune(&keep(3_000)).await.unwrap();
    assert_eq!(first().await, 1, "3,000 events may have 48 MB");
    store.prune(&keep(2_009)).await.unwrap();
    assert_eq!(first().await, 501, "one of 20 MB fits into 32 MB");
    store.prune(&keep(4)).await.unwrap();
    assert_eq!(first().await, 2_009, "64 KiB, decisions included");
    store.prune(&keep(4)).await.unwrap();
    assert_eq!(first().await, 2_009);
}

pub(crate) async fn bounds_are_errors(store: &dyn Store) {
    let batch = Batch {
        workers: vec![rows::worker("w"); BATCH_ROWS_MAX + 1],
        ..Batch::default()
    };
    let error = store.append(&batch).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");

    let mut plugin = rows::plugin("sha256:a", 1);
    plugin.component = vec![0; COMPONENT_BYTES_MAX + 1];
    let error = store.put_plugin(&plugin).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");

    let mut batch = rows::events(1..=1);
    batch.events[0].at_us = u64::MAX;
    let error = store.append(&batch).await.unwrap_err();
    assert!(error.to_string().starts_with("events.at_us is"), "{error}");
    assert_eq!(store.last_seq().await.unwrap(), 0);
}

/// The second writer gets a gap and retries; nothing is written twice or lost.
pub(crate) async fn appends_from_many_tasks_are_serial(store: &dyn Store) {
    let task = async || {
        let mut done = 0;
        while done < 10 {
            let next = store.last_seq().await.unwrap() + 1;
            match store.append(&rows::events(next..=next)).await {
                Ok(seq) => {
                    assert_eq!(seq, next);
                    done += 1;
                }
                Err(StoreError::Gap { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::join!(task(), task(), task(), task());
    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events, (1..=40).map(rows::event).collect::<Vec<_>>());
}
