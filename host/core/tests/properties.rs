//! Random stories: whatever happens, in whatever order, the invariants hold,
//! every step ends once, a replay gives the same bytes, and when the faults
//! end everything finishes.

mod story;

use proptest::prelude::*;
use std::collections::BTreeMap;
use story::Story;
use treadle_core::offload::Direction;
use treadle_core::{Capacity, Command, Core, Event, KvConfig, Mode, RolloutConfig};
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

/// Steps at engines, as the surroundings know them from commands alone.
fn running(story: &Story) -> Vec<u64> {
    story
        .core
        .state()
        .steps
        .iter()
        .filter_map(|(id, s)| {
            matches!(s.state, treadle_core::step::StepState::Running { .. }).then_some(id.0)
        })
        .collect()
}

fn play(story: &mut Story, next_step: &mut u64, one: &Move) {
    let at_engines = running(story);
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
                story.arrive_sharing(&key, *next_step, u64::from(tokens), 7, 100);
            } else {
                story.arrive(&key, *next_step, u64::from(tokens));
            }
        }
        Move::Finish { pick: p, output } => {
            if let Some(step) = pick(p) {
                let prompt = story.core.state().steps[&treadle_model::StepId(step)].prompt_tokens;
                story.finish(step, prompt, u64::from(output));
            }
        }
        Move::Progress { pick: p, output } => {
            if let Some(step) = pick(p) {
                story.progress(step, u64::from(output));
            }
        }
        Move::Fail { pick: p, retryable } => {
            if let Some(step) = pick(p) {
                story.fail(step, retryable);
            }
        }
        Move::Cancel { pick: p } => {
            let steps: Vec<_> = story.core.state().steps.keys().copied().collect();
            if let Some(step) = steps.get(usize::from(p) % steps.len().max(1)) {
                story.handle(Event::StepCancelled { step: *step });
            }
        }
        _ => disturb(story, one),
    }
}

/// The moves of clients' farewells, engines, operators and time.
fn disturb(story: &mut Story, one: &Move) {
    match *one {
        Move::Release { program } => {
            story.release(&format!("program-{program}"));
        }
        Move::Lose { worker } => {
            story.lose(u32::from(worker));
        }
        Move::Remove { worker } => {
            let worker = WorkerId(u32::from(worker));
            story.handle(Event::WorkerRemoved { worker });
        }
        Move::Recover { worker } => {
            story.add_worker(u32::from(worker), tokens_of(1_500));
            story.handle(Event::WorkerRecovered {
                worker: WorkerId(u32::from(worker)),
            });
        }
        Move::Resize { worker, tokens } => {
            let capacity = Capacity {
                tokens: Some(u64::from(tokens)),
                ..Capacity::default()
            };
            let (worker, engine) = (WorkerId(u32::from(worker)), EngineKind::Vllm);
            story.handle(Event::WorkerCapacityRead {
                worker,
                engine,
                capacity,
            });
        }
        Move::Wait { seconds } => {
            story.wait_s(u64::from(seconds));
        }
        Move::Restart => {
            story.restart();
        }
        Move::Migrated { arrives } => end_move(story, arrives),
        Move::Transferred { pick, arrives } => end_transfer(story, pick, arrives),
        Move::CopyLost { pick } => lose_copy(story, pick),
        Move::Arrive { .. }
        | Move::Finish { .. }
        | Move::Progress { .. }
        | Move::Fail { .. }
        | Move::Cancel { .. } => unreachable!("played above"),
    }
}

/// The first move under way ends.
fn end_move(story: &mut Story, arrives: bool) {
    let moving = &story.core.state().migrations.moving;
    let Some((program, to)) = moving.iter().next().map(|(p, m)| (*p, m.to)) else {
        return;
    };
    story.handle(if arrives {
        Event::ProgramMigrated { program, to }
    } else {
        let cause = "link down".into();
        Event::MigrationFailed { program, cause }
    });
}

/// A cache arrives in host memory or back at an engine, or does not.
fn end_transfer(story: &mut Story, pick: u8, arrives: bool) {
    let moving = &story.core.state().offloads.moving;
    let which = usize::from(pick) % moving.len().max(1);
    let Some((program, transfer)) = moving.iter().nth(which).map(|(p, t)| (*p, *t)) else {
        return;
    };
    let cause = "link down".into();
    let event = match (transfer.direction, arrives) {
        (Direction::Out, true) => Event::ProgramOffloaded {
            program,
            copy: format!("copy of {program}").into(),
            tokens: transfer.tokens,
            bytes: transfer.tokens * 10,
        },
        (Direction::Out, false) => Event::OffloadFailed { program, cause },
        (Direction::Back, true) => {
            let to = transfer.worker;
            Event::ProgramLoaded { program, to }
        }
        (Direction::Back, false) => Event::LoadFailed { program, cause },
    };
    story.handle(event);
}

fn lose_copy(story: &mut Story, pick: u8) {
    let held = &story.core.state().offloads.held;
    let which = usize::from(pick) % held.len().max(1);
    let lost = held.iter().nth(which);
    if let Some((program, copy)) = lost.map(|(p, held)| (*p, held.copy.clone())) {
        story.handle(Event::CopyLost { program, copy });
    }
}

/// Program-aware, with and without caches that may go elsewhere, rollouts whose engines order their steps, and rollouts with
/// lines before the engines.
fn scenes() -> impl Strategy<Value = (Mode, u32, u32)> {
    prop_oneof![
        Just((Mode::ProgramAware, 0, 0)),
        Just((Mode::ProgramAware, 0, 1)),
        Just((Mode::ProgramAware, 0, 2)),
        Just((Mode::Rollout, 0, 0)),
        Just((Mode::Rollout, 2, 0)),
        Just((Mode::Rollout, 0, 900_000)),
        Just((Mode::Rollout, 2, 500_000)),
    ]
}

