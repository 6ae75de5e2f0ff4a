//! The trainer of a simulation of weight updates: it takes batches in order, trains, publishes
//! versions or loads engines by itself, saves checkpoints and goes back to them.

use super::model::Version;
use super::{Due, JOB, Simulation, WeightsBug};
use crate::plan::SECOND_US;
use std::collections::BTreeSet;
use treadle_core::training::{Job, TrainingEvent};
use treadle_core::weights::{JobWeights, TrainerCall, Weights, WeightsEvent};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::WorkerId;

/// What a trainer does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Doing {
    #[default]
    Collects,
    Trains,
    /// Engines are to get its version.
    Updates,
}

/// Calls to all engines, one after the other, all engines at once.
#[derive(Clone, Debug)]
struct Round {
    calls: Vec<TrainerCall>,
    next: usize,
    waits_for: BTreeSet<u64>,
    is_any_done: bool,
}

/// A trainer.
#[derive(Clone, Debug)]
pub(super) struct Trainer {
    /// Changes with what it does, so that what was scheduled before is void.
    epoch: u64,
    doing: Doing,
    pub(super) version: Version,
    batch: u64,
    saved: u64,
    submitted: u64,
    round: Option<Round>,
    /// Versions that came into service since nothing fails any more.
    pub(super) calm_updates: u64,
}

impl Default for Trainer {
    fn default() -> Self {
        Self {
            epoch: 0,
            doing: Doing::Collects,
            version: Version::default(),
            batch: 1,
            saved: 0,
            submitted: 0,
            round: None,
            calm_updates: 0,
        }
    }
}

impl Simulation {
    pub(super) fn job(&self) -> Option<&Job> {
        self.daemon.jobs().jobs.get(JOB)
    }

    fn weights(&self) -> Option<&JobWeights> {
        self.daemon.core().weights().jobs.get(JOB)
    }

    /// A call about the training run, which may be refused.
    pub(super) fn call(&mut self, event: TrainingEvent) -> Checked<bool> {
        if self.daemon.core().check_training(&event).is_err() {
            self.counts.count("refused");
            return Ok(false);
        }
        self.handle(event.into())?;
        Ok(true)
    }

    pub(super) fn trainer_in(&mut self, delay_us: u64) {
        self.trainer.epoch += 1;
        self.after(delay_us, Due::Trainer(self.trainer.epoch));
    }

    pub(super) fn trainer_acts(&mut self, epoch: u64) -> Checked {
        if self.trainer.epoch != epoch {
            return Ok(());
        }
        self.feed()?;
        match self.trainer.doing {
            Doing::Collects => self.collect(),
            Doing::Trains => self.trained(),
            Doing::Updates if self.plan.driving.is_some() => self.drive(),
            Doing::Updates => self.publish(),
        }
    }

    /// Keeps some prompts queued.
    fn feed(&mut self) -> Checked {
        let wanted = 4 * self.plan.settings.batch_groups as usize;
        let queued = self.job().map_or(0, |job| job.open.len());
        for _ in queued..wanted {
            self.trainer.submitted += 1;
            self.call(TrainingEvent::GroupSubmitted {
                job: JOB.into(),
                group: format!("g{}", self.trainer.submitted).into(),
                size: None,
                content: None,
                domain: None,
            })?;
        }
        Ok(())
    }

    fn collect(&mut self) -> Checked {
        let batch = self.trainer.batch;
        if self
            .job()
            .is_some_and(|job| job.batches.contains_key(&batch))
        {
            self.trainer.doing = Doing::Trains;
            let takes_us = self.draws.between(1_000, self.plan.training_us);
            self.trainer_in(takes_us);
            return Ok(());
        }
        self.call(TrainingEvent::BatchRequested {
            job: JOB.into(),
            batch,
        })?;
        self.trainer_in(SECOND_US / 2);
        let is_fenced = !self.daemon.core().weights().fenced.is_empty();
        if is_fenced && self.plan.driving.is_some() && self.draws.percent(3) {
            // Only its trainer can load an engine that was left behind.
            self.trainer.doing = Doing::Updates;
        } else if is_fenced && self.is_calm() && self.draws.percent(1) {
            // Its engines wait for a checksum that none of them can have.
            let causes = self.daemon.core().weights().holdings.values();
            let mut causes = causes.filter_map(|holding| holding.cause.as_deref());
            if causes.any(|cause| cause.contains("its checksum differs")) {
                self.counts.count("freed");
                return self.go_back();
            }
        }
        Ok(())
    }

