//! A scenario: a core, a clock that only moves on request, and a policy that answers as
//! `ThunderAgent` §4.3.1 would. Invariants are checked after each event.

pub(crate) mod rollouts;

use treadle_core::bindings::BindingEvent;
use treadle_core::memory::{Capacity, PrefixSegment};
use treadle_core::programs::WorkerState;
use treadle_core::programs::{
    Attribution, CacheAction, Parent, PolicyAnswer, ProgramCommand, ProgramEvent, Purpose,
    Question, Refusal, StepArrival, StepFailure, StepTokens,
};
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event, Mode};
use treadle_model::{
    EngineKind, FinishReason, PolicyRef, ProgramId, Role, Span, StepId, Timestamp, WorkerId, World,
};

pub(crate) struct Scenario {
    pub(crate) core: Core,
    pub(crate) now: Timestamp,
    pub(crate) log: Vec<Command>,
    pub(crate) journal: Vec<(Timestamp, Event)>,
    pub(crate) mute_policy: bool,
    /// Gateways do not report on the steps that they are to take back.
    pub(crate) mute_gateway: bool,
    /// The policy never names this program.
    pub(crate) hidden: Option<ProgramId>,
}

impl Scenario {
    pub(crate) fn with_workers(tokens: &[u64]) -> Self {
        Self::with_mode(Mode::ProgramAware, tokens)
    }

    pub(crate) fn with_mode(mode: Mode, tokens: &[u64]) -> Self {
        let mut scenario = Self::new(mode);
        for (worker, tokens) in (0..).zip(tokens) {
            scenario.add_worker(
                worker,
                Capacity {
                    tokens: Some(*tokens),
                    ..Capacity::default()
                },
            );
        }
        scenario
    }

    pub(crate) fn with_slots(workers: &[(u64, u32)]) -> Self {
        let mut scenario = Self::new(Mode::ProgramAware);
        for (worker, (tokens, slots)) in (0..).zip(workers) {
            let capacity = Capacity {
                tokens: Some(*tokens),
                slots: Some(*slots),
                ..Capacity::default()
            };
            scenario.add_worker(worker, capacity);
        }
        scenario
    }

    /// The same with a priority policy, which ranks all steps, and a placement policy.
    pub(crate) fn ranked(tokens: &[u64]) -> Self {
        let mut scenario = Self::with_mode(Mode::ProgramAware, tokens);
        for world in [World::Priority, World::Placement] {
            scenario.bind(BindingEvent::PolicyBound {
                world,
                scope: "*".into(),
                role: Role::Active,
                policy: PolicyRef("story".into()),
                digest: "story".into(),
                config: "{}".into(),
                share_ppm: 0,
                by_default: false,
            });
        }
        scenario
    }

    pub(crate) fn bind(&mut self, event: BindingEvent) -> &mut Self {
        self.handle(Event::Binding(event))
    }

    fn new(mode: Mode) -> Self {
        let config = CoreConfig {
            mode,
            output_tokens_guess: 0,
            low_watermark_ppm: 1_000_000,
            deferral_max: Span::from_secs(120),
            deferral_min: Span::from_secs(120),
            quantum_ppm: 500_000,
            ..CoreConfig::default()
        };
        Self {
            core: Core::new(config),
            now: Timestamp(0),
            log: Vec::new(),
            journal: Vec::new(),
            mute_policy: false,
            mute_gateway: false,
            hidden: None,
        }
    }

