//! Programs that start others, and wait for them.

use crate::scenario::Scenario;
use treadle_core::memory::PrefixSegment;
use treadle_core::programs::{Program, SUBAGENT};
use treadle_model::{Span, WorkerId};

fn program<'a>(s: &'a Scenario, key: &str) -> &'a Program {
    s.core.programs().program(key).expect("live")
}

fn waits_for(s: &Scenario, key: &str) -> usize {
    let awaited = program(s, key).awaited.as_ref();
    awaited.map_or(0, |awaited| awaited.programs.len())
}

/// How often a job's programs have waited for others, and for how many seconds in total.
fn waits(s: &Scenario) -> Option<(u64, u64)> {
    let known = s
        .core
        .programs()
        .estimates
        .tools()
        .get("story")?
        .get(SUBAGENT)?;
    Some((known.finished, known.total_us / 1_000_000))
}

#[test]
fn a_parent_waits_until_its_next_step_and_that_is_learnt() {
    let mut s = Scenario::with_workers(&[10_000]);
    s.arrive("lead", 1, 100).finish(1, 100, 10);
    s.wait_s(1)
        .arrive_from(("lead", true), "one", 2, 100, vec![]);
    s.wait_s(2)
        .arrive_from(("lead", true), "two", 3, 100, vec![]);
    assert_eq!(waits_for(&s, "lead"), 2);
    assert_eq!(program(&s, "one").parent.as_deref(), Some("lead"));
    s.finish(2, 100, 10).release("one");
    assert_eq!(waits_for(&s, "lead"), 1);
    s.finish(3, 100, 10).release("two");
    assert_eq!(waits_for(&s, "lead"), 0);
    assert_eq!(waits(&s), None);
    s.wait_s(3).arrive("lead", 4, 200);
    assert_eq!(waits(&s), Some((1, 5)), "since the first of them began");
    let blocked = |s: &Scenario| program(s, "lead").blocked(s.now).micros() / 1_000_000;
    assert_eq!(blocked(&s), 2, "until the last of them had ended");
    s.finish(4, 200, 10).wait_s(1);
    s.arrive_from(("lead", true), "three", 5, 100, vec![]);
    s.wait_s(4);
    assert_eq!(blocked(&s), 6, "that which runs counts");
    s.arrive("lead", 6, 300).wait_s(10);
    assert_eq!(blocked(&s), 6, "it goes on");
}

#[test]
fn one_that_does_not_wait_is_no_parent_at_rest() {
    let mut s = Scenario::with_workers(&[10_000]);
    s.arrive("lead", 1, 100);
    s.arrive_from(("lead", true), "while it runs", 2, 100, vec![]);
    s.finish(1, 100, 10);
    s.arrive_from(("lead", false), "in the background", 3, 100, vec![]);
    s.arrive_from(("itself", true), "itself", 4, 100, vec![]);
    s.arrive_from(("gone", true), "of nobody", 5, 100, vec![]);
    assert_eq!(waits_for(&s, "lead"), 0);
    assert_eq!(waits_for(&s, "itself"), 0);
    assert_eq!(program(&s, "of nobody").parent.as_deref(), Some("gone"));
    s.finish(2, 100, 10)
        .arrive_from(("lead", true), "while it runs", 6, 100, vec![]);
    assert_eq!(waits_for(&s, "lead"), 0, "it outlived a step");
    s.arrive_from(("gone", true), "while it runs", 7, 100, vec![]);
    assert_eq!(
        program(&s, "while it runs").parent.as_deref(),
        Some("lead"),
        "for good"
    );
}

#[test]
fn a_parent_that_waits_is_not_taken_to_be_over() {
    let mut s = Scenario::with_workers(&[10_000]);
    s.reconfigure(|config| config.program_idle_max = Span::from_secs(60));
    s.arrive("lead", 1, 100).finish(1, 100, 10);
    for step in 2..6 {
        s.arrive_from(("lead", true), "child", step, 100, vec![]);
        s.wait_s(50).finish(step, 100, 10);
    }
    assert_eq!(waits_for(&s, "lead"), 1);
    s.wait_s(200);
    assert_eq!(s.core.programs().live.len(), 0, "both, one after the other");
}

