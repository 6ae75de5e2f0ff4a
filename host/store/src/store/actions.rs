//! Actions that treadle runs, and the services that they may use.

use async_trait::async_trait;

use crate::{ActionPage, ActionRow, ServiceRow, StoreError};

/// Actions, and the services that they may use. [`Journal::append`](crate::Journal::append) writes
/// actions, [`Journal::prune`](crate::Journal::prune) removes them.
#[async_trait]
pub trait Actions: Send + Sync {
    /// One action; `None` if it is unknown or was pruned.
    async fn action(&self, action: u64) -> Result<Option<ActionRow>, StoreError>;

    /// Actions that match, newest first.
    async fn actions(&self, page: &ActionPage) -> Result<Vec<ActionRow>, StoreError>;

    /// Adds or replaces a service that actions may use.
    async fn put_service(&self, service: &ServiceRow) -> Result<(), StoreError>;

    /// All services, by name.
    async fn services(&self) -> Result<Vec<ServiceRow>, StoreError>;
}
