//! Who may use the daemon, and what was changed by whom.

use async_trait::async_trait;

use crate::{AuditPage, AuditRow, StoreError, TenantRow, TokenRow};

/// Tenants and API tokens.
#[async_trait]
pub trait Access: Send + Sync {
    /// Adds or replaces a tenant.
    async fn put_tenant(&self, tenant: &TenantRow) -> Result<(), StoreError>;

    /// All tenants, by name.
    async fn tenants(&self) -> Result<Vec<TenantRow>, StoreError>;

    /// Adds or replaces an API token.
    async fn put_token(&self, token: &TokenRow) -> Result<(), StoreError>;

    /// All API tokens, including those that are no longer valid, newest first.
    async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// Records when tokens, by their ids, were last used.
    async fn touch_tokens(&self, uses: &[(String, u64)]) -> Result<(), StoreError>;

    /// Removes tokens that were revoked or expired before this time; returns their number.
    async fn prune_tokens(&self, ended_before_us: u64) -> Result<u64, StoreError>;
}

/// The audit log.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Adds rows to the audit log in one transaction; `id` is chosen by the store.
    async fn add_audit(&self, rows: &[AuditRow]) -> Result<(), StoreError>;

    /// Rows of the audit log that match.
    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditRow>, StoreError>;

    /// Removes the oldest rows of the audit log beyond the newest `keep`, and beyond `keep` times
    /// [`AUDIT_ROW_BYTES`](crate::AUDIT_ROW_BYTES), at most
    /// [`PRUNE_ROWS_MAX`](crate::PRUNE_ROWS_MAX); returns their number.
    async fn prune_audit(&self, keep: u64) -> Result<u64, StoreError>;
}
