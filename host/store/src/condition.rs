//! Health of a store: which operations fail and since when, and whether its files still exist.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::StoreError;

/// A failure without repetition or success for this long is no longer reported.
const TOLD_FOR: Duration = Duration::from_mins(10);
/// A write that takes longer counts as failing.
const UNDER_WAY_MAX: Duration = Duration::from_secs(5);

/// An operation that fails at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The operation: `journal`, `snapshots`, `bodies` and so on, or `reading`.
    pub what: &'static str,
    /// Time of the first failure since the last success, in microseconds since 1970.
    pub since_us: u64,
    /// Time since the first failure.
    pub lasts: Duration,
    /// The last error, with its remedy.
    pub error: String,
}

/// The health of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Operations that fail at present, by name.
    pub failing: Vec<Failing>,
    /// Number of failures so far, by operation.
    pub failures: Vec<(&'static str, u64)>,
    /// Why the store is lost, if its files were deleted, replaced or truncated. It then neither
    /// reads nor writes.
    pub lost: Option<Arc<str>>,
}

impl Condition {
    /// The failure of writing the journal, if any; nothing is acknowledged while that fails.
    pub fn journal(&self) -> Option<&Failing> {
        self.failing.iter().find(|failing| failing.what == JOURNAL)
    }
}

/// Name of the operation that writes the journal and the projections.
pub(crate) const JOURNAL: &str = "journal";
/// Name of the operation that reads.
pub(crate) const READING: &str = "reading";

#[derive(Debug)]
struct Failure {
    since: Instant,
    since_us: u64,
    last: Instant,
    error: String,
}

#[derive(Debug, Default)]
struct Known {
    failures: BTreeMap<&'static str, Failure>,
    counts: BTreeMap<&'static str, u64>,
    under_way: BTreeMap<u64, (&'static str, Instant)>,
    next: u64,
}

/// The health of a store as seen by one handle.
#[derive(Debug)]
pub(crate) struct Conditions {
    known: Mutex<Known>,
    lost: watch::Sender<Option<Arc<str>>>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            lost: watch::Sender::new(None),
        }
    }
}

/// A write in progress; it ends when this is dropped.
struct UnderWay<'c> {
    conditions: &'c Conditions,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.conditions.known().under_way.remove(&self.number);
    }
}

