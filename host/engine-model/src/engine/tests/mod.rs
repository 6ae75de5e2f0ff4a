//! Property tests of the engine: conservation, completeness, determinism, and the prefix cache
//! against a naive list.

mod found;
mod host;
mod memory;
mod priority;
mod ranks;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const BLOCK: u32 = 4;

fn small_profile(kv_blocks: u32, batched_tokens_max: u32, running_max: u32) -> EngineProfile {
    EngineProfile {
        prefill_tokens_per_s: 1_000,
        decode_base_us: 1_000,
        batched_tokens_max,
        running_max,
        kv_blocks,
        block_tokens: BLOCK,
        ..EngineProfile::qwen3_32b_h100()
    }
}

/// The chain of a sequence that belongs to a family: families share their first `shared` blocks.
fn chain(family: u64, own: u64, shared: u32, tokens: u32) -> Arc<[u64]> {
    let mut hash = 0;
    (0..tokens / BLOCK)
        .map(|block| {
            let content = if block < shared { family } else { 1_000 + own };
            hash = chain_hash(hash, content_hash(&[content, u64::from(block)]));
            hash
        })
        .collect()
}

#[derive(Clone, Debug)]
struct Arrival {
    gap_us: u64,
    family: u64,
    shared: u32,
    prompt_tokens: u32,
    output_tokens: u32,
    priority: i32,
    abort_after_us: Option<u64>,
}

