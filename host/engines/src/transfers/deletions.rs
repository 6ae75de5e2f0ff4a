//! The deletion queue: copies that are no longer needed are freed one after another at each
//! location, with retries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use treadle_transfer::{CopyLocation, KvCopy, KvExecutor};

/// Most copies that wait at one location; beyond it the oldest are left to their tier, which
/// reclaims their space eventually.
const WAITING_MAX: usize = 4_096;
/// Maximum number of attempts for each copy.
const ATTEMPTS_MAX: u32 = 4;
/// Pause after an attempt that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The queue of copies to be freed.
pub(super) struct DeletionQueue {
    executor: Arc<dyn KvExecutor>,
    /// Waiting copies by location; there is one task for each location.
    waiting: Arc<Mutex<Waiting>>,
    tasks: JoinSet<()>,
    pause: Duration,
}

type Waiting = BTreeMap<Box<str>, VecDeque<KvCopy>>;

impl DeletionQueue {
    pub(super) fn new(executor: Arc<dyn KvExecutor>) -> Self {
        Self {
            executor,
            waiting: Arc::default(),
            tasks: JoinSet::new(),
            pause: PAUSE,
        }
    }

    /// Queues a copy to be freed.
    pub(super) fn push(&mut self, copy: KvCopy) {
        while self.tasks.try_join_next().is_some() {}
        let place: Box<str> = match &copy.place {
            CopyLocation::Tier { node, .. } => node.clone(),
            CopyLocation::Engine { url, .. }
            | CopyLocation::Storage { url }
            | CopyLocation::Simulated { url } => url.clone(),
        };
        let mut all = lock(&self.waiting);
        let waiting = all.get_mut(&place);
        if let Some(waiting) = waiting {
            if waiting.len() == WAITING_MAX
                && let Some(left) = waiting.pop_front()
            {
                tracing::debug!(copy = %left.id, %place, "the deletion queue is full; a copy is left to its tier");
            }
            return waiting.push_back(copy);
        }
        all.insert(place.clone(), VecDeque::from([copy]));
        let freeing = Freeing {
            executor: self.executor.clone(),
            waiting: self.waiting.clone(),
            place,
            pause: self.pause,
        };
        self.tasks.spawn(freeing.run());
    }

    /// Aborts all deletions in progress.
    pub(super) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Frees the copies that wait at one location, until none are left.
struct Freeing {
    executor: Arc<dyn KvExecutor>,
    waiting: Arc<Mutex<Waiting>>,
    place: Box<str>,
    pause: Duration,
}

impl Freeing {
    async fn run(self) {
        while let Some(copy) = self.next() {
            for attempt in 1..=ATTEMPTS_MAX {
                let dropped = KvExecutor::drop(&*self.executor, copy.clone());
                let Err(error) = dropped.await else {
                    break;
                };
                let (id, place) = (copy.id, &self.place);
                tracing::debug!(%id, %place, attempt, %error, "a copy could not be dropped");
                tokio::time::sleep(self.pause).await;
            }
        }
    }

    /// The next copy; without one, the location's task ends.
    fn next(&self) -> Option<KvCopy> {
        let mut all = lock(&self.waiting);
        let next = all.get_mut(&self.place).and_then(VecDeque::pop_front);
        if next.is_none() {
            all.remove(&self.place);
        }
        next
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use treadle_model::ProgramId;
    use treadle_transfer::{
        CopyId, Export, Import, Imported, Prefix, Support, Tags, TransferError, WorkerRef,
    };

    use super::*;

    /// Drops copies slowly, and only at the third attempt.
    #[derive(Default)]
    struct Slow {
        stats: Mutex<Stats>,
    }

    #[derive(Default)]
    struct Stats {
        at_once: BTreeMap<Box<str>, usize>,
        most_at_once: usize,
        attempts: BTreeMap<CopyId, u32>,
    }

    impl Slow {
        fn stats(&self) -> MutexGuard<'_, Stats> {
            self.stats.lock().unwrap()
        }

        async fn free(&self, copy: KvCopy) -> Result<(), TransferError> {
            let CopyLocation::Tier { node, .. } = &copy.place else {
                panic!("{copy:?}");
            };
            {
                let mut stats = self.stats();
                let at_once = stats.at_once.entry(node.clone()).or_default();
                *at_once += 1;
                let at_once = *at_once;
                stats.most_at_once = stats.most_at_once.max(at_once);
            }
            tokio::task::yield_now().await;
            let mut stats = self.stats();
            *stats.at_once.get_mut(node).unwrap() -= 1;
            let attempts = stats.attempts.entry(copy.id).or_default();
            *attempts += 1;
            if *attempts < 3 {
                return Err(TransferError::Internal {
                    what: "a test",
                    why: "not yet".into(),
                });
            }
            Ok(())
        }
    }

    #[async_trait]
    impl KvExecutor for Slow {
        async fn support(&self, _worker: WorkerRef) -> Result<Support, TransferError> {
            unreachable!()
        }

        async fn export(&self, _export: Export) -> Result<KvCopy, TransferError> {
            unreachable!()
        }

        async fn import(&self, _import: Import) -> Result<Imported, TransferError> {
            unreachable!()
        }

        async fn drop(&self, copy: KvCopy) -> Result<(), TransferError> {
            self.free(copy).await
        }
    }

    fn copy(node: &str) -> KvCopy {
        KvCopy {
            id: CopyId::random().unwrap(),
            program: ProgramId(1),
            tags: Tags {
                model: "m".into(),
                shape: None,
                block_tokens: None,
                dtype: None,
            },
            prefix: Prefix::of(&[1]),
            bytes: 2,
            checksum: None,
            place: CopyLocation::Tier {
                node: node.into(),
                owner: "".into(),
            },
        }
    }

    #[tokio::test]
    async fn one_at_a_time_goes_from_each_node_until_it_is_gone() {
        let slow = Arc::new(Slow::default());
        let mut deletions = DeletionQueue::new(slow.clone());
        deletions.pause = Duration::ZERO;
        for _ in 0..2 {
            for _ in 0..20 {
                deletions.push(copy("a"));
                deletions.push(copy("b"));
            }
            while deletions.tasks.join_next().await.is_some() {}
        }
        let stats = slow.stats();
        assert_eq!(stats.most_at_once, 1);
        assert_eq!(stats.attempts.len(), 80);
        assert!(stats.attempts.values().all(|attempts| *attempts == 3));
        assert!(lock(&deletions.waiting).is_empty());
    }

    #[tokio::test]
    async fn the_oldest_are_left_at_the_bound() {
        let mut deletions = DeletionQueue::new(Arc::new(Slow::default()));
        for _ in 0..WAITING_MAX + 10 {
            deletions.push(copy("a"));
        }
        assert_eq!(lock(&deletions.waiting)["a"].len(), WAITING_MAX);
        assert_eq!(deletions.tasks.len(), 1);
        deletions.shutdown().await;
    }
}
