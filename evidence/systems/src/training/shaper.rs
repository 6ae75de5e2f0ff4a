//! The shaping policies, linked natively, behind the questions that the core's machine asks.

use darts_shaping::DartsShaping;
use keep_shortest_shaping::KeepShortestShaping;
use partial_rollout_shaping::PartialRolloutShaping;
use tail_batching_shaping::TailBatchingShaping;
use treadle_core::training::{ShapingAnswer, ShapingQuestion};
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};
use treadle_policy::shaping::{Shape, ask};
use uniform_shaping::UniformShaping;

/// Policies that a run can have.
pub(super) const PLUGINS: [&str; 5] = [
    "uniform",
    "tail_batching",
    "keep_shortest",
    "partial_rollout",
    "darts",
];

/// A policy with its configuration, as JSON; none if there is no name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Shaping {
    /// Its name, one of [`PLUGINS`].
    pub(super) plugin: Option<&'static str>,
    /// Its configuration.
    pub(super) config: String,
}

impl Shaping {
    /// A policy with its defaults.
    pub(super) fn of(plugin: &'static str) -> Self {
        Self::with(plugin, "{}")
    }

    /// A policy with this configuration.
    pub(super) fn with(plugin: &'static str, config: &str) -> Self {
        Self {
            plugin: Some(plugin),
            config: config.to_owned(),
        }
    }
}

/// A policy that is called natively.
struct Native<P>(P);

impl<P: ShapingPolicy> Shape for Native<P> {
    type Error = PolicyError;

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        self.0.size(groups)
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        self.0.curtail(members)
    }

    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        self.0.select(members)
    }
}

/// A policy at work.
pub(super) struct Shaper {
    policy: Box<dyn Shape<Error = PolicyError>>,
}

impl Shaper {
    /// `None` without a policy.
    ///
    /// # Errors
    /// The configuration is not one of the policy, or no policy has this name.
    pub(super) fn new(shaping: &Shaping) -> Result<Option<Self>, PolicyError> {
        let config = &shaping.config;
        let policy: Box<dyn Shape<Error = PolicyError>> = match shaping.plugin {
            None => return Ok(None),
            Some("uniform") => Box::new(Native(UniformShaping::configure(config)?)),
            Some("tail_batching") => Box::new(Native(TailBatchingShaping::configure(config)?)),
            Some("keep_shortest") => Box::new(Native(KeepShortestShaping::configure(config)?)),
            Some("partial_rollout") => Box::new(Native(PartialRolloutShaping::configure(config)?)),
            Some("darts") => Box::new(Native(DartsShaping::configure(config)?)),
            Some(other) => {
                return Err(PolicyError::failed(format!(
                    "no shaping policy is called {other}"
                )));
            }
        };
        Ok(Some(Self { policy }))
    }

    /// The policy's answer, or the one that leaves all to the core.
    pub(super) fn answer(&mut self, question: &ShapingQuestion) -> ShapingAnswer {
        let answer = ask(&mut *self.policy, question);
        answer.unwrap_or_else(|_| question.by_default())
    }
}
