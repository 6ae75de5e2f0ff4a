//! How a store is: what can't be written at present and since when, and whether it is still there.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::StoreError;

/// A failure that was neither repeated nor followed by a success for so long is told no more.
const TOLD_FOR: Duration = Duration::from_mins(10);
/// A write that is under way for longer is as good as one that fails.
const UNDER_WAY_MAX: Duration = Duration::from_secs(5);

/// Something that can't be done at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// What: `journal`, `snapshots`, `bodies` and so on, or `reading`.
    pub what: &'static str,
    /// Microseconds since 1970 of the first failure; nothing has succeeded since.
    pub since_us: u64,
    /// How long ago that was.
    pub lasts: Duration,
    /// The last failure, with its remedy.
    pub error: String,
}

/// How a store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// What can't be done at present, by name.
    pub failing: Vec<Failing>,
    /// Failures so far, by what failed.
    pub failures: Vec<(&'static str, u64)>,
    /// Why nothing is read or written any more: what was opened is not there any more.
    pub lost: Option<Arc<str>>,
}

impl Condition {
    /// What can't be written of the journal, without which nothing is acknowledged.
    pub fn journal(&self) -> Option<&Failing> {
        self.failing.iter().find(|failing| failing.what == JOURNAL)
    }
}

/// What is written of the journal, with the projections.
pub(crate) const JOURNAL: &str = "journal";
/// What is read.
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

/// What a handle has seen of its store.
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

/// A write under way; ends when this is dropped.
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

    /// Does something, and remembers how it went.
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

    /// Remembers how something went. A refusal of what was asked says nothing about the store.
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

    /// What was opened is gone. The first reason stays.
    pub(crate) fn lose(&self, why: &str) -> Arc<str> {
        self.lost.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert_with(|| why.into());
            is_first
        });
        self.lost.borrow().clone().unwrap_or_else(|| why.into())
    }

    /// Refuses once what was opened is gone.
    pub(crate) fn demand(&self) -> Result<(), StoreError> {
        match &*self.lost.borrow() {
            Some(why) => Err(StoreError::Lost { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Notifies once what was opened is gone.
    pub(crate) fn lost(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.lost.subscribe()
    }

    /// How the store is now.
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

/// A write that gets no answer.
fn stuck(what: &'static str, waited: Duration) -> Failing {
    Failing {
        what,
        since_us: now_us().saturating_sub(waited.as_micros() as u64),
        lasts: waited,
        error: format!(
            "the store has given no answer for {} s; check its disk, its load and its locks",
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
    async fn a_failure_is_told_until_the_same_succeeds() {
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
    async fn a_refusal_says_nothing_about_the_store() {
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
    fn a_write_without_an_answer_is_told_and_forgotten_with_it() {
        let conditions = Conditions::default();
        let under_way = conditions.begin(JOURNAL);
        assert!(conditions.now().failing.is_empty());
        let long_ago = Instant::now().checked_sub(UNDER_WAY_MAX * 2).unwrap();
        for (_, since) in conditions.known().under_way.values_mut() {
            *since = long_ago;
        }
        let told = conditions.now().journal().cloned().unwrap();
        assert!(told.error.contains("no answer for 10 s"), "{}", told.error);
        drop(under_way);
        assert!(conditions.now().failing.is_empty());
    }
}
