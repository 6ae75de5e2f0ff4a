//! A trainer's calls to engines, passed on as the relay does it: a stand-in for `host/relay`.

use super::engines::Work;
use super::model::{Model, Version};
use super::{Due, JOB, Simulation};
use crate::plan::SECOND_US;
use treadle_core::PublishError;
use treadle_core::programs::Worker;
use treadle_core::weights::{Answer, Holding, Phase, TrainerCall, WeightsError, WeightsEvent};
use treadle_dst_outcome::Checked;
use treadle_model::WorkerId;

/// How far a call is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Begins,
    /// It waits for steps that were cut.
    Cuts,
    /// It is at its engine.
    Called,
    /// The engine proves what it has, and generates again.
    Proves,
}

/// A call that is passed on.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    worker: WorkerId,
    call: TrainerCall,
    version: Version,
    stage: Stage,
    /// treadle pauses the engine first.
    pauses: bool,
}

impl Simulation {
    pub(super) fn holding(&self, worker: WorkerId) -> Option<&Holding> {
        self.daemon.core().weights().holding(worker)
    }

    /// Passes a call on. The answer reaches the trainer's round.
    pub(super) fn relay(&mut self, worker: WorkerId, call: TrainerCall, version: Version) -> u64 {
        self.numbers += 1;
        // Numbers of the core's own calls are small.
        let number = (1 << 40) + self.numbers;
        let chain = Chain {
            worker,
            call,
            version,
            stage: Stage::Begins,
            pauses: false,
        };
        self.chains.insert(number, chain);
        self.after(1_000, Due::Relay(number));
        number
    }

    pub(super) fn relay_acts(&mut self, number: u64) -> Checked {
        let Some(chain) = self.chains.get(&number).cloned() else {
            return Ok(());
        };
        match chain.stage {
            Stage::Begins => self.relay_begins(number, &chain),
            Stage::Cuts => self.relay_awaits_cuts(number, &chain),
            Stage::Called => {
                let workers = &self.daemon.core().programs().workers;
                if workers.get(&chain.worker).is_some_and(Worker::is_healthy) {
                    self.after(SECOND_US, Due::Relay(number));
                    return Ok(());
                }
                self.give_up(chain.worker, number);
                let cause = "the engine stopped answering".into();
                self.relay_answered(number, &Answer::Failed { cause })
            }
            Stage::Proves => {
                let phase = self.holding(chain.worker).map(|holding| holding.phase);
                match phase {
                    Some(Phase::Held) => self.reply(number, true),
                    Some(Phase::Verifying | Phase::Clearing | Phase::Resuming) => {
                        self.after(SECOND_US / 2, Due::Relay(number));
                    }
                    _ => self.reply(number, false),
                }
                Ok(())
            }
        }
    }

    fn relay_begins(&mut self, number: u64, chain: &Chain) -> Checked {
        let shows_its_end = matches!(chain.call, TrainerCall::Begin | TrainerCall::Load { .. });
        let mut pauses = matches!(chain.call, TrainerCall::Pause { .. });
        match self.relayed(chain, chain.call.clone())? {
            Ok(()) => {}
            Err(PublishError::Engines(WeightsError::NotPaused(_))) if shows_its_end => {
                let own = TrainerCall::Pause { own: true };
                if self.relayed(chain, own)?.is_err() {
                    self.reply(number, false);
                    return Ok(());
                }
                pauses = true;
                self.stage(number, |chain| chain.pauses = true);
            }
            Err(_) => {
                self.counts.count("refused");
                self.reply(number, false);
                return Ok(());
            }
        }
        if chain.call == TrainerCall::Resume {
            self.stage(number, |chain| chain.stage = Stage::Proves);
            return self.relay_acts(number);
        }
        if pauses {
            self.stage(number, |chain| chain.stage = Stage::Cuts);
            return self.relay_acts(number);
        }
        let is_open = self.holding(chain.worker).is_some_and(Holding::may_be_open);
        if chain.call == TrainerCall::Begin && is_open {
            self.submit(chain.worker, number, Work::Abandon);
        }
        self.relay_sends(number, chain, chain.call.clone());
        Ok(())
    }

    fn stage(&mut self, number: u64, change: impl FnOnce(&mut Chain)) {
        if let Some(chain) = self.chains.get_mut(&number) {
            change(chain);
        }
    }

    /// Records a call that is about to be made, unless it is refused.
    fn relayed(&mut self, chain: &Chain, call: TrainerCall) -> Checked<Result<(), PublishError>> {
        let core = self.daemon.core();
        let event = WeightsEvent::WeightsRelayed {
            job: JOB.into(),
            worker: chain.worker,
            lineage: core.training().jobs.get(JOB).map_or(0, |job| job.lineage),
            all: true,
            call,
        };
        if let Err(error) = core.check_weights(&event) {
            return Ok(Err(error));
        }
        self.handle(event.into())?;
        Ok(Ok(()))
    }

    fn relay_awaits_cuts(&mut self, number: u64, chain: &Chain) -> Checked {
        let waits = self
            .holding(chain.worker)
            .and_then(|holding| holding.cuts_until);
        if waits.is_some() {
            self.after(50_000, Due::Relay(number));
            return Ok(());
        }
        self.check_pause(chain.worker)?;
        let pause = TrainerCall::Pause { own: chain.pauses };
        self.relay_sends(number, chain, pause);
        Ok(())
    }

    /// Steps that were cut have ended, or had their time.
    pub(super) fn check_pause(&mut self, worker: WorkerId) -> Checked {
        let cut = self.steps.values().any(|step| step.is_cut_at(worker));
        let now_us = self.now_us;
        Model::pauses(now_us, worker, self.engine(worker), cut)
    }

    fn relay_sends(&mut self, number: u64, chain: &Chain, call: TrainerCall) {
        self.stage(number, |chain| chain.stage = Stage::Called);
        self.submit(chain.worker, number, Work::Trainer(call, chain.version));
        self.after(SECOND_US, Due::Relay(number));
    }

    pub(super) fn relay_answered(&mut self, number: u64, answer: &Answer) -> Checked {
        let Some(chain) = self.chains.get(&number).cloned() else {
            return Ok(());
        };
        let ended = WeightsEvent::WeightsRelayEnded {
            job: JOB.into(),
            worker: chain.worker,
            answer: answer.clone(),
        };
        self.handle(ended.into())?;
        let is_done = *answer == Answer::Done;
        if chain.pauses && is_done {
            self.stage(number, |chain| {
                (chain.stage, chain.pauses) = (Stage::Begins, false);
            });
            return self.relay_acts(number);
        }
        let is_last = matches!(
            chain.call,
            TrainerCall::End { .. } | TrainerCall::Load { .. }
        );
        let trainer = self
            .holding(chain.worker)
            .and_then(|holding| holding.trainer.as_ref());
        let is_own = trainer.is_some_and(|trainer| trainer.paused_by_treadle);
        if is_done && is_last && is_own {
            let resume = TrainerCall::Resume;
            self.stage(number, |chain| {
                (chain.call, chain.stage) = (resume, Stage::Begins);
            });
            return self.relay_acts(number);
        }
        self.reply(number, is_done);
        Ok(())
    }

    fn reply(&mut self, number: u64, is_done: bool) {
        self.chains.remove(&number);
        self.round_answered(number, is_done);
    }
}
