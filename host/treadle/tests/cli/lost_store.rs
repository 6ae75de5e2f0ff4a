//! A daemon whose store fails or disappears while it runs.

use std::path::Path;

use serde_json::Value;
use sqlx::Connection;

use crate::cluster::{Cluster, Served, failure, step, treadle, until};

/// Runs a statement behind the daemon's back.
async fn behind(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let connection = sqlx::SqliteConnection::connect_with(&options).await;
    let mut connection = connection.expect("it opens");
    let done = sqlx::raw_sql(sql).execute(&mut connection).await;
    done.expect("it is done");
    connection.close().await.expect("it closes");
}

/// The daemon's health, as reported.
async fn health(url: &str) -> (bool, Value) {
    let output = treadle(url, "status --json").await;
    let health = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.success(), health)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cant_be_written_is_told_until_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("treadle.db");
    let cluster = Cluster::start(path.to_str().expect("UTF-8")).await;
    let url = cluster.daemon.url();
    step(&url, "before").await;
    let (is_well, told) = health(&url).await;
    assert!(is_well, "{told:#}");
    assert_eq!(told["store"]["failing"], serde_json::json!([]));

    behind(&path, "ALTER TABLE journal_head RENAME TO hidden").await;
    let waits = url.clone();
    let under_way = tokio::spawn(async move { step(&waits, "meanwhile").await });
    let told = until(|| async {
        let (is_well, told) = health(&url).await;
        (!is_well).then_some(told)
    })
    .await;
    assert_eq!(told["status"], "store_failing", "{told:#}");
    let failing = told["store"]["failing"].as_array().expect("a list");
    let journal = failing.iter().find(|failing| failing["what"] == "journal");
    let error = journal.expect("it is told")["error"].as_str();
    assert!(
        error.is_some_and(|error| error.contains("journal_head")),
        "{told:#}"
    );
    let (code, text) = failure(&url, "status").await;
    assert_eq!(code, Some(1));
    assert!(text.contains("the journal can't be written"), "{text}");
    let (_, text) = failure(&url, "training").await;
    assert!(text.contains("journal could not be written"), "{text}");
    let metrics = cluster.daemon.app.store.condition();
    assert!(
        metrics
            .failures
            .iter()
            .any(|(what, count)| *what == "journal" && *count > 0)
    );
    assert!(
        !under_way.is_finished(),
        "nothing is acknowledged meanwhile"
    );

    behind(&path, "ALTER TABLE hidden RENAME TO journal_head").await;
    under_way.await.expect("it is acknowledged");
    until(|| async { health(&url).await.0.then_some(()) }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_whose_store_is_gone_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    for role in [
        "",
        " --set cluster.role=all --set cluster.secret=0123456789abcdef0123456789abcdef",
    ] {
        let line = format!("serve --listen 127.0.0.1:0 --set store.path=s/a.db{role}");
        let mut served = Served::start(&line, folder.path());
        served.line().await;
        let path = folder.path().join("s/a.db");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(served.ended().await, Some(3), "{role}");
        assert!(!path.exists(), "it is not made again");
        std::fs::remove_dir_all(folder.path().join("s")).expect("it is there");
    }
}
