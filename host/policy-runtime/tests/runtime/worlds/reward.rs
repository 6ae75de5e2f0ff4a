//! `score`.

use treadle_model::World;
use treadle_policy_runtime::{AnswerColumns, PolicyFault, PolicyInstance, Scores};

use crate::fixture::CONTEXT;
use crate::scripted::{Reply, answering, f64s, refused, texts};

fn score(policy: &mut PolicyInstance) -> Result<Scores, PolicyFault> {
    let programs = AnswerColumns {
        answer: &["42".to_owned(), String::new()],
        reference: &["42".to_owned(), "7".to_owned()],
        output_tokens: &[5, 5],
        steps: &[1, 1],
        extra: &[],
    };
    let policy = policy.as_reward_mut().unwrap();
    policy.score(&CONTEXT, &programs)
}

fn answers(totals: &[f64], names: &[&'static str], parts: &[f64]) -> PolicyInstance {
    let lists = vec![f64s(totals), texts(names), f64s(parts)];
    answering(World::Reward, "score", Reply::Lists(lists))
}

#[test]
fn rewards_are_finite_and_their_parts_complete() {
    let scores = score(&mut answers(
        &[1.0, -0.5],
        &["exact", "length"],
        &[1.0, 0.0, 0.0, -0.5],
    ));
    assert_eq!(
        scores,
        Ok(Scores {
            totals: vec![1.0, -0.5],
            part_names: vec!["exact".to_owned(), "length".to_owned()],
            parts: vec![1.0, 0.0, 0.0, -0.5],
        })
    );
    let none = score(&mut answers(&[1.0, 0.0], &[], &[])).unwrap();
    assert!(none.part_names.is_empty());
    let infinite = answers(&[1.0, f64::INFINITY], &[], &[]);
    refused(infinite, "totals: inf in row 1", score);
    let short = answers(&[1.0, 0.0], &["exact"], &[1.0]);
    refused(short, "parts: 1 values for 2 rows", score);
    let unnamed = answers(&[1.0, 0.0], &[""], &[1.0, 0.0]);
    refused(unnamed, "part_names: 0 bytes in entry 0", score);
    let many = answers(&[1.0, 0.0], &["part"; 17], &[0.0; 34]);
    refused(many, "part_names: 17 names", score);
}

#[test]
fn texts_are_bounded() {
    let mut policy = answering(World::Reward, "score", Reply::NotSupported);
    let long = ["x".repeat(5 << 20), "y".repeat(5 << 20)];
    let programs = AnswerColumns {
        answer: &long,
        reference: &[String::new(), String::new()],
        output_tokens: &[5, 5],
        steps: &[1, 1],
        extra: &[],
    };
    let reward = policy.as_reward_mut().unwrap();
    let fault = reward.score(&CONTEXT, &programs).unwrap_err();
    assert!(matches!(&fault, PolicyFault::BadInput { detail } if detail.contains("texts")));
}
