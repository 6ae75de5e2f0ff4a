//! Questions to policies and their answers, in columns: the layout in which they are passed into a
//! sandbox without conversion row by row.

use serde::{Deserialize, Serialize};
use treadle_model::{PolicyRef, ProgramId, Span, StepId, WorkerId, World};

/// Data on the programs of a question; all columns have the same length.
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
    /// Cost estimates.
    pub costs: Box<CostEstimates>,
}

/// Cost estimates of programs, one row each: how long a cache would sit idle, and what bringing it
/// back would cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostEstimates {
    /// Expected remaining time of its tool call, by those of its job and tool that lasted as long;
    /// 0 unless it acts.
    pub idle: Vec<Span>,
    /// Time within which one in ten of such calls ends.
    pub soonest: Vec<Span>,
    /// The price of holding the cache until such a call ends, per end that is reached, with the
    /// best time to stop holding it ([`crate::estimates::Rest::price`]).
    #[serde(default)]
    pub price: Vec<Span>,
    /// Time to load its cache from host memory; [`NEVER`](crate::estimates::NEVER) without host memory.
    pub back: Vec<Span>,
    /// Time to move it to another worker; [`NEVER`](crate::estimates::NEVER) if that is not possible.
    pub moved: Vec<Span>,
    /// Time to compute it again.
    pub prefill: Vec<Span>,
    /// Predicted number of tokens still to generate; -1 without a prediction.
    pub remaining_tokens: Vec<i64>,
}

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

/// The kind of a question.
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
    /// What to do with the caches of acting programs at the worker.
    Retain {
        /// The worker.
        worker: WorkerId,
        /// The worker's capacity, in tokens.
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
    /// Which programs should be on another worker (§5.3). The answer may leave out those that stay.
    Migrate,
    /// Which running steps to preempt for those that wait for the worker (Algorithm 1). The rows
    /// are the programs of both; the answer names those to preempt.
    Preempt {
        /// The worker.
        worker: WorkerId,
    },
}

impl Purpose {
    /// True if the answer is an order, false if it is weights or cache actions.
    pub const fn is_ordering(self) -> bool {
        !matches!(self, Self::Weigh { .. } | Self::Retain { .. })
    }

    /// The world that answers it.
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
    /// Its kind.
    pub purpose: Purpose,
    /// Its programs.
    pub programs: ProgramColumns,
}

/// An answer, in the compact form that the core uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PolicyAnswer {
    /// Programs in the order in which to pause, restore, place or move them.
    Order {
        /// The programs, first first.
        programs: Vec<ProgramId>,
        /// Their scores: the priority of their steps when one is placed or sent, otherwise only
        /// kept for explanations.
        scores: Vec<f64>,
        /// The worker that a placement policy chose for each of them; empty if none was asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        workers: Vec<Option<WorkerId>>,
        /// Predicted number of tokens still to generate for each of them, -1 without a prediction;
        /// empty if there are no predictions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remaining_tokens: Vec<i64>,
    },
    /// Weights that changed, in millionths.
    Weights {
        /// Program and weight.
        weights: Vec<(ProgramId, u32)>,
    },
    /// Cache actions; caches that are not named stay where they are.
    CacheActions {
        /// Program and cache action.
        actions: Vec<(ProgramId, CacheAction)>,
    },
}

/// What to do with the KV cache of an acting program.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheAction {
    /// It stays, and so does the program's placement.
    Keep,
    /// It goes to host memory, and comes back with the program.
    Offload,
    /// It moves to a worker with room.
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

/// Attribution of an answer beyond the policy that it names: the versions among which a canary
/// shares the programs, and the placement policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// Versions that evaluated some of the rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRef>,
    /// The evaluator of each row of the answer: 0 for the policy that the answer names, n for the
    /// nth of `policies`. Empty if all rows are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answered_by: Vec<u8>,
    /// Placement policies that chose workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placers: Vec<PolicyRef>,
    /// The index in `placers` of the policy that chose each row's worker. Empty if the first chose
    /// all.
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
