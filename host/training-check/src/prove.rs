//! Proves that the sequences of a member train its captured steps, and nothing else: each trained
//! range has the output of a step right after its prompt, with its log-probabilities and version,
//! and each step is trained once or excluded. So trained and excluded tokens together are all that
//! were sampled. Steps with the same prompt and output may stand for each other.
//!
//! It takes time in proportion to the tokens: hashes find the steps of a range, and each is then
//! compared once. How it shows faults is bounded by their number.

use crate::index::{Index, Similar, Trained};
use crate::payload::Sequence;
use crate::prefix::Prefix;
use crate::report::{Finding, Rule};
use crate::steps::Steps;
use crate::versions::Bounds;

/// Faults of a member that are listed; further ones are counted.
const FINDINGS_MAX: usize = 32;

/// What is wrong with a member.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    /// Those beyond the list.
    pub(crate) left_out: u64,
}

/// Compares the sequences of a member with its steps.
pub(crate) fn prove(sequences: &[Sequence], steps: &Steps) -> Findings {
    let mut prover = Prover {
        index: Index::of(&steps.steps, steps.excluded()),
        findings: Findings::default(),
    };
    for fault in steps.faults() {
        prover.findings.add(fault.rule, || fault.what);
    }
    // First what is certain: of steps with the same tokens, each range trains the one with its
    // log-probabilities.
    let ranges = ranges(sequences);
    let rest = prover.without_exact(ranges);
    let mut parts = Vec::new();
    for range in prover.without_known(rest) {
        let is_full = prover.findings.is_full();
        let cuts = (!is_full).then(|| prover.index.cuts(&range));
        match cuts {
            Some(cuts) if cuts.len() > 1 => parts.extend(pieces(&range, &cuts)),
            _ => prover.unknown(&range),
        }
    }
    let rest = prover.without_exact(parts);
    for range in prover.without_known(rest) {
        prover.unknown(&range);
    }
    for number in prover.index.left() {
        let what = || format!("step {number} is trained nowhere, and it is not excluded");
        prover.findings.add(Rule::Coverage, what);
    }
    prover.findings
}

fn ranges(sequences: &[Sequence]) -> Vec<Trained<'_>> {
    let mut ranges = Vec::new();
    for (number, sequence) in sequences.iter().enumerate() {
        let (mut hash, mut hashed, mut scores) = (Prefix::default(), 0, 0);
        for sampled in &sequence.sampled {
            let (start, end) = (sampled.start, sampled.end);
            let left = hash.with(&sequence.ids[hashed..start]);
            let whole = left.with(&sequence.ids[start..end]);
            let logprobs = &sequence.logprobs[scores..scores + sampled.len()];
            (hash, hashed, scores) = (whole, end, scores + sampled.len());
            ranges.push(Trained {
                sequence,
                number,
                start,
                end,
                logprobs,
                left,
                whole,
            });
        }
    }
    ranges
}

/// A range in parts that begin at these positions.
fn pieces<'s>(range: &Trained<'s>, starts: &[usize]) -> Vec<Trained<'s>> {
    let ends = starts.iter().skip(1).chain([&range.end]);
    let mut left = range.left;
    let piece = |(start, end): (&usize, &usize)| {
        let whole = left.with(&range.sequence.ids[*start..*end]);
        let logprobs = &range.logprobs[start - range.start..end - range.start];
        let piece = Trained {
            start: *start,
            end: *end,
            logprobs,
            left,
            whole,
            ..*range
        };
        left = whole;
        piece
    };
    starts.iter().zip(ends).map(piece).collect()
}

/// How many of the first items two lists share.
fn shared(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A range in words.
fn place(range: &Trained<'_>) -> String {
    let (number, start, end) = (range.number, range.start, range.end);
    format!("the range {start} to {end} of sequence {number}")
}

struct Prover<'s> {
    index: Index<'s>,
    findings: Findings,
}

impl Findings {
    fn is_full(&self) -> bool {
        self.list.len() >= FINDINGS_MAX
    }

    fn add(&mut self, rule: Rule, what: impl FnOnce() -> String) {
        if self.is_full() {
            self.left_out += 1;
        } else {
            self.list.push(Finding::of(rule, what()));
        }
    }
}