#[test]
fn a_parent_is_over_if_its_subagent_waits_for_what_it_holds() {
    let mut s = Scenario::ranked(&[1_000]);
    s.reconfigure(|config| {
        config.program_idle_max = Span::from_secs(60);
        config.rollout.memory_ppm = 1_000_000;
    });
    s.arrive("lead", 1, 900).wait_s(1);
    s.finish(1, 900, 10);
    s.arrive_from(("lead", true), "child", 2, 500, vec![]);
    assert_eq!(s.dispatched().len(), 1);
    s.wait_s(62);
    assert_eq!(s.dispatched().len(), 2);
}

#[test]
fn a_fork_goes_where_its_history_is() {
    let mut s = Scenario::with_workers(&[10_000, 10_000]);
    s.arrive_with("lead", 1, 3_000, vec![of(1), of(2)]);
    s.finish(1, 3_000, 10);
    let parent = ("lead", true);
    s.arrive_from(parent, "fork", 2, 3_100, vec![of(1), of(2), of(3)]);
    s.arrive_from(parent, "other task", 3, 500, vec![of(1), of(4)]);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0), (3, 1)]);
}

fn of(hash: u64) -> PrefixSegment {
    PrefixSegment { hash, tokens: 40 }
}

/// A step with a streamed answer, so that its length is not estimated.
fn done(s: &mut Scenario, step: u64, prompt: u64, output: u64) {
    s.progress(step, 1).finish(step, prompt, output);
}

fn used(s: &Scenario, worker: u32) -> u64 {
    s.core.programs().workers[&WorkerId(worker)].used_tokens()
}

#[test]
fn a_fork_is_charged_what_it_has_beyond_its_parent() {
    let mut s = Scenario::with_workers(&[10_000]);
    s.arrive_with("lead", 1, 100, vec![of(1), of(2)]);
    done(&mut s, 1, 100, 10);
    // Its history has grown while it was placed.
    s.arrive_with("lead", 2, 3_000, vec![of(1), of(2), of(3), of(4)]);
    done(&mut s, 2, 3_000, 50);
    assert_eq!(used(&s, 0), 3_050);
    let parent = ("lead", true);
    let prompt = vec![of(1), of(2), of(3), of(4)];
    s.arrive_from(parent, "fork", 3, 3_100, prompt.clone());
    assert_eq!(used(&s, 0), 3_050 + 50, "its prompt has 50 more");
    done(&mut s, 3, 3_100, 20);
    assert_eq!(used(&s, 0), 3_050 + 70);
    // A second fork at the same point, and one from before the last answer.
    s.arrive_from(parent, "second", 4, 3_060, prompt.clone());
    assert_eq!(used(&s, 0), 3_050 + 70 + 10);
    s.arrive_from(parent, "before", 5, 3_000, prompt);
    assert!(
        used(&s, 0) > 5_000,
        "it shares what hashes tell, and no more"
    );
    done(&mut s, 4, 3_060, 10);
    done(&mut s, 5, 3_000, 10);
    s.release("before").release("second").release("fork");
    assert_eq!(used(&s, 0), 3_050);
    let lead = program(&s, "lead");
    assert_eq!(lead.prefix_tokens(), 160, "its history is its own again");
    s.release("lead");
    assert_eq!(used(&s, 0), 0);
}

