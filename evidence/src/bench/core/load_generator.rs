//! A load generator that turns agent runs into the core's events: programs in a closed loop over
//! engines that take a fixed time for every token. It is as cheap as it can be, because its own
//! time counts.

use super::agent::{Agent, Stage};
use super::decisions::Questions;
use crate::bench::BenchError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use treadle_core::memory::Capacity;
use treadle_core::programs::Counters;
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepTokens};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event};
use treadle_engine_model::engine::EngineProfile;
use treadle_model::{EngineKind, FinishReason, StepId, Timestamp, WorkerId};
use treadle_policy::evaluator::PolicyEvaluator;
use treadle_simulator::workload::{AgentRun, LognormalAgents, peak_demand_tokens};

/// Output tokens after which progress is reported, as the gateway does.
const PROGRESS_TOKENS: u64 = 64;
/// Time for an output token.
const TOKEN_US: u64 = 25_000;
/// Time until the first output token.
const FIRST_TOKEN_US: u64 = 500_000;
/// First steps come within this time.
const ARRIVALS_US: u64 = 60_000_000;
/// Runs of the workload; they are used again under other names.
const RUNS_MAX: usize = 10_000;

/// What load to generate.
pub(super) struct LoadGeneratorOptions {
    pub(super) core: CoreConfig,
    pub(super) programs: usize,
    pub(super) engines: u32,
    pub(super) kv_fraction: f64,
    pub(super) seed: u64,
}

/// Drives a core; see the module.
pub(super) struct LoadGenerator {
    core: Core,
    evaluator: PolicyEvaluator,
    runs: Vec<AgentRun>,
    agents: Vec<Agent>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    at_work: HashMap<StepId, usize>,
    last_step: u64,
    last_run: usize,
    now: u64,
    counted_from: u64,
    mix: BTreeMap<&'static str, u64>,
    questions: Questions,
}

impl LoadGenerator {
    /// All programs live, and none has sent anything.
    pub(super) fn new(options: &LoadGeneratorOptions) -> Result<Self, BenchError> {
        let workload = LognormalAgents {
            programs: options.programs.clamp(1, RUNS_MAX),
            seed: options.seed,
            ..LognormalAgents::default()
        };
        let runs = workload.generate()?;
        let profile = EngineProfile::glm46_8xh100();
        let sample = options.programs.min(runs.len());
        let peak = peak_demand_tokens(&runs, sample, &profile) as f64;
        let peak = peak * options.programs as f64 / sample as f64;
        let capacity = peak * options.kv_fraction / f64::from(options.engines);
        let mut load_generator = Self {
            core: Core::new(options.core.clone()),
            evaluator: PolicyEvaluator::default(),
            agents: Vec::with_capacity(options.programs),
            runs,
            due: BinaryHeap::new(),
            at_work: HashMap::new(),
            last_step: 0,
            last_run: 0,
            now: 0,
            counted_from: 0,
            mix: BTreeMap::new(),
            questions: Questions::default(),
        };
        for worker in 0..options.engines {
            load_generator.handle(&Event::Program(ProgramEvent::WorkerAdded {
                worker: WorkerId(worker),
                url: format!("sim://engine-{worker}").into(),
                engine: EngineKind::Vllm,
                capacity: Capacity {
                    tokens: Some(capacity as u64),
                    ..Capacity::default()
                },
                role: None,
            }));
        }
        for place in 0..options.programs {
            let agent = load_generator.next_agent();
            load_generator.agents.push(agent);
            let at = ARRIVALS_US * place as u64 / options.programs as u64;
            load_generator.due.push(Reverse((at, place)));
        }
        Ok(load_generator)
    }

    /// Runs to a time of its own, in microseconds.
    pub(super) fn run_until(&mut self, at_us: u64) {
        while self.now < at_us && self.turn() {}
    }

    /// Runs for at least `count` events.
    pub(super) fn run_events(&mut self, count: u64) {
        let until = self.events() + count;
        while self.events() < until && self.turn() {}
    }

    /// Counts from now on.
    pub(super) fn forget_counts(&mut self) {
        self.mix.clear();
        self.questions = Questions::default();
        self.counted_from = self.now;
    }

    /// Events since the counts were forgotten.
    pub(super) fn events(&self) -> u64 {
        self.mix.values().sum()
    }

