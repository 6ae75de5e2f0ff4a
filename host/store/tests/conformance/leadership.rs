//! Of several handles on one store, one leads, and only its writes are accepted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use treadle_store::{Candidate, Leadership, Location, Store, StoreError, open};

use super::backends::{Scratch, behind, file, schema};
use super::rows;

/// Timeout for anything.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

fn candidate(name: &str) -> Candidate {
    Candidate {
        name: name.into(),
        url: format!("http://{name}:8100"),
    }
}

fn fenced(error: &StoreError) -> (u64, u64) {
    match error {
        StoreError::Fenced { held, current } => (*held, *current),
        other => panic!("{other}"),
    }
}

/// Campaigns until it leads.
async fn lead(store: &dyn Store, name: &str) -> u64 {
    let started = Instant::now();
    loop {
        // A campaign fails while the server restarts.
        if let Ok(Some(epoch)) = store.campaign(&candidate(name)).await {
            return epoch;
        }
        assert!(started.elapsed() < TIMEOUT, "{name} never leads");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn becomes(store: &dyn Store, expected: Leadership) {
    let mut leadership = store.leadership();
    let changed = leadership.wait_for(|leadership| *leadership == expected);
    let changed = tokio::time::timeout(TIMEOUT, changed).await;
    assert!(changed.is_ok(), "never {expected:?}");
}

async fn one_leads_and_the_other_takes_over(scratch: &Scratch) {
    let first = scratch.open().await;
    let second = scratch.open().await;
    assert_eq!(first.leader().await.unwrap(), None);
    first.append(&rows::events(1..=1)).await.unwrap();
    assert_eq!(first.campaign(&candidate("a")).await.unwrap(), Some(1));
    assert_eq!(first.campaign(&candidate("a")).await.unwrap(), Some(1));
    assert_eq!(second.campaign(&candidate("b")).await.unwrap(), None);
    assert_eq!(
        *first.leadership().borrow(),
        Leadership::Leader { epoch: 1 }
    );
    assert_eq!(*second.leadership().borrow(), Leadership::Follower);
    let leader = second.leader().await.unwrap().unwrap();
    assert_eq!(
        (leader.name.as_str(), leader.url.as_str(), leader.epoch),
        ("a", "http://a:8100", 1)
    );
    assert!(leader.since_us <= leader.seen_us && leader.seen_us <= leader.now_us);

    first.append(&rows::events(2..=2)).await.unwrap();
    let error = second.append(&rows::events(3..=3)).await.unwrap_err();
    assert_eq!(fenced(&error), (0, 1));
    let error = second.advance_sink("s", 1).await.unwrap_err();
    assert_eq!(fenced(&error), (0, 1));
    assert_eq!(second.last_seq().await.unwrap(), 2, "reading is for all");
    assert!(second.gateway_id("gw").await.unwrap() >= 1);

    first.resign().await.unwrap();
    assert_eq!(first.leader().await.unwrap(), None);
    assert_eq!(second.campaign(&candidate("b")).await.unwrap(), Some(2));
    let error = first.append(&rows::events(3..=3)).await.unwrap_err();
    assert_eq!(fenced(&error), (0, 2));
    second.append(&rows::events(3..=3)).await.unwrap();
    second.close().await.unwrap();
    assert_eq!(lead(&*first, "a").await, 3);
    first.append(&rows::events(4..=4)).await.unwrap();
    first.close().await.unwrap();
}

#[tokio::test]
async fn one_leads_and_the_other_takes_over_when_it_resigns() {
    one_leads_and_the_other_takes_over(&file()).await;
    if let Some(scratch) = schema() {
        one_leads_and_the_other_takes_over(&scratch).await;
    }
}

#[tokio::test]
async fn a_store_in_memory_always_leads() {
    let store = open(&Location::Memory).await.unwrap();
    assert_eq!(store.campaign(&candidate("a")).await.unwrap(), Some(1));
    store.append(&rows::events(1..=1)).await.unwrap();
    let nameless = store.campaign(&candidate("")).await.unwrap_err();
    assert!(matches!(nameless, StoreError::Nameless), "{nameless}");
}

async fn exactly_one_wins(scratch: &Scratch) {
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(scratch.open().await);
    }
    let mut tasks = Vec::new();
    for (n, store) in stores.iter().enumerate() {
        let store = Arc::clone(store);
        let campaign = async move { store.campaign(&candidate(&format!("c{n}"))).await };
        tasks.push(tokio::spawn(campaign));
    }
    let mut won = Vec::new();
    for task in tasks {
        won.extend(task.await.unwrap().unwrap());
    }
    assert_eq!(won, [1]);
    for store in stores {
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_candidates_exactly_one_wins() {
    exactly_one_wins(&file()).await;
    if let Some(scratch) = schema() {
        exactly_one_wins(&scratch).await;
    }
}

/// Terminates the leader's connection.
fn end_leader(scratch: &Scratch) {
    let at = scratch.postgres();
    let sql = "SELECT pg_terminate_backend(backend_pid::int) FROM";
    behind(&at.url, format!("{sql} {}.leader", at.schema));
}

/// Simulates a leader that stays silent for longer than its lease.
fn silence(scratch: &Scratch) {
    let at = scratch.postgres();
    let schema = &at.schema;
    behind(
        &at.url,
        format!(
            "CREATE FUNCTION {schema}.hush() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN NEW.seen_us := 5; RETURN NEW; END'; \
             CREATE TRIGGER hush BEFORE UPDATE ON {schema}.leader_seen \
             FOR EACH ROW EXECUTE FUNCTION {schema}.hush(); \
             UPDATE {schema}.leader_seen SET seen_us = 5"
        ),
    );
}

#[tokio::test]
async fn a_leader_whose_connection_breaks_continues_unless_superseded() {
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    assert_eq!(lead(&*store, "a").await, 1);
    end_leader(&scratch);
    // Heartbeats continue on another connection.
    let before = store.leader().await.unwrap().unwrap().seen_us;
    let started = Instant::now();
    while store.leader().await.unwrap().unwrap().seen_us <= before {
        assert!(started.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.append(&rows::events(1..=1)).await.unwrap();
    assert_eq!(
        *store.leadership().borrow(),
        Leadership::Leader { epoch: 1 }
    );
    let other = scratch.open().await;
    let other_leads = other.campaign(&candidate("b")).await.unwrap();
    assert_eq!(other_leads, None, "the lock is taken again");
    other.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_leader_resigns_although_its_connection_is_lost() {
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    assert_eq!(lead(&*store, "a").await, 1);
    end_leader(&scratch);
    store.resign().await.unwrap();
    assert_eq!(store.leader().await.unwrap(), None);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_silent_leader_is_overthrown_and_its_writes_are_refused() {
    let Some(scratch) = schema() else { return };
    let old = scratch.open().await;
    let new = scratch.open().await;
    assert_eq!(lead(&*old, "old").await, 1);
    old.append(&rows::events(1..=2)).await.unwrap();
    assert_eq!(new.campaign(&candidate("new")).await.unwrap(), None);
    silence(&scratch);
    assert_eq!(lead(&*new, "new").await, 2);
    let error = old.append(&rows::events(3..=3)).await.unwrap_err();
    assert_eq!(fenced(&error), (1, 2));
    becomes(&*old, Leadership::Superseded).await;
    new.append(&rows::events(3..=3)).await.unwrap();
    old.close().await.unwrap();
    new.close().await.unwrap();
}

#[tokio::test]
async fn a_superseded_leader_learns_of_it_without_writing() {
    let Some(scratch) = schema() else { return };
    let old = scratch.open().await;
    let new = scratch.open().await;
    lead(&*old, "old").await;
    silence(&scratch);
    assert_eq!(lead(&*new, "new").await, 2);
    becomes(&*old, Leadership::Superseded).await;
    old.close().await.unwrap();
    new.close().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_is_gone_is_followed() {
    let Some(scratch) = schema() else { return };
    let old = scratch.open().await;
    let new = scratch.open().await;
    lead(&*old, "old").await;
    // Dropped, not closed, like a dead process.
    drop(old);
    assert_eq!(lead(&*new, "new").await, 2);
    new.close().await.unwrap();
}

/// Leaves what a process leaves that was stopped in the middle of a write.
#[tokio::test]
async fn a_transaction_that_was_left_open_does_not_keep_a_candidate_from_leading() {
    use sqlx::Connection;
    let Some(scratch) = schema() else { return };
    let store = scratch.open().await;
    let at = scratch.postgres();
    let mut left = sqlx::PgConnection::connect(&at.url).await.unwrap();
    let hold = format!("BEGIN; SELECT * FROM {}.leader FOR SHARE", at.schema);
    let hold = sqlx::raw_sql(sqlx::AssertSqlSafe(hold));
    hold.execute(&mut left).await.unwrap();
    assert_eq!(lead(&*store, "a").await, 1);
    assert!(left.ping().await.is_err(), "it was ended");
    store.append(&rows::events(1..=1)).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn schedulers_of_different_schemas_lead_beside_each_other() {
    let (Some(one), Some(two)) = (schema(), schema()) else {
        return;
    };
    let (first, second) = (one.open().await, two.open().await);
    assert_eq!(lead(&*first, "a").await, 1);
    assert_eq!(lead(&*second, "b").await, 1);
    first.append(&rows::events(1..=1)).await.unwrap();
    assert_eq!(second.last_seq().await.unwrap(), 0);
    first.close().await.unwrap();
    second.close().await.unwrap();
}
