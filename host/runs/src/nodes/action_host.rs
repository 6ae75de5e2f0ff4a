//! The interface through which nodes use actions.

use super::Start;
use crate::held_action::HeldAction;
use async_trait::async_trait;
use treadle_model::{ActionId, Tenant};
use treadle_wire::ErrorBody;

/// The daemon's actions, for nodes.
#[async_trait]
pub trait ActionHost: Send + Sync {
    /// The start of an attempt that is on record and certainly never started; `None` if it must no
    /// longer run.
    async fn start(&self, action: ActionId, attempt: u32) -> Option<Start>;

    /// Stores the output of an attempt; returns its digest.
    async fn keep_output(
        &self,
        action: ActionId,
        bytes: Vec<u8>,
    ) -> Result<Option<Box<str>>, Box<str>>;

    /// Records a handler's action.
    async fn hold(
        &self,
        tenant: &Tenant,
        action: &HeldAction,
        token: &str,
    ) -> Result<ActionId, ErrorBody>;

    /// Cancels an action.
    async fn cancel(&self, tenant: &Tenant, action: ActionId);

    /// Whether each program, by tenant and name, is live.
    async fn live(&self, programs: &[(String, String)]) -> Result<Vec<bool>, ErrorBody>;
}
