//! The end of a job's weights. Its engines serve what they have then; one in the middle of an
//! update goes on to its end as far as nobody but treadle is needed, and gives it up otherwise. One
//! that can't prove what it has gets no steps until it is another process, or loads a version of
//! another job.

use crate::holding::{Holding, PendingCall, Phase};
use crate::job::{JobWeights, compare, record};
use crate::state::State;
use crate::trainer::{Extent, TrainerCall};
use crate::{Call, Weights};
use treadle_model::{Timestamp, WorkerId};

/// Engines whose record was dropped that are remembered; the oldest go first.
const GIVEN_UP_MAX: usize = 4_096;
/// Why an engine is torn that its job let go of.
const LET_GO: &str = "its job was released before it proved what it has; restart it";

impl Holding {
    /// Its job lets go of it: what was begun is finished if that needs nobody else, and given up if
    /// not. `weights` is the version of the trainer's update.
    fn let_go(&mut self, weights: Option<&Weights>, now: Timestamp) {
        if self.is_called() {
            return;
        }
        let pending = self.call.map(|PendingCall { call, .. }| call);
        if pending == Some(Call::Prepare) {
            // It was only asked, and does not load it.
            self.call = None;
        }
        self.ready = false;
        let trainer = self.trainer.as_mut();
        let extent = trainer.as_ref().map_or(Extent::Nothing, |t| t.extent);
        let by_treadle = trainer.is_none_or(|trainer| {
            trainer.resumes |= trainer.paused_by_treadle;
            trainer.paused_by_treadle
        });
        if self.phase != Phase::Paused || self.call.is_some() {
            return;
        }
        match (extent, weights) {
            (Extent::Nothing, _) if self.sound && by_treadle => {
                self.loading = self.held.clone();
                self.come_to(Phase::Resuming, now);
            }
            // Its trainer paused it, and only its trainer knows when it may generate.
            (Extent::Nothing, _) if self.sound => {}
            (Extent::Parts | Extent::All, Some(_)) if !by_treadle => {}
            (Extent::All, Some(weights)) => self.prove(weights, now),
            _ => {
                let cause = self.cause.take().unwrap_or_else(|| LET_GO.into());
                self.tear(&cause, now);
            }
        }
    }

    /// Why one gets no steps whose job let go of it, in words.
    pub(crate) fn why_let_go(&self) -> &'static str {
        let is_trainers = self.trainer.as_ref().is_some_and(|t| !t.resumes);
        match self.phase {
            Phase::Torn | Phase::Unknown => LET_GO,
            _ if is_trainers && self.phase != Phase::Held => {
                "its trainer paused it before its job was released; have the trainer resume it, or \
                 restart it"
            }
            _ => "its job was released, and what was begun there is finished first",
        }
    }

    /// Another job has its weights from now on, or this one anew. What it has whole counts as what
    /// it came with. Returns whether something was on record that is not any more.
    fn taken_over(&mut self, job: &str, now: Timestamp) -> bool {
        self.job = job.into();
        let pending = self.call;
        let is_loading = pending.is_some_and(|pending| pending.call == Call::Apply);
        if !self.sound || is_loading {
            let cause = self.cause.take().unwrap_or_else(|| LET_GO.into());
            let is_torn = self.phase == Phase::Torn;
            self.doubt(&cause, now);
            if is_torn {
                self.come_to(Phase::Torn, now);
            }
            // No other call is made before one has ended that does something to it.
            self.call = pending.filter(|p| !matches!(p.call, Call::Verify | Call::Clear));
        }
        self.trainer = self.trainer.take().filter(|t| t.call.is_some());
        self.loading = None;
        self.held.take().is_some() || !self.sound
    }
}

impl JobWeights {
    /// What an engine that the job let go of does next, if anything. `others_prove` if others of
    /// the job are not compared with it yet.
    pub(crate) fn finishes(
        &self,
        holding: &Holding,
        others_prove: bool,
    ) -> Option<(Call, Weights)> {
        let resumes = holding.trainer.as_ref().is_none_or(|t| t.resumes);
        let of_update = self.update.as_ref().map(|update| &update.weights);
        let waits = others_prove && of_update.is_some() && holding.loading.as_ref() == of_update;
        match holding.phase {
            Phase::Unknown => None,
            Phase::Resuming if waits || !resumes => None,
            _ => self.mend_driven(holding),
        }
    }
}

impl State {
    /// A job on record, also one that was released while engines of it get no steps.
    pub fn job(&self, name: &str) -> Option<&JobWeights> {
        record(&self.jobs, &self.released, name)
    }

