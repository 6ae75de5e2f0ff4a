//! An event queue ordered by time; events at the same time are in insertion order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Future events with their times.
#[derive(Debug)]
pub(super) struct Clock<T> {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Option<T>>,
}

impl<T> Clock<T> {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn at(&mut self, at_us: u64, event: T) {
        let number = self.events.len();
        self.events.push(Some(event));
        self.heap.push(Reverse((at_us, number as u64)));
    }

    /// When the next event is due.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// The next event and its time.
    pub(super) fn next(&mut self) -> Option<(u64, T)> {
        let Reverse((at_us, number)) = self.heap.pop()?;
        let event = self.events[number as usize].take()?;
        Some((at_us, event))
    }
}
