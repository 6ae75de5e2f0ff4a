//! PostgreSQL's errors are reported with their remedies, and lose no acknowledged data.

use std::time::Instant;

use treadle_store::{
    Finding, Grade, Location, Options, PostgresLocation, Retention, StoreError, examine, migrate,
    open, open_with, schema_status,
};

use super::backends::{Scratch, behind, file, schema};
use super::leadership::TIMEOUT;
use super::rows::{self, ALL, snapshot};

/// Number of new files opened by many at once.
const NEW_FILES: usize = 5;
/// Number of openers of each.
const OPENERS: usize = 4;

async fn refused(at: &PostgresLocation) -> String {
    let opened = open(&Location::Postgres(at.clone())).await;
    opened.err().expect("it is refused").to_string()
}

/// The URL with another part between `//` and `?`.
fn changed(url: &str, user: Option<&str>, database: Option<&str>) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    let authority = user.map_or(authority.to_owned(), |user| format!("{user}@{host}"));
    format!("{scheme}://{authority}/{}", database.unwrap_or(path))
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let at = PostgresLocation::new(format!("postgres://u:secret@127.0.0.1:{port}/d"));
    let said = refused(&at).await;
    assert!(said.contains("start PostgreSQL"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let findings = examine(&Location::Postgres(at)).await;
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].grade, Grade::Fail);
    assert!(findings[0].remedy.contains("start PostgreSQL"));
}

#[tokio::test]
async fn a_database_that_is_not_there() {
    let Some(scratch) = schema() else { return };
    let mut at = scratch.postgres().clone();
    at.url = changed(&at.url, None, Some("no_such_database"));
    let said = refused(&at).await;
    assert!(said.contains("createdb"), "{said}");
}

/// A user with few rights, removed afterwards.
struct User<'a> {
    scratch: &'a Scratch,
    name: String,
}

impl<'a> User<'a> {
    fn new(scratch: &'a Scratch, limits: &str) -> Self {
        let name = scratch.postgres().schema.replace("conformance", "user");
        let create = format!("CREATE ROLE {name} LOGIN PASSWORD 'x' {limits}");
        behind(&scratch.postgres().url, create);
        Self { scratch, name }
    }

    fn location(&self) -> PostgresLocation {
        let at = self.scratch.postgres();
        PostgresLocation {
            url: changed(&at.url, Some(&format!("{}:x", self.name)), None),
            ..at.clone()
        }
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let url = &self.scratch.postgres().url;
        let drop = format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name);
        behind(url, drop);
    }
}

#[tokio::test]
async fn a_user_that_may_not_create_the_schema() {
    let Some(scratch) = schema() else { return };
    let user = User::new(&scratch, "");
    let said = refused(&user.location()).await;
    assert!(said.contains("GRANT CREATE ON DATABASE"), "{said}");
    let findings = examine(&Location::Postgres(user.location())).await;
    let finding = graded(&findings, "permissions", Grade::Fail);
    assert!(finding.remedy.contains("GRANT CREATE ON DATABASE"));
}

#[tokio::test]
async fn a_user_that_may_have_no_more_connections() {
    let Some(scratch) = schema() else { return };
    let user = User::new(&scratch, "CONNECTION LIMIT 0");
    let said = refused(&user.location()).await;
    assert!(said.contains("max_connections"), "{said}");
}

#[tokio::test]
async fn a_server_that_only_reads() {
    let Some(scratch) = schema() else { return };
    let mut at = scratch.postgres().clone();
    at.url += if at.url.contains('?') { "&" } else { "?" };
    at.url += "options=-c%20default_transaction_read_only=on";
    let said = refused(&at).await;
    assert!(said.contains("point `store.url` to the primary"), "{said}");
    let findings = examine(&Location::Postgres(at)).await;
    graded(&findings, "writable", Grade::Fail);
}

fn graded<'a>(findings: &'a [Finding], check: &str, grade: Grade) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.check == check);
    let found = found.unwrap_or_else(|| panic!("no {check} in {findings:#?}"));
    assert_eq!(found.grade, grade, "{found:?}");
    found
}

fn change(scratch: &Scratch, sql: &str) {
    let at = scratch.postgres();
    behind(&at.url, sql.replace("IN_SCHEMA", &at.schema));
}

#[tokio::test]
async fn a_schema_that_is_half_done_or_newer() {
    let Some(scratch) = schema() else { return };
    scratch.open().await.close().await.unwrap();
    let findings = examine(&scratch.at).await;
    assert!(
        findings.iter().all(|one| one.grade == Grade::Ok),
        "{findings:#?}"
    );
    change(
        &scratch,
        "UPDATE IN_SCHEMA._sqlx_migrations SET success = false WHERE version = 3",
    );
    let said = refused(scratch.postgres()).await;
    assert!(said.contains("was not completed"), "{said}");
    assert_eq!(schema_status(&scratch.at).await.unwrap().half_done, Some(3));
    graded(&examine(&scratch.at).await, "schema", Grade::Fail);
    change(
        &scratch,
        "UPDATE IN_SCHEMA._sqlx_migrations SET success = true; \
         INSERT INTO IN_SCHEMA._sqlx_migrations \
         (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', true, 'x', 0)",
    );
    let said = refused(scratch.postgres()).await;
    assert!(said.contains("a newer build wrote it"), "{said}");
    assert_eq!(schema_status(&scratch.at).await.unwrap().unknown, [9999]);
}

