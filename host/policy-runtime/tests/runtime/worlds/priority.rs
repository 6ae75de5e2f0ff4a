//! `score` and `preempt`.

use treadle_model::World;
use treadle_policy_runtime::{PolicyFault, PolicyInstance, PreemptColumns, QueueColumns};

use crate::fixture::CONTEXT;
use crate::scripted::{Reply, answering, f64s, list, refused, u8s};

fn score(policy: &mut PolicyInstance) -> Result<Vec<f64>, PolicyFault> {
    let programs = QueueColumns {
        tokens: &[1, 2],
        output_tokens: &[1, 1],
        steps: &[1, 1],
        waited_ms: &[0, 10],
        remaining_tokens: &[-1.0, 7.0],
        remaining_tool_s: &[-1.0, 7.0],
        extra: &[],
    };
    let policy = policy.as_priority_mut().unwrap();
    policy.score(&CONTEXT, &programs)
}

fn preempt(policy: &mut PolicyInstance) -> Result<Vec<bool>, PolicyFault> {
    let steps = PreemptColumns {
        running_score: &[1.0, 2.0, 3.0],
        running_ms: &[1, 2, 3],
        waiting_score: &[4.0],
    };
    policy.as_priority_mut().unwrap().preempt(&CONTEXT, &steps)
}

fn preempts(flags: &[u8]) -> PolicyInstance {
    answering(World::Priority, "preempt", list(u8s(flags)))
}

#[test]
fn waiting_programs_are_scored_by_finite_numbers() {
    let scores = |scores: &[f64]| answering(World::Priority, "score", list(f64s(scores)));
    assert_eq!(score(&mut scores(&[0.0, 9.0])), Ok(vec![0.0, 9.0]));
    refused(scores(&[0.0, f64::NAN]), "NaN in row 1", score);
    refused(scores(&[]), "0 values for 2 rows", score);
}

#[test]
fn no_more_give_way_than_wait() {
    assert_eq!(
        preempt(&mut preempts(&[0, 1, 0])),
        Ok(vec![false, true, false])
    );
    refused(preempts(&[1, 1, 0]), "2 steps to preempt", preempt);
    refused(preempts(&[0, 1]), "2 values for 3 rows", preempt);
}

#[test]
fn columns_are_checked_before_the_policy_is_asked() {
    let mut policy = answering(World::Priority, "preempt", Reply::NotSupported);
    let steps = PreemptColumns {
        running_score: &[1.0],
        running_ms: &[],
        waiting_score: &[],
    };
    let asked = policy.as_priority_mut().unwrap().preempt(&CONTEXT, &steps);
    let Err(PolicyFault::BadInput { detail }) = asked else {
        panic!("asked")
    };
    assert!(detail.contains("running_ms"), "{detail}");
}