    fn trained(&mut self) -> Checked {
        let (lineage, batch) = (self.trainer.version.lineage, self.trainer.batch);
        let job = || Box::from(JOB);
        self.call(TrainingEvent::BatchTrained {
            job: job(),
            lineage,
            batch,
        })?;
        self.counts.count("batches");
        if batch.is_multiple_of(2) {
            self.trainer.saved = batch;
            self.call(TrainingEvent::Checkpointed {
                job: job(),
                lineage,
                batch,
            })?;
        }
        self.trainer.version.number = batch;
        self.trainer.doing = Doing::Updates;
        self.trainer_in(1_000);
        Ok(())
    }

    /// It goes back to its checkpoint, and engines are to get those weights.
    fn go_back(&mut self) -> Checked {
        let (lineage, batch) = (self.trainer.version.lineage, self.trainer.saved);
        self.counts.count("went-back");
        self.model.went_back(batch);
        self.call(TrainingEvent::RolledBack {
            job: JOB.into(),
            lineage,
            batch,
        })?;
        self.trainer.version = Version {
            lineage: lineage + 1,
            number: batch,
        };
        self.trainer.batch = batch + 1;
        self.trainer.round = None;
        self.trainer.doing = Doing::Updates;
        self.trainer_in(SECOND_US);
        Ok(())
    }

    /// Its version is in service.
    fn updated(&mut self) -> Checked {
        self.counts.count("updated");
        self.trainer.calm_updates += u64::from(self.is_calm());
        if self.goes_wrong(self.plan.resume_percent) {
            return self.go_back();
        }
        self.trainer.batch = self.trainer.version.number + 1;
        self.trainer.doing = Doing::Collects;
        self.trainer_in(1_000);
        Ok(())
    }

    /// Has treadle load its version, until it serves.
    fn publish(&mut self) -> Checked {
        let version = self.trainer.version;
        let weights = self.weights();
        let serving = weights.and_then(|job| job.serving.as_ref().map(Version::of));
        if serving == Some(version) {
            self.publish_older(version)?;
            return self.updated();
        }
        if weights.is_some_and(|job| job.update.is_some()) {
            if self.goes_wrong(self.plan.resume_percent / 5) {
                return self.go_back();
            }
            self.trainer_in(SECOND_US);
            return Ok(());
        }
        let event = self.published(version);
        if self.daemon.core().check_weights(&event).is_ok() {
            self.counts.count("published");
            self.handle(event.into())?;
        }
        self.trainer_in(SECOND_US);
        Ok(())
    }

    fn published(&self, version: Version) -> WeightsEvent {
        WeightsEvent::WeightsPublished {
            job: JOB.into(),
            weights: Weights {
                lineage: version.lineage,
                version: version.number,
                name: version.to_string().into(),
                folder: format!("/weights/{version}").into(),
            },
            workers: Vec::new(),
            plan: self.plan.update,
        }
    }

    /// Versions never fall: an older one is refused.
    fn publish_older(&mut self, version: Version) -> Checked {
        let Some(number) = version
            .number
            .checked_sub(1)
            .filter(|_| self.draws.percent(20))
        else {
            return Ok(());
        };
        let older = self.published(Version { number, ..version });
        let is_refused = self.daemon.core().check_weights(&older).is_err();
        if self.bug == Some(WeightsBug::AcceptOlder) {
            return self.handle(older.into());
        }
        if is_refused {
            return Ok(());
        }
        broken("versions", format!("{older:?} is accepted after {version}"))
    }

