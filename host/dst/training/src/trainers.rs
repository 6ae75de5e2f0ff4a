//! Trainers: they submit prompts, take batches in order, train, tell versions, save checkpoints and
//! go back to them.

use super::model::answered;
use super::plan::SECOND_US;
use super::{Due, Simulation};
use treadle_core::training::{Job, JobSettings, TrainingEvent};
use treadle_dst_outcome::{Checked, broken};

/// A trainer.
#[derive(Clone, Debug)]
pub(super) struct Trainer {
    /// Changes when it crashes, so that what was scheduled before is void.
    pub(super) epoch: u64,
    /// The batch that it waits for or trains on.
    pub(super) batch: u64,
    pub(super) trains: bool,
    /// The last batch in its newest checkpoint.
    pub(super) saved: u64,
    pub(super) lineage: u32,
    /// Prompts that it has submitted.
    pub(super) submitted: u64,
    /// When it got its latest batch.
    pub(super) progress_us: u64,
}

impl Default for Trainer {
    fn default() -> Self {
        Self {
            epoch: 0,
            batch: 1,
            trains: false,
            saved: 0,
            lineage: 0,
            submitted: 0,
            progress_us: 0,
        }
    }
}

impl Simulation {
    pub(super) fn job(&self, job: usize) -> Option<&Job> {
        self.daemon.jobs().jobs.get(&self.plan.jobs[job].name)
    }

    /// All prompts were submitted, and what is left of them makes no batch.
    pub(super) fn is_done(&self, job: usize) -> bool {
        let submitted = self.trainers[job].submitted;
        let is_submitted = submitted >= self.plan.jobs[job].prompts;
        let is_left_over = |job: &Job| job.groups.len() < job.settings.batch_groups as usize;
        self.is_calm() && is_submitted && self.job(job).is_some_and(is_left_over)
    }

    pub(super) fn declare(&mut self, job: usize, settings: &JobSettings) -> Checked {
        let settings = Box::new(settings.clone());
        let job = self.plan.jobs[job].name.clone();
        self.call(TrainingEvent::JobDeclared { job, settings })
            .map(drop)
    }

    /// Keeps some prompts queued.
    pub(super) fn feed(&mut self, job: usize) -> Checked {
        let plan = self.plan.jobs[job].clone();
        let wanted = 3 * plan.settings.batch_groups as usize;
        for _ in 0..wanted {
            let queued = self.job(job).map_or(0, |job| job.open.len());
            let number = self.trainers[job].submitted;
            if number >= plan.prompts || queued >= wanted {
                break;
            }
            self.trainers[job].submitted += 1;
            self.submit(job, number)?;
        }
        if self.goes_wrong(20) && self.trainers[job].submitted > 0 {
            let number = self.draws.below(self.trainers[job].submitted);
            self.submit(job, number)?;
        }
        let pause_us = self.draws.between(SECOND_US / 2, 4 * SECOND_US);
        self.after(pause_us, Due::Feed(job));
        Ok(())
    }

    fn submit(&mut self, job: usize, number: u64) -> Checked {
        let size = self.draws.between_low(1, 5) as u16;
        let settings = self.job(job).map(|job| job.settings.group_size);
        let event = TrainingEvent::GroupSubmitted {
            job: self.plan.jobs[job].name.clone(),
            group: format!("g{number}").into(),
            size: if self.draws.percent(30) {
                Some(size)
            } else {
                settings
            },
            content: None,
            domain: None,
        };
        self.must_be_accepted(event)
    }

    /// A call that nothing speaks against.
    fn must_be_accepted(&mut self, event: TrainingEvent) -> Checked {
        let what = format!("{event:?}");
        let accepted = self.call(event)?;
        answered(&what, true, accepted)
    }

