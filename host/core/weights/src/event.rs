//! What happened to the weights of engines.

use crate::call::Answer;
use crate::trainer::TrainerCall;
use crate::version::Weights;
use serde::{Deserialize, Serialize};
use treadle_machine::kinds;
use treadle_model::WorkerId;

/// How the engines of a job are updated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpdatePlan {
    /// Engines that must be ready before the first is paused; 0 for more than half.
    pub quorum: u16,
    /// Seconds that engines have to become ready; those that are not by then are left behind.
    pub ready_s: u64,
    /// One engine after the other, instead of all at once: two versions serve meanwhile.
    pub rolling: bool,
}

impl Default for UpdatePlan {
    fn default() -> Self {
        Self {
            quorum: 0,
            ready_s: 600,
            rolling: false,
        }
    }
}

/// Something that happened to the weights of engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WeightsEvent {
    /// Engines of a job are to load a version.
    WeightsPublished {
        /// The job.
        job: Box<str>,
        /// The version.
        weights: Weights,
        /// The engines; empty for those of the job's last update, at first all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        workers: Vec<WorkerId>,
        /// How.
        #[serde(default)]
        plan: UpdatePlan,
    },
    /// A call to an engine ended.
    WeightsCallEnded {
        /// The job.
        job: Box<str>,
        /// The engine.
        worker: WorkerId,
        /// Number of the call.
        number: u64,
        /// How.
        answer: Answer,
    },
    /// A trainer's call to an engine is about to be passed on.
    WeightsRelayed {
        /// The job.
        job: Box<str>,
        /// The engine.
        worker: WorkerId,
        /// The lineage that the job's run is in; 0 without a run.
        #[serde(default)]
        lineage: u32,
        /// The trainer calls all engines: those that come later are the job's too.
        #[serde(default)]
        all: bool,
        /// The call.
        call: TrainerCall,
    },
    /// A trainer's call to an engine ended.
    WeightsRelayEnded {
        /// The job.
        job: Box<str>,
        /// The engine.
        worker: WorkerId,
        /// How.
        answer: Answer,
    },
    /// treadle no longer updates the engines of a job: they serve whatever they have.
    WeightsReleased {
        /// The job.
        job: Box<str>,
    },
}

kinds! {
    WeightsEvent {
        WeightsPublished = "weights_published",
        WeightsCallEnded = "weights_call_ended",
        WeightsReleased = "weights_released",
        WeightsRelayed = "weights_relayed",
        WeightsRelayEnded = "weights_relay_ended",
    }
}

impl WeightsEvent {
    /// The job that it happened to.
    pub fn job(&self) -> &str {
        match self {
            Self::WeightsPublished { job, .. }
            | Self::WeightsCallEnded { job, .. }
            | Self::WeightsRelayed { job, .. }
            | Self::WeightsRelayEnded { job, .. }
            | Self::WeightsReleased { job } => job,
        }
    }

    /// The engine that it happened to, if to one.
    pub fn worker(&self) -> Option<WorkerId> {
        match self {
            Self::WeightsCallEnded { worker, .. }
            | Self::WeightsRelayed { worker, .. }
            | Self::WeightsRelayEnded { worker, .. } => Some(*worker),
            Self::WeightsPublished { .. } | Self::WeightsReleased { .. } => None,
        }
    }
}
