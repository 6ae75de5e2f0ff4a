//! Payloads of training runs.

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Names, StoreError, TrainingPayload};

/// What training runs store before an event names it, by job and name. Nothing here is removed by
/// age: a checkpoint releases it.
#[async_trait]
pub trait Training: Send + Sync {
    /// Adds or replaces payloads.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX).
    async fn put_payloads(&self, payloads: &[TrainingPayload]) -> Result<(), StoreError>;

    /// The payloads of these names that are stored, by name.
    async fn payloads(
        &self,
        job: &str,
        names: &[String],
    ) -> Result<Vec<TrainingPayload>, StoreError>;

    /// The names and bytes of those of these names that are stored, by name. Long ones are where the
    /// database's driver put them: nothing copies them.
    async fn payload_bodies(
        &self,
        job: &str,
        names: &[String],
    ) -> Result<Vec<(String, Bytes)>, StoreError>;

    /// The sizes of those of these names that are stored, by name; their bytes are not read.
    async fn payload_sizes(
        &self,
        job: &str,
        names: &[String],
    ) -> Result<Vec<(String, u64)>, StoreError>;

    /// Names of a job's payloads that were stored before this time and come after this name, at
    /// most [`PAGE_ROWS_MAX`](crate::PAGE_ROWS_MAX).
    async fn payload_names(
        &self,
        job: &str,
        before_us: u64,
        after: &str,
    ) -> Result<Vec<String>, StoreError>;

    /// Total size of the payloads of these jobs.
    async fn payload_bytes(&self, jobs: &Names) -> Result<u64, StoreError>;

    /// Removes payloads that were stored before this time; returns their number.
    async fn remove_payloads(
        &self,
        job: &str,
        names: &[String],
        before_us: u64,
    ) -> Result<u64, StoreError>;
}
