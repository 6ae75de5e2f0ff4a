//! Updates that a trainer drives: it pauses and loads the engines by their own control protocols,
//! through treadle's relay. treadle fences an engine before the first call of an update, verifies
//! it and clears its caches after the last one, and only then has it generate again.
//!
//! A call that fails tears its engine, unless the answer says that nothing has changed. The update
//! goes on with the others. A torn engine gets steps again after an update of all its weights.

use crate::holding::{Holding, Phase, Progress};
use crate::job::{JobWeights, Stage, Update, compare, is_before_pause, record};
use crate::trainer::{Trainer, TrainerCall};
use crate::{Answer, Call, Checksums, Engines, State, UpdatePlan, Weights};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{Timestamp, WorkerId};

impl JobWeights {
    /// The version that a trainer means by a name. Without one it is the next.
    pub(crate) fn named(&self, lineage: u32, name: &str) -> Weights {
        let serving = self.serving.as_ref().filter(|s| s.lineage == lineage);
        if let Some(serving) = serving.filter(|s| !name.is_empty() && *s.name == *name) {
            return serving.clone();
        }
        let last = serving.map(|serving| serving.version);
        let is_new = |number: &u64| last.is_none_or(|last| *number > last);
        let number = name.parse().ok().filter(is_new);
        let next = last.map_or(1, |last| last.saturating_add(1));
        Weights {
            lineage,
            version: number.unwrap_or(next),
            name: name.into(),
            folder: "".into(),
        }
    }

    /// What an engine that is in no update is to do: one that was lost is asked whether it still
    /// has the version in service. Only its trainer can load it.
    pub(crate) fn mend_driven(&self, holding: &Holding) -> Option<(Call, Weights)> {
        let serving = self.serving.as_ref();
        let loading = holding.loading.as_ref().or(serving);
        let (call, weights) = match holding.phase {
            // With what it came with: which version is named then does not matter to a resume.
            Phase::Resuming if loading.is_none() => return Some((Call::Resume, self.named(0, ""))),
            Phase::Unknown => (Call::Verify, serving),
            Phase::Verifying => (Call::Verify, loading),
            Phase::Clearing => (Call::Clear, loading),
            Phase::Resuming => (Call::Resume, loading),
            Phase::Held | Phase::Paused | Phase::Torn => return None,
        };
        Some((call, weights?.clone()))
    }
}

impl Holding {
    /// Whether it is not known any more what an engine has that does not answer. What a trainer
    /// tore stays torn, and what no trainer has loaded yet is what engines come with.
    pub(crate) fn is_doubted(&self, job: Option<&JobWeights>) -> bool {
        let driven = job.filter(|job| job.driven);
        let is_fresh = driven.is_some_and(|job| {
            self.phase == Phase::Held && self.held.is_none() && job.serving.is_none()
        });
        let stays_torn = driven.is_some() && self.phase == Phase::Torn;
        self.phase != Phase::Unknown && !is_fresh && !stays_torn
    }
}

impl Update {
    fn driven(weights: Weights, calls_before: u64, now: Timestamp) -> Self {
        Self {
            weights,
            plan: UpdatePlan::default(),
            began: now,
            calls_before,
            stage: Stage::Driven,
            fenced: Some(now),
            workers: BTreeSet::new(),
            behind: BTreeMap::new(),
            checksums: Checksums::new(),
        }
    }

    /// What an engine is to do next while a trainer updates it.
    pub(crate) fn next_driven(&self, holding: &Holding) -> Option<(Call, Weights)> {
        let loading = holding.loading.as_ref();
        let resumes = holding.trainer.as_ref().is_some_and(|t| t.resumes);
        let is_proven = loading != Some(&self.weights)
            || holding.checksum.as_ref().is_none_or(|sum| {
                let agreed = self.checksums.get(&sum.layout);
                agreed == Some(&sum.value)
            });
        let call = match holding.phase {
            Phase::Verifying => Call::Verify,
            Phase::Clearing => Call::Clear,
            Phase::Resuming if resumes && is_proven => Call::Resume,
            _ => return None,
        };
        Some((call, loading.unwrap_or(&self.weights).clone()))
    }
}

impl State {
    /// Whether an engine proves or has proven that it has the version of the update under way, so
    /// that the version can't get another name.
    pub(crate) fn is_fixed(&self, job: &str) -> bool {
        let update = self.jobs.get(job).and_then(|job| job.update.as_ref());
        update.is_some_and(|update| {
            let has = |holding: &Holding| {
                let weights = Some(&update.weights);
                holding.serves(weights) || holding.loading.as_ref() == weights
            };
            let own = update.workers.iter().filter_map(|w| self.holdings.get(w));
            own.into_iter().any(has)
        })
    }

