//! Acknowledged data survives the death of the process, and damage is reported.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::Connection;
use treadle_store::{
    Candidate, Location, Order, PostgresLocation, StepPage, Store, StoreError, open,
};

use super::backends::{file, schema};
use super::leadership::TIMEOUT;
use super::rows::{self, ALL};

const PATH: &str = "STORE_UNDER_TEST";

fn at(path: &Path) -> Location {
    Location::File(path.to_owned())
}

/// The store that a child writes: a path, or a URL and a schema.
fn child_store() -> Location {
    let place = std::env::var(PATH).expect("the parent names the store");
    match place.split_once('#') {
        Some((url, schema)) => Location::Postgres(PostgresLocation {
            schema: schema.into(),
            ..PostgresLocation::new(url)
        }),
        None => Location::File(place.into()),
    }
}

fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").unwrap();
    out.flush().unwrap();
}

/// The process that tests kill and stop; it leads, and appends three events and a decision at a
/// time until then.
#[tokio::test]
#[ignore = "runs as the child of another test"]
async fn child_appends_and_reports() {
    let store = open(&child_store()).await.unwrap();
    let me = Candidate {
        name: "child".into(),
        url: String::new(),
    };
    while store.campaign(&me).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut last = store.last_seq().await.unwrap();
    for _ in 0..100_000 {
        let mut batch = rows::events(last + 1..=last + 3);
        batch
            .decisions
            .push(rows::decision(last + 1, None, "pause"));
        match store.append(&batch).await {
            Ok(seq) => last = seq,
            Err(StoreError::Fenced { .. }) => return print_line("fenced"),
            // The database is unavailable: the same batch is retried.
            Err(error) if error.passes() => continue,
            Err(error) => return print_line(&format!("failed {error}")),
        }
        print_line(&format!("acknowledged {last}"));
    }
}