impl Conditions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation, and records whether it succeeded.
    pub(crate) async fn watch<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let under_way = self.begin(what);
        let done = work.await;
        drop(under_way);
        self.note(what, done.as_ref().err());
        done
    }

    fn begin(&self, what: &'static str) -> UnderWay<'_> {
        let mut known = self.known();
        let number = known.next;
        known.next += 1;
        known.under_way.insert(number, (what, Instant::now()));
        UnderWay {
            conditions: self,
            number,
        }
    }

    /// Records the result of an operation. Errors of the request do not count as failures of the
    /// store.
    pub(crate) fn note(&self, what: &'static str, error: Option<&StoreError>) {
        let Some(error) = error else {
            self.known().failures.remove(what);
            return;
        };
        if !error.is_of_the_store() {
            return;
        }
        let (now, error) = (Instant::now(), error.to_string());
        let mut known = self.known();
        *known.counts.entry(what).or_default() += 1;
        let failure = known.failures.entry(what).or_insert_with(|| Failure {
            since: now,
            since_us: now_us(),
            last: now,
            error: String::new(),
        });
        failure.last = now;
        failure.error = error;
    }

    /// Marks the store as lost. The first reason is kept.
    pub(crate) fn lose(&self, why: &str) -> Arc<str> {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| why.into());
            is_first
        });
        self.lost.borrow().clone().unwrap_or_else(|| why.into())
    }

    /// Returns an error if the store is lost.
    pub(crate) fn demand(&self) -> Result<(), StoreError> {
        match &*self.lost.borrow() {
            Some(why) => Err(StoreError::Lost { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Notifies when the store is lost.
    pub(crate) fn lost(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.lost.subscribe()
    }

    /// The current health.
    pub(crate) fn now(&self) -> Condition {
        let known = self.known();
        let told = known
            .failures
            .iter()
            .filter(|(_, failure)| failure.last.elapsed() < TOLD_FOR);
        let mut failing: Vec<Failing> = told
            .map(|(&what, failure)| Failing {
                what,
                since_us: failure.since_us,
                lasts: failure.since.elapsed(),
                error: failure.error.clone(),
            })
            .collect();
        for &(what, since) in known.under_way.values() {
            let waited = since.elapsed();
            if waited > UNDER_WAY_MAX && failing.iter().all(|failing| failing.what != what) {
                failing.push(stuck(what, waited));
            }
        }
        let counts = known.counts.iter();
        Condition {
            failing,
            failures: counts.map(|(what, count)| (*what, *count)).collect(),
            lost: self.lost.borrow().clone(),
        }
    }
}

/// The failure of a write that is still waiting.
fn stuck(what: &'static str, waited: Duration) -> Failing {
    Failing {
        what,
        since_us: now_us().saturating_sub(waited.as_micros() as u64),
        lasts: waited,
        error: format!(
            "no answer from the store for {} s; check its disk, its load and its locks",
            waited.as_secs()
        ),
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> StoreError {
        StoreError::Database(sqlx::Error::WorkerCrashed)
    }

    #[tokio::test]
    async fn a_failure_is_reported_until_the_operation_succeeds() {
        let conditions = Conditions::default();
        let fail = async || {
            let failed = conditions.watch(JOURNAL, async { Err::<(), _>(full()) });
            failed.await.unwrap_err();
        };
        fail().await;
        let first = conditions.now();
        fail().await;
        let second = conditions.now();
        assert_eq!(second.failures, [(JOURNAL, 2)]);
        let since = |condition: &Condition| condition.journal().map(|failing| failing.since_us);
        assert_eq!(since(&first), since(&second), "the first failure counts");
        conditions.watch("audit", async { Ok(()) }).await.unwrap();
        assert!(conditions.now().journal().is_some(), "of something else");
        conditions.watch(JOURNAL, async { Ok(()) }).await.unwrap();
        assert!(conditions.now().failing.is_empty());
        assert_eq!(conditions.now().failures, [(JOURNAL, 2)]);
    }

    #[tokio::test]
    async fn a_refused_request_is_no_failure_of_the_store() {
        let conditions = Conditions::default();
        for refusal in [StoreError::Orphan, StoreError::Nameless] {
            let refused = conditions.watch(JOURNAL, async { Err::<(), _>(refusal) });
            refused.await.unwrap_err();
        }
        assert_eq!(conditions.now(), Condition::default());
    }

    #[test]
    fn what_is_lost_stays_lost_for_its_first_reason() {
        let conditions = Conditions::default();
        let notice = conditions.lost();
        assert!(conditions.demand().is_ok());
        conditions.lose("it was deleted");
        conditions.lose("it was replaced");
        assert!(notice.has_changed().unwrap());
        let error = conditions.demand().unwrap_err();
        assert!(error.to_string().contains("it was deleted"), "{error}");
        assert!(!error.passes());
    }

    #[test]
    fn a_stuck_write_is_reported_until_it_ends() {
        let conditions = Conditions::default();
        let under_way = conditions.begin(JOURNAL);
        assert!(conditions.now().failing.is_empty());
        let long_ago = Instant::now().checked_sub(UNDER_WAY_MAX * 2).unwrap();
        for (_, since) in conditions.known().under_way.values_mut() {
            *since = long_ago;
        }
        let told = conditions.now().journal().cloned().unwrap();
        assert!(
            told.error.contains("no answer from the store for 10 s"),
            "{}",
            told.error
        );
        drop(under_way);
        assert!(conditions.now().failing.is_empty());
    }
}
