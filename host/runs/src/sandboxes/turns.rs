//! Permits to run commands in sandboxes.

use crate::actions::{Actions, Failure};
use crate::held_action::HeldAction;
use async_trait::async_trait;
use std::sync::Arc;
use treadle_actions::Hold;
use treadle_model::Tenant;

/// Grants permits to run commands in sandboxes: this process, or the daemon of this node's agent.
#[async_trait]
pub trait Turns: Send + Sync {
    /// Waits for a handler's permit.
    async fn hold(&self, tenant: &Tenant, action: HeldAction) -> Result<Hold, Failure>;

    /// Whether each program, by tenant and name, is live.
    async fn live(&self, programs: &[(String, String)]) -> Result<Vec<bool>, Failure>;
}

#[async_trait]
impl Turns for Arc<Actions> {
    async fn hold(&self, tenant: &Tenant, action: HeldAction) -> Result<Hold, Failure> {
        Actions::hold(self, tenant, action).await
    }

    async fn live(&self, programs: &[(String, String)]) -> Result<Vec<bool>, Failure> {
        self.live_of(programs).await
    }
}
