//! The rule that merges the steps of a program into sequences.

use crate::breaks::Break;
use crate::check::{Fault, check};
use crate::prefix::PrefixHash;
use crate::step::{Delivery, Step};
use std::collections::{BTreeMap, BTreeSet};

/// The sequences of a program, and the steps that none of them trains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembly {
    /// The sequences, in the order of their last steps.
    pub sequences: Vec<Sequence>,
    /// Steps whose tokens are not trained, by their number in the journal.
    pub excluded: Vec<(u64, Exclusion)>,
    /// Steps that begin a sequence because they continue no earlier one.
    pub roots: usize,
    /// Why those after the first continue none, by their number in the journal.
    pub breaks: Vec<(u64, Break)>,
    /// Steps that continue a prefix which several earlier steps share.
    pub ambiguous: usize,
}

/// Tokens in the order in which an engine held them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// All tokens: prompts, outputs, and what stood between them.
    pub ids: Vec<i32>,
    /// Ranges to train, ascending; the rest is context.
    pub sampled: Vec<Sampled>,
}

/// A range of tokens that a step sampled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sampled {
    /// Number of the step in the journal.
    pub step: u64,
    /// Position of its first token in the sequence.
    pub start: usize,
    /// One past its last token.
    pub end: usize,
}

/// Why the tokens of a step are not trained.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Exclusion {
    /// The step failed a check.
    Fault(Fault),
    /// Another model produced it.
    Foreign,
    /// The client did not receive it and asked again.
    Superseded,
    /// It was asked for several times, and no answer is known to have arrived.
    UnresolvedRetry,
}

impl std::fmt::Display for Exclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Foreign => f.write_str("another model produced it"),
            Self::Superseded => f.write_str("its client asked again"),
            Self::UnresolvedRetry => f.write_str(
                "it was asked for several times, and no answer is known to have arrived",
            ),
        }
    }
}

/// Merges the steps of a program; their order does not matter. `vocabulary` is the size of the
/// model's, if it is known.
pub fn assemble(steps: &[Step], vocabulary: Option<i32>) -> Assembly {
    let mut assembly = Assembly::default();
    let mut valid = Vec::with_capacity(steps.len());
    for step in steps {
        match check(step, vocabulary) {
            Ok(()) => valid.push(step),
            Err(fault) => assembly
                .excluded
                .push((step.number, Exclusion::Fault(fault))),
        }
    }
    // A parent's prompt is shorter than its child's, so parents come first.
    valid.sort_by_key(|s| (s.prompt.len(), &s.prompt, &s.media, s.number));
    let mut tree = Tree::grow(&valid);
    assembly.ambiguous = tree.ambiguous;
    assembly.excluded.extend(tree.prune());
    let roots = tree.roots();
    assembly.roots = roots.len();
    let why = |(step, why): (u64, Option<Break>)| why.map(|why| (step, why));
    assembly.breaks = roots.into_iter().filter_map(why).collect();
    assembly.excluded.sort_by_key(|(number, _)| *number);
    assembly.sequences = tree.sequences();
    assembly
}

/// Steps by the index of the one that each continues.
struct Tree<'a> {
    steps: &'a [&'a Step],
    parents: Vec<Option<usize>>,
    /// How many steps continue each; after pruning, how many that are left.
    children: Vec<usize>,
    pruned: Vec<bool>,
    ambiguous: usize,
}

