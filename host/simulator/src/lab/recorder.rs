//! Events of a window of the journal, taken in one by one.

use super::actions::RecordedActions;
use super::arrivals::{Life, infer};
use super::prefixes::shared_prefixes;
use super::workload::{Cuts, LabError, Recorded, RecordedWorker, Workload};
use crate::workload::{AgentRun, AgentStep, ToolResult};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::{Capacity, CoreConfig, Event, PrefixSegment, StepArrival, StepTokens};
use treadle_model::{StepId, Timestamp, WorkerId};

/// How a window is read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecorderOptions {
    /// A program that opens so soon after another one of its job has ended takes its seat, in
    /// microseconds of the journal's clock.
    pub seat_lag_us: u64,
    /// Programs taken at most.
    pub programs_max: usize,
    /// Steps taken at most.
    pub steps_max: usize,
    /// Actions of tool runners taken at most.
    pub actions_max: usize,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            seat_lag_us: 2_000_000,
            programs_max: 100_000,
            steps_max: 1_000_000,
            actions_max: 4_000_000,
        }
    }
}

/// An answered step.
pub(super) struct RecordedStep {
    pub(super) arrived_us: u64,
    pub(super) finished_us: u64,
    pub(super) tokens: StepTokens,
    pub(super) output_tokens_max: Option<u64>,
}

/// A program as far as the window shows it.
pub(super) struct RecordedProgram {
    pub(super) key: Box<str>,
    pub(super) job: Box<str>,
    pub(super) steps: Vec<RecordedStep>,
    /// The shared parts of its first prompt.
    pub(super) prefix: Vec<PrefixSegment>,
    actions: RecordedActions,
    released_us: Option<u64>,
    one_shot: bool,
    open: u64,
}

/// A step that is not answered yet.
struct OpenStep {
    program: usize,
    arrived_us: u64,
    output_tokens_max: Option<u64>,
}

/// Takes in the events of a window and gives the workload in it.
///
/// Engines and settings come from events too: those from before the window are taken in first, by
/// [`Recorder::prepare`].
#[derive(Default)]
pub struct Recorder {
    options: RecorderOptions,
    programs: Vec<RecordedProgram>,
    names: BTreeMap<Box<str>, usize>,
    open: BTreeMap<StepId, OpenStep>,
    begun_before: BTreeSet<Box<str>>,
    workers: BTreeMap<WorkerId, RecordedWorker>,
    config: Option<CoreConfig>,
    cuts: Cuts,
    steps: usize,
    actions: usize,
    steps_told: u64,
    is_in_window: bool,
}

