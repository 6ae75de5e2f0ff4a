//! What nodes ask of who has actions.

use super::Start;
use crate::held_action::HeldAction;
use async_trait::async_trait;
use treadle_model::{ActionId, Tenant};
use treadle_wire::ErrorBody;

/// Who has actions.
#[async_trait]
pub(crate) trait Asked: Send + Sync {
    /// What a node is told of an attempt that is on record and certainly never began; `None` if it is
    /// not to run any more.
    async fn start(&self, action: ActionId, attempt: u32) -> Option<Start>;

    /// Keeps what an attempt of an action wrote; gives its digest.
    async fn keep_output(
        &self,
        action: ActionId,
        bytes: Vec<u8>,
    ) -> Result<Option<Box<str>>, Box<str>>;

    /// Puts a handler's action on record.
    async fn hold(
        &self,
        tenant: &Tenant,
        action: &HeldAction,
        token: &str,
    ) -> Result<ActionId, ErrorBody>;

    /// Withdraws an action.
    async fn cancel(&self, tenant: &Tenant, action: ActionId);

    /// Of programs, given by tenant and name, those that live.
    async fn live(&self, programs: &[(String, String)]) -> Result<Vec<bool>, ErrorBody>;
}