/// A child and its output.
struct Life {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Life {
    fn begin(at: &Location) -> Self {
        let place = match at {
            Location::Postgres(at) => format!("{}#{}", at.url, at.schema),
            Location::File(path) => path.display().to_string(),
            Location::Memory => panic!("no other handle sees a store in memory"),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "durability::child_appends_and_reports",
                "--nocapture",
            ])
            .env(PATH, place)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads until this event is acknowledged.
    fn until(&mut self, seq: u64) -> u64 {
        for line in &mut self.lines {
            let line = line.unwrap();
            // The test harness may print the test's name on the same line.
            if let Some((_, acknowledged)) = line.split_once("acknowledged ") {
                let acknowledged = acknowledged.parse().unwrap();
                if acknowledged >= seq {
                    return acknowledged;
                }
            }
        }
        panic!("the child ended before event {seq}");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn is_whole(store: &dyn Store, acknowledged: u64) -> u64 {
    let last = store.last_seq().await.unwrap();
    assert!(last >= acknowledged, "{last} of {acknowledged}");
    assert_eq!(last % 3, 0, "a batch is whole or absent");
    let events = store.events_after(0, ALL).await.unwrap();
    let whole: Vec<_> = (1..=last).map(rows::event).collect();
    assert_eq!(events[..], whole[..events.len()]);
    let all = rows::range(None, None, Order::OldestFirst, ALL);
    let decisions = store.decisions(&rows::decisions(&all)).await.unwrap();
    assert_eq!(decisions.len() as u64, (last / 3).min(ALL.into()));
    last
}

async fn survives_kills(at: &Location) {
    let mut before = 0;
    for life in 1..=3 {
        let mut child = Life::begin(at);
        let acknowledged = child.until(before + 30 * life);
        drop(child);
        let store = open(at).await.unwrap();
        before = is_whole(&*store, acknowledged).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing() {
    survives_kills(&file().at).await;
    if let Some(scratch) = schema() {
        survives_kills(&scratch.at).await;
    }
}

/// Stopped, not killed: its connections remain, and its later writes are refused.
#[tokio::test]
async fn a_frozen_leader_is_overthrown_and_fenced() {
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    let mut child = Life::begin(&scratch.at);
    let acknowledged = child.until(30);
    let standby = Candidate {
        name: "standby".into(),
        url: String::new(),
    };
    assert_eq!(store.campaign(&standby).await.unwrap(), None);
    child.signal("-STOP");
    let stopped = Instant::now();
    let epoch = loop {
        if let Some(epoch) = store.campaign(&standby).await.unwrap() {
            break epoch;
        }
        assert!(stopped.elapsed() < TIMEOUT, "no other takes over");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(epoch, 2);
    let last = store.last_seq().await.unwrap();
    assert!(last >= acknowledged);
    let mut batch = rows::events(last + 1..=last + 3);
    batch
        .decisions
        .push(rows::decision(last + 1, None, "pause"));
    store.append(&batch).await.unwrap();
    child.signal("-CONT");
    let said: Vec<String> = (&mut child.lines).map(Result::unwrap).collect();
    assert!(said.iter().any(|line| line.contains("fenced")), "{said:?}");
    assert_eq!(is_whole(&*store, last + 3).await, last + 3);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_store_that_is_dropped_without_close_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("treadle.db");
    for life in 0..5_u64 {
        let store = open(&at(&path)).await.unwrap();
        assert_eq!(store.last_seq().await.unwrap(), life * 10);
        store
            .append(&rows::events(life * 10 + 1..=life * 10 + 10))
            .await
            .unwrap();
        drop(store);
    }
    let store = open(&at(&path)).await.unwrap();
    assert_eq!(store.events_after(0, 100).await.unwrap().len(), 50);
}

/// Runs a statement outside of the store.
async fn damage(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let done = sqlx::query(sql).execute(&mut connection).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "{sql}");
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_corrupt_row_is_named_by_table_column_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("treadle.db");
    let store = open(&at(&path)).await.unwrap();
    let mut batch = rows::events(1..=3);
    batch.programs.push(rows::program("p", 1));
    batch.steps.push(rows::step("p", 4));
    batch.decisions.push(rows::decision(1, None, "pause"));
    store.append(&batch).await.unwrap();
    damage(&path, "UPDATE events SET at_us = -5 WHERE seq = 2").await;
    damage(&path, "UPDATE steps SET cached_tokens = -1").await;
    damage(&path, "UPDATE decisions SET why = CAST(x'ff' AS TEXT)").await;

    let named = |error: StoreError| match error {
        StoreError::Corrupt {
            table, column, row, ..
        } => (table, column, row),
        other => panic!("{other}"),
    };
    let error = store.events_after(0, 10).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("events.at_us of row 2 is corrupt: -5 is negative")
    );
    assert_eq!(named(error), ("events", "at_us", "2".into()));
    let steps = StepPage {
        after: None,
        limit: 9,
    };
    let error = store.steps("p", &steps).await.unwrap_err();
    assert_eq!(named(error), ("steps", "cached_tokens", "p 4".into()));
    let all = rows::range(None, None, Order::OldestFirst, ALL);
    let error = store.decisions(&rows::decisions(&all)).await.unwrap_err();
    assert_eq!(named(error), ("decisions", "why", "1".into()));
}

#[tokio::test]
async fn a_schema_of_another_build_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("treadle.db");
    drop(open(&at(&path)).await.unwrap());
    damage(
        &path,
        "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1",
    )
    .await;
    let error = open(&at(&path)).await.err().unwrap();
    assert!(matches!(error, StoreError::Schema { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("treadle.db");
    std::fs::write(
        &path,
        "not a database, but long enough to look at".repeat(50),
    )
    .unwrap();
    let error = open(&at(&path)).await.err().unwrap();
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    let error = open(&at(&path.join("below/a/file"))).await.err().unwrap();
    assert!(matches!(error, StoreError::Folder { .. }), "{error}");
}
