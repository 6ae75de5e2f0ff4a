//! How a run is coordinated: what systems differ in.

use super::hardware::Hardware;
use super::judges::Judges;
use super::shaper::Shaping;
use super::workload::Workload;
use serde::Serialize;
use treadle_core::training::{JobSettings, LAG_MAX, REDUNDANCY_MOST, Stale};

/// What bounds the age of what is trained.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// Each group's lag, in training steps.
    Lag {
        /// The most.
        lag: u64,
        /// Batches that are begun ahead.
        pipeline: u64,
    },
    /// Only the sum, as in `AReaL`: at most `(eta + version + 1)` batches of groups have begun.
    Aggregate {
        /// The most.
        eta: u64,
    },
}

/// When engines get new weights.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Update {
    /// Once nothing runs.
    Idle,
    /// At once: what runs is computed again under the new weights, and goes on.
    InFlight,
}

/// Whether engines sample while weights travel to their hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Transfer {
    /// They do.
    Hidden,
    /// They stand still.
    Exposed,
}

/// How programs and their environments take turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Interaction {
    /// Each trajectory at its own pace.
    Trajectory,
    /// All trajectories turn by turn: the next turn begins once all environments have answered.
    Batched,
}

/// When rewards are computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rewarding {
    /// As soon as a trajectory ends.
    AtOnce,
    /// Once all have ended.
    Together,
}

/// When the trainer begins with the log probabilities of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Streaming {
    /// Once it has the batch.
    None,
    /// While tokens are sampled (`DARTS` appendix E).
    Tokens,
}

/// A system with its settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    /// The bound.
    pub(super) bound: Bound,
    /// Updates.
    pub(super) update: Update,
    /// Transfers.
    pub(super) transfer: Transfer,
    /// Turns.
    pub(super) interaction: Interaction,
    /// Rewards.
    pub(super) rewarding: Rewarding,
    /// Judges.
    pub(super) judges: Judges,
    /// Streaming.
    pub(super) streaming: Streaming,
    /// Domains that run on a class of accelerators, by name; others run on any.
    pub(super) affinity: Vec<Affinity>,
    /// The shaping policy.
    pub(super) shaping: Shaping,
    /// What becomes of groups that are too old.
    pub(super) stale: Stale,
}

/// Where a domain runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(super) struct Affinity {
    /// The domain.
    pub(super) domain: &'static str,
    /// The accelerator.
    pub(super) gpu: &'static str,
}

impl System {
    /// Everything that is common knowledge, and nothing sampled ahead.
    pub(super) fn sync_plus() -> Self {
        Self {
            bound: Bound::Lag {
                lag: 0,
                pipeline: 0,
            },
            update: Update::Idle,
            transfer: Transfer::Hidden,
            interaction: Interaction::Trajectory,
            rewarding: Rewarding::AtOnce,
            judges: Judges::Serverless,
            streaming: Streaming::None,
            affinity: Vec::new(),
            shaping: Shaping::default(),
            stale: Stale::Cut,
        }
    }

    /// Turns and rewards in batches, on accelerators that are held for judges.
    pub(super) fn sync(judge_gpus: u32) -> Self {
        Self {
            transfer: Transfer::Exposed,
            interaction: Interaction::Batched,
            rewarding: Rewarding::Together,
            judges: Judges::Held(judge_gpus),
            ..Self::sync_plus()
        }
    }

    /// Trains on the batch before, all of whose trajectories end under one version.
    pub(super) fn one_off() -> Self {
        Self {
            bound: Bound::Lag {
                lag: 1,
                pipeline: 0,
            },
            ..Self::sync_plus()
        }
    }

    /// Bounds staleness in the sum, and only where trajectories begin.
    pub(super) fn areal(eta: u64) -> Self {
        Self {
            bound: Bound::Aggregate { eta },
            update: Update::InFlight,
            ..Self::sync_plus()
        }
    }

    /// Bounds the lag of each group.
    pub(super) fn treadle(lag: u64, pipeline: u64) -> Self {
        Self {
            bound: Bound::Lag { lag, pipeline },
            update: Update::InFlight,
            ..Self::sync_plus()
        }
    }

    /// What the core is told of the job.
    pub(super) fn settings(&self, members: u16, groups: u32) -> JobSettings {
        let (lag_max, pipeline) = match self.bound {
            Bound::Lag { lag, pipeline } => (lag, pipeline),
            // The rule on the sum is the run's own: the core bounds only the pace.
            Bound::Aggregate { eta } => (LAG_MAX, eta),
        };
        JobSettings {
            group_size: members,
            batch_groups: groups,
            lag_max,
            pipeline,
            stale: self.stale,
            redundancy_max: REDUNDANCY_MOST.min(4),
            rewarded: true,
            member_timeout_s: treadle_core::training::MEMBER_TIMEOUT_MAX_S,
            ..JobSettings::default()
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    /// The seed of the work.
    pub(super) seed: u64,
    /// The work.
    pub(super) workload: Workload,
    /// The accelerators.
    pub(super) hardware: Hardware,
    /// The system.
    pub(super) system: System,
    /// Groups in a batch.
    pub(super) groups: u32,
    /// Members of a group that are trained.
    pub(super) members: u16,
    /// Training steps.
    pub(super) steps: u64,
    /// Steps before those that count.
    pub(super) warmup: u64,
    /// Whether the core's invariants are checked after each event.
    pub(super) audited: bool,
}
