//! Turns of runs: one run at a time, and tenants alternate however many runs each has queued.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Limit on tenants whose latest turn is stored.
const TENANTS_MAX: usize = 1_024;

struct Waiting {
    tenant: Box<str>,
    number: u64,
    called: oneshot::Sender<Turn>,
}

#[derive(Default)]
struct FairQueue {
    taken: bool,
    waiting: Vec<Waiting>,
    /// Counter of turns and of positions in the queue.
    count: u64,
    /// The number of each tenant's latest turn.
    latest: BTreeMap<Box<str>, u64>,
}

/// A fair queue for turns.
#[derive(Clone, Default)]
pub(super) struct Turns {
    queue: Arc<Mutex<FairQueue>>,
}

/// A turn, which ends when it is dropped.
pub(super) struct Turn {
    turns: Turns,
}

impl Turns {
    /// Waits for a turn. Dropping the future gives up the position in the queue.
    pub(super) async fn take(&self, tenant: &str) -> Turn {
        let called = {
            let mut queue = self.lock();
            if !queue.taken {
                queue.taken = true;
                queue.note(tenant);
                return Turn {
                    turns: self.clone(),
                };
            }
            let (called, calls) = oneshot::channel();
            queue.count += 1;
            let number = queue.count;
            let tenant = tenant.into();
            queue.waiting.push(Waiting {
                tenant,
                number,
                called,
            });
            calls
        };
        match called.await {
            Ok(turn) => turn,
            // The sender is dropped only if this receiver is closed, so this is unreachable.
            Err(_) => std::future::pending().await,
        }
    }

    /// Passes the turn to the tenant whose latest turn is the longest ago; within a tenant in order
    /// of arrival.
    fn pass_on(&self) {
        let next = {
            let mut queue = self.lock();
            queue.waiting.retain(|waiting| !waiting.called.is_closed());
            let latest =
                |waiting: &Waiting| queue.latest.get(&waiting.tenant).copied().unwrap_or(0);
            let order = |waiting: &Waiting| (latest(waiting), waiting.number);
            let places = 0..queue.waiting.len();
            let next = places.min_by_key(|place| order(&queue.waiting[*place]));
            queue.taken = next.is_some();
            next.map(|place| {
                let next = queue.waiting.swap_remove(place);
                queue.note(&next.tenant);
                next
            })
        };
        if let Some(next) = next {
            // If the receiver is gone, the turn comes back, and is passed on when it is dropped.
            drop(next.called.send(Turn {
                turns: self.clone(),
            }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FairQueue {
    fn note(&mut self, tenant: &str) {
        self.count += 1;
        self.latest.insert(tenant.into(), self.count);
        if self.latest.len() > TENANTS_MAX {
            let oldest = self.latest.iter().min_by_key(|(_, count)| **count);
            if let Some(oldest) = oldest.map(|(tenant, _)| tenant.clone()) {
                self.latest.remove(&oldest);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn tenants_take_turns_and_cancelled_runs_are_skipped() {
        let turns = Turns::default();
        let first = turns.take("acme").await;
        let mut waiting = Vec::new();
        for tenant in ["acme", "acme", "acme", "beta", "gamma"] {
            let mut wait = Box::pin(turns.take(tenant));
            assert!(wait.as_mut().now_or_never().is_none());
            waiting.push((tenant, Some(wait)));
        }
        // The first of them stops waiting.
        waiting[0].1 = None;
        let mut order = Vec::new();
        let mut turn = first;
        for _ in 0..4 {
            drop(turn);
            let called = waiting.iter_mut().find_map(|(tenant, wait)| {
                let turn = wait.as_mut()?.as_mut().now_or_never()?;
                *wait = None;
                Some((*tenant, turn))
            });
            let (tenant, next) = called.expect("a turn is given");
            order.push(tenant);
            turn = next;
        }
        assert_eq!(order, ["beta", "gamma", "acme", "acme"]);
        drop(turn);
        assert!(turns.take("acme").now_or_never().is_some());
    }

    #[tokio::test]
    async fn an_unclaimed_turn_is_not_lost() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let mut gone = Box::pin(turns.take("b"));
        let mut stays = Box::pin(turns.take("c"));
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(stays.as_mut().now_or_never().is_none());
        // The turn was sent to a caller that leaves before receiving it.
        drop(first);
        drop(gone);
        assert!(stays.as_mut().now_or_never().is_some());
    }
}
