//! Random scenarios: whatever happens, in whatever order, the invariants hold, every step ends
//! once, a replay gives the same bytes, and when the faults end everything finishes.

use crate::scenario::Scenario;
use proptest::prelude::*;
use std::collections::BTreeMap;
use treadle_core::memory::Capacity;
use treadle_core::memory::Direction;
use treadle_core::programs::WorkerState;
use treadle_core::programs::{ProgramCommand, ProgramEvent};
use treadle_core::{Command, Core, Event, KvConfig, RolloutConfig};
use treadle_model::{EngineKind, Span, Timestamp, WorkerId};

#[derive(Clone, Debug)]
enum Move {
    Arrive {
        program: u8,
        tokens: u16,
        shared: bool,
    },
    Finish {
        pick: u8,
        output: u8,
    },
    Progress {
        pick: u8,
        output: u16,
    },
    Fail {
        pick: u8,
        retryable: bool,
    },
    Cancel {
        pick: u8,
    },
    Release {
        program: u8,
    },
    Lose {
        worker: u8,
    },
    Remove {
        worker: u8,
    },
    Recover {
        worker: u8,
    },
    SetState {
        worker: u8,
        state: WorkerState,
    },
    Resize {
        worker: u8,
        tokens: u16,
    },
    Wait {
        seconds: u8,
    },
    Restart,
    Migrated {
        arrives: bool,
    },
    Transferred {
        pick: u8,
        arrives: bool,
    },
    CopyLost {
        pick: u8,
    },
}

fn states() -> impl Strategy<Value = WorkerState> {
    prop_oneof![
        Just(WorkerState::Active),
        Just(WorkerState::Cordoned),
        Just(WorkerState::Draining),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        8 => (0..12u8, 1..1_500u16, any::<bool>())
            .prop_map(|(program, tokens, shared)| Move::Arrive { program, tokens, shared }),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(pick, output)| Move::Finish { pick, output }),
        2 => (any::<u8>(), 0..900u16).prop_map(|(pick, output)| Move::Progress { pick, output }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(pick, retryable)| Move::Fail { pick, retryable }),
        1 => any::<u8>().prop_map(|pick| Move::Cancel { pick }),
        1 => (0..12u8).prop_map(|program| Move::Release { program }),
        1 => (0..2u8).prop_map(|worker| Move::Lose { worker }),
        1 => (0..2u8).prop_map(|worker| Move::Remove { worker }),
        2 => (0..2u8).prop_map(|worker| Move::Recover { worker }),
        1 => (0..2u8, states()).prop_map(|(worker, state)| Move::SetState { worker, state }),
        1 => (0..2u8, 500..3_000u16).prop_map(|(worker, tokens)| Move::Resize { worker, tokens }),
        3 => (0..90u8).prop_map(|seconds| Move::Wait { seconds }),
        1 => Just(Move::Restart),
        3 => any::<bool>().prop_map(|arrives| Move::Migrated { arrives }),
        4 => (any::<u8>(), any::<bool>())
            .prop_map(|(pick, arrives)| Move::Transferred { pick, arrives }),
        1 => any::<u8>().prop_map(|pick| Move::CopyLost { pick }),
    ];
    proptest::collection::vec(one, 1..120)
}

fn tokens_of(tokens: u64) -> Capacity {
    Capacity {
        tokens: Some(tokens),
        ..Capacity::default()
    }
}

/// Steps at engines, as derived only from commands.
fn running(scenario: &Scenario) -> Vec<u64> {
    scenario
        .core
        .programs()
        .steps
        .iter()
        .filter_map(|(id, s)| {
            matches!(s.state, treadle_core::programs::StepState::Running { .. }).then_some(id.0)
        })
        .collect()
}

fn play(scenario: &mut Scenario, next_step: &mut u64, one: &Move) {
    let at_engines = running(scenario);
    let pick = |p: u8| {
        at_engines
            .get(usize::from(p) % at_engines.len().max(1))
            .copied()
    };
    match *one {
        Move::Arrive {
            program,
            tokens,
            shared,
        } => {
            *next_step += 1;
            let key = format!("program-{program}");
            if shared {
                scenario.arrive_sharing(&key, *next_step, u64::from(tokens), 7, 100);
            } else {
                scenario.arrive(&key, *next_step, u64::from(tokens));
            }
        }
        Move::Finish { pick: p, output } => {
            if let Some(step) = pick(p) {
                let prompt =
                    scenario.core.programs().steps[&treadle_model::StepId(step)].prompt_tokens;
                scenario.finish(step, prompt, u64::from(output));
            }
        }
        Move::Progress { pick: p, output } => {
            if let Some(step) = pick(p) {
                scenario.progress(step, u64::from(output));
            }
        }
        Move::Fail { pick: p, retryable } => {
            if let Some(step) = pick(p) {
                scenario.fail(step, retryable);
            }
        }
        Move::Cancel { pick: p } => {
            let steps: Vec<_> = scenario.core.programs().steps.keys().copied().collect();
            if let Some(step) = steps.get(usize::from(p) % steps.len().max(1)) {
                scenario.handle(Event::Program(ProgramEvent::StepCancelled { step: *step }));
            }
        }
        _ => disturb(scenario, one),
    }
}

