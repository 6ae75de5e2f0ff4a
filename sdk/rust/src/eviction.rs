//! The world `eviction`: which programs keep their place in a worker's KV cache,
//! and which come back first.

use crate::columns::columns;
use crate::{Phase, Policy, PolicyError};

columns! {
    /// Acting programs on one worker, one row each.
    ActingColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// Time in the tool call so far, in milliseconds.
        phase_ms: u64,
    }
}

columns! {
    /// Active programs on one worker, one row each.
    ActiveColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// What each does.
        phase: Phase,
        /// Time in the present phase, in milliseconds.
        phase_ms: u64,
        /// LLM calls finished so far.
        steps: u32,
    }
}

columns! {
    /// Waiting programs, paused or never started, one row each.
    WaitingColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// Reasoning where an LLM call is ready to be sent.
        phase: Phase,
        /// Time in the waiting queue, in milliseconds.
        waited_ms: u64,
        /// LLM calls finished so far.
        steps: u32,
    }
}

columns! {
    /// Programs that act at one worker, one row each. A time is [`u64::MAX`] if the operation is
    /// impossible.
    RetentionColumns
    rows {
        /// Context length in tokens.
        tokens: u64,
        /// Time in the tool call so far, in milliseconds.
        phase_ms: u64,
        /// Expected remaining time of the tool call, in milliseconds: the mean of what remained of
        /// earlier calls of this job and tool that had lasted as long.
        idle_ms: u64,
        /// Time in which one in ten of such calls ended, in milliseconds.
        soonest_ms: u64,
        /// Time to bring the cache back from host memory, in milliseconds.
        back_ms: u64,
        /// Time to move the cache to another worker, in milliseconds.
        moved_ms: u64,
        /// Time to compute the cache again, in milliseconds; 0 if the worker's speed is unknown.
        prefill_ms: u64,
        /// LLM calls finished so far.
        steps: u32,
    }
    beside {
        /// Tokens that the worker holds, [`u64::MAX`] if unknown.
        capacity_tokens: u64,
        /// Tokens left below the worker's low watermark; negative if it holds more.
        free_tokens: i64,
        /// Tokens that waiting programs without a place need.
        wanted_tokens: u64,
    }
}

/// What to do with the KV cache of an acting program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum CacheAction {
    /// It stays, and so does the program's place.
    #[default]
    Keep,
    /// It goes to host memory, and comes back with the program.
    Offload,
    /// It goes to a worker with room.
    Migrate,
    /// It is dropped, and computed again when the program comes back.
    Drop,
}

impl CacheAction {
    /// All actions, in the order of the contract.
    pub const ALL: [Self; 4] = [Self::Keep, Self::Offload, Self::Migrate, Self::Drop];

    /// The action's name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Offload => "offload",
            Self::Migrate => "migrate",
            Self::Drop => "drop",
        }
    }
}

/// A policy of the world `eviction`. Answers depend only on the configuration, the columns and
/// [`host::now_ms`](crate::host::now_ms).
pub trait EvictionPolicy: Policy {
    /// Functions of the contract that the policy implements.
    const FUNCTIONS: &'static [&'static str] = &["weigh", "pause-order", "restore-order"];

    /// The share of each acting program's tokens that counts against capacity:
    /// within 0 and 1, and no larger after a longer time in the same tool call.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per active program; the highest is paused first, on equal
    /// scores the first row.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// A finite score per waiting program; the highest is restored first, on equal
    /// scores the first row.
    ///
    /// # Errors
    /// Any [`PolicyError`]; the host then decides by its built-in default.
    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError>;

    /// The action for the cache of each acting program. An impossible one counts as
    /// [`CacheAction::Keep`]. The default leaves the decision to the host, which keeps all caches.
    ///
    /// # Errors
    /// Any [`PolicyError`]; all caches then stay.
    fn retain(&mut self, programs: &RetentionColumns<'_>) -> Result<Vec<CacheAction>, PolicyError> {
        let _ = programs;
        Err(PolicyError::not_supported())
    }
}
