//! Programs that start others, and wait for them.

mod scenario;

use scenario::Scenario;
use treadle_core::PrefixSegment;
use treadle_core::action::SUBAGENT;
use treadle_core::program::Program;
use treadle_model::Span;

fn program<'a>(s: &'a Scenario, key: &str) -> &'a Program {
    s.core.programs().program(key).expect("live")
}

fn waits_for(s: &Scenario, key: &str) -> usize {
    let awaited = program(s, key).awaited.as_ref();
    awaited.map_or(0, |awaited| awaited.programs.len())
}

/// How often a job's programs have waited for others, and how long in all, in seconds.
fn waits(s: &Scenario) -> Option<(u64, u64)> {
    let known = s.core.programs().tools.get("story")?.get(SUBAGENT)?;
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
    let of = |hash| PrefixSegment { hash, tokens: 40 };
    let mut s = Scenario::with_workers(&[10_000, 10_000]);
    s.arrive_with("lead", 1, 3_000, vec![of(1), of(2)]);
    s.finish(1, 3_000, 10);
    let parent = ("lead", true);
    s.arrive_from(parent, "fork", 2, 3_100, vec![of(1), of(2), of(3)]);
    s.arrive_from(parent, "other task", 3, 500, vec![of(1), of(4)]);
    assert_eq!(s.dispatched(), [(1, 0), (2, 0), (3, 1)]);
}
