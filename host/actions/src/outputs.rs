//! Storage of actions' outputs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use crate::body::hex;

/// An output could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("could not store the output: {0}")]
pub struct OutputError(pub String);

/// Stores outputs under their digests.
#[async_trait]
pub trait Outputs: Send + Sync {
    /// Stores the output of a tenant's action, as durably as the implementation does; returns its
    /// digest. The same bytes may be stored twice.
    ///
    /// # Errors
    /// If they were not stored.
    async fn put(&self, tenant: &str, bytes: Vec<u8>) -> Result<Box<str>, OutputError>;
}

/// Outputs in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryOutputs(Mutex<BTreeMap<Box<str>, Vec<u8>>>);

impl MemoryOutputs {
    /// The bytes with a digest.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(digest).cloned()
    }
}

#[async_trait]
impl Outputs for MemoryOutputs {
    async fn put(&self, _: &str, bytes: Vec<u8>) -> Result<Box<str>, OutputError> {
        let digest: Box<str> = hex(&bytes).into();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(digest.clone(), bytes);
        Ok(digest)
    }
}
