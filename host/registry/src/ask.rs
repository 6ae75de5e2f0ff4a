//! Clients' questions: the reward of a finished program, the number of workers of each degree, the
//! remaining length of programs.

use super::PluginRegistry;
use super::ask_queues::WAITING_MAX;
use serde_json::Value;
use treadle_model::tenant::prefix_of;
use treadle_model::{PolicyRef, World};
use treadle_policy::calls::{self, NoAnswer, RecordedCall};
use treadle_policy::evaluator::{BoundPolicy, PolicyEvaluator, native_policy};
use treadle_policy_runtime::{CallContext, PolicyFault};

/// An answer and the policy that gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributedAnswer {
    /// The policy.
    pub policy: PolicyRef,
    /// The answer, in the form of the contract.
    pub answer: Value,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The question does not match the contract.
    #[error("{0}")]
    BadCall(String),
    /// Only the scheduler asks this world.
    #[error(
        "`world` is `{0}`; give prediction, allocation or reward; only the scheduler asks the others"
    )]
    InPlace(String),
    /// Neither the bound policy nor the built-in default answers.
    #[error("neither the bound policy nor the built-in default could answer: {0}")]
    NoAnswer(PolicyFault),
    /// The bound policy failed.
    #[error("the bound reward policy failed; its log has why")]
    NotBound,
    /// Too many questions of the tenant wait.
    #[error("question limit of this tenant reached ({WAITING_MAX}); retry when one is answered")]
    QueueFull,
    /// The thread of the call ended early.
    #[error("the call of the policy was aborted; try again")]
    EndedEarly,
}

impl PluginRegistry {
    /// Calls the policy bound for the job, and the built-in default if it gives no answer.
    pub async fn ask(
        self: &std::sync::Arc<Self>,
        job: String,
        call: RecordedCall,
    ) -> Result<AttributedAnswer, AskError> {
        let world = World::from_name(&call.world).filter(|world| answers_clients(*world));
        let Some(world) = world else {
            return Err(AskError::InPlace(call.world));
        };
        let turn = self.ask_queues.enter(prefix_of(&job)).await;
        let turn = turn.ok_or(AskError::QueueFull)?;
        let this = self.clone();
        // The policy gets its full deadline, whether its client waits for that or not.
        let asked = tokio::spawn(async move {
            let _turn = turn;
            let own = match world {
                World::Allocation => this.own_instance(world, &job).await,
                _ => None,
            };
            let asking = tokio::task::spawn_blocking(move || match own {
                Some(own) => this.ask_own(world, own, &call),
                None => this.ask_now(world, &job, &call),
            });
            asking.await.map_err(|_| AskError::EndedEarly)?
        });
        asked.await.map_err(|_| AskError::EndedEarly)?
    }

    /// Rewards by the policy bound for the job. The built-in default answers only if it is bound: a
    /// reward must not be another's because a policy failed.
    pub async fn score(
        self: &std::sync::Arc<Self>,
        job: String,
        call: RecordedCall,
    ) -> Result<AttributedAnswer, AskError> {
        let active = |evaluator: &PolicyEvaluator| evaluator.active_for(World::Reward, &job);
        let is_native = self.background.read(active) == native_policy(World::Reward);
        let asked = self.ask(job.clone(), call).await?;
        if asked.policy == native_policy(World::Reward) && !is_native {
            return Err(AskError::NotBound);
        }
        Ok(asked)
    }

    /// A new instance of the policy bound for the job, in a world whose bound instances belong to
    /// the driver. `None` if the built-in default has to answer.
    async fn own_instance(&self, world: World, job: &str) -> Option<BoundPolicy> {
        let (scope, bound) = self.driver.bound_for(world, job).await.ok()??;
        let (digest, config) = (&bound.digest, &bound.config);
        let loaded = self.load(world, &scope, digest, config, None).await;
        loaded.unwrap_or_else(|error| {
            let policy = &bound.policy;
            tracing::warn!(%policy, %error, "the policy was not loaded; the built-in default answers");
            None
        })
    }

