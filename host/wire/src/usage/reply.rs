//! The parts of any engine's reply with its usage and its end.

use super::lenient::{Count, HasText, Kind, ListLength, Many, One, Reason};
use super::response::{Incomplete, OutputItem, Response, Status, finish_of_response};
use super::weights::{Metadata, Stretches, WeightVersion};
use super::{Finish, StepUsage};
use serde::Deserialize;
use serde_json::value::RawValue;
use treadle_model::TOKENS_MAX;

/// A whole reply or one event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Reply<'a> {
    /// In OpenAI's and Anthropic's APIs.
    pub(super) usage: One<Usage>,
    /// In llama.cpp's API.
    pub(super) timings: One<Timings>,
    /// In SGLang's API, one per output.
    pub(super) meta_info: Many<MetaInfo>,
    /// In SGLang's API: the output of a batch that an event is about.
    pub(super) index: Count,
    pub(super) choices: Many<Choice>,
    /// In a whole reply of Anthropic's API.
    pub(super) stop_reason: Reason,
    /// In the first event of Anthropic's streams.
    pub(super) message: One<Opening>,
    /// In later events of Anthropic's streams.
    pub(super) delta: One<Delta>,
    /// SGLang's addition to responses in OpenAI's form.
    pub(super) metadata: One<Metadata>,
    /// In the last event of streams of `/v1/responses`.
    pub(super) response: One<Response>,
    /// In a whole reply of `/v1/responses`.
    pub(super) status: Status,
    pub(super) output: Many<OutputItem>,
    pub(super) incomplete_details: One<Incomplete>,
    /// Anthropic's name of an event.
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    /// OpenAI's name of an object.
    pub(super) object: Kind,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    prompt_tokens: Count,
    completion_tokens: Count,
    prompt_tokens_details: One<PromptDetails>,
    input_tokens_details: One<PromptDetails>,
    input_tokens: Count,
    pub(super) output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Timings {
    #[serde(rename = "cache_n")]
    cached: Count,
    #[serde(rename = "prompt_n")]
    evaluated: Count,
    #[serde(rename = "predicted_n")]
    predicted: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MetaInfo {
    prompt_tokens: Count,
    completion_tokens: Count,
    cached_tokens: Count,
    finish_reason: Reason,
    weight_version: WeightVersion,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    index: Count,
    finish_reason: Reason,
    weight_versions: Stretches,
    token_ids: ListLength,
    text: HasText,
    delta: One<Delta>,
}

/// What an event adds to the output.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    content: HasText,
    reasoning_content: HasText,
    reasoning: HasText,
    tool_calls: ListLength,
    text: HasText,
    thinking: HasText,
    partial_json: HasText,
    stop_reason: Reason,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Opening {
    pub(super) usage: One<Usage>,
}

impl Usage {
    /// Takes over the content of a later event.
    pub(super) fn update(&mut self, later: &Usage) {
        let take = |mine: &mut Count, theirs: Count| {
            if theirs.0.is_some() {
                *mine = theirs;
            }
        };
        take(&mut self.prompt_tokens, later.prompt_tokens);
        take(&mut self.completion_tokens, later.completion_tokens);
        take(
            &mut self.prompt_tokens_details.0.cached_tokens,
            later.prompt_tokens_details.0.cached_tokens,
        );
        take(
            &mut self.input_tokens_details.0.cached_tokens,
            later.input_tokens_details.0.cached_tokens,
        );
        take(&mut self.input_tokens, later.input_tokens);
        take(&mut self.output_tokens, later.output_tokens);
        take(
            &mut self.cache_read_input_tokens,
            later.cache_read_input_tokens,
        );
        take(
            &mut self.cache_creation_input_tokens,
            later.cache_creation_input_tokens,
        );
    }

    /// Anthropic counts the cached part of a prompt separately.
    fn step(&self) -> StepUsage {
        let details = [self.prompt_tokens_details, self.input_tokens_details];
        let cached = details.iter().find_map(|details| details.0.cached_tokens.0);
        let read = self.cache_read_input_tokens.0;
        let created = self.cache_creation_input_tokens.0;
        let whole_input = self
            .input_tokens
            .0
            .map(|input| sum([input, read.unwrap_or(0), created.unwrap_or(0)]));
        StepUsage {
            prompt_tokens: self.prompt_tokens.0.or(whole_input),
            output_tokens: self.completion_tokens.0.or(self.output_tokens.0),
            cached_tokens: cached.or(read),
            ..StepUsage::default()
        }
    }
}

impl Timings {
    /// Takes over the content of a later event.
    pub(super) fn update(&mut self, later: &Timings) {
        self.cached.0 = later.cached.0.or(self.cached.0);
        self.evaluated.0 = later.evaluated.0.or(self.evaluated.0);
        self.predicted.0 = later.predicted.0.or(self.predicted.0);
    }

    fn step(&self) -> StepUsage {
        let cached = self.cached.0;
        StepUsage {
            prompt_tokens: self
                .evaluated
                .0
                .map(|evaluated| sum([evaluated, cached.unwrap_or(0)])),
            output_tokens: self.predicted.0,
            cached_tokens: cached,
            ..StepUsage::default()
        }
    }
}

impl MetaInfo {
    pub(super) fn has_ended(&self) -> bool {
        self.finish_reason.0.is_some()
    }

    fn step(&self) -> StepUsage {
        StepUsage {
            prompt_tokens: self.prompt_tokens.0,
            output_tokens: self.completion_tokens.0,
            cached_tokens: self.cached_tokens.0,
            finish: self.finish_reason.0,
            weights: self.weight_version,
        }
    }
}

impl Delta {
    /// Whether it holds any output.
    pub(super) fn has_output(&self) -> bool {
        let texts = [
            self.content,
            self.reasoning_content,
            self.reasoning,
            self.text,
            self.thinking,
            self.partial_json,
        ];
        texts.iter().any(|text| text.0) || self.tool_calls.0.is_some_and(|calls| calls > 0)
    }
}

impl Reply<'_> {
    /// Number of token ids of the outputs, if listed.
    pub(super) fn token_ids(&self) -> Option<u64> {
        let lengths = self.choices.0.iter().map(|choice| choice.token_ids.0);
        add_up(lengths)
    }

    /// Whether it holds any output as text.
    pub(super) fn has_output(&self) -> bool {
        let of_choice = |choice: &Choice| choice.text.0 || choice.delta.0.has_output();
        self.delta.0.has_output() || self.choices.0.iter().any(of_choice)
    }

    /// Numbers of the outputs that end here, outside of `meta_info`.
    pub(super) fn ended(&self) -> impl Iterator<Item = u64> {
        let ends = |choice: &Choice| choice.finish_reason.0.is_some();
        let choices = (0..)
            .zip(&self.choices.0)
            .filter(move |(_, choice)| ends(choice));
        let of_choices = choices.map(|(at, choice)| choice.index.0.unwrap_or(at));
        let of_message = self.stop_reason.0.or(self.delta.0.stop_reason.0);
        of_choices.chain(of_message.map(|_| 0))
    }

    /// The version of the weights, outside of `meta_info`.
    pub(super) fn weights(&self) -> WeightVersion {
        let of_choices = self.choices.0.last().map(|choice| choice.weight_versions);
        let last = of_choices.unwrap_or_default().last;
        last.or(self.metadata.0.weight_version)
    }

    /// How an answer of `/v1/responses` ended.
    pub(super) fn finish_of_response(&self) -> Option<Finish> {
        let own = finish_of_response(self.status, &self.output.0, self.incomplete_details.0);
        own.max(self.response.0.finish())
    }

    /// How it ended, outside of `meta_info`.
    pub(super) fn finish(&self) -> Option<Finish> {
        let of_choices = self
            .choices
            .0
            .iter()
            .filter_map(|choice| choice.finish_reason.0);
        of_choices
            .chain(self.stop_reason.0)
            .chain(self.delta.0.stop_reason.0)
            .max()
    }
}