impl<'a> Tree<'a> {
    fn grow(steps: &'a [&'a Step]) -> Self {
        let mut contexts = Contexts::default();
        let mut parents = Vec::with_capacity(steps.len());
        let mut ambiguous = 0;
        for (index, step) in steps.iter().enumerate() {
            let candidates = contexts.longest(step, |i| continues(step, steps[i]));
            ambiguous += usize::from(candidates.len() > 1);
            let arrived = |i: &usize| (steps[*i].delivery == Delivery::Complete, steps[*i].number);
            parents.push(candidates.into_iter().max_by_key(arrived));
            contexts.insert(index, step);
        }
        let mut children = vec![0; steps.len()];
        for parent in parents.iter().flatten() {
            children[*parent] += 1;
        }
        Self {
            steps,
            parents,
            children,
            pruned: vec![false; steps.len()],
            ambiguous,
        }
    }

    /// Removes repeated requests that nothing continues, and what another model produced at the
    /// end of a branch. Children are decided before their parents.
    fn prune(&mut self) -> Vec<(u64, Exclusion)> {
        let mut excluded = Vec::new();
        let same_prompt = |a: &&Step, b: &&Step| a.prompt == b.prompt && a.media == b.media;
        // A step that was continued arrived, whatever became of what continued it.
        let continued: Vec<bool> = self.children.iter().map(|count| *count > 0).collect();
        let is_used = |i: usize, step: &Step| continued[i] || step.delivery == Delivery::Complete;
        let mut end = self.steps.len();
        for repeats in self.steps.chunk_by(same_prompt).rev() {
            let first = end - repeats.len();
            let own = repeats.iter().enumerate().filter(|(_, step)| !step.foreign);
            let used = own
                .clone()
                .filter(|(i, step)| is_used(first + i, step))
                .count();
            let repeated = own.count() > 1;
            for (index, step) in (first..end).zip(repeats) {
                let reason = if step.foreign {
                    Exclusion::Foreign
                } else if !repeated || is_used(index, step) {
                    continue;
                } else if used > 0 {
                    Exclusion::Superseded
                } else {
                    Exclusion::UnresolvedRetry
                };
                excluded.push((step.number, reason));
                if self.children[index] == 0 {
                    self.cut(index);
                }
            }
            end = first;
        }
        excluded
    }

    /// The steps that continue none, in the order of their numbers, and why.
    fn roots(&self) -> Vec<(u64, Option<Break>)> {
        let is_root = |i: &usize| self.parents[*i].is_none() && !self.pruned[*i];
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|i| self.steps[*i].number);
        let steps: Vec<&Step> = order.iter().map(|i| self.steps[*i]).collect();
        let roots = order.iter().enumerate().filter(|(_, index)| is_root(index));
        let roots = roots.map(|(at, index)| {
            let step = self.steps[*index];
            (step.number, Break::of(step, &steps[..at]))
        });
        roots.collect()
    }

    fn cut(&mut self, index: usize) {
        self.pruned[index] = true;
        if let Some(parent) = self.parents[index] {
            self.children[parent] -= 1;
        }
    }

    /// One sequence for each step that none continues. What several share is trained in the first.
    fn sequences(&self) -> Vec<Sequence> {
        let is_leaf = |i: &usize| self.children[*i] == 0 && !self.pruned[*i];
        let mut leaves: Vec<usize> = (0..self.steps.len()).filter(is_leaf).collect();
        leaves.sort_by_key(|i| self.steps[*i].number);
        let mut trained = vec![false; self.steps.len()];
        leaves
            .into_iter()
            .map(|leaf| self.sequence(leaf, &mut trained))
            .collect()
    }

    fn sequence(&self, leaf: usize, trained: &mut [bool]) -> Sequence {
        let mut path: Vec<usize> =
            std::iter::successors(Some(leaf), |i| self.parents[*i]).collect();
        path.reverse();
        let mut sequence = Sequence::default();
        for index in path {
            let step = self.steps[index];
            let known = sequence.ids.len();
            sequence.ids.extend(&step.prompt[known..]);
            let start = sequence.ids.len();
            sequence.ids.extend(&step.output);
            if !step.foreign && !std::mem::replace(&mut trained[index], true) {
                sequence.sampled.push(Sampled {
                    step: step.number,
                    start,
                    end: sequence.ids.len(),
                });
            }
        }
        sequence
    }
}

/// Prompts with outputs of the steps so far, by their lengths and hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contexts {
    lengths: BTreeSet<usize>,
    by_hash: BTreeMap<(usize, PrefixHash), Vec<usize>>,
}

impl Contexts {
    pub(crate) fn insert(&mut self, index: usize, step: &Step) {
        let length = step.context_len();
        self.lengths.insert(length);
        let key = (length, PrefixHash::of(step.context()));
        self.by_hash.entry(key).or_default().push(index);
    }

    /// The steps with the longest context that is a prefix of this step's prompt, of those that it
    /// may continue.
    pub(crate) fn longest(&self, step: &Step, continues: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut hash = PrefixHash::default();
        let mut hashed = 0;
        let mut found = Vec::new();
        for length in self.lengths.range(..=step.prompt.len()) {
            step.prompt[hashed..*length]
                .iter()
                .for_each(|t| hash.push(*t));
            hashed = *length;
            found.extend(self.by_hash.get(&(*length, hash)));
        }
        found
            .into_iter()
            .rev()
            .map(|same| {
                let following = same.iter().filter(|i| continues(**i));
                following.copied().collect::<Vec<usize>>()
            })
            .find(|same| !same.is_empty())
            .unwrap_or_default()
    }
}

/// Whether a step's prompt begins with all that the engine held after an earlier one.
fn continues(step: &Step, earlier: &Step) -> bool {
    let length = earlier.context_len();
    let tokens = step.prompt[..length].iter().copied();
    let media = step.media.iter().filter(|m| m.position < length);
    earlier.context().eq(tokens) && media.eq(&earlier.media)
}
