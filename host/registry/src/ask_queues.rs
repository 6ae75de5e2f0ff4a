//! Queues of clients' questions, one per tenant: one question is answered at a time, and a slow
//! policy of one tenant delays the others by at most one question.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of waiting questions of one tenant, including the one being answered.
pub(crate) const WAITING_MAX: usize = 64;

/// The queues of all tenants with questions.
#[derive(Default)]
pub(crate) struct AskQueues {
    by_tenant: Mutex<BTreeMap<Box<str>, Arc<Queue>>>,
}

struct Queue {
    places: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

/// A tenant's turn to ask; it ends when this is dropped.
pub(crate) struct Turn {
    _queue: Arc<Queue>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl AskQueues {
    /// Waits for the tenant's turn; `None` at once if too many of its questions wait.
    pub(crate) async fn enter(&self, tenant: &str) -> Option<Turn> {
        let queue = self.queue_of(tenant);
        let place = queue.places.clone().try_acquire_owned().ok()?;
        let turn = queue.turn.clone().acquire_owned().await.ok()?;
        Some(Turn {
            _queue: queue,
            _permits: [place, turn],
        })
    }

    fn queue_of(&self, tenant: &str) -> Arc<Queue> {
        let mut queues = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Queues without another holder are empty.
        queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        let new = || {
            Arc::new(Queue {
                places: Arc::new(Semaphore::new(WAITING_MAX)),
                turn: Arc::new(Semaphore::new(1)),
            })
        };
        queues.entry(tenant.into()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_tenant_that_fills_its_queue_leaves_that_of_others_empty() {
        let queues = AskQueues::default();
        let turn = queues.enter("a").await.expect("nobody is before it");
        let mut waiting: Vec<_> = (1..WAITING_MAX)
            .map(|_| Box::pin(queues.enter("a")))
            .collect();
        for question in &mut waiting {
            assert!(question.now_or_never().is_none(), "it waits for its turn");
        }
        assert!(
            queues
                .enter("a")
                .now_or_never()
                .is_some_and(|turn| turn.is_none())
        );
        assert!(
            queues
                .enter("b")
                .now_or_never()
                .is_some_and(|turn| turn.is_some())
        );
        drop(turn);
        let next = waiting.remove(0).await;
        assert!(next.is_some());
        drop((waiting, next));
        assert!(
            queues
                .enter("a")
                .now_or_never()
                .is_some_and(|turn| turn.is_some())
        );
        assert_eq!(queues.by_tenant.lock().expect("it is whole").len(), 1);
    }
}
