//! Evicted copies. This process takes them from a queue; other nodes ask for what they have not
//! received yet, and each sends itself how far it has received, so that no answer that is lost or
//! refused takes news with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use treadle_model::ProgramId;

use crate::{CopyId, KvCopy, TransferError};

/// Evictions that wait to be received; beyond it the oldest are forgotten, and requests for such a
/// copy fail because it is gone.
const EVICTIONS_HELD_MAX: usize = 65_536;
/// Nodes of which it is known how much was received; beyond it all is received again.
const NODES_MAX: usize = 4_096;

/// A copy that was evicted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Evicted {
    /// The copy.
    pub id: CopyId,
    /// Whose it was.
    pub program: ProgramId,
}

impl Evicted {
    pub(crate) fn of(copy: &KvCopy) -> Self {
        Self {
            id: copy.id,
            program: copy.program,
        }
    }
}

/// Up to where a peer has received a tier's evictions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Heard {
    /// The tier, since it was opened.
    tier: CopyId,
    /// The number of the next one.
    next: u64,
}

/// A tier's message about its evictions.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct News {
    /// Up to where the peer has received with these.
    pub(crate) heard: Heard,
    /// In order.
    pub(crate) evicted: Vec<Evicted>,
}

/// Evicted copies, in order. Clones are the same.
#[derive(Clone)]
pub struct Evictions {
    inner: Arc<(Mutex<EvictionLog>, Notify)>,
}

struct EvictionLog {
    /// Names this tier, since it was opened.
    tier: CopyId,
    /// Evictions here, for other nodes.
    own: VecDeque<Evicted>,
    /// The number of the first of those.
    first: u64,
    /// Evictions anywhere, for this process.
    untold: VecDeque<Evicted>,
    /// What was received from other nodes.
    heard: BTreeMap<Box<str>, Heard>,
}

impl Evictions {
    /// Nothing was evicted yet.
    pub(crate) fn new() -> Result<Self, TransferError> {
        let log = EvictionLog {
            tier: CopyId::random()?,
            own: VecDeque::new(),
            first: 0,
            untold: VecDeque::new(),
            heard: BTreeMap::new(),
        };
        Ok(Self {
            inner: Arc::new((Mutex::new(log), Notify::new())),
        })
    }

    /// The next one, here or at another node; waits for it. Each is given once.
    pub async fn next(&self) -> Evicted {
        loop {
            let told = self.inner.1.notified();
            if let Some(next) = self.log().untold.pop_front() {
                return next;
            }
            told.await;
        }
    }

    /// Those that there are now, up to so many.
    pub fn take(&self, most: usize) -> Vec<Evicted> {
        let untold = &mut self.log().untold;
        untold.drain(..untold.len().min(most)).collect()
    }

    /// A copy was evicted here.
    pub(crate) fn push(&self, evicted: Evicted) {
        let mut log = self.log();
        if log.own.len() == EVICTIONS_HELD_MAX {
            log.own.pop_front();
            log.first += 1;
        }
        log.own.push_back(evicted);
        log.record(evicted);
        drop(log);
        self.inner.1.notify_one();
    }

    /// Up to so many of the evictions here that a peer has not received.
    pub(crate) fn since(&self, heard: Option<Heard>, most: usize) -> News {
        let log = self.log();
        let next = heard.filter(|heard| heard.tier == log.tier);
        let next = next.map_or(0, |heard| heard.next).max(log.first);
        let skipped = usize::try_from(next - log.first).unwrap_or(usize::MAX);
        let told = log.own.iter().skip(skipped).take(most);
        let evicted: Vec<Evicted> = told.copied().collect();
        News {
            heard: Heard {
                tier: log.tier,
                next: next + evicted.len() as u64,
            },
            evicted,
        }
    }

    /// How far a node's evictions are known here.
    pub(crate) fn heard_of(&self, node: &str) -> Option<Heard> {
        self.log().heard.get(node).copied()
    }

    /// Takes in what a node has reported; what is known already is passed over.
    pub(crate) fn hear(&self, node: &str, news: &News) {
        let mut log = self.log();
        let known = log.heard.get(node).copied();
        let known = known.filter(|known| known.tier == news.heard.tier);
        let known = known.map_or(0, |known| known.next);
        if news.heard.next < known {
            return;
        }
        if log.heard.len() >= NODES_MAX && !log.heard.contains_key(node) {
            log.heard.clear();
        }
        log.heard.insert(node.into(), news.heard);
        let new = usize::try_from(news.heard.next - known).unwrap_or(usize::MAX);
        let passed = news.evicted.len().saturating_sub(new);
        for evicted in &news.evicted[passed..] {
            log.record(*evicted);
        }
        drop(log);
        self.inner.1.notify_one();
    }

    fn log(&self) -> MutexGuard<'_, EvictionLog> {
        self.inner.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EvictionLog {
    fn record(&mut self, evicted: Evicted) {
        if self.untold.len() == EVICTIONS_HELD_MAX {
            self.untold.pop_front();
        }
        self.untold.push_back(evicted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(program: u64) -> Evicted {
        Evicted {
            id: CopyId::random().unwrap(),
            program: ProgramId(program),
        }
    }

    fn programs(list: &[Evicted]) -> Vec<u64> {
        list.iter().map(|evicted| evicted.program.0).collect()
    }

    #[test]
    fn everybody_hears_of_all_whatever_others_have_heard() {
        let tier = Evictions::new().unwrap();
        (0..5).for_each(|program| tier.push(evicted(program)));
        let first = tier.since(None, 3);
        assert_eq!(programs(&first.evicted), [0, 1, 2]);
        // An answer that was lost is sent again.
        assert_eq!(tier.since(None, 3), first);
        assert_eq!(programs(&tier.take(9)), [0, 1, 2, 3, 4], "who is here");
        let second = tier.since(Some(first.heard), 3);
        assert_eq!(programs(&second.evicted), [3, 4]);
        assert!(tier.since(Some(second.heard), 3).evicted.is_empty());
        // A peer of the process before has received nothing of this one.
        let again = Evictions::new().unwrap();
        again.push(evicted(7));
        assert_eq!(programs(&again.since(Some(second.heard), 3).evicted), [7]);
    }

    #[test]
    fn the_oldest_are_forgotten_at_the_bound() {
        let tier = Evictions::new().unwrap();
        let most = EVICTIONS_HELD_MAX as u64;
        let start = tier.since(None, 0);
        (0..most + 10).for_each(|program| tier.push(evicted(program)));
        let told = tier.since(Some(start.heard), 2);
        assert_eq!(programs(&told.evicted), [10, 11]);
        assert_eq!(tier.take(usize::MAX).len(), EVICTIONS_HELD_MAX);
    }

    #[test]
    fn evictions_in_two_answers_are_taken_once_and_not_forwarded() {
        let (there, here) = (Evictions::new().unwrap(), Evictions::new().unwrap());
        (0..3).for_each(|program| there.push(evicted(program)));
        let (short, long) = (there.since(None, 2), there.since(None, 3));
        here.hear("there", &short);
        here.hear("there", &long);
        here.hear("there", &short);
        assert_eq!(programs(&here.take(9)), [0, 1, 2]);
        assert_eq!(here.heard_of("there"), Some(long.heard));
        assert_eq!(here.heard_of("elsewhere"), None);
        assert!(here.since(None, 9).evicted.is_empty(), "its own alone");
    }
}
