//! The engine's input and output.

use std::sync::Arc;

/// Identifies a request within one engine; the caller chooses it.
pub type RequestId = u64;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpec {
    /// Identity, unique among the requests that the engine still holds.
    pub id: RequestId,
    /// Length of the prompt in tokens, at least one.
    pub prompt_tokens: u32,
    /// Number of tokens to generate, at least one: the model can't know it, so the caller sets it.
    pub output_tokens: u32,
    /// Chained hashes of the full blocks of prompt and output together, in order: each must depend
    /// on all tokens before its end. Blocks past the end of the list are computed but never shared;
    /// hashes past the end of the output are ignored, so that one list can serve all steps of a
    /// context that only grows.
    pub blocks: Arc<[u64]>,
    /// Lower values run earlier; equal ones in order of arrival.
    pub priority: i32,
}

/// Why the engine refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id is in use.
    #[error("request id {0} is still in the engine: use a fresh id")]
    DuplicateId(RequestId),
    /// There is nothing to compute.
    #[error("prompt_tokens and output_tokens must be at least 1")]
    Empty,
    /// The request could never fit.
    #[error(
        "prompt_tokens plus output_tokens is {wanted_tokens} but the engine holds {limit_tokens} \
         per sequence: shorten the prompt or lower max_tokens"
    )]
    TooLong {
        /// Prompt plus output.
        wanted_tokens: u64,
        /// The engine's limit.
        limit_tokens: u32,
    },
    /// The endpoint has no such rank.
    #[error("there is no rank {rank}: the ranks are 0 to {}", ranks - 1)]
    NoRank {
        /// The rank that was named.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// All its output tokens were generated.
    Generated,
    /// It was aborted, or the engine failed.
    Aborted,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The request's id.
    pub id: RequestId,
    /// Time of submission, in microseconds.
    pub submitted_at_us: u64,
    /// Time of its first token, in microseconds; `None` if there was none.
    pub first_token_at_us: Option<u64>,
    /// Time of its end, in microseconds.
    pub at_us: u64,
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub output_tokens: u32,
    /// Prompt tokens found in the prefix cache at its first admission.
    pub cached_tokens: u32,
    /// Number of preemptions, for any reason.
    pub preemptions: u32,
    /// Why it ended.
    pub reason: FinishReason,
}

/// A report of the engine. Reports are in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The first token of a request.
    FirstToken {
        /// The request's id.
        id: RequestId,
        /// End of the iteration, in microseconds.
        at_us: u64,
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
    },
    /// Further tokens of a request; the first is not among them.
    Tokens {
        /// The request's id.
        id: RequestId,
        /// End of the iteration that completed them, in microseconds.
        at_us: u64,
        /// Number of tokens since the last report.
        count: u32,
    },
    /// A request lost its memory to one before it in order and will be computed again.
    Preempted {
        /// The request's id.
        id: RequestId,
        /// Start of the iteration, in microseconds.
        at_us: u64,
    },
    /// A request is complete.
    Finished(Finished),
}

/// Totals since the engine was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Prompt tokens of admitted requests, first admissions only.
    pub prefix_queries_tokens: u64,
    /// Those of them found in the prefix cache.
    pub prefix_hits_tokens: u64,
    /// Those of these found in host memory.
    pub host_hits_tokens: u64,
    /// Tokens loaded from host memory.
    pub loaded_tokens: u64,
    /// Prompt tokens of finished requests.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Tokens computed that were not single decode tokens.
    pub prefilled_tokens: u64,
    /// Tokens computed again after a preemption.
    pub recomputed_tokens: u64,
    /// Requests preempted for lack of memory.
    pub preemptions: u64,
    /// Requests preempted for one of higher priority.
    pub priority_preemptions: u64,
    /// Blocks imported into the prefix cache.
    pub imported_blocks: u64,
    /// Cached blocks evicted to make room.
    pub evicted_blocks: u64,
    /// Requests that generated all their tokens.
    pub finished_requests: u64,
    /// Requests aborted.
    pub aborted_requests: u64,
    /// Iterations started.
    pub iterations: u64,
    /// Time spent in iterations, in microseconds.
    pub busy_us: u64,
}

/// The current state of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSnapshot {
    /// Number of sequences that hold memory.
    pub running: u32,
    /// Number of requests that wait for memory or a slot.
    pub waiting: u32,
    /// Number of blocks that sequences hold.
    pub used_blocks: u32,
    /// Total number of blocks.
    pub total_blocks: u32,
    /// Totals since the engine was created.
    pub counters: Counters,
}

impl Counters {
    fn plus(self, other: Self) -> Self {
        Self {
            prefix_queries_tokens: self.prefix_queries_tokens + other.prefix_queries_tokens,
            prefix_hits_tokens: self.prefix_hits_tokens + other.prefix_hits_tokens,
            host_hits_tokens: self.host_hits_tokens + other.host_hits_tokens,
            loaded_tokens: self.loaded_tokens + other.loaded_tokens,
            prompt_tokens: self.prompt_tokens + other.prompt_tokens,
            generation_tokens: self.generation_tokens + other.generation_tokens,
            prefilled_tokens: self.prefilled_tokens + other.prefilled_tokens,
            recomputed_tokens: self.recomputed_tokens + other.recomputed_tokens,
            preemptions: self.preemptions + other.preemptions,
            priority_preemptions: self.priority_preemptions + other.priority_preemptions,
            imported_blocks: self.imported_blocks + other.imported_blocks,
            evicted_blocks: self.evicted_blocks + other.evicted_blocks,
            finished_requests: self.finished_requests + other.finished_requests,
            aborted_requests: self.aborted_requests + other.aborted_requests,
            iterations: self.iterations + other.iterations,
            busy_us: self.busy_us + other.busy_us,
        }
    }
}

impl EngineSnapshot {
    /// The sum of two: of two ranks of an endpoint, for example.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            used_blocks: self.used_blocks + other.used_blocks,
            total_blocks: self.total_blocks + other.total_blocks,
            counters: self.counters.plus(other.counters),
        }
    }

    /// Share of the blocks that sequences hold, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.used_blocks) / f64::from(self.total_blocks.max(1))
    }
}
