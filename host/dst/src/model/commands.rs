//! The core's commands, each checked against the model's state when it was given.

use super::Model;
use super::facts::{Ask, At, Ending, ProgramFacts};
use treadle_core::programs::{ProgramCommand, Question, Refusal};
use treadle_core::{Command, DaemonEvent, Event};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{AskId, ProgramId, StepId, Timestamp, WorkerId};

impl Model {
    pub(super) fn commanded(&mut self, event: &Event, command: &Command) -> Checked {
        match command {
            Command::Program(command) => self.program_commanded(event, command),
            Command::Action(command) => self.action_commanded(event, command),
            Command::Training(_) | Command::Weights(_) => Ok(()),
        }
    }

    pub(super) fn program_commanded(&mut self, event: &Event, command: &ProgramCommand) -> Checked {
        match command {
            ProgramCommand::DispatchStep {
                step,
                worker,
                slot,
                priority,
                ..
            } => {
                self.dispatched(*step, *worker, *slot, *priority)?;
                let program = self.steps[step].program;
                self.check_sent(program)
            }
            ProgramCommand::RefuseStep { step, refusal, .. } => self.refused(*step, refusal),
            ProgramCommand::AbortStep { step, .. } => {
                let open = self.steps.get(step).map(|s| s.at);
                match open {
                    Some(At::Worker(..)) => Ok(()),
                    _ => broken("commands", format!("{step} is aborted, but is at {open:?}")),
                }
            }
            ProgramCommand::AskPolicy {
                ask,
                question,
                deadline,
            } => self.asked(*ask, question, *deadline),
            ProgramCommand::ForgetProgram { program } => self.forgotten(event, program.id),
            ProgramCommand::PreemptStep { step } => {
                self.preempted.push(*step);
                Ok(())
            }
            ProgramCommand::MigrateProgram { .. }
            | ProgramCommand::OffloadProgram { .. }
            | ProgramCommand::LoadProgram { .. }
            | ProgramCommand::DropCopy { .. }
            | ProgramCommand::CancelTransfer { .. } => self.cache_commanded(command),
        }
    }

    pub(super) fn dispatched(
        &mut self,
        step: StepId,
        worker: WorkerId,
        slot: Option<u32>,
        priority: i32,
    ) -> Checked {
        let Some(s) = self.steps.get(&step) else {
            return broken(
                "dispatch",
                format!("{step} is sent to {worker}, but is not open"),
            );
        };
        if let At::Worker(there, _) = s.at {
            return broken(
                "one-dispatch",
                format!("{step} is at {there} and is sent to {worker}"),
            );
        }
        let Some(w) = self.workers.get(&worker).filter(|w| w.healthy) else {
            return broken(
                "dispatch",
                format!("{step} is sent to {worker}, which is lost"),
            );
        };
        let (life, program, least) = (w.life, s.program, self.least_of(s));
        self.check_begins(step, worker)?;
        if !self.is_plain_router() {
            let place = self.programs.get(&program).and_then(|p| p.place);
            if place != Some(worker) {
                return broken(
                    "placement",
                    format!("{step} is sent to {worker}, but {program} is at {place:?}"),
                );
            }
            self.check_one_worker(program, worker)?;
        }
        if self.is_aware() && least > w.context_tokens_max() && !self.runs_anything(program) {
            let most = w.context_tokens_max();
            return broken(
                "context",
                format!("{step} takes {least} tokens and is sent to {worker}, which takes {most}"),
            );
        }
        self.sent(step, worker, priority)?;
        self.check_slot(program, worker, slot)?;
        if let Some(p) = self.programs.get_mut(&program) {
            p.steps_sent += 1;
        }
        let now = self.now;
        if let Some(s) = self.steps.get_mut(&step) {
            s.at = At::Worker(worker, life);
            s.sent_at = now;
            s.attempts += 1;
            s.slot = slot;
            s.adopted = false;
            if s.attempts > self.config.attempts_max {
                return broken(
                    "bounds",
                    format!("{step} is sent for the {}th time", s.attempts),
                );
            }
        }
        Ok(())
    }

    /// Of what was sent to workers in their present lives, all of one program
    /// is at one worker.
    pub(super) fn check_one_worker(&self, program: ProgramId, worker: WorkerId) -> Checked {
        for step in &self.programs[&program].steps {
            if let At::Worker(there, life) = self.steps[step].at
                && !self.steps[step].adopted
                && there != worker
                && self
                    .workers
                    .get(&there)
                    .is_some_and(|w| w.life == life && w.healthy)
            {
                return broken(
                    "one-worker",
                    format!("{program} runs {step} at {there} and goes to {worker}"),
                );
            }
        }
        Ok(())
    }

