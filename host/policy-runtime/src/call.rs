//! What a call has besides its columns.

/// The context of one decision. With equal columns, configuration and state, equal contexts give
/// equal answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallContext {
    /// The time of the decision on the job's clock, in milliseconds. It does not advance during the
    /// call.
    pub now_ms: u64,
    /// Seed of this call's random stream, together with the binding's seed.
    pub seed: u64,
    /// Time limit of the answer in milliseconds; `None` for the world's own deadline. A
    /// deterministic engine limits fuel instead and ignores it.
    pub deadline_ms: Option<u64>,
}

impl CallContext {
    /// A call at this time, with seed 0 and the world's own deadline.
    pub const fn at(now_ms: u64) -> Self {
        Self {
            now_ms,
            seed: 0,
            deadline_ms: None,
        }
    }
}

/// Whether scheduling waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It does: `Limits::hot_deadline_ms`.
    Hot,
    /// It does not: `Limits::background_deadline_ms`.
    Background,
}
