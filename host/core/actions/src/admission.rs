//! Which of the waiting actions can start: the longest prefix, in serving order, whose minimum
//! demands fit together (line 2 of Algorithm 1).

use crate::Actions;
use crate::action::Rank;
use crate::trial::Trial;
use std::cmp::Reverse;
use std::collections::btree_set::Iter;
use std::collections::{BTreeSet, BinaryHeap};
use treadle_model::ActionId;

/// The result of a pass.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Actions that can start, in serving order.
    pub(crate) rows: Vec<ActionId>,
    /// Whether there may be more of them.
    pub(crate) more: bool,
    /// Resources that the next actions lack.
    pub(crate) short: BTreeSet<u32>,
}

impl Actions {
    /// Tries the head of each queue in turn. A head that can't start blocks its whole queue, all of
    /// which needs the same key resource, so that each queue is examined only up to it. If groups
    /// share resources, each has its own queues, and the group whose last turn is longest ago goes
    /// first.
    pub(crate) fn candidates(&self) -> Candidates {
        let bounds = &self.config;
        let startable = bounds.started_max.saturating_sub(self.index.started);
        let most = usize::try_from(startable).unwrap_or(usize::MAX);
        let most = most.min(bounds.candidates_max.max(1));
        let mut found = Candidates::default();
        let shares = self.state.shares.is_some();
        let mut trial = Trial::of(self);
        let mut queues = self.queues();
        let mut heads = BinaryHeap::new();
        for (number, (turn, queue)) in queues.iter_mut().enumerate() {
            heads.extend(queue.next().map(|head| Reverse((*turn, *head, number))));
        }
        while let Some(Reverse((_, (_, id), number))) = heads.pop() {
            if found.rows.len() >= most {
                found.more = !found.rows.is_empty();
                break;
            }
            let Some(needs) = self.index.needs.get(&id) else {
                continue;
            };
            if self.state.held_back.contains(&id) {
                trial.set_aside(needs);
            } else if trial.take(needs, needs.least_of_key()) {
                found.rows.push(id);
                let started = found.rows.len() as u64;
                let next = queues.get_mut(number).and_then(|(_, queue)| queue.next());
                let turn = shares.then_some(self.state.counters.started + started);
                let turn = turn.unwrap_or_default();
                heads.extend(next.map(|head| Reverse((turn, *head, number))));
            } else {
                found
                    .short
                    .extend(trial.short_of(needs, needs.least_of_key()));
                trial.block(needs);
            }
        }
        found
    }

    /// The waiting actions by queue, with the time of each queue's last turn.
    fn queues(&self) -> Vec<(u64, Iter<'_, (Rank, ActionId)>)> {
        if self.state.shares.is_none() {
            return self.index.queues.values().map(|q| (0, q.iter())).collect();
        }
        let queues = self.index.group_queues.iter();
        let queues = queues.map(|((pool, group), q)| (self.turn_of(group, *pool), q.iter()));
        queues.collect()
    }

    /// The next actions of some queues in serving order, skipping the given number at the head of
    /// each.
    pub(crate) fn followers(&self, beyond: &[(u32, usize)]) -> Vec<ActionId> {
        let queue = |(pool, first): &(u32, usize)| {
            let queue = self.index.queues.get(pool)?;
            Some(queue.iter().skip(*first))
        };
        let mut queues: Vec<_> = beyond.iter().filter_map(queue).collect();
        let mut heads = BinaryHeap::new();
        for (number, queue) in queues.iter_mut().enumerate() {
            heads.extend(queue.next().map(|head| Reverse((*head, number))));
        }
        let mut rows = Vec::new();
        while rows.len() < self.config.followers_max
            && let Some(Reverse(((_, id), number))) = heads.pop()
        {
            rows.push(id);
            let next = queues.get_mut(number).and_then(Iterator::next);
            heads.extend(next.map(|head| Reverse((*head, number))));
        }
        rows
    }
}