    /// Changes the settings before anything else happens.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut CoreConfig)) {
        let mut config = self.core.config().clone();
        change(&mut config);
        self.core = Core::with_state(config, self.core.state().clone());
    }

    pub(crate) fn add_worker(&mut self, worker: u32, capacity: Capacity) {
        self.handle(Event::Program(ProgramEvent::WorkerAdded {
            worker: WorkerId(worker),
            url: format!("http://engine-{worker}").into(),
            engine: EngineKind::Vllm,
            capacity,
            role: None,
        }));
    }

    pub(crate) fn handle(&mut self, event: Event) -> &mut Self {
        self.core.handle(self.now, &event);
        self.journal.push((self.now, event));
        self.core.assert_invariants();
        while let Some(command) = self.core.poll_command() {
            if let Command::Program(ProgramCommand::AskPolicy { ask, question, .. }) = &command
                && !self.mute_policy
            {
                let ranks = self.core.ranks("story");
                let mut answer = if ranks && question.purpose == Purpose::Restore {
                    rollout_answer(question)
                } else {
                    answer(question)
                };
                if let PolicyAnswer::Order { programs, .. } = &mut answer {
                    programs.retain(|program| Some(*program) != self.hidden);
                }
                let policy = PolicyRef("story".into());
                let answered = Event::Program(ProgramEvent::PolicyAnswered {
                    ask: *ask,
                    policy,
                    answer,
                    attribution: Attribution::default(),
                });
                self.handle(answered);
            }
            let preempted = match &command {
                Command::Program(ProgramCommand::PreemptStep { step }) if !self.mute_gateway => {
                    Some(*step)
                }
                _ => None,
            };
            self.log.push(command);
            if let Some(step) = preempted {
                self.handle(Event::Program(ProgramEvent::StepInterrupted { step }));
            }
        }
        self
    }

    pub(crate) fn arrive(&mut self, program: &str, step: u64, prompt_tokens: u64) -> &mut Self {
        self.arrive_with(program, step, prompt_tokens, vec![])
    }

    pub(crate) fn arrive_for(
        &mut self,
        model: Option<&str>,
        program: &str,
        step: u64,
        tokens: u64,
    ) -> &mut Self {
        let mut arrival = arrival(program, step, tokens, vec![]);
        arrival.model = model.map(Box::from);
        self.handle(Event::Program(ProgramEvent::StepArrived(arrival)))
    }

    /// A worker reports its models, its own first.
    pub(crate) fn serves(&mut self, worker: u32, models: &[&str]) -> &mut Self {
        let worker = WorkerId(worker);
        let (own, others) = models.split_first().expect("a model");
        let models = others.iter().map(|&name| name.into()).collect();
        self.handle(Event::Program(ProgramEvent::WorkerOtherModelsRead {
            worker,
            models,
        }));
        let model = (*own).into();
        self.handle(Event::Program(ProgramEvent::WorkerModelRead {
            worker,
            model,
        }))
    }

    pub(crate) fn arrive_inferred(&mut self, program: &str, step: u64, tokens: u64) -> &mut Self {
        let mut arrival = arrival(program, step, tokens, vec![]);
        arrival.inferred = true;
        self.handle(Event::Program(ProgramEvent::StepArrived(arrival)))
    }

    pub(crate) fn arrive_sharing(
        &mut self,
        program: &str,
        step: u64,
        prompt_tokens: u64,
        hash: u64,
        tokens: u64,
    ) -> &mut Self {
        self.arrive_with(
            program,
            step,
            prompt_tokens,
            vec![PrefixSegment { hash, tokens }],
        )
    }

    pub(crate) fn arrive_from(
        &mut self,
        parent: (&str, bool),
        program: &str,
        step: u64,
        prompt_tokens: u64,
        prefix: Vec<PrefixSegment>,
    ) -> &mut Self {
        let mut arrival = arrival(program, step, prompt_tokens, prefix);
        let (program, waits) = (parent.0.into(), parent.1);
        arrival.parent = Some(Parent { program, waits });
        self.handle(Event::Program(ProgramEvent::StepArrived(arrival)))
    }

    pub(crate) fn arrive_with(
        &mut self,
        program: &str,
        step: u64,
        prompt_tokens: u64,
        prefix: Vec<PrefixSegment>,
    ) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::StepArrived(arrival(
            program,
            step,
            prompt_tokens,
            prefix,
        ))))
    }

    pub(crate) fn finish(&mut self, step: u64, prompt: u64, output: u64) -> &mut Self {
        let tokens = StepTokens {
            prompt,
            output,
            cached: None,
        };
        self.handle(Event::Program(ProgramEvent::StepFinished {
            step: StepId(step),
            tokens,
            finish: FinishReason::Stop,
            weights: None,
        }))
    }

    pub(crate) fn progress(&mut self, step: u64, output_tokens: u64) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::StepProgressed {
            step: StepId(step),
            output_tokens,
        }))
    }

    pub(crate) fn fail(&mut self, step: u64, retryable: bool) -> &mut Self {
        let failure = StepFailure {
            cause: "connection reset".into(),
            retryable,
            rejected: false,
            busy: None,
        };
        self.handle(Event::Program(ProgramEvent::StepFailed {
            step: StepId(step),
            failure,
        }))
    }

    /// An engine refuses the step's request.
    pub(crate) fn reject(&mut self, step: u64) -> &mut Self {
        let failure = StepFailure {
            cause: "400".into(),
            retryable: false,
            rejected: true,
            busy: None,
        };
        self.handle(Event::Program(ProgramEvent::StepFailed {
            step: StepId(step),
            failure,
        }))
    }

    pub(crate) fn release(&mut self, program: &str) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::ProgramReleased {
            program: program.into(),
            aborted: false,
        }))
    }

    pub(crate) fn reward(&mut self, program: &str, reward_millionths: i64) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::ProgramRewarded {
            program: program.into(),
            reward_millionths,
        }))
    }

    pub(crate) fn lose(&mut self, worker: u32) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerLost {
            worker: WorkerId(worker),
            cause: "killed".into(),
        }))
    }

    pub(crate) fn recover(&mut self, worker: u32) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerRecovered {
            worker: WorkerId(worker),
        }))
    }

    pub(crate) fn set_state(&mut self, worker: u32, state: WorkerState) -> &mut Self {
        let worker = WorkerId(worker);
        self.handle(Event::Program(ProgramEvent::WorkerStateSet {
            worker,
            state,
        }))
    }

    pub(crate) fn resize(&mut self, worker: u32, tokens: u64) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerCapacityRead {
            worker: WorkerId(worker),
            engine: EngineKind::Vllm,
            capacity: Capacity {
                tokens: Some(tokens),
                ..Capacity::default()
            },
        }))
    }

    pub(crate) fn recount_slots(&mut self, worker: u32, tokens: u64, slots: u32) -> &mut Self {
        self.handle(Event::Program(ProgramEvent::WorkerCapacityRead {
            worker: WorkerId(worker),
            engine: EngineKind::Llamacpp,
            capacity: Capacity {
                tokens: Some(tokens),
                slots: Some(slots),
                ..Capacity::default()
            },
        }))
    }

    pub(crate) fn restart(&mut self) -> &mut Self {
        self.handle(Event::Daemon(DaemonEvent::DaemonRestarted))
    }

    /// Lets time pass, firing deadlines as they come.
    pub(crate) fn wait_s(&mut self, seconds: u64) -> &mut Self {
        let end = self.now + Span::from_secs(seconds);
        while let Some(at) = self.core.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.handle(Event::Daemon(DaemonEvent::TimerFired));
        }
        self.now = end;
        self
    }

    pub(crate) fn status(&self, program: &str) -> &'static str {
        self.core
            .programs()
            .program(program)
            .map_or("gone", |p| p.status.as_str())
    }

    pub(crate) fn dispatched(&self) -> Vec<(u64, u32)> {
        let dispatch = |c: &Command| match c {
            Command::Program(ProgramCommand::DispatchStep { step, worker, .. }) => {
                Some((step.0, worker.0))
            }
            _ => None,
        };
        self.log.iter().filter_map(dispatch).collect()
    }

    pub(crate) fn slots(&self) -> Vec<(u64, Option<u32>)> {
        let dispatch = |c: &Command| match c {
            Command::Program(ProgramCommand::DispatchStep { step, slot, .. }) => {
                Some((step.0, *slot))
            }
            _ => None,
        };
        self.log.iter().filter_map(dispatch).collect()
    }

    pub(crate) fn refusals(&self) -> Vec<(u64, Refusal)> {
        let refusal = |c: &Command| match c {
            Command::Program(ProgramCommand::RefuseStep { step, refusal, .. }) => {
                Some((step.0, refusal.clone()))
            }
            _ => None,
        };
        self.log.iter().filter_map(refusal).collect()
    }
}

