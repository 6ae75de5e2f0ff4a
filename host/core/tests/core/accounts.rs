//! KV memory accounts: short scenarios with known sums.

use crate::scenario::Scenario;
use treadle_core::memory::Direction;
use treadle_core::memory::{TokenTime, Use};
use treadle_core::programs::{ProgramEvent, StepTokens};
use treadle_core::{Event, KvConfig, Mode};
use treadle_model::{FinishReason, Span, StepId, WorkerId};

fn worker(s: &Scenario, worker: u32) -> TokenTime {
    s.core.programs().workers[&WorkerId(worker)]
        .ledger
        .account()
        .at(s.now)
}

fn job(s: &Scenario) -> TokenTime {
    let accounts = s.core.programs().memory.accounts();
    accounts
        .get("story")
        .map(|account| account.at(s.now))
        .unwrap_or_default()
}

/// Token-seconds of the uses that occurred.
fn uses(sums: &TokenTime) -> Vec<(&'static str, u64)> {
    let seconds = |what: &Use| (what.as_str(), sums.of(*what) / 1_000);
    let all = Use::ALL.iter().map(seconds);
    all.filter(|(_, token_s)| *token_s > 0).collect()
}

fn first_token(s: &mut Scenario, step: u64) {
    let step = StepId(step);
    s.handle(Event::Program(ProgramEvent::StepFirstToken { step }));
}

fn finish_cached(s: &mut Scenario, step: u64, prompt: u64, cached: u64) {
    let tokens = StepTokens {
        prompt,
        output: 0,
        cached: Some(cached),
    };
    let (step, finish) = (StepId(step), FinishReason::Stop);
    s.handle(Event::Program(ProgramEvent::StepFinished {
        step,
        tokens,
        finish,
        weights: None,
    }));
}

#[test]
fn a_step_prefills_decodes_and_is_cached_and_the_rest_is_unused() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.wait_s(1).arrive("a", 1, 600).wait_s(2);
    assert_eq!(
        worker(&s, 0).undivided,
        1_200_000,
        "until its counts are known"
    );
    first_token(&mut s, 1);
    s.wait_s(3).finish(1, 600, 0).wait_s(4);
    let caching = 600 * 4;
    let of_job = [
        ("decode", 600 * 3),
        ("prefill", 600 * 2),
        ("caching", caching),
    ];
    assert_eq!(uses(&job(&s)), of_job);
    let unused = ("unused", 1_000 + 400 * 9);
    assert_eq!(uses(&worker(&s, 0)), [&of_job[..], &[unused]].concat());
    assert_eq!(
        worker(&s, 0).total(),
        1_000 * 10_000,
        "its capacity times the time"
    );
    s.release("a").wait_s(5);
    assert_eq!(uses(&job(&s)), of_job, "outlives its programs");
}

#[test]
fn what_was_computed_before_is_recomputed_and_the_rest_of_the_prompt_is_not() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 600).finish(1, 600, 0);
    s.arrive("a", 2, 800).wait_s(4);
    first_token(&mut s, 2);
    // Of 800 tokens 300 were found, so 300 of the previous 600 were lost and 200 are new.
    finish_cached(&mut s, 2, 800, 300);
    assert_eq!(
        uses(&job(&s)),
        [("prefill", 3_200 * 2 / 5), ("recompute", 3_200 * 3 / 5)]
    );
}

#[test]
fn without_a_count_a_displaced_program_recomputes_its_history() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 400).finish(1, 400, 0);
    s.arrive("b", 2, 500).progress(2, 200);
    assert_eq!(s.status("a"), "paused");
    s.finish(2, 500, 0).release("b");
    let before = job(&s);
    s.arrive("a", 3, 500).wait_s(10);
    first_token(&mut s, 3);
    s.finish(3, 500, 0);
    let since = job(&s).since(&before);
    assert_eq!(uses(&since), [("prefill", 1_000), ("recompute", 4_000)]);
    s.arrive("a", 4, 600).wait_s(1);
    first_token(&mut s, 4);
    s.finish(4, 600, 0);
    let kept = job(&s).since(&before).since(&since);
    assert_eq!(uses(&kept), [("prefill", 600)], "it has stayed placed now");
}

