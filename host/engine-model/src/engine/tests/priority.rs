//! Preemption by priority: which request is preempted, for which, and how often.

use super::*;

fn spec(id: RequestId, priority: i32, prompt_tokens: u32, output_tokens: u32) -> RequestSpec {
    RequestSpec {
        id,
        prompt_tokens,
        output_tokens,
        blocks: chain(id, id, 0, prompt_tokens + output_tokens),
        priority,
    }
}

fn preempting(kv_blocks: u32, slots: u32) -> EngineProfile {
    EngineProfile {
        preempt_by_priority: true,
        stream_interval_tokens: u32::MAX,
        ..small_profile(kv_blocks, 64, slots)
    }
}

fn ends(outputs: &[Output]) -> Vec<(RequestId, u32)> {
    let ends = outputs.iter().filter_map(|output| match output {
        Output::Finished(end) => Some((end.id, end.preemptions)),
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_higher_priority_takes_the_slot_and_the_other_finds_its_blocks_again() {
    let mut engine = Engine::new(preempting(64, 1));
    let mut outputs = Vec::new();
    engine.submit(0, spec(1, 5, 16, 32)).expect("fits");
    engine.advance(12_000, &mut outputs);
    engine.submit(12_000, spec(2, 4, 16, 8)).expect("fits");
    outputs.extend(drain(&mut engine));
    assert_eq!(ends(&outputs), [(2, 0), (1, 1)]);
    let counters = engine.snapshot().counters;
    assert_eq!(
        (counters.priority_preemptions, counters.preemptions),
        (1, 0)
    );
    // All but the block that was not full is found again.
    assert!(counters.recomputed_tokens < u64::from(BLOCK));
}

#[test]
fn an_equal_waits_and_without_preemption_everyone_does() {
    for (priority, preempt) in [(5, true), (4, false)] {
        let mut engine = Engine::new(EngineProfile {
            preempt_by_priority: preempt,
            ..preempting(64, 1)
        });
        let mut outputs = Vec::new();
        engine.submit(0, spec(1, 5, 16, 32)).expect("fits");
        engine.advance(12_000, &mut outputs);
        engine
            .submit(12_000, spec(2, priority, 16, 8))
            .expect("fits");
        outputs.extend(drain(&mut engine));
        assert_eq!(ends(&outputs), [(1, 0), (2, 0)]);
    }
}

#[test]
fn memory_is_taken_from_the_lowest_and_only_as_much_as_is_needed() {
    let mut engine = Engine::new(preempting(24, 8));
    let mut outputs = Vec::new();
    for (id, priority) in [(1, 3), (2, 9), (3, 7)] {
        engine.submit(0, spec(id, priority, 24, 8)).expect("fits");
    }
    engine.advance(60_000, &mut outputs);
    assert_eq!(engine.snapshot().running, 3);
    engine.submit(60_000, spec(4, 5, 24, 8)).expect("fits");
    outputs.extend(drain(&mut engine));
    let preempted: Vec<_> = ends(&outputs).into_iter().filter(|end| end.1 > 0).collect();
    assert_eq!(preempted, [(2, 1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A request is preempted at most once for each that outranks it, and the most urgent never is.
    #[test]
    fn no_sequence_is_preempted_more_often_than_it_is_outranked(
        profile in profiles(),
        arrivals in arrivals(),
    ) {
        let profile = EngineProfile { preempt_by_priority: true, ..profile };
        let (outputs, snapshots) = run(&profile, &arrivals, Drive::Go);
        let counters = snapshots[snapshots.len() - 1].counters;
        let outranked = |id: usize| {
            let higher = arrivals.iter().filter(|each| each.priority < arrivals[id].priority);
            higher.count() as u64
        };
        let pairs: u64 = (0..arrivals.len()).map(outranked).sum();
        prop_assert!(counters.priority_preemptions <= pairs);
        let told = outputs.iter().filter(|each| matches!(each, Output::Preempted { .. })).count();
        prop_assert_eq!(told as u64, counters.priority_preemptions + counters.preemptions);
        if arrivals.iter().all(|each| each.priority == arrivals[0].priority) {
            prop_assert_eq!(counters.priority_preemptions, 0);
        }
    }

    /// No request of a lower rank runs while one waits that it keeps from running.
    #[test]
    fn after_each_iteration_starts_the_first_that_waits_does_not_outrank_a_full_house(
        profile in profiles(),
        arrivals in arrivals(),
    ) {
        let profile = EngineProfile { preempt_by_priority: true, running_max: 2, ..profile };
        let mut engine = Engine::new(profile);
        let mut outputs = Vec::new();
        for (id, arrival) in (0..).zip(&arrivals) {
            engine.submit(0, arrival.spec(id)).expect("fits");
        }
        while let Some(at_us) = engine.next_event_at() {
            engine.leap = None;
            engine.advance(at_us, &mut outputs);
            engine.audit().expect("invariants hold");
            let full = engine.running.len() >= 2;
            prop_assert!(!(full && engine.first_waiting_outranks_last_running()));
        }
    }
}
