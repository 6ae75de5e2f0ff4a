//! Random programs with a known history: extended, forked, retried, edited, with images, written in
//! any order. Whatever happens, the left context of each trained token is what its engine had.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use treadle_samples::{Assembly, Delivery, Deltas, Exclusion, Medium, Step, assemble, restore};

/// What a harness does next.
#[derive(Clone, Debug)]
enum Turn {
    /// Continues a step with an observation.
    Extend {
        step: usize,
        observation: Vec<i32>,
        output: Vec<i32>,
    },
    /// Sends a prompt again.
    Retry { step: usize, output: Vec<i32> },
    /// Changes a token of a step's context and goes on, as a rewritten history does.
    Edit {
        step: usize,
        at: usize,
        output: Vec<i32>,
    },
    /// Puts another image into the same prompt.
    Swap { step: usize, output: Vec<i32> },
}

fn tokens(max: usize) -> impl Strategy<Value = Vec<i32>> {
    vec(0..3_i32, 1..max)
}

fn turn() -> impl Strategy<Value = Turn> {
    let step = 0..64_usize;
    prop_oneof![
        4 => (step.clone(), vec(0..3_i32, 0..90), tokens(90))
            .prop_map(|(step, observation, output)| Turn::Extend { step, observation, output }),
        1 => (step.clone(), tokens(4)).prop_map(|(step, output)| Turn::Retry { step, output }),
        1 => (step.clone(), 0..200_usize, tokens(9))
            .prop_map(|(step, at, output)| Turn::Edit { step, at, output }),
        1 => (step, tokens(9)).prop_map(|(step, output)| Turn::Swap { step, output }),
    ]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        6 => Just(Delivery::Complete),
        1 => Just(Delivery::Broken),
        1 => Just(Delivery::Unknown),
    ]
}

/// A program's steps in the order in which they were sent.
fn program() -> impl Strategy<Value = Vec<Step>> {
    let turns = vec((turn(), delivery(), prop::bool::weighted(0.1)), 0..14);
    (tokens(150), tokens(20), turns).prop_map(|(prompt, output, turns)| {
        let first = Step {
            prompt,
            output,
            delivery: Delivery::Complete,
            ..Step::default()
        };
        let mut steps = vec![first];
        for (turn, delivery, foreign) in turns {
            let next = follow(&steps, &turn);
            steps.push(Step {
                delivery,
                foreign,
                ..next
            });
        }
        for (number, step) in (1..).zip(&mut steps) {
            step.number = number;
            step.logprobs = vec![-0.25; step.output.len()];
        }
        steps
    })
}

fn follow(steps: &[Step], turn: &Turn) -> Step {
    let earlier = |step: &usize| &steps[step % steps.len()];
    let (step, output) = match turn {
        Turn::Extend { step, output, .. }
        | Turn::Retry { step, output }
        | Turn::Edit { step, output, .. }
        | Turn::Swap { step, output } => (earlier(step), output.clone()),
    };
    let mut next = Step {
        prompt: step.prompt.clone(),
        media: step.media.clone(),
        output,
        ..Step::default()
    };
    match turn {
        Turn::Extend { observation, .. } => {
            next.prompt.extend(&step.output);
            next.prompt.extend(observation);
        }
        Turn::Retry { .. } => {}
        Turn::Edit { at, .. } => {
            next.prompt.extend(&step.output);
            let at = at % next.prompt.len();
            next.prompt[at] = (next.prompt[at] + 1) % 3;
        }
        Turn::Swap { .. } => {
            let digest = [steps.len() as u8; 32];
            next.media = vec![Medium {
                position: 0,
                digest,
            }];
        }
    }
    next
}