impl Arrival {
    fn spec(&self, id: RequestId) -> RequestSpec {
        RequestSpec {
            id,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            blocks: chain(
                self.family,
                id,
                self.shared,
                self.prompt_tokens + self.output_tokens,
            ),
            priority: self.priority,
        }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let abort = prop_oneof![4 => Just(None), 1 => (0_u64..60_000).prop_map(Some)];
    let each = (
        0_u64..30_000,
        0_u64..3,
        0_u32..6,
        1_u32..40,
        1_u32..17,
        -1_i32..2,
        abort,
    );
    prop::collection::vec(
        each.prop_map(
            |(gap_us, family, shared, prompt_tokens, output_tokens, priority, abort)| {
                let abort_after_us = abort;
                Arrival {
                    gap_us,
                    family,
                    shared,
                    prompt_tokens,
                    output_tokens,
                    priority,
                    abort_after_us,
                }
            },
        ),
        1..24,
    )
}

fn profiles() -> impl Strategy<Value = EngineProfile> {
    // 14 blocks of 4 tokens just hold the longest sequence: 39 + 15 tokens.
    let interval = prop_oneof![
        2 => Just(1_u32),
        1 => 2_u32..5,
        2 => Just(1_000),
        3 => Just(u32::MAX),
    ];
    let speeds = (14_u32..40, 4_u32..64, 1_u32..8);
    let host = prop_oneof![2 => Just(0_u32), 1 => 1_u32..60];
    let all = (speeds, interval, any::<bool>(), host);
    all.prop_map(
        |((blocks, batch, slots), interval, preempt, host_blocks)| EngineProfile {
            stream_interval_tokens: interval,
            preempt_by_priority: preempt,
            pass_us: u64::from(batch) % 3 * 170,
            host_blocks,
            host_tokens_per_s: 2_000,
            ..small_profile(blocks, batch, slots)
        },
    )
}

/// How a test drives the engine between arrivals.
#[derive(Clone, Copy)]
enum Drive {
    /// One iteration at a time, nothing remembered from one to the next, all invariants checked.
    Singly,
    /// One iteration at a time, but it remembers why the first waiting request did not fit.
    Remembering,
    /// From event to event, with nothing to report in between.
    Events,
    /// In steps of this many microseconds, independent of iterations.
    Steps(u64),
    /// In one go.
    Go,
}

impl Drive {
    fn advance(self, engine: &mut Engine, until_us: u64, outputs: &mut Vec<Output>) {
        loop {
            if matches!(self, Self::Singly | Self::Remembering) {
                engine.leap = None;
            }
            if matches!(self, Self::Singly) {
                engine.blocked = None;
            }
            let Some(at_us) = engine.next_event_at().filter(|at_us| *at_us <= until_us) else {
                break;
            };
            match self {
                Self::Go => break,
                Self::Singly | Self::Remembering => engine.advance(at_us, outputs),
                Self::Steps(step_us) => {
                    let at_us = (engine.now_us + step_us).min(until_us);
                    engine.advance(at_us, outputs);
                }
                Self::Events => {
                    let before = outputs.len();
                    if at_us > engine.now_us {
                        engine.advance(at_us - 1, outputs);
                        assert_eq!(outputs.len(), before, "reported before the event");
                        assert_eq!(engine.next_event_at(), Some(at_us));
                    }
                    engine.advance(at_us, outputs);
                }
            }
            engine.audit().expect("invariants hold");
        }
        engine.advance(until_us, outputs);
    }
}

fn run(
    profile: &EngineProfile,
    arrivals: &[Arrival],
    drive: Drive,
) -> (Vec<Output>, Vec<EngineSnapshot>) {
    let mut snapshots = Vec::new();
    let mut engine = Engine::new(profile.clone());
    let mut actions: BTreeMap<(u64, u64, bool), &Arrival> = BTreeMap::new();
    let mut now_us = 0;
    for (id, arrival) in (0..).zip(arrivals) {
        now_us += arrival.gap_us;
        actions.insert((now_us, id, false), arrival);
        if let Some(after_us) = arrival.abort_after_us {
            actions.insert((now_us + after_us, id, true), arrival);
        }
    }
    let mut outputs = Vec::new();
    for ((at_us, id, is_abort), arrival) in actions {
        drive.advance(&mut engine, at_us, &mut outputs);
        snapshots.push(engine.snapshot());
        if is_abort {
            outputs.extend(engine.abort(at_us, id).map(Output::Finished));
        } else {
            engine
                .submit(at_us, arrival.spec(id))
                .expect("all arrivals fit");
        }
        engine.audit().expect("invariants hold");
    }
    drive.advance(&mut engine, u64::MAX / 2, &mut outputs);
    engine.audit().expect("invariants hold");
    snapshots.push(engine.snapshot());
    (outputs, snapshots)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_request_ends_once_with_all_its_tokens(profile in profiles(), arrivals in arrivals()) {
        let (outputs, snapshots) = run(&profile, &arrivals, Drive::Events);
        let end = snapshots[snapshots.len() - 1];
        let mut tokens = vec![0; arrivals.len()];
        let mut ended = vec![false; arrivals.len()];
        for output in &outputs {
            match output {
                Output::FirstToken { id, cached_tokens, .. } => {
                    prop_assert_eq!(tokens[*id as usize], 0);
                    prop_assert!(*cached_tokens < arrivals[*id as usize].prompt_tokens);
                    tokens[*id as usize] += 1;
                }
                Output::Tokens { id, count, .. } => tokens[*id as usize] += count,
                Output::Preempted { .. } => {}
                Output::Finished(finished) => {
                    let id = finished.id as usize;
                    prop_assert!(!std::mem::replace(&mut ended[id], true), "{} ended twice", id);
                    if profile.stream_interval_tokens < u32::MAX {
                        // An aborted one keeps what was not yet due to itself.
                        let told = tokens[id]..tokens[id] + profile.stream_interval_tokens;
                        prop_assert!(told.contains(&finished.output_tokens));
                    } else {
                        prop_assert!(tokens[id] <= 1);
                        tokens[id] = finished.output_tokens;
                    }
                    if finished.reason == FinishReason::Generated {
                        prop_assert_eq!(tokens[id], arrivals[id].output_tokens);
                    }
                }
            }
        }
        prop_assert!(ended.iter().all(|each| *each));
        prop_assert_eq!((end.running, end.waiting, end.used_blocks), (0, 0, 0));
        let requests = end.counters.finished_requests + end.counters.aborted_requests;
        prop_assert_eq!(requests as usize, arrivals.len());
    }

    #[test]
    fn the_way_of_driving_changes_nothing(
        profile in profiles(),
        arrivals in arrivals(),
        step_us in 200_u64..9_000,
    ) {
        let singly = run(&profile, &arrivals, Drive::Singly);
        for drive in [Drive::Remembering, Drive::Events, Drive::Steps(step_us), Drive::Go] {
            prop_assert_eq!(&singly, &run(&profile, &arrivals, drive));
        }
    }

    #[test]
    fn hits_equal_those_of_a_naive_list(
        blocks in 14_usize..30,
        arrivals in prop::collection::vec((0_u64..3, 0_u32..8, 1_u32..40, 1_u32..16), 1..30),
    ) {
        let mut engine = Engine::new(small_profile(blocks as u32, 64, 4));
        // Front first to go. One request at a time, so all blocks are free in between.
        let mut list: Vec<Option<u64>> = vec![None; blocks];
        for (id, (family, shared, prompt_tokens, output_tokens)) in (0..).zip(arrivals) {
            let hashes = chain(family, id % 4, shared, prompt_tokens + output_tokens);
            let cacheable = ((prompt_tokens - 1) / BLOCK) as usize;
            let hit = hashes.iter().take(cacheable).take_while(|hash| list.contains(&Some(**hash))).count();
            let computed = prompt_tokens + output_tokens - 1;
            let mut held: Vec<Option<u64>> = hashes[..hit].iter().copied().map(Some).collect();
            list.retain(|each| !held.contains(each));
            // The prompt takes its blocks at once, each decoded block takes its own when it comes.
            let prompt_blocks = prompt_tokens.div_ceil(BLOCK) as usize;
            list.drain(..prompt_blocks - hit);
            for block in hit..computed.div_ceil(BLOCK) as usize {
                if block >= prompt_blocks {
                    list.remove(0);
                }
                let full = (block as u32 + 1) * BLOCK <= computed;
                let findable = |hash: &u64| full && !list.contains(&Some(*hash));
                held.push(hashes.get(block).copied().filter(findable));
            }
            for each in held.into_iter().rev() {
                let place = if each.is_some() { list.len() } else { 0 };
                list.insert(place, each);
            }

            let spec = RequestSpec { id, prompt_tokens, output_tokens, blocks: hashes, priority: 0 };
            prop_assert_eq!(finish(&mut engine, spec).cached_tokens, hit as u32 * BLOCK);
        }
    }
}

/// Runs until the engine is idle.
fn drain(engine: &mut Engine) -> Vec<Output> {
    let mut outputs = Vec::new();
    while let Some(at_us) = engine.next_event_at() {
        engine.advance(at_us, &mut outputs);
    }
    outputs
}

fn finish(engine: &mut Engine, spec: RequestSpec) -> Finished {
    engine.submit(0, spec).expect("fits");
    match drain(engine).pop() {
        Some(Output::Finished(finished)) => finished,
        other => panic!("expected the end, got {other:?}"),
    }
}

#[test]
fn the_next_step_finds_the_whole_context_but_its_last_token() {
    let mut engine = Engine::new(small_profile(64, 64, 4));
    let context = chain(0, 1, 0, 40);
    let first = RequestSpec {
        id: 1,
        prompt_tokens: 20,
        output_tokens: 9,
        blocks: context[..7].into(),
        priority: 0,
    };
    assert_eq!(finish(&mut engine, first).cached_tokens, 0);
    let second = RequestSpec {
        id: 2,
        prompt_tokens: 40,
        output_tokens: 1,
        blocks: context,
        priority: 0,
    };
    assert_eq!(finish(&mut engine, second).cached_tokens, 28);
    let counters = engine.snapshot().counters;
    assert_eq!(
        (counters.prefix_queries_tokens, counters.prefix_hits_tokens),
        (60, 28)
    );
}

#[test]
fn the_last_to_arrive_is_preempted_and_computed_again() {
    // Ten blocks; two sequences that need seven each at their ends.
    let mut engine = Engine::new(small_profile(10, 64, 4));
    for id in 0..2 {
        let spec = RequestSpec {
            id,
            prompt_tokens: 16,
            output_tokens: 12,
            blocks: chain(id, id, 0, 28),
            priority: 0,
        };
        engine.submit(0, spec).expect("fits");
    }
    let outputs = drain(&mut engine);
    let ends: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Finished(end) => Some((end.id, end.output_tokens, end.preemptions)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(0, 12, 0), (1, 12, 1)]);
    assert!(engine.snapshot().counters.recomputed_tokens > 0);
}

