//! Limits transfers to one at a time per worker and direction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::TransferError;

/// Number of lanes beyond which unused ones are removed.
const LANES_KEPT: usize = 1_024;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Direction {
    Out,
    In,
}

/// A worker's URL, and the direction.
type Key = (Box<str>, Direction);

struct Lane {
    /// Permits for running and waiting transfers.
    places: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

/// The lanes of all workers.
pub(crate) struct Lanes {
    lanes: Mutex<BTreeMap<Key, Arc<Lane>>>,
    waiting_max: usize,
}

/// The permit of a running transfer; dropping it lets the next one run.
#[derive(Debug)]
pub(crate) struct Turn {
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Lanes {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            lanes: Mutex::default(),
            waiting_max,
        }
    }

    /// Waits for a permit; fails if too many transfers wait.
    pub(crate) async fn enter(
        &self,
        worker: &str,
        direction: Direction,
    ) -> Result<Turn, TransferError> {
        let lane = self.lane(worker, direction);
        let place =
            Arc::clone(&lane.places)
                .try_acquire_owned()
                .map_err(|_| TransferError::Busy {
                    worker: worker.into(),
                    waiting: self.waiting_max,
                })?;
        let turn = Arc::clone(&lane.turn)
            .acquire_owned()
            .await
            .map_err(|error| TransferError::internal("a transfer's permit", error))?;
        Ok(Turn {
            _turn: turn,
            _place: place,
        })
    }

    fn lane(&self, worker: &str, direction: Direction) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= LANES_KEPT {
            lanes.retain(|_, lane| {
                Arc::strong_count(lane) > 1 || lane.places.available_permits() <= self.waiting_max
            });
        }
        let lane = lanes.entry((worker.into(), direction)).or_insert_with(|| {
            Arc::new(Lane {
                places: Arc::new(Semaphore::new(self.waiting_max + 1)),
                turn: Arc::new(Semaphore::new(1)),
            })
        });
        Arc::clone(lane)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_few_wait() {
        let lanes = Lanes::new(1);
        let first = lanes.enter("a", Direction::Out).await.unwrap();
        let mut second = pin!(lanes.enter("a", Direction::Out));
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        let third = lanes.enter("a", Direction::Out).await.unwrap_err();
        assert_eq!(third.code(), "busy");
        lanes.enter("a", Direction::In).await.unwrap();
        lanes.enter("b", Direction::Out).await.unwrap();
        drop(first);
        assert!(matches!(
            second.as_mut().poll(&mut context),
            Poll::Ready(Ok(_))
        ));
    }

    #[tokio::test]
    async fn lanes_of_the_past_are_forgotten() {
        let lanes = Lanes::new(1);
        let held = lanes.enter("held", Direction::In).await.unwrap();
        for worker in 0..2 * LANES_KEPT {
            lanes
                .enter(&worker.to_string(), Direction::In)
                .await
                .unwrap();
        }
        assert!(lanes.lanes.lock().unwrap().len() <= LANES_KEPT);
        let mut again = pin!(lanes.enter("held", Direction::In));
        let mut context = Context::from_waker(Waker::noop());
        assert!(again.as_mut().poll(&mut context).is_pending());
        drop(held);
    }
}
