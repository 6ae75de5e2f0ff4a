//! The core's commands, as outputs.

use super::observation::Observation;
use super::{Observer, Output, Policies, Scheduler, projection};
use crate::instruction::{Dispatch, Instruction};
use std::collections::VecDeque;
use std::sync::Arc;
use treadle_core::actions::{ActionCommand, ActionEvent};
use treadle_core::program::Program;
use treadle_core::{Command, Event, Mode};
use treadle_model::{EngineKind, GatewayId, PolicyRef, StepId, Timestamp, WorkerId};

/// Who shares out the units of actions where no policy does.
const BUILT_IN: &str = "core";

impl<P: Policies, O: Observer> Scheduler<P, O> {
    pub(super) fn carry_out(
        &mut self,
        command: Command,
        now: Timestamp,
        answers: &mut VecDeque<Event>,
    ) {
        match command {
            Command::DispatchStep {
                step,
                worker,
                slot,
                priority,
            } => {
                if let Some(dispatch) = self.dispatch(worker, slot, priority) {
                    self.instruct(step, Instruction::Dispatch(dispatch));
                }
            }
            Command::PreemptStep { step } => self.instruct(step, Instruction::Preempt),
            Command::AbortStep { step, cause } => self.instruct(step, Instruction::Abort(cause)),
            Command::RefuseStep { step, refusal } => {
                self.instruct(step, Instruction::Refuse(refusal));
                self.outputs.push_back(Output::StepOver(step));
            }
            Command::MigrateProgram { .. }
            | Command::OffloadProgram { .. }
            | Command::LoadProgram { .. }
            | Command::CancelTransfer { .. }
            | Command::DropCopy { .. } => {
                let failed = self.transfers.order(&self.core, command, &mut self.outputs);
                answers.extend(failed);
            }
            Command::AskPolicy { ask, question, .. } => {
                let now_ms = now.0 / 1_000;
                answers.extend(self.policies.answer(&self.core, ask, &question, now_ms));
            }
            Command::ForgetProgram { program } => self.forget(&program, now),
            Command::Action(ActionCommand::AskElastic { ask, question, .. }) => {
                let event = ActionEvent::ElasticAnswered {
                    ask,
                    policy: PolicyRef(BUILT_IN.into()),
                    answer: question.least(),
                };
                answers.push_back(event.into());
            }
            Command::Action(command) => self.outputs.push_back(Output::Action(command)),
        }
    }

    fn forget(&mut self, program: &Program, now: Timestamp) {
        if self.predicts {
            let observed = Observation::last(program, now);
            self.outputs.push_back(Output::Observed(Box::new(observed)));
        }
        self.returned.forget(program.id);
        self.outlook.forget(program.id);
        self.profiles.forget(&program.key);
        self.transfers.forget(program, &mut self.outputs);
        self.policies.forget(program.id);
        self.dirty.remove(&program.id);
        if self.journals {
            let row = projection::program_row(program, &self.core, now, Some("released"));
            self.rows.programs.push(row);
        }
    }

    pub(super) fn instruct(&mut self, step: StepId, instruction: Instruction) {
        if step.gateway() == GatewayId::LOCAL {
            self.outputs.push_back(Output::Instruct(step, instruction));
        } else {
            self.outputs.extend(self.links.instruct(step, instruction));
        }
    }

    pub(super) fn dispatch(
        &mut self,
        worker: WorkerId,
        slot: Option<u32>,
        priority: i32,
    ) -> Option<Dispatch> {
        let config = self.core.config();
        let is_aware = config.mode == Mode::ProgramAware;
        let has_queues = is_aware && config.rollout.engine_steps_max > 0;
        let w = self.core.programs().workers.get(&worker)?;
        let url = self
            .urls
            .entry(worker)
            .or_insert_with(|| Arc::from(w.url.trim_end_matches('/')))
            .clone();
        Some(Dispatch {
            worker,
            url,
            engine: w.engine,
            slot,
            priority: is_aware.then_some(priority),
            interruptible: has_queues && w.engine != EngineKind::Openai,
        })
    }
}
