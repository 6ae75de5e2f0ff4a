//! Workers that step together: ranks of one endpoint. Each step takes as long as at the rank with
//! most to do, so the largest load counts, not their sum.

use std::collections::BTreeMap;

use treadle_plugin::{NO_GROUP, WorkerColumns};

use crate::load::Load;

/// Which workers step together, and how many programs each has.
pub(crate) struct Ranks<'a> {
    groups: &'a [u32],
    /// Running steps, and programs that this answer places.
    programs: Vec<f64>,
    totals: BTreeMap<u32, Total>,
}

/// All ranks of one endpoint, before the answer changes anything.
#[derive(Default)]
struct Total {
    ranks: f64,
    /// Sum of the shares of KV cache that they use.
    used: f64,
    running: f64,
}

impl<'a> Ranks<'a> {
    pub(crate) fn of(workers: &WorkerColumns<'a>, load: &Load) -> Self {
        let running = workers.running.iter().map(|&steps| f64::from(steps));
        let mut ranks = Self {
            groups: workers.lockstep_group,
            programs: running.collect(),
            totals: BTreeMap::new(),
        };
        let grouped = workers.lockstep_group.iter().enumerate();
        for (worker, group) in grouped.filter(|(_, group)| **group != NO_GROUP) {
            let total = ranks.totals.entry(*group).or_default();
            total.ranks += 1.0;
            total.used += load.share(worker);
            total.running += ranks.programs[worker];
        }
        ranks
    }

    pub(crate) fn add(&mut self, worker: usize) {
        self.programs[worker] += 1.0;
    }

    fn total(&self, worker: usize) -> Option<&Total> {
        self.totals.get(self.groups.get(worker)?)
    }

    /// Whether two workers step together.
    pub(crate) fn are_together(&self, one: usize, other: usize) -> bool {
        self.total(one).is_some() && self.groups.get(one) == self.groups.get(other)
    }

    /// Mean share of KV cache that is used by the workers that step together with one; `None` if it
    /// steps by itself.
    pub(crate) fn mean_share(&self, worker: usize) -> Option<f64> {
        let total = self.total(worker)?;
        Some(total.used / total.ranks)
    }

    /// Of the ranks that step together with a worker and that may take a program, the one with
    /// least to do, so that the largest load stays smallest: the contexts that it holds, and a mean
    /// one for each of its programs and, once more, for those of the same group. Otherwise the
    /// worker.
    pub(crate) fn lightest(
        &self,
        load: &Load,
        of_group: &[u32],
        worker: usize,
        may: impl Fn(usize) -> bool,
    ) -> usize {
        let Some(total) = self.total(worker) else {
            return worker;
        };
        let mean = total.used / total.running.max(1.0);
        let cost = |rank: usize| {
            let counted = self.programs[rank] + f64::from(of_group[rank]);
            (load.share(rank) + mean * counted, of_group[rank])
        };
        let ranks = (0..load.workers()).filter(|rank| self.are_together(worker, *rank));
        let least = ranks.filter(|rank| may(*rank)).min_by(|&left, &right| {
            let (left, right) = (cost(left), cost(right));
            left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))
        });
        least.unwrap_or(worker)
    }
}
