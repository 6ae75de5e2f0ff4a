//! A cluster in virtual time: agents, the scheduling core and engine models, driven by one loop.
//! Core and policies are the daemon's own; only their environment is simulated.
//!
//! Events are processed in order of time, and at equal times in a fixed order, so a run depends
//! only on its options.

mod actions;
mod affinity;
mod agents;
mod answers;
mod engines;
mod environment;
mod report;
mod schedule;
mod tools;
mod transfers;

pub use answers::{Answered, Answers};
pub use environment::{
    EngineRanks, Environment, MemberOf, NoObserver, Preferences, RankChoice, StepSeen, ToolAction,
    Watch,
};
pub use report::percentile;
pub use report::{KvShares, Report};
pub use schedule::{Begin, RunStart, Schedule, Wave};
pub use transfers::TransferOptions;

use crate::workload::AgentRun;
use agents::{After, Agents};
use std::collections::{BTreeMap, BTreeSet};
use tools::Tools;
use transfers::Transfers;
use treadle_core::memory::PrefixSegment;
use treadle_core::memory::TokenTime;
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepArrival, StepTokens};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event};
use treadle_engine_model::engine::{EngineProfile, Output, Ranks, RequestSpec};
use treadle_model::{FinishReason, ProgramId, StepId, Timestamp, WorkerId};
use treadle_policy::native::NativeEviction;

/// Output tokens between progress reports, as in the gateway.
const PROGRESS_TOKENS: u64 = 64;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The scheduler's settings.
    pub core: CoreConfig,
    /// The native eviction policy.
    pub policy: NativeEviction,
    /// Number of engines.
    pub engines: u32,
    /// Their profile.
    pub profile: EngineProfile,
    /// Size of caches and links, for cores that move caches.
    pub transfers: TransferOptions,
    /// Whether the scheduler receives the prompt prefixes that programs share.
    pub reports_prefixes: bool,
    /// Maximum number of live programs.
    pub concurrency: usize,
    /// Time at which to stop, in microseconds; `None` runs the workload to its end.
    pub stop_at_us: Option<u64>,
    /// Time from which figures count, in microseconds.
    pub count_from_us: u64,
    /// Seed of token contents.
    pub seed: u64,
    /// Whether to check the core's invariants after every event (slow).
    pub audit: bool,
}

/// Runs a workload to its end with the native policy of the options.
///
/// # Panics
/// With `audit`, if an invariant does not hold.
pub fn simulate(runs: &[AgentRun], options: &ClusterOptions) -> Report {
    simulate_with(runs, options, &mut options.policy.clone())
}

/// Runs a workload to its end; `answers` answers all questions.
///
/// # Panics
/// With `audit`, if an invariant does not hold.
pub fn simulate_with(
    runs: &[AgentRun],
    options: &ClusterOptions,
    answers: &mut dyn Answers,
) -> Report {
    simulate_within(
        runs,
        options,
        answers,
        Environment::default(),
        &mut NoObserver,
    )
}

/// Runs a workload in an environment beyond what the options describe, observed by `watch`, which
/// may end it early.
///
/// # Panics
/// With `audit`, if an invariant does not hold; if the schedule does not match the runs.
pub fn simulate_within(
    runs: &[AgentRun],
    options: &ClusterOptions,
    answers: &mut dyn Answers,
    environment: Environment<'_>,
    watch: &mut dyn Watch,
) -> Report {
    let mut cluster = Cluster::new(runs, options, answers, environment, watch);
    cluster.run();
    cluster.report()
}

struct Running {
    agent: usize,
    worker: usize,
    prompt: u32,
    output: u32,
    seen: u64,
    told: u64,
}

struct Cluster<'a> {
    options: &'a ClusterOptions,
    answers: &'a mut dyn Answers,
    environment: Environment<'a>,
    watch: &'a mut dyn Watch,
    /// Steps in transit to an engine, by the time of arrival.
    sending: BTreeSet<(u64, StepId)>,
    core: Core,
    engines: Vec<Ranks>,
    agents: Agents<'a>,
    /// Pending reports of tool runners, in order.
    pending_reports: BTreeMap<(u64, u64), Event>,
    told: u64,
    tools: Tools,
    transfers: Transfers,
    agents_by_program: BTreeMap<ProgramId, usize>,
    steps: BTreeMap<StepId, Running>,
    next_step: u64,
    now: u64,
    events: u64,
    outputs: Vec<Output>,
    latencies_us: Vec<u64>,
    prompt_tokens: u64,
    cached_tokens: u64,
    refused: u64,
    /// Use of KV memory before the figures begin.
    kv_before: TokenTime,
}

