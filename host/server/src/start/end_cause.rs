//! Why a running daemon can't go on.

/// Why a running daemon can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndCause {
    /// Another daemon leads the store.
    #[error(
        "nothing can be put on record any more: another daemon schedules on this store; see the log"
    )]
    Superseded,
    /// What was opened as the store is gone.
    #[error(
        "{0}; nothing was acknowledged since: put the files back as they were, or restore a backup, and start the daemon again"
    )]
    StoreLost(String),
}
