//! What a program does.

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// It has an LLM call in flight or ready to be sent.
    #[default]
    Reasoning,
    /// An action (a tool call) runs.
    Acting,
}