fn set_scene((mode, engine_steps_max, memory_ppm): (Mode, u32, u32)) -> Story {
    let mut story = Story::with_mode(mode, &[2_000, 1_200]);
    story.reconfigure(|config| {
        config.rollout = RolloutConfig {
            migration_interval: Span::from_secs(7),
            migration_tokens_per_s: 50,
            prefill_tokens_per_s: 40,
            engine_steps_max,
            memory_ppm,
            ..RolloutConfig::default()
        };
        if mode == Mode::ProgramAware && memory_ppm > 0 {
            config.kv = KvConfig {
                retention: memory_ppm == 1,
                host_tokens_max: 2_500,
                host_tokens_per_s: 300,
                migration_tokens_per_s: 200,
                prefill_tokens_per_s: 100,
                transfer_max: Span::from_secs(20),
                ..KvConfig::default()
            };
        }
    });
    story
}

/// After the faults end: workers are back, and each running step finishes.
fn let_it_end(story: &mut Story) {
    for worker in 0..2 {
        story.add_worker(worker, tokens_of(4_000));
        story.handle(Event::WorkerRecovered {
            worker: WorkerId(worker),
        });
        let capacity = tokens_of(4_000);
        let (worker, engine) = (WorkerId(worker), EngineKind::Vllm);
        story.handle(Event::WorkerCapacityRead {
            worker,
            engine,
            capacity,
        });
    }
    for _ in 0..2_000 {
        if story.core.state().steps.is_empty() {
            return;
        }
        for step in running(story) {
            story.finish(step, 10, 1);
        }
        end_move(story, true);
        end_transfer(story, 0, true);
        story.wait_s(1);
    }
    panic!("{} steps never ended", story.core.state().steps.len());
}

/// What each worker was used for, by brute force: tokens in use or, if that is
/// more, capacity, times the time; the tokens of its programs times the time; and
/// what was beyond capacity.
fn integrate(
    core: &Core,
    until: Timestamp,
    sums: &mut BTreeMap<WorkerId, [u64; 2]>,
    job: &mut u64,
) {
    let state = core.state();
    let ms = until.0 / 1_000 - state.now.0 / 1_000;
    sums.retain(|worker, _| state.workers.contains_key(worker));
    for (id, w) in &state.workers {
        let used = w.used_tokens();
        let capacity = w.capacity.tokens.filter(|_| w.is_healthy()).unwrap_or(used);
        let sum = sums.entry(*id).or_default();
        sum[0] += used.max(capacity) * ms;
        sum[1] += used.saturating_sub(capacity) * ms;
        *job += (used - w.shared_tokens) * ms;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_story_keeps_the_invariants_and_ends(scene in scenes(), script in moves()) {
        let mut story = set_scene(scene);
        let mut next_step = 0;
        for one in &script {
            play(&mut story, &mut next_step, one);
        }
        let_it_end(&mut story);
        let mut refused = BTreeMap::new();
        for command in &story.log {
            if let Command::RefuseStep { step, .. } = command {
                *refused.entry(*step).or_insert(0) += 1;
            }
        }
        prop_assert!(refused.values().all(|times| *times == 1), "a step is refused once");
        let c = story.core.state().counters;
        let ended = c.steps_finished + c.steps_refused + c.steps_cancelled + c.steps_failed;
        let failed_and_refused = story.refusals().iter()
            .filter(|(_, r)| matches!(r, treadle_core::Refusal::EngineFailed { .. })).count() as u64;
        prop_assert_eq!(ended - failed_and_refused, c.steps_arrived, "every step ends once");
    }

    #[test]
    fn a_replay_gives_the_same_bytes(scene in scenes(), script in moves()) {
        let mut story = set_scene(scene);
        let mut next_step = 0;
        for one in &script {
            play(&mut story, &mut next_step, one);
        }
        let bytes = |core: &Core| serde_json::to_string(core.state()).unwrap();
        let mut replayed = Core::new(story.core.config().clone());
        let half = story.journal.len() / 2;
        for (index, (at, event)) in story.journal.iter().enumerate() {
            if index == half {
                // Going on from a snapshot must make no difference.
                let state = serde_json::from_str(&bytes(&replayed)).unwrap();
                replayed = Core::with_state(story.core.config().clone(), state);
            }
            replayed.handle(*at, event);
        }
        prop_assert_eq!(bytes(&replayed), bytes(&story.core));
    }
    #[test]
    fn uses_add_up_to_capacity_times_the_time(scene in scenes(), script in moves()) {
        let mut story = set_scene(scene);
        let mut next_step = 0;
        for one in &script {
            play(&mut story, &mut next_step, one);
        }
        let mut core = Core::new(story.core.config().clone());
        let (mut sums, mut job) = (BTreeMap::new(), 0);
        for (at, event) in &story.journal {
            integrate(&core, *at, &mut sums, &mut job);
            core.handle(*at, event);
        }
        let state = core.state();
        for (id, w) in &state.workers {
            let [total, over] = sums.get(id).copied().unwrap_or_default();
            let told = w.account.at(state.now);
            prop_assert_eq!((told.total(), told.over), (total, over), "{}", id);
        }
        let of_job = state.job_accounts.get("story").map(|account| account.at(state.now));
        prop_assert_eq!(of_job.unwrap_or_default().total(), job);
    }
}
