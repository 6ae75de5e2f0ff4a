//! A step as its engine reported it.

use serde::{Deserialize, Serialize};

/// Largest number of tokens in a step's prompt and output together.
pub const TOKENS_MAX: usize = 1 << 23;
/// Engines report a missing log-probability as this value or a lower one.
pub const LOGPROB_FLOOR: f32 = -9_999.0;

/// One call of a program: its prompt, and the tokens that were sampled after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Position in the journal, which orders the steps of a program.
    pub number: u64,
    /// Ids of the prompt's tokens.
    pub prompt: Vec<i32>,
    /// Ids of the sampled tokens, the stop token included.
    pub output: Vec<i32>,
    /// Log-probability of each sampled token.
    pub logprobs: Vec<f32>,
    /// Prompt tokens by the engine's own count, if it gave one.
    pub prompt_tokens: Option<u64>,
    /// Output tokens by the engine's own count, if it gave one.
    pub output_tokens: Option<u64>,
    /// Weight versions of ranges of the output, in order.
    pub versions: Vec<Span>,
    /// Images and audio in the prompt, by position.
    pub media: Vec<Medium>,
    /// Whether its client received the whole answer.
    pub delivery: Delivery,
    /// Another model than the job's produced it: its tokens are context only.
    pub foreign: bool,
}

impl Step {
    /// Prompt and output: what the engine held when it sampled the last token.
    pub fn context(&self) -> impl Iterator<Item = i32> + '_ {
        self.prompt.iter().chain(&self.output).copied()
    }

    /// Length of [`Step::context`].
    pub fn context_len(&self) -> usize {
        self.prompt.len() + self.output.len()
    }
}

/// A range of output tokens and the weights that sampled it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// First token, counted from the start of the output.
    pub start: usize,
    /// One past the last token.
    pub end: usize,
    /// The oldest version that may have sampled a token of it.
    pub version: u64,
    /// The newest: the same, unless weights changed meanwhile and nobody said at which token.
    pub newest: u64,
}

impl Span {
    /// An output that one version sampled.
    pub fn whole(output: &[i32], version: u64) -> Self {
        Self {
            start: 0,
            end: output.len(),
            version,
            newest: version,
        }
    }
}

/// An image or a piece of audio: equal placeholder tokens stand for different contents.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Medium {
    /// Position of its first token in the prompt.
    pub position: usize,
    /// Digest of its content.
    pub digest: [u8; 32],
}

/// Whether a client received an answer to its last byte.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Delivery {
    /// It did.
    Complete,
    /// It left before the end.
    Broken,
    /// The daemon ended in between.
    #[default]
    Unknown,
}
