//! Requests of nodes about actions.

use super::Actions;
use super::running::for_node;
use super::start::start_of;
use crate::held_action::HeldAction;
use crate::nodes::{ActionHost, Start};
use async_trait::async_trait;
use std::sync::Arc;
use treadle_actions::Outputs;
use treadle_model::tenant::split;
use treadle_model::{ActionId, Tenant};
use treadle_wire::ErrorBody;

#[async_trait]
impl ActionHost for Arc<Actions> {
    async fn start(&self, action: ActionId, attempt: u32) -> Option<Start> {
        let start = start_of(&self.driver, action, attempt).await?;
        match self.blobs.body(&start.spec).await {
            Ok(body) => Some(for_node(start, &body)),
            Err(cause) => {
                tracing::error!(%action, cause, "the command of an action can't be read");
                None
            }
        }
    }

    async fn keep_output(
        &self,
        action: ActionId,
        bytes: Vec<u8>,
    ) -> Result<Option<Box<str>>, Box<str>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let known = self.driver.action(action).await.ok().flatten();
        let known = known.ok_or("treadle is shutting down")?;
        let (tenant, _) = split(&known.spec.job);
        let kept = Outputs::put(&self.blobs, tenant, bytes).await;
        kept.map(Some).map_err(|error| error.to_string().into())
    }

    async fn hold(
        &self,
        tenant: &Tenant,
        action: &HeldAction,
        token: &str,
    ) -> Result<ActionId, ErrorBody> {
        let admitted = self.put_held(tenant, action, token).await;
        admitted.map_err(super::Failure::into_refusal)
    }

    async fn cancel(&self, tenant: &Tenant, action: ActionId) {
        let _ = super::Actions::cancel(self, tenant, action).await;
    }

    async fn live(&self, programs: &[(String, String)]) -> Result<Vec<bool>, ErrorBody> {
        let live = self.live_of(programs).await;
        live.map_err(super::Failure::into_refusal)
    }
}
