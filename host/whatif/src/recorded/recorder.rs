//! Turns the events of a window into a workload, one event at a time.

use super::actions::RecordedActions;
use super::affinity::MemberTracker;
use super::arrivals::{Life, infer};
use super::contexts::replayed;
use super::names::RunNames;
use super::prefixes::shared_prefixes;
use super::serving::WorkerTracker;
use super::workload::{Cuts, Recorded, RecordedWorker, ReplayError, Workload};
use std::collections::{BTreeMap, BTreeSet};
use treadle_core::memory::PrefixSegment;
use treadle_core::programs::{ProgramEvent, StepArrival, StepTokens};
use treadle_core::{CoreConfig, Event};
use treadle_model::{StepId, Timestamp, WorkerId};
use treadle_simulator::cluster::MemberOf;
use treadle_simulator::workload::{AgentRun, AgentStep};

/// Options and limits of a recorder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecorderOptions {
    /// A program that opens within this time after another one of its job has ended takes its slot,
    /// in microseconds of the journal's clock.
    pub slot_lag_us: u64,
    /// Maximum number of programs.
    pub programs_max: usize,
    /// Maximum number of steps.
    pub steps_max: usize,
    /// Maximum number of tool runners' actions.
    pub actions_max: usize,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            slot_lag_us: 2_000_000,
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

/// A program in the window.
pub(super) struct RecordedProgram {
    pub(super) key: Box<str>,
    pub(super) job: Box<str>,
    pub(super) steps: Vec<RecordedStep>,
    /// The shared segments of its first prompt.
    pub(super) prefix: Vec<PrefixSegment>,
    /// The training job that it is a member of.
    member: Option<MemberOf>,
    actions: RecordedActions,
    released_us: Option<u64>,
    one_shot: bool,
    /// Its latest step, until that is answered.
    awaited: Option<StepId>,
    /// Time of its last event.
    last_us: u64,
}

/// Assumed bytes per token of text that the engine did not count.
const BYTES_PER_TOKEN_GUESS: u64 = 4;

/// The prefix segments of a prompt; those of text are in bytes until the prompt is counted.
fn prefix_of(arrival: &StepArrival) -> Vec<PrefixSegment> {
    let mut prefix = arrival.prefix.clone();
    let bytes = arrival.text.iter().flat_map(|text| &text.prefix_bytes);
    for (segment, bytes) in prefix.iter_mut().zip(bytes) {
        segment.tokens = *bytes;
    }
    prefix
}

/// A step without an answer yet.
struct OpenStep {
    program: usize,
    arrived_us: u64,
    /// Size of a prompt in text form; 0 for token ids.
    text_bytes: u64,
    output_tokens_max: Option<u64>,
    /// Whether its first token was reported before its end.
    reported: bool,
    /// Whether a later step of its program has arrived.
    overtaken: bool,
}

/// Turns the events of a window into a workload. Engines, settings and members of training runs also
/// come from events before the window, which are passed to [`Recorder::prepare`] first.
#[derive(Default)]
pub struct Recorder {
    options: RecorderOptions,
    programs: Vec<RecordedProgram>,
    names: BTreeMap<Box<str>, usize>,
    open: BTreeMap<StepId, OpenStep>,
    begun_before: BTreeSet<Box<str>>,
    workers: WorkerTracker,
    members: MemberTracker,
    config: Option<CoreConfig>,
    cuts: Cuts,
    steps: usize,
    actions: usize,
    steps_reported: u64,
    /// Times of the first and the last event of the window.
    range_us: Option<(u64, u64)>,
    is_in_window: bool,
}

