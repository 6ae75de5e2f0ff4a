//! Asking the worlds that scheduling does not wait for: what is a finished program
//! worth, how many units does an action get, how much is still to come.

use super::PluginRegistry;
use super::ask_queues::WAITING_MAX;
use serde_json::Value;
use treadle_model::tenant::prefix_of;
use treadle_model::{PolicyRef, World};
use treadle_policy::calls::{self, NoAnswer, RecordedCall};
use treadle_policy::evaluator::{is_asked_in_place, native_policy};
use treadle_policy_runtime::{CallContext, PolicyFault};

/// An answer and who gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Who answered.
    pub policy: PolicyRef,
    /// What, in the shape of the contract.
    pub answer: Value,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The question makes no sense for the contract.
    #[error("{0}")]
    BadCall(String),
    /// The question has a world that only scheduling asks.
    #[error(
        "`world` is `{0}`; give prediction, allocation or reward: the others are asked by the scheduler"
    )]
    InPlace(String),
    /// No policy answers: neither the bound one nor the built-in default.
    #[error("neither the bound policy nor the built-in default answers this: {0}")]
    NoAnswer(PolicyFault),
    /// Too many questions of the tenant wait.
    #[error(
        "{WAITING_MAX} questions of this tenant wait for an answer, which is the most; ask again when one is answered"
    )]
    QueueFull,
    /// The thread that asked ended early.
    #[error("asking the policy ended early; try again")]
    EndedEarly,
}

impl PluginRegistry {
    /// Asks the policy that is bound for the job, and the built-in default where
    /// it gives no answer.
    pub async fn ask(
        self: &std::sync::Arc<Self>,
        job: String,
        call: RecordedCall,
    ) -> Result<Asked, AskError> {
        let world = World::from_name(&call.world).filter(|world| !is_asked_in_place(*world));
        let Some(world) = world else {
            return Err(AskError::InPlace(call.world));
        };
        let turn = self.ask_queues.enter(prefix_of(&job)).await;
        let turn = turn.ok_or(AskError::QueueFull)?;
        let this = self.clone();
        // A policy has seconds for its answer, whether its client waits for that or not.
        let asked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            this.ask_now(world, &job, &call)
        });
        asked.await.map_err(|_| AskError::EndedEarly)?
    }

    fn ask_now(&self, world: World, job: &str, call: &RecordedCall) -> Result<Asked, AskError> {
        let lengths = call.columns.values().filter_map(Value::as_array);
        let rows = lengths.map(Vec::len).max().unwrap_or(0);
        let mut bad_call = None;
        let bound = self.background.ask(world, job, rows, |instance, now_ms| {
            match calls::ask(instance, &CallContext::at(now_ms), call) {
                Ok(answer) => Ok(answer),
                Err(NoAnswer::Fault(fault)) => Err(fault),
                Err(NoAnswer::BadLine(message)) => {
                    bad_call = Some(message);
                    Err(PolicyFault::NotSupported)
                }
            }
        });
        if let Some(message) = bad_call {
            return Err(AskError::BadCall(message));
        }
        if let Some((policy, answer)) = bound {
            return Ok(Asked { policy, answer });
        }
        match self.background.ask_native(call) {
            Ok(answer) => Ok(Asked {
                policy: native_policy(world),
                answer,
            }),
            Err(NoAnswer::BadLine(message)) => Err(AskError::BadCall(message)),
            Err(NoAnswer::Fault(fault)) => Err(AskError::NoAnswer(fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use treadle_core::{Core, CoreConfig};
    use treadle_model::Timestamp;
    use treadle_policy::evaluator::{EvaluatorLimits, PolicyEvaluator};
    use treadle_policy_runtime::{Limits, PolicyEngine};
    use treadle_scheduler::{Clock, DriverOptions, spawn_driver};
    use treadle_store::Location;

    async fn registry() -> Arc<PluginRegistry> {
        let driver = spawn_driver(DriverOptions {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            clock: Clock::start(Timestamp(0), 1.0),
            policies: PolicyEvaluator::default(),
            journal: None,
            snapshot_events: 1_000,
            forecasts: None,
            transfers: None,
            actions: None,
            notices: None,
        });
        let registry = PluginRegistry::new(
            PolicyEngine::new(Limits::default()).unwrap(),
            treadle_store::open(&Location::Memory).await.unwrap(),
            driver.unwrap(),
            EvaluatorLimits::default(),
            crate::Signing::default(),
            Arc::default(),
            tokio::sync::mpsc::unbounded_channel().0,
        );
        Arc::new(registry.unwrap())
    }

    #[tokio::test]
    async fn a_tenant_that_asks_too_much_leaves_others_their_answers() {
        let registry = registry().await;
        let of_acme = "\u{1f}acme\u{1f}run";
        let ask = async |job: &str| {
            let call = serde_json::from_value(serde_json::json!({
                "world": "reward", "function": "score",
                "columns": {
                    "answer": ["42"], "reference": ["42"], "output_tokens": [1], "steps": [1],
                },
            }));
            registry.ask(job.to_owned(), call.unwrap()).await
        };
        let enter = || registry.ask_queues.enter(prefix_of(of_acme));
        let turn = enter().await;
        let mut waiting: Vec<_> = (1..WAITING_MAX).map(|_| Box::pin(enter())).collect();
        for question in &mut waiting {
            assert!(question.now_or_never().is_none());
        }
        let refused = ask("\u{1f}acme\u{1f}other").await.unwrap_err();
        assert!(matches!(refused, AskError::QueueFull), "{refused}");
        for job in ["run", "\u{1f}beta\u{1f}run"] {
            assert_eq!(ask(job).await.unwrap().answer["totals"][0], 1.0);
        }
        drop((waiting, turn));
        ask(of_acme).await.unwrap();
    }
}
