//! Leadership: of several daemons on one store, one schedules, and writes under its epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::StoreError;

/// How long a leader may show no sign of life before another one takes over.
pub const LEASE: Duration = Duration::from_secs(3);
/// Time between two signs of life of a leader.
pub const SIGN_INTERVAL: Duration = Duration::from_millis(500);

/// The leadership state of a handle among the others on its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Does not lead.
    #[default]
    Follower,
    /// Leads.
    Leader {
        /// Under this epoch.
        epoch: u64,
    },
    /// Led, until another one took over; whatever it writes is refused. It may campaign again.
    Superseded,
}

/// A candidate for the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name; not empty.
    pub name: String,
    /// Where the others reach it.
    pub url: String,
}

/// The present or last leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderRow {
    /// Its name.
    pub name: String,
    /// Where the others reach it.
    pub url: String,
    /// Its epoch.
    pub epoch: u64,
    /// Since when.
    pub since_us: u64,
    /// Its last sign of life. The leader of a SQLite file gives none after the first: its lock ends
    /// with its process.
    pub seen_us: u64,
    /// The time now, by the same clock, which is the database's.
    pub now_us: u64,
}

/// A handle's own term; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    held: Arc<AtomicU64>,
    leadership: watch::Sender<Leadership>,
}

impl Term {
    /// Leads not.
    pub(crate) fn new() -> Self {
        Self {
            held: Arc::default(),
            leadership: watch::Sender::new(Leadership::Follower),
        }
    }

    /// The epoch under which this handle writes.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// The epoch, if this handle leads.
    pub(crate) fn leading(&self) -> Option<u64> {
        match *self.leadership.borrow() {
            Leadership::Leader { epoch } => Some(epoch),
            Leadership::Follower | Leadership::Superseded => None,
        }
    }

    /// Leads from now on.
    pub(crate) fn begin(&self, epoch: u64) {
        self.held.store(epoch, Ordering::Release);
        self.leadership.send_replace(Leadership::Leader { epoch });
    }

    /// Another one took over.
    pub(crate) fn supersede(&self) {
        self.leadership.send_if_modified(|leadership| {
            let led = matches!(leadership, Leadership::Leader { .. });
            if led {
                *leadership = Leadership::Superseded;
            }
            led
        });
    }

    /// Steps down voluntarily.
    pub(crate) fn end(&self) {
        self.held.store(0, Ordering::Release);
        self.leadership.send_replace(Leadership::Follower);
    }

    /// Whether a write is allowed, given the epoch of the last one that led.
    pub(crate) fn admit(&self, current: u64) -> Result<(), StoreError> {
        let held = self.held();
        if held == current {
            return Ok(());
        }
        self.supersede();
        Err(StoreError::Fenced { held, current })
    }

    /// Notifies of changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }
}
