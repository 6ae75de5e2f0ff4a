//! The model's state of each step, program and worker.

use std::collections::BTreeSet;
use treadle_core::memory::Capacity;
use treadle_core::programs::Purpose;
use treadle_core::programs::WorkerState;
use treadle_model::{ProgramId, StepId, Timestamp, WorkerId};

/// How a step ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    Finished,
    Failed,
    Refused,
    Cancelled,
    Interrupted,
}

impl Ending {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The place of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum At {
    /// Just arrived or taken back: the core has not decided its place yet.
    Hand,
    /// In the queue.
    Queue,
    /// At a worker, with the number of the worker's life.
    Worker(WorkerId, u32),
}

#[derive(Clone, Debug)]
pub(super) struct StepFacts {
    pub(super) program: ProgramId,
    pub(super) at: At,
    /// When its waiting would have begun had it waited without a break: time
    /// at engines does not count.
    pub(super) waits_since: Timestamp,
    /// When it was sent to its current engine.
    pub(super) sent_at: Timestamp,
    /// Tokens of its prompt: counted, or the core's estimate.
    pub(super) prompt_tokens: u64,
    /// Whether these were counted, not estimated.
    pub(super) exact: bool,
    /// Output tokens that the core reserved when the step arrived.
    pub(super) reserved_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) began: bool,
    pub(super) attempts: u32,
    pub(super) slot: Option<u32>,
    /// Whether an earlier daemon sent it, unknown to this one.
    pub(super) adopted: bool,
    /// Priorities that answers have given to its program while it waited.
    pub(super) priorities: BTreeSet<i32>,
}

impl StepFacts {
    pub(super) fn demand_tokens(&self) -> u64 {
        self.prompt_tokens + self.output_tokens.max(self.reserved_tokens)
    }
}

#[derive(Clone, Debug)]
pub(super) struct ProgramFacts {
    pub(super) key: Box<str>,
    pub(super) job: Box<str>,
    pub(super) steps: BTreeSet<StepId>,
    pub(super) place: Option<WorkerId>,
    pub(super) placed_before: bool,
    /// When it was placed.
    pub(super) placed_at: Timestamp,
    pub(super) context_tokens: u64,
    pub(super) steps_finished: u32,
    pub(super) closing: bool,
    pub(super) inferred: bool,
    /// Programs that have named it as their waiting parent since its last step.
    pub(super) awaited: BTreeSet<ProgramId>,
    pub(super) parent: Option<Box<str>>,
    /// When one of those awaited, or of those that they await, last finished a step.
    pub(super) family_step_at: Timestamp,
    /// Since when (in settled time) it has no step, and nothing happens to its
    /// cache.
    pub(super) idle_since_us: u64,
    /// Number of steps that were sent to engines.
    pub(super) steps_sent: u64,
}

#[derive(Clone, Debug)]
pub(super) struct WorkerFacts {
    pub(super) healthy: bool,
    pub(super) leaving: bool,
    /// Its state as set by operators.
    pub(super) state: WorkerState,
    pub(super) capacity: Capacity,
    /// Number of times that it was lost: whatever was sent to it before is gone.
    pub(super) life: u32,
    /// Since when (in settled time) it has been above its high watermark.
    pub(super) over_since_us: Option<u64>,
    /// The largest number of programs between steps there since then.
    pub(super) over_idle_most: usize,
}

impl WorkerFacts {
    /// Whether it accepts programs.
    pub(super) fn takes_programs(&self) -> bool {
        self.healthy && self.state == WorkerState::Active
    }

    pub(super) fn context_tokens_max(&self) -> u64 {
        let pool = self.capacity.tokens.unwrap_or(u64::MAX);
        pool.min(self.capacity.context_tokens_max.unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) purpose: Purpose,
    pub(super) candidates: Vec<ProgramId>,
    pub(super) deadline: Timestamp,
}

/// A restore question with its answer.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) candidates: Vec<ProgramId>,
    /// Programs in the answer; all if it was invalid.
    pub(super) named: BTreeSet<ProgramId>,
}