impl<'a> Cluster<'a> {
    fn new(
        runs: &'a [AgentRun],
        options: &'a ClusterOptions,
        answers: &'a mut dyn Answers,
        environment: Environment<'a>,
        watch: &'a mut dyn Watch,
    ) -> Self {
        let engines = engines::start(options, &environment);
        let workers = options.engines * engines::workers_each(&environment);
        let block_tokens = options.profile.block_tokens;
        let agents = match environment.schedule {
            Some(schedule) => Agents::scheduled(runs, schedule, options.seed, block_tokens),
            None => Agents::new(runs, options.concurrency, options.seed, block_tokens),
        };
        let mut cluster = Self {
            options,
            answers,
            environment,
            watch,
            sending: BTreeSet::new(),
            core: Core::new(options.core.clone()),
            engines,
            agents,
            pending_reports: BTreeMap::new(),
            told: 0,
            tools: Tools::default(),
            transfers: Transfers::new(workers, options.transfers),
            agents_by_program: BTreeMap::new(),
            steps: BTreeMap::new(),
            next_step: 0,
            now: 0,
            events: 0,
            outputs: Vec::new(),
            latencies_us: Vec::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            refused: 0,
            kv_before: TokenTime::default(),
        };
        cluster.add_workers();
        cluster.set_classes();
        cluster.set_cores();
        cluster
    }

    fn run(&mut self) {
        loop {
            let engine = self.engines.iter().filter_map(Ranks::next_event_at).min();
            let deadline = self.core.next_deadline().map(|at| at.0);
            let agent = self.agents.next_at();
            let sending = self.sending.first().map(|(at, _)| *at);
            let link = self.transfers.next_event_at();
            if agent.is_none() && self.steps.is_empty() && !self.agents.any_live() {
                return;
            }
            let pending_reports = self
                .pending_reports
                .first_key_value()
                .map(|((at, _), _)| *at);
            let tool = self.tools.next_event_at();
            let due = [
                engine,
                deadline,
                agent,
                sending,
                link,
                pending_reports,
                tool,
            ];
            let Some(next) = due.into_iter().flatten().min() else {
                return;
            };
            if self.options.stop_at_us.is_some_and(|stop| next > stop) {
                return;
            }
            if !self.watch.goes_on(next) {
                return;
            }
            let begins = self.options.count_from_us;
            if self.now < begins && next >= begins {
                self.kv_before = self.kv_uses(begins);
            }
            self.now = self.now.max(next);
            self.advance_engines();
            self.deliver();
            self.end_transfers();
            self.report_actions();
            self.end_tools();
            while let Some(agent) = self.agents.pop_due(self.now) {
                self.send_step(agent);
                // Any number of events may be due at once.
                if !self.watch.goes_on(self.now) {
                    return;
                }
            }
            if self.core.next_deadline().is_some_and(|at| at.0 <= self.now) {
                self.handle(&Event::Daemon(DaemonEvent::TimerFired));
            }
        }
    }

    fn observe(&mut self, output: &Output) {
        match output {
            Output::FirstToken { id, .. } => {
                if self.environment.whole_answers {
                    return;
                }
                self.count_tokens(StepId(*id), 1);
                self.handle(&Event::Program(ProgramEvent::StepFirstToken {
                    step: StepId(*id),
                }));
            }
            Output::Tokens { .. } if self.environment.whole_answers => {}
            Output::Tokens { id, count, .. } => self.count_tokens(StepId(*id), u64::from(*count)),
            Output::Preempted { .. } => {}
            Output::Finished(finished) => {
                let step = StepId(finished.id);
                let Some(running) = self.steps.remove(&step) else {
                    return;
                };
                let tokens = StepTokens {
                    prompt: u64::from(finished.prompt_tokens),
                    output: u64::from(finished.output_tokens),
                    cached: Some(u64::from(finished.cached_tokens)),
                };
                let finish = FinishReason::Length;
                if self.now >= self.options.count_from_us {
                    self.latencies_us
                        .push(self.now - self.agents.sent_at(running.agent));
                    self.prompt_tokens += tokens.prompt;
                    self.cached_tokens += u64::from(finished.cached_tokens);
                }
                self.watch.finished(&StepSeen {
                    run: self.agents.run_index(running.agent),
                    sent_us: self.agents.sent_at(running.agent),
                    ended_us: self.now,
                });
                self.handle(&Event::Program(ProgramEvent::StepFinished {
                    step,
                    tokens,
                    finish,
                    weights: None,
                }));
                self.step_ended(running.agent);
            }
        }
    }

    fn count_tokens(&mut self, step: StepId, count: u64) {
        let Some(running) = self.steps.get_mut(&step) else {
            return;
        };
        running.seen += count;
        if running.seen - running.told >= PROGRESS_TOKENS {
            running.told = running.seen;
            let output_tokens = running.seen;
            self.handle(&Event::Program(ProgramEvent::StepProgressed {
                step,
                output_tokens,
            }));
        }
    }

    fn step_ended(&mut self, agent: usize) {
        self.begin_actions(agent);
        match self.agents.step_ended(agent, self.now) {
            After::Tool { tool_us } => self.begin_tool(agent, tool_us),
            After::Over { program } => {
                self.watch.ended(self.agents.run_index(agent), self.now);
                let aborted = false;
                let released = ProgramEvent::ProgramReleased { program, aborted };
                self.handle(&Event::Program(released));
            }
        }
    }

