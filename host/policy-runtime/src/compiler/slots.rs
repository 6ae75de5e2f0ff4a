//! Limits on concurrent compilations and on their queue.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A bounded number of slots with a bounded queue before them.
pub(crate) struct Slots {
    occupancy: Mutex<Occupancy>,
    freed: Condvar,
    /// Number of slots.
    most: usize,
    /// Maximum number of waiting callers.
    most_waiting: usize,
}

#[derive(Default)]
struct Occupancy {
    slots: usize,
    waiting: usize,
}

/// Releases its slot when dropped.
pub(crate) struct Slot<'s>(&'s Slots);

impl Slots {
    pub(crate) fn new(most: usize, most_waiting: usize) -> Self {
        Self {
            occupancy: Mutex::default(),
            freed: Condvar::new(),
            most,
            most_waiting,
        }
    }

    /// Waits for a slot; `None` if too many callers wait already. The wait ends, because every
    /// holder of a slot has a time limit.
    pub(crate) fn take(&self) -> Option<Slot<'_>> {
        let mut occupancy = self.lock();
        if occupancy.slots >= self.most {
            if occupancy.waiting >= self.most_waiting {
                return None;
            }
            occupancy.waiting += 1;
            let has_none = |occupancy: &mut Occupancy| occupancy.slots >= self.most;
            occupancy = self
                .freed
                .wait_while(occupancy, has_none)
                .unwrap_or_else(PoisonError::into_inner);
            occupancy.waiting -= 1;
        }
        occupancy.slots += 1;
        Some(Slot(self))
    }

    fn lock(&self) -> MutexGuard<'_, Occupancy> {
        self.occupancy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.lock().slots -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_than_the_slots_run_and_all_get_one() {
        let slots = Slots::new(2, 10);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _slot = slots.take().expect("there is room to wait");
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!(most.into_inner() <= 2);
        assert_eq!(slots.lock().slots, 0);
    }

    #[test]
    fn beyond_the_queue_there_is_a_refusal() {
        let slots = Slots::new(1, 0);
        let slot = slots.take();
        assert!(slot.is_some() && slots.take().is_none());
        drop(slot);
        assert!(slots.take().is_some());
    }
}
