//! Large bodies of steps.

use async_trait::async_trait;

use crate::{BodyRow, Names, StoreError};

/// Large bodies of steps: prompts, outputs, descriptions of actions.
#[async_trait]
pub trait Bodies: Send + Sync {
    /// Adds or replaces bodies of steps, compressed.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX).
    async fn put_bodies(&self, bodies: &[BodyRow]) -> Result<(), StoreError>;

    /// All bodies of a step, by kind.
    async fn bodies(&self, program: &str, step: u64) -> Result<Vec<BodyRow>, StoreError>;

    /// Removes bodies received before this time, at most
    /// [`PRUNE_BODIES_MAX`](crate::PRUNE_BODIES_MAX); returns their number.
    async fn prune_bodies(&self, before_us: u64) -> Result<u64, StoreError>;

    /// Total size of the bodies of these programs, before compression.
    async fn body_bytes(&self, programs: &Names) -> Result<u64, StoreError>;

    /// Removes the oldest bodies of these programs until `bytes` bytes are freed, at most
    /// [`PRUNE_BODIES_MAX`](crate::PRUNE_BODIES_MAX); returns their number. Descriptions of actions
    /// ([`DESCRIPTION`](crate::DESCRIPTION)) are removed only if they are older than an hour and
    /// than all actions that have not ended.
    async fn shed_bodies(&self, programs: &Names, bytes: u64) -> Result<u64, StoreError>;
}