/// What is wrong with an assembly, found from the steps only.
fn violation(steps: &[Step], assembly: &Assembly) -> Option<String> {
    let by_number: BTreeMap<u64, &Step> = steps.iter().map(|s| (s.number, s)).collect();
    let mut trained = BTreeSet::new();
    for sequence in &assembly.sequences {
        let mut end = 0;
        for range in &sequence.sampled {
            let step = by_number[&range.step];
            if range.start < end || range.end > sequence.ids.len() {
                return Some(format!("ranges of {sequence:?} overlap or leave it"));
            }
            end = range.end;
            if sequence.ids[..range.start] != step.prompt[..] {
                return Some(format!("the left context of step {} differs", range.step));
            }
            if sequence.ids[range.start..range.end] != step.output[..] {
                return Some(format!("the output of step {} differs", range.step));
            }
            if step.foreign || !trained.insert(range.step) {
                return Some(format!(
                    "step {} is trained twice, or is foreign",
                    range.step
                ));
            }
        }
    }
    let excluded: BTreeSet<u64> = assembly
        .excluded
        .iter()
        .map(|(number, _)| *number)
        .collect();
    let both = trained.intersection(&excluded).count();
    let all = trained.len() + excluded.len();
    (both > 0 || all != steps.len()).then(|| "a step is neither or both".to_owned())
}

proptest! {
    #[test]
    fn the_left_context_of_each_trained_token_is_what_its_engine_had(
        steps in program(),
        seed in any::<u64>(),
    ) {
        let assembly = assemble(&steps, None);
        prop_assert_eq!(violation(&steps, &assembly), None);
        let mut shuffled = steps.clone();
        let count = shuffled.len() as u64;
        shuffled.sort_by_key(|s| (s.number.wrapping_mul(seed | 1) % 97, s.number % count));
        prop_assert_eq!(assemble(&shuffled, None), assembly);
    }

    #[test]
    fn a_broken_assembly_is_noticed(steps in program()) {
        let right = assemble(&steps, None);
        for break_it in BREAKS {
            let mut wrong = right.clone();
            break_it(&mut wrong);
            prop_assert!(wrong == right || violation(&steps, &wrong).is_some());
        }
    }

    #[test]
    fn storage_gives_every_prompt_back(steps in program()) {
        let mut deltas = Deltas::default();
        let mut earlier = BTreeMap::new();
        for step in steps {
            let delta = deltas.add(&step);
            prop_assert_eq!(restore(step.number, &delta, &earlier), Ok(step.prompt.clone()));
            earlier.insert(step.number, step);
        }
    }
}

/// Faults of other projects' mergers, applied to a right result.
const BREAKS: [fn(&mut Assembly); 5] = [
    train_an_observation,
    shift_by_one,
    train_shared_tokens_twice,
    lose_a_step,
    forget_an_exclusion,
];

fn train_an_observation(assembly: &mut Assembly) {
    let ranges = assembly.sequences.iter_mut().flat_map(|s| &mut s.sampled);
    ranges.for_each(|r| r.start = r.start.saturating_sub(1));
}

fn shift_by_one(assembly: &mut Assembly) {
    for sequence in &mut assembly.sequences {
        sequence.ids.rotate_left(1);
    }
}

fn train_shared_tokens_twice(assembly: &mut Assembly) {
    let first = assembly.sequences.first().cloned();
    assembly.sequences.extend(first);
}

fn lose_a_step(assembly: &mut Assembly) {
    if let Some(sequence) = assembly.sequences.first_mut() {
        sequence.sampled.pop();
    }
}

fn forget_an_exclusion(assembly: &mut Assembly) {
    assembly.excluded.pop();
}

fn step(number: u64, prompt: &[i32], output: &[i32]) -> Step {
    Step {
        number,
        prompt: prompt.to_vec(),
        output: output.to_vec(),
        logprobs: vec![-1.0; output.len()],
        delivery: Delivery::Complete,
        ..Step::default()
    }
}

#[test]
fn a_conversation_that_only_grows_is_one_sequence() {
    let steps = [
        step(1, &[1], &[2, 3]),
        step(2, &[1, 2, 3, 4], &[5]),
        step(3, &[1, 2, 3, 4, 5], &[6]),
    ];
    let assembly = assemble(&steps, None);
    assert_eq!(assembly.sequences.len(), 1);
    assert_eq!(assembly.sequences[0].ids, [1, 2, 3, 4, 5, 6]);
    let ranges: Vec<_> = assembly.sequences[0]
        .sampled
        .iter()
        .map(|r| (r.start, r.end))
        .collect();
    assert_eq!(ranges, [(1, 3), (4, 5), (5, 6)]);
    assert_eq!((assembly.roots, assembly.excluded.len()), (1, 0));
}

