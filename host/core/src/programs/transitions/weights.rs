//! Engines whose weights the machine of weights knows: those that can't prove theirs get no steps,
//! and caches of other weights are forgotten. The ranks of an endpoint share its weights.

use crate::Programs;
use crate::programs::step::StepState;
use crate::programs::worker::Worker;
use treadle_machine::Notice;
use treadle_model::{ProgramId, StepId, WorkerId, endpoint_of};

impl Programs {
    /// The workers that are ranks of a worker's endpoint, itself among them.
    pub(crate) fn ranks_of(&self, worker: WorkerId) -> impl Iterator<Item = &Worker> {
        let known = self.state.workers.get(&worker);
        let endpoint = known.map(|w| endpoint_of(&w.url).0);
        let workers = self.state.workers.values().filter(|w| !w.leaving);
        workers.filter(move |w| endpoint == Some(endpoint_of(&w.url).0))
    }

    /// The worker that stands for all ranks of an endpoint.
    pub(crate) fn first_rank(&self, worker: WorkerId) -> WorkerId {
        self.ranks_of(worker).next().map_or(worker, |w| w.id)
    }

    fn rank_ids(&self, worker: WorkerId) -> Vec<WorkerId> {
        self.ranks_of(worker).map(|w| w.id).collect()
    }

    /// A rank that comes, or comes back, has the weights of the others and the state that their
    /// operator set, and gets no steps if they get none.
    pub(super) fn join_endpoint(&mut self, worker: WorkerId) {
        let other = self.ranks_of(worker).find(|w| w.id != worker);
        let other = other.map(|w| (w.fenced, w.weights.clone(), w.state));
        let (fenced, weights, state) = other.unwrap_or_default();
        if let Some(w) = self.state.workers.get_mut(&worker) {
            (w.fenced, w.weights) = (fenced, weights);
        }
        self.worker_state_set(worker, state);
    }

    /// Whether caches of one engine can be used at another.
    pub(crate) fn share_weights(&self, a: WorkerId, b: WorkerId) -> bool {
        let weights = |worker: WorkerId| Some(&self.state.workers.get(&worker)?.weights);
        weights(a) == weights(b)
    }

    /// Records whether the weights of an engine let it take steps.
    pub(super) fn worker_fenced(&mut self, worker: WorkerId, fenced: bool) {
        for worker in self.rank_ids(worker) {
            let Some(w) = self.state.workers.get_mut(&worker) else {
                continue;
            };
            if std::mem::replace(&mut w.fenced, fenced) != fenced {
                self.takes_steps_again(worker, !fenced);
            }
        }
    }

    /// The engine has other weights: caches that it had are gone, and copies of them are useless.
    pub(super) fn weights_changed(&mut self, worker: WorkerId, weights: &str) {
        for worker in self.rank_ids(worker) {
            if let Some(w) = self.state.workers.get_mut(&worker) {
                w.weights = Some(weights.into());
            }
            self.vacate(worker);
            self.forget_reuse(worker);
            self.end_moves_of(worker);
            self.end_transfers_of(worker);
            let copied = self.state.live.values();
            let copied = copied.filter(|p| p.last_worker == Some(worker));
            for program in copied.map(|p| p.id).collect::<Vec<ProgramId>>() {
                self.drop_copy(program);
            }
            self.account_worker(worker);
        }
        self.state.waiting.want_restore();
    }

    /// An answer named the version of its engine's weights.
    pub(super) fn weights_named(&mut self, step: StepId, name: Option<&str>) {
        let step = self.state.steps.get(&step);
        if let Some(StepState::Running { worker, since }) = step.map(|step| step.state)
            && let Some(name) = name
        {
            self.notices.push_back(Notice::WeightsNamed {
                worker: self.first_rank(worker),
                sent: since,
                name: name.into(),
            });
        }
    }
}
