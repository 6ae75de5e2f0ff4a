//! The promised order of deliveries: `docs/messaging.md`, "Events".

use std::collections::BTreeSet;

/// Follows the numbers of the messages in one queue, which count from 1 without a gap.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: u64,
    /// Messages that a killed broker had handed out undelivered, and delivers again after newer
    /// ones.
    late: BTreeSet<u64>,
    late_max: usize,
}

impl Order {
    /// Allows this many late messages from now on: as many as the broker hands out before it waits
    /// for acknowledgements. Before the broker is killed, none may be late.
    pub(crate) fn broker_is_killed(&mut self, prefetch: u16) {
        self.late_max = prefetch.into();
    }

    /// Records a delivery; `false` if its number came before.
    ///
    /// # Panics
    /// If messages are missing that the broker must deliver before this one.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        if number <= self.last {
            return self.late.remove(&number);
        }
        self.late.extend(self.last + 1..number);
        let late = self.late.len();
        assert!(
            late <= self.late_max,
            "{number} after {}: {self:?}",
            self.last
        );
        self.last = number;
        true
    }

    /// Whether all messages up to the latest have arrived.
    pub(crate) fn is_whole(&self) -> bool {
        self.late.is_empty()
    }

    /// The greatest number that arrived.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}