/// Merges usage from several sources: missing values are taken from the next source.
pub(super) fn account(usage: &Usage, timings: &Timings, metas: &[MetaInfo]) -> StepUsage {
    let metas: Vec<StepUsage> = metas.iter().map(MetaInfo::step).collect();
    let metas = StepUsage {
        prompt_tokens: add_up(metas.iter().map(|meta| meta.prompt_tokens)),
        output_tokens: add_up(metas.iter().map(|meta| meta.output_tokens)),
        cached_tokens: add_up(metas.iter().map(|meta| meta.cached_tokens)),
        finish: metas.iter().filter_map(|meta| meta.finish).max(),
        weights: metas.last().map(|meta| meta.weights).unwrap_or_default(),
    };
    [usage.step(), timings.step(), metas]
        .into_iter()
        .reduce(|first, next| StepUsage {
            prompt_tokens: first.prompt_tokens.or(next.prompt_tokens),
            output_tokens: first.output_tokens.or(next.output_tokens),
            cached_tokens: first.cached_tokens.or(next.cached_tokens),
            finish: first.finish.or(next.finish),
            weights: first.weights.or(next.weights),
        })
        .unwrap_or_default()
}

/// The sum of what is known; `None` where nothing is.
pub(super) fn add_up(counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let sum = counts.flatten().reduce(u64::saturating_add)?;
    Some(sum.min(TOKENS_MAX))
}

/// Counts come from outside: a sum of absurd ones must not overflow.
fn sum<const N: usize>(counts: [u64; N]) -> u64 {
    let sum = counts.into_iter().fold(0, u64::saturating_add);
    sum.min(TOKENS_MAX)
}
