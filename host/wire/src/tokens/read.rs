//! Tokens of answers, as their engines report them.

use super::answer::{AnswerTokens, TEXT_BYTES_MAX};
use super::form::{Answer, Choice, Logprobs, Metadata, Usage, Verbose};
use super::llama_cpp::aligned;
use super::place::place;
use super::play::played;
use super::sglang::Generated;
use super::versions::cover;
use crate::remove_fields;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;
use treadle_model::EngineKind;

/// What the client did not ask for.
#[expect(clippy::struct_excessive_bools, reason = "each is a part of an answer")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    pub(super) ids: bool,
    pub(super) prompt: bool,
    pub(super) logprobs: bool,
    /// The usage at the end of a stream.
    pub(super) usage: bool,
}

/// Reads tokens from an answer, and hides them.
#[derive(Debug)]
pub struct TokenReader {
    hidden: Hidden,
    engine: EngineKind,
    /// The answer has SGLang's own form.
    is_generated: bool,
    /// Ids of the prompt that the client sent.
    sent: Vec<i32>,
    tokens: AnswerTokens,
    /// Output tokens of each choice by the engine's own count, if it counts them so.
    counted: BTreeMap<u64, u64>,
    /// What an answer has that can't be read.
    fault: Option<&'static str>,
}

/// The client's part of an event.
#[derive(Debug, PartialEq)]
pub enum Shown {
    /// All of it.
    All,
    /// This.
    Part(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// A field that is hidden.
struct Field {
    place: Range<usize>,
    value: Range<usize>,
    is_null: bool,
}

impl TokenReader {
    pub(super) fn new(hidden: Hidden, engine: EngineKind) -> Self {
        Self {
            hidden,
            engine,
            is_generated: false,
            sent: Vec::new(),
            tokens: AnswerTokens::default(),
            counted: BTreeMap::new(),
            fault: None,
        }
    }

    /// Of answers in SGLang's own form.
    pub(super) fn of_generated(self) -> Self {
        Self {
            is_generated: true,
            ..self
        }
    }

    /// Of answers to a prompt whose ids its client sent.
    pub(super) fn after(self, sent: Vec<i32>) -> Self {
        Self { sent, ..self }
    }

    /// Reads a whole answer; returns the client's part of it, if that is another.
    pub fn whole(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        match self.read(body, false) {
            Shown::Part(part) => Some(part),
            Shown::All | Shown::Nothing => None,
        }
    }

    /// Reads an event of a stream.
    pub fn event(&mut self, event: &[u8]) -> Shown {
        self.read(event, true)
    }

    /// The client's part of a whole answer as a stream.
    pub fn played(&self, whole: &[u8]) -> Option<Vec<u8>> {
        played(whole, !self.hidden.usage)
    }

    /// The tokens, or what was wrong with them.
    ///
    /// # Errors
    /// What could not be read, in words.
    pub fn finish(mut self) -> Result<AnswerTokens, &'static str> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.tokens.prompt.is_empty() {
            self.tokens.prompt = self.sent;
        }
        for choice in self.tokens.choices.values_mut() {
            if !cover(&choice.versions, choice.ids.len()) {
                choice.versions.clear();
            }
        }
        Ok(self.tokens)
    }