    fn send_step(&mut self, agent: usize) {
        let step = StepId(self.next_step);
        self.next_step += 1;
        let (run, index) = self.agents.begin_step(agent, self.now);
        let run_index = self.agents.run_index(agent);
        let call = run.steps[index];
        let prefix = [
            (1_u64, run.system_tokens),
            (2 + u64::from(run.group), run.group_tokens),
        ];
        let prefix = prefix
            .into_iter()
            .filter(|(_, tokens)| *tokens > 0 && self.options.reports_prefixes)
            .map(|(hash, tokens)| PrefixSegment {
                hash,
                tokens: u64::from(tokens),
            })
            .collect();
        let arrival = StepArrival {
            step,
            program: run.id.as_str().into(),
            job: self.environment.job_of(run_index).into(),
            prompt_tokens: u64::from(call.input_tokens),
            exact: true,
            prompt_bytes: u64::from(call.input_tokens) * 4,
            text: None,
            output_tokens_max: self.environment.output_limit(run_index, index),
            prefix,
            one_shot: false,
            inferred: false,
            parent: None,
            group: self.environment.reports_groups.then_some(run.group.into()),
            model: None,
        };
        let (prompt, output) = (call.input_tokens, call.output_tokens);
        let running = Running {
            agent,
            worker: usize::MAX,
            prompt,
            output,
            seen: 0,
            told: 0,
        };
        self.steps.insert(step, running);
        if index == 0 {
            self.begin_member(run_index, &run.id);
        }
        self.handle(&Event::Program(ProgramEvent::StepArrived(arrival)));
        if let Some(id) = self.core.programs().keys.get(run.id.as_str()) {
            self.agents_by_program.insert(*id, agent);
        }
    }

    fn handle(&mut self, event: &Event) {
        self.tell(event);
        while let Some(command) = self.core.poll_command() {
            self.carry_out(command);
        }
        while let Some(decision) = self.core.poll_decision() {
            self.watch.decided(&decision);
        }
    }

    /// Passes an event to the core and queues its commands.
    fn tell(&mut self, event: &Event) {
        self.events += 1;
        self.watch.heard(self.now, event);
        self.core.handle(Timestamp(self.now), event);
        if self.options.audit {
            self.core.assert_invariants();
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Program(command) => self.carry_out_program(command),
            Command::Action(command) => self.carry_out_action(command),
            // Training runs are only declared for their affinity.
            Command::Training(_) | Command::Weights(_) => {}
        }
    }

    fn carry_out_program(&mut self, command: ProgramCommand) {
        match command {
            ProgramCommand::DispatchStep { step, worker, .. } => self.dispatch(step, worker),
            ProgramCommand::AskPolicy { ask, question, .. } => {
                let answer = self.answers.answer(&self.core, &question, self.now / 1_000);
                self.tell(&Event::Program(ProgramEvent::PolicyAnswered {
                    ask,
                    policy: answer.policy,
                    answer: answer.answer,
                    attribution: answer.attribution,
                }));
            }
            ProgramCommand::RefuseStep { step, .. } => {
                self.refused += 1;
                if let Some(running) = self.steps.remove(&step) {
                    self.step_ended(running.agent);
                }
            }
            ProgramCommand::ForgetProgram { program } => {
                self.agents_by_program.remove(&program.id);
            }
            ProgramCommand::AbortStep { .. } | ProgramCommand::PreemptStep { .. } => {}
            transfer => self.carry_out_transfer(&transfer),
        }
    }

    fn dispatch(&mut self, step: StepId, worker: WorkerId) {
        let Some(running) = self.steps.get_mut(&step) else {
            return;
        };
        running.worker = worker.0 as usize;
        let overhead_us = self.environment.request_overhead_us;
        if overhead_us == 0 {
            self.submit(step);
        } else {
            self.sending.insert((self.now + overhead_us, step));
        }
    }

    /// Submits the requests that have reached their engines.
    fn deliver(&mut self) {
        while let Some((at, step)) = self.sending.first().copied() {
            if at > self.now {
                return;
            }
            self.sending.pop_first();
            self.submit(step);
        }
    }

    fn submit(&mut self, step: StepId) {
        let Some(running) = self.steps.get(&step) else {
            return;
        };
        let spec = RequestSpec {
            id: step.0,
            prompt_tokens: running.prompt,
            output_tokens: running.output.max(1),
            blocks: self.agents.blocks(running.agent).into(),
            priority: 0,
        };
        let (agent, worker) = (running.agent, running.worker);
        if !self.submit_to(worker, agent, spec) {
            self.refused += 1;
            if let Some(running) = self.steps.remove(&step) {
                self.handle(&Event::Program(ProgramEvent::StepCancelled { step }));
                self.step_ended(running.agent);
            }
        }
    }
}
