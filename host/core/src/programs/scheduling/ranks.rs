//! Ranks of one address. Those of a mixture of experts step together: an iteration takes as long as
//! at the rank with most to do, so the largest load of the ranks counts, not their sum.

use crate::Programs;
use crate::programs::program::Program;
use crate::programs::worker::Worker;
use treadle_model::endpoint_of;

impl Programs {
    /// The worker for a program that would go to `emptiest`: if that is a rank, the one of its ranks
    /// that fits and has least to do, so that the largest load stays smallest.
    pub(super) fn rank_for<'a>(
        &'a self,
        p: &Program,
        emptiest: &'a Worker,
        fits: impl Fn(&&Worker) -> bool,
    ) -> &'a Worker {
        if endpoint_of(&emptiest.url).1.is_none() {
            return emptiest;
        }
        let workers = self.state.workers.values();
        let ranks = workers.filter(|w| step_together(emptiest, w)).filter(fits);
        let least = ranks.min_by_key(|w| (self.rank_load(w, p), w.id));
        least.unwrap_or(emptiest)
    }

    /// What a rank has to do, in tokens: the contexts that it holds; a mean one for each of its
    /// programs, which may have just begun; and another for each of the same group, whose members
    /// grow alike and run at the same time.
    fn rank_load(&self, w: &Worker, p: &Program) -> u64 {
        let live = &self.state.live;
        let mean_tokens = self.state.context_tokens / (live.len().max(1) as u64);
        let placed = w.programs.iter().filter_map(|id| live.get(id));
        let is_member = |other: &&Program| p.group.is_some() && other.group == p.group;
        let programs = w.seated_programs() + placed.filter(is_member).count();
        let to_come = mean_tokens.saturating_mul(programs as u64);
        w.used_tokens().saturating_add(to_come)
    }
}

/// Whether two workers are ranks of one endpoint.
pub(super) fn step_together(one: &Worker, other: &Worker) -> bool {
    let (endpoint, rank) = endpoint_of(&one.url);
    rank.is_some() && endpoint == endpoint_of(&other.url).0
}