    fn read(&mut self, body: &[u8], is_event: bool) -> Shown {
        let Ok(text) = str::from_utf8(body) else {
            return Shown::All;
        };
        // The end of a stream, or nothing that has tokens.
        if !text.trim_start().starts_with(['{', '[']) || text.trim() == "[DONE]" {
            return Shown::All;
        }
        if self.is_generated {
            return self.read_generated(text);
        }
        let Ok(answer) = serde_json::from_str::<Answer<'_>>(text) else {
            self.fault("the engine's answer is no chat completion");
            return Shown::All;
        };
        self.take(&answer);
        if is_event && self.hides_event(&answer) {
            return Shown::Nothing;
        }
        shown(text, self.fields(text, &answer))
    }

    fn read_generated(&mut self, text: &str) -> Shown {
        let Ok(answers) = Generated::all(text) else {
            self.fault("the engine's answer is not one of `/generate`");
            return Shown::All;
        };
        let mut hidden = Vec::new();
        for (place, answer) in (0..).zip(&answers) {
            if let Some(ids) = answer.prompt_token_ids {
                self.take_prompt(ids);
                let is_hidden = self.hidden.prompt;
                hidden.extend(is_hidden.then(|| Field::of(text, "prompt_token_ids", ids)));
            }
            if let Err(fault) = answer.take(place, &mut self.tokens, &mut self.counted) {
                self.fault(fault);
            }
            let scores = answer.scores().filter(|_| self.hidden.logprobs);
            hidden.extend(scores.map(|(name, scores)| Field::of(text, name, scores)));
        }
        hidden.sort_by_key(|field| field.place.start);
        shown(text, hidden)
    }

    fn take(&mut self, answer: &Answer<'_>) {
        let prompts = answer
            .choices()
            .iter()
            .filter_map(|choice| choice.prompt_token_ids);
        for ids in answer.prompt_token_ids.into_iter().chain(prompts) {
            self.take_prompt(ids);
        }
        for (position, choice) in (0..).zip(answer.choices()) {
            let index = choice.index.map(|index| index.get().parse());
            match index.transpose() {
                Ok(index) => self.take_choice(index.unwrap_or(position), choice),
                Err(_) => self.fault("the index of a choice is no number"),
            }
        }
        if let Some(usage) = answer.usage {
            let Ok(usage) = serde_json::from_str::<Usage>(usage.get()) else {
                return self.fault("the engine's count of tokens is no number");
            };
            self.tokens.prompt_tokens = usage.prompt_tokens.or(self.tokens.prompt_tokens);
            self.tokens.output_tokens = usage.completion_tokens.or(self.tokens.output_tokens);
        }
        if let Some(verbose) = answer.verbose {
            self.take_verbose(verbose);
        }
        let metadata = answer
            .metadata
            .map(|all| serde_json::from_str::<Metadata>(all.get()));
        if let (Some(Ok(metadata)), 1) = (metadata, self.tokens.choices.len())
            && let Some(choice) = self.tokens.choices.values_mut().next()
        {
            choice.versions = metadata.weight_versions;
        }
    }

    /// The list of log-probabilities lacks tokens that end within a character.
    fn take_verbose(&mut self, verbose: &RawValue) {
        let Ok(verbose) = serde_json::from_str::<Verbose>(verbose.get()) else {
            return self.fault("the ids in `__verbose` are no numbers");
        };
        self.tokens.prompt_text = verbose.prompt;
        let choices = &mut self.tokens.choices;
        if let (1, Some(choice)) = (choices.len(), choices.get_mut(&0)) {
            let listed = std::mem::replace(&mut choice.ids, verbose.tokens);
            match aligned(&choice.ids, &listed, &choice.logprobs) {
                Some(logprobs) => choice.logprobs = logprobs,
                None => self.fault("the log-probabilities are not those of the ids"),
            }
        }
    }

    fn take_prompt(&mut self, ids: &RawValue) {
        let Some(ids) = ids_of(ids.get()) else {
            return self.fault("the ids of the prompt are no numbers");
        };
        if self.tokens.prompt.is_empty() {
            self.tokens.prompt = ids;
        } else if !ids.is_empty() && ids != self.tokens.prompt {
            self.fault("the choices have different prompts");
        }
    }

    fn take_choice(&mut self, index: u64, choice: &Choice<'_>) {
        let listed = choice.token_ids.or(choice.response_token_ids);
        let ids = listed.map(|ids| ids_of(ids.get()));
        if ids == Some(None) {
            return self.fault("the ids of the output are no numbers");
        }
        let ids = ids.flatten();
        let logprobs = choice
            .logprobs
            .map(|all| serde_json::from_str::<Logprobs>(all.get()));
        let Ok(logprobs) = logprobs.transpose() else {
            return self.fault("the log-probabilities are no numbers");
        };
        let logprobs = logprobs.unwrap_or_default();
        let Some(known) = self.tokens.choice(index) else {
            return self.fault("it has too many choices or tokens");
        };
        for text in choice.texts() {
            if known.text.len() + text.len() <= TEXT_BYTES_MAX {
                known.text.push_str(&text);
            }
        }
        let versions = choice.weight_versions.map(RawValue::get);
        if let Some(Ok(versions)) = versions.map(serde_json::from_str) {
            known.versions = versions;
        }
        let has_ids = ids.is_some();
        known.ids.extend(ids.unwrap_or_default());
        let missing = || f32::NEG_INFINITY;
        for entry in logprobs.content.into_iter().flatten() {
            known.logprobs.push(entry.logprob.unwrap_or_else(missing));
            known.ids.extend(entry.id.filter(|_| !has_ids));
        }
        let scores = logprobs.token_logprobs.into_iter().flatten();
        known
            .logprobs
            .extend(scores.map(|p| p.unwrap_or_else(missing)));
    }

    fn fault(&mut self, fault: &'static str) {
        self.fault.get_or_insert(fault);
    }

    /// Whether an event has nothing but what the client did not ask for.
    fn hides_event(&self, answer: &Answer<'_>) -> bool {
        let Some((first, others)) = answer.choices().split_first() else {
            return answer.usage.is_some() && self.hidden.usage;
        };
        // vLLM sends a token whose text a parser withholds only if it is asked for tokens.
        let is_empty = first.delta.is_some_and(|delta| delta.get() == "{}");
        let is_token = is_empty && first.finish_reason.is_none() && others.is_empty();
        is_token && self.hidden.ids && self.hidden.logprobs
    }

    /// The fields of an answer that its client did not ask for.
    fn fields(&self, text: &str, answer: &Answer<'_>) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut hide = |name: &str, value: Option<&RawValue>, is_null: bool| {
            fields.extend(value.map(|value| Field {
                is_null,
                ..Field::of(text, name, value)
            }));
        };
        // Engines write null for what they were not asked for, or nothing.
        let (hidden, nulls) = (self.hidden, self.engine == EngineKind::Vllm);
        let scores_are_null = self.engine != EngineKind::Llamacpp;
        if hidden.prompt {
            hide("prompt_token_ids", answer.prompt_token_ids, nulls);
        }
        hide("__verbose", answer.verbose, false);
        for choice in answer.choices() {
            if hidden.prompt {
                hide("prompt_token_ids", choice.prompt_token_ids, nulls);
            }
            if hidden.ids {
                hide("token_ids", choice.token_ids, nulls);
                hide("response_token_ids", choice.response_token_ids, false);
                hide("weight_versions", choice.weight_versions, false);
            }
            if hidden.logprobs {
                hide("logprobs", choice.logprobs, scores_are_null);
            }
        }
        fields.sort_by_key(|field| field.place.start);
        fields
    }
}

