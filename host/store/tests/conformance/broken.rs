//! Connections that break during a commit.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use treadle_store::{CommandRow, Location, PostgresLocation, StoreError, open};

use super::backends::{address, schema};
use super::rows::{self, ALL};

const PASS: u8 = 0;
/// The next commit reaches the server, but its answer is lost.
const LOSE_ANSWER: u8 = 1;
/// The next commit does not reach the server.
const LOSE_COMMIT: u8 = 2;

/// A proxy between a store and its server.
struct Between {
    port: u16,
    mode: Arc<AtomicU8>,
}

impl Between {
    fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = Self {
            port: listener.local_addr().unwrap().port(),
            mode: Arc::default(),
        };
        let (server, mode) = (server.to_owned(), Arc::clone(&between.mode));
        // Ends with the process, which in `cargo nextest` is that of the test.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(&server).unwrap();
                forward(&client, &server, &mode);
            }
        });
        between
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }
}

fn forward(client: &TcpStream, server: &TcpStream, mode: &Arc<AtomicU8>) {
    let copy = |from: &TcpStream, to: &TcpStream, watched: Option<Arc<AtomicU8>>| {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                let commit = bytes[..read].windows(6).any(|part| part == b"COMMIT");
                let lose = |mode: &AtomicU8| mode.swap(PASS, Ordering::SeqCst);
                match watched.as_deref().filter(|_| commit).map_or(PASS, lose) {
                    LOSE_COMMIT => break,
                    LOSE_ANSWER => {
                        let _ = from.shutdown(Shutdown::Both);
                        to.write_all(&bytes[..read]).unwrap();
                        // The server reads no more, so it ends after the commit.
                        to.shutdown(Shutdown::Write).unwrap();
                        return;
                    }
                    _ if to.write_all(&bytes[..read]).is_err() => break,
                    _ => {}
                }
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    copy(client, server, Some(Arc::clone(mode)));
    copy(server, client, None);
}

async fn survives(mode: u8) {
    let Some(scratch) = schema() else { return };
    let real = scratch.postgres();
    let server = address(&real.url);
    let between = Between::new(&server);
    let near = format!("127.0.0.1:{}", between.port);
    let at = Location::Postgres(PostgresLocation {
        url: real.url.replacen(&server, &near, 1),
        ..real.clone()
    });
    let store = open(&at).await.unwrap();
    store.append(&rows::events(1..=5)).await.unwrap();

    let mut batch = rows::events(6..=9);
    batch.decisions.push(rows::decision(6, None, "pause"));
    between.set(mode);
    let error = store.append(&batch).await.unwrap_err();
    assert!(matches!(error, StoreError::Postgres { .. }), "{error}");
    assert!(error.passes());
    assert_eq!(store.append(&batch).await.unwrap(), 9);
    let error = store.append(&batch).await.unwrap_err();
    assert!(matches!(error, StoreError::Gap { .. }), "{error}");
    assert_eq!(store.append(&rows::events(10..=10)).await.unwrap(), 10);
    let events = store.events_after(0, ALL).await.unwrap();
    assert_eq!(events, (1..=10).map(rows::event).collect::<Vec<_>>());
    let all = rows::range(None, None, treadle_store::Order::OldestFirst, ALL);
    let decisions = store.decisions(&rows::decisions(&all)).await.unwrap();
    assert_eq!(decisions, batch.decisions);

    let command = CommandRow {
        command: "c".into(),
        kind: "job.pause".into(),
        at_us: 1,
        outcome: String::new(),
    };
    between.set(mode);
    store.note_command(&command).await.unwrap_err();
    assert!(store.note_command(&command).await.unwrap());
    assert!(!store.note_command(&command).await.unwrap());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_batch_whose_commit_went_unanswered_is_stored_once() {
    survives(LOSE_ANSWER).await;
}

#[tokio::test]
async fn a_batch_whose_commit_was_lost_is_stored_by_the_next_attempt() {
    survives(LOSE_COMMIT).await;
}

#[tokio::test]
async fn a_batch_in_doubt_does_not_cover_for_another() {
    let Some(scratch) = schema() else { return };
    let real = scratch.postgres();
    let server = address(&real.url);
    let between = Between::new(&server);
    let near = format!("127.0.0.1:{}", between.port);
    let at = Location::Postgres(PostgresLocation {
        url: real.url.replacen(&server, &near, 1),
        ..real.clone()
    });
    let store = open(&at).await.unwrap();
    between.set(LOSE_ANSWER);
    store.append(&rows::events(1..=3)).await.unwrap_err();
    let mut other = rows::events(1..=3);
    other.events[1].body = "{}".into();
    let error = store.append(&other).await.unwrap_err();
    assert!(matches!(error, StoreError::Gap { .. }), "{error}");
    assert_eq!(store.append(&rows::events(1..=3)).await.unwrap(), 3);
    store.close().await.unwrap();
}