    /// Calls an instance created for this question.
    fn ask_own(
        &self,
        world: World,
        mut own: BoundPolicy,
        call: &RecordedCall,
    ) -> Result<AttributedAnswer, AskError> {
        let policy = own.policy;
        match self.background.ask_unbound(&mut own.instance, call) {
            Ok(answer) => Ok(AttributedAnswer { policy, answer }),
            Err(NoAnswer::BadLine(message)) => Err(AskError::BadCall(message)),
            Err(NoAnswer::Fault(fault)) => {
                if fault.is_policys_fault() {
                    tracing::warn!(%policy, %fault, "the policy failed; the built-in default answers");
                }
                self.ask_default(world, call)
            }
        }
    }

    /// Calls the instance bound for the job.
    fn ask_now(
        &self,
        world: World,
        job: &str,
        call: &RecordedCall,
    ) -> Result<AttributedAnswer, AskError> {
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
            return Ok(AttributedAnswer { policy, answer });
        }
        self.ask_default(world, call)
    }

    fn ask_default(&self, world: World, call: &RecordedCall) -> Result<AttributedAnswer, AskError> {
        match self.background.ask_native(call) {
            Ok(answer) => Ok(AttributedAnswer {
                policy: native_policy(world),
                answer,
            }),
            Err(NoAnswer::BadLine(message)) => Err(AskError::BadCall(message)),
            Err(NoAnswer::Fault(fault)) => Err(AskError::NoAnswer(fault)),
        }
    }
}

/// Whether clients may ask a world.
const fn answers_clients(world: World) -> bool {
    matches!(world, World::Prediction | World::Allocation | World::Reward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BindRequest;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use treadle_core::{Core, CoreConfig};
    use treadle_model::Timestamp;
    use treadle_policy::evaluator::{EVERYONE, EvaluatorLimits, PolicyEvaluator, Role};
    use treadle_policy_runtime::{Limits, PolicyEngine};
    use treadle_scheduler::{Clock, DriverOptions, spawn_driver};
    use treadle_store::Location;

    async fn registry() -> Arc<PluginRegistry> {
        let driver = spawn_driver(DriverOptions {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            restarted: false,
            snapshot_seq: 0,
            replay_time: std::time::Duration::ZERO,
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

    async fn bind(registry: &PluginRegistry, job: &str, policy: &str, config: &str) {
        let request = BindRequest {
            world: World::Allocation,
            job: job.to_owned(),
            policy: policy.to_owned(),
            config: config.to_owned(),
            role: Role::Active,
            share_ppm: 0,
        };
        registry.bind(&request, |_| true).await.unwrap();
    }

    /// The name of the policy that answers, without its version, and the answer.
    async fn plan(registry: &Arc<PluginRegistry>, job: &str) -> (String, Value) {
        let call = serde_json::from_value(serde_json::json!({
            "world": "allocation", "function": "parallelism",
            "columns": {
                "gpus": 8, "degree": [1, 2], "token_us": [9.0, 5.0],
                "capacity_tokens": [500, 2_000], "expected_tokens": [50, 60],
            },
        }));
        let asked = registry.ask(job.to_owned(), call.unwrap()).await.unwrap();
        let name = asked.policy.0.split('@').next().unwrap().to_owned();
        (name, asked.answer)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_plan_comes_from_the_policy_that_holds_for_the_job() {
        let registry = registry().await;
        let of_acme = "\u{1f}acme\u{1f}run";
        assert_eq!(plan(&registry, "run").await.0, "default-allocation");
        let all_of_acme = "\u{1f}acme\u{1f}*";
        for (job, config) in [(EVERYONE, "{}"), (all_of_acme, r#"{"degree": 2}"#)] {
            bind(&registry, job, "static-allocation", config).await;
        }
        for (job, counts) in [("run", [8, 0]), (of_acme, [0, 4])] {
            let (policy, answer) = plan(&registry, job).await;
            assert_eq!(policy, "static-allocation");
            assert_eq!(answer, serde_json::json!(counts));
        }
        bind(&registry, of_acme, crate::NATIVE, "{}").await;
        assert_eq!(plan(&registry, of_acme).await.0, "default-allocation");
    }
}
