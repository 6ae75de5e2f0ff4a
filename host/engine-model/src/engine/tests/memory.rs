//! Blocks that come from elsewhere, and memory that is lost.

use super::*;

fn request(id: RequestId, blocks: &Arc<[u64]>, prompt_tokens: u32) -> RequestSpec {
    RequestSpec {
        id,
        prompt_tokens,
        output_tokens: 4,
        blocks: Arc::clone(blocks),
        priority: 0,
    }
}

#[test]
fn an_imported_context_is_found_as_if_it_had_been_computed_here() {
    let context = chain(1, 1, 0, 60);
    let mut engine = Engine::new(small_profile(64, 64, 4));
    assert_eq!(engine.import(5, &context[..9]), 9);
    engine.audit().expect("invariants hold");
    assert_eq!(engine.cached_prefix_tokens(&context), 36);
    assert_eq!(
        finish(&mut engine, request(1, &context, 50)).cached_tokens,
        36
    );
    assert_eq!(engine.snapshot().counters.imported_blocks, 9);
    // What is there already is not brought twice.
    assert_eq!(engine.import(9, &context[..9]), 9);
    assert_eq!(engine.snapshot().counters.imported_blocks, 9);
}

#[test]
fn an_import_takes_the_least_recent_blocks_and_never_referenced_ones() {
    let (old, new) = (chain(1, 1, 0, 40), chain(2, 2, 0, 80));
    let mut engine = Engine::new(small_profile(14, 64, 4));
    assert_eq!(engine.import(0, &old), 10);
    assert_eq!(engine.import(0, &new[..8]), 8);
    assert_eq!(
        engine.cached_prefix_tokens(&old),
        24,
        "evicted from its tail"
    );
    engine
        .submit(0, request(1, &chain(3, 3, 0, 24), 20))
        .expect("fits");
    engine.advance(0, &mut Vec::new());
    assert_eq!(engine.snapshot().used_blocks, 5);
    assert_eq!(engine.import(0, &new), 9, "five are held");
    engine.audit().expect("invariants hold");
    assert_eq!(engine.cached_prefix_tokens(&new), 36);
}

#[test]
fn a_failure_ends_everything_and_the_engine_comes_back_empty() {
    let context = chain(1, 1, 0, 60);
    let mut engine = Engine::new(small_profile(64, 64, 2));
    for id in 0..3 {
        engine.submit(0, request(id, &context, 40)).expect("fits");
    }
    engine.advance(10_000, &mut Vec::new());
    let ends = engine.fail(10_000);
    let ids: Vec<_> = ends.iter().map(|end| (end.id, end.reason)).collect();
    assert_eq!(ids, [0, 1, 2].map(|id| (id, FinishReason::Aborted)));
    engine.audit().expect("invariants hold");
    let after = engine.snapshot();
    assert_eq!((after.running, after.waiting, after.used_blocks), (0, 0, 0));
    assert_eq!(
        (after.counters.aborted_requests, after.counters.busy_us),
        (3, 10_000)
    );
    assert_eq!(
        (
            engine.next_event_at(),
            engine.cached_prefix_tokens(&context)
        ),
        (None, 0)
    );
    engine
        .submit(20_000, request(0, &context, 40))
        .expect("fits");
    assert_eq!(engine.next_event_at(), Some(20_000));
    assert!(
        matches!(drain(&mut engine).pop(), Some(Output::Finished(end)) if end.cached_tokens == 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Imports and failures at any time leave a sound engine that still finishes all it is given.
    #[test]
    fn imports_and_failures_at_any_time_break_nothing(
        profile in profiles(),
        arrivals in arrivals(),
        events in prop::collection::vec((0_u64..300_000, 0_u64..3, 0_usize..14, prop::bool::weighted(0.1)), 0..12),
        step_us in 500_u64..20_000,
    ) {
        let run = |drive: Drive| {
            let mut engine = Engine::new(profile.clone());
            let mut outputs = Vec::new();
            let mut events = events.clone();
            events.sort_unstable();
            for (id, arrival) in (0..).zip(&arrivals) {
                engine.submit(0, arrival.spec(id)).expect("fits");
            }
            for (at_us, family, blocks, fails) in events {
                drive.advance(&mut engine, at_us, &mut outputs);
                if fails {
                    outputs.extend(engine.fail(at_us).into_iter().map(Output::Finished));
                } else {
                    let context = chain(family, 77, 6, 60);
                    let count = engine.import(at_us, &context[..blocks]);
                    assert!(count as usize <= blocks);
                    assert!(engine.cached_prefix_tokens(&context) >= u64::from(count * BLOCK));
                }
                engine.audit().expect("invariants hold");
            }
            drive.advance(&mut engine, u64::MAX / 2, &mut outputs);
            (outputs, engine.snapshot())
        };
        let singly = run(Drive::Singly);
        for drive in [Drive::Events, Drive::Steps(step_us), Drive::Go] {
            prop_assert_eq!(&singly, &run(drive));
        }
        let ends = singly.0.iter().filter(|each| matches!(each, Output::Finished(_))).count();
        prop_assert_eq!(ends, arrivals.len());
    }
}