    /// Jobs on record, also those that were released.
    pub(crate) fn names(&self) -> impl Iterator<Item = Box<str>> {
        self.jobs.keys().chain(self.released.keys()).cloned()
    }

    pub(crate) fn job_mut(&mut self, name: &str) -> Option<&mut JobWeights> {
        if let Some(job) = self.jobs.get_mut(name) {
            return Some(job);
        }
        self.released.get_mut(name)
    }

    /// A number that is another one each time that the record of what an engine has was dropped:
    /// what is known of it before and after that can't be compared.
    pub fn given_up(&self, worker: WorkerId) -> u64 {
        self.given_up.get(&worker).copied().unwrap_or_default()
    }

    /// The record of what an engine has is dropped.
    pub(crate) fn give_up(&mut self, worker: WorkerId) {
        let last = self.given_up.values().copied().max().unwrap_or_default();
        self.given_up.insert(worker, last + 1);
        if self.given_up.len() > GIVEN_UP_MAX {
            let oldest = self.given_up.iter().min_by_key(|(_, number)| **number);
            if let Some(oldest) = oldest.map(|(worker, _)| *worker) {
                self.given_up.remove(&oldest);
            }
        }
    }

    /// Lets go of the engines of a job.
    pub(crate) fn release(&mut self, name: &str) {
        if let Some(job) = self.jobs.remove(name) {
            self.released.insert(name.into(), job);
        }
    }

    /// Takes engines of a released job as far as they can go.
    pub(crate) fn finish(&mut self, name: &str, now: Timestamp) {
        let Some(job) = self.released.get(name) else {
            return;
        };
        let weights = job.update.as_ref().map(|update| &update.weights);
        for holding in self.holdings.values_mut().filter(|h| *h.job == *name) {
            holding.let_go(weights, now);
        }
        if self.is_proving(name) {
            return;
        }
        let own = self.of_job(name);
        let is_loaded = |h: &Holding| !h.sound && h.loading.as_ref() == weights;
        let resuming = own.filter(|(_, h)| h.phase == Phase::Resuming && is_loaded(h));
        let (differing, agreed) = compare(resuming);
        self.agree(name, differing, agreed, now);
    }

    /// Whether an engine of a job proves what it has, or will once its trainer's call has ended. A
    /// call that joins a process group is not waited for: it may hang.
    pub(crate) fn is_proving(&self, name: &str) -> bool {
        let mut own = self.of_job(name);
        own.any(|(_, h)| {
            let proves = matches!(h.phase, Phase::Verifying | Phase::Clearing);
            proves || h.is_called() && !h.is_joining()
        })
    }

    /// Drops what is not needed any more of released jobs: engines that serve, and records of jobs
    /// without engines.
    pub(crate) fn prune(&mut self) {
        let jobs = &self.jobs;
        let serves = |_: &WorkerId, holding: &mut Holding| {
            let is_idle = holding.call.is_none() && !holding.is_called();
            holding.phase == Phase::Held && is_idle && !jobs.contains_key(&holding.job)
        };
        let gone: Vec<_> = self.holdings.extract_if(.., serves).collect();
        for (worker, holding) in gone {
            if holding.held.is_some() {
                self.give_up(worker);
            }
        }
        let holdings = &self.holdings;
        self.released
            .retain(|name, _| holdings.values().any(|holding| holding.job == *name));
    }

    /// A job begins anew: what its engines had before is not of it.
    pub(crate) fn begin_job(&mut self, name: &str, now: Timestamp) {
        if self.jobs.contains_key(name) {
            return;
        }
        let own: Vec<WorkerId> = self.of_job(name).map(|(worker, _)| worker).collect();
        for worker in own {
            self.take(name, worker, now);
        }
        self.released.remove(name);
    }

    /// An engine comes to a job, unless another one has its weights.
    pub(crate) fn take(&mut self, name: &str, worker: WorkerId, now: Timestamp) {
        let new = || Holding::new(name, now);
        let holding = self.holdings.entry(worker).or_insert_with(new);
        if !self.jobs.contains_key(&holding.job) && holding.taken_over(name, now) {
            self.give_up(worker);
        }
    }

    /// A trainer resumes an engine that its job has let go of. Returns whether it is one.
    pub(crate) fn resume_released(&mut self, name: &str, worker: WorkerId, now: Timestamp) -> bool {
        let Some(job) = self.released.get(name) else {
            return false;
        };
        let Some(holding) = self.holdings.get_mut(&worker).filter(|h| *h.job == *name) else {
            return false;
        };
        let update = job.update.as_ref().map(|update| update.weights.clone());
        let weights = update.unwrap_or_else(|| job.named(0, ""));
        holding.called(&TrainerCall::Resume, &weights, now);
        true
    }
}