impl Recorder {
    /// A recorder that has seen nothing.
    pub fn new(options: RecorderOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Takes in an event from before the window: engines and settings alone are kept of it.
    pub fn prepare(&mut self, event: &Event) {
        self.is_in_window = false;
        self.take_surroundings(event);
    }

    /// Notes that a program had begun before the window.
    pub fn begun_before(&mut self, program: &str) {
        self.begun_before.insert(program.into());
    }

    /// Notes that all programs had begun before the window but for these.
    pub fn begun_outside(&mut self, within: &BTreeSet<String>) {
        let outside = self
            .programs
            .iter()
            .filter(|program| !within.contains(&*program.key));
        self.begun_before
            .extend(outside.map(|program| program.key.clone()));
    }

    /// Takes in an event of the window; they come in the journal's order.
    ///
    /// # Errors
    /// [`LabError::TooLarge`] past the bounds of the options.
    pub fn take(&mut self, at: Timestamp, event: &Event) -> Result<(), LabError> {
        self.is_in_window = true;
        match event {
            Event::StepArrived(arrival) => self.arrived(at.0, arrival)?,
            Event::StepFirstToken { .. } => self.steps_told += 1,
            Event::StepFinished { step, tokens, .. } => self.finished(at.0, *step, *tokens),
            Event::StepFailed { step, failure } if !failure.retryable => self.dropped(*step),
            Event::StepCancelled { step } => self.dropped(*step),
            Event::ActionStarted {
                program,
                action,
                tool,
            } => self.action_started(at.0, program, action, tool)?,
            Event::ActionFinished {
                program,
                action,
                ok,
            } => {
                if let Some(&index) = self.names.get(program) {
                    self.programs[index].actions.ended(at.0, action, *ok);
                }
            }
            Event::ProgramReleased { program } => {
                if let Some(&index) = self.names.get(program) {
                    self.programs[index].released_us.get_or_insert(at.0);
                    // Its next life, if it has one, is another program.
                    self.names.remove(program);
                }
            }
            Event::DaemonRestarted => {
                let lost: Vec<StepId> = self.open.keys().copied().collect();
                for step in lost {
                    self.dropped(step);
                }
            }
            other => self.take_surroundings(other),
        }
        Ok(())
    }

    fn take_surroundings(&mut self, event: &Event) {
        match event {
            Event::WorkerAdded {
                worker,
                url,
                capacity,
                ..
            } => {
                self.note_change();
                let worker = self.workers.entry(*worker).or_insert(RecordedWorker {
                    url: url.clone(),
                    kv_tokens: None,
                });
                learn(worker, capacity);
            }
            Event::WorkerCapacityRead {
                worker, capacity, ..
            } => {
                if let Some(worker) = self.workers.get_mut(worker) {
                    learn(worker, capacity);
                }
            }
            Event::WorkerLost { .. } | Event::WorkerRecovered { .. } => self.note_change(),
            Event::WorkerRemoved { worker } => {
                // One that goes within the window has served in it.
                if self.is_in_window && !self.programs.is_empty() {
                    self.note_change();
                } else {
                    self.workers.remove(worker);
                }
            }
            Event::Configured { config } => self.config = Some((**config).clone()),
            _ => {}
        }
    }

    /// What changes before the first program comes is as it was.
    fn note_change(&mut self) {
        self.cuts.worker_changes += u64::from(self.is_in_window && !self.programs.is_empty());
    }

    fn arrived(&mut self, at_us: u64, arrival: &StepArrival) -> Result<(), LabError> {
        let index = match self.names.get(&arrival.program) {
            Some(index) => *index,
            None => self.opened(arrival)?,
        };
        if self.steps + self.open.len() >= self.options.steps_max {
            return Err(LabError::TooLarge {
                what: "steps",
                max: self.options.steps_max,
            });
        }
        let program = &mut self.programs[index];
        self.cuts.steps_overlapping += u64::from(program.open > 0);
        program.open += 1;
        let step = OpenStep {
            program: index,
            arrived_us: at_us,
            output_tokens_max: arrival.output_tokens_max,
        };
        self.open.insert(arrival.step, step);
        Ok(())
    }

    fn opened(&mut self, arrival: &StepArrival) -> Result<usize, LabError> {
        if self.programs.len() >= self.options.programs_max {
            return Err(LabError::TooLarge {
                what: "programs",
                max: self.options.programs_max,
            });
        }
        let index = self.programs.len();
        self.programs.push(RecordedProgram {
            key: arrival.program.clone(),
            job: arrival.job.clone(),
            steps: Vec::new(),
            prefix: arrival.prefix.clone(),
            actions: RecordedActions::default(),
            released_us: None,
            one_shot: arrival.one_shot,
            open: 0,
        });
        self.names.insert(arrival.program.clone(), index);
        Ok(index)
    }

    fn action_started(
        &mut self,
        at_us: u64,
        program: &str,
        action: &str,
        tool: &str,
    ) -> Result<(), LabError> {
        let Some(&index) = self.names.get(program) else {
            return Ok(());
        };
        if self.actions >= self.options.actions_max {
            return Err(LabError::TooLarge {
                what: "actions",
                max: self.options.actions_max,
            });
        }
        self.actions += 1;
        self.programs[index].actions.begun(at_us, action, tool);
        Ok(())
    }

    fn finished(&mut self, at_us: u64, step: StepId, tokens: StepTokens) {
        let Some(open) = self.open.remove(&step) else {
            return;
        };
        self.steps += 1;
        let program = &mut self.programs[open.program];
        program.open -= 1;
        program.steps.push(RecordedStep {
            arrived_us: open.arrived_us,
            finished_us: at_us,
            tokens,
            output_tokens_max: open.output_tokens_max,
        });
    }

    fn dropped(&mut self, step: StepId) {
        if let Some(open) = self.open.remove(&step) {
            self.programs[open.program].open -= 1;
            self.cuts.steps_without_answer += 1;
        }
    }

    /// The workload of all that was taken in.
    ///
    /// # Errors
    /// [`LabError::Empty`] if no step was answered.
    pub fn finish(mut self) -> Result<Workload, LabError> {
        self.cuts.steps_open_at_end = self.open.len() as u64;
        let seen = self.programs.len();
        self.programs.retain(|program| !program.steps.is_empty());
        self.cuts.programs_without_answer = (seen - self.programs.len()) as u64;
        if self.programs.is_empty() {
            return Err(LabError::Empty);
        }
        for program in &mut self.programs {
            program.steps.sort_by_key(|step| step.arrived_us);
        }
        self.programs
            .sort_by_key(|program| program.steps[0].arrived_us);
        let lives = self.lives();
        let schedule = infer(&lives, self.options.seat_lag_us);
        let recorded = self.recorded();
        let runs = self.runs();
        let by_step = |program: &RecordedProgram| program.actions.by_step(&program.steps);
        let (actions, left_out): (Vec<_>, Vec<u64>) = self.programs.iter().map(by_step).unzip();
        self.cuts.actions_left_out = left_out.iter().sum();
        let limits = |program: &RecordedProgram| {
            let steps = program.steps.iter();
            steps.map(|step| step.output_tokens_max).collect()
        };
        Ok(Workload {
            runs,
            schedule,
            output_limits: self.programs.iter().map(limits).collect(),
            actions,
            workers: self.workers.into_values().collect(),
            config: self.config,
            whole_answers: self.steps_told * 2 < recorded.steps,
            recorded: Some(recorded),
            cuts: self.cuts,
        })
    }

    /// When programs opened and ended. One whose job tells the end of others is open at the
    /// window's end if it was not released.
    fn lives(&mut self) -> Vec<Life> {
        let told = self.programs.iter().filter(|p| p.released_us.is_some());
        let telling: BTreeSet<Box<str>> = told.map(|p| p.job.clone()).collect();
        let mut lives = Vec::with_capacity(self.programs.len());
        for program in &self.programs {
            let last_us = program.steps.iter().map(|step| step.finished_us).max();
            let is_open = program.open > 0
                || (program.released_us.is_none()
                    && !program.one_shot
                    && telling.contains(&program.job));
            self.cuts.programs_open_at_end += u64::from(is_open);
            self.cuts.programs_begun_before += u64::from(self.begun_before.contains(&program.key));
            lives.push(Life {
                job: program.job.clone(),
                opened_us: program.steps[0].arrived_us,
                ended_us: program.released_us.or(last_us).filter(|_| !is_open),
            });
        }
        lives
    }

    fn recorded(&self) -> Recorded {
        let steps = || self.programs.iter().flat_map(|program| &program.steps);
        let first_us = steps().map(|step| step.arrived_us).min().unwrap_or(0);
        let last_us = steps().map(|step| step.finished_us).max().unwrap_or(0);
        let took = steps().map(|step| step.finished_us.saturating_sub(step.arrived_us));
        let mut latencies_us: Vec<u64> = took.collect();
        // Where an engine does not tell, nothing is known of that step's share.
        let told = || steps().filter(|step| step.tokens.cached.is_some());
        let prompt = told().map(|step| step.tokens.prompt).sum();
        let cached = told().filter_map(|step| step.tokens.cached).sum();
        Recorded::of(
            last_us.saturating_sub(first_us),
            &mut latencies_us,
            prompt,
            cached,
        )
    }

    fn runs(&mut self) -> Vec<AgentRun> {
        let shared = shared_prefixes(&self.programs);
        let mut names = BTreeSet::new();
        let mut runs = Vec::with_capacity(self.programs.len());
        for (program, shared) in self.programs.iter().zip(shared) {
            let mut steps: Vec<AgentStep> = Vec::with_capacity(program.steps.len());
            for (place, step) in program.steps.iter().enumerate() {
                let kept = u64::from(shared.system_tokens + shared.group_tokens);
                let before = steps.last().copied();
                let (mut next, is_guess) = replayed(before, step, kept);
                self.cuts.steps_compacted += u64::from(is_guess);
                let after = program.steps.get(place + 1);
                next.tool_us =
                    after.map_or(0, |after| after.arrived_us.saturating_sub(step.finished_us));
                steps.push(next);
            }
            // A key that was used again is another program.
            let mut id = program.key.to_string();
            while !names.insert(id.clone()) {
                id.push('+');
            }
            runs.push(AgentRun {
                id,
                group: shared.group,
                system_tokens: shared.system_tokens,
                group_tokens: shared.group_tokens,
                steps,
            });
        }
        runs
    }
}

fn learn(worker: &mut RecordedWorker, capacity: &Capacity) {
    worker.kv_tokens = capacity.tokens.or(worker.kv_tokens);
}

/// A step as it is repeated, and whether its reuse is a guess. A prompt that holds the whole context
/// before it kept it; a somewhat shorter one kept the prompt before; of one that shrank, the parts
/// that programs share and what the engine found are known to be kept.
fn replayed(before: Option<AgentStep>, step: &RecordedStep, shared: u64) -> (AgentStep, bool) {
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX / 4);
    let input = tokens(step.tokens.prompt.max(1));
    let mut next = AgentStep {
        input_tokens: input,
        reused_tokens: 0,
        output_tokens: tokens(step.tokens.output.max(1)),
        tool_us: 0,
        tool_result: ToolResult::None,
    };
    let Some(before) = before else {
        return (next, false);
    };
    if input >= before.context_tokens() {
        next.reused_tokens = before.context_tokens();
    } else if input >= before.input_tokens {
        next.reused_tokens = before.input_tokens;
    } else {
        let known = tokens(shared.max(step.tokens.cached.unwrap_or(0)));
        next.reused_tokens = known.min(input).min(before.context_tokens());
        return (next, true);
    }
    (next, false)
}
