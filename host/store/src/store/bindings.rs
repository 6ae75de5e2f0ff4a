//! Which policies jobs use, and what those policies have stored.

use async_trait::async_trait;

use crate::{BindingRow, PolicyStateRow, StoreError};

/// Bindings and the state of their policies. [`Journal::append`](crate::Journal::append) writes
/// bindings.
#[async_trait]
pub trait Bindings: Send + Sync {
    /// All bindings, by job, world and role.
    async fn bindings(&self) -> Result<Vec<BindingRow>, StoreError>;

    /// Adds or replaces the state stored by the policy of a binding.
    async fn put_policy_state(&self, state: &PolicyStateRow) -> Result<(), StoreError>;

    /// The states stored by the policies of all bindings, by job and world.
    async fn policy_states(&self) -> Result<Vec<PolicyStateRow>, StoreError>;
}
