//! The model's state of each step, program and worker.

use super::prefill::{PromptSpeed, Prompts};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::programs::{FULL_WEIGHT_PPM, GivesWay, WorkerState};
use treadle_core::{Capacity, PrefixSegment, Purpose};
use treadle_model::{EngineKind, ProgramId, StepId, Timestamp, WorkerId};

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

#[allow(clippy::struct_excessive_bools, reason = "facts that are independent")]
#[derive(Clone, Debug)]
pub(super) struct StepFacts {
    pub(super) program: ProgramId,
    pub(super) at: At,
    /// When its waiting would have begun had it waited without a break: time
    /// at engines does not count.
    pub(super) waits_since: Timestamp,
    /// When it was sent to its current engine.
    pub(super) sent_at: Timestamp,
    pub(super) prompt_tokens: u64,
    /// Whether these were counted, not estimated.
    pub(super) exact: bool,
    pub(super) reserved_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) began: bool,
    /// When the first of them arrived.
    pub(super) began_at: Timestamp,
    pub(super) attempts: u32,
    pub(super) slot: Option<u32>,
    /// Whether an earlier daemon sent it, unknown to this one.
    pub(super) adopted: bool,
    /// Its priority in a rollout, once an answer has set it.
    pub(super) priority: i32,
    pub(super) routed: bool,
    /// Whether it is preempted, while it runs.
    pub(super) gives_way: GivesWay,
    /// Counter of when it last began to wait.
    pub(super) queued_as: u64,
}

impl StepFacts {
    pub(super) fn demand_tokens(&self) -> u64 {
        self.prompt_tokens + self.output_tokens.max(self.reserved_tokens)
    }
}

#[allow(clippy::struct_excessive_bools, reason = "facts that are independent")]
#[derive(Clone, Debug)]
pub(super) struct ProgramFacts {
    pub(super) key: Box<str>,
    pub(super) job: Box<str>,
    pub(super) prefix: Vec<PrefixSegment>,
    pub(super) steps: BTreeSet<StepId>,
    pub(super) place: Option<WorkerId>,
    pub(super) placed_before: bool,
    /// When it was placed.
    pub(super) placed_at: Timestamp,
    pub(super) avoid: Option<WorkerId>,
    pub(super) weight_ppm: u32,
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
    pub(super) last_output_tokens: u64,
    /// Whether its worker has computed or received its context.
    pub(super) is_warm: bool,
    /// Whether an engine has reported its cache hits for one of the program's prompts.
    pub(super) was_told: bool,
}

impl ProgramFacts {
    pub(super) fn prefix_tokens(&self) -> u64 {
        self.prefix.iter().map(|segment| segment.tokens).sum()
    }

    pub(super) fn weighted(&self, private_tokens: u64) -> u64 {
        let scaled = u128::from(private_tokens) * u128::from(self.weight_ppm);
        (scaled / u128::from(FULL_WEIGHT_PPM)) as u64
    }
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
    /// Tokens that each shared prefix takes here, by its hash.
    pub(super) shared: BTreeMap<u64, u64>,
    /// Room reserved for programs whose caches are in transfer to it, in tokens.
    pub(super) kept: BTreeMap<ProgramId, u64>,
    /// Share of its capacity, in millionths, that proved to be needed as free space.
    pub(super) free_ppm: Option<u32>,
    /// Tokens that its engine is assumed to cache beyond its KV memory.
    pub(super) beyond_tokens: u64,
    /// Prompts that it has yet to compute.
    pub(super) prompts: Prompts,
    /// Its speed of computing prompts in tokens per second, and the number of samples.
    pub(super) speed: PromptSpeed,
    /// The kind of its software.
    pub(super) kind: EngineKind,
}

impl WorkerFacts {
    /// Whether it accepts programs.
    pub(super) fn takes_programs(&self) -> bool {
        self.healthy && self.state == WorkerState::Active
    }

    pub(super) fn watermark(&self, ppm: u32) -> u64 {
        let share = |tokens: u64| (u128::from(tokens) * u128::from(ppm) / 1_000_000) as u64;
        let tokens = self.capacity.tokens;
        tokens.map_or(u64::MAX, |tokens| share(tokens + self.beyond_tokens))
    }

    pub(super) fn context_tokens_max(&self) -> u64 {
        let pool = self.capacity.tokens.unwrap_or(u64::MAX);
        pool.min(self.capacity.context_tokens_max.unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct JobFacts {
    pub(super) output_x16: u64,
    pub(super) steps_finished: u64,
    pub(super) whole_answers: bool,
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