    pub(super) fn trainer_acts(&mut self, job: usize, epoch: u64) -> Checked {
        if self.trainers[job].epoch != epoch {
            return Ok(());
        }
        if self.trainers[job].trains {
            return self.trained(job);
        }
        let (batch, name) = (self.trainers[job].batch, self.plan.jobs[job].name.clone());
        let found = self.job(job).and_then(|job| job.batches.get(&batch));
        if let Some(found) = found {
            self.model.answer(&name, batch, found)?;
            let plan = &self.plan.jobs[job];
            let takes_us = self
                .draws
                .between(plan.training_us / 2, plan.training_us + 1);
            self.trainers[job].trains = true;
            self.trainers[job].progress_us = self.now_us;
            self.after(takes_us, Due::Trainer { job, epoch });
            return Ok(());
        }
        let requested = self.job(job).map_or(0, |job| job.requested);
        if requested < batch || self.goes_wrong(10) {
            let asked = TrainingEvent::BatchRequested { job: name, batch };
            self.must_be_accepted(asked)?;
            self.after(1_000, Due::Trainer { job, epoch });
        } else {
            self.after(SECOND_US, Due::Trainer { job, epoch });
        }
        Ok(())
    }

    /// It has trained on its batch: engines get the weights some time later, perhaps only after it
    /// has asked for the next batch.
    fn trained(&mut self, job: usize) -> Checked {
        let plan = self.plan.jobs[job].clone();
        let Trainer { lineage, batch, .. } = self.trainers[job].clone();
        let name = plan.name.clone();
        self.must_be_accepted(TrainingEvent::BatchTrained {
            job: name.clone(),
            lineage,
            batch,
        })?;
        let update_us = self.draws.between(plan.update_us / 2, plan.update_us + 1);
        let told = TrainingEvent::VersionTold {
            job: name.clone(),
            lineage,
            version: batch,
            digest: None,
        };
        self.after(update_us, Due::Call(Box::new(told)));
        if batch.is_multiple_of(plan.checkpoint_every) {
            self.trainers[job].saved = batch;
            let saved = TrainingEvent::Checkpointed {
                job: name,
                lineage,
                batch,
            };
            // Not each checkpoint is reported before the trainer dies.
            if !self.goes_wrong(20) {
                self.must_be_accepted(saved)?;
            }
        }
        if self.goes_wrong(plan.resume_percent) {
            return self.resume(job);
        }
        let trainer = &mut self.trainers[job];
        trainer.batch += 1;
        trainer.trains = false;
        let epoch = trainer.epoch;
        self.after(1_000, Due::Trainer { job, epoch });
        Ok(())
    }

    /// It goes back to its checkpoint, and engines get those weights.
    pub(super) fn resume(&mut self, job: usize) -> Checked {
        let name = self.plan.jobs[job].name.clone();
        let Trainer { lineage, saved, .. } = self.trainers[job].clone();
        self.counts.count("resumed");
        self.must_be_accepted(TrainingEvent::RolledBack {
            job: name.clone(),
            lineage,
            batch: saved,
        })?;
        let told = TrainingEvent::VersionTold {
            job: name,
            lineage: lineage + 1,
            version: saved,
            digest: None,
        };
        let update_us = self.plan.jobs[job].update_us;
        self.after(update_us, Due::Call(Box::new(told)));
        let trainer = &mut self.trainers[job];
        trainer.lineage += 1;
        trainer.batch = saved + 1;
        trainer.trains = false;
        trainer.epoch += 1;
        let epoch = trainer.epoch;
        self.after(SECOND_US, Due::Trainer { job, epoch });
        Ok(())
    }

    /// At the end each batch that was not released is what it was.
    pub(super) fn check_all_batches(&self) -> Checked {
        for plan in &self.plan.jobs {
            let Some(job) = self.daemon.jobs().jobs.get(&plan.name) else {
                return broken("answers", format!("{} is not there", plan.name));
            };
            for (batch, found) in &job.batches {
                self.model.answer(&plan.name, *batch, found)?;
            }
        }
        Ok(())
    }
}
