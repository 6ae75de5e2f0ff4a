//! Tests of sinks, commands, gateways and bodies. Each check starts with an empty store.

use treadle_store::{
    BODY_BYTES_MAX, BodyRow, CommandRow, Names, Retention, SINKS_MAX, SinkRow, Store, StoreError,
    TrainingPayload,
};

use super::rows::{self, snapshot};

pub(crate) async fn sinks_move_on_and_never_back(store: &dyn Store) {
    assert_eq!(store.sink_cursor("amqp").await.unwrap(), 0);
    let error = store.advance_sink("amqp", 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Ahead { .. }), "{error}");
    store.append(&rows::events(1..=9)).await.unwrap();
    for (seq, expected) in [(3, 3), (7, 7), (5, 7), (7, 7), (9, 9)] {
        store.advance_sink("amqp", seq).await.unwrap();
        assert_eq!(store.sink_cursor("amqp").await.unwrap(), expected);
    }
    store.advance_sink("a-file", 0).await.unwrap();
    let sink = |sink: &str, seq| SinkRow {
        sink: sink.into(),
        seq,
    };
    let all = [sink("a-file", 0), sink("amqp", 9)];
    assert_eq!(store.sinks().await.unwrap(), all);
    assert!(store.drop_sink("amqp").await.unwrap());
    assert!(!store.drop_sink("amqp").await.unwrap());
    assert_eq!(store.sink_cursor("amqp").await.unwrap(), 0);

    for n in 1..SINKS_MAX {
        store.advance_sink(&format!("s{n}"), 1).await.unwrap();
    }
    let error = store.advance_sink("one more", 1).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    store.advance_sink("s1", 2).await.unwrap();
}

pub(crate) async fn events_stay_for_sinks_within_a_bound(store: &dyn Store) {
    store.append(&rows::events(1..=50)).await.unwrap();
    store.save_snapshot(&snapshot(50)).await.unwrap();
    store.advance_sink("fast", 45).await.unwrap();
    store.advance_sink("slow", 10).await.unwrap();
    let keep = |keep_events, sink_lag_events_max| Retention {
        keep_events,
        ended_before_us: 0,
        sink_lag_events_max,
    };
    for (keep, gone) in [
        (keep(45, 100), 5),
        (keep(20, 100), 5),
        (keep(20, 35), 5),
        (keep(0, 4), 31),
    ] {
        assert_eq!(store.prune(&keep).await.unwrap().events, gone, "{keep:?}");
    }
    store.drop_sink("slow").await.unwrap();
    store.advance_sink("fast", 50).await.unwrap();
    assert_eq!(store.prune(&keep(0, 100)).await.unwrap().events, 4);
}

pub(crate) async fn a_command_is_new_once(store: &dyn Store) {
    let command = |id: &str, at_us| CommandRow {
        command: id.into(),
        kind: "job.pause".into(),
        at_us,
        outcome: String::new(),
    };
    assert!(store.note_command(&command("a", 5)).await.unwrap());
    assert!(store.note_command(&command("b", 6)).await.unwrap());
    assert!(!store.note_command(&command("a", 7)).await.unwrap());
    assert!(!store.note_command(&command("a", 5)).await.unwrap());
    assert_eq!(store.command("a").await.unwrap(), Some(command("a", 5)));
    assert!(store.settle_command("a", "done").await.unwrap());
    assert!(!store.settle_command("c", "done").await.unwrap());
    let done = CommandRow {
        outcome: "done".into(),
        ..command("a", 5)
    };
    assert_eq!(store.command("a").await.unwrap(), Some(done));
    assert_eq!(store.prune_commands(6).await.unwrap(), 1);
    assert!(store.command("a").await.unwrap().is_none());
    assert!(store.command("b").await.unwrap().is_some());
    let late = store.note_command(&command("c", u64::MAX)).await;
    assert!(late.unwrap_err().to_string().starts_with("commands.at_us"));
}

pub(crate) async fn a_gateway_keeps_its_number(store: &dyn Store) {
    let first = store.gateway_id("gw-a").await.unwrap();
    let second = store.gateway_id("gw-b").await.unwrap();
    assert!(first >= 1 && second >= 1 && first != second);
    assert_eq!(store.gateway_id("gw-a").await.unwrap(), first);
    assert_eq!(store.gateway_id("gw-b").await.unwrap(), second);
    let (one, two) = tokio::join!(store.gateway_id("gw-c"), store.gateway_id("gw-c"));
    assert_eq!(one.unwrap(), two.unwrap());
}

pub(crate) async fn a_key_stays_what_it_was_first(store: &dyn Store) {
    for (name, first) in [("a", u64::MAX), ("b", 0)] {
        assert_eq!(store.key(name, first).await.unwrap(), first);
        assert_eq!(store.key(name, 7).await.unwrap(), first);
    }
}

