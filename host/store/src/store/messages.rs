//! What consumers of the journal have received, and which commands were received from senders.

use async_trait::async_trait;

use crate::{CommandRow, SinkRow, StoreError};

/// Positions of the consumers of the journal.
#[async_trait]
pub trait Sinks: Send + Sync {
    /// The last event that a sink has received; 0 for none.
    async fn sink_cursor(&self, sink: &str) -> Result<u64, StoreError>;

    /// Records that a sink has received all events up to this one. Never goes back.
    ///
    /// # Errors
    /// [`StoreError::Ahead`] if the journal does not reach that event, [`StoreError::TooLarge`]
    /// past [`SINKS_MAX`](crate::SINKS_MAX).
    async fn advance_sink(&self, sink: &str, seq: u64) -> Result<(), StoreError>;

    /// All sinks, by name.
    async fn sinks(&self) -> Result<Vec<SinkRow>, StoreError>;

    /// Removes a sink, so that no events are kept for it. `true` if it existed.
    async fn drop_sink(&self, sink: &str) -> Result<bool, StoreError>;
}

/// Received commands, so that each is carried out once.
#[async_trait]
pub trait Commands: Send + Sync {
    /// Records that a command was received. `true` if it is new; otherwise nothing changes.
    async fn note_command(&self, command: &CommandRow) -> Result<bool, StoreError>;

    /// One command; `None` if it is unknown or was pruned.
    async fn command(&self, command: &str) -> Result<Option<CommandRow>, StoreError>;

    /// Sets the result of a command. `true` if the command is stored.
    async fn settle_command(&self, command: &str, outcome: &str) -> Result<bool, StoreError>;

    /// Removes commands received before this time, at most
    /// [`PRUNE_ROWS_MAX`](crate::PRUNE_ROWS_MAX); returns their number.
    async fn prune_commands(&self, before_us: u64) -> Result<u64, StoreError>;
}
