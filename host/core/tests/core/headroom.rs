//! Engine memory beyond the ledger: prompts that wait inside engines, caches that they lose, and
//! caches that linger.

use crate::scenario::Scenario;
use treadle_core::memory::PrefixSegment;
use treadle_core::programs::{ProgramCommand, ProgramEvent, Purpose, StepTokens};
use treadle_core::{Command, Core, Event, Mode};
use treadle_model::{FinishReason, Span, StepId, WorkerId};

/// One worker that computes 100 prompt tokens per second.
fn retaining(tokens: u64, host_tokens_max: u64) -> Scenario {
    let mut scenario = Scenario::with_workers(&[tokens]);
    scenario.reconfigure(|config| {
        config.kv.retention = true;
        config.kv.host_tokens_max = host_tokens_max;
        config.kv.prefill_tokens_per_s = 100;
        config.kv.backlog_max = Span::from_secs(2);
    });
    scenario
}

fn dispatched(scenario: &Scenario) -> Vec<u64> {
    scenario
        .dispatched()
        .iter()
        .map(|(step, _)| *step)
        .collect()
}

/// Ends a step whose engine found `cached` tokens of its prompt.
fn finish(scenario: &mut Scenario, step: u64, prompt: u64, cached: u64) {
    let tokens = StepTokens {
        prompt,
        output: 10,
        cached: Some(cached),
    };
    scenario.handle(Event::Program(ProgramEvent::StepFinished {
        step: StepId(step),
        tokens,
        finish: FinishReason::Stop,
        weights: None,
    }));
}

fn fill(scenario: &Scenario) -> u64 {
    let core = &scenario.core;
    core.fill_tokens(&core.programs().workers[&WorkerId(0)])
}

#[test]
fn a_worker_with_two_seconds_of_prompts_admits_no_program_until_one_is_computed() {
    let mut scenario = retaining(100_000, 10_000);
    scenario.arrive("a", 1, 150).arrive("b", 2, 150);
    scenario.arrive("c", 3, 150);
    assert_eq!(dispatched(&scenario), [1, 2], "the third waits outside");
    scenario.progress(1, 1);
    assert_eq!(dispatched(&scenario), [1, 2, 3]);
}

#[test]
fn without_host_memory_prompts_for_twice_as_long_wait_inside() {
    let mut scenario = retaining(100_000, 0);
    scenario.arrive("a", 1, 150).arrive("b", 2, 150);
    scenario.arrive("c", 3, 150).arrive("d", 4, 150);
    assert_eq!(dispatched(&scenario), [1, 2, 3]);
}

#[test]
fn a_prompt_presumed_computed_blocks_no_program() {
    let mut scenario = retaining(100_000, 10_000);
    scenario.arrive("a", 1, 300).arrive("b", 2, 150);
    assert_eq!(dispatched(&scenario), [1]);
    scenario.wait_s(2);
    assert_eq!(dispatched(&scenario), [1]);
    scenario.wait_s(2);
    assert_eq!(dispatched(&scenario), [1, 2]);
}

#[test]
fn without_a_bound_prompts_wait_inside() {
    let mut scenario = retaining(100_000, 0);
    scenario.reconfigure(|config| config.kv.backlog_max = Span(0));
    scenario.arrive("a", 1, 900).arrive("b", 2, 900);
    scenario.arrive("c", 3, 900);
    assert_eq!(dispatched(&scenario), [1, 2, 3]);
}

#[test]
fn memory_is_kept_for_answers_that_come_in_one_piece_and_for_no_others() {
    let mut scenario = retaining(100_000, 10_000);
    scenario.reconfigure(|config| config.output_tokens_guess = 30);
    let used = |scenario: &Scenario| scenario.core.programs().workers[&WorkerId(0)].used_tokens();
    scenario.arrive("a", 1, 150);
    assert_eq!(used(&scenario), 150 + 30, "nothing is known of the job");
    scenario.progress(1, 70);
    assert_eq!(used(&scenario), 150 + 70);
    scenario.finish(1, 150, 80).arrive("a", 2, 250);
    assert_eq!(used(&scenario), 250, "what it writes will be seen");
    scenario.progress(2, 20);
    assert_eq!(used(&scenario), 250 + 20);
    scenario.finish(2, 250, 80).arrive("a", 3, 350);
    scenario.finish(3, 350, 80).arrive("a", 4, 450);
    assert_eq!(
        used(&scenario),
        450 + 80,
        "nothing was reported of the last one"
    );
}