    pub(super) fn check_slot(
        &self,
        program: ProgramId,
        worker: WorkerId,
        slot: Option<u32>,
    ) -> Checked {
        if slot.is_none() {
            return Ok(());
        }
        for (id, s) in &self.steps {
            if let At::Worker(there, life) = s.at
                && there == worker
                && self.workers[&worker].life == life
                && s.slot == slot
                && s.program != program
            {
                return broken(
                    "slots",
                    format!(
                        "{id} of {} has the slot {slot:?} of {worker} that {program} gets",
                        s.program
                    ),
                );
            }
        }
        Ok(())
    }

    pub(super) fn refused(&mut self, step: StepId, refusal: &Refusal) -> Checked {
        if self.turned_away == Some(step) {
            self.turned_away = None;
            self.ended.insert(step, Ending::Refused);
            return match refusal {
                Refusal::ProgramsFull { .. } => Ok(()),
                other => broken(
                    "bounds",
                    format!("{step} finds no room for its program, and is sent {other:?}"),
                ),
            };
        }
        let Some(s) = self.steps.get(&step) else {
            return broken(
                "ends-once",
                format!("{step} is refused, but is not open: {refusal:?}"),
            );
        };
        let running = matches!(s.at, At::Worker(..));
        if running != matches!(refusal, Refusal::EngineFailed { .. }) {
            return broken(
                "one-dispatch",
                format!("{step} is at {:?} and is refused: {refusal:?}", s.at),
            );
        }
        match refusal {
            Refusal::QueueWaitExceeded { .. } => {
                let waited = self.now.since(s.waits_since);
                if waited < self.config.queue_wait_max {
                    return broken(
                        "waits",
                        format!("{step} has waited {waited:?} and is refused for waiting"),
                    );
                }
            }
            Refusal::ContextTooLong { .. } => {
                let most = self.longest_context();
                if !s.exact || s.prompt_tokens <= most {
                    return broken(
                        "context",
                        format!(
                            "{step} takes {} tokens (exact: {}), a worker takes {most}, and it is refused",
                            s.prompt_tokens, s.exact
                        ),
                    );
                }
            }
            Refusal::ProgramsFull { .. } => {
                return broken(
                    "bounds",
                    format!("{step} has a program and is refused for lack of one"),
                );
            }
            Refusal::ModelUnknown { model, .. } => {
                return broken(
                    "models",
                    format!("{step} is refused for {model}: no engine tells"),
                );
            }
            Refusal::QueueFull { .. } | Refusal::EngineFailed { .. } | Refusal::ProgramReleased => {
            }
        }
        let (program, is_wrong) = (s.program, matches!(refusal, Refusal::ContextTooLong { .. }));
        self.end(step, Ending::Refused)?;
        if is_wrong {
            self.close_unborn(program);
        }
        Ok(())
    }

    pub(super) fn longest_context(&self) -> u64 {
        let staying = self.workers.values().filter(|w| !w.leaving);
        let longest = staying.map(super::facts::WorkerFacts::context_tokens_max);
        longest.max().unwrap_or(u64::MAX)
    }

    pub(super) fn asked(
        &mut self,
        ask: AskId,
        question: &Question,
        deadline: Timestamp,
    ) -> Checked {
        if ask.0 != self.next_ask {
            return broken(
                "questions",
                format!("{ask} is asked, {} comes next", self.next_ask),
            );
        }
        self.next_ask += 1;
        if deadline != self.now + self.config.ask_deadline {
            return broken(
                "questions",
                format!("{ask} may be answered until {deadline:?}"),
            );
        }
        if let Some(nobody) = question
            .programs
            .program
            .iter()
            .find(|p| !self.programs.contains_key(p))
        {
            return broken(
                "questions",
                format!("{ask} is about {nobody}, which is gone"),
            );
        }
        let open = Ask {
            purpose: question.purpose,
            candidates: question.programs.program.clone(),
            deadline,
        };
        self.asks.insert(ask, open);
        Ok(())
    }

    pub(super) fn forgotten(&mut self, event: &Event, program: ProgramId) -> Checked {
        if self.closed.remove(&program) {
            return Ok(());
        }
        let silent = |p: &ProgramFacts| {
            let bound = if p.inferred && p.steps_finished < 2 {
                self.config.inferred_idle_max
            } else {
                self.config.program_idle_max
            };
            let heard_at = p.family_step_at.max(self.last_action_at(program));
            self.now.since(heard_at) >= bound && !self.is_kept_by_action(program)
        };
        let known = self.programs.get(&program);
        let idle = known.is_some_and(|p| p.steps.is_empty() && silent(p));
        if matches!(event, Event::Daemon(DaemonEvent::TimerFired)) && idle {
            self.close(program);
            self.closed.remove(&program);
            return Ok(());
        }
        broken(
            "programs",
            format!("{program} is forgotten, but is not over"),
        )
    }

    pub(super) fn put_the_rest_into_the_queue(&mut self) {
        for step in self.steps.values_mut() {
            if step.at == At::Hand {
                step.at = At::Queue;
            }
        }
    }
}