impl<'s> Prover<'s> {
    /// Takes the steps that ranges train with the same log-probabilities and version. Answers the
    /// other ranges.
    fn without_exact(&mut self, ranges: Vec<Trained<'s>>) -> Vec<Trained<'s>> {
        let mut rest = Vec::new();
        for range in ranges {
            match self.index.take_scored(&range) {
                Some(at) if self.index.is_excluded(at) => self.excluded(&range, at),
                Some(_) => {}
                None => rest.push(range),
            }
        }
        rest
    }

    /// Takes the steps that ranges train otherwise, and says what is wrong. Answers the ranges that
    /// train none.
    fn without_known(&mut self, ranges: Vec<Trained<'s>>) -> Vec<Trained<'s>> {
        let mut rest = Vec::new();
        for range in ranges {
            if let Some(at) = self.index.take_tokens(&range) {
                if self.index.is_excluded(at) {
                    self.excluded(&range, at);
                } else {
                    self.scores(&range, at);
                }
            } else if let Some(step) = self.index.known(&range) {
                let what = || format!("{} trains step {} once more", place(&range), step.number);
                self.findings.add(Rule::Coverage, what);
            } else {
                rest.push(range);
            }
        }
        rest
    }

    fn excluded(&mut self, range: &Trained<'_>, at: usize) {
        let number = self.index.step(at).number;
        let what = || format!("{} trains step {number}, which is excluded", place(range));
        self.findings.add(Rule::Coverage, what);
    }

    /// What differs in the log-probabilities and version of a range that trains this step.
    fn scores(&mut self, range: &Trained<'_>, at: usize) {
        let step = self.index.step(at);
        let (number, sequence) = (step.number, range.number);
        let mut pairs = range.logprobs.iter().zip(&step.logprobs);
        if let Some(first) = pairs.position(|(a, b)| a.to_bits() != b.to_bits()) {
            let position = range.start + first;
            let what = || {
                format!(
                    "position {position} of sequence {sequence} has another log-probability than \
                     in step {number}"
                )
            };
            self.findings.add(Rule::Scores, what);
        }
        if let Some(other) = range.versions().other(&step.versions()) {
            let position = range.start + other.position;
            let named = |bounds: Option<Bounds>| {
                bounds.map_or("no version".to_owned(), |found| found.to_string())
            };
            let (found, own) = (named(other.found), named(other.expected));
            let what = || {
                format!(
                    "position {position} of sequence {sequence} has {found}; step {number} has \
                     {own}"
                )
            };
            self.findings.add(Rule::Scores, what);
        }
    }

    /// Says what is wrong with a range that trains no step.
    fn unknown(&mut self, range: &Trained<'_>) {
        if self.findings.is_full() {
            self.findings.left_out += 1;
            return;
        }
        let similar = self.index.take_similar(range);
        let (ids, context, end) = (range.ids(), range.context(), range.end);
        let at = place(range);
        let what = || match similar {
            None => format!("{at} is the output of no step"),
            Some(Similar::Whole(step)) => {
                let (number, start) = (step.number, step.prompt.len());
                format!("{at} is not the output of step {number}, which is {start} to {end}")
            }
            Some(Similar::Prompt(step)) => {
                let (number, same) = (step.number, shared(ids, &step.output));
                let position = range.start + same;
                if same == step.output.len() {
                    format!("{at} goes on after the output of step {number}, up to {position}")
                } else if same == ids.len() {
                    format!("{at} ends before the output of step {number} does")
                } else {
                    format!("{at} differs from the output of step {number} at position {position}")
                }
            }
            Some(Similar::Output(step)) => {
                let (number, same) = (step.number, shared(context, &step.prompt));
                let (prompt, start) = (step.prompt.len(), context.len());
                let lengths = if prompt == start {
                    String::new()
                } else {
                    format!("; it has {start} tokens, not {prompt}")
                };
                format!(
                    "to the left of {at} stands another prompt than that of step {number} from \
                     position {same} on{lengths}"
                )
            }
        };
        self.findings.add(Rule::Context, what);
    }
}
