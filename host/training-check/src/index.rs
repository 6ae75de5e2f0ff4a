//! The steps of a member by what they have in common with a trained range. Each step is taken once.

use crate::payload::Sequence;
use crate::prefix::Prefix;
use crate::steps::Step;
use crate::versions::{Bounds, Versions};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Trained positions of a sequence.
#[derive(Clone, Copy)]
pub(crate) struct Trained<'s> {
    pub(crate) sequence: &'s Sequence,
    /// Number of the sequence.
    pub(crate) number: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Log-probabilities of its tokens.
    pub(crate) logprobs: &'s [f32],
    /// Hash of what stands to its left.
    pub(crate) left: Prefix,
    /// Hash of all up to its end.
    pub(crate) whole: Prefix,
}

/// Prompt and output: equal for a step and a range that trains it.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct Tokens {
    prompt: usize,
    end: usize,
    hash: Prefix,
}

/// What was sampled with which log-probabilities and versions.
#[derive(Clone, Eq, Hash, PartialEq)]
struct Scored {
    tokens: Tokens,
    logprobs: Prefix,
    versions: Versions,
}

/// A list of tokens by its length and hash.
type Key = (usize, Prefix);

/// Steps, those to be trained before those that are excluded.
pub(crate) struct Index<'s> {
    steps: &'s [Step],
    excluded: Vec<bool>,
    taken: Vec<bool>,
    scored: HashMap<Scored, VecDeque<usize>>,
    tokens: HashMap<Tokens, VecDeque<usize>>,
    by_prompt: HashMap<Key, Vec<usize>>,
    by_whole: HashMap<Key, Vec<usize>>,
    by_output: HashMap<Key, Vec<usize>>,
    /// Hashes of prompt and output together.
    wholes: Vec<Prefix>,
}

