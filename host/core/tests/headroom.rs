//! What engines do with memory beyond the ledger: prompts that wait inside them,
//! caches that they lose, and those that linger.

mod story;

use story::Story;
use treadle_core::{Command, Event, Purpose, StepTokens};
use treadle_model::{FinishReason, Span, StepId, WorkerId};

/// One worker that computes 100 prompt tokens in a second.
fn retaining(tokens: u64, host_tokens_max: u64) -> Story {
    let mut story = Story::with_workers(&[tokens]);
    story.reconfigure(|config| {
        config.kv.retention = true;
        config.kv.host_tokens_max = host_tokens_max;
        config.kv.prefill_tokens_per_s = 100;
        config.kv.backlog_max = Span::from_secs(2);
    });
    story
}

fn dispatched(story: &Story) -> Vec<u64> {
    story.dispatched().iter().map(|(step, _)| *step).collect()
}

/// A step ends whose engine found so much of its prompt.
fn finish(story: &mut Story, step: u64, prompt: u64, cached: u64) {
    let tokens = StepTokens {
        prompt,
        output: 10,
        cached: Some(cached),
    };
    story.handle(Event::StepFinished {
        step: StepId(step),
        tokens,
        finish: FinishReason::Stop,
    });
}

fn fill(story: &Story) -> u64 {
    let core = &story.core;
    core.fill_tokens(&core.state().workers[&WorkerId(0)])
}

#[test]
fn a_worker_with_prompts_for_two_seconds_gets_nobody_else_until_one_is_computed() {
    let mut story = retaining(100_000, 10_000);
    story.arrive("a", 1, 150).arrive("b", 2, 150);
    story.arrive("c", 3, 150);
    assert_eq!(dispatched(&story), [1, 2], "the third waits outside");
    story.progress(1, 1);
    assert_eq!(dispatched(&story), [1, 2, 3]);
}

#[test]
fn without_host_memory_prompts_for_twice_as_long_wait_inside() {
    let mut story = retaining(100_000, 0);
    story.arrive("a", 1, 150).arrive("b", 2, 150);
    story.arrive("c", 3, 150).arrive("d", 4, 150);
    assert_eq!(dispatched(&story), [1, 2, 3]);
}

#[test]
fn a_prompt_that_must_be_computed_by_now_holds_nobody_up_though_nothing_is_heard() {
    let mut story = retaining(100_000, 10_000);
    story.arrive("a", 1, 300).arrive("b", 2, 150);
    assert_eq!(dispatched(&story), [1]);
    story.wait_s(2);
    assert_eq!(dispatched(&story), [1]);
    story.wait_s(2);
    assert_eq!(dispatched(&story), [1, 2]);
}

#[test]
fn without_a_bound_prompts_wait_inside() {
    let mut story = retaining(100_000, 0);
    story.reconfigure(|config| config.kv.backlog_max = Span(0));
    story.arrive("a", 1, 900).arrive("b", 2, 900);
    story.arrive("c", 3, 900);
    assert_eq!(dispatched(&story), [1, 2, 3]);
}

#[test]
fn memory_is_kept_for_answers_that_come_in_one_piece_and_for_no_others() {
    let mut story = retaining(100_000, 10_000);
    story.reconfigure(|config| config.output_tokens_guess = 30);
    let used = |story: &Story| story.core.state().workers[&WorkerId(0)].used_tokens();
    story.arrive("a", 1, 150);
    assert_eq!(used(&story), 150 + 30, "nothing is known of the job");
    story.progress(1, 70);
    assert_eq!(used(&story), 150 + 70);
    story.finish(1, 150, 80).arrive("a", 2, 250);
    assert_eq!(used(&story), 250, "what it writes will be seen");
    story.progress(2, 20);
    assert_eq!(used(&story), 250 + 20);
    story.finish(2, 250, 80).arrive("a", 3, 350);
    story.finish(3, 350, 80).arrive("a", 4, 450);
    assert_eq!(used(&story), 450 + 80, "nothing was heard of the last one");
}

