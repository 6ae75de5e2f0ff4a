//! How an update goes on, and how engines that were left behind are mended.

use crate::Engines;
use crate::call::Call;
use crate::command::WeightsCommand;
use crate::holding::{Holding, OTHER_CHECKSUM, PendingCall, Phase};
use crate::job::{EndedUpdate, JobWeights, Stage, Update, compare};
use crate::state::State;
use crate::version::{Checksums, Weights};
use treadle_model::{Timestamp, WorkerId};

impl Holding {
    /// Makes a call.
    pub(crate) fn begin(
        &mut self,
        call: Call,
        weights: Weights,
        job: &str,
        worker: WorkerId,
        number: u64,
        since: Timestamp,
    ) -> WeightsCommand {
        self.call = Some(PendingCall {
            number,
            call,
            since,
        });
        match call {
            Call::Apply => {
                (self.confirmed, self.checksum) = (false, None);
                self.loading = Some(weights.clone());
            }
            Call::Verify if self.phase == Phase::Unknown => self.loading = Some(weights.clone()),
            _ => {}
        }
        WeightsCommand::Call {
            job: job.into(),
            worker,
            number,
            call,
            weights,
        }
    }
}

impl JobWeights {
    /// What an engine is to do next, if anything.
    pub(crate) fn next_call(&self, worker: WorkerId, holding: &Holding) -> Option<(Call, Weights)> {
        match &self.update {
            Some(update) if update.workers.contains(&worker) => update.next_call(worker, holding),
            Some(_) => None,
            None if self.driven => self.mend_driven(holding),
            None => self.mend(holding),
        }
    }

    /// An engine that does not serve the version in service is asked what it has, and loads it as a
    /// whole unless it has it.
    fn mend(&self, holding: &Holding) -> Option<(Call, Weights)> {
        let serving = self.serving.as_ref();
        let loading = holding.loading.as_ref();
        let (call, weights) = match holding.phase {
            // There is nothing that it could load.
            Phase::Paused if self.serving.is_none() && holding.sound => {
                let last = self.last.as_ref().map(|last| &last.weights);
                return Some((Call::Resume, last?.clone()));
            }
            // With what it came with, if no version ever came into service: which one is named then
            // does not matter to a resume.
            Phase::Resuming => {
                let last = self.last.as_ref().map(|last| &last.weights);
                return Some((Call::Resume, loading.or(serving).or(last)?.clone()));
            }
            Phase::Clearing => (Call::Clear, loading),
            Phase::Verifying => (Call::Verify, loading),
            Phase::Paused => (Call::Apply, serving),
            Phase::Unknown => (Call::Verify, serving),
            Phase::Held if holding.serves(serving) => return None,
            Phase::Held | Phase::Torn if holding.ready => (Call::Pause, serving),
            Phase::Held | Phase::Torn => (Call::Prepare, serving),
        };
        Some((call, weights?.clone()))
    }
}

impl Update {
    fn next_call(&self, worker: WorkerId, holding: &Holding) -> Option<(Call, Weights)> {
        let is_own = holding.loading.as_ref() == Some(&self.weights);
        let is_turn = !self.plan.rolling || self.next() == Some(worker);
        if self.stage == Stage::Driven {
            return self.next_driven(holding);
        }
        if holding.serves(Some(&self.weights)) {
            return None;
        }
        let call = match self.stage {
            Stage::Preparing if holding.ready => return None,
            Stage::Preparing => Call::Prepare,
            Stage::Cutting | Stage::Driven => return None,
            Stage::Loading | Stage::Resuming if !is_turn => return None,
            Stage::Loading | Stage::Resuming => match holding.phase {
                Phase::Paused => Call::Apply,
                Phase::Verifying if is_own => Call::Verify,
                Phase::Clearing if is_own => Call::Clear,
                Phase::Resuming if is_own && self.stage == Stage::Loading => return None,
                Phase::Resuming if is_own => Call::Resume,
                // Also one that proves another version: it may generate, if it was only asked.
                _ => Call::Pause,
            },
        };
        Some((call, self.weights.clone()))
    }
}

impl State {
    /// Takes an update as far as it can go. Returns the version that came into service.
    pub(crate) fn advance(
        &mut self,
        name: &str,
        engines: &dyn Engines,
        now: Timestamp,
    ) -> Option<Weights> {
        loop {
            let update = self.jobs.get(name)?.update.as_ref()?;
            let before = (update.stage, update.workers.len());
            let served = match update.stage {
                Stage::Preparing => self.prepare(name, now),
                Stage::Cutting => self.cut(name, engines, now),
                Stage::Loading => self.load(name, now),
                Stage::Resuming => self.resume(name, now),
                Stage::Driven => {
                    self.drive(name, now);
                    return None;
                }
            };
            if served.is_some() {
                return served;
            }
            let update = self.jobs.get(name)?.update.as_ref()?;
            if before == (update.stage, update.workers.len()) {
                return None;
            }
        }
    }

    fn update(&mut self, name: &str) -> Option<&mut Update> {
        self.jobs.get_mut(name)?.update.as_mut()
    }