#[test]
fn the_starvation_bound_follows_the_mean_wait_where_restores_are_cheap() {
    let mut scenario = retaining(1_000, 10_000);
    scenario.reconfigure(|config| config.deferral_min = Span::from_secs(1));
    scenario.arrive("holder", 1, 900).arrive("waits", 2, 500);
    scenario.wait_s(64);
    assert_eq!(scenario.core.starvation_bound(), Span::from_secs(1));
    finish(&mut scenario, 1, 900, 0);
    scenario.release("holder");
    assert_eq!(dispatched(&scenario), [1, 2]);
    // One wait of 64 s among 64 makes a mean of one second.
    assert_eq!(scenario.core.starvation_bound(), Span::from_secs(3));
}

#[test]
fn without_host_memory_the_starvation_bound_is_twice_what_serving_all_in_turn_takes() {
    let mut scenario = retaining(10_000, 0);
    scenario.reconfigure(|config| {
        config.deferral_min = Span::from_secs(1);
        config.kv.prefill_tokens_per_s = 100;
    });
    scenario.arrive("a", 1, 900).arrive("b", 2, 500);
    assert_eq!(scenario.core.starvation_bound(), Span::from_secs(1));
    finish(&mut scenario, 1, 900, 0);
    assert_eq!(scenario.core.starvation_bound(), Span::from_millis(18_200));
    finish(&mut scenario, 2, 500, 0);
    assert_eq!(scenario.core.starvation_bound(), Span::from_millis(28_400));
    scenario.release("a");
    assert_eq!(scenario.core.starvation_bound(), Span::from_millis(10_200));
    // A snapshot from before the sum was stored.
    let mut state = scenario.core.state().clone();
    state.programs.to_mut().context_tokens = 0;
    scenario.core = Core::with_state(scenario.core.config().clone(), state);
    assert_eq!(scenario.core.starvation_bound(), Span::from_millis(10_200));
    scenario.reconfigure(|config| config.kv.prefill_tokens_per_s = 1);
    let most = Span::from_secs(120);
    assert_eq!(scenario.core.starvation_bound(), most);
}

