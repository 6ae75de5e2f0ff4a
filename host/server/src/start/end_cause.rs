//! Why a running daemon can't go on.

/// Why a running daemon can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndCause {
    /// Another daemon leads the store.
    #[error("the store accepts no more writes: another daemon schedules on it; see the log")]
    Superseded,
    /// The opened store is gone.
    #[error(
        "{0}; nothing has been acknowledged since; put the original files back or restore a \
         backup, and restart the daemon"
    )]
    StoreLost(String),
}
