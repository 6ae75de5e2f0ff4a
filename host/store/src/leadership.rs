//! Leadership: of several daemons on one store, one schedules and writes, under its epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::StoreError;

/// Time without a heartbeat after which another candidate takes over from a leader.
pub const LEASE: Duration = Duration::from_secs(3);
/// Interval between a leader's heartbeats.
pub const SIGN_INTERVAL: Duration = Duration::from_millis(500);

/// The leadership state of a store handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// This handle does not lead.
    #[default]
    Follower,
    /// This handle leads.
    Leader {
        /// The epoch of its term.
        epoch: u64,
    },
    /// Another handle took over; writes of this one are refused. It may campaign again.
    Superseded,
}

/// A candidate for the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name; not empty.
    pub name: String,
    /// Address at which the other daemons reach it.
    pub url: String,
}

/// The current or last leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderRow {
    /// Its name.
    pub name: String,
    /// Address at which the other daemons reach it.
    pub url: String,
    /// Its epoch.
    pub epoch: u64,
    /// When its term began.
    pub since_us: u64,
    /// Its last heartbeat. The leader of a SQLite file sends only one, when its term begins: its
    /// lock ends with its process.
    pub seen_us: u64,
    /// The current time of the same clock, which is the database's.
    pub now_us: u64,
}

/// The term of a handle; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    held: Arc<AtomicU64>,
    leadership: watch::Sender<Leadership>,
}

impl Term {
    /// A term that has not begun: the handle does not lead.
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

    /// Begins a term under this epoch.
    pub(crate) fn begin(&self, epoch: u64) {
        self.held.store(epoch, Ordering::Release);
        self.leadership.send_replace(Leadership::Leader { epoch });
    }

    /// Ends the term because another handle took over.
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

    /// Checks that a write is allowed, given the epoch of the last leader.
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