#[test]
fn an_answer_in_one_piece_has_decoded_beyond_the_time_for_its_prompt() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.reconfigure(|config| config.kv.prefill_tokens_per_s = 300);
    s.arrive("a", 1, 600).wait_s(5).finish(1, 600, 0);
    assert_eq!(uses(&job(&s)), [("decode", 600 * 3), ("prefill", 600 * 2)]);
}

#[test]
fn a_cache_on_its_way_is_in_transfer() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.reconfigure(|config| {
        config.kv = KvConfig {
            host_tokens_max: 5_000,
            host_tokens_per_s: 1_000,
            prefill_tokens_per_s: 100,
            transfer_max: Span::from_secs(20),
            ..KvConfig::default()
        };
    });
    s.arrive("a", 1, 400).finish(1, 400, 0);
    s.arrive("b", 2, 500).progress(2, 200).wait_s(3);
    let moving = s.core.programs().memory.offloads().moving();
    let (program, transfer) = moving.iter().next().map(|(p, t)| (*p, *t)).unwrap();
    assert_eq!(transfer.direction, Direction::Out);
    let sums = worker(&s, 0);
    assert_eq!(sums.of(Use::Transfer), 400 * 3_000);
    assert_eq!(
        sums.over,
        100 * 3_000,
        "b has grown into what is not free yet"
    );
    s.handle(Event::Program(ProgramEvent::ProgramOffloaded {
        program,
        copy: "copy".into(),
        tokens: transfer.tokens,
        bytes: 4_000,
    }));
    s.finish(2, 500, 0).release("b");
    s.arrive("a", 3, 500).wait_s(2);
    let back = 500 * 2_000;
    assert_eq!(worker(&s, 0).of(Use::Transfer), 400 * 3_000 + back);
    let to = WorkerId(0);
    s.handle(Event::Program(ProgramEvent::ProgramLoaded { program, to }))
        .wait_s(1);
    first_token(&mut s, 3);
    s.finish(3, 500, 0);
    assert_eq!(
        worker(&s, 0).of(Use::Recompute),
        0,
        "it came with its cache"
    );
}

#[test]
fn a_shared_prefix_is_nobodys() {
    let mut s = Scenario::with_workers(&[1_000]);
    for (step, key) in [(1, "a"), (2, "b")] {
        s.arrive_sharing(key, step, 300, 7, 100)
            .finish(step, 300, 0);
    }
    s.wait_s(10);
    assert_eq!(uses(&job(&s)), [("caching", 4_000)]);
    let of_worker = [("caching", 4_000), ("shared", 1_000), ("unused", 5_000)];
    assert_eq!(uses(&worker(&s, 0)), of_worker);
}

#[test]
fn a_lost_worker_and_one_without_a_ledger_have_nothing_unused() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.wait_s(2).lose(0).wait_s(3);
    assert_eq!(uses(&worker(&s, 0)), [("unused", 2_000)]);
    let mut s = Scenario::with_mode(Mode::LeastLoad, &[1_000]);
    s.arrive("a", 1, 600).wait_s(3);
    assert_eq!(worker(&s, 0), TokenTime::default());
}

#[test]
fn every_program_is_counted_once_as_reasoning_acting_or_paused() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("short", 1, 200).finish(1, 200, 0);
    s.arrive("long", 2, 500).finish(2, 500, 0);
    s.arrive("grows", 3, 200).finish(3, 200, 0);
    s.arrive("grows", 4, 450);
    let counts = |s: &Scenario| {
        let t = s.core.programs().totals();
        (t.reasoning, t.acting, t.paused, t.paused_reasoning)
    };
    assert_eq!(counts(&s), (1, 2, 1, 0));
    // Its step waits: the program is reasoning, but still paused.
    s.arrive("short", 5, 900);
    assert_eq!(counts(&s), (2, 1, 1, 1));
}