async fn waits_to_be_migrated(scratch: &Scratch) {
    let before = schema_status(&scratch.at).await.unwrap();
    assert!(before.applied.is_empty() && before.pending.len() >= 7);
    let careful = Options {
        migrate: false,
        ..Options::default()
    };
    let error = open_with(&scratch.at, &careful).await.err().unwrap();
    assert!(matches!(error, StoreError::Pending { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("treadle store migrate") && said.contains("0001 journal"),
        "{said}"
    );
    assert!(migrate(&scratch.at).await.unwrap().fits());
    assert!(migrate(&scratch.at).await.unwrap().fits(), "a second time");
    let store = open_with(&scratch.at, &careful).await.unwrap();
    let info = store.info().await.unwrap();
    assert_eq!(info.schema_version as usize, before.pending.len());
    assert!(info.size_bytes > 0 && !info.version.is_empty());
    store.close().await.unwrap();
    graded(&examine(&scratch.at).await, "schema", Grade::Ok);
}

#[tokio::test]
async fn a_store_is_migrated_on_request() {
    waits_to_be_migrated(&file()).await;
    if let Some(scratch) = schema() {
        waits_to_be_migrated(&scratch).await;
    }
}

/// Some close it while others are opening it.
#[tokio::test(flavor = "multi_thread")]
async fn many_open_a_new_store_at_once() {
    let files = (0..NEW_FILES).map(|_| Some(file()));
    for scratch in files.chain([schema()]).flatten() {
        let opening = (0..OPENERS).map(|_| {
            let at = scratch.at.clone();
            tokio::spawn(async move {
                let store = open_with(&at, &Options::default()).await.unwrap();
                assert_eq!(store.last_seq().await.unwrap(), 0);
                store.close().await.unwrap();
            })
        });
        for each in opening.collect::<Vec<_>>() {
            each.await.unwrap();
        }
    }
}

/// Raises the server's error of a full disk.
#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    store.append(&rows::events(1..=3)).await.unwrap();
    change(
        &scratch,
        "CREATE FUNCTION IN_SCHEMA.full() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''53100''; END'; \
         CREATE TRIGGER full_disk BEFORE INSERT ON IN_SCHEMA.events \
         FOR EACH ROW EXECUTE FUNCTION IN_SCHEMA.full()",
    );
    for _ in 0..2 {
        let error = store.append(&rows::events(4..=6)).await.unwrap_err();
        assert!(error.to_string().contains("free space"), "{error}");
        assert!(error.passes());
    }
    change(&scratch, "DROP TRIGGER full_disk ON IN_SCHEMA.events");
    assert_eq!(store.append(&rows::events(4..=6)).await.unwrap(), 6);
    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events, (1..=6).map(rows::event).collect::<Vec<_>>());
    store.close().await.unwrap();
}

/// All connections are terminated repeatedly, as by a restarting server.
#[tokio::test]
async fn a_server_that_ends_all_connections_loses_nothing() {
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    let mut last = 0;
    for _ in 0..5 {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'treadle IN_SCHEMA'";
        change(&scratch, end);
        let batch = rows::events(last + 1..=last + 4);
        let started = Instant::now();
        last = loop {
            match store.append(&batch).await {
                Ok(seq) => break seq,
                Err(error) => assert!(error.passes(), "{error}"),
            }
            assert!(started.elapsed() < TIMEOUT);
        };
    }
    assert_eq!(last, 20);
    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events, (1..=20).map(rows::event).collect::<Vec<_>>());
    store.close().await.unwrap();
}

fn partitions(scratch: &Scratch, expected: &str) {
    let check = "DO $$ BEGIN IF (SELECT string_agg(c.relname, ' ' ORDER BY c.relname) \
         FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = 'IN_SCHEMA.events'::regclass) IS DISTINCT FROM 'EXPECTED' \
         THEN RAISE EXCEPTION 'other partitions'; END IF; END $$";
    change(scratch, &check.replace("EXPECTED", expected));
}

#[tokio::test]
async fn partitions_are_made_ahead_and_dropped_as_a_whole() {
    let Some(scratch) = schema() else { return };
    let jump = |to: u64| {
        let head = format!("UPDATE IN_SCHEMA.journal_head SET last_seq = {to}");
        change(&scratch, &head);
    };
    let store = scratch.open().await;
    store.append(&rows::events(1..=10)).await.unwrap();
    partitions(&scratch, "events_000000 events_000001");
    jump(249_995);
    let batch = rows::events(249_996..=250_005);
    assert_eq!(store.append(&batch).await.unwrap(), 250_005);
    let found = store.events_after(249_990, ALL).await.unwrap();
    assert_eq!(found, batch.events, "across the boundary");

    store.save_snapshot(&snapshot(250_003)).await.unwrap();
    let keep = Retention {
        keep_events: 3,
        ..Retention::default()
    };
    let pruned = store.prune(&keep).await.unwrap();
    assert_eq!((pruned.events, pruned.more), (14 + 3, false));
    partitions(&scratch, "events_000001");
    let left = store.events_after(0, ALL).await.unwrap();
    let left: Vec<u64> = left.iter().map(|event| event.seq).collect();
    assert_eq!(left, [250_003, 250_004, 250_005]);
    jump(374_999);
    store
        .append(&rows::events(375_000..=375_000))
        .await
        .unwrap();
    partitions(&scratch, "events_000001 events_000002");
    store.close().await.unwrap();

    // A handle that does not know the partitions yet.
    let store = scratch.open().await;
    jump(999_990);
    let batch = rows::events(999_991..=1_000_010);
    assert_eq!(store.append(&batch).await.unwrap(), 1_000_010);
    let found = store.events_after(999_000, ALL).await.unwrap();
    assert_eq!(found, batch.events);
    store.close().await.unwrap();
}
