//! Turns to be made: so many sandboxes at once, and those first that a command waits for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How soon a sandbox is needed; the lesser is first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Need {
    /// A command waits for it.
    Now,
    /// A command will come.
    Later,
}

/// Turns to be made. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    arrived: u64,
    is_closed: bool,
    /// Those that wait, in the order in which they are served.
    waiting: BTreeMap<Place, (String, oneshot::Sender<Turn>)>,
    /// Where each of them is.
    places: BTreeMap<String, Place>,
}

type Place = (Need, u64);

/// A turn, which is over once this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Turns);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().free += 1;
        self.0.serve();
    }
}

impl Turns {
    /// So many at once.
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

    /// Waits for a sandbox's turn; `None` once there are no turns any more. Its need is asked for once no
    /// [`want`](Self::want) can be missed.
    pub(crate) async fn take(&self, id: &str, need: impl Fn() -> Need) -> Option<Turn> {
        let turn = {
            let mut state = self.lock();
            if state.is_closed {
                return None;
            }
            state.arrived += 1;
            let need = need();
            let (place, (give, turn)) = ((need, state.arrived), oneshot::channel());
            state.waiting.insert(place, (id.to_owned(), give));
            state.places.insert(id.to_owned(), place);
            turn
        };
        self.serve();
        turn.await.ok()
    }

    /// A command waits for a sandbox.
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

    /// Gives no turns any more.
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
            // Where nobody waits any more, it comes back as it is dropped.
            let _ = next.send(Turn(self.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_that_a_command_waits_for_are_first() {
        let turns = Turns::new(1);
        let first = turns.take("a", || Need::Later).await.expect("it is free");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for (id, need) in [("b", Need::Later), ("c", Need::Later), ("d", Need::Now)] {
            let (turns, order) = (turns.clone(), order.clone());
            waiting.push(tokio::spawn(async move {
                let turn = turns.take(id, || need).await;
                order.lock().expect("no panic").push(id);
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        let given_up = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take("e", || Need::Now).await.is_some() }
        });
        tokio::task::yield_now().await;
        given_up.abort();
        turns.want("c");
        turns.want("nobody");
        drop(first);
        for each in waiting {
            each.await.expect("no panic");
        }
        // `c` came before `d`.
        assert_eq!(*order.lock().expect("no panic"), ["c", "d", "b"]);
        assert!(
            turns.take("f", || Need::Later).await.is_some(),
            "none was lost"
        );
        turns.close();
        assert!(turns.take("g", || Need::Now).await.is_none());
    }
}
