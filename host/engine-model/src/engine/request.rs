//! What goes into the engine and what comes out of it.

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
    /// Tokens that it will generate, at least one: the model cannot know, so the caller gives them.
    pub output_tokens: u32,
    /// Chained hashes of the full blocks of prompt and output together, in order: each must depend
    /// on all tokens before its end. Blocks past the end of the list are computed but never shared;
    /// hashes past the end of the output are not looked at, so that one list can serve all steps of
    /// a context that only grows.
    pub blocks: Arc<[u64]>,
    /// Lower runs earlier; equal ones in order of arrival.
    pub priority: i32,
}

/// Why the engine refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id is in use.
    #[error("request id {0} is still in the engine: use a fresh id")]
    DuplicateId(RequestId),
    /// Nothing to compute.
    #[error("prompt_tokens and output_tokens must be at least 1")]
    Empty,
    /// It could never fit.
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
    /// Which request.
    pub id: RequestId,
    /// When it came in, in microseconds.
    pub submitted_at_us: u64,
    /// When its first token was there, in microseconds; `None` if it never got one.
    pub first_token_at_us: Option<u64>,
    /// When it ended, in microseconds.
    pub at_us: u64,
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub output_tokens: u32,
    /// Prompt tokens found in the prefix cache at its first admission.
    pub cached_tokens: u32,
    /// How often it was preempted, for whatever reason.
    pub preemptions: u32,
    /// Why it ended.
    pub reason: FinishReason,
}

/// What the engine reports, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The first token of a request.
    FirstToken {
        /// Which request.
        id: RequestId,
        /// End of the iteration, in microseconds.
        at_us: u64,
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
    },
    /// Further tokens of a request; the first is not among them.
    Tokens {
        /// Which request.
        id: RequestId,
        /// End of the iteration that completed them, in microseconds.
        at_us: u64,
        /// How many since the last report.
        count: u32,
    },
    /// A request lost its memory to one before it in order and will be computed again.
    Preempted {
        /// Which request.
        id: RequestId,
        /// Start of the iteration, in microseconds.
        at_us: u64,
    },
    /// A request is complete.
    Finished(Finished),
}

/// Totals since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Prompt tokens of admitted requests, first admissions only.
    pub prefix_queries_tokens: u64,
    /// Those of them that the prefix cache held.
    pub prefix_hits_tokens: u64,
    /// Those of these that were in host memory.
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
    /// Blocks put into the prefix cache from outside.
    pub imported_blocks: u64,
    /// Cached blocks evicted for room.
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

/// The state of the engine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSnapshot {
    /// Sequences that hold memory.
    pub running: u32,
    /// Requests that wait for memory or a slot.
    pub waiting: u32,
    /// Blocks that sequences hold.
    pub used_blocks: u32,
    /// All blocks.
    pub total_blocks: u32,
    /// Totals.
    pub counters: Counters,
}

impl EngineSnapshot {
    /// Share of the blocks that sequences hold, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.used_blocks) / f64::from(self.total_blocks.max(1))
    }
}
