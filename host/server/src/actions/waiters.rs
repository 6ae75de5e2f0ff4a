//! Clients that wait for the end of an action.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use treadle_model::ActionId;

/// What a client is told for which there is no room.
pub(super) const FULL: &str =
    "as many clients wait for actions as may; ask without `wait_s`, or again later";

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Waiters {
    open: Arc<Mutex<Open>>,
    waiters_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    /// Nothing is ever sent: the channel ends with the action.
    by_action: HashMap<ActionId, (watch::Sender<()>, usize)>,
    count: usize,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    open: Arc<Mutex<Open>>,
    action: ActionId,
    ended: watch::Receiver<()>,
}

impl Waiters {
    pub(super) fn new(waiters_max: usize) -> Self {
        Self {
            open: Arc::default(),
            waiters_max,
        }
    }

    /// One more, if there is room.
    pub(super) fn enter(&self, action: ActionId) -> Option<Waiting> {
        let mut open = lock(&self.open);
        if open.count >= self.waiters_max {
            return None;
        }
        open.count += 1;
        let entry = open.by_action.entry(action);
        let (sender, waiting) = entry.or_insert_with(|| (watch::Sender::new(()), 0));
        *waiting += 1;
        Some(Waiting {
            open: self.open.clone(),
            action,
            ended: sender.subscribe(),
        })
    }

    /// Tells all who wait for an action that it is over.
    pub(super) fn over(&self, action: ActionId) {
        lock(&self.open).by_action.remove(&action);
    }
}

impl Waiting {
    /// Completes once the action is over or so much time has passed.
    pub(super) async fn told(mut self, wait: Duration) {
        let _ = tokio::time::timeout(wait, self.ended.changed()).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.count -= 1;
        if let Some((_, waiting)) = open.by_action.get_mut(&self.action) {
            *waiting -= 1;
            if *waiting == 0 {
                open.by_action.remove(&self.action);
            }
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_told_and_leaves_nothing_behind() {
        let waiters = Waiters::new(2);
        let (one, two) = (waiters.enter(ActionId(1)), waiters.enter(ActionId(1)));
        assert!(waiters.enter(ActionId(2)).is_none());
        drop(two);
        let hour = Duration::from_hours(1);
        let told = tokio::spawn(one.expect("there is room").told(hour));
        tokio::task::yield_now().await;
        waiters.over(ActionId(1));
        told.await.expect("it does not panic");
        let late = waiters.enter(ActionId(3)).expect("there is room");
        late.told(Duration::from_millis(1)).await;
        let open = lock(&waiters.open);
        assert_eq!((open.count, open.by_action.len()), (0, 0));
    }
}
