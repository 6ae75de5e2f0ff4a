//! A backup that is taken while the daemon works, restored elsewhere: the same journal, the same
//! state, and a daemon that continues from it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use treadle_tests::support::client::Client;
use treadle_tests::support::command_line::{said, treadle};
use treadle_tests::support::fixture::{engine, release_all, settled};
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::services::{
    Psql, Schema, are_skipped, fresh_name, postgres_program, postgres_url,
};

use super::work;

/// Settings of `treadle`, as its arguments.
fn sets(settings: &[String]) -> Vec<&str> {
    settings
        .iter()
        .flat_map(|setting| ["--set", setting])
        .collect()
}

/// The result of a replay of a store.
fn replay(settings: &[String], until: Option<u64>) -> Value {
    let until = until.map(|seq| seq.to_string());
    let mut arguments = vec!["events", "replay", "--json", "--from-start"];
    arguments.extend(until.iter().flat_map(|until| ["--until", until.as_str()]));
    arguments.extend(sets(settings));
    treadle(&arguments).ok()
}

async fn steps(client: &Client, program: &str) -> usize {
    let page = client
        .get(&format!("/api/v1/programs/{program}/steps"))
        .await
        .ok();
    page["steps"].as_array().expect("a list").len()
}

/// Works, backs up, works on; restores, and compares.
async fn comes_back(
    original: &[String],
    restored: &[String],
    back_up: impl FnOnce(),
    restore: impl FnOnce(),
) {
    let engine = engine(100_000).await;
    let url = engine.url();
    let serve = |settings: &[String]| {
        let mut arguments = vec!["--engine".to_owned(), url.clone()];
        arguments.extend(sets(settings).into_iter().map(str::to_owned));
        arguments
    };
    let arguments = serve(original);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let daemon = DaemonProcess::serve(&arguments).await;
    work(&daemon.client, 0).await;
    let at_backup = daemon.client.get("/api/v1/programs/p0").await.ok();
    back_up();
    work(&daemon.client, 10).await;
    assert!(daemon.terminate(), "it ended badly");

    restore();
    let found = replay(restored, None);
    let last = found["until_seq"].as_u64().expect("a number");
    assert!(last > 20, "{found}");
    let expected = replay(original, Some(last));
    assert_eq!(
        found["checksum"], expected["checksum"],
        "{found} {expected}"
    );
    assert!(replay(original, None)["until_seq"].as_u64() > Some(last));

    let arguments = serve(restored);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let daemon = DaemonProcess::serve(&arguments).await;
    let client = &daemon.client;
    assert_eq!(client.get("/api/v1/programs/p0").await.ok(), at_backup);
    assert_eq!(at_backup["ended"], "released");
    assert_eq!(steps(client, "p1").await, 5);
    client
        .get("/api/v1/programs/p11")
        .await
        .refused(404, "program_unknown");
    work(client, 20).await;
    settled(client).await;
    release_all(client).await;
    assert!(daemon.terminate(), "it ended badly");
    engine.shutdown().await;
}

fn run(mut command: Command) {
    said(&mut command);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_postgres_comes_back() {
    if are_skipped() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let dump = folder.path().join("treadle.dump");
    let schema = Schema::fresh("backup");
    // Restored into a separate database.
    let database = fresh_name("restored");
    let (server, _) = schema.url.rsplit_once('/').expect("a database in the URL");
    let elsewhere = format!("{server}/{database}");
    let store = |url: &str| {
        vec![
            format!("store.url={url}"),
            format!("store.schema={}", schema.name),
            format!("store.path={}", folder.path().join("unused.db").display()),
        ]
    };
    let back_up = || {
        let mut dumping = Command::new(postgres_program("pg_dump"));
        dumping
            .args(["--format=custom", &format!("--schema={}", schema.name)])
            .arg(format!("--file={}", dump.display()))
            .arg(&schema.url);
        run(dumping);
    };
    let restore = || {
        let make = format!("CREATE DATABASE {database}");
        Psql::new(postgres_url()).run(&make).expect("a database");
        let mut restoring = Command::new(postgres_program("pg_restore"));
        restoring
            .args(["--exit-on-error", &format!("--dbname={elsewhere}")])
            .arg(&dump);
        run(restoring);
    };
    comes_back(&store(&schema.url), &store(&elsewhere), back_up, restore).await;
    let drop = format!("DROP DATABASE {database} WITH (FORCE)");
    Psql::new(postgres_url()).run(&drop).expect("it goes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_sqlite_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (here, copy) = (
        folder.path().join("treadle.db"),
        folder.path().join("copy/treadle.db"),
    );
    std::fs::create_dir(folder.path().join("copy")).expect("a folder");
    let store = |path: &Path| vec![format!("store.path={}", path.display())];
    let back_up = || {
        // Same as `sqlite3 FILE "VACUUM INTO 'COPY'"`, without sqlite3.
        let script = "import sqlite3, sys; \
                      sqlite3.connect(sys.argv[1]).execute('VACUUM INTO ?', (sys.argv[2],))";
        let mut copying = Command::new("python3");
        copying.args(["-c", script]).args([&here, &copy]);
        run(copying);
    };
    comes_back(&store(&here), &store(&copy), back_up, || ()).await;
}
