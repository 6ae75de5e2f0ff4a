//! What the daemons that share a store agree on.

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{Candidate, LeaderRow, Leadership, StoreError};

/// What the daemons that share a store agree on: who leads, and the numbers that it hands out.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Tries to lead. `Some(epoch)` if this handle now leads, `None` if another one does.
    ///
    /// Each term has its own epoch, greater than all before. The next candidate replaces a leader
    /// that sends no heartbeat for [`LEASE`](crate::LEASE). A leader continues after a restart of
    /// its database, unless another candidate was faster.
    async fn campaign(&self, candidate: &Candidate) -> Result<Option<u64>, StoreError>;

    /// The current or last leader; `None` if there never was one or the last one resigned.
    async fn leader(&self) -> Result<Option<LeaderRow>, StoreError>;

    /// Steps down, so that the next candidate does not have to wait.
    async fn resign(&self) -> Result<(), StoreError>;

    /// This handle's leadership state, and a notice of each change.
    fn leadership(&self) -> watch::Receiver<Leadership>;

    /// The number of a gateway: 1 or more, always the same for the same name.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] past [`GATEWAYS_MAX`](crate::GATEWAYS_MAX).
    async fn gateway_id(&self, name: &str) -> Result<u32, StoreError>;

    /// A secret number of this store, by its purpose: `fresh` on the first call, the same ever
    /// after.
    async fn key(&self, name: &str, fresh: u64) -> Result<u64, StoreError>;
}
