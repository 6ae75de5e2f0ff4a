//! The model beside a core that is right, in short stories told by hand.

use super::super::database::Row;
use super::super::observed::Observed;
use treadle_core::{
    Capacity, Command, CoreConfig, Event, Fate, KvConfig, Mode, RolloutConfig, StepArrival,
    StepTokens, Verdict, Voices,
};
use treadle_model::{
    AskId, EngineKind, FinishReason, GatewayId, PolicyRef, ProgramId, Span, StepId, Timestamp,
    WorkerId,
};

/// A core and its model, and what time it is.
struct Told {
    observed: Observed,
    now_us: u64,
    seq: u64,
}

impl Told {
    fn new(config: &CoreConfig) -> Self {
        Self {
            observed: Observed::new(config, true, None),
            now_us: 0,
            seq: 0,
        }
    }

    /// Handles an event; panics with the rule that it breaks.
    fn handle(&mut self, event: &Event) -> Vec<Command> {
        self.seq += 1;
        let row = Row {
            seq: self.seq,
            at: Timestamp(self.now_us),
            sim_us: self.now_us,
            origin: None,
            body: String::new(),
        };
        match self.observed.handle(&row, event) {
            Ok(commands) => commands,
            Err(broken) => panic!("{}: {}", broken.rule, broken.what),
        }
    }

    fn add_worker(&mut self, worker: u32, context_tokens_max: u64) {
        self.handle(&Event::WorkerAdded {
            worker: WorkerId(worker),
            url: format!("http://engine-{worker}").into(),
            engine: EngineKind::Openai,
            capacity: Capacity {
                tokens: Some(10_000),
                context_tokens_max: Some(context_tokens_max),
                slots: None,
            },
        });
    }

    /// A step arrives; lets the gathering end.
    fn arrive(&mut self, program: &str, step: StepId, prompt_tokens: u64) {
        self.handle(&Event::StepArrived(StepArrival {
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
            unnamed: false,
        }));
        self.now_us += 100_000;
        self.handle(&Event::TimerFired);
    }

    /// Answers the only question.
    fn answer(&mut self, verdict: Verdict) -> Vec<Command> {
        let asks = &self.observed.core.state().asks;
        let ask: AskId = *asks.keys().next().expect("it is asked");
        self.handle(&Event::PolicyAnswered {
            ask,
            policy: PolicyRef("test".into()),
            verdict,
            voices: Voices::default(),
        })
    }
}

/// A program goes to a worker, as urgent as that.
fn goes(program: u64, worker: u32, score: f64) -> Verdict {
    Verdict::Order {
        programs: vec![ProgramId(program)],
        scores: vec![score],
        workers: vec![Some(WorkerId(worker))],
        remaining_tokens: Vec::new(),
    }
}

/// Two steps of a program are at one worker, one in line behind the other, which alone
/// lets it be there: the worker does not take its prompt. Then the other one ends.
#[test]
fn a_step_that_must_leave_a_line_is_overtaken() {
    let mut told = Told::new(&CoreConfig {
        mode: Mode::Rollout,
        rollout: RolloutConfig {
            gather: Span::from_millis(10),
            engine_steps_max: 1,
            ..RolloutConfig::default()
        },
        ..CoreConfig::default()
    });
    told.add_worker(0, 1_000);
    told.add_worker(1, 5_000);
    let remote = GatewayId(2);
    told.arrive("a", StepId::of(remote, 1), 100);
    told.answer(goes(0, 0, 0.0));
    told.arrive("b", StepId(1), 100);
    told.answer(goes(1, 0, 0.0));
    told.arrive("a", StepId(2), 2_000);
    told.answer(goes(0, 0, 9.0));
    let commands = told.handle(&Event::GatewayLost { gateway: remote });
    let sent = |command: &Command| matches!(command, Command::DispatchStep { step, .. } if *step == StepId(1));
    assert!(commands.iter().any(sent), "{commands:?}");
}

/// A cache is on its way back to a worker whose seats were counted meanwhile, and the
/// daemon restarts.
#[test]
fn a_restart_takes_the_place_of_a_cache_on_its_way_and_of_a_seat_that_is_gone() {
    let mut told = Told::new(&CoreConfig {
        kv: KvConfig {
            retention: true,
            host_tokens_max: 10_000,
            ..KvConfig::default()
        },
        ..CoreConfig::default()
    });
    let (program, worker) = (ProgramId(0), WorkerId(0));
    told.add_worker(0, 10_000);
    told.arrive("a", StepId(1), 9_500);
    told.answer(goes(0, 0, 1.0));
    told.handle(&Event::StepFinished {
        step: StepId(1),
        tokens: StepTokens {
            prompt: 9_500,
            output: 10,
            cached: None,
        },
        finish: FinishReason::Stop,
    });
    told.answer(Verdict::Fates {
        fates: vec![(program, Fate::Offload)],
    });
    told.handle(&Event::ProgramOffloaded {
        program,
        copy: "copy".into(),
        tokens: 9_510,
        bytes: 9_510,
    });
    told.arrive("a", StepId(2), 9_600);
    let commands = told.answer(goes(0, 0, 1.0));
    let loads = |command: &Command| matches!(command, Command::LoadProgram { .. });
    assert!(commands.iter().any(loads), "{commands:?}");
    told.handle(&Event::WorkerCapacityRead {
        worker,
        engine: EngineKind::Llamacpp,
        capacity: Capacity {
            tokens: Some(10_000),
            context_tokens_max: None,
            slots: Some(8),
        },
    });
    told.handle(&Event::DaemonRestarted);
    let state = told.observed.core.state();
    assert_eq!(state.programs[&program].place, None);
}

/// A program's long step runs on a lost worker, and a shorter one of it finds a place on
/// a worker that does not take the long one.
#[test]
fn a_step_that_runs_elsewhere_does_not_come_along() {
    let mut told = Told::new(&CoreConfig::default());
    told.add_worker(0, 5_000);
    told.add_worker(1, 600);
    let (step, worker) = (StepId(1), WorkerId(0));
    told.arrive("a", step, 700);
    told.answer(goes(0, 0, 1.0));
    told.handle(&Event::StepFirstToken { step });
    told.handle(&Event::WorkerLost {
        worker,
        cause: "killed".into(),
    });
    told.arrive("a", StepId(2), 500);
    let commands = told.answer(goes(0, 1, 1.0));
    let sent = |command: &Command| matches!(command, Command::DispatchStep { .. });
    assert!(commands.iter().any(sent), "{commands:?}");
}
