//! Whose turn it is: one run at a time, and tenants in turn however many runs each has waiting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Tenants whose latest turn is remembered.
const TENANTS_MAX: usize = 1_024;

struct Waiting {
    whose: Box<str>,
    number: u64,
    called: oneshot::Sender<Turn>,
}

#[derive(Default)]
struct Line {
    taken: bool,
    waiting: Vec<Waiting>,
    /// Turns given and places taken so far.
    count: u64,
    /// The number of each tenant's latest turn.
    latest: BTreeMap<Box<str>, u64>,
}

/// A line in which those wait who want a turn.
#[derive(Clone, Default)]
pub(super) struct Turns {
    line: Arc<Mutex<Line>>,
}

/// A turn, which ends when it is dropped.
pub(super) struct Turn {
    turns: Turns,
}

impl Turns {
    /// Waits for a turn. Whoever stops waiting gives his place up.
    pub(super) async fn take(&self, whose: &str) -> Turn {
        let called = {
            let mut line = self.lock();
            if !line.taken {
                line.taken = true;
                line.note(whose);
                return Turn {
                    turns: self.clone(),
                };
            }
            let (called, calls) = oneshot::channel();
            line.count += 1;
            let number = line.count;
            let whose = whose.into();
            line.waiting.push(Waiting {
                whose,
                number,
                called,
            });
            calls
        };
        match called.await {
            Ok(turn) => turn,
            // A place in the line is given up by him alone who waits there.
            Err(_) => std::future::pending().await,
        }
    }

    /// The turn goes to whoever had his latest one longest ago, and of one tenant to the first.
    fn pass_on(&self) {
        let next = {
            let mut line = self.lock();
            line.waiting.retain(|waiting| !waiting.called.is_closed());
            let latest = |waiting: &Waiting| line.latest.get(&waiting.whose).copied().unwrap_or(0);
            let order = |waiting: &Waiting| (latest(waiting), waiting.number);
            let places = 0..line.waiting.len();
            let next = places.min_by_key(|place| order(&line.waiting[*place]));
            line.taken = next.is_some();
            next.map(|place| {
                let next = line.waiting.swap_remove(place);
                line.note(&next.whose);
                next
            })
        };
        if let Some(next) = next {
            // If he has just gone, the turn comes back and is passed on as it drops.
            drop(next.called.send(Turn {
                turns: self.clone(),
            }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn note(&mut self, whose: &str) {
        self.count += 1;
        self.latest.insert(whose.into(), self.count);
        if self.latest.len() > TENANTS_MAX {
            let oldest = self.latest.iter().min_by_key(|(_, count)| **count);
            if let Some(oldest) = oldest.map(|(whose, _)| whose.clone()) {
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
    async fn tenants_come_in_turn_and_whoever_gives_up_is_passed_over() {
        let turns = Turns::default();
        let first = turns.take("acme").await;
        let mut waiting = Vec::new();
        for whose in ["acme", "acme", "acme", "beta", "gamma"] {
            let mut wait = Box::pin(turns.take(whose));
            assert!(wait.as_mut().now_or_never().is_none());
            waiting.push((whose, Some(wait)));
        }
        // The first of them does not wait any more.
        waiting[0].1 = None;
        let mut order = Vec::new();
        let mut turn = first;
        for _ in 0..4 {
            drop(turn);
            let called = waiting.iter_mut().find_map(|(whose, wait)| {
                let turn = wait.as_mut()?.as_mut().now_or_never()?;
                *wait = None;
                Some((*whose, turn))
            });
            let (whose, next) = called.expect("somebody is called");
            order.push(whose);
            turn = next;
        }
        assert_eq!(order, ["beta", "gamma", "acme", "acme"]);
        drop(turn);
        assert!(turns.take("acme").now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_turn_that_nobody_fetches_is_not_lost() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let mut gone = Box::pin(turns.take("b"));
        let mut stays = Box::pin(turns.take("c"));
        assert!(gone.as_mut().now_or_never().is_none());
        assert!(stays.as_mut().now_or_never().is_none());
        // The turn lies ready for one who goes before he has seen it.
        drop(first);
        drop(gone);
        assert!(stays.as_mut().now_or_never().is_some());
    }
}
