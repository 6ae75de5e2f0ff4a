//! Random action lifecycles: whatever happens, no resource is overcommitted, nobody is overtaken,
//! every action gets one result, its resources are released, programs list exactly their unfinished
//! actions and end with them, and a replay gives the same bytes.

use crate::executor::{Answers, Executor, action, devices, quota, units};
use proptest::prelude::*;
use treadle_core::actions::{ActionEvent, ActionSpec, Outcome, Resource};
use treadle_core::memory::Capacity;
use treadle_core::programs::{ProgramEvent, StepArrival, StepTokens};
use treadle_core::{Core, DaemonEvent, Event};
use treadle_model::{ActionId, EngineKind, FinishReason, Span, StepId, WorkerId};

#[derive(Clone, Debug)]
enum Move {
    Submit {
        what: u8,
        size: u8,
        bound_s: u8,
        idempotent: bool,
        program: u8,
    },
    /// A program takes a step, its first or a further one.
    Step {
        program: u8,
    },
    Release {
        program: u8,
    },
    Begin {
        pick: u8,
    },
    End {
        pick: u8,
        how: u8,
    },
    Cancel {
        pick: u8,
    },
    Refuse {
        pick: u8,
        after_s: u8,
    },
    Wait {
        ms: u16,
    },
    Restart {
        heard: u8,
        shrinks: bool,
    },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        10 => (any::<u8>(), any::<u8>(), any::<u8>(), any::<bool>(), 0..6_u8).prop_map(
            |(what, size, bound_s, idempotent, program)| {
                Move::Submit { what, size, bound_s, idempotent, program }
            }
        ),
        3 => (0..3_u8).prop_map(|program| Move::Step { program }),
        1 => (0..3_u8).prop_map(|program| Move::Release { program }),
        6 => any::<u8>().prop_map(|pick| Move::Begin { pick }),
        8 => (any::<u8>(), 0..6_u8).prop_map(|(pick, how)| Move::End { pick, how }),
        2 => any::<u8>().prop_map(|pick| Move::Cancel { pick }),
        2 => (any::<u8>(), 0..20_u8).prop_map(|(pick, after_s)| Move::Refuse { pick, after_s }),
        3 => any::<u16>().prop_map(|ms| Move::Wait { ms }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(heard, shrinks)| Move::Restart { heard, shrinks }),
    ];
    proptest::collection::vec(one, 1..150)
}

fn resources(cores: u64, nodes: &[u32]) -> Vec<Resource> {
    vec![
        units("cpu", cores),
        units("memory", 64),
        devices("gpu", nodes),
        quota("search", 3, 4, Span::from_secs(20)),
    ]
}

const SERVICES: [&str; 3] = ["judge", "reward", "verifier"];

/// An action that can be admitted, chosen by two numbers.
fn some_action(what: u8, size: u8) -> ActionSpec {
    let size = u64::from(size);
    let memory = [1 + size % 20];
    match what % 8 {
        0 => action(&[("cpu", &[1 + size % 4])]),
        1 => action(&[("cpu", &[1, 2, 4]), ("memory", &memory)]),
        2 => action(&[("cpu", &[2, 3]), ("search", &[1])]),
        3 => action(&[("memory", &memory)]),
        4 => action(&[("search", &[1 + size % 2])]),
        5 => action(&[("gpu", &[1 << (size % 3)]), ("memory", &memory)]),
        _ => ActionSpec {
            service: Some(SERVICES[(size % 3) as usize].into()),
            durations: vec![Span(9_000_000), Span(5_000_000), Span(3_000_000)],
            ..action(&[("memory", &memory), ("gpu", &[1, 2, 4])])
        },
    }
}

fn outcome(how: u8) -> Outcome {
    match how {
        0 => Outcome::Unknown,
        1 => Outcome::OutOfMemory,
        2 => Outcome::Killed { signal: 9 },
        how => Outcome::Exited {
            code: i32::from(how) - 3,
        },
    }
}

fn new(answers: Answers, joint_order: bool) -> Executor {
    let mut e = Executor::with(&[], |config| {
        config.actions.joint_order = joint_order;
        config.actions.joint_retention = joint_order;
        config.actions.refusals_max = 3;
        config.actions.ended_max = 40;
        config.actions.candidates_max = 6;
        config.actions.followers_max = 6;
        config.actions.starvation = Span::from_secs(30);
    });
    e.answers = answers;
    e.set(&resources(6, &[8, 4]));
    for service in SERVICES {
        e.declare(service, 2);
    }
    e.handle(ProgramEvent::WorkerAdded {
        worker: WorkerId(0),
        url: "http://0".into(),
        engine: EngineKind::Vllm,
        capacity: Capacity {
            tokens: Some(4_000),
            ..Capacity::default()
        },
        role: None,
    });
    e
}

fn key(program: u8) -> Box<str> {
    format!("program-{program}").into()
}

/// A program takes a step, which ends at once.
fn step(e: &mut Executor, program: u8) {
    let step = StepId(e.core.programs().last_step + 1);
    e.handle(ProgramEvent::StepArrived(StepArrival {
        step,
        program: key(program),
        job: "job".into(),
        prompt_tokens: 1_000 + u64::from(program) * 500,
        exact: true,
        prompt_bytes: 0,
        text: None,
        output_tokens_max: None,
        prefix: vec![],
        one_shot: false,
        inferred: false,
        parent: None,
        group: None,
        model: None,
    }));
    e.wait_s(1);
    e.handle(ProgramEvent::StepFinished {
        step,
        tokens: StepTokens {
            prompt: 1_000,
            output: 10,
            cached: None,
        },
        finish: FinishReason::Stop,
        weights: None,
    });
}