    /// Whether a call begins another update, so that the one under way was left unfinished. The
    /// pause of a trainer says so; this is for one that never pauses, so that treadle does. All
    /// engines serve, some of them the version, or treadle paused them and nothing is under way.
    pub(crate) fn begins_anew(&self, job: &str, worker: WorkerId, call: &TrainerCall) -> bool {
        let is_first = matches!(
            call,
            TrainerCall::Begin | TrainerCall::Load { .. } | TrainerCall::Part { name: Some(_) }
        );
        let update = self.jobs.get(job).and_then(|job| job.update.as_ref());
        let Some(update) = update.filter(|u| is_first && u.workers.contains(&worker)) else {
            return false;
        };
        let named = call.name().unwrap_or_default();
        let is_other = *update.weights.name != *named;
        let is_left = |holding: &Holding| {
            let trainer = holding.trainer.as_ref();
            let is_idle = trainer.is_some_and(|t| t.call.is_none() && t.paused_by_treadle);
            let is_paused = holding.phase == Phase::Paused && is_idle;
            is_paused || holding.phase == Phase::Held
        };
        let weights = Some(&update.weights);
        let own = update.workers.iter().filter_map(|w| self.holdings.get(w));
        let (served, rest): (Vec<_>, Vec<_>) = own.partition(|holding| holding.serves(weights));
        is_other && !served.is_empty() && rest.into_iter().all(is_left)
    }

    /// Ends an update that its trainer left unfinished: it begins another one.
    fn end_left(&mut self, name: &str, now: Timestamp) {
        let update = self.jobs.get(name).and_then(|job| job.update.as_ref());
        let Some(update) = update else { return };
        let cause = format!(
            "its trainer left the update to version `{}` unfinished",
            update.weights.name
        );
        let weights = Some(update.weights.clone());
        for worker in update.workers.clone() {
            let Some(holding) = self.holdings.get_mut(&worker) else {
                continue;
            };
            if holding.serves(weights.as_ref()) {
                continue;
            }
            if holding.phase != Phase::Held {
                holding.cause = Some(cause.as_str().into());
            }
            self.leave_behind(name, worker, cause.as_str().into());
        }
        self.end(name, now);
    }

    /// A trainer's call to an engine is about to be made.
    pub(crate) fn called(
        &mut self,
        name: &str,
        worker: WorkerId,
        by: &CalledBy<'_>,
        engines: &dyn Engines,
        now: Timestamp,
    ) {
        let is_held = self.holdings.get(&worker);
        let is_held = is_held.is_none_or(|holding| holding.phase == Phase::Held);
        if *by.call == TrainerCall::Resume && is_held {
            return;
        }
        if *by.call == TrainerCall::Resume && self.resume_released(name, worker, now) {
            return;
        }
        self.begin_job(name, now);
        let job = self.jobs.entry(name.into()).or_insert_with(|| JobWeights {
            driven: true,
            ..JobWeights::default()
        });
        job.all |= by.all;
        let new = if job.all { engines.engines() } else { vec![] };
        for worker in new.into_iter().chain([worker]) {
            self.take(name, worker, now);
        }
        if *by.call == TrainerCall::Join {
            if let Some(holding) = self.holdings.get_mut(&worker) {
                holding.joins(now);
            }
            return;
        }
        if self.begins_anew(name, worker, by.call) {
            self.end_left(name, now);
        }
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        if job.update.is_none() {
            let weights = job.named(by.lineage, "");
            job.update = Some(Update::driven(weights, self.calls, now));
        }
        self.name_version(name, by.lineage, by.call.name());
        let update = self.jobs.get_mut(name).and_then(|job| job.update.as_mut());
        if let Some((update, holding)) = update.zip(self.holdings.get_mut(&worker)) {
            update.workers.insert(worker);
            update.behind.remove(&worker);
            let is_new = is_before_pause(holding.phase);
            holding.called(by.call, &update.weights, now);
            if is_new && matches!(by.call, TrainerCall::Pause { .. }) {
                holding.may_pause(engines.ends_steps(worker), now);
            }
        }
    }

    /// Lets trainers' pauses be made once steps that were cut have ended, or at the latest.
    pub(crate) fn await_cuts(&mut self, engines: &dyn Engines, now: Timestamp) {
        for (worker, holding) in &mut self.holdings {
            if holding.is_called() && holding.cuts_until.is_some() {
                holding.may_pause(engines.ends_steps(*worker), now);
            }
        }
    }

