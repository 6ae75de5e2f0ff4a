//! `treadle store migrate` lists and applies pending migrations, and refuses unrepairable schemas.

use serde_json::Value;
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::services::{Schema, are_skipped};

/// Settings that name a schema and turn off automatic migration.
fn settings(schema: &Schema, folder: &tempfile::TempDir) -> Vec<String> {
    let path = folder.path().join("unused.db");
    [
        format!("store.url={}", schema.url),
        format!("store.schema={}", schema.name),
        format!("store.path={}", path.display()),
        "store.migrate=false".to_owned(),
    ]
    .into_iter()
    .flat_map(|setting| ["--set".to_owned(), setting])
    .collect()
}

fn with<'a>(words: &[&'a str], settings: &'a [String]) -> Vec<&'a str> {
    words
        .iter()
        .copied()
        .chain(settings.iter().map(String::as_str))
        .collect()
}

fn schemas(schema: &Schema) -> Vec<Vec<String>> {
    let select = format!(
        "SELECT 1 FROM pg_namespace WHERE nspname = '{}'",
        schema.name
    );
    schema.psql().rows(&select).expect("rows")
}

fn length(value: &Value) -> usize {
    value.as_array().expect("a list").len()
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_migrations_are_listed_applied_once_and_required_by_the_daemon() {
    if are_skipped() {
        return;
    }
    let (schema, folder) = (
        Schema::fresh("migrate"),
        tempfile::tempdir().expect("a folder"),
    );
    let settings = settings(&schema, &folder);
    let refused = treadle(&with(&["serve", "--listen", "127.0.0.1:0"], &settings)).refused();
    assert!(refused.contains("treadle store migrate"), "{refused}");
    let dry = treadle(&with(
        &["store", "migrate", "--dry-run", "--json"],
        &settings,
    ))
    .ok();
    let pending = length(&dry["stores"][0]["pending"]);
    assert!(pending >= 7, "{dry}");
    assert!(schemas(&schema).is_empty(), "a dry run has made the schema");

    let first = treadle(&with(&["store", "migrate", "--json"], &settings)).ok();
    assert_eq!(
        length(&first["stores"][0]["applied_now"]),
        pending,
        "{first}"
    );
    let second = treadle(&with(&["store", "migrate", "--json"], &settings)).ok();
    assert_eq!(length(&second["stores"][0]["applied_now"]), 0, "{second}");
    assert_eq!(length(&second["stores"][0]["applied"]), pending);
    let arguments: Vec<&str> = settings.iter().map(String::as_str).collect();
    let daemon = DaemonProcess::serve(&arguments).await;
    daemon.client.get("/health").await.ok();
    assert!(daemon.terminate());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_done_migration_is_named_with_its_remedy_everywhere() {
    if are_skipped() {
        return;
    }
    let (schema, folder) = (
        Schema::fresh("half"),
        tempfile::tempdir().expect("a folder"),
    );
    let settings = settings(&schema, &folder);
    treadle(&with(&["store", "migrate", "--json"], &settings)).ok();
    let spoil = format!(
        "UPDATE {0}._sqlx_migrations SET success = false \
         WHERE version = (SELECT max(version) FROM {0}._sqlx_migrations)",
        schema.name
    );
    schema.psql().run(&spoil).expect("a half done migration");
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for command in [
        &["store", "migrate"][..],
        &serve,
        &["doctor", "--json", "--url", "http://127.0.0.1:9"],
    ] {
        let output = treadle(&with(command, &settings));
        let told = output.all();
        output.refused();
        assert!(told.contains("restore the backup"), "{command:?}: {told}");
        assert!(told.contains("not completed"), "{command:?}: {told}");
    }
    // It is untouched.
    let mend = format!("UPDATE {}._sqlx_migrations SET success = true", schema.name);
    schema.psql().run(&mend).expect("it is mended");
    let arguments: Vec<&str> = settings.iter().map(String::as_str).collect();
    let daemon = DaemonProcess::serve(&arguments).await;
    assert!(daemon.terminate());
}