#[test]
fn a_history_of_equal_length_and_other_tokens_is_not_continued() {
    let steps = [step(1, &[1], &[2, 3]), step(2, &[1, 2, 9, 4], &[5])];
    let assembly = assemble(&steps, None);
    assert_eq!((assembly.sequences.len(), assembly.roots), (2, 2));
}

#[test]
fn the_longest_step_is_continued_and_not_the_latest() {
    let steps = [
        step(1, &[1], &[2]),
        step(2, &[1, 2], &[3]),
        step(3, &[1], &[2]),
        step(4, &[1, 2, 3], &[4]),
    ];
    let assembly = assemble(&steps, None);
    let last = assembly.sequences.last().expect("two sequences");
    assert_eq!(last.ids, [1, 2, 3, 4]);
}

#[test]
fn branches_share_a_trunk_that_is_trained_once() {
    let steps = [
        step(1, &[1], &[2]),
        step(2, &[1, 2, 7], &[3]),
        step(3, &[1, 2, 8], &[4]),
    ];
    let assembly = assemble(&steps, None);
    let trained: Vec<Vec<u64>> = assembly
        .sequences
        .iter()
        .map(|s| s.sampled.iter().map(|r| r.step).collect())
        .collect();
    assert_eq!(trained, [vec![1, 2], vec![3]]);
}

#[test]
fn equal_placeholders_of_different_images_are_not_merged() {
    let image = |digest| {
        vec![Medium {
            position: 0,
            digest: [digest; 32],
        }]
    };
    let first = Step {
        media: image(1),
        ..step(1, &[9, 1], &[2])
    };
    let same = Step {
        media: image(1),
        ..step(2, &[9, 1, 2], &[3])
    };
    let other = Step {
        media: image(2),
        ..step(2, &[9, 1, 2], &[3])
    };
    assert_eq!(assemble(&[first.clone(), same], None).roots, 1);
    assert_eq!(assemble(&[first, other], None).roots, 2);
}

#[test]
fn a_retry_keeps_the_answer_that_arrived() {
    let lost = Step {
        delivery: Delivery::Broken,
        ..step(1, &[1], &[2])
    };
    let kept = assemble(&[lost.clone(), step(2, &[1], &[3])], None);
    assert_eq!(kept.excluded, [(1, Exclusion::Superseded)]);
    let unknown = Step {
        delivery: Delivery::Unknown,
        ..step(2, &[1], &[3])
    };
    let neither = assemble(&[lost.clone(), unknown], None);
    assert_eq!(neither.excluded.len(), 2);
    assert_eq!(neither.excluded[0].1, Exclusion::UnresolvedRetry);
    // A single answer that its client left is not a retry.
    assert_eq!(assemble(&[lost], None).excluded, []);
}

#[test]
fn what_was_continued_arrived_whatever_became_of_the_rest() {
    let unknown = |number, output| Step {
        delivery: Delivery::Unknown,
        ..step(number, &[1], &[output])
    };
    let judge = Step {
        foreign: true,
        ..step(3, &[1, 2, 9], &[4])
    };
    let assembly = assemble(&[unknown(1, 2), unknown(2, 3), judge], None);
    let excluded = [(2, Exclusion::Superseded), (3, Exclusion::Foreign)];
    assert_eq!(assembly.excluded, excluded);
    assert_eq!((assembly.sequences.len(), assembly.roots), (1, 1));
}

#[test]
fn another_models_step_is_context() {
    let judge = Step {
        foreign: true,
        ..step(2, &[1, 2], &[3])
    };
    let assembly = assemble(
        &[step(1, &[1], &[2]), judge, step(3, &[1, 2, 3], &[4])],
        None,
    );
    assert_eq!(assembly.sequences.len(), 1);
    let trained: Vec<u64> = assembly.sequences[0]
        .sampled
        .iter()
        .map(|r| r.step)
        .collect();
    assert_eq!(
        (trained, assembly.excluded),
        (vec![1, 3], vec![(2, Exclusion::Foreign)])
    );
}
