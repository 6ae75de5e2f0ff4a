//! Sequences are compared with the steps that they train: each injected bug is found.

use crate::Rule;
use crate::payload::{Sequence, Span};
use crate::prove::{Findings, prove};
use crate::steps::Steps;
use serde_json::{Value, json};
use std::ops::Range;

/// A step that is written by hand.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) prompt: Vec<i32>,
    pub(super) output: Vec<i32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) version: u64,
}

/// The steps of a member, and what it trains.
#[derive(Clone, Default)]
pub(super) struct Case {
    pub(super) steps: Vec<Step>,
    pub(super) excluded: Vec<u64>,
    pub(super) sequences: Vec<Sequence>,
}

/// A bug, the rule that it breaks, and what is said of it first.
struct Bug {
    name: &'static str,
    rule: Rule,
    text: &'static str,
    inject: fn(&mut Case),
}

impl Case {
    /// Step 1 continues step 0, step 2 is another answer that its client did not get, step 3
    /// branches off after step 0, and step 4 begins anew with a prompt of the same length.
    fn good() -> Self {
        let mut case = Self {
            excluded: vec![2],
            ..Self::default()
        };
        case.step(&[1, 2, 3], &[4, 5], 3);
        case.step(&[1, 2, 3, 4, 5, 6, 7], &[8, 9], 3);
        case.step(&[1, 2, 3, 4, 5, 6, 7], &[8, 8], 3);
        case.step(&[1, 2, 3, 4, 5, 9], &[7], 4);
        case.step(&[2, 2, 3, 4, 5], &[6, 1], 4);
        case.sequence(1, &[0, 1]);
        case.sequence(3, &[3]);
        case.sequence(4, &[4]);
        case
    }

    pub(super) fn step(&mut self, prompt: &[i32], output: &[i32], version: u64) -> usize {
        let number = self.steps.len();
        let score = |at: usize| -0.1 - (10 * number + at) as f32;
        self.steps.push(Step {
            number: number as u64,
            prompt: prompt.to_vec(),
            output: output.to_vec(),
            logprobs: (0..output.len()).map(score).collect(),
            version,
        });
        number
    }

    /// Adds the sequence that ends with a step, in which these steps are trained.
    pub(super) fn sequence(&mut self, last: usize, trained: &[usize]) {
        let step = &self.steps[last];
        let mut sequence = Sequence {
            ids: [&*step.prompt, &step.output].concat(),
            ..Sequence::default()
        };
        for step in trained.iter().map(|at| &self.steps[*at]) {
            let positions = step.prompt.len()..step.prompt.len() + step.output.len();
            sequence.sampled.push(positions.clone());
            sequence.logprobs.extend(&step.logprobs);
            let version = step.version;
            sequence.versions.push(Span {
                positions,
                version,
                newest: version,
            });
        }
        self.sequences.push(sequence);
    }

    pub(super) fn json(&self) -> Value {
        let shown = |step: &Step| {
            json!({"number": step.number, "call": 17, "prompt": step.prompt,
            "output": step.output, "logprobs": step.logprobs, "version": step.version,
            "delivery": "complete"})
        };
        let excluded = self.excluded.iter();
        let excluded = excluded.map(|step| json!({"step": step, "reason": "superseded"}));
        json!({"program": "p1-a", "sample": null, "sequences": [], "breaks": [],
            "steps": self.steps.iter().map(shown).collect::<Vec<Value>>(),
            "excluded": excluded.collect::<Vec<Value>>()})
    }

    pub(super) fn findings(&self) -> Findings {
        let steps = Steps::parse(self.json().to_string().as_bytes());
        prove(&self.sequences, &steps.expect("steps"))
    }
}

const fn bug(name: &'static str, rule: Rule, text: &'static str, inject: fn(&mut Case)) -> Bug {
    Bug {
        name,
        rule,
        text,
        inject,
    }
}

