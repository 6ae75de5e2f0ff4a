//! What a trainer's calls make of what an engine holds.

use crate::holding::{Holding, Phase, Progress};
use crate::trainer::{Extent, TrainerCall};
use crate::{Answer, Weights};
use treadle_model::Timestamp;

impl Holding {
    /// Whether a trainer's calls may have changed the weights.
    pub(crate) fn is_touched(&self) -> bool {
        self.trainer.as_ref().is_some_and(|trainer| {
            let changes =
                |call: &TrainerCall| !matches!(call, TrainerCall::Pause { .. } | TrainerCall::Join);
            trainer.extent != Extent::Nothing || trainer.call.as_ref().is_some_and(changes)
        })
    }

    /// A trainer's call is about to be made. `weights` is the version of the update.
    pub(crate) fn called(&mut self, call: &TrainerCall, weights: &Weights, now: Timestamp) {
        let is_whole = self.sound && !self.is_touched();
        let trainer = self.trainer.get_or_insert_default();
        match call {
            TrainerCall::Resume => {
                trainer.resumes = true;
                if trainer.extent == Extent::Parts {
                    trainer.extent = Extent::All;
                }
                if self.phase == Phase::Paused && is_whole {
                    self.loading = self.held.clone();
                    self.come_to(Phase::Resuming, now);
                } else if self.phase == Phase::Paused {
                    self.prove(weights, now);
                }
                return;
            }
            TrainerCall::Pause { own } => {
                trainer.resumes = false;
                trainer.paused_by_treadle = *own;
                // It begins anew, as one that died after a few parts does.
                if matches!(trainer.extent, Extent::Parts | Extent::Own) {
                    trainer.extent = Extent::Left;
                }
            }
            TrainerCall::Join
            | TrainerCall::Begin
            | TrainerCall::BeginOwn
            | TrainerCall::Part { .. }
            | TrainerCall::End { .. }
            | TrainerCall::Load { .. } => {}
        }
        // What it was to prove, it need not: the update may go on with another version.
        self.loading = None;
        (trainer.call, trainer.since) = (Some(call.clone()), now);
        // What it is asked meanwhile says nothing about what it will have.
        (self.call, self.ready) = (None, false);
        self.come_to(Phase::Paused, now);
    }

    /// Whether a trainer's call is under way: what the engine is told meanwhile comes after it.
    pub(crate) fn is_called(&self) -> bool {
        self.trainer.as_ref().is_some_and(|t| t.call.is_some())
    }

    /// A trainer's call ended after its update was over for the engine: what it did is not known.
    pub(crate) fn outlived(&mut self, now: Timestamp) {
        if !self.is_called() {
            return;
        }
        let cause = self.cause.take();
        let cause = cause.unwrap_or_else(|| "its update ended before a trainer's call did".into());
        self.trainer = None;
        self.tear(&cause, now);
    }

    /// A trainer's call ended.
    pub(crate) fn answered(
        &mut self,
        answer: &Answer,
        weights: &Weights,
        now: Timestamp,
    ) -> Progress {
        let Some(trainer) = &mut self.trainer else {
            return Progress::On;
        };
        let Some(call) = trainer.call.take() else {
            return Progress::On;
        };
        self.cuts_until = None;
        let is_refused = matches!(answer, Answer::Refused { .. });
        let is_whole = self.sound && trainer.extent == Extent::Nothing;
        let cause = match answer {
            Answer::Refused { cause } | Answer::Failed { cause } => {
                format!("a trainer's call failed: {cause}")
            }
            Answer::Done | Answer::Reports { .. } => return self.carried_out(&call, weights, now),
        };
        match call {
            // It generates on with what it has, or does once it is resumed: the trainer does not do
            // that to an engine that treadle was to pause for it.
            TrainerCall::Pause { own } if is_whole && (own || is_refused) => {
                (trainer.resumes, trainer.may_generate) = (true, true);
                self.loading = self.held.clone();
                self.cause = Some(cause.into());
                self.come_to(Phase::Resuming, now);
                Progress::On
            }
            // It may be paused: only a resume shows that it generates.
            TrainerCall::Pause { .. } if !is_refused => {
                trainer.may_generate = true;
                self.cause = Some(cause.into());
                Progress::On
            }
            // The update can't be complete any more, whatever ends it.
            TrainerCall::Load { .. } | TrainerCall::Part { .. }
                if is_refused && trainer.extent == Extent::Open =>
            {
                trainer.extent = Extent::Left;
                Progress::On
            }
            TrainerCall::Begin
            | TrainerCall::BeginOwn
            | TrainerCall::Load { .. }
            | TrainerCall::Part { .. }
                if is_refused
                    && matches!(
                        trainer.extent,
                        Extent::Nothing | Extent::Open | Extent::Left
                    ) =>
            {
                Progress::On
            }
            _ => self.tear(&cause, now),
        }
    }

    fn carried_out(&mut self, call: &TrainerCall, weights: &Weights, now: Timestamp) -> Progress {
        let trainer = self.trainer.get_or_insert_default();
        match call {
            TrainerCall::Pause { .. } => {
                trainer.may_generate = false;
                return Progress::On;
            }
            TrainerCall::Join | TrainerCall::Resume => return Progress::On,
            TrainerCall::Begin => trainer.extent = Extent::Open,
            TrainerCall::BeginOwn => trainer.extent = Extent::Own,
            TrainerCall::Part { .. } if matches!(trainer.extent, Extent::Open | Extent::Own) => {}
            TrainerCall::Part { .. } => trainer.extent = Extent::Parts,
            TrainerCall::Load { .. } => trainer.extent = Extent::All,
            TrainerCall::End { .. } => {
                trainer.extent = Extent::All;
                self.prove(weights, now);
            }
        }
        self.sound = false;
        Progress::On
    }

    /// It has to prove that it has this version.
    pub(crate) fn prove(&mut self, weights: &Weights, now: Timestamp) {
        self.loading = Some(weights.clone());
        (self.confirmed, self.checksum) = (true, None);
        self.come_to(Phase::Verifying, now);
    }
}