    /// The same by kind.
    pub(super) fn mix(&self) -> &BTreeMap<&'static str, u64> {
        &self.mix
    }

    /// Time of its own since the counts were forgotten, in seconds.
    pub(super) fn virtual_s(&self) -> f64 {
        (self.now - self.counted_from) as f64 / 1e6
    }

    /// The core's counters since the beginning.
    pub(super) fn counters(&self) -> Counters {
        self.core.programs().counters
    }

    /// The questions that the core asked.
    pub(super) fn into_questions(self) -> Questions {
        self.questions
    }

    fn next_agent(&mut self) -> Agent {
        let place = self.last_run % self.runs.len();
        let lap = self.last_run / self.runs.len();
        self.last_run += 1;
        Agent::new(place, &self.runs[place], lap)
    }

    /// What is due next, an agent or a deadline; false if nothing ever is.
    fn turn(&mut self) -> bool {
        let agent = self.due.peek().map(|Reverse((at, _))| *at);
        let deadline = self.core.next_deadline().map(|at| at.0);
        let Some(next) = agent.into_iter().chain(deadline).min() else {
            return false;
        };
        self.now = self.now.max(next);
        if deadline.is_some_and(|at| at <= self.now) {
            self.handle(&Event::Daemon(DaemonEvent::TimerFired));
        } else if let Some(Reverse((_, place))) = self.due.pop() {
            self.act(place);
        }
        true
    }

    fn act(&mut self, place: usize) {
        let (step, run) = (self.agents[place].step, self.agents[place].run);
        match self.agents[place].stage {
            Stage::Send => self.send(place),
            Stage::FirstToken => {
                self.decode(place, 1);
                self.handle(&Event::Program(ProgramEvent::StepFirstToken { step }));
            }
            Stage::Decode { done } => {
                let call = self.runs[run].steps[self.agents[place].next_step - 1];
                if done < u64::from(call.output_tokens) {
                    self.decode(place, done);
                    let output_tokens = done;
                    return self.handle(&Event::Program(ProgramEvent::StepProgressed {
                        step,
                        output_tokens,
                    }));
                }
                let tokens = StepTokens {
                    prompt: u64::from(call.input_tokens),
                    output: u64::from(call.output_tokens),
                    cached: Some(u64::from(call.reused_tokens)),
                };
                self.at_work.remove(&step);
                let finish = FinishReason::Stop;
                self.handle(&Event::Program(ProgramEvent::StepFinished {
                    step,
                    tokens,
                    finish,
                    weights: None,
                }));
                self.rest(place, call.tool_us);
            }
        }
    }

    fn send(&mut self, place: usize) {
        self.last_step += 1;
        let step = StepId(self.last_step);
        let agent = &mut self.agents[place];
        let arrival = agent.arrive(step, &self.runs[agent.run]);
        self.at_work.insert(step, place);
        self.handle(&Event::Program(ProgramEvent::StepArrived(arrival)));
    }

    /// Schedules the next news of a step that has produced `done` tokens.
    fn decode(&mut self, place: usize, done: u64) {
        let agent = &mut self.agents[place];
        let call = self.runs[agent.run].steps[agent.next_step - 1];
        let next = (done + PROGRESS_TOKENS)
            .min(u64::from(call.output_tokens))
            .max(done);
        agent.stage = Stage::Decode { done: next };
        let at = self.now + (next - done) * TOKEN_US;
        self.due.push(Reverse((at, place)));
    }

    /// A tool call, or the end of the run and the beginning of another.
    fn rest(&mut self, place: usize, tool_us: u64) {
        let agent = &mut self.agents[place];
        agent.stage = Stage::Send;
        if agent.next_step < self.runs[agent.run].steps.len() {
            return self.due.push(Reverse((self.now + tool_us, place)));
        }
        let next = self.next_agent();
        let ended = std::mem::replace(&mut self.agents[place], next);
        self.due.push(Reverse((self.now, place)));
        self.handle(&Event::Program(ProgramEvent::ProgramReleased {
            program: ended.key,
            aborted: false,
        }));
    }

    fn handle(&mut self, event: &Event) {
        *self.mix.entry(event.kind()).or_default() += 1;
        self.core.handle(Timestamp(self.now), event);
        while let Some(command) = self.core.poll_command() {
            self.carry_out(command);
        }
        while self.core.poll_decision().is_some() {}
    }

    fn carry_out(&mut self, command: Command) {
        // None is submitted.
        let Command::Program(command) = command else {
            return;
        };
        match command {
            ProgramCommand::DispatchStep { step, .. } => {
                if let Some(&place) = self.at_work.get(&step) {
                    self.agents[place].stage = Stage::FirstToken;
                    self.due.push(Reverse((self.now + FIRST_TOKEN_US, place)));
                }
            }
            ProgramCommand::AskPolicy { ask, question, .. } => {
                self.questions.show(&question);
                let answer = self
                    .evaluator
                    .answer(&self.core, &question, self.now / 1_000);
                self.handle(&Event::Program(ProgramEvent::PolicyAnswered {
                    ask,
                    policy: answer.policy,
                    answer: answer.answer,
                    attribution: answer.attribution,
                }));
            }
            ProgramCommand::RefuseStep { step, .. } => {
                if let Some(place) = self.at_work.remove(&step) {
                    self.rest(place, FIRST_TOKEN_US);
                }
            }
            // The load generator's scheduler is program-aware: it neither preempts nor moves.
            ProgramCommand::AbortStep { .. }
            | ProgramCommand::PreemptStep { .. }
            | ProgramCommand::MigrateProgram { .. }
            | ProgramCommand::OffloadProgram { .. }
            | ProgramCommand::LoadProgram { .. }
            | ProgramCommand::DropCopy { .. }
            | ProgramCommand::CancelTransfer { .. }
            | ProgramCommand::ForgetProgram { .. } => {}
        }
    }
}