    fn prepare(&mut self, name: &str, now: Timestamp) -> Option<Weights> {
        let update = self.jobs.get(name)?.update.as_ref()?;
        let is_late = now >= update.ready_by();
        let is_ready = |worker: &WorkerId| {
            let holding = self.holdings.get(worker);
            holding.is_some_and(|holding| holding.ready && holding.call.is_none())
        };
        let unready: Vec<WorkerId> = update.workers.iter().copied().collect();
        let unready: Vec<WorkerId> = unready.into_iter().filter(|w| !is_ready(w)).collect();
        if !unready.is_empty() && !is_late {
            return None;
        }
        for worker in unready {
            self.leave_behind(name, worker, "it was not ready in time".into());
        }
        let update = self.update(name)?;
        if update.workers.is_empty() || update.workers.len() < update.quorum() {
            self.end(name, now);
            return None;
        }
        update.stage = Stage::Cutting;
        update.fenced = Some(now);
        None
    }

    fn cut(&mut self, name: &str, engines: &dyn Engines, now: Timestamp) -> Option<Weights> {
        let update = self.jobs.get_mut(name)?.update.as_mut()?;
        let is_late = update.waits_until().is_some_and(|until| now >= until);
        if is_late || !update.workers.iter().any(|w| engines.ends_steps(*w)) {
            update.stage = Stage::Loading;
            let turn = if update.plan.rolling { 1 } else { usize::MAX };
            for worker in update.workers.iter().take(turn).filter(|_| is_late) {
                // Its steps had their time.
                if let Some(holding) = self.holdings.get_mut(worker) {
                    holding.cuts_until = Some(now);
                }
            }
        }
        None
    }

    /// Whether an engine has come to this phase with the version of the update.
    fn is_at(&self, update: &Update, worker: WorkerId, phase: Phase) -> bool {
        let holding = self.holdings.get(&worker);
        holding.is_some_and(|h| {
            let is_own = h.loading.as_ref() == Some(&update.weights);
            let holds = phase == Phase::Held && h.serves(Some(&update.weights));
            h.call.is_none() && (holds || h.phase == phase && is_own)
        })
    }

    fn load(&mut self, name: &str, now: Timestamp) -> Option<Weights> {
        let update = self.jobs.get(name)?.update.as_ref()?;
        let turn: Vec<WorkerId> = match update.next().filter(|_| update.plan.rolling) {
            Some(next) => vec![next],
            None => update.workers.iter().copied().collect(),
        };
        if !turn.iter().all(|w| self.is_at(update, *w, Phase::Resuming)) {
            return None;
        }
        let holdings = turn
            .iter()
            .filter_map(|w| Some((*w, self.holdings.get(w)?)));
        let (differing, agreed) = compare(holdings);
        self.update(name)?.stage = Stage::Resuming;
        self.agree(name, differing, agreed, now);
        None
    }

    /// Engines whose checksums differ from what most have are torn, also those of a released job.
    pub(crate) fn agree(
        &mut self,
        name: &str,
        differing: Vec<WorkerId>,
        agreed: Checksums,
        now: Timestamp,
    ) {
        if let Some(update) = self.job_mut(name).and_then(|job| job.update.as_mut()) {
            update.checksums.extend(agreed);
        }
        for worker in differing {
            if let Some(holding) = self.holdings.get_mut(&worker) {
                let cause = holding.after_loss(OTHER_CHECKSUM);
                holding.tear(&cause, now);
                self.leave_behind(name, worker, cause.into());
            }
        }
    }

    fn resume(&mut self, name: &str, now: Timestamp) -> Option<Weights> {
        let update = self.jobs.get(name)?.update.as_ref()?;
        let holds = |worker: &WorkerId| self.is_at(update, *worker, Phase::Held);
        if update.plan.rolling && !update.workers.is_empty() {
            let next = update.next()?;
            let (holds, resumes) = (holds(&next), self.is_at(update, next, Phase::Resuming));
            let is_called = self.holdings.get(&next)?.call.is_some();
            let update = self.update(name)?;
            if holds {
                update.workers.remove(&next);
            }
            if holds || !resumes && !is_called {
                update.stage = Stage::Loading;
            }
            return None;
        }
        if update.workers.iter().all(holds) {
            return self.end(name, now);
        }
        None
    }

    /// The update is over. The version is in service if an engine serves it.
    pub(crate) fn end(&mut self, name: &str, now: Timestamp) -> Option<Weights> {
        let update = self.jobs.get_mut(name)?.update.take()?;
        let held = self.of_job(name);
        let held = held
            .filter(|(_, h)| h.serves(Some(&update.weights)))
            .count();
        for holding in self.holdings.values_mut().filter(|h| *h.job == *name) {
            holding.ready = false;
        }
        let job = self.jobs.get_mut(name)?;
        job.last = Some(EndedUpdate {
            weights: update.weights.clone(),
            began: update.began,
            ended: now,
            exposed: update.fenced.map(|at| now.since(at)).unwrap_or_default(),
            held: u32::try_from(held).unwrap_or(u32::MAX),
            behind: update.behind,
        });
        if held == 0 {
            return None;
        }
        job.serving = Some(update.weights.clone());
        job.checksums = update.checksums;
        job.went_back = false;
        Some(update.weights)
    }
}
