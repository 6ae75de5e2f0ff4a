//! `predict` and `learn`.

use treadle_model::World;
use treadle_policy_runtime::{
    Estimates, FinishedColumns, LiveColumns, PolicyFault, PolicyInstance,
};

use crate::fixture::CONTEXT;
use crate::scripted::{Reply, answering, f64s, refused};

fn predict(policy: &mut PolicyInstance) -> Result<Estimates, PolicyFault> {
    let programs = LiveColumns {
        group: &[1, 2],
        tokens: &[10, 20],
        output_tokens: &[5, 5],
        steps: &[1, 1],
        tool_ms: &[0, 9],
        extra: &[],
    };
    let policy = policy.as_prediction_mut().unwrap();
    policy.predict(&CONTEXT, &programs)
}

fn answers(mean: &[f64], p90: &[f64], tool_s: &[f64]) -> PolicyInstance {
    let lists = [mean, p90, tool_s].map(f64s);
    answering(World::Prediction, "predict", Reply::Lists(lists.into()))
}

#[test]
fn estimates_are_finite_not_negative_and_in_order() {
    let estimates = predict(&mut answers(&[10.0, 0.0], &[10.0, 4.0], &[0.0, 2.5]));
    assert_eq!(
        estimates,
        Ok(Estimates {
            remaining_tokens: vec![10.0, 0.0],
            remaining_tokens_p90: vec![10.0, 4.0],
            remaining_tool_s: vec![0.0, 2.5],
        })
    );
    let low = answers(&[10.0, 5.0], &[12.0, 4.0], &[0.0, 0.0]);
    refused(low, "remaining_tokens_p90: 4 in row 1", predict);
    let negative = answers(&[10.0, -1.0], &[12.0, 4.0], &[0.0, 0.0]);
    refused(negative, "remaining_tokens: -1 in row 1", predict);
    let infinite = answers(&[0.0, 0.0], &[f64::INFINITY, 0.0], &[0.0, 0.0]);
    refused(infinite, "remaining_tokens_p90: inf in row 0", predict);
    let unknown = answers(&[0.0, 0.0], &[0.0, 0.0], &[0.0, f64::NAN]);
    refused(unknown, "remaining_tool_s: NaN in row 1", predict);
    let short = answers(&[0.0, 0.0], &[0.0], &[0.0, 0.0]);
    refused(short, "remaining_tokens_p90: 1 values", predict);
}

#[test]
fn it_learns_or_leaves_it() {
    let finished = FinishedColumns {
        group: &[1],
        tokens: &[10],
        output_tokens: &[5],
        steps: &[1],
        tool_ms: &[0],
        remaining_tokens: &[70],
        remaining_tool_ms: &[900],
        extra: &[],
    };
    for (reply, learnt) in [
        (Reply::Done, Ok(())),
        (Reply::NotSupported, Err(PolicyFault::NotSupported)),
    ] {
        let mut policy = answering(World::Prediction, "learn", reply);
        let prediction = policy.as_prediction_mut().unwrap();
        assert_eq!(prediction.learn(&CONTEXT, &finished), learnt);
    }
}