impl Recorder {
    /// An empty recorder.
    pub fn new(options: RecorderOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Processes an event from before the window; only engines, settings and members are recorded.
    pub fn prepare(&mut self, event: &Event) {
        self.is_in_window = false;
        self.take_environment(event);
    }

    /// Records that a program began before the window.
    pub fn begun_before(&mut self, program: &str) {
        self.begun_before.insert(program.into());
    }

    /// Records that all programs except these began before the window.
    pub fn begun_outside(&mut self, within: &BTreeSet<String>) {
        let outside = self
            .programs
            .iter()
            .filter(|program| !within.contains(&*program.key));
        self.begun_before
            .extend(outside.map(|program| program.key.clone()));
    }

    /// Whether an engine occurs in the events so far, even if it was removed again.
    pub fn knows_worker(&self, worker: WorkerId) -> bool {
        self.workers.knows(worker)
    }

    /// Adds an engine that existed when the window began, but whose registration is no longer in
    /// the journal. Reports in events take precedence.
    pub fn worker_beside(&mut self, worker: WorkerId, known: RecordedWorker) {
        self.workers.beside(worker, known);
    }

    /// Processes an event of the window, in the journal's order.
    ///
    /// # Errors
    /// [`ReplayError::TooLarge`] if a limit of the options is exceeded.
    pub fn take(&mut self, at: Timestamp, event: &Event) -> Result<(), ReplayError> {
        self.is_in_window = true;
        let (first_us, _) = self.range_us.unwrap_or((at.0, at.0));
        self.range_us = Some((first_us, at.0));
        match event {
            Event::Program(ProgramEvent::StepArrived(arrival)) => self.arrived(at.0, arrival)?,
            Event::Program(ProgramEvent::StepFirstToken { step }) => {
                if let Some(open) = self.open.get_mut(step) {
                    open.reported = true;
                }
            }
            Event::Program(ProgramEvent::StepFinished { step, tokens, .. }) => {
                self.finished(at.0, *step, *tokens);
            }
            Event::Program(ProgramEvent::StepFailed { step, failure }) if !failure.retryable => {
                self.dropped(*step);
            }
            Event::Program(ProgramEvent::StepCancelled { step }) => self.dropped(*step),
            Event::Program(ProgramEvent::ActionStarted {
                program,
                action,
                tool,
            }) => self.action_started(at.0, program, action, tool)?,
            Event::Program(ProgramEvent::ActionFinished {
                program,
                action,
                ok,
            }) => {
                if let Some(&index) = self.names.get(program) {
                    self.programs[index].actions.ended(at.0, action, *ok);
                }
            }
            Event::Program(ProgramEvent::ProgramReleased { program, .. }) => {
                if let Some(&index) = self.names.get(program) {
                    let released = &mut self.programs[index];
                    released.released_us.get_or_insert(at.0);
                    // A refused step has no event of its own; the release ends it.
                    released.awaited = None;
                    // If the key is used again, it belongs to another program.
                    self.names.remove(program);
                    self.members.released(program);
                }
            }
            Event::Daemon(treadle_core::DaemonEvent::DaemonRestarted) => {
                let lost: Vec<StepId> = self.open.keys().copied().collect();
                for step in lost {
                    self.dropped(step);
                }
            }
            other => self.take_environment(other),
        }
        Ok(())
    }

    fn take_environment(&mut self, event: &Event) {
        if self.workers.take(event) {
            // Changes before the first program are part of the initial state.
            let counts = self.is_in_window && !self.programs.is_empty();
            self.cuts.worker_changes += u64::from(counts);
        }
        match event {
            Event::Daemon(treadle_core::DaemonEvent::Configured { config }) => {
                self.config = Some((**config).clone());
            }
            Event::Training(event) => self.members.take(event),
            _ => {}
        }
    }

    fn arrived(&mut self, at_us: u64, arrival: &StepArrival) -> Result<(), ReplayError> {
        self.workers.serve();
        let index = match self.names.get(&arrival.program) {
            Some(index) => *index,
            None => self.opened(arrival)?,
        };
        if self.steps + self.open.len() >= self.options.steps_max {
            return Err(ReplayError::TooLarge {
                what: "steps",
                max: self.options.steps_max,
            });
        }
        let program = &mut self.programs[index];
        program.last_us = at_us;
        // Whether the previous step is still running is known only when it is answered: a refused
        // one has no event of its own.
        let before = program.awaited.replace(arrival.step);
        if let Some(before) = before.and_then(|step| self.open.get_mut(&step)) {
            before.overtaken = true;
        }
        let step = OpenStep {
            program: index,
            arrived_us: at_us,
            text_bytes: arrival.text.as_ref().map_or(0, |_| arrival.prompt_bytes),
            output_tokens_max: arrival.output_tokens_max,
            reported: false,
            overtaken: false,
        };
        self.open.insert(arrival.step, step);
        Ok(())
    }

    fn opened(&mut self, arrival: &StepArrival) -> Result<usize, ReplayError> {
        if self.programs.len() >= self.options.programs_max {
            return Err(ReplayError::TooLarge {
                what: "programs",
                max: self.options.programs_max,
            });
        }
        let index = self.programs.len();
        let member = self.member_of(arrival);
        self.programs.push(RecordedProgram {
            key: arrival.program.clone(),
            job: arrival.job.clone(),
            steps: Vec::new(),
            prefix: prefix_of(arrival),
            member,
            actions: RecordedActions::default(),
            released_us: None,
            one_shot: arrival.one_shot,
            awaited: None,
            last_us: 0,
        });
        self.names.insert(arrival.program.clone(), index);
        Ok(index)
    }

    /// A program that another one started prefers what that prefers, unless it is a member itself.
    fn member_of(&self, arrival: &StepArrival) -> Option<MemberOf> {
        let parent = || {
            let parent = self.names.get(&arrival.parent.as_ref()?.program)?;
            self.programs[*parent].member.clone()
        };
        self.members.of(&arrival.program).or_else(parent)
    }

    fn action_started(
        &mut self,
        at_us: u64,
        program: &str,
        action: &str,
        tool: &str,
    ) -> Result<(), ReplayError> {
        let Some(&index) = self.names.get(program) else {
            return Ok(());
        };
        if self.actions >= self.options.actions_max {
            return Err(ReplayError::TooLarge {
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
        self.steps_reported += u64::from(open.reported);
        self.cuts.steps_overlapping += u64::from(open.overtaken);
        let program = &mut self.programs[open.program];
        program.awaited.take_if(|awaited| *awaited == step);
        program.last_us = at_us;
        let mut tokens = tokens;
        if tokens.prompt == 0 {
            tokens.prompt = open.text_bytes / BYTES_PER_TOKEN_GUESS;
        }
        if program.steps.is_empty() && open.text_bytes > 0 {
            for segment in &mut program.prefix {
                let scaled = u128::from(segment.tokens) * u128::from(tokens.prompt);
                segment.tokens = (scaled / u128::from(open.text_bytes)) as u64;
            }
        }
        program.steps.push(RecordedStep {
            arrived_us: open.arrived_us,
            finished_us: at_us,
            tokens,
            output_tokens_max: open.output_tokens_max,
        });
    }

    fn dropped(&mut self, step: StepId) {
        if let Some(open) = self.open.remove(&step) {
            let program = &mut self.programs[open.program];
            program.awaited.take_if(|awaited| *awaited == step);
            self.cuts.steps_without_answer += 1;
        }
    }

    /// The recorded workload.
    ///
    /// # Errors
    /// [`ReplayError::Empty`] if no step was answered.
    pub fn finish(mut self) -> Result<Workload, ReplayError> {
        self.count_open_steps();
        let seen = self.programs.len();
        self.programs.retain(|program| !program.steps.is_empty());
        self.cuts.programs_without_answer = (seen - self.programs.len()) as u64;
        if self.programs.is_empty() {
            return Err(ReplayError::Empty);
        }
        for program in &mut self.programs {
            program.steps.sort_by_key(|step| step.arrived_us);
        }
        self.programs
            .sort_by_key(|program| program.steps[0].arrived_us);
        let lives = self.lives();
        let schedule = infer(&lives, self.options.slot_lag_us);
        let recorded = self.recorded();
        let runs = self.runs();
        let by_step = |program: &RecordedProgram| program.actions.by_step(&program.steps);
        let (actions, left_out): (Vec<_>, Vec<u64>) = self.programs.iter().map(by_step).unzip();
        self.cuts.actions_left_out = left_out.iter().sum();
        let members = self.programs.iter().map(|program| program.member.clone());
        let preferences = self.members.preferences(members.collect());
        let limits = |program: &RecordedProgram| {
            let steps = program.steps.iter();
            steps.map(|step| step.output_tokens_max).collect()
        };
        Ok(Workload {
            runs,
            schedule,
            output_limits: self.programs.iter().map(limits).collect(),
            workers: self.workers.serving(),
            preferences,
            actions,
            config: self.config,
            whole_answers: self.steps_reported * 2 < recorded.steps,
            recorded: Some(recorded),
            cuts: self.cuts,
        })
    }

    /// Counts steps without an answer: those running at the window's end, and those without further
    /// events.
    fn count_open_steps(&mut self) {
        for (step, open) in &self.open {
            let program = &self.programs[open.program];
            if program.awaited == Some(*step) && !self.is_silent(program) {
                self.cuts.steps_open_at_end += 1;
            } else {
                self.cuts.steps_unheard_of += 1;
            }
        }
    }

    /// Whether a program had no events for so long before the window's end that its client must
    /// have abandoned it. The scheduler assumes this after the longest tool call; a short window is
    /// not that long.
    fn is_silent(&self, program: &RecordedProgram) -> bool {
        let (first_us, last_us) = self.range_us.unwrap_or_default();
        let default = CoreConfig::default();
        let config = self.config.as_ref().unwrap_or(&default);
        let half_us = (last_us - first_us) / 2;
        let mut idle_us = config.program_idle_max.micros().min(half_us);
        if program.awaited.is_some() {
            // It may wait for placement.
            idle_us = idle_us.max(config.queue_wait_max.micros());
        }
        program.released_us.is_none() && last_us - program.last_us > idle_us
    }

    /// When programs opened and ended. A program whose job reports ends counts as live at the
    /// window's end unless it was released or abandoned.
    fn lives(&mut self) -> Vec<Life> {
        let reported = self.programs.iter().filter(|p| p.released_us.is_some());
        let pending_reports: BTreeSet<Box<str>> = reported.map(|p| p.job.clone()).collect();
        let mut cuts = self.cuts;
        let mut lives = Vec::with_capacity(self.programs.len());
        for program in &self.programs {
            let last_us = program.steps.iter().map(|step| step.finished_us).max();
            let is_unended = program.released_us.is_none()
                && (program.awaited.is_some()
                    || (!program.one_shot && pending_reports.contains(&program.job)));
            let is_left = is_unended && self.is_silent(program);
            let is_open = is_unended && !is_left;
            cuts.programs_open_at_end += u64::from(is_open);
            cuts.programs_left += u64::from(is_left);
            cuts.programs_begun_before += u64::from(self.begun_before.contains(&program.key));
            lives.push(Life {
                job: program.job.clone(),
                opened_us: program.steps[0].arrived_us,
                ended_us: program.released_us.or(last_us).filter(|_| !is_open),
            });
        }
        self.cuts = cuts;
        lives
    }

    fn recorded(&self) -> Recorded {
        let steps = || self.programs.iter().flat_map(|program| &program.steps);
        let first_us = steps().map(|step| step.arrived_us).min().unwrap_or(0);
        let last_us = steps().map(|step| step.finished_us).max().unwrap_or(0);
        let took = steps().map(|step| step.finished_us.saturating_sub(step.arrived_us));
        let mut latencies_us: Vec<u64> = took.collect();
        // Without the engine's report, the cached share of the step is unknown.
        let reported = || steps().filter(|step| step.tokens.cached.is_some());
        let prompt = reported().map(|step| step.tokens.prompt).sum();
        let cached = reported().filter_map(|step| step.tokens.cached).sum();
        Recorded::of(
            last_us.saturating_sub(first_us),
            &mut latencies_us,
            prompt,
            cached,
        )
    }

    fn runs(&mut self) -> Vec<AgentRun> {
        let shared = shared_prefixes(&self.programs);
        let mut names = RunNames::default();
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
            runs.push(AgentRun {
                id: names.next(&program.key),
                group: shared.group,
                system_tokens: shared.system_tokens,
                group_tokens: shared.group_tokens,
                steps,
            });
        }
        runs
    }
}