#[test]
fn a_fork_that_ends_takes_nothing_from_a_later_program_of_its_parents_name() {
    let mut s = Scenario::with_workers(&[100_000]);
    let prompt = vec![of(1), of(2)];
    for (step, fork) in [(1, "one"), (3, "two")] {
        s.arrive_with("lead", step, 1_000, prompt.clone());
        done(&mut s, step, 1_000, 100);
        s.arrive_from(("lead", false), fork, step + 1, 1_100, prompt.clone());
        done(&mut s, step + 1, 1_100, 10);
        if fork == "one" {
            s.release("lead");
        }
    }
    s.release("one");
    assert_eq!(
        used(&s, 0),
        1_110,
        "the other fork shares all but its answer"
    );
}

#[test]
fn forks_share_when_the_parent_goes_on_and_one_at_each_time() {
    let mut s = Scenario::with_workers(&[100_000]);
    let prompt = vec![of(1), of(2), of(3), of(4)];
    s.arrive_with("lead", 1, 1_000, prompt.clone());
    done(&mut s, 1, 1_000, 100);
    let parent = ("lead", false);
    s.arrive_from(parent, "one", 2, 1_100, prompt.clone());
    s.arrive_with("lead", 3, 2_000, prompt.clone());
    done(&mut s, 3, 2_000, 100);
    assert_eq!(used(&s, 0), 2_100);
    s.arrive_from(parent, "two", 4, 2_200, prompt.clone());
    assert_eq!(used(&s, 0), 2_200);
    // A fork of a fork.
    done(&mut s, 4, 2_200, 100);
    s.arrive_from(("two", true), "three", 5, 2_400, prompt.clone());
    assert_eq!(used(&s, 0), 2_400);
    done(&mut s, 2, 1_100, 10);
    done(&mut s, 5, 2_400, 10);
    s.release("one").release("three");
    assert_eq!(used(&s, 0), 2_300, "its parent is no parent of others now");
    s.release("lead");
    assert_eq!(used(&s, 0), 2_300);
    s.release("two");
    assert_eq!(used(&s, 0), 0);
}

#[test]
fn a_parent_that_was_paused_still_shares_with_its_fork() {
    let mut s = Scenario::with_workers(&[10_000, 10_000]);
    let prompt = vec![of(1), of(2), of(3), of(4)];
    s.arrive_with("lead", 1, 3_000, prompt.clone());
    done(&mut s, 1, 3_000, 0);
    s.arrive_from(("lead", true), "fork", 2, 3_500, prompt.clone());
    s.lose(0).recover(0);
    assert_eq!(program(&s, "lead").placement, None);
    s.fail(2, true);
    s.arrive_with("lead", 3, 3_600, prompt);
    let places = ["lead", "fork"].map(|key| program(&s, key).placement.map(|place| place.worker));
    let used = used(&s, 0) + used(&s, 1);
    if places[0] == places[1] {
        assert_eq!(used, 3_000 + 600 + 500);
    } else {
        assert_eq!(used, 3_600 + 3_500);
    }
    // A compacted history shares nothing.
    done(&mut s, 3, 3_600, 0);
    s.lose(0).lose(1).recover(0).recover(1);
    s.arrive_with("lead", 4, 200, vec![of(1), of(9)]);
    assert_eq!(program(&s, "lead").prefix_tokens(), 80);
}

#[test]
fn who_does_not_go_on_with_the_history_does_not_share_it() {
    let mut s = Scenario::with_workers(&[10_000]);
    s.arrive_with("lead", 1, 100, vec![of(1), of(2)]);
    done(&mut s, 1, 100, 10);
    s.arrive_with("lead", 2, 3_000, vec![of(1), of(2), of(3)]);
    done(&mut s, 2, 3_000, 10);
    let parent = ("lead", true);
    // The first prompt is the same, the rest differs.
    s.arrive_from(parent, "other", 3, 3_100, vec![of(1), of(2), of(7)]);
    assert_eq!(used(&s, 0), 3_010 + 3_100 - 80);
    // The history is the same by its hashes, but shorter.
    s.arrive_from(parent, "short", 4, 500, vec![of(1), of(2), of(3)]);
    assert_eq!(used(&s, 0), 3_010 + 3_100 - 80 + 500 - 120);
}