    /// The version of an update has this name from now on, for all engines.
    fn name_version(&mut self, name: &str, lineage: u32, version: Option<&str>) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        let Some(version) = version else { return };
        let weights = job.named(lineage, version);
        let is_served = job.serving.as_ref() == Some(&weights);
        if let Some(update) = job.update.as_mut().filter(|u| u.weights != weights) {
            update.checksums.clear();
            if is_served {
                update.checksums.clone_from(&job.checksums);
            }
            update.weights = weights;
        }
    }

    /// Trainers need not name versions: then it is what the engines report.
    pub(crate) fn adopt_name(&mut self, name: &str, reported: &str) {
        let Some(update) = self.job_mut(name).and_then(|job| job.update.as_mut()) else {
            return;
        };
        if update.stage != Stage::Driven || !update.weights.name.is_empty() {
            return;
        }
        let before = update.weights.clone();
        update.weights.name = reported.into();
        let named = update.weights.clone();
        for holding in self.holdings.values_mut().filter(|h| *h.job == *name) {
            for of_holding in [&mut holding.loading, &mut holding.held] {
                if of_holding.as_ref() == Some(&before) {
                    *of_holding = Some(named.clone());
                }
            }
        }
    }

    /// A trainer's call to an engine ended.
    pub(crate) fn answered(
        &mut self,
        name: &str,
        worker: WorkerId,
        answer: &Answer,
        now: Timestamp,
    ) {
        let Some(holding) = self.holdings.get_mut(&worker) else {
            return;
        };
        if holding.is_joining() {
            self.joined(name, worker, answer, now);
            return;
        }
        let update = record(&self.jobs, &self.released, name);
        let update = update.and_then(|job| job.update.as_ref());
        let update = update.filter(|update| update.workers.contains(&worker));
        let update = update.filter(|_| *holding.job == *name);
        let Some(update) = update else {
            // The call outlived the update that it belonged to.
            holding.outlived(now);
            return;
        };
        if holding.answered(answer, &update.weights, now) == Progress::On {
            return;
        }
        let cause = holding.cause.clone().unwrap_or_default();
        self.leave_behind(name, worker, cause);
    }

    /// An engine joined a process group, or did not. One that gave no answer may wait there.
    pub(crate) fn joined(&mut self, name: &str, worker: WorkerId, answer: &Answer, now: Timestamp) {
        let Some(holding) = self.holdings.get_mut(&worker) else {
            return;
        };
        let trainer = holding.trainer.take().unwrap_or_default();
        let rest = Trainer {
            call: None,
            since: Timestamp::default(),
            ..trainer
        };
        holding.trainer = Some(rest).filter(|rest| *rest != Trainer::default());
        match answer {
            Answer::Done | Answer::Reports { .. } => {
                if let Some(job) = self.jobs.get_mut(name) {
                    job.group.join(worker);
                }
            }
            Answer::Refused { .. } => {}
            Answer::Failed { cause } => {
                let cause = format!("it may wait for a process group for ever: {cause}");
                if holding.phase != Phase::Torn {
                    holding.doubt(&cause, now);
                }
                self.leave_behind(name, worker, cause.into());
            }
        }
    }

    /// An engine proved, outside of any update, that it has what it had.
    pub(crate) fn found(&mut self, name: &str, worker: WorkerId) {
        if let Some(job) = self.jobs.get_mut(name).filter(|job| job.update.is_none()) {
            job.group.find(worker);
        }
    }

    /// Trainers' calls whose answers were lost with the daemon.
    pub(crate) fn lose_trainers(&mut self, cause: &str, now: Timestamp) {
        let called = self.holdings.iter().filter(|(_, holding)| {
            let trainer = holding.trainer.as_ref();
            trainer.is_some_and(|trainer| trainer.call.is_some())
        });
        let called = called.map(|(worker, holding)| (*worker, holding.job.clone()));
        for (worker, job) in called.collect::<Vec<_>>() {
            let cause = cause.into();
            self.answered(&job, worker, &Answer::Failed { cause }, now);
        }
    }

    /// Takes an update that a trainer drives as far as it can go without it.
    pub(crate) fn drive(&mut self, name: &str, now: Timestamp) {
        let Some(update) = self.jobs.get(name).and_then(|job| job.update.as_ref()) else {
            return;
        };
        let own = update.workers.iter();
        let own: Vec<(WorkerId, &Holding)> = own
            .filter_map(|worker| Some((*worker, self.holdings.get(worker)?)))
            .collect();
        // A single engine has nothing to be compared with.
        let will_prove = |holding: &Holding| {
            let proves = matches!(holding.phase, Phase::Verifying | Phase::Clearing);
            proves || holding.is_called()
        };
        if !own.iter().any(|(_, holding)| will_prove(holding)) {
            let resuming = own.into_iter().filter(|(_, holding)| {
                let is_own = holding.loading.as_ref() == Some(&update.weights);
                holding.phase == Phase::Resuming && is_own
            });
            let (differing, agreed) = compare(resuming);
            self.agree(name, differing, agreed, now);
        }
        let update = self.jobs.get(name).and_then(|job| job.update.as_ref());
        let Some(update) = update else { return };
        let serves = |worker: &WorkerId| {
            let holding = self.holdings.get(worker);
            holding.is_some_and(|holding| holding.phase == Phase::Held)
        };
        if !update.workers.iter().all(serves) {
            return;
        }
        let weights = Some(&update.weights);
        let has_served = self.of_job(name).any(|(_, h)| h.serves(weights));
        if has_served || !update.behind.is_empty() {
            self.end(name, now);
        } else if let Some(job) = self.jobs.get_mut(name) {
            job.update = None;
        }
    }
}

/// How a trainer called an engine.
pub(crate) struct CalledBy<'c> {
    /// The call.
    pub(crate) call: &'c TrainerCall,
    /// The lineage of the job's run.
    pub(crate) lineage: u32,
    /// It called all engines.
    pub(crate) all: bool,
}
