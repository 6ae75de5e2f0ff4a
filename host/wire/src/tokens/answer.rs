//! The tokens of an answer.

use super::versions::NamedSpan;
use std::collections::BTreeMap;

/// Choices of an answer.
const CHOICES_MAX: usize = 1_024;
/// Tokens of a choice.
const CHOICE_TOKENS_MAX: usize = 1 << 23;
/// Longest text of a choice.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;

/// Tokens of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerTokens {
    /// Ids of the prompt; empty if the engine reports none.
    pub prompt: Vec<i32>,
    /// The prompt as the engine tokenised it, if it reports text.
    pub prompt_text: Option<String>,
    /// What was sampled, by the number of the choice.
    pub choices: BTreeMap<u64, ChoiceTokens>,
    /// Prompt tokens by the engine's own count.
    pub prompt_tokens: Option<u64>,
    /// Output tokens by the engine's own count.
    pub output_tokens: Option<u64>,
}

/// Tokens of a choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceTokens {
    /// Their ids.
    pub ids: Vec<i32>,
    /// Their log-probabilities; NaN for one that the engine reports none of.
    pub logprobs: Vec<f32>,
    /// The versions of weights that the engine names for all of them; else empty.
    pub versions: Vec<NamedSpan>,
    /// The answer's text, without thinking and calls; cut off after 1 MiB.
    pub text: String,
}

impl AnswerTokens {
    /// A choice, unless it would be one too many or is too long.
    pub(super) fn choice(&mut self, index: u64) -> Option<&mut ChoiceTokens> {
        let choices = &mut self.choices;
        let is_full = choices.len() >= CHOICES_MAX && !choices.contains_key(&index);
        let tokens: usize = choices.get(&index).map_or(0, |choice| choice.ids.len());
        let fits = !is_full && tokens < CHOICE_TOKENS_MAX;
        fits.then(|| choices.entry(index).or_default())
    }
}
