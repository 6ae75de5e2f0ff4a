//! Explanations: each decision with the policy that made it, its inputs and its alternatives.

use serde::{Deserialize, Serialize};
use treadle_model::{PolicyRef, ProgramId, Span, Timestamp, WorkerId};

/// What was decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// A program was placed for the first time.
    Place,
    /// A paused program was placed again.
    Restore,
    /// A program gave up its placement.
    Pause,
    /// A step went to another worker than its program's previous one.
    Route,
    /// A program's cache should be on another worker.
    Migrate,
    /// A running step was preempted.
    Preempt,
    /// A program's cache goes to host memory, and its placement ends.
    Offload,
    /// A program is placed, and its cache loaded, before its tool returns.
    Prefetch,
    /// A step's prompt is computed by a prefill worker.
    Prefill,
}

impl DecisionKind {
    /// The kind's name, as it is in the journal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Restore => "restore",
            Self::Pause => "pause",
            Self::Route => "route",
            Self::Migrate => "migrate",
            Self::Preempt => "preempt",
            Self::Offload => "offload",
            Self::Prefetch => "prefetch",
            Self::Prefill => "prefill",
        }
    }
}

/// What made the decision necessary or possible.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// A worker had room.
    RoomOnWorker,
    /// It had waited beyond the starvation bound and goes first.
    DeferralBound,
    /// Demand exceeded the worker's high watermark.
    MemoryPressure,
    /// Its tool call has lasted so long that it hardly counts any more.
    LongToolCall,
    /// Room was made for a program beyond the starvation bound.
    RoomForDeferred,
    /// Its worker was lost or removed.
    WorkerGone,
    /// Its worker is being drained.
    WorkerDraining,
    /// Plain routing, which ignores memory.
    PlainRouting,
    /// A placement policy chose the worker for this step.
    Routed,
    /// A faster worker has room and nobody waits: the program's remaining tokens take less time
    /// there, even with computing its context again.
    FasterWorker,
    /// Workers of the class of hardware that it prefers have room, and its remaining tokens take
    /// less time there, even with computing its context again.
    ClassHasRoom,
    /// Its predicted length puts it among the programs of another worker.
    RankChanged,
    /// A more urgent step waits for the worker.
    MoreUrgent,
    /// Its tool call is expected to last longer than its memory is worth.
    LongIdleness,
    /// Its tool is about to return, and there is room.
    ToolAboutToEnd,
    /// Computing its prompt at its own worker would cost that worker's steps more time than a
    /// prefill worker needs, the transfer included.
    LongPrompt,
    /// An earlier scheduler had placed it there, and died before that was on
    /// record.
    Adopted,
}

/// Another program that could have been chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The program.
    pub program: ProgramId,
    /// The program's key, unless it is gone by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// Its score.
    pub score: f64,
}

/// One decision and its explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When it was made.
    pub at: Timestamp,
    /// Its kind.
    pub kind: DecisionKind,
    /// The program.
    pub program: ProgramId,
    /// The program's key.
    pub key: Box<str>,
    /// The worker.
    pub worker: WorkerId,
    /// The policy that decided.
    pub policy: PolicyRef,
    /// The placement policy that chose the worker, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_by: Option<PolicyRef>,
    /// What made it necessary or possible.
    pub because: Because,
    /// The program's demand on that worker, in tokens.
    pub need_tokens: u64,
    /// Tokens in use there before the decision.
    pub used_tokens: u64,
    /// The worker's capacity, if known.
    pub capacity_tokens: Option<u64>,
    /// How long the program's step had waited, or its tool call had lasted.
    pub waited: Span,
    /// The policy's score, if it was asked.
    pub score: Option<f64>,
    /// The best-scored programs that were not chosen, at most three.
    pub alternatives: Vec<Alternative>,
}
