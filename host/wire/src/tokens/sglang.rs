//! Answers of SGLang's own API, `/generate`.

use super::answer::{AnswerTokens, ChoiceTokens, TEXT_BYTES_MAX};
use super::versions::NamedSpan;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// An answer, or an event of a stream.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Generated<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    output_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    meta_info: Option<BTreeMap<String, &'a RawValue>>,
}

/// A sampled token: log-probability, id and text.
type Scored = (Option<f32>, i32, IgnoredAny);

impl<'a> Generated<'a> {
    /// The answers in a body: one, or a list with one for each output.
    pub(super) fn all(text: &'a str) -> serde_json::Result<Vec<Self>> {
        if text.trim_start().starts_with('[') {
            return serde_json::from_str(text);
        }
        Ok(vec![serde_json::from_str(text)?])
    }

    /// Fields of `meta_info` with log-probabilities.
    pub(super) fn scores(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        let fields = self.meta_info.iter().flatten();
        let scores = fields.filter(|(name, _)| name.contains("logprobs"));
        scores.map(|(name, value)| (&**name, *value))
    }

    fn meta<T: Deserialize<'a>>(&self, name: &str) -> Option<serde_json::Result<T>> {
        let value = self.meta_info.as_ref()?.get(name)?;
        Some(serde_json::from_str(value.get()))
    }

    /// Adds it to the tokens so far. An event of a stream may repeat all that came before.
    ///
    /// # Errors
    /// What can't be read, in words.
    pub(super) fn take(
        &self,
        place: u64,
        tokens: &mut AnswerTokens,
        counts: &mut BTreeMap<u64, u64>,
    ) -> Result<(), &'static str> {
        let count = |name| self.meta::<u64>(name).transpose().ok().flatten();
        tokens.prompt_tokens = count("prompt_tokens").or(tokens.prompt_tokens);
        let index = self.index.unwrap_or(place);
        let known = tokens
            .choice(index)
            .ok_or("it has too many choices or tokens")?;
        self.take_text(known);
        let list = self.meta::<Vec<Scored>>("output_token_logprobs");
        let list = list
            .transpose()
            .map_err(|_| "the log-probabilities are no numbers")?;
        let list = list.unwrap_or_default();
        let counted = count("completion_tokens");
        if counted == Some(list.len() as u64) {
            (known.ids, known.logprobs) = (Vec::new(), Vec::new());
        }
        for (score, id, _) in &list {
            known.ids.push(*id);
            known.logprobs.push(score.unwrap_or(f32::NEG_INFINITY));
        }
        let listed = self.output_ids.map(|ids| serde_json::from_str(ids.get()));
        let listed: Option<Vec<i32>> = listed
            .transpose()
            .map_err(|_| "the ids of the output are no numbers")?;
        let own = list.iter().map(|(_, id, _)| id);
        if listed.is_some_and(|ids| ids.len() == list.len() && !ids.iter().eq(own)) {
            return Err("the ids of the output and those of its log-probabilities differ");
        }
        if let Some(Ok(versions)) = self.meta::<Vec<NamedSpan>>("weight_versions") {
            known.versions = versions;
        }
        counts.extend(counted.map(|counted| (index, counted)));
        tokens.output_tokens = (!counts.is_empty()).then(|| counts.values().sum());
        Ok(())
    }

    fn take_text(&self, known: &mut ChoiceTokens) {
        let text = self
            .text
            .map(|text| serde_json::from_str::<String>(text.get()));
        let Some(Ok(text)) = text else { return };
        if text.starts_with(&known.text) {
            known.text.clear();
        }
        if known.text.len() + text.len() <= TEXT_BYTES_MAX {
            known.text.push_str(&text);
        }
    }
}