/// A list of ids, valid JSON: prompts have many thousands, with each step again.
pub(super) fn ids_of(list: &str) -> Option<Vec<i32>> {
    let list = list.strip_prefix('[')?.strip_suffix(']')?;
    let mut ids = Vec::with_capacity(list.len() / 4);
    if list.trim().is_empty() {
        return Some(ids);
    }
    for id in list.split(',') {
        let mut value = 0_i32;
        for digit in id.trim().bytes() {
            let digit = digit
                .is_ascii_digit()
                .then_some(i32::from(digit) - i32::from(b'0'))?;
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        ids.push(value);
    }
    Some(ids)
}

impl Field {
    fn of(text: &str, name: &str, value: &RawValue) -> Self {
        let place = place(text, name, value);
        let value = place.end - value.get().len()..place.end;
        Self {
            place,
            value,
            is_null: false,
        }
    }
}

/// The text without these fields, which are in ascending order.
fn shown(text: &str, fields: Vec<Field>) -> Shown {
    if fields.is_empty() {
        return Shown::All;
    }
    let mut left = text.as_bytes().to_vec();
    for field in fields.into_iter().rev() {
        if field.is_null {
            left.splice(field.value, *b"null");
        } else {
            left = remove_fields(&left, [field.place]);
        }
    }
    Shown::Part(left)
}
