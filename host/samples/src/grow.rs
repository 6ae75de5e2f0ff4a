//! The rule that merges steps into sequences, for steps that come one at a time while their program
//! runs. It keeps hashes, and no tokens.
//!
//! A sequence only grows at its end, so what was said of its first tokens stays true. [`assemble`]
//! sees all steps: its sequences have the same tokens, in an order and with branches of its own.
//!
//! [`assemble`]: crate::assemble()

use crate::assemble::Contexts;
use crate::step::{Medium, Step};
use std::collections::BTreeMap;

/// The sequences of a program that runs.
#[derive(Clone, Debug, Default)]
pub struct Growing {
    contexts: Contexts,
    steps: Vec<Grown>,
    /// Steps by call and output.
    places: BTreeMap<(u64, usize), usize>,
    /// Length of each sequence.
    lengths: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Grown {
    number: u64,
    media: Vec<Medium>,
    sequence: usize,
    end: usize,
}

/// Where a step is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Number of its sequence.
    pub sequence: usize,
    /// Position of the first token that it adds: of its prompt, or of its output.
    pub start: usize,
    /// Why it begins its sequence, if it does.
    pub begins: Option<Begins>,
}

/// Why a step begins a sequence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begins {
    /// It is the first of its program.
    First,
    /// It continues no earlier step.
    Break,
    /// It continues a step that another one has continued: its sequence begins with tokens of
    /// another one.
    Branch {
        /// That sequence.
        sequence: usize,
        /// Its tokens that both begin with.
        tokens: usize,
    },
}

impl Growing {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds a step, which has the number of its call and is this output of it.
    pub fn add(&mut self, step: &Step, output: usize) -> Placed {
        let fits = |index: usize| {
            let earlier = &self.steps[index];
            let media = step.media.iter().filter(|m| m.position < earlier.end);
            media.eq(&earlier.media)
        };
        let candidates = self.contexts.longest(step, fits);
        let parent = candidates.into_iter().max_by_key(|i| self.steps[*i].number);
        let parent = parent.map(|index| &self.steps[index]);
        let next = self.lengths.len();
        let placed = match parent {
            Some(Grown { sequence, end, .. }) => {
                let is_tip = self.lengths[*sequence] == *end;
                let branch = Begins::Branch {
                    sequence: *sequence,
                    tokens: *end,
                };
                Placed {
                    sequence: if is_tip { *sequence } else { next },
                    start: *end,
                    begins: (!is_tip).then_some(branch),
                }
            }
            None => Placed {
                sequence: next,
                start: 0,
                begins: Some(if self.steps.is_empty() {
                    Begins::First
                } else {
                    Begins::Break
                }),
            },
        };
        let (sequence, end) = (placed.sequence, step.context_len());
        self.lengths.resize(self.lengths.len().max(sequence + 1), 0);
        self.lengths[sequence] = end;
        let index = self.steps.len();
        self.contexts.insert(index, step);
        self.places.insert((step.number, output), index);
        self.steps.push(Grown {
            number: step.number,
            media: step.media.clone(),
            sequence,
            end,
        });
        placed
    }

    /// The sequence with a step, by its call and output, and the length of the sequence up to it.
    pub fn place(&self, number: u64, output: usize) -> Option<(usize, usize)> {
        let step = &self.steps[*self.places.get(&(number, output))?];
        Some((step.sequence, step.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delivery, assemble};
    use proptest::prelude::*;

    fn step(number: u64, prompt: &[i32], output: &[i32]) -> Step {
        Step {
            number,
            prompt: prompt.to_vec(),
            output: output.to_vec(),
            logprobs: vec![-0.5; output.len()],
            delivery: Delivery::Complete,
            ..Step::default()
        }
    }

    #[test]
    fn steps_continue_break_and_branch() {
        let mut growing = Growing::default();
        let placed = |sequence, start, begins| Placed {
            sequence,
            start,
            begins,
        };
        let branch = Begins::Branch {
            sequence: 0,
            tokens: 3,
        };
        for (step, expected) in [
            (step(0, &[1, 2], &[3]), placed(0, 0, Some(Begins::First))),
            (step(1, &[1, 2, 3, 4], &[5]), placed(0, 3, None)),
            (step(2, &[1, 9], &[5]), placed(1, 0, Some(Begins::Break))),
            (step(3, &[1, 2, 3, 7], &[8]), placed(2, 3, Some(branch))),
            (step(4, &[1, 2, 3, 7, 8], &[6]), placed(2, 5, None)),
            (step(5, &[1, 2, 3, 4, 5], &[6]), placed(0, 5, None)),
        ] {
            assert_eq!(growing.add(&step, 0), expected, "step {}", step.number);
        }
        assert_eq!(growing.place(4, 0), Some((2, 6)));
        assert_eq!(growing.place(4, 1), None);
    }

    #[test]
    fn other_images_continue_nothing() {
        let mut growing = Growing::default();
        let with = |number, prompt: &[i32], digest: u8| {
            let medium = Medium {
                position: 1,
                digest: [digest; 32],
            };
            let media = vec![medium];
            Step {
                media,
                ..step(number, prompt, &[3])
            }
        };
        growing.add(&with(0, &[1, 2], 7), 0);
        let other = growing.add(&with(1, &[1, 2, 3, 4], 8), 0);
        assert_eq!(other.begins, Some(Begins::Break));
        let same = growing.add(&with(2, &[1, 2, 3, 4], 7), 0);
        assert_eq!((same.sequence, same.start), (0, 3));
    }

    proptest! {
        /// What comes step by step has the tokens of what all steps form.
        #[test]
        fn sequences_have_the_tokens_of_the_whole(
            turns in prop::collection::vec((0_usize..6, prop::collection::vec(0..3, 0..3), 0..3), 1..12)
        ) {
            let mut steps: Vec<Step> = Vec::new();
            for (number, (from, added, sampled)) in (0..).zip(turns) {
                let earlier = steps.get(from);
                let mut prompt: Vec<i32> = earlier.map_or(vec![1], |s| s.context().collect());
                prompt.extend(added);
                steps.push(step(number, &prompt, &[sampled]));
            }
            let mut growing = Growing::default();
            let mut sequences: Vec<Vec<i32>> = Vec::new();
            for step in &steps {
                let placed = growing.add(step, 0);
                if let Some(begins) = placed.begins {
                    let shared = match begins {
                        Begins::Branch { sequence, tokens } => sequences[sequence][..tokens].to_vec(),
                        Begins::First | Begins::Break => Vec::new(),
                    };
                    prop_assert_eq!(placed.sequence, sequences.len());
                    sequences.push(shared);
                }
                let sequence = &mut sequences[placed.sequence];
                prop_assert_eq!(sequence.len(), placed.start);
                sequence.extend(step.context().skip(placed.start));
            }
            let whole = assemble(&steps, None);
            for sequence in &whole.sequences {
                let last = sequence.sampled.last().expect("each has a step of its own");
                let (of, tokens) = growing.place(last.step, 0).expect("it was added");
                prop_assert_eq!(&sequence.ids, &sequences[of][..tokens]);
            }
        }
    }
}
