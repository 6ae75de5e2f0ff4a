//! Samples of a daemon's metrics over time.

use async_trait::async_trait;

use crate::{SamplePage, SampleRow, StoreError};

/// Samples of metrics over time.
#[async_trait]
pub trait MetricHistory: Send + Sync {
    /// Adds a sample, or replaces the one of the same time.
    async fn add_sample(&self, row: &SampleRow) -> Result<(), StoreError>;

    /// Samples within a time range.
    async fn samples(&self, page: &SamplePage) -> Result<Vec<SampleRow>, StoreError>;

    /// Removes samples from before a time, a bounded number at a time; returns their number.
    async fn prune_samples(&self, before_us: u64) -> Result<u64, StoreError>;
}