#[test]
fn priority_orders_the_queue_and_ties_go_by_arrival() {
    let mut engine = Engine::new(small_profile(64, 64, 1));
    for (id, priority) in [(1, 5), (2, 0), (3, 5), (4, -1)] {
        let spec = RequestSpec {
            id,
            prompt_tokens: 4,
            output_tokens: 2,
            blocks: [].into(),
            priority,
        };
        engine.submit(0, spec).expect("fits");
    }
    let outputs = drain(&mut engine);
    let order: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Finished(end) => Some(end.id),
            _ => None,
        })
        .collect();
    assert_eq!(order, [4, 2, 1, 3]);
}

#[test]
fn tokens_are_reported_in_intervals_and_the_rest_at_the_end() {
    let mut engine = Engine::new(EngineProfile {
        stream_interval_tokens: 4,
        ..small_profile(64, 64, 1)
    });
    let spec = RequestSpec {
        id: 1,
        prompt_tokens: 4,
        output_tokens: 8,
        blocks: [].into(),
        priority: 0,
    };
    engine.submit(0, spec).expect("fits");
    let outputs = drain(&mut engine);
    let counts: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Tokens { count, .. } => Some(*count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [4, 3]);
}

#[test]
fn what_could_never_run_is_refused() {
    let mut engine = Engine::new(small_profile(10, 64, 1));
    let spec = |id, prompt_tokens, output_tokens| RequestSpec {
        id,
        prompt_tokens,
        output_tokens,
        blocks: [].into(),
        priority: 0,
    };
    assert_eq!(engine.submit(0, spec(1, 0, 1)), Err(SubmitError::Empty));
    assert_eq!(engine.submit(0, spec(1, 1, 0)), Err(SubmitError::Empty));
    let too_long = SubmitError::TooLong {
        wanted_tokens: 41,
        limit_tokens: 40,
    };
    assert_eq!(engine.submit(0, spec(1, 40, 1)), Err(too_long));
    assert_eq!(engine.submit(0, spec(1, 39, 1)), Ok(()));
    assert_eq!(
        engine.submit(0, spec(1, 1, 1)),
        Err(SubmitError::DuplicateId(1))
    );
}

#[test]
fn an_aborted_request_frees_its_blocks_in_the_middle_of_an_iteration() {
    let mut engine = Engine::new(small_profile(64, 64, 2));
    let spec = RequestSpec {
        id: 1,
        prompt_tokens: 40,
        output_tokens: 2,
        blocks: [].into(),
        priority: 0,
    };
    engine.submit(0, spec).expect("fits");
    engine.advance(0, &mut Vec::new());
    assert_eq!(engine.snapshot().used_blocks, 10);
    let end = engine.abort(5, 1).expect("it runs");
    assert_eq!(
        (end.reason, end.output_tokens, end.at_us),
        (FinishReason::Aborted, 0, 5)
    );
    assert_eq!(engine.snapshot().used_blocks, 0);
    assert_eq!(engine.abort(6, 1), None);
    let outputs = drain(&mut engine);
    assert_eq!((outputs.len(), engine.next_event_at()), (0, None));
}
