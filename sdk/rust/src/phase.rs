//! The phase of a program.

/// The phase of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Phase {
    /// It has an LLM call in flight or ready to be sent.
    #[default]
    Reasoning,
    /// An action (a tool call) runs.
    Acting,
}
