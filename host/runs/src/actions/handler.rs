//! Actions whose work is done by a handler of this daemon, after it has waited for its resources
//! like any action.

use super::submission::RUN_S_MAX;
use super::{Actions, Failure};
use crate::held_action::{HeldAction, TOKEN_CHARS};
use std::sync::Arc;
use std::time::Duration;
use treadle_actions::Hold;
use treadle_model::{ActionId, Tenant};
use treadle_sandbox::random_name;
use treadle_store::ActionRow;
use treadle_wire::{ErrorBody, ErrorCode};

/// How often a waiting action is polled, beside the notification of its end.
const LOOK: Duration = Duration::from_hours(1);

impl Actions {
    /// Waits until a handler may run.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        tenant: &Tenant,
        action: HeldAction,
    ) -> Result<Hold, Failure> {
        let token = random_name(TOKEN_CHARS).map_err(|_| Failure::Stopped)?;
        let mut expected = self.executor.expect(&token);
        let admitted = self.put_held(tenant, &action, &token).await?;
        let mut withdrawal = Withdrawal {
            actions: self.clone(),
            tenant: tenant.clone(),
            action: Some(admitted),
        };
        tokio::select! {
            hold = expected.granted() => {
                withdrawal.action = None;
                Ok(hold)
            }
            ended = self.end_of(tenant, admitted) => {
                let ended = ended?;
                withdrawal.action = None;
                Err(never_began(&ended))
            }
        }
    }

    async fn end_of(&self, tenant: &Tenant, action: ActionId) -> Result<ActionRow, Failure> {
        loop {
            let row = self.ended(tenant, action, LOOK).await?;
            if row.ended_at_us.is_some() {
                return Ok(row);
            }
        }
    }

    /// Records a handler's action, without its program if that is not live.
    pub(crate) async fn put_held(
        &self,
        tenant: &Tenant,
        action: &HeldAction,
        token: &str,
    ) -> Result<ActionId, Failure> {
        match self
            .put_as(tenant, action.submission(token, true, RUN_S_MAX))
            .await
        {
            Err(Failure::Refused(error)) if error.code == ErrorCode::ProgramUnknown => {
                self.put_as(tenant, action.submission(token, false, RUN_S_MAX))
                    .await
            }
            admitted => admitted,
        }
    }

    async fn put_as(
        &self,
        tenant: &Tenant,
        written: serde_json::Value,
    ) -> Result<ActionId, Failure> {
        let submission = serde_json::from_value(written.clone()).map_err(|error| {
            ErrorBody::new(
                ErrorCode::InvalidField,
                format!("the command is invalid: {error}"),
            )
        })?;
        Ok(self.put(tenant, submission, &written).await?.action)
    }
}

fn never_began(row: &ActionRow) -> Failure {
    let outcome = row.outcome.as_deref().unwrap_or("its outcome is unknown");
    let message = format!(
        "action {} did not start: {outcome}; see GET /api/v1/actions/{}",
        row.action, row.action
    );
    ErrorBody::new(ErrorCode::Overloaded, message).into()
}

/// Cancels an action whose handler stopped waiting.
struct Withdrawal {
    actions: Arc<Actions>,
    tenant: Tenant,
    action: Option<ActionId>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some(action) = self.action {
            let (actions, tenant) = (self.actions.clone(), self.tenant.clone());
            tokio::spawn(async move {
                let _ = actions.cancel(&tenant, action).await;
            });
        }
    }
}