/// A step with something in common with a range that trains none.
#[derive(Clone, Copy)]
pub(crate) enum Similar<'s> {
    /// Prompt and output together are the same; it begins to sample elsewhere.
    Whole(&'s Step),
    /// Its prompt stands to the left of the range.
    Prompt(&'s Step),
    /// The range has its output.
    Output(&'s Step),
}

impl Trained<'_> {
    pub(crate) fn ids(&self) -> &[i32] {
        &self.sequence.ids[self.start..self.end]
    }

    /// What stands to its left.
    pub(crate) fn context(&self) -> &[i32] {
        &self.sequence.ids[..self.start]
    }

    fn tokens(&self) -> Tokens {
        Tokens {
            prompt: self.start,
            end: self.end,
            hash: self.whole,
        }
    }

    fn trains(&self, step: &Step) -> bool {
        step.prompt == self.context() && step.output == self.ids()
    }

    /// The versions of its tokens.
    pub(crate) fn versions(&self) -> Versions {
        let spans = &self.sequence.versions;
        let first = spans.partition_point(|span| span.positions.end <= self.start);
        let own = spans[first..].iter();
        let own = own.take_while(|span| span.positions.start < self.end);
        let within = |position: usize| position.clamp(self.start, self.end) - self.start;
        let own = own.map(|span| {
            let (start, end) = (span.positions.start, span.positions.end);
            let bounds = Bounds {
                oldest: span.version,
                newest: span.newest,
            };
            (within(start)..within(end), bounds)
        });
        Versions::of(own.collect(), self.end - self.start)
    }
}

fn bits(logprobs: &[f32]) -> Prefix {
    let one = |hash: Prefix, value: &f32| hash.with(&[value.to_bits().cast_signed()]);
    logprobs.iter().fold(Prefix::default(), one)
}

impl<'s> Index<'s> {
    pub(crate) fn of(steps: &'s [Step], excluded: Vec<bool>) -> Self {
        let mut index = Self {
            steps,
            taken: vec![false; steps.len()],
            scored: HashMap::new(),
            tokens: HashMap::new(),
            by_prompt: HashMap::new(),
            by_whole: HashMap::new(),
            by_output: HashMap::new(),
            wholes: vec![Prefix::default(); steps.len()],
            excluded,
        };
        for is_excluded in [false, true] {
            for (at, step) in steps.iter().enumerate() {
                if index.excluded[at] == is_excluded {
                    index.add(at, step);
                }
            }
        }
        index
    }

    fn add(&mut self, at: usize, step: &Step) {
        let (prompt, output) = (step.prompt.len(), step.output.len());
        let left = Prefix::of(&step.prompt);
        let hash = left.with(&step.output);
        let end = prompt + output;
        let tokens = Tokens { prompt, end, hash };
        let scored = Scored {
            tokens,
            logprobs: bits(&step.logprobs),
            versions: step.versions(),
        };
        self.wholes[at] = hash;
        self.scored.entry(scored).or_default().push_back(at);
        self.tokens.entry(tokens).or_default().push_back(at);
        self.by_prompt.entry((prompt, left)).or_default().push(at);
        self.by_whole.entry((end, hash)).or_default().push(at);
        let own = (output, Prefix::of(&step.output));
        self.by_output.entry(own).or_default().push(at);
    }

    pub(crate) fn step(&self, at: usize) -> &'s Step {
        &self.steps[at]
    }

    pub(crate) fn is_excluded(&self, at: usize) -> bool {
        self.excluded[at]
    }

    /// Takes a step that this range trains with the same log-probabilities and versions.
    pub(crate) fn take_scored(&mut self, range: &Trained<'_>) -> Option<usize> {
        let key = Scored {
            tokens: range.tokens(),
            logprobs: bits(range.logprobs),
            versions: range.versions(),
        };
        let at = next(self.scored.get_mut(&key)?, &self.taken)?;
        let (step, range_bits) = (&self.steps[at], range.logprobs.iter().map(|p| p.to_bits()));
        let is_same = step.logprobs.iter().map(|p| p.to_bits()).eq(range_bits);
        (is_same && range.trains(step)).then(|| self.take(at))
    }

    /// Takes a step that this range trains, with whatever log-probabilities.
    pub(crate) fn take_tokens(&mut self, range: &Trained<'_>) -> Option<usize> {
        let at = next(self.tokens.get_mut(&range.tokens())?, &self.taken)?;
        range.trains(&self.steps[at]).then(|| self.take(at))
    }

    fn take(&mut self, at: usize) -> usize {
        self.taken[at] = true;
        at
    }

    /// A step that this range trains, though it may be taken.
    pub(crate) fn known(&self, range: &Trained<'_>) -> Option<&'s Step> {
        // The lists of `tokens` become shorter.
        let same = self.by_whole.get(&(range.end, range.whole))?.iter();
        let mut same = same.map(|at| &self.steps[*at]);
        same.find(|step| step.prompt.len() == range.start)
    }

    /// Where this range has to be cut so that each part has the output of a step right after its
    /// prompt; nothing if it can't be.
    pub(crate) fn cuts(&self, range: &Trained<'_>) -> Vec<usize> {
        let ids = range.ids();
        let mut hashes = vec![range.left];
        hashes.extend(ids.iter().scan(range.left, |hash, id| {
            *hash = hash.with(&[*id]);
            Some(*hash)
        }));
        let mut before = vec![None; hashes.len()];
        for (from, left) in hashes.iter().enumerate() {
            if from > 0 && before[from].is_none() {
                continue;
            }
            let steps = self.by_prompt.get(&(range.start + from, *left));
            for at in steps.into_iter().flatten() {
                let to = from + self.steps[*at].output.len();
                if to > from && hashes.get(to) == Some(&self.wholes[*at]) {
                    before[to] = Some(from);
                }
            }
        }
        let end = hashes.len() - 1;
        let back = std::iter::successors(before[end], |at| before[*at]);
        let mut cuts: Vec<usize> = back.map(|at| range.start + at).collect();
        cuts.reverse();
        cuts
    }

    /// Takes the step that is most similar to a range that trains none: with what they have in
    /// common, faults are shown where they are.
    pub(crate) fn take_similar(&mut self, range: &Trained<'_>) -> Option<Similar<'s>> {
        let output = (range.ids().len(), Prefix::of(range.ids()));
        let whole = self.by_whole.get(&(range.end, range.whole));
        let prompt = self.by_prompt.get(&(range.start, range.left));
        let output = self.by_output.get(&output);
        let is_open = |at: &&usize| !self.taken[**at] && !self.excluded[**at];
        let is_aligned = |at: &&usize| self.steps[**at].prompt.len() == range.start;
        let open = |list: Option<&'_ Vec<usize>>| list?.iter().find(is_open).copied();
        let aligned = output.and_then(|list| {
            let mut aligned = list.iter().filter(is_aligned);
            aligned.find(is_open).copied()
        });
        let any = |list: Option<&'_ Vec<usize>>| list?.first().copied();
        let (kind, at): (fn(&'s Step) -> Similar<'s>, usize) = [
            (Similar::Whole as fn(&'s Step) -> Similar<'s>, open(whole)),
            (Similar::Prompt, open(prompt)),
            (Similar::Output, aligned),
            (Similar::Output, open(output)),
            (Similar::Whole, any(whole)),
            (Similar::Prompt, any(prompt)),
            (Similar::Output, any(output)),
        ]
        .into_iter()
        .find_map(|(kind, at)| Some((kind, at?)))?;
        // One that is excluded stays what it is.
        self.taken[at] |= !self.excluded[at];
        Some(kind(&self.steps[at]))
    }

    /// Steps that are to be trained and were not taken, by their numbers.
    pub(crate) fn left(&self) -> BTreeSet<u64> {
        let open = (0..self.steps.len()).filter(|at| !self.taken[*at] && !self.excluded[*at]);
        open.map(|at| self.steps[at].number).collect()
    }
}

/// The first of these that is not taken.
fn next(steps: &mut VecDeque<usize>, taken: &[bool]) -> Option<usize> {
    while steps.front().is_some_and(|at| taken[*at]) {
        steps.pop_front();
    }
    steps.front().copied()
}
