//! What is promised of the order of deliveries: `docs/messaging.md`, "Events".

use std::collections::BTreeSet;

/// Follows the numbers of the messages in one queue, which count from 1 without a gap.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: u64,
    /// What a killed broker had handed out undelivered, and delivers again after newer messages.
    late: BTreeSet<u64>,
    late_max: usize,
}

impl Order {
    /// From now on so many may be late: as many as the broker hands out before it waits for
    /// acknowledgements. Until it is killed none may be.
    pub(crate) fn broker_is_killed(&mut self, prefetch: u16) {
        self.late_max = prefetch.into();
    }

    /// Takes a delivery; `false` if this number came before.
    ///
    /// # Panics
    /// Where messages are missing that a broker would have delivered before this one.
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

    /// Whether all up to the latest have come.
    pub(crate) fn is_whole(&self) -> bool {
        self.late.is_empty()
    }

    /// The greatest number that came.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}
