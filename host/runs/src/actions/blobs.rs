//! Descriptions and outputs of actions, stored by digest.

use crate::storage_quotas::StorageQuotas;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use treadle_actions::{ActionBody, OutputError, Outputs};
use treadle_core::actions::ActionSpec;
use treadle_model::Tenant;
use treadle_model::tenant::split;
use treadle_store::{BodyRow, DESCRIPTION, Store, StoreError};

/// Prefix of blobs' keys, which no program's key has.
const MARK: char = '\u{1}';
/// The kind of outputs.
const OUTPUT: &str = "output";
/// Most bytes of descriptions in memory until their actions start; others are read from the store.
const HELD_BYTES_MAX: usize = 64 << 20;

/// How long an action's output waits while the store fails.
const STORE_AWAY_MAX: Duration = Duration::from_mins(1);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Blobs in the store, separate per tenant, and a cache of descriptions of actions that start soon.
#[derive(Clone)]
pub(super) struct Blobs {
    store: Arc<dyn Store>,
    quotas: Arc<StorageQuotas>,
    cache: Arc<Mutex<BodyCache>>,
}

#[derive(Default)]
struct BodyCache {
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
    pub(super) fn new(store: Arc<dyn Store>, quotas: Arc<StorageQuotas>) -> Self {
        Self {
            store,
            quotas,
            cache: Arc::default(),
        }
    }

    /// Stores a tenant's submission under its digest, durably.
    pub(super) async fn keep(
        &self,
        tenant: &Tenant,
        digest: &str,
        written: Vec<u8>,
        body: Option<ActionBody>,
    ) -> Result<(), StoreError> {
        let size = written.len();
        self.put(tenant, DESCRIPTION, digest, written).await?;
        if let Some(body) = body {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = cache.bytes + size <= HELD_BYTES_MAX;
            if fits && !cache.by_digest.contains_key(digest) {
                cache.bytes += size;
                cache.by_digest.insert(digest.into(), (body.into(), size));
            }
        }
        Ok(())
    }

    /// The command of an action that is about to start.
    pub(super) async fn body(&self, spec: &ActionSpec) -> Result<Arc<ActionBody>, String> {
        if let Some(body) = self.taken(&spec.body) {
            return Ok(body);
        }
        let (tenant, _) = split(&spec.job);
        let written = self.read(&Tenant::new(tenant), &spec.body).await;
        let written = written.map_err(|error| error.to_string())?;
        let written = written.ok_or("its command is no longer stored; see payloads.keep_s")?;
        let value: Value = serde_json::from_slice(&written).map_err(|error| error.to_string())?;
        let body = ActionBody::parse(&canonical(&value["run"]));
        Ok(Arc::new(body.map_err(|error| error.to_string())?))
    }

    fn taken(&self, digest: &str) -> Option<Arc<ActionBody>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (body, size) = cache.by_digest.remove(digest)?;
        cache.bytes -= size;
        Some(body)
    }

    async fn put(
        &self,
        tenant: &Tenant,
        kind: &str,
        digest: &str,
        body: Vec<u8>,
    ) -> Result<(), StoreError> {
        let bytes = body.len() as u64;
        let row = BodyRow {
            program: key(tenant.prefix(), digest),
            step: 0,
            kind: kind.to_owned(),
            at_us: treadle_auth::now_us(),
            body,
        };
        self.store.put_bodies(&[row]).await?;
        self.quotas.added(tenant.name(), bytes);
        Ok(())
    }

    /// The content of a tenant's digest, if it is still stored.
    pub(super) async fn read(
        &self,
        tenant: &Tenant,
        digest: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut rows = self.store.bodies(&key(tenant.prefix(), digest), 0).await?;
        if rows.is_empty() && !tenant.prefix().is_empty() {
            // Earlier builds stored blobs of all tenants together.
            rows = self.store.bodies(&key("", digest), 0).await?;
        }
        Ok(rows.into_iter().next().map(|row| row.body))
    }
}

fn key(prefix: &str, digest: &str) -> String {
    format!("{prefix}{MARK}{digest}")
}

#[async_trait::async_trait]
impl Outputs for Blobs {
    /// Waits while the store fails, as the journal does, so that finished attempts need not run
    /// again.
    async fn put(&self, tenant: &str, bytes: Vec<u8>) -> Result<Box<str>, OutputError> {
        let (digest, began, tenant) = (digest(&bytes), Instant::now(), Tenant::new(tenant));
        loop {
            let kept = Self::put(self, &tenant, OUTPUT, &digest, bytes.clone()).await;
            let Err(error) = kept else {
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

    fn spec(job: &str, body: &str) -> ActionSpec {
        let spec = serde_json::json!({
            "job": job, "kind": "sh", "demands": [], "run_max": 1, "body": body,
        });
        serde_json::from_value(spec).expect("a specification")
    }

    #[tokio::test]
    async fn what_was_kept_is_read_again_by_its_tenant_whether_it_was_held_or_not() {
        let store = treadle_store::open(&Location::Memory)
            .await
            .expect("it opens");
        let blobs = Blobs::new(store.clone(), StorageQuotas::unbounded(store.clone()));
        let [red, blue] = ["red", "blue"].map(Tenant::new);
        let run = serde_json::json!({"run": {"process": {"command": ["true"]}}, "kind": "sh"});
        let written = canonical(&run);
        let digest = digest(&written);
        let body = ActionBody::parse(&canonical(&run["run"])).expect("it is read");
        blobs
            .keep(&red, &digest, written.clone(), Some(body.clone()))
            .await
            .expect("it is kept");
        let own = spec("\u{1f}red\u{1f}job", &digest);
        for _ in 0..2 {
            let known = blobs.body(&own).await.expect("it is there");
            assert_eq!(*known, body);
        }
        let missing = blobs.body(&spec("\u{1f}blue\u{1f}job", &digest)).await;
        let missing = missing.expect_err("it is another tenant's");
        assert!(missing.contains("payloads.keep_s"), "{missing}");
        let output = Outputs::put(&blobs, "red", b"out".to_vec())
            .await
            .expect("kept");
        let output_of = async |tenant| blobs.read(tenant, &output).await.expect("it is read");
        assert_eq!(output_of(&red).await.as_deref(), Some(&b"out"[..]));
        assert_eq!(output_of(&blue).await, None);
        // As an earlier build stored it.
        let default = Tenant::new("default");
        blobs
            .put(&default, DESCRIPTION, "old", written)
            .await
            .expect("kept");
        assert!(
            blobs
                .body(&spec("\u{1f}blue\u{1f}job", "old"))
                .await
                .is_ok()
        );
    }
}