/// The paper's scores: acting first and shortest first when pausing, shortest
/// first when restoring (all candidates reason then).
pub(crate) fn answer(question: &Question) -> PolicyAnswer {
    let rows = &question.programs;
    let score = |row: usize| {
        let short = 1.0 / (rows.tokens[row] as f64 + 1.0);
        short + f64::from(rows.acting[row])
    };
    match question.purpose {
        Purpose::Weigh { .. } => PolicyAnswer::Weights {
            weights: rows
                .program
                .iter()
                .map(|program| (*program, 1_000_000))
                .collect(),
        },
        Purpose::Retain { .. } => actions(&rows.program),
        Purpose::Route { .. } | Purpose::Migrate | Purpose::Preempt { .. } => {
            rollout_answer(question)
        }
        Purpose::Pause { .. } | Purpose::Restore => {
            let mut ranked: Vec<_> = (0..rows.len())
                .map(|row| (score(row), rows.program[row]))
                .collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            PolicyAnswer::Order {
                programs: ranked.iter().map(|(_, program)| *program).collect(),
                scores: ranked.iter().map(|(score, _)| *score).collect(),
                workers: Vec::new(),
                remaining_tokens: Vec::new(),
            }
        }
    }
}

/// A policy that uses every cache action.
fn actions(programs: &[ProgramId]) -> PolicyAnswer {
    let action = |program: &ProgramId| match program.0 % 4 {
        0 => CacheAction::Offload,
        1 => CacheAction::Migrate,
        2 => CacheAction::Drop,
        _ => CacheAction::Keep,
    };
    PolicyAnswer::CacheActions {
        actions: programs.iter().map(|p| (*p, action(p))).collect(),
    }
}

/// A policy of rollouts with fixed rules: the two workers in turn, the greater id the more urgent,
/// every step can be preempted.
fn rollout_answer(question: &Question) -> PolicyAnswer {
    let programs = question.programs.program.clone();
    let turn = match question.purpose {
        Purpose::Route { step } => step.0 / 3,
        Purpose::Migrate => 1,
        _ => 0,
    };
    let worker = |program: &ProgramId| Some(WorkerId(((program.0 + turn) % 2) as u32));
    PolicyAnswer::Order {
        scores: programs.iter().map(|program| program.0 as f64).collect(),
        workers: programs.iter().map(worker).collect(),
        remaining_tokens: programs
            .iter()
            .map(|program| program.0.cast_signed() * 50)
            .collect(),
        programs,
    }
}

pub(crate) fn arrival(
    program: &str,
    step: u64,
    prompt_tokens: u64,
    prefix: Vec<PrefixSegment>,
) -> StepArrival {
    StepArrival {
        step: StepId(step),
        program: program.into(),
        job: "story".into(),
        prompt_tokens,
        exact: true,
        prompt_bytes: prompt_tokens * 4,
        text: None,
        output_tokens_max: None,
        prefix,
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    }
}
