//! Programs open with their first step and end by release, idleness or the end of their only step.

use crate::Programs;
use crate::memory::Meter;
use crate::programs::program::{FULL_WEIGHT_PPM, Lineage, Outcome, Program};
use crate::programs::timers::Timer;
use crate::programs::{ProgramCommand, Refusal, StepArrival};
use std::collections::BTreeMap;
use treadle_machine::Notice;
use treadle_model::{Phase, ProgramId, Span, Status, StepId};

impl Programs {
    /// The program of an arriving step, opened if it is new; `None` at the limit of live programs.
    pub(super) fn open_program(
        &mut self,
        arrival: &StepArrival,
        model: Option<Box<str>>,
    ) -> Option<ProgramId> {
        if let Some(program) = self.state.keys.get(&arrival.program) {
            return Some(*program);
        }
        if self.state.live.len() as u64 >= self.config.programs_max {
            return None;
        }
        let id = ProgramId(self.state.next_program);
        self.state.next_program += 1;
        self.state.counters.programs_opened += 1;
        self.state.keys.insert(arrival.program.clone(), id);
        self.state.estimates.program_opened(&arrival.job);
        let mut program = self.new_program(id, arrival);
        program.model = model;
        self.state.live.insert(id, program);
        let program = arrival.program.clone();
        self.notices.push_back(Notice::ProgramOpened { program });
        Some(id)
    }

    fn new_program(&self, id: ProgramId, arrival: &StepArrival) -> Program {
        Program {
            id,
            key: arrival.program.clone(),
            job: arrival.job.clone(),
            model: None,
            status: Status::Queued,
            phase: Phase::Acting,
            phase_since: self.state.now,
            opened_at: self.state.now,
            context_tokens: 0,
            demand_tokens: 0,
            prefix: self.prefix_of(arrival),
            lineage: Lineage::opened(&arrival.prefix),
            placement: None,
            last_worker: None,
            last_slot: None,
            avoid: None,
            weight_ppm: FULL_WEIGHT_PPM,
            running: Vec::new(),
            waiting: Vec::new(),
            urgency: None,
            queued: None,
            closing: arrival.one_shot,
            inferred: arrival.inferred,
            steps_finished: 0,
            prompt_tokens_total: 0,
            output_tokens_total: 0,
            cached_tokens_total: 0,
            pauses: 0,
            counted: None,
            idle_check_at: None,
            waited_total: Span(0),
            actions: BTreeMap::new(),
            parent: None,
            awaited: None,
            remaining_tokens: None,
            last_action_ok: None,
            actions_failed: 0,
            first_prompt_tokens: self.prompt_tokens(arrival),
            last_output_tokens: 0,
            was_told_cached: false,
            prefilled: None,
            domain: None,
            class: None,
            group: arrival.group,
            acted_total: Span(0),
            blocked_total: Span(0),
            outcome: Outcome::Open,
            reward_millionths: None,
            meter: Meter::default(),
        }
    }

    /// Ends the tool call, if there was one, as a step has arrived.
    pub(super) fn begin_reasoning(&mut self, program: ProgramId, arrival: &StepArrival) {
        let now = self.state.now;
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if p.phase == Phase::Acting {
            if p.steps_finished > 0 {
                p.acted_total = p.acted(now);
                let took = now.since(p.phase_since);
                self.state.estimates.acted(&p.job, took);
            }
            p.phase = Phase::Reasoning;
            p.phase_since = now;
        }
        p.weight_ppm = FULL_WEIGHT_PPM;
        p.has_come_to(Outcome::Open);
        p.closing |= arrival.one_shot;
        if p.begins_otherwise(&arrival.prefix) {
            // A changed prompt (a compacted history) shares another prefix.
            let (prefix, tokens) = (self.prefix_of(arrival), self.prompt_tokens(arrival));
            if let Some(p) = self.state.live.get_mut(&program) {
                p.begin_otherwise(prefix, tokens);
            }
        } else {
            p.begin_alike();
        }
        self.refile(program);
    }

    pub(crate) fn program_released(&mut self, key: &str, aborted: bool) {
        for apart in self.apart_from(key) {
            self.release(&apart, aborted);
        }
        self.release(key, aborted);
    }

    /// Ends the programs of a member that was cut, and their running steps: nobody trains on what
    /// these sample.
    pub(crate) fn program_cut(&mut self, key: &str) {
        for apart in self.apart_from(key) {
            self.release(&apart, true);
            self.cut_running(&apart);
        }
        self.release(key, true);
        self.cut_running(key);
    }

    fn cut_running(&mut self, key: &str) {
        let program = self.state.keys.get(key);
        let program = program.and_then(|id| self.state.live.get(id));
        for step in program.map_or_else(Vec::new, |p| p.running.clone()) {
            if let Some(s) = self.state.steps.get_mut(&step) {
                s.is_cut = true;
                self.command(ProgramCommand::AbortStep {
                    step,
                    cause: "its member was cut".into(),
                });
            }
        }
    }

    fn release(&mut self, key: &str, aborted: bool) {
        let Some(program) = self.state.keys.get(key).copied() else {
            return;
        };
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        p.closing = true;
        if aborted || !p.is_between_steps() {
            p.outcome = Outcome::Aborted;
        }
        let waiting = p.waiting.clone();
        if p.is_between_steps() {
            return self.close_program(program);
        }
        for step in waiting {
            self.refuse(step, Refusal::ProgramReleased);
        }
    }

    /// Records a program's reward. The core drops ended programs; a late reward only goes to the
    /// journal.
    pub(crate) fn program_rewarded(&mut self, key: &str, reward_millionths: i64) {
        self.notices.push_back(Notice::ProgramRewarded {
            program: key.into(),
            millionths: reward_millionths,
        });
        let program = self.state.keys.get(key);
        if let Some(p) = program.and_then(|id| self.state.live.get_mut(id)) {
            p.reward_millionths = Some(reward_millionths);
        }
    }

    /// Handles a step whose request was wrong. A program without finished steps, actions and other
    /// steps ends with it: another request opens it again.
    pub(crate) fn close_with(&mut self, step: StepId) {
        let program = self.state.steps.get(&step).map(|s| s.program);
        let Some(p) = program.and_then(|program| self.state.live.get_mut(&program)) else {
            return;
        };
        let mut steps = p.running.iter().chain(&p.waiting);
        p.closing |= p.steps_finished == 0 && p.actions.is_empty() && steps.all(|s| *s == step);
    }

    /// Ends a program that has no steps left.
    pub(super) fn close_program(&mut self, program: ProgramId) {
        self.unplace(program);
        self.drop_copy(program);
        let Some(p) = self.state.live.remove(&program) else {
            return;
        };
        self.leave_parent(&p);
        let contexts = &mut self.state.context_tokens;
        *contexts = contexts.saturating_sub(p.context_tokens);
        self.state.keys.remove(&p.key);
        let now = self.state.now;
        self.state.estimates.program_closed(&p.job, now);
        self.learn_of_member(&p);
        if let Some(at) = p.idle_check_at {
            self.state.timers.disarm(at, Timer::ProgramIdle(program));
        }
        self.state.counters.programs_closed += 1;
        self.closed.push(Notice::ProgramOver {
            program: p.key.clone(),
            whole: p.has_ended(),
            tokens: p.output_tokens_total,
            steps: p.steps_finished,
        });
        self.command(ProgramCommand::ForgetProgram {
            program: Box::new(p),
        });
    }
}