/// Applies moves of clients, engines, operators and time.
fn disturb(scenario: &mut Scenario, one: &Move) {
    match *one {
        Move::Release { program } => {
            scenario.release(&format!("program-{program}"));
        }
        Move::Lose { worker } => {
            scenario.lose(u32::from(worker));
        }
        Move::Remove { worker } => {
            let worker = WorkerId(u32::from(worker));
            scenario.handle(Event::Program(ProgramEvent::WorkerRemoved { worker }));
        }
        Move::Recover { worker } => {
            scenario.add_worker(u32::from(worker), tokens_of(1_500));
            scenario.handle(Event::Program(ProgramEvent::WorkerRecovered {
                worker: WorkerId(u32::from(worker)),
            }));
        }
        Move::SetState { worker, state } => {
            scenario.set_state(u32::from(worker), state);
        }
        Move::Resize { worker, tokens } => {
            let capacity = Capacity {
                tokens: Some(u64::from(tokens)),
                ..Capacity::default()
            };
            let (worker, engine) = (WorkerId(u32::from(worker)), EngineKind::Vllm);
            scenario.handle(Event::Program(ProgramEvent::WorkerCapacityRead {
                worker,
                engine,
                capacity,
            }));
        }
        Move::Wait { seconds } => {
            scenario.wait_s(u64::from(seconds));
        }
        Move::Restart => {
            scenario.restart();
        }
        Move::Migrated { arrives } => end_move(scenario, arrives),
        Move::Transferred { pick, arrives } => end_transfer(scenario, pick, arrives),
        Move::CopyLost { pick } => lose_copy(scenario, pick),
        Move::Arrive { .. }
        | Move::Finish { .. }
        | Move::Progress { .. }
        | Move::Fail { .. }
        | Move::Cancel { .. } => unreachable!("played above"),
    }
}

/// Ends the first running migration.
fn end_move(scenario: &mut Scenario, arrives: bool) {
    let moving = scenario.core.programs().memory.migrations().moving();
    let Some((program, to)) = moving.iter().next().map(|(p, m)| (*p, m.to)) else {
        return;
    };
    scenario.handle(if arrives {
        Event::Program(ProgramEvent::ProgramMigrated { program, to })
    } else {
        let cause = "link down".into();
        Event::Program(ProgramEvent::MigrationFailed { program, cause })
    });
}

/// Ends a transfer to host memory or to an engine, successfully or not.
fn end_transfer(scenario: &mut Scenario, pick: u8, arrives: bool) {
    let moving = scenario.core.programs().memory.offloads().moving();
    let which = usize::from(pick) % moving.len().max(1);
    let Some((program, transfer)) = moving.iter().nth(which).map(|(p, t)| (*p, *t)) else {
        return;
    };
    let cause = "link down".into();
    let event = match (transfer.direction, arrives) {
        (Direction::Out, true) => Event::Program(ProgramEvent::ProgramOffloaded {
            program,
            copy: format!("copy of {program}").into(),
            tokens: transfer.tokens,
            bytes: transfer.tokens * 10,
        }),
        (Direction::Out, false) => Event::Program(ProgramEvent::OffloadFailed { program, cause }),
        (Direction::Back, true) => {
            let to = transfer.worker;
            Event::Program(ProgramEvent::ProgramLoaded { program, to })
        }
        (Direction::Back, false) => Event::Program(ProgramEvent::LoadFailed { program, cause }),
    };
    scenario.handle(event);
}

fn lose_copy(scenario: &mut Scenario, pick: u8) {
    let held = scenario.core.programs().memory.offloads().held();
    let which = usize::from(pick) % held.len().max(1);
    let lost = held.iter().nth(which);
    if let Some((program, copy)) = lost.map(|(p, held)| (*p, held.copy.clone())) {
        scenario.handle(Event::Program(ProgramEvent::CopyLost { program, copy }));
    }
}

/// With and without a policy that ranks steps, run queues before the engines, and caches that may
/// leave, by a policy or under pressure.
fn scenarios() -> impl Strategy<Value = (bool, u32, Option<bool>)> {
    let caches = prop_oneof![Just(None), Just(Some(false)), Just(Some(true))];
    (any::<bool>(), prop_oneof![Just(0), Just(2)], caches)
}

fn set_scenario((ranked, engine_steps_max, retention): (bool, u32, Option<bool>)) -> Scenario {
    let mut scenario = if ranked {
        Scenario::ranked(&[2_000, 1_200])
    } else {
        Scenario::with_workers(&[2_000, 1_200])
    };
    scenario.reconfigure(|config| {
        config.rollout = RolloutConfig {
            migration_interval: Span::from_secs(7),
            engine_steps_max,
            ..RolloutConfig::default()
        };
        if let Some(retention) = retention {
            config.kv = KvConfig {
                retention,
                host_tokens_max: 2_500,
                host_tokens_per_s: 300,
                migration_tokens_per_s: 200,
                prefill_tokens_per_s: 100,
                transfer_max: Span::from_secs(20),
                ..KvConfig::default()
            };
        }
    });
    scenario
}

