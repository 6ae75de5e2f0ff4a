//! Evicted copies. This process takes them from a queue. Other nodes request those that they have
//! not received yet, each sending its position, so that a lost or refused reply loses no evictions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use treadle_model::ProgramId;

use crate::{CopyId, KvCopy, TransferError};

/// Evictions kept for receivers; beyond it the oldest are dropped, and requests for such a copy
/// fail because it is gone.
const EVICTIONS_HELD_MAX: usize = 65_536;
/// Nodes with a recorded position; beyond it all evictions are received again.
const NODES_MAX: usize = 4_096;

/// An evicted copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Evicted {
    /// The copy.
    pub id: CopyId,
    /// The program that it belonged to.
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

/// A peer's position in a tier's evictions.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct EvictionPosition {
    /// Id of the tier's current opening.
    tier: CopyId,
    /// Number of the next eviction.
    next: u64,
}

/// A tier's report of evictions.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct News {
    /// The peer's position after this report.
    pub(crate) heard: EvictionPosition,
    /// The evictions, in order.
    pub(crate) evicted: Vec<Evicted>,
}

/// The evicted copies, in order; clones share them.
#[derive(Clone)]
pub struct Evictions {
    inner: Arc<(Mutex<EvictionLog>, Notify)>,
}

struct EvictionLog {
    /// Id of the tier's current opening.
    tier: CopyId,
    /// Evictions in this tier, for other nodes.
    own: VecDeque<Evicted>,
    /// Number of the first of them.
    first: u64,
    /// Evictions in all tiers, for this process.
    untold: VecDeque<Evicted>,
    /// Positions in the evictions of other nodes.
    heard: BTreeMap<Box<str>, EvictionPosition>,
}

impl Evictions {
    /// Without any evictions.
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

    /// Waits for the next eviction, here or at another node. Each is returned once.
    pub async fn next(&self) -> Evicted {
        loop {
            let told = self.inner.1.notified();
            if let Some(next) = self.log().untold.pop_front() {
                return next;
            }
            told.await;
        }
    }

    /// The available evictions, at most `most`.
    pub fn take(&self, most: usize) -> Vec<Evicted> {
        let untold = &mut self.log().untold;
        untold.drain(..untold.len().min(most)).collect()
    }

    /// Records an eviction in this tier.
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

    /// Evictions in this tier that a peer has not received, at most `most`.
    pub(crate) fn since(&self, heard: Option<EvictionPosition>, most: usize) -> News {
        let log = self.log();
        let next = heard.filter(|heard| heard.tier == log.tier);
        let next = next.map_or(0, |heard| heard.next).max(log.first);
        let skipped = usize::try_from(next - log.first).unwrap_or(usize::MAX);
        let told = log.own.iter().skip(skipped).take(most);
        let evicted: Vec<Evicted> = told.copied().collect();
        News {
            heard: EvictionPosition {
                tier: log.tier,
                next: next + evicted.len() as u64,
            },
            evicted,
        }
    }

    /// The position up to which a node's evictions have been received.
    pub(crate) fn heard_of(&self, node: &str) -> Option<EvictionPosition> {
        self.log().heard.get(node).copied()
    }

    /// Records a node's report, skipping evictions that were received before.
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
    fn every_peer_receives_all_evictions() {
        let tier = Evictions::new().unwrap();
        (0..5).for_each(|program| tier.push(evicted(program)));
        let first = tier.since(None, 3);
        assert_eq!(programs(&first.evicted), [0, 1, 2]);
        // A lost reply is sent again.
        assert_eq!(tier.since(None, 3), first);
        assert_eq!(programs(&tier.take(9)), [0, 1, 2, 3, 4], "who is here");
        let second = tier.since(Some(first.heard), 3);
        assert_eq!(programs(&second.evicted), [3, 4]);
        assert!(tier.since(Some(second.heard), 3).evicted.is_empty());
        // A position in the evictions of a previous process is invalid.
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