/// Releases a program, with which its actions end.
fn release(e: &mut Executor, program: u8) {
    let key = key(program);
    e.handle(ProgramEvent::ProgramReleased {
        program: key.clone(),
        aborted: false,
    });
    let of_it = |spec: &ActionSpec| spec.program.as_ref() == Some(&key);
    let waits = e.waiting.values().find(|spec| of_it(spec));
    assert!(waits.is_none(), "{waits:?} goes on without its program");
    for (id, action) in &e.core.actions().live {
        assert!(!of_it(&action.spec) || e.stopped.contains(id), "{id}");
    }
}

/// Programs list exactly their unfinished actions.
fn check_programs(e: &Executor) {
    let actions = &e.core.actions().live;
    for (id, spec) in &e.waiting {
        let key = spec.program.as_deref();
        let program = key.map(|key| e.core.programs().program(key).expect("it is live"));
        let known = program.map(|program| &program.actions[&*format!("treadle/{id}")]);
        assert!(known.is_none_or(|known| known.since >= actions[id].submitted));
    }
    let programs = e.core.programs().live.values();
    for key in programs.flat_map(|program| program.actions.keys()) {
        let is_it = |id: &ActionId| **key == *format!("treadle/{id}");
        assert!(actions.keys().any(is_it), "{key} is over");
    }
}

fn play(e: &mut Executor, one: &Move) {
    let running: Vec<ActionId> = e.running.keys().copied().collect();
    let pick = |pick: u8| {
        running
            .get(usize::from(pick) % running.len().max(1))
            .copied()
    };
    match *one {
        Move::Submit {
            what,
            size,
            bound_s,
            idempotent,
            program,
        } => {
            let start_by = e.now + Span::from_secs(u64::from(bound_s));
            let spec = ActionSpec {
                start_by: (bound_s % 4 == 0).then_some(start_by),
                idempotent,
                program: (program < 3).then(|| key(program)),
                ..some_action(what, size)
            };
            if e.check(&spec).is_ok() {
                e.submit(spec);
            }
        }
        Move::Step { program } => step(e, program),
        Move::Release { program } => release(e, program),
        Move::Begin { pick: p } => {
            if let Some(id) = pick(p) {
                e.begin(id);
            }
        }
        Move::End { pick: p, how } => {
            if let Some(id) = pick(p) {
                e.end(id, outcome(how));
            }
        }
        Move::Cancel { pick } => {
            let all: Vec<ActionId> = e.core.actions().live.keys().copied().collect();
            if let Some(id) = all.get(usize::from(pick) % all.len().max(1)) {
                e.cancel(*id);
            }
        }
        Move::Refuse { pick: p, after_s } => {
            let asks = |id: &ActionId| {
                e.running[id]
                    .grants
                    .iter()
                    .any(|g| &*g.resource == "search")
            };
            if let Some(id) = pick(p).filter(asks) {
                e.refuse(id, "search", Span::from_secs(u64::from(after_s)));
            }
        }
        Move::Wait { ms } => {
            e.wait(Span::from_millis(u64::from(ms)));
        }
        Move::Restart { heard, shrinks } => restart(e, &running, heard, shrinks),
    }
    check_programs(e);
}

/// The daemon restarts, perhaps with fewer resources, and gets reports of some of the running
/// actions.
fn restart(e: &mut Executor, running: &[ActionId], heard: u8, shrinks: bool) {
    e.handle(Event::Daemon(DaemonEvent::DaemonRestarted));
    e.set(&if shrinks {
        resources(4, &[4])
    } else {
        resources(6, &[8, 4])
    });
    let heard = u64::from(heard) % 3;
    for id in running.iter().filter(|id| id.0 % 3 == heard) {
        if e.running.contains_key(id) {
            e.begin(*id);
        }
    }
    e.handle(ActionEvent::ActionsRecovered);
}

fn answers() -> impl Strategy<Value = Answers> {
    prop_oneof![
        Just(Answers::Least),
        Just(Answers::Most),
        Just(Answers::LastOnly),
        Just(Answers::Never),
        any::<u64>().prop_map(Answers::Seeded),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn everything_comes_back_and_every_action_is_answered_once(
        answers in answers(), joint_order in any::<bool>(), script in moves()
    ) {
        let mut e = new(answers, joint_order);
        for one in &script {
            play(&mut e, one);
        }
        e.run_out();
        let submitted = e.core.actions().counters.submitted;
        prop_assert_eq!(e.answered.len() as u64, submitted);
    }

    #[test]
    fn those_that_came_first_start_first(script in moves()) {
        let mut e = new(Answers::Least, false);
        for one in &script {
            play(&mut e, one);
        }
        e.run_out();
    }

    #[test]
    fn a_replay_gives_the_same_bytes(
        answers in answers(), joint_order in any::<bool>(), script in moves()
    ) {
        let mut e = new(answers, joint_order);
        for one in &script {
            play(&mut e, one);
        }
        let bytes = |core: &Core| treadle_core_json::write_state(&core.state()).unwrap();
        let mut replayed = Core::new(e.core.config().clone());
        let half = e.journal.len() / 2;
        for (index, (at, event)) in e.journal.iter().enumerate() {
            if index == half {
                // Continuing from a snapshot must make no difference.
                let state = treadle_core_json::read_state(&bytes(&replayed)).unwrap();
                replayed = Core::with_state(e.core.config().clone(), state);
            }
            let event = treadle_core_json::write_event(event);
            replayed.handle(*at, &treadle_core_json::read_event(&event).unwrap());
        }
        prop_assert_eq!(bytes(&replayed), bytes(&e.core));
    }
}