    /// Loads all engines by their own protocols, call by call.
    fn drive(&mut self) -> Checked {
        let Some(driving) = self.plan.driving else {
            return Ok(());
        };
        let Some(round) = &self.trainer.round else {
            let name = Some(self.trainer.version.plain_name());
            let part = TrainerCall::Part { name: None };
            let mut calls = if driving.in_parts {
                let end = TrainerCall::End { name };
                vec![TrainerCall::Begin, part.clone(), part, end]
            } else {
                vec![TrainerCall::Load { name }]
            };
            if !driving.never_pauses {
                calls.insert(0, TrainerCall::Pause { own: false });
                calls.push(TrainerCall::Resume);
            }
            self.trainer.round = Some(Round {
                calls,
                next: 0,
                waits_for: BTreeSet::new(),
                is_any_done: true,
            });
            self.call_engines();
            return Ok(());
        };
        let is_over = round.next >= round.calls.len();
        if !round.waits_for.is_empty() {
            return Ok(());
        }
        if self.goes_wrong(driving.gives_up_percent) {
            return self.leave_unfinished();
        }
        if is_over || !round_goes_on(self.trainer.round.as_ref()) {
            return self.end_round();
        }
        self.call_engines();
        Ok(())
    }

    /// Makes the next call of the round. Those that its update left behind get it no more, until
    /// the next pause.
    fn call_engines(&mut self) {
        let update = self.weights().and_then(|job| job.update.as_ref());
        let behind: BTreeSet<WorkerId> = update
            .into_iter()
            .flat_map(|u| u.behind.keys().copied())
            .collect();
        let Some(round) = &mut self.trainer.round else {
            return;
        };
        let call = round.calls[round.next].clone();
        round.next += 1;
        round.is_any_done = false;
        let pauses = matches!(call, TrainerCall::Pause { .. });
        let workers: Vec<WorkerId> = self.engines.keys().copied().collect();
        let version = self.trainer.version;
        let mut waits_for = BTreeSet::new();
        for worker in workers
            .into_iter()
            .filter(|w| pauses || !behind.contains(w))
        {
            waits_for.insert(self.relay(worker, call.clone(), version));
        }
        if waits_for.is_empty() {
            self.trainer_in(SECOND_US);
        }
        if let Some(round) = &mut self.trainer.round {
            round.waits_for = waits_for;
        }
    }

    /// An engine answered a call of the round.
    pub(super) fn round_answered(&mut self, number: u64, is_done: bool) {
        let Some(round) = &mut self.trainer.round else {
            return;
        };
        if !round.waits_for.remove(&number) {
            return;
        }
        round.is_any_done |= is_done;
        if round.waits_for.is_empty() {
            self.trainer_in(10_000);
        }
    }

    /// Each engine had its calls, or none goes on. Trainers tell versions by themselves.
    fn end_round(&mut self) -> Checked {
        self.trainer.round = None;
        let version = self.trainer.version;
        let serving = self.weights().and_then(|job| job.serving.as_ref());
        if serving.map(Version::of) != Some(version) {
            let again_us = self.draws.between(1, 10) * SECOND_US;
            self.trainer_in(again_us);
            return Ok(());
        }
        self.call(TrainingEvent::VersionTold {
            job: JOB.into(),
            lineage: version.lineage,
            version: version.number,
            digest: None,
        })?;
        self.updated()
    }

    /// It dies in the middle of a round. The next one goes on with the same version, goes back, or
    /// trains the next version first, if its job lets it.
    fn leave_unfinished(&mut self) -> Checked {
        self.counts.count("left-unfinished");
        self.trainer.round = None;
        if self.draws.percent(20) {
            return self.go_back();
        }
        let next = self.trainer.version.number + 1;
        // The run waits for the version of another round otherwise, which would never come.
        let is_let = self.job().is_some_and(|job| {
            let floor = job.settings.floor(next);
            job.version.is_some_and(|version| version >= floor)
        });
        if self.plan.settings.lag_max >= 2 && self.draws.percent(50) && is_let {
            self.trainer.batch = self.trainer.version.number + 1;
            self.trainer.doing = Doing::Collects;
        }
        let rests_us = self.draws.between(1, 30) * SECOND_US;
        self.trainer_in(rests_us);
        Ok(())
    }

    /// The daemon is gone, and with it the answers to its calls.
    pub(super) fn trainer_loses_daemon(&mut self) {
        self.chains.clear();
        if self.trainer.round.take().is_some() {
            let rests_us = self.draws.between(1, 10) * SECOND_US;
            self.trainer_in(rests_us);
        }
    }
}

fn round_goes_on(round: Option<&Round>) -> bool {
    round.is_some_and(|round| round.is_any_done)
}
