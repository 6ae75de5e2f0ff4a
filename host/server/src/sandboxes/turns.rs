//! Who decides when a command in a sandbox may run.

use crate::actions::{Actions, Failure};
use crate::held_action::HeldAction;
use async_trait::async_trait;
use std::sync::Arc;
use treadle_actions::Hold;
use treadle_model::Tenant;

/// Who decides when a command in a sandbox may run: this process, or the daemon that it is an agent
/// of.
#[async_trait]
pub(crate) trait Turns: Send + Sync {
    /// Waits for a handler's turn.
    async fn hold(&self, tenant: &Tenant, action: HeldAction) -> Result<Hold, Failure>;

    /// Of programs, given by tenant and name, those that live.
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
