//! Uploaded plugins.

use async_trait::async_trait;

use crate::{PluginHead, PluginRow, StoreError};

/// Plugins, which never change, and the tenants that have them.
#[async_trait]
pub trait Plugins: Send + Sync {
    /// Stores a plugin. `true` if it is new, `false` if its digest was there already.
    ///
    /// # Errors
    /// [`StoreError::Immutable`] if the digest is there with other bytes,
    /// [`StoreError::PluginsFull`] past [`PLUGINS_MAX`](crate::PLUGINS_MAX) or
    /// [`PLUGINS_BYTES_MAX`](crate::PLUGINS_BYTES_MAX), [`StoreError::TooLarge`] past
    /// [`COMPONENT_BYTES_MAX`](crate::COMPONENT_BYTES_MAX).
    async fn put_plugin(&self, plugin: &PluginRow) -> Result<bool, StoreError>;

    /// One plugin with its component; `None` if the digest is unknown.
    async fn plugin(&self, digest: &str) -> Result<Option<PluginRow>, StoreError>;

    /// All plugins without their components, newest first.
    async fn plugins(&self) -> Result<Vec<PluginHead>, StoreError>;

    /// Adds a plugin to a tenant. `true` if the tenant did not have it before.
    async fn claim_plugin(
        &self,
        tenant: &str,
        digest: &str,
        at_us: u64,
    ) -> Result<bool, StoreError>;

    /// Digests of a tenant's plugins.
    async fn claimed_plugins(&self, tenant: &str) -> Result<Vec<String>, StoreError>;
}
