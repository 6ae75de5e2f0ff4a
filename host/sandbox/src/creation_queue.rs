//! Limits how many sandboxes are made at once, and prefers those that a command waits for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How soon a sandbox is needed; the lesser is first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Need {
    /// A command is waiting for it.
    Now,
    /// A command may come later.
    Later,
}

/// A queue of sandboxes to be made; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CreationQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    arrived: u64,
    is_closed: bool,
    /// Waiting sandboxes, in the order in which they are served.
    waiting: BTreeMap<Place, (String, oneshot::Sender<CreationSlot>)>,
    /// The position of each waiting sandbox.
    places: BTreeMap<String, Place>,
}

type Place = (Need, u64);

/// A slot, released when this is dropped.
#[derive(Debug)]
pub(crate) struct CreationSlot(CreationQueue);

impl Drop for CreationSlot {
    fn drop(&mut self) {
        self.0.lock().free += 1;
        self.0.serve();
    }
}

impl CreationQueue {
    /// Allows `most` at once.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: most,
            arrived: 0,
            is_closed: false,
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot; `None` when the queue is closed. `need` is read under the lock, so that no
    /// [`want`](Self::want) is missed.
    pub(crate) async fn take(&self, id: &str, need: impl Fn() -> Need) -> Option<CreationSlot> {
        let slot = {
            let mut state = self.lock();
            if state.is_closed {
                return None;
            }
            state.arrived += 1;
            let need = need();
            let (place, (give, slot)) = ((need, state.arrived), oneshot::channel());
            state.waiting.insert(place, (id.to_owned(), give));
            state.places.insert(id.to_owned(), place);
            slot
        };
        self.serve();
        slot.await.ok()
    }

    /// Records that a command waits for a sandbox.
    pub(crate) fn want(&self, id: &str) {
        let mut state = self.lock();
        let Some((Need::Later, arrived)) = state.places.get(id).copied() else {
            return;
        };
        if let Some(waits) = state.waiting.remove(&(Need::Later, arrived)) {
            state.waiting.insert((Need::Now, arrived), waits);
            state.places.insert(id.to_owned(), (Need::Now, arrived));
        }
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.waiting.clear();
        state.places.clear();
    }

    fn serve(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                if state.free == 0 {
                    return;
                }
                let Some((place, (id, give))) = state.waiting.pop_first() else {
                    return;
                };
                if state.places.get(&id) == Some(&place) {
                    state.places.remove(&id);
                }
                state.free -= 1;
                give
            };
            // If the receiver is gone, the slot is released when it is dropped.
            let _ = next.send(CreationSlot(self.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sandboxes_with_waiting_commands_are_first() {
        let queue = CreationQueue::new(1);
        let first = queue.take("a", || Need::Later).await.expect("it is free");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for (id, need) in [("b", Need::Later), ("c", Need::Later), ("d", Need::Now)] {
            let (queue, order) = (queue.clone(), order.clone());
            waiting.push(tokio::spawn(async move {
                let slot = queue.take(id, || need).await;
                order.lock().expect("no panic").push(id);
                drop(slot);
            }));
            tokio::task::yield_now().await;
        }
        let given_up = tokio::spawn({
            let queue = queue.clone();
            async move { queue.take("e", || Need::Now).await.is_some() }
        });
        tokio::task::yield_now().await;
        given_up.abort();
        queue.want("c");
        queue.want("nobody");
        drop(first);
        for each in waiting {
            each.await.expect("no panic");
        }
        // `c` came before `d`.
        assert_eq!(*order.lock().expect("no panic"), ["c", "d", "b"]);
        assert!(
            queue.take("f", || Need::Later).await.is_some(),
            "none was lost"
        );
        queue.close();
        assert!(queue.take("g", || Need::Now).await.is_none());
    }
}
