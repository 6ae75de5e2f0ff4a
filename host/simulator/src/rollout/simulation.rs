//! The simulation of a rollout: one loop over engines, transfers, tools and the
//! core's deadlines.

mod faults;

use super::RolloutOptions;
use super::policies::PolicySet;
use super::programs::Live;
use crate::cluster::Answers;
use crate::workload::AgentRun;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use treadle_core::bindings::{BindingEvent, EVERYONE};
use treadle_core::memory::{Capacity, PrefixSegment};
use treadle_core::programs::{ProgramCommand, ProgramEvent, StepArrival, StepTokens};
use treadle_core::{Command, Core, DaemonEvent, Event};
use treadle_engine_model::engine::{Engine, Output, RequestSpec};
use treadle_engine_model::links::{Links, Topology, TransferEnd, Worker};
use treadle_model::{
    EngineKind, FinishReason, PolicyRef, ProgramId, Role, StepId, Timestamp, WorkerId, World,
};

/// What happens at a time that is known beforehand. Their order is that in
/// which they happen at one time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
enum Due {
    /// A worker fails, for so long.
    Fail(u32, u64),
    /// A worker is back.
    Recover(u32),
    /// A program sends its next step.
    Send(usize),
}

pub(super) struct Simulation<'a> {
    options: &'a RolloutOptions,
    policies: &'a mut PolicySet,
    pub(super) core: Core,
    pub(super) engines: Vec<Engine>,
    /// When each engine has something to report; outdated entries are passed over.
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
    links: Links,
    pub(super) programs: Vec<Live<'a>>,
    /// Programs by the core's ids and by their steps under way.
    places: BTreeMap<ProgramId, usize>,
    steps: BTreeMap<StepId, usize>,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    open: usize,
    now: u64,
    pub(super) events: u64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) refused: u64,
    pub(super) next_step: u64,
    outputs: Vec<Output>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(
        runs: &'a [AgentRun],
        options: &'a RolloutOptions,
        policies: &'a mut PolicySet,
    ) -> Self {
        let workers = options.workers.iter();
        let block_tokens = workers
            .clone()
            .next()
            .map_or(16, |w| w.profile.block_tokens);
        let ends = workers.clone().map(|w| Worker {
            node: w.node,
            gpus: w.gpus,
        });
        let runs = runs.iter().filter(|run| !run.steps.is_empty());
        let programs: Vec<Live<'_>> = runs
            .map(|run| Live::new(run, options.seed, block_tokens))
            .collect();
        let mut simulation = Self {
            options,
            policies,
            core: Core::new(options.core.clone()),
            engines: workers.map(|w| Engine::new(w.profile.clone())).collect(),
            wakes: BinaryHeap::new(),
            links: Links::new(Topology::new(ends.collect())),
            places: BTreeMap::new(),
            steps: BTreeMap::new(),
            due: (0..programs.len())
                .map(|index| Reverse((0, Due::Send(index))))
                .collect(),
            open: programs.len(),
            programs,
            now: 0,
            events: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            refused: 0,
            next_step: 0,
            outputs: Vec::new(),
        };
        let failures = options.failures.iter();
        let failures =
            failures.map(|(at, worker, lasts)| Reverse((*at, Due::Fail(*worker, *lasts))));
        simulation.due.extend(failures);
        simulation.bind_policies();
        simulation.add_workers();
        simulation
    }

    /// Policies of both worlds are bound, so that they are asked.
    fn bind_policies(&mut self) {
        for world in [World::Priority, World::Placement] {
            self.handle(&Event::Binding(BindingEvent::PolicyBound {
                world,
                scope: EVERYONE.into(),
                role: Role::Active,
                policy: PolicyRef("native".into()),
                digest: "linked".into(),
                config: "{}".into(),
                share_ppm: 0,
                by_default: false,
            }));
        }
    }

    fn add_workers(&mut self) {
        for (index, worker) in self.options.workers.iter().enumerate() {
            self.handle(&Event::Program(ProgramEvent::WorkerAdded {
                worker: WorkerId(index as u32),
                url: format!("sim://worker-{index}").into(),
                engine: EngineKind::Sglang,
                capacity: Capacity {
                    tokens: Some(worker.profile.kv_tokens()),
                    context_tokens_max: Some(u64::from(worker.profile.sequence_limit_tokens())),
                    slots: None,
                    gpus: None,
                    offloads: worker.profile.host_blocks > 0,
                },
                role: None,
            }));
        }
    }

    pub(super) fn run(&mut self) {
        while self.open > 0 {
            let Some(next) = self.next_at() else {
                return;
            };
            self.now = self.now.max(next);
            self.wake_engines();
            self.end_transfers();
            while let Some(Reverse((at, due))) = self.due.peek().copied() {
                if at > self.now {
                    break;
                }
                self.due.pop();
                self.carry_out_due(due);
            }
            if self.core.next_deadline().is_some_and(|at| at.0 <= self.now) {
                self.handle(&Event::Daemon(DaemonEvent::TimerFired));
            }
        }
    }

    fn next_at(&mut self) -> Option<u64> {
        // An engine that changed since has another entry, or nothing to report.
        while let Some(Reverse((at, index))) = self.wakes.peek().copied() {
            if self.engines[index].next_event_at() == Some(at) {
                break;
            }
            self.wakes.pop();
        }
        let engine = self.wakes.peek().map(|Reverse((at, _))| *at);
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        let deadline = self.core.next_deadline().map(|at| at.0);
        let link = self.links.next_event_at();
        [engine, due, deadline, link].into_iter().flatten().min()
    }

    fn wake_engines(&mut self) {
        while let Some(Reverse((at, index))) = self.wakes.peek().copied() {
            if at > self.now {
                return;
            }
            self.wakes.pop();
            if self.engines[index].next_event_at() == Some(at) {
                self.advance(index);
                self.wake(index);
            }
        }
    }

    fn wake(&mut self, index: usize) {
        if let Some(at) = self.engines[index].next_event_at() {
            self.wakes.push(Reverse((at, index)));
        }
    }

    /// Brings an engine to the present and reports what it did.
    fn advance(&mut self, index: usize) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.engines[index].advance(self.now, &mut outputs);
        for output in outputs.drain(..) {
            self.events += 1;
            self.observe(&output);
        }
        self.outputs = outputs;
    }

    fn observe(&mut self, output: &Output) {
        match output {
            Output::FirstToken { id, at_us, .. } => {
                let step = StepId(*id);
                if let Some(program) = self.steps.get(&step) {
                    self.programs[*program].first_token_at = *at_us;
                    self.handle(&Event::Program(ProgramEvent::StepFirstToken { step }));
                }
            }
            Output::Finished(finished) => {
                let step = StepId(finished.id);
                let Some(program) = self.steps.remove(&step) else {
                    return;
                };
                let tokens = StepTokens {
                    prompt: u64::from(finished.prompt_tokens),
                    output: u64::from(finished.output_tokens),
                    cached: Some(u64::from(finished.cached_tokens)),
                };
                self.prompt_tokens += tokens.prompt;
                self.cached_tokens += u64::from(finished.cached_tokens);
                self.handle(&Event::Program(ProgramEvent::StepFinished {
                    step,
                    tokens,
                    finish: FinishReason::Stop,
                    weights: None,
                }));
                self.answered(program);
            }
            Output::Tokens { .. } | Output::Preempted { .. } => {}
        }
    }

    fn answered(&mut self, index: usize) {
        let program = &self.programs[index];
        let step = program.step();
        let profile = &self.options.workers[program.worker].profile;
        let lone_us = profile.ideal_step_us(
            1,
            step.output_tokens.into(),
            step.context_tokens().into(),
            1,
        );
        let key: Box<str> = program.run.id.as_str().into();
        // What the tool call that begins will take is not known yet.
        let lasts_ms = program_tool_ms(program);
        let Some((tool_us, _)) = self.programs[index].answered(self.now, lone_us) else {
            self.open -= 1;
            return self.handle(&Event::Program(ProgramEvent::ProgramReleased {
                program: key,
                aborted: false,
            }));
        };
        self.due
            .push(Reverse((self.now + tool_us, Due::Send(index))));
        let id = self.core.programs().keys.get(&key).copied();
        if let (Some(id), Some(forecasts)) = (id, &mut self.policies.forecasts) {
            forecasts.predict(&self.core, &[id], false, |_| lasts_ms);
        }
        self.tool_begins(index, &key);
    }

    fn tool_begins(&mut self, index: usize, key: &str) {
        let action = self.programs[index].sent.to_string();
        self.handle(&Event::Program(ProgramEvent::ActionStarted {
            program: key.into(),
            action: action.into(),
            tool: "tool".into(),
        }));
    }

    fn carry_out_due(&mut self, due: Due) {
        self.events += 1;
        match due {
            Due::Send(index) => self.send(index),
            Due::Fail(worker, lasts) => self.fail(worker, lasts),
            Due::Recover(worker) => {
                let worker = WorkerId(worker);
                self.handle(&Event::Program(ProgramEvent::WorkerRecovered { worker }));
            }
        }
    }

    fn send(&mut self, index: usize) {
        if self.programs[index].sent > 0 {
            let program = &self.programs[index];
            let ok = program.step().tool_result != crate::workload::ToolResult::Failed;
            let event = Event::Program(ProgramEvent::ActionFinished {
                program: program.run.id.as_str().into(),
                action: program.sent.to_string().into(),
                ok,
            });
            self.handle(&event);
            let run = self.programs[index].run;
            let id = self.core.programs().keys.get(run.id.as_str()).copied();
            let tool_ms = program_tool_ms(&self.programs[index]);
            if let (Some(id), Some(forecasts)) = (id, &mut self.policies.forecasts) {
                forecasts.predict(&self.core, &[id], true, |_| tool_ms);
            }
        }
        let step = StepId(self.next_step);
        self.next_step += 1;
        self.steps.insert(step, index);
        let call = self.programs[index].send(self.now);
        let run = self.programs[index].run;
        let prefix = [
            (1_u64, run.system_tokens),
            (2 + u64::from(run.group), run.group_tokens),
        ];
        let prefix = prefix.into_iter().filter(|(_, tokens)| *tokens > 0);
        let arrival = StepArrival {
            step,
            program: run.id.as_str().into(),
            job: "rollout".into(),
            prompt_tokens: u64::from(call.input_tokens),
            exact: true,
            prompt_bytes: u64::from(call.input_tokens) * 4,
            text: None,
            output_tokens_max: None,
            prefix: prefix
                .map(|(hash, tokens)| PrefixSegment {
                    hash,
                    tokens: u64::from(tokens),
                })
                .collect(),
            one_shot: false,
            inferred: false,
            parent: None,
            group: Some(2 + u64::from(run.group)),
            model: None,
        };
        self.handle(&Event::Program(ProgramEvent::StepArrived(arrival)));
        if let Some(id) = self.core.programs().keys.get(run.id.as_str()) {
            self.places.insert(*id, index);
        }
    }

    fn handle(&mut self, event: &Event) {
        self.tell(event);
        while let Some(command) = self.core.poll_command() {
            self.carry_out(command);
        }
        while self.core.poll_decision().is_some() {}
    }

    /// Gives the core an event; its commands wait.
    fn tell(&mut self, event: &Event) {
        self.events += 1;
        self.core.handle(Timestamp(self.now), event);
        if self.options.audit {
            self.core.assert_invariants();
        }
    }

    fn carry_out(&mut self, command: Command) {
        // Rollouts have no actions of treadle's.
        let Command::Program(command) = command else {
            return;
        };
        match command {
            ProgramCommand::DispatchStep {
                step,
                worker,
                priority,
                ..
            } => self.dispatch(step, worker, priority),
            ProgramCommand::AskPolicy { ask, question, .. } => {
                let answer = self
                    .policies
                    .answer(&self.core, &question, self.now / 1_000);
                self.tell(&Event::Program(ProgramEvent::PolicyAnswered {
                    ask,
                    policy: answer.policy,
                    answer: answer.answer,
                    attribution: answer.attribution,
                }));
            }
            ProgramCommand::RefuseStep { step, .. } => self.refuse(step),
            ProgramCommand::AbortStep { step, .. } => self.abort(step),
            ProgramCommand::PreemptStep { step } => {
                self.abort(step);
                self.handle(&Event::Program(ProgramEvent::StepInterrupted { step }));
            }
            ProgramCommand::MigrateProgram {
                program,
                from,
                to,
                tokens,
                ..
            } => {
                let bytes = tokens * self.options.kv_bytes_per_token;
                let (from, to) = (TransferEnd::Worker(from.0), TransferEnd::Worker(to.0));
                self.links.start(self.now, program.0, from, to, bytes);
            }
            ProgramCommand::CancelTransfer { program } => {
                self.links.cancel(self.now, program.0);
            }
            // Rollouts offload nothing.
            ProgramCommand::OffloadProgram { .. }
            | ProgramCommand::LoadProgram { .. }
            | ProgramCommand::DropCopy { .. } => {}
            ProgramCommand::ForgetProgram { program } => {
                let index = self.places.remove(&program.id);
                let tool_ms = index.map_or(0, |index| program_tool_ms(&self.programs[index]));
                if let Some(forecasts) = &mut self.policies.forecasts {
                    forecasts.ended(&program, tool_ms);
                }
            }
        }
    }

    fn dispatch(&mut self, step: StepId, worker: WorkerId, priority: i32) {
        let (Some(index), at) = (self.steps.get(&step).copied(), worker.0 as usize) else {
            return;
        };
        let program = &mut self.programs[index];
        program.worker = at;
        program.dispatched_at = self.now;
        let call = program.step();
        let spec = RequestSpec {
            id: step.0,
            prompt_tokens: call.input_tokens,
            output_tokens: call.output_tokens.max(1),
            blocks: program.blocks.clone(),
            // Engines serve the lowest first.
            priority: priority.saturating_neg(),
        };
        self.advance(at);
        let taken = self.engines[at].submit(self.now, spec).is_ok();
        self.wake(at);
        if !taken {
            self.handle(&Event::Program(ProgramEvent::StepCancelled { step }));
            self.refuse(step);
        }
    }

    /// A step that no worker takes counts as answered with nothing.
    fn refuse(&mut self, step: StepId) {
        if let Some(index) = self.steps.remove(&step) {
            self.refused += 1;
            let program = &mut self.programs[index];
            (program.dispatched_at, program.first_token_at) = (self.now, self.now);
            self.answered(index);
        }
    }

    /// The engine keeps what it has computed in its cache; the answer starts over, as a model of an
    /// engine cannot go on with half of one.
    fn abort(&mut self, step: StepId) {
        if let Some(index) = self.steps.get(&step) {
            let at = self.programs[*index].worker;
            self.advance(at);
            self.engines[at].abort(self.now, step.0);
            self.wake(at);
        }
    }
}

fn program_tool_ms(program: &Live<'_>) -> u64 {
    program.tool_ms
}