/// After the faults end: workers are back, and each running step finishes.
fn let_it_end(scenario: &mut Scenario) {
    for worker in 0..2 {
        scenario.add_worker(worker, tokens_of(4_000));
        scenario.handle(Event::Program(ProgramEvent::WorkerRecovered {
            worker: WorkerId(worker),
        }));
        scenario.set_state(worker, WorkerState::Active);
        let capacity = tokens_of(4_000);
        let (worker, engine) = (WorkerId(worker), EngineKind::Vllm);
        scenario.handle(Event::Program(ProgramEvent::WorkerCapacityRead {
            worker,
            engine,
            capacity,
        }));
    }
    for _ in 0..2_000 {
        if scenario.core.programs().steps.is_empty() {
            return;
        }
        for step in running(scenario) {
            scenario.finish(step, 10, 1);
        }
        end_move(scenario, true);
        end_transfer(scenario, 0, true);
        scenario.wait_s(1);
    }
    panic!("{} steps never ended", scenario.core.programs().steps.len());
}

/// The use of each worker, by brute force: tokens in use or, if larger, capacity, times the time;
/// the tokens of its programs times the time; and the excess over capacity times the time.
fn integrate(
    core: &Core,
    until: Timestamp,
    sums: &mut BTreeMap<WorkerId, [u64; 2]>,
    job: &mut u64,
) {
    let state = core.programs();
    let ms = until.0 / 1_000 - state.now.0 / 1_000;
    sums.retain(|worker, _| state.workers.contains_key(worker));
    for (id, w) in &state.workers {
        let used = w.used_tokens();
        let capacity = w.capacity.tokens.filter(|_| w.is_healthy()).unwrap_or(used);
        let sum = sums.entry(*id).or_default();
        sum[0] += used.max(capacity) * ms;
        sum[1] += used.saturating_sub(capacity) * ms;
        *job += (used - w.ledger.shared_tokens()) * ms;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_scenario_keeps_the_invariants_and_ends(setup in scenarios(), script in moves()) {
        let mut scenario = set_scenario(setup);
        let mut next_step = 0;
        for one in &script {
            play(&mut scenario, &mut next_step, one);
        }
        let_it_end(&mut scenario);
        let mut refused = BTreeMap::new();
        for command in &scenario.log {
            if let Command::Program(ProgramCommand::RefuseStep { step, .. }) = command {
                *refused.entry(*step).or_insert(0) += 1;
            }
        }
        prop_assert!(refused.values().all(|times| *times == 1), "a step is refused once");
        let c = scenario.core.programs().counters;
        let ended = c.steps_finished + c.steps_refused + c.steps_cancelled + c.steps_failed
            + c.steps_rejected;
        let failed_and_refused = scenario.refusals().iter()
            .filter(|(_, r)| matches!(r, treadle_core::programs::Refusal::EngineFailed { .. })).count() as u64;
        prop_assert_eq!(ended - failed_and_refused, c.steps_arrived, "every step ends once");
    }

    #[test]
    fn a_replay_gives_the_same_bytes(setup in scenarios(), script in moves()) {
        let mut scenario = set_scenario(setup);
        let mut next_step = 0;
        for one in &script {
            play(&mut scenario, &mut next_step, one);
        }
        let bytes = |core: &Core| treadle_core_json::write_state(&core.state()).unwrap();
        let mut replayed = Core::new(scenario.core.config().clone());
        let half = scenario.journal.len() / 2;
        for (index, (at, event)) in scenario.journal.iter().enumerate() {
            if index == half {
                // Continuing from a snapshot must make no difference.
                let state = treadle_core_json::read_state(&bytes(&replayed)).unwrap();
                replayed = Core::with_state(scenario.core.config().clone(), state);
            }
            replayed.handle(*at, event);
        }
        prop_assert_eq!(bytes(&replayed), bytes(&scenario.core));
    }
    #[test]
    fn uses_add_up_to_capacity_times_the_time(setup in scenarios(), script in moves()) {
        let mut scenario = set_scenario(setup);
        let mut next_step = 0;
        for one in &script {
            play(&mut scenario, &mut next_step, one);
        }
        let mut core = Core::new(scenario.core.config().clone());
        let (mut sums, mut job) = (BTreeMap::new(), 0);
        for (at, event) in &scenario.journal {
            integrate(&core, *at, &mut sums, &mut job);
            core.handle(*at, event);
        }
        let state = core.programs();
        for (id, w) in &state.workers {
            let [total, over] = sums.get(id).copied().unwrap_or_default();
            let told = w.ledger.account().at(state.now);
            prop_assert_eq!((told.total(), told.over), (total, over), "{}", id);
        }
        let of_job = state.memory.accounts().get("story").map(|account| account.at(state.now));
        prop_assert_eq!(of_job.unwrap_or_default().total(), job);
    }
}
