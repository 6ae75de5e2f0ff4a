//! Clients that wait for the end of an action.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use treadle_model::ActionId;
use treadle_wire::{ErrorBody, ErrorCode};

/// The message if the limit is reached.
const FULL: &str =
    "the limit on clients that wait for actions is reached; leave `wait_s` out, or retry later";

/// All clients that wait for actions.
#[derive(Clone, Debug)]
pub(super) struct Waiters {
    open: Arc<Mutex<Open>>,
    waiters_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    /// Nothing is ever sent: the channel ends with the action.
    by_action: HashMap<ActionId, (watch::Sender<()>, usize)>,
    by_tenant: HashMap<Box<str>, usize>,
    count: usize,
}

/// A waiting client, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    open: Arc<Mutex<Open>>,
    tenant: Box<str>,
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

    /// The limit on waiting clients.
    pub(super) fn most(&self) -> usize {
        self.waiters_max
    }

    /// Adds a client of a tenant with this limit.
    ///
    /// # Errors
    /// The limit is reached.
    pub(super) fn enter(
        &self,
        tenant: &str,
        action: ActionId,
        own_max: usize,
    ) -> Result<Waiting, ErrorBody> {
        let mut open = lock(&self.open);
        if open.count >= self.waiters_max {
            return Err(ErrorBody::new(ErrorCode::Overloaded, FULL));
        }
        let own = open.by_tenant.entry(tenant.into()).or_default();
        if *own >= own_max {
            let message = format!(
                "{own} clients of the tenant `{tenant}` wait for actions, which is its share; \
                 leave `wait_s` out, or retry later"
            );
            return Err(ErrorBody::new(ErrorCode::TenantBusy, message));
        }
        *own += 1;
        open.count += 1;
        let entry = open.by_action.entry(action);
        let (sender, waiting) = entry.or_insert_with(|| (watch::Sender::new(()), 0));
        *waiting += 1;
        Ok(Waiting {
            open: self.open.clone(),
            tenant: tenant.into(),
            action,
            ended: sender.subscribe(),
        })
    }

    /// Notifies all clients that wait for an action that it has ended.
    pub(super) fn over(&self, action: ActionId) {
        lock(&self.open).by_action.remove(&action);
    }
}

impl Waiting {
    /// Completes once the action has ended or the wait has timed out.
    pub(super) async fn told(mut self, wait: Duration) {
        let _ = tokio::time::timeout(wait, self.ended.changed()).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.count -= 1;
        if let Some(own) = open.by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                open.by_tenant.remove(&self.tenant);
            }
        }
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
        let waiters = Waiters::new(3);
        let enter = |tenant, action| waiters.enter(tenant, ActionId(action), 2);
        let (one, two) = (enter("red", 1), enter("red", 1));
        let busy = enter("red", 2).err().map(|error| error.code);
        assert_eq!(busy, Some(ErrorCode::TenantBusy), "that is its share");
        let other = enter("blue", 2).expect("it has a share of its own");
        let full = enter("green", 2).err().map(|error| error.code);
        assert_eq!(full, Some(ErrorCode::Overloaded));
        drop((two, other));
        let hour = Duration::from_hours(1);
        let told = tokio::spawn(one.expect("there is room").told(hour));
        tokio::task::yield_now().await;
        waiters.over(ActionId(1));
        told.await.expect("it does not panic");
        let late = enter("red", 3).expect("there is room");
        late.told(Duration::from_millis(1)).await;
        let open = lock(&waiters.open);
        assert_eq!(
            (open.count, open.by_action.len(), open.by_tenant.len()),
            (0, 0, 0)
        );
    }
}