pub(crate) async fn bodies_come_back_as_they_were(store: &dyn Store) {
    let body = |kind: &str, at_us: u64, body: Vec<u8>| BodyRow {
        program: "tenant\u{1f}p/../q".into(),
        step: 3,
        kind: kind.into(),
        at_us,
        body,
    };
    let bodies = [
        body("output", 5, b"{\"text\":\"abc\"}".repeat(10_000)),
        body("prompt", 6, Vec::new()),
    ];
    store.put_bodies(&bodies).await.unwrap();
    let program = &bodies[0].program;
    assert_eq!(store.bodies(program, 3).await.unwrap(), bodies);
    assert!(store.bodies(program, 4).await.unwrap().is_empty());
    let other = body("output", 8, vec![1, 2, 3]);
    store
        .put_bodies(std::slice::from_ref(&other))
        .await
        .unwrap();
    assert_eq!(
        store.bodies(program, 3).await.unwrap(),
        [other.clone(), bodies[1].clone()]
    );
    assert_eq!(store.prune_bodies(6).await.unwrap(), 0);
    assert_eq!(store.prune_bodies(7).await.unwrap(), 1);
    assert_eq!(store.bodies(program, 3).await.unwrap(), [other]);
    let huge = body("prompt", 9, vec![0; BODY_BYTES_MAX + 1]);
    let refused = store.put_bodies(&[huge]).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused}");
}

pub(crate) async fn payloads_of_training_stay_until_they_are_removed(store: &dyn Store) {
    let payload = |job: &str, number: u64| TrainingPayload {
        job: job.into(),
        name: format!("group/{number:04}"),
        at_us: number,
        size_bytes: 3,
        body: vec![0, 255, number as u8],
    };
    let all: Vec<TrainingPayload> = (0..1_200).map(|number| payload("math", number)).collect();
    store.put_payloads(&all).await.unwrap();
    store.put_payloads(&[payload("code", 1)]).await.unwrap();
    let names: Vec<String> = all.iter().map(|row| row.name.clone()).collect();
    let mut asked = names.clone();
    asked.push("group/none".into());
    assert_eq!(store.payloads("math", &asked).await.unwrap(), all);
    let sizes = store.payload_sizes("math", &asked).await.unwrap();
    let expected: Vec<(String, u64)> = names.iter().map(|name| (name.clone(), 3)).collect();
    assert_eq!(sizes, expected, "of those that are stored");
    let listed = store.payload_names("math", 5, &names[1]).await.unwrap();
    assert_eq!(listed, names[2..5], "older, and after that name");
    let bytes = |names: Names| async move { store.payload_bytes(&names).await.unwrap() };
    assert_eq!(bytes(Names::Any).await, 3 * 1_201);
    assert_eq!(bytes(Names::With("code".into())).await, 3);
    let removed = |before_us| store.remove_payloads("math", &asked, before_us);
    assert_eq!(removed(2).await.unwrap(), 2, "older ones only");
    assert_eq!(removed(u64::MAX).await.unwrap(), 1_198);
    assert_eq!(store.payloads("math", &names).await.unwrap(), []);
    assert_eq!(bytes(Names::Any).await, 3, "the other job's");
}

/// Bytes that are not copied out of their rows outlive the statement, the rows, and for stores that
/// are opened for each call also the connection.
pub(crate) async fn bytes_of_payloads_stay_as_they_were_read(store: &dyn Store) {
    let payload = |length: usize, add: usize| TrainingPayload {
        job: "math".into(),
        name: format!("sample/{length:07}"),
        at_us: 1,
        size_bytes: length as u64,
        body: (0..length).map(|n| (n * 7 + add) as u8).collect(),
    };
    let lengths = [3, (16 << 10) - 1, 16 << 10, 3 << 20];
    let all = lengths.map(|length| payload(length, 0));
    store.put_payloads(&all).await.unwrap();
    let mut asked: Vec<String> = all.iter().rev().map(|row| row.name.clone()).collect();
    asked.push("sample/none".into());
    let found = store.payload_bodies("math", &asked).await.unwrap();
    let replaced = lengths.map(|length| payload(length, 1));
    store.put_payloads(&replaced).await.unwrap();
    let again = store.payload_bodies("math", &asked).await.unwrap();
    for (found, expected) in [(found, all), (again, replaced)] {
        assert_eq!(found.len(), expected.len(), "those that are stored");
        for ((name, body), expected) in found.iter().zip(&expected) {
            assert_eq!(*name, expected.name, "by name");
            assert!(*body == expected.body, "{name}");
        }
    }
    let of_others = store.payload_bodies("code", &asked).await.unwrap();
    assert!(of_others.is_empty());
}

/// Texts of all kinds are stored unchanged, and sort and compare by their bytes.
pub(crate) async fn text_is_kept_as_it_is(store: &dyn Store) {
    let names = ["B", "a", "\u{1f}t\u{1f}p", "nul\0nul", "é", "\u{10ffff}"];
    let mut batch = rows::events(1..=1);
    batch.events[0].program = Some("nul\0nul".into());
    batch.programs = names.map(|name| rows::program(name, 1)).to_vec();
    store.append(&batch).await.unwrap();
    let events = store.events_after(0, 9).await.unwrap();
    assert_eq!(events, batch.events);
    let page = treadle_store::ProgramPage {
        limit: rows::ALL,
        ..Default::default()
    };
    let found = store.programs(&page).await.unwrap();
    let found: Vec<&str> = found.iter().map(|row| row.program.as_str()).collect();
    assert_eq!(found.len(), names.len());
    for name in names {
        let row = store.program(name).await.unwrap();
        assert_eq!(row, Some(rows::program(name, 1)), "{name:?}");
    }
    let plain: Vec<&&str> = found.iter().filter(|name| !name.contains('\0')).collect();
    assert!(plain.is_sorted_by(|a, b| a > b), "{plain:?}");
}
