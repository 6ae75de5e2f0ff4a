//! Recovery: the latest snapshot, and the events after it replayed.

use treadle_core::{Core, CoreConfig, Event, State};
use treadle_model::Timestamp;
use treadle_store::{Store, StoreError};

/// Events read from the store at once.
const PAGE_EVENTS: u32 = 10_000;

/// Why the journal does not replay.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A snapshot is not readable.
    #[error(
        "the snapshot at event {seq} cannot be read: {error}; it was written by another version"
    )]
    Snapshot {
        /// Its position.
        seq: u64,
        /// What the reader said.
        error: serde_json::Error,
    },
    /// An event is not readable.
    #[error("event {seq} cannot be read: {error}; it was written by another version")]
    Event {
        /// Its position.
        seq: u64,
        /// What the reader said.
        error: serde_json::Error,
    },
}

/// A core as it was when the last event was committed.
pub struct Recovered {
    /// The core.
    pub core: Core,
    /// Position of that event; 0 for an empty journal.
    pub seq: u64,
}

/// Rebuilds the core from the store.
pub async fn recover(store: &dyn Store, config: CoreConfig) -> Result<Recovered, RecoveryError> {
    let snapshot = store.latest_snapshot().await?;
    let (state, mut seq) = match &snapshot {
        Some(snapshot) => {
            let seq = snapshot.seq;
            let state: State = serde_json::from_slice(&snapshot.state)
                .map_err(|error| RecoveryError::Snapshot { seq, error })?;
            (state, seq)
        }
        None => (State::default(), 0),
    };
    let mut core = Core::with_state(config, state);
    loop {
        let rows = store.events_after(seq, PAGE_EVENTS).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let event: Event =
                serde_json::from_str(&row.body).map_err(|error| RecoveryError::Event {
                    seq: row.seq,
                    error,
                })?;
            core.handle(Timestamp(row.at_us), &event);
            seq = row.seq;
            // What was to be done then has been done, or died with the daemon.
            while core.poll_command().is_some() {}
            while core.poll_decision().is_some() {}
        }
    }
    Ok(Recovered { core, seq })
}
