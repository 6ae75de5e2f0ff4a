//! Programs whose requests treadle forwards: their steps, and the capture of their tokens.

use super::clients::Doing;
use super::plan::SECOND_US;
use super::{Due, Simulation};
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepArrival, StepFailure, StepTokens};
use treadle_core::training::{MemberRef, Report, TrainingEvent};
use treadle_dst_outcome::Checked;
use treadle_model::{FinishReason, StepId};

/// A step at its engine.
#[derive(Clone, Debug)]
pub(super) struct RunningStep {
    pub(super) client: usize,
    pub(super) at: MemberRef,
}

impl Simulation {
    /// A program's next step, or its end.
    pub(super) fn program_acts(&mut self, client: usize) -> Checked {
        let entry = &self.clients[client];
        let Some(at) = entry.at.clone() else {
            return Ok(());
        };
        if self.goes_wrong(3) {
            // Nobody hears of it again.
            self.clients[client].at = None;
            self.turn(client, Doing::Nothing, SECOND_US);
            return Ok(());
        }
        if self.clients[client].steps_left == 0 {
            return self.release(client, at);
        }
        if self.daemon.jobs().begun(&at).is_none() {
            return self.arrive(client);
        }
        self.names += 1;
        let step = StepId(self.names);
        let running = RunningStep {
            client,
            at: at.clone(),
        };
        self.steps.insert(step, running);
        self.clients[client].step = Some(step);
        self.clients[client].doing = Doing::Step;
        self.clients[client].epoch += 1;
        self.handle(arrival(step, at).into())
    }

    /// The program's client is done with it. Some report its end themselves.
    fn release(&mut self, client: usize, at: MemberRef) -> Checked {
        let whole = self.clients[client].answered;
        self.clients[client].at = None;
        self.turn(client, Doing::Nothing, SECOND_US);
        if whole && self.draws.percent(10) {
            let end = treadle_core::training::End::Truncated;
            let report = Report::of(end, 10, 1);
            let member = at.clone();
            self.call(TrainingEvent::MemberEnded { member, report })?;
        }
        self.released.insert(at.program.clone(), whole);
        let released = ProgramEvent::ProgramReleased {
            program: at.program.clone(),
            aborted: false,
        };
        self.handle(released.into())?;
        self.released.remove(&at.program);
        if self.draws.percent(15) {
            let rewarded = ProgramEvent::ProgramRewarded {
                program: at.program,
                reward_millionths: self.draws.below(2_000_000).cast_signed() - 500_000,
            };
            return self.handle(rewarded.into());
        }
        self.promise_reward(at);
        Ok(())
    }

    pub(super) fn program_commanded(&mut self, command: ProgramCommand) -> Checked {
        match command {
            ProgramCommand::DispatchStep { step, .. } => {
                let Some(running) = self.steps.get(&step).cloned() else {
                    return Ok(());
                };
                let queued_us = self.draws.between_low(10_000, 5 * SECOND_US);
                let takes_us = self.duration(&running.at);
                self.after(queued_us, Due::Token(step));
                self.after(queued_us + takes_us, Due::Answer(step));
            }
            ProgramCommand::RefuseStep { step, .. } => self.step_over(step, false),
            ProgramCommand::AbortStep { step, cause } if self.steps.contains_key(&step) => {
                return self.fail_step(step, cause);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn first_token(&mut self, step: StepId) -> Checked {
        if !self.steps.contains_key(&step) {
            return Ok(());
        }
        self.handle(ProgramEvent::StepFirstToken { step }.into())
    }

    /// The engine has answered, or fails.
    pub(super) fn step_ends(&mut self, step: StepId) -> Checked {
        let Some(running) = self.steps.get(&step).cloned() else {
            return Ok(());
        };
        if self.goes_wrong(6) {
            return self.fail_step(step, "the engine is out of memory".into());
        }
        if self.goes_wrong(4) {
            self.step_over(step, false);
            return self.handle(ProgramEvent::StepCancelled { step }.into());
        }
        if self.daemon.jobs().captures(&running.at) {
            let member = running.at.clone();
            let captured = if self.draws.percent(5) {
                TrainingEvent::CaptureFailed {
                    member,
                    cause: "no ids".into(),
                }
            } else {
                TrainingEvent::StepCaptured {
                    member,
                    step,
                    digest: "digest".into(),
                    tokens: 10,
                }
            };
            self.call(captured)?;
        }
        self.step_over(step, true);
        let tokens = StepTokens {
            prompt: 100,
            output: self.draws.between(1, 900),
            cached: None,
        };
        let finished = ProgramEvent::StepFinished {
            step,
            tokens,
            finish: FinishReason::Stop,
            weights: None,
        };
        self.handle(finished.into())
    }

    fn fail_step(&mut self, step: StepId, cause: Box<str>) -> Checked {
        self.step_over(step, false);
        let failure = StepFailure {
            cause,
            retryable: false,
            rejected: false,
            busy: None,
        };
        self.handle(ProgramEvent::StepFailed { step, failure }.into())
    }

    /// A client has the answer to a step, or knows that there will be none: it tries again, goes on
    /// or gives up.
    pub(super) fn step_over(&mut self, step: StepId, answered: bool) {
        let Some(running) = self.steps.remove(&step) else {
            return;
        };
        let client = running.client;
        let entry = &mut self.clients[client];
        if entry.step != Some(step) || entry.doing != Doing::Step {
            return;
        }
        entry.answered = answered;
        entry.steps_left -= 1;
        let tool_us = self.draws.between_low(10_000, 4 * SECOND_US);
        self.turn(client, Doing::Acts, tool_us);
    }

    /// The sample of a member is made of its captured steps.
    pub(super) fn assemble(&mut self, at: &MemberRef) -> Checked {
        let found = self.daemon.jobs().member(at).cloned();
        let found = found.filter(|m| m.has_ended_well() && m.sample.is_none());
        let Some((found, end)) = found.and_then(|m| Some((m.clone(), m.end?))) else {
            return Ok(());
        };
        let member = at.clone();
        if self.goes_wrong(4) {
            let cause = "they can't be read".into();
            return self
                .call(TrainingEvent::CaptureFailed { member, cause })
                .map(drop);
        }
        let report = Report {
            sample: Some(format!("steps of {}", at.program).into()),
            version: Some(found.version),
            ..Report::of(end, found.tokens, found.turns)
        };
        self.call(TrainingEvent::MemberEnded { member, report })
            .map(drop)
    }
}

/// A step of a member arrives.
pub(crate) fn arrival(step: StepId, at: MemberRef) -> ProgramEvent {
    ProgramEvent::StepArrived(StepArrival {
        step,
        program: at.program,
        job: at.job,
        prompt_tokens: 100,
        exact: true,
        prompt_bytes: 400,
        text: None,
        output_tokens_max: None,
        prefix: Vec::new(),
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    })
}
