//! Permits of commands, which the daemon grants.

use crate::upstream::Upstream;
use async_trait::async_trait;
use std::sync::Arc;
use treadle_actions::{Executor, Hold};
use treadle_model::{ActionId, Tenant};
use treadle_runs::actions::Failure;
use treadle_runs::nodes::{Answer, Question, refusal};
use treadle_runs::sandboxes::Turns;
use treadle_runs::{HeldAction, TOKEN_CHARS};
use treadle_sandbox::random_name;

/// Requests permits from the daemon.
pub(super) struct OfDaemon {
    executor: Executor,
    upstream: Arc<Upstream>,
}

/// Cancels an action whose handler stopped waiting.
struct Withdrawal {
    upstream: Arc<Upstream>,
    action: ActionId,
    tenant: Option<String>,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.upstream
            .waits_no_longer(self.action, self.tenant.take());
    }
}

impl OfDaemon {
    pub(super) fn new(executor: Executor, upstream: Arc<Upstream>) -> Self {
        Self { executor, upstream }
    }
}

#[async_trait]
impl Turns for OfDaemon {
    async fn hold(&self, tenant: &Tenant, action: HeldAction) -> Result<Hold, Failure> {
        let token = random_name(TOKEN_CHARS).map_err(|_| Failure::Stopped)?;
        let mut expected = self.executor.expect(&token);
        let tenant = tenant.name().to_owned();
        let question = Question::Hold {
            tenant: tenant.clone(),
            token,
            action,
        };
        let (Answer::Held { action }, Some(over)) = self.upstream.ask(question).await? else {
            return Err(Failure::Stopped);
        };
        let mut withdrawal = Withdrawal {
            upstream: self.upstream.clone(),
            action,
            tenant: Some(tenant),
        };
        tokio::select! {
            hold = expected.granted() => {
                withdrawal.tenant = None;
                Ok(hold)
            }
            _ = over => {
                withdrawal.tenant = None;
                let message =
                    format!("action {action} did not start; see GET /api/v1/actions/{action}");
                Err(refusal("overloaded", message).into())
            }
        }
    }

    async fn live(&self, programs: &[(String, String)]) -> Result<Vec<bool>, Failure> {
        let programs = programs.to_vec();
        match self.upstream.ask(Question::Live { programs }).await? {
            (Answer::Live { live }, _) => Ok(live),
            _ => Err(Failure::Stopped),
        }
    }
}
