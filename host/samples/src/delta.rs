//! Steps as they are stored: only what a prompt adds to an earlier step of its program.

use crate::prefix::PrefixHash;
use crate::step::Step;
use std::collections::BTreeMap;
use thiserror::Error;

/// Prefixes are compared in blocks of this many tokens.
const BLOCK: usize = 64;
/// Reading a step reads at most this many earlier ones.
const DEPTH_MAX: u32 = 32;

/// A step's prompt, as the difference from an earlier step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Delta {
    /// The earlier step, if the prompts have a block in common.
    pub base: Option<u64>,
    /// How many tokens of that step's prompt and output come first.
    pub base_tokens: usize,
    /// The rest of the prompt.
    pub tail: Vec<i32>,
}

/// Finds the bases of a program's steps. It keeps a hash for every 64 tokens, and no tokens.
#[derive(Clone, Debug, Default)]
pub struct Deltas {
    blocks: BTreeMap<PrefixHash, Block>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    step: u64,
    tokens: usize,
    depth: u32,
}

impl Deltas {
    /// Number of blocks that it holds.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The difference of a step from those before it; the step is a base of later ones from then
    /// on.
    pub fn add(&mut self, step: &Step) -> Delta {
        let mut hash = PrefixHash::default();
        let mut prefixes = Vec::new();
        for (index, token) in step.context().enumerate() {
            hash.push(token);
            if (index + 1) % BLOCK == 0 {
                prefixes.push((hash, index + 1));
            }
        }
        let in_prompt = prefixes
            .iter()
            .rev()
            .filter(|(_, n)| *n <= step.prompt.len());
        let longest = in_prompt.filter_map(|(hash, tokens)| {
            let block = self.blocks.get(hash)?;
            (block.tokens == *tokens).then_some(*block)
        });
        // Steps are read in the order of their numbers, whatever the order in which they ended.
        let mut earlier = longest.filter(|block| block.step < step.number);
        let base = earlier.next().filter(|block| block.depth < DEPTH_MAX);
        let base_tokens = base.map_or(0, |block| block.tokens);
        let own = Block {
            step: step.number,
            tokens: 0,
            depth: base.map_or(0, |block| block.depth + 1),
        };
        for (hash, tokens) in prefixes.into_iter().filter(|(_, n)| *n > base_tokens) {
            let known = self.blocks.get(&hash);
            if known.is_none_or(|known| known.step > own.step) {
                self.blocks.insert(hash, Block { tokens, ..own });
            }
        }
        Delta {
            base: base.map(|block| block.step),
            base_tokens,
            tail: step.prompt[base_tokens..].to_vec(),
        }
    }
}

/// Why a stored step can't be read.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DeltaError {
    /// A step names a base that is not before it.
    #[error("step {step} names step {base} as its base, which is not before it")]
    Base {
        /// The step.
        step: u64,
        /// Its base.
        base: u64,
    },
    /// The base is shorter than the part of it that the step names.
    #[error("step {step} begins with {named} tokens of step {base}, which has {held}")]
    Short {
        /// The step.
        step: u64,
        /// Its base.
        base: u64,
        /// How many tokens of the base it names.
        named: usize,
        /// How many the base has.
        held: usize,
    },
}

/// Puts the prompt of `step` together again; `earlier` has the whole steps before it by number.
///
/// # Errors
/// [`DeltaError`] if its base is missing or too short.
pub fn restore(
    step: u64,
    delta: &Delta,
    earlier: &BTreeMap<u64, Step>,
) -> Result<Vec<i32>, DeltaError> {
    let Some(base) = delta.base else {
        return Ok(delta.tail.clone());
    };
    let held = earlier.get(&base).ok_or(DeltaError::Base { step, base })?;
    let named = delta.base_tokens;
    if named > held.context_len() {
        let held = held.context_len();
        return Err(DeltaError::Short {
            step,
            base,
            named,
            held,
        });
    }
    Ok(held
        .context()
        .take(named)
        .chain(delta.tail.iter().copied())
        .collect())
}
