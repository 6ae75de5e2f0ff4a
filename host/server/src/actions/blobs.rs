//! What actions run and what they write, kept by digest.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use treadle_actions::{ActionBody, OutputError, Outputs};
use treadle_store::{BodyRow, Store, StoreError};

/// What keys of blobs begin with; no program's begins so.
const MARK: char = '\u{1}';
/// The kind of all blobs.
const KIND: &str = "blob";
/// Bytes of descriptions that are held until their actions start; others are read again.
const HELD_BYTES_MAX: usize = 64 << 20;

/// How long the store may be away while an action's output waits for it.
const STORE_AWAY_MAX: Duration = Duration::from_mins(1);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Blobs in the store, and descriptions of actions that start soon.
#[derive(Clone)]
pub(super) struct Blobs {
    store: Arc<dyn Store>,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    by_digest: HashMap<Box<str>, (Arc<ActionBody>, usize)>,
    bytes: usize,
}

/// A JSON value as bytes that are the same for equal values: maps are ordered by key.
pub(super) fn canonical(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// SHA-256 in hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> Box<str> {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

impl Blobs {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            held: Arc::default(),
        }
    }

    /// Keeps a submission under its digest, durably.
    pub(super) async fn keep(
        &self,
        digest: &str,
        written: Vec<u8>,
        body: Option<ActionBody>,
    ) -> Result<(), StoreError> {
        let size = written.len();
        self.put(digest, written).await?;
        if let Some(body) = body {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = held.bytes + size <= HELD_BYTES_MAX;
            if fits && !held.by_digest.contains_key(digest) {
                held.bytes += size;
                held.by_digest.insert(digest.into(), (body.into(), size));
            }
        }
        Ok(())
    }

    /// What an action runs that is about to start.
    pub(super) async fn body(&self, digest: &str) -> Result<Arc<ActionBody>, String> {
        if let Some(body) = self.taken(digest) {
            return Ok(body);
        }
        let written = self.read(digest).await.map_err(|error| error.to_string())?;
        let written = written.ok_or("what it runs is no longer kept; see payloads.keep_s")?;
        let value: Value = serde_json::from_slice(&written).map_err(|error| error.to_string())?;
        let body = ActionBody::parse(&canonical(&value["run"]));
        Ok(Arc::new(body.map_err(|error| error.to_string())?))
    }

    fn taken(&self, digest: &str) -> Option<Arc<ActionBody>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (body, size) = held.by_digest.remove(digest)?;
        held.bytes -= size;
        Some(body)
    }

    async fn put(&self, digest: &str, body: Vec<u8>) -> Result<(), StoreError> {
        let row = BodyRow {
            program: key(digest),
            step: 0,
            kind: KIND.to_owned(),
            at_us: treadle_auth::now_us(),
            body,
        };
        self.store.put_bodies(&[row]).await
    }

    /// The bytes of a digest, if they are still kept.
    pub(super) async fn read(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let rows = self.store.bodies(&key(digest), 0).await?;
        Ok(rows.into_iter().next().map(|row| row.body))
    }
}

fn key(digest: &str) -> String {
    format!("{MARK}{digest}")
}

#[async_trait::async_trait]
impl Outputs for Blobs {
    /// While the store is away this waits, as the journal does: what has run need not run again.
    async fn put(&self, bytes: Vec<u8>) -> Result<Box<str>, OutputError> {
        let (digest, began) = (digest(&bytes), Instant::now());
        loop {
            let Err(error) = Self::put(self, &digest, bytes.clone()).await else {
                return Ok(digest);
            };
            if began.elapsed() >= STORE_AWAY_MAX {
                return Err(OutputError(error.to_string()));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_store::Location;

    #[tokio::test]
    async fn what_was_kept_is_read_again_whether_it_was_held_or_not() {
        let store = treadle_store::open(&Location::Memory).await;
        let blobs = Blobs::new(store.expect("it opens"));
        let run = serde_json::json!({"run": {"process": {"command": ["true"]}}, "kind": "sh"});
        let written = canonical(&run);
        let digest = digest(&written);
        let body = ActionBody::parse(&canonical(&run["run"])).expect("it is read");
        blobs
            .keep(&digest, written, Some(body.clone()))
            .await
            .expect("it is kept");
        for _ in 0..2 {
            let known = blobs.body(&digest).await.expect("it is there");
            assert_eq!(*known, body);
        }
        let missing = blobs.body("0").await.expect_err("it is not there");
        assert!(missing.contains("payloads.keep_s"), "{missing}");
        let output = Outputs::put(&blobs, b"out".to_vec()).await.expect("kept");
        let read = blobs.read(&output).await.expect("it is read");
        assert_eq!(read.as_deref(), Some(&b"out"[..]));
    }
}
