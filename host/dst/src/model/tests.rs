//! The model with a correct core, in short handwritten simulations.

use super::super::observed::Auditor;
use treadle_core::memory::Capacity;
use treadle_core::programs::{
    Attribution, CacheAction, PolicyAnswer, ProgramCommand, ProgramEvent, StepArrival, StepTokens,
};
use treadle_core::{Command, CoreConfig, DaemonEvent, Event, KvConfig, RolloutConfig};
use treadle_model::{
    AskId, EngineKind, FinishReason, GatewayId, PolicyRef, ProgramId, StepId, Timestamp, WorkerId,
};

/// A core and its model, and what time it is.
struct Fixture {
    observed: Auditor,
    now_us: u64,
}

impl Fixture {
    fn new(config: &CoreConfig) -> Self {
        Self {
            observed: Auditor::new(config, true, None),
            now_us: 0,
        }
    }

    /// Handles an event; panics with the rule that it breaks.
    fn handle(&mut self, event: &Event) -> Vec<Command> {
        let at = Timestamp(self.now_us);
        self.observed.core.handle(at, event);
        match self.observed.follow((at, self.now_us), event) {
            Ok(commands) => commands,
            Err(broken) => panic!("{}: {}", broken.rule, broken.what),
        }
    }

    fn add_worker(&mut self, worker: u32, context_tokens_max: u64) {
        self.handle(&Event::Program(ProgramEvent::WorkerAdded {
            worker: WorkerId(worker),
            url: format!("http://engine-{worker}").into(),
            engine: EngineKind::Openai,
            capacity: Capacity {
                tokens: Some(10_000),
                context_tokens_max: Some(context_tokens_max),
                slots: None,
                gpus: None,
                offloads: false,
            },
            role: None,
        }));
    }

    /// A step arrives; lets the gathering end.
    fn arrive(&mut self, program: &str, step: StepId, prompt_tokens: u64) {
        self.handle(&Event::Program(ProgramEvent::StepArrived(StepArrival {
            step,
            program: program.into(),
            job: "job".into(),
            prompt_tokens,
            exact: true,
            prompt_bytes: prompt_tokens * 4,
            text: None,
            output_tokens_max: None,
            prefix: Vec::new(),
            one_shot: false,
            inferred: false,
            parent: None,
            group: None,
            model: None,
        })));
        self.now_us += 100_000;
        self.handle(&Event::Daemon(DaemonEvent::TimerFired));
    }

    /// Places a new program on the first worker, and sends its step there.
    fn places(&mut self, program: u64) {
        self.answer(goes(program, 0, 0.0));
    }

    /// Answers the only question.
    fn answer(&mut self, answer: PolicyAnswer) -> Vec<Command> {
        let asks = self.observed.core.programs().asks.open();
        let ask: AskId = *asks.keys().next().expect("it is asked");
        self.handle(&Event::Program(ProgramEvent::PolicyAnswered {
            ask,
            policy: PolicyRef("test".into()),
            answer,
            attribution: Attribution::default(),
        }))
    }
}

/// A program goes to a worker, as urgent as that.
fn goes(program: u64, worker: u32, score: f64) -> PolicyAnswer {
    PolicyAnswer::Order {
        programs: vec![ProgramId(program)],
        scores: vec![score],
        workers: vec![Some(WorkerId(worker))],
        remaining_tokens: Vec::new(),
    }
}

/// Two steps of a program are at one worker, one queued behind the other. The queued one may only
/// be there because of the other: the worker does not take its prompt. Then the other one ends.
#[test]
fn a_step_that_must_leave_a_run_queue_is_overtaken() {
    let mut fixture = Fixture::new(&CoreConfig {
        rollout: RolloutConfig {
            engine_steps_max: 1,
            ..RolloutConfig::default()
        },
        ..CoreConfig::default()
    });
    fixture.add_worker(0, 1_000);
    fixture.add_worker(1, 5_000);
    let remote = GatewayId(2);
    fixture.arrive("a", StepId::of(remote, 1), 100);
    fixture.places(0);
    fixture.arrive("b", StepId(1), 100);
    fixture.places(1);
    fixture.arrive("a", StepId(2), 2_000);
    fixture.answer(goes(0, 0, 9.0));
    let commands = fixture.handle(&Event::Daemon(DaemonEvent::GatewayLost { gateway: remote }));
    let sent = |command: &Command| matches!(command, Command::Program(ProgramCommand::DispatchStep { step, .. }) if *step == StepId(1));
    assert!(commands.iter().any(sent), "{commands:?}");
}

/// A cache is in transfer back to a worker whose slots were counted meanwhile, and the daemon
/// restarts.
#[test]
fn a_restart_frees_the_placement_of_a_cache_in_transit_and_of_a_removed_slot() {
    let mut fixture = Fixture::new(&CoreConfig {
        kv: KvConfig {
            retention: true,
            host_tokens_max: 10_000,
            ..KvConfig::default()
        },
        ..CoreConfig::default()
    });
    let (program, worker) = (ProgramId(0), WorkerId(0));
    fixture.add_worker(0, 10_000);
    fixture.arrive("a", StepId(1), 9_500);
    fixture.answer(goes(0, 0, 1.0));
    fixture.handle(&Event::Program(ProgramEvent::StepFinished {
        step: StepId(1),
        tokens: StepTokens {
            prompt: 9_500,
            output: 10,
            cached: None,
        },
        finish: FinishReason::Stop,
        weights: None,
    }));
    fixture.answer(PolicyAnswer::CacheActions {
        actions: vec![(program, CacheAction::Offload)],
    });
    fixture.handle(&Event::Program(ProgramEvent::ProgramOffloaded {
        program,
        copy: "copy".into(),
        tokens: 9_510,
        bytes: 9_510,
    }));
    fixture.arrive("a", StepId(2), 9_600);
    let commands = fixture.answer(goes(0, 0, 1.0));
    let loads = |command: &Command| {
        matches!(
            command,
            Command::Program(ProgramCommand::LoadProgram { .. })
        )
    };
    assert!(commands.iter().any(loads), "{commands:?}");
    fixture.handle(&Event::Program(ProgramEvent::WorkerCapacityRead {
        worker,
        engine: EngineKind::Llamacpp,
        capacity: Capacity {
            tokens: Some(10_000),
            context_tokens_max: None,
            slots: Some(8),
            gpus: None,
            offloads: false,
        },
    }));
    fixture.handle(&Event::Daemon(DaemonEvent::DaemonRestarted));
    let state = fixture.observed.core.programs();
    assert_eq!(state.live[&program].placement, None);
}

/// A program's long step runs on a lost worker, and a shorter one of it is placed on a worker that
/// does not take the long one.
#[test]
fn a_step_that_runs_elsewhere_does_not_come_along() {
    let mut fixture = Fixture::new(&CoreConfig::default());
    fixture.add_worker(0, 5_000);
    fixture.add_worker(1, 600);
    let (step, worker) = (StepId(1), WorkerId(0));
    fixture.arrive("a", step, 700);
    fixture.answer(goes(0, 0, 1.0));
    fixture.handle(&Event::Program(ProgramEvent::StepFirstToken { step }));
    fixture.handle(&Event::Program(ProgramEvent::WorkerLost {
        worker,
        cause: "killed".into(),
    }));
    fixture.arrive("a", StepId(2), 500);
    let commands = fixture.answer(goes(0, 1, 1.0));
    let sent = |command: &Command| {
        matches!(
            command,
            Command::Program(ProgramCommand::DispatchStep { .. })
        )
    };
    assert!(commands.iter().any(sent), "{commands:?}");
}