#[test]
fn the_deferral_bound_goes_by_what_others_wait_where_they_come_back_cheaply() {
    let bound_of = |host_tokens_max| {
        let mut story = retaining(1_000, host_tokens_max);
        story.reconfigure(|config| config.deferral_min = Span::from_secs(1));
        story.arrive("holder", 1, 900).arrive("waits", 2, 500);
        story.wait_s(64);
        let before = story.core.deferral();
        finish(&mut story, 1, 900, 0);
        story.release("holder");
        assert_eq!(dispatched(&story), [1, 2]);
        (before, story.core.deferral())
    };
    let seconds = |s| Span::from_secs(s);
    assert_eq!(bound_of(0), (seconds(120), seconds(120)));
    // One wait of 64 s among 64 makes a second in the mean.
    assert_eq!(bound_of(10_000), (seconds(1), seconds(3)));
}

#[test]
fn a_lost_cache_leaves_more_free_and_a_found_one_a_little_less() {
    let mut story = retaining(1_000_000, 10_000);
    let start = fill(&story);
    story.arrive("a", 1, 1_000).wait_s(20);
    finish(&mut story, 1, 1_000, 0);
    assert_eq!(fill(&story), start, "a first prompt says nothing");
    story.arrive("a", 2, 1_100).wait_s(20);
    finish(&mut story, 2, 1_100, 0);
    assert_eq!(fill(&story), start - 4_000);
    story.arrive("a", 3, 1_200).wait_s(20);
    finish(&mut story, 3, 1_200, 1_100);
    assert_eq!(fill(&story), start - 3_960);
}

#[test]
fn who_writes_its_history_anew_has_lost_no_cache() {
    let mut story = retaining(1_000_000, 10_000);
    story.reconfigure(|config| config.low_watermark_ppm = 900_000);
    let start = fill(&story);
    story.arrive("a", 1, 1_000).wait_s(20);
    let tokens = StepTokens {
        prompt: 1_000,
        output: 900,
        cached: Some(0),
    };
    let finish_of_thought = Event::StepFinished {
        step: StepId(1),
        tokens,
        finish: FinishReason::Stop,
    };
    story.handle(finish_of_thought);
    // What was thought is left out: the prompt before was found, its answer was not.
    story.arrive("a", 2, 1_200).wait_s(20);
    finish(&mut story, 2, 1_200, 1_000);
    assert_eq!(fill(&story), start + 40);
    // The conversation is summed up.
    story.arrive("a", 3, 400).wait_s(20);
    finish(&mut story, 3, 400, 100);
    assert_eq!(fill(&story), start + 40);
}

#[test]
fn without_host_memory_nothing_is_learnt_of_lost_caches() {
    let mut story = retaining(1_000_000, 0);
    let start = fill(&story);
    for step in 1..4 {
        story.arrive("a", step, 1_000 + step).wait_s(20);
        finish(&mut story, step, 1_000 + step, 0);
    }
    assert_eq!(fill(&story), start);
}

#[test]
fn a_kept_cache_is_asked_about_when_what_left_later_stands_before_it() {
    let asked = |last_leaves: bool| {
        let mut story = retaining(1_000, 10_000);
        story.arrive("kept", 1, 390).wait_s(5);
        finish(&mut story, 1, 390, 0);
        story.arrive("other", 2, 390).wait_s(5);
        finish(&mut story, 2, 390, 0);
        if last_leaves {
            story.release("other");
            story.arrive("third", 3, 290).wait_s(5);
            finish(&mut story, 3, 290, 0);
        }
        story.wait_s(3);
        let retain = |c: &Command| {
            matches!(c, Command::AskPolicy { question, .. }
                if matches!(question.purpose, Purpose::Retain { .. }))
        };
        story.log.iter().any(retain)
    };
    // The ledger is below its watermark either way.
    assert!(!asked(false));
    assert!(asked(true));
}
