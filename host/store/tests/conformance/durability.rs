//! What was acknowledged is there after the process died, and what is damaged is named.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use sqlx::Connection;
use treadle_store::{Location, Order, StepPage, StoreError, open};

use super::rows::{self, ALL};

const PATH: &str = "STORE_UNDER_TEST";

fn at(path: &Path) -> Location {
    Location::File(path.to_owned())
}

/// The process that `a_killed_process_loses_nothing` kills; it runs until then.
#[tokio::test]
#[ignore = "runs as the child of another test"]
async fn child_appends_and_reports() {
    let path = std::env::var_os(PATH).expect("the parent names the file");
    let store = open(&at(Path::new(&path))).await.unwrap();
    let mut last = store.last_seq().await.unwrap();
    for _ in 0..100_000 {
        last = store
            .append(&rows::events(last + 1..=last + 3))
            .await
            .unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {last}").unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("treadle.db");
    let mut before = 0;
    for life in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "durability::child_appends_and_reports",
                "--nocapture",
            ])
            .env(PATH, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = 0;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The test harness may print the test's name on the same line.
        for line in lines {
            let line = line.unwrap();
            if let Some((_, seq)) = line.split_once("acknowledged ") {
                acknowledged = seq.parse().unwrap();
            }
            if acknowledged >= before + 30 * life {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = open(&at(&path)).await.unwrap();
        let last = store.last_seq().await.unwrap();
        assert!(
            acknowledged > before && last >= acknowledged,
            "{last} of {acknowledged}"
        );
        assert_eq!(last % 3, 0, "a batch is whole or absent");
        let events = store.events_after(0, ALL).await.unwrap();
        assert_eq!(events, (1..=last).map(rows::event).collect::<Vec<_>>());
        before = last;
    }
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

/// Runs a statement behind the store's back.
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
    let error = store.decisions(None, &all).await.unwrap_err();
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
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
    let error = open(&at(&path.join("below/a/file"))).await.err().unwrap();
    assert!(matches!(error, StoreError::Folder { .. }), "{error}");
}
