//! Invalid requests: no engine is marked as failed, and no program remains.

use crate::scenario::Scenario;

#[test]
fn a_request_that_is_wrong_fails_no_engine_and_leaves_no_program() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 300).arrive("a", 2, 300).reject(1);
    assert_eq!(s.status("a"), "active", "its other step goes on");
    s.reject(2).arrive("long", 3, 5_000);
    assert_eq!((s.status("a"), s.status("long")), ("gone", "gone"));
    s.arrive("b", 4, 300).finish(4, 300, 9).arrive("b", 5, 400);
    s.reject(5);
    assert_eq!(s.status("b"), "active", "it has a context to keep");
    s.arrive("c", 6, 100).fail(6, false);
    assert_eq!(s.status("c"), "active", "an engine's fault ends no program");
    let c = s.core.programs().counters;
    assert_eq!(
        (c.steps_rejected, c.steps_failed, c.steps_refused),
        (3, 1, 1)
    );
}