#[test]
fn what_engines_are_seen_to_compute_replaces_the_setting() {
    let mut scenario = retaining(1_000_000, 0);
    scenario.reconfigure(|config| config.deferral_min = Span::from_secs(1));
    for step in 1..=8 {
        scenario
            .arrive("a", step, 2_000 * step)
            .wait_s(1)
            .progress(step, 1);
        finish(&mut scenario, step, 2_000 * step, 2_000 * (step - 1));
        let measured = scenario.core.programs().estimates.prefill_tokens_per_s();
        assert_eq!(measured > 0, step == 8, "after {step}: {measured}");
    }
    // The first prompt counts half, and each one after it half of what is left.
    let measured = scenario.core.programs().estimates.prefill_tokens_per_s();
    assert_eq!(measured, 1_993);
    let twice = 16_010 * 1_000_000 / measured * 2;
    assert_eq!(scenario.core.starvation_bound(), Span(twice));
    // Prompts of four seconds wait inside.
    scenario.arrive("b", 9, 7_000).arrive("c", 10, 7_000);
    scenario.arrive("d", 11, 7_000);
    assert_eq!(dispatched(&scenario), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    scenario.lose(0);
    let speeds = scenario.core.programs().workers.values();
    let speeds: Vec<_> = speeds.map(|w| w.speeds.prefill_tokens_per_s()).collect();
    assert_eq!(speeds, [Some(measured)], "it may come back");
}

#[test]
fn a_lost_cache_leaves_more_free_and_a_found_one_a_little_less() {
    let mut scenario = retaining(1_000_000, 10_000);
    let start = fill(&scenario);
    scenario.arrive("a", 1, 1_000).wait_s(20);
    finish(&mut scenario, 1, 1_000, 0);
    assert_eq!(fill(&scenario), start, "a first prompt gives no estimate");
    scenario.arrive("a", 2, 1_100).wait_s(20);
    finish(&mut scenario, 2, 1_100, 0);
    assert_eq!(fill(&scenario), start - 4_000);
    scenario.arrive("a", 3, 1_200).wait_s(20);
    finish(&mut scenario, 3, 1_200, 1_100);
    assert_eq!(fill(&scenario), start - 3_960);
}

#[test]
fn a_program_that_rewrites_its_history_has_lost_no_cache() {
    let mut scenario = retaining(1_000_000, 10_000);
    scenario.reconfigure(|config| config.low_watermark_ppm = 900_000);
    let start = fill(&scenario);
    scenario.arrive("a", 1, 1_000).wait_s(20);
    let tokens = StepTokens {
        prompt: 1_000,
        output: 900,
        cached: Some(0),
    };
    let finish_of_thought = Event::Program(ProgramEvent::StepFinished {
        step: StepId(1),
        tokens,
        finish: FinishReason::Stop,
        weights: None,
    });
    scenario.handle(finish_of_thought);
    // The reasoning is left out: the previous prompt was found, its answer was not.
    scenario.arrive("a", 2, 1_200).wait_s(20);
    finish(&mut scenario, 2, 1_200, 1_000);
    assert_eq!(fill(&scenario), start + 40);
    // The conversation is compacted.
    scenario.arrive("a", 3, 400).wait_s(20);
    finish(&mut scenario, 3, 400, 100);
    assert_eq!(fill(&scenario), start + 40);
}

#[test]
fn without_host_memory_nothing_is_learnt_of_lost_caches() {
    let mut scenario = retaining(1_000_000, 0);
    let start = fill(&scenario);
    for step in 1..4 {
        scenario.arrive("a", step, 1_000 + step).wait_s(20);
        finish(&mut scenario, step, 1_000 + step, 0);
    }
    assert_eq!(fill(&scenario), start);
}

#[test]
fn a_kept_cache_is_reconsidered_when_later_ones_precede_it() {
    let asked = |last_leaves: bool| {
        let mut scenario = retaining(1_000, 10_000);
        scenario.arrive("kept", 1, 390).wait_s(5);
        finish(&mut scenario, 1, 390, 0);
        scenario.arrive("other", 2, 390).wait_s(5);
        finish(&mut scenario, 2, 390, 0);
        if last_leaves {
            scenario.release("other");
            scenario.arrive("third", 3, 290).wait_s(5);
            finish(&mut scenario, 3, 290, 0);
        }
        scenario.wait_s(3);
        let retain = |c: &Command| {
            matches!(c, Command::Program(ProgramCommand::AskPolicy { question, .. })
                if matches!(question.purpose, Purpose::Retain { .. }))
        };
        scenario.log.iter().any(retain)
    };
    // The ledger is below its watermark either way.
    assert!(!asked(false));
    assert!(asked(true));
}

/// Five programs take turns on a worker whose KV memory holds three of them, and the engine finds
/// this percentage of their caches.
fn take_turns(found_percent: u64) -> Scenario {
    take_turns_with(found_percent, |_| Vec::new())
}

/// The same with prompts that have a prefix.
fn take_turns_with(found_percent: u64, prefix: impl Fn(u64) -> Vec<PrefixSegment>) -> Scenario {
    let mut scenario = Scenario::with_mode(Mode::Sticky, &[10_000]);
    scenario.reconfigure(|config| config.kv.retention = true);
    for turn in 0..25 {
        let (step, prompt) = (turn + 1, 3_000 + 10 * turn);
        let program = turn % 5;
        scenario.arrive_with(&format!("p-{program}"), step, prompt, prefix(program));
        scenario.progress(step, 1);
        let before = if turn < 5 { 0 } else { prompt - 50 };
        finish(&mut scenario, step, prompt, before * found_percent / 100);
    }
    scenario
}

#[test]
fn a_worker_whose_engine_offloads_by_itself_is_filled_beyond_its_kv_memory() {
    let mut scenario = take_turns(100);
    assert!(fill(&scenario) > 10_000, "{}", fill(&scenario));
    assert!(fill(&scenario) < 5 * 3_300, "{}", fill(&scenario));
    scenario.lose(0);
    assert!(fill(&scenario) <= 10_000, "a lost engine has lost all");
}

#[test]
fn an_engine_without_host_memory_is_filled_up_to_its_kv_memory() {
    assert_eq!(
        fill(&take_turns(0)),
        fill(&Scenario::with_workers(&[10_000]))
    );
    // A prefix shared with others, or a part of a cache, does not count as a cache.
    assert_eq!(fill(&take_turns(60)), fill(&take_turns(0)));
}

/// The beginning of a prompt, as one segment.
fn begins(hash: u64, tokens: u64) -> Vec<PrefixSegment> {
    vec![PrefixSegment { hash, tokens }]
}

#[test]
fn a_long_prompt_that_nobody_shares_tells_of_host_memory_too() {
    // Most of each context could be shared, but is not.
    let alone = take_turns_with(100, |program| begins(program, 2_990));
    assert!(fill(&alone) > 10_000, "{}", fill(&alone));
    // The shared prefix is found in any case.
    let shared = take_turns_with(100, |_| begins(7, 2_990));
    assert!(fill(&shared) <= 10_000, "{}", fill(&shared));
}
