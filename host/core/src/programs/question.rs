//! Questions to policies and their answers, in columns: the shape in which
//! they cross into a sandbox without being rebuilt row by row.

use serde::{Deserialize, Serialize};
use treadle_model::{PolicyRef, ProgramId, Span, StepId, WorkerId, World};

/// Facts on the programs that a question is about; all columns have one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramColumns {
    /// Which program each row is about.
    pub program: Vec<ProgramId>,
    /// Context that its placement must hold, in tokens, without the shared prefix.
    pub tokens: Vec<u64>,
    /// 1 in a tool call, 0 with a step waiting or running.
    pub acting: Vec<u8>,
    /// Time in its present phase.
    pub phase: Vec<Span>,
    /// Time that its oldest waiting step has waited.
    pub waited: Vec<Span>,
    /// Steps finished so far.
    pub steps: Vec<u32>,
    /// What is expected of it.
    pub costs: Box<CostEstimates>,
}

/// What is expected of programs, one row each: what a cache would gain by
/// staying, and what coming back would cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostEstimates {
    /// Time that its tool call is expected to last yet, by those of its job and
    /// tool that had lasted as long; 0 unless it acts.
    pub idle: Vec<Span>,
    /// Time in which one in ten of such calls ends.
    pub soonest: Vec<Span>,
    /// The price of holding the cache until such a call ends, for each end that is reached, with
    /// the best time to stop holding it ([`crate::distribution::Rest::price`]).
    #[serde(default)]
    pub price: Vec<Span>,
    /// Time to bring its cache back from host memory; [`NEVER`] without one.
    pub back: Vec<Span>,
    /// Time to move it to another worker; [`NEVER`] where that cannot be done.
    pub moved: Vec<Span>,
    /// Time to compute it again.
    pub prefill: Vec<Span>,
    /// Tokens that it is predicted to generate yet; -1 without a prediction.
    pub remaining_tokens: Vec<i64>,
}

/// A time that is longer than any.
pub const NEVER: Span = Span(u64::MAX);

impl ProgramColumns {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.program.len()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.program.is_empty()
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "purpose", rename_all = "snake_case")]
pub enum Purpose {
    /// How much each acting program on the worker counts (eq. 7's f(t)).
    Weigh {
        /// The worker.
        worker: WorkerId,
    },
    /// Which programs to pause first, to free tokens on the worker (eq. 11).
    Pause {
        /// The worker.
        worker: WorkerId,
        /// Tokens to free.
        excess_tokens: u64,
    },
    /// Which waiting programs to place first (eq. 10), and where new ones go (`Heddle` §5.2).
    #[serde(alias = "assign")]
    Restore,
    /// What becomes of the caches of programs that act at the worker.
    Retain {
        /// The worker.
        worker: WorkerId,
        /// Tokens that it holds.
        capacity_tokens: u64,
        /// Tokens left below its low watermark; below 0 if it holds more.
        free_tokens: i64,
        /// Tokens that all programs waiting for placement need.
        wanted_tokens: u64,
    },
    /// Where a step of a placed program goes, and how urgent it is (§4.2).
    Route {
        /// The step.
        step: StepId,
    },
    /// Which programs should be elsewhere (§5.3). The answer may leave out
    /// those that stay.
    Migrate,
    /// Which running steps are preempted for those that wait for the worker (Algorithm 1). The rows
    /// are the programs of both; the answer names those to preempt.
    Preempt {
        /// The worker.
        worker: WorkerId,
    },
}

impl Purpose {
    /// True if an order is asked for, false if weights or cache actions are.
    pub const fn is_ordering(self) -> bool {
        !matches!(self, Self::Weigh { .. } | Self::Retain { .. })
    }

    /// The world that answers.
    pub const fn world(self) -> World {
        match self {
            Self::Weigh { .. } | Self::Pause { .. } | Self::Restore | Self::Retain { .. } => {
                World::Eviction
            }
            Self::Route { .. } | Self::Migrate => World::Placement,
            Self::Preempt { .. } => World::Priority,
        }
    }
}

/// A question to a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What is asked.
    pub purpose: Purpose,
    /// The programs that it is about.
    pub programs: ProgramColumns,
}

/// An answer, in the smallest form that the core uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PolicyAnswer {
    /// Programs in the order in which to pause, restore, place or move them.
    Order {
        /// The programs, first first.
        programs: Vec<ProgramId>,
        /// Their scores: the priority of their steps where one is placed or
        /// sent, else kept for explanations only.
        scores: Vec<f64>,
        /// Where a placement policy wants each of them; empty if none was asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        workers: Vec<Option<WorkerId>>,
        /// Tokens that each of them is predicted to generate yet, -1 without a prediction; empty if
        /// there is none for any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remaining_tokens: Vec<i64>,
    },
    /// Weights that changed, in millionths.
    Weights {
        /// Program and weight.
        weights: Vec<(ProgramId, u32)>,
    },
    /// What becomes of caches; those that are not named stay where they are.
    CacheActions {
        /// Program and cache action.
        actions: Vec<(ProgramId, CacheAction)>,
    },
}

/// What becomes of the KV cache of a program that acts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheAction {
    /// It stays, and so does the program's placement.
    Keep,
    /// It goes to host memory, and comes back with the program.
    Offload,
    /// It goes to a worker with room.
    Migrate,
    /// It is dropped, and computed again when the program comes back.
    Drop,
}

impl CacheAction {
    /// The cache action with this code of the policy contract.
    pub const fn of_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Keep),
            1 => Some(Self::Offload),
            2 => Some(Self::Migrate),
            3 => Some(Self::Drop),
            _ => None,
        }
    }
}

/// Attribution of an answer beyond the policy that it names: the versions between which a canary
/// shares out the programs, and the placement policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// Versions that evaluated some of the rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRef>,
    /// For each row of the answer who evaluated it: 0 for the policy that the answer names, n for
    /// the nth of `policies`. Empty if all rows are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered_by: Vec<u8>,
    /// Placement policies that wished for workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placers: Vec<PolicyRef>,
    /// For each row of the answer which of `placers` chose the worker. Empty if the first did for
    /// all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed_by: Vec<u8>,
}

impl Attribution {
    /// True if no other policy contributed.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.placers.is_empty()
    }

    pub(crate) fn evaluator_of(&self, row: usize) -> usize {
        self.answered_by.get(row).copied().map_or(0, usize::from)
    }

    pub(crate) fn placer_of(&self, row: usize) -> Option<&PolicyRef> {
        let placer = self.placed_by.get(row).copied().unwrap_or(0);
        self.placers.get(usize::from(placer))
    }
}
