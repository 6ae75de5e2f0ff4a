//! The health of a broker's connections.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::BrokerError;

/// The health of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Connected and accepting messages.
    Connected,
    /// Connected, but the broker accepts no messages because of an alarm.
    Blocked {
        /// Since when, in microseconds of Unix time.
        since_us: u64,
        /// The broker's error.
        reason: String,
    },
    /// Not connected; it keeps reconnecting.
    Disconnected {
        /// Since when, in microseconds of Unix time.
        since_us: u64,
        /// The last observed cause.
        cause: BrokerError,
    },
}

impl Health {
    /// Not connected since now.
    pub(crate) fn disconnected(cause: BrokerError) -> Self {
        Self::Disconnected {
            since_us: unix_us(),
            cause,
        }
    }

    /// Not accepting messages since now.
    pub(crate) fn blocked(reason: String) -> Self {
        Self::Blocked {
            since_us: unix_us(),
            reason,
        }
    }

    /// Whether it is connected and accepts messages.
    pub const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected)
    }

    /// A name: `connected`, `blocked`, `disconnected`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Blocked { .. } => "blocked",
            Self::Disconnected { .. } => "disconnected",
        }
    }

    /// Why it is unavailable.
    pub fn cause(&self) -> Option<BrokerError> {
        match self {
            Self::Connected => None,
            Self::Blocked { reason, .. } => Some(BrokerError::Blocked {
                reason: reason.clone(),
            }),
            Self::Disconnected { cause, .. } => Some(cause.clone()),
        }
    }

    const fn badness(&self) -> u8 {
        match self {
            Self::Connected => 0,
            Self::Blocked { .. } => 1,
            Self::Disconnected { .. } => 2,
        }
    }

    /// Keeps the start time if the state has the same kind.
    fn continued(self, before: Option<&Self>) -> Self {
        match (self, before) {
            (Self::Disconnected { cause, .. }, Some(Self::Disconnected { since_us, .. })) => {
                Self::Disconnected {
                    since_us: *since_us,
                    cause,
                }
            }
            (Self::Blocked { reason, .. }, Some(Self::Blocked { since_us, .. })) => Self::Blocked {
                since_us: *since_us,
                reason,
            },
            (now, _) => now,
        }
    }
}

/// Combines the health of several connections into that of the worst.
#[derive(Debug)]
pub(crate) struct Board {
    sender: watch::Sender<Health>,
    parts: Mutex<Vec<Health>>,
}

impl Board {
    /// A board without parts.
    pub(crate) fn new() -> Self {
        Self {
            sender: watch::Sender::new(Health::disconnected(BrokerError::Connecting)),
            parts: Mutex::default(),
        }
    }

    /// Adds an unconnected part; returns its number for [`Board::set`].
    pub(crate) fn add(&self) -> usize {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(Health::disconnected(BrokerError::Connecting));
        parts.len() - 1
    }

    /// Sets the health of a part.
    pub(crate) fn set(&self, part: usize, health: Health) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let health = health.continued(parts.get(part));
        if let Some(slot) = parts.get_mut(part) {
            *slot = health;
        }
        let worst = parts
            .iter()
            .max_by_key(|health| health.badness())
            .cloned()
            .unwrap_or(Health::Connected);
        self.sender.send_if_modified(|shown| {
            let changed = *shown != worst;
            *shown = worst;
            changed
        });
    }

    /// A receiver of the combined health.
    pub(crate) fn watch(&self) -> watch::Receiver<Health> {
        self.sender.subscribe()
    }
}

fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_part_is_shown_and_keeps_its_start() {
        let board = Board::new();
        let (first, second) = (board.add(), board.add());
        let health = board.watch();
        board.set(first, Health::Connected);
        assert!(!health.borrow().is_connected());
        board.set(second, Health::Connected);
        assert!(health.borrow().is_connected());
        board.set(second, Health::disconnected(BrokerError::Closed));
        let Health::Disconnected { since_us, .. } = health.borrow().clone() else {
            panic!("{:?}", health.borrow());
        };
        let later = Health::Disconnected {
            since_us: since_us + 5,
            cause: BrokerError::Connecting,
        };
        board.set(second, later);
        let shown = health.borrow().clone();
        assert_eq!(
            shown,
            Health::Disconnected {
                since_us,
                cause: BrokerError::Connecting
            }
        );
        board.set(first, Health::blocked("memory".into()));
        assert_eq!(health.borrow().word(), "disconnected");
    }
}