const BUGS: &[Bug] = &[
    bug(
        "a prefix is compared by its length only",
        Rule::Context,
        "to the left of the range 5 to 7 of sequence 2 stands another prompt than that of step 4 \
         from position 0 on",
        |case| case.sequences[2].ids[0] = 1,
    ),
    bug(
        "an observation is trained",
        Rule::Context,
        "the range 3 to 6 of sequence 0 goes on after the output of step 0, up to 5",
        |case| {
            case.sequences[0].sampled[0].end = 6;
            case.sequences[0].logprobs.insert(2, -0.5);
        },
    ),
    bug(
        "an observation is trained by itself",
        Rule::Context,
        "the range 5 to 6 of sequence 0 is the output of no step",
        |case| {
            case.sequences[0].sampled.insert(1, 5..6);
            case.sequences[0].logprobs.insert(2, -0.5);
        },
    ),
    bug(
        "a shared token is trained twice",
        Rule::Coverage,
        "the range 3 to 5 of sequence 1 trains step 0 once more",
        |case| {
            case.sequences.remove(1);
            case.sequence(3, &[0, 3]);
            case.sequences.swap(1, 2);
        },
    ),
    bug(
        "a step is never trained",
        Rule::Coverage,
        "step 3 is trained nowhere, and it is not excluded",
        |case| drop(case.sequences.remove(1)),
    ),
    bug(
        "a log-probability is shifted by one",
        Rule::Scores,
        "position 7 of sequence 0 has another log-probability than in step 1",
        |case| case.sequences[0].logprobs[2..].rotate_left(1),
    ),
    bug(
        "a log-probability differs in its last bit",
        Rule::Scores,
        "position 4 of sequence 0 has another log-probability than in step 0",
        |case| {
            let score = &mut case.sequences[0].logprobs[1];
            *score = f32::from_bits(score.to_bits() + 1);
        },
    ),
    bug(
        "a range has the version of another step",
        Rule::Scores,
        "position 7 of sequence 0 has version 4; step 1 has version 3",
        |case| {
            let range = &mut case.sequences[0].versions[1];
            (range.version, range.newest) = (4, 4);
        },
    ),
    bug(
        "a token has no version",
        Rule::Scores,
        "position 8 of sequence 0 has no version; step 1 has version 3",
        |case| case.sequences[0].versions[1].positions.end = 8,
    ),
    bug(
        "two outputs are swapped",
        Rule::Context,
        "the range 3 to 5 of sequence 0 differs from the output of step 0 at position 3",
        |case| {
            let ids = &mut case.sequences[0].ids;
            (ids[3], ids[4], ids[7], ids[8]) = (8, 9, 4, 5);
        },
    ),
    bug(
        "a retry is kept that is excluded",
        Rule::Coverage,
        "the range 7 to 9 of sequence 0 trains step 2, which is excluded",
        |case| {
            case.sequences[0].ids[8] = 8;
            let own = case.steps[2].logprobs.clone();
            case.sequences[0].logprobs.splice(2.., own);
        },
    ),
    bug(
        "a retry is kept beside the step that is trained",
        Rule::Coverage,
        "the range 7 to 9 of sequence 3 trains step 2, which is excluded",
        |case| case.sequence(2, &[2]),
    ),
    bug(
        "a step is trained and excluded",
        Rule::Coverage,
        "the range 6 to 7 of sequence 1 trains step 3, which is excluded",
        |case| case.excluded.push(3),
    ),
    bug(
        "an id is changed in the middle of a context",
        Rule::Context,
        "to the left of the range 7 to 9 of sequence 0 stands another prompt than that of step 1 \
         from position 6 on",
        |case| case.sequences[0].ids[6] = 0,
    ),
    bug(
        "a base is one token too short",
        Rule::Context,
        "to the left of the range 6 to 8 of sequence 0 stands another prompt than that of step 1 \
         from position 6 on; it has 6 tokens, not 7",
        |case| {
            case.sequences[0].ids.remove(6);
            case.sequences[0].sampled[1] = 6..8;
            case.sequences[0].versions[1].positions = 6..8;
        },
    ),
    bug(
        "a range begins one token too early",
        Rule::Context,
        "the range 6 to 9 of sequence 0 is not the output of step 1, which is 7 to 9",
        |case| {
            case.sequences[0].sampled[1] = 6..9;
            case.sequences[0].logprobs.insert(2, -0.5);
        },
    ),
    bug(
        "a range ends one token too early",
        Rule::Context,
        "the range 7 to 8 of sequence 0 ends before the output of step 1 does",
        |case| {
            case.sequences[0].sampled[1] = 7..8;
            case.sequences[0].logprobs.pop();
        },
    ),
    bug(
        "a step has the number of another",
        Rule::Steps,
        "there are two steps 3",
        |case| case.steps[4].number = 3,
    ),
    bug(
        "a log-probability is missing",
        Rule::Steps,
        "step 3 has 0 log-probabilities for 1 tokens",
        |case| case.steps[3].logprobs.clear(),
    ),
    bug(
        "a step is excluded that is not stored",
        Rule::Steps,
        "step 9 is excluded, but it is not stored",
        |case| case.excluded.push(9),
    ),
    bug(
        "a step is excluded twice",
        Rule::Steps,
        "step 2 is excluded twice",
        |case| case.excluded.push(2),
    ),
];

pub(super) fn shown(findings: &Findings) -> Vec<&str> {
    findings.list.iter().map(|found| &*found.what).collect()
}

#[test]
fn a_good_member_is_proven() {
    assert_eq!(shown(&Case::good().findings()), [""; 0]);
    assert_eq!(shown(&Case::default().findings()), [""; 0]);
}

#[test]
fn each_bug_is_named() {
    for bug in BUGS {
        let mut case = Case::good();
        (bug.inject)(&mut case);
        let findings = case.findings();
        let first = findings.list.first().expect(bug.name);
        let found = (first.rule, &*first.what);
        assert_eq!(found, (bug.rule, bug.text), "{}", bug.name);
    }
}

#[test]
fn equal_steps_may_stand_for_each_other() {
    let mut case = Case::default();
    // Both have the same tokens, each with its own log-probabilities.
    for _ in 0..2 {
        case.step(&[1], &[2, 2], 0);
    }
    case.sequence(1, &[1]);
    case.sequence(0, &[0]);
    assert_eq!(shown(&case.findings()), [""; 0]);
    // One of them is excluded: the other one is to be trained.
    case.excluded = vec![1];
    case.sequences.remove(0);
    assert_eq!(shown(&case.findings()), [""; 0]);
    case.sequences[0]
        .logprobs
        .clone_from(&case.steps[1].logprobs);
    let expected = [
        "the range 1 to 3 of sequence 0 trains step 1, which is excluded",
        "step 0 is trained nowhere, and it is not excluded",
    ];
    assert_eq!(shown(&case.findings()), expected);
}

#[test]
fn a_range_may_have_the_outputs_of_several_steps() {
    let mut case = Case::default();
    case.step(&[1], &[2], 0);
    // The longest output that fits is not always the right one.
    case.step(&[1], &[2, 3], 0);
    case.step(&[1, 2], &[3, 4], 1);
    case.step(&[1, 2, 3, 4], &[5], 1);
    case.sequence(1, &[1]);
    case.sequence(3, &[0, 2, 3]);
    assert_eq!(shown(&case.findings()), [""; 0]);
    case.sequences[1].sampled = vec![Range { start: 1, end: 5 }];
    assert_eq!(shown(&case.findings()), [""; 0]);
    case.sequences[1].logprobs[2] = -0.5;
    let expected = ["position 3 of sequence 1 has another log-probability than in step 2"];
    assert_eq!(shown(&case.findings()), expected);
    case.steps[3].prompt[0] = 2;
    let expected = "the range 1 to 5 of sequence 1 goes on after the output of step 0, up to 2";
    assert_eq!(shown(&case.findings())[0], expected);
}

#[test]
fn many_faults_are_counted() {
    let mut case = Case::default();
    for id in 0..100 {
        case.step(&[1], &[id], 0);
    }
    let findings = case.findings();
    assert_eq!((findings.list.len(), findings.left_out), (32, 68));
    case.excluded = (0..100).collect();
    assert_eq!(shown(&case.findings()), [""; 0]);
}

#[test]
fn log_probabilities_are_read_with_all_bits() {
    let steps = |logprobs: &str| {
        let step = format!(
            "{{\"number\": 0, \"prompt\": [1], \"output\": [2], \"version\": 0, \"logprobs\": \
             {logprobs}}}"
        );
        Steps::parse(format!("{{\"steps\": [{step}], \"excluded\": []}}").as_bytes())
    };
    // Read as f64 and then rounded, it would be the next one.
    let read = steps("[ 7.038531e-26, null ]").expect("steps");
    let [first, second] = read.steps[0].logprobs[..] else {
        panic!("two numbers")
    };
    assert_eq!(first.to_bits(), 7.038_531e-26_f32.to_bits());
    assert!(second.is_nan());
    assert!(steps("[]").is_ok());
    for wrong in ["{}", "1", "[[1]]", "[\"1\"]", "[1"] {
        assert!(steps(wrong).is_err(), "{wrong}");
    }
}

/// Weights may change within an output.
#[test]
fn ranges_of_an_output_have_their_own_versions() {
    let mut case = Case::default();
    case.step(&[1], &[2, 3, 4], 5);
    case.sequence(0, &[0]);
    let mut json = case.json();
    json["steps"][0]["versions"] = json!([
        {"start": 0, "end": 1, "version": 5, "newest": 5},
        {"start": 1, "end": 3, "version": 6, "newest": 7},
    ]);
    let steps = Steps::parse(json.to_string().as_bytes()).expect("steps");
    let expected = ["position 2 of sequence 0 has version 5; step 0 has versions 6 to 7"];
    assert_eq!(shown(&prove(&case.sequences, &steps)), expected);
    let span = |positions, version, newest| Span {
        positions,
        version,
        newest,
    };
    case.sequences[0].versions = vec![span(1..2, 5, 5), span(2..4, 6, 7)];
    assert_eq!(shown(&prove(&case.sequences, &steps)), [""; 0]);
    // Only the newest version that may have sampled it differs.
    case.sequences[0].versions[1].newest = 6;
    let expected = ["position 2 of sequence 0 has version 6; step 0 has versions 6 to 7"];
    assert_eq!(shown(&prove(&case.sequences, &steps)), expected);
}
