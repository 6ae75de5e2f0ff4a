//! Continuing an interrupted answer (`Heddle` §4.2): builds the request for the rest.

use super::obstacles::{
    ABOUT_TO_END, HELD_BACK, Obstacle, WHITE_SPACE, check, check_tools, is_empty, stops,
};
use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use treadle_model::EngineKind;
use treadle_wire::Endpoint;

/// Default token limit of vLLM and SGLang for requests of this kind.
const OUTPUT_TOKENS_DEFAULT: u64 = 16;
const NO_OBJECT: Obstacle = "its request is not a JSON object";
/// Fields that identify an answer, equal in all its events.
pub(super) const NAMES: [&str; 4] = ["id", "created", "request_id", "model"];

/// An answer to be continued.
#[derive(Debug, PartialEq)]
pub(super) struct Continuation {
    /// The request for the rest.
    pub(super) body: Bytes,
    /// Tokens generated so far.
    pub(super) seen: u64,
    /// Fields that identify the answer.
    pub(super) names: Map<String, Value>,
    /// Output that SGLang's events repeat each time.
    pub(super) so_far: PartialAnswer,
}

/// An answer so far.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PartialAnswer {
    pub(super) text: String,
    pub(super) ids: Vec<Value>,
    /// Whether token ids are known for all text.
    pub(super) has_ids: bool,
    /// The prompt's token ids, if known.
    pub(super) prompt_ids: Option<Vec<Value>>,
    /// Number of tokens with log-probabilities.
    pub(super) logprobs: u64,
    /// `meta_info` of SGLang's last event.
    pub(super) meta: Map<String, Value>,
}

impl Continuation {
    /// The continuation of an answer to `request` after these events. `counted` is their number of
    /// tokens, if the engine reports it.
    pub(super) fn of(
        endpoint: Endpoint,
        engine: EngineKind,
        request: &[u8],
        events: &[Value],
        counted: Option<u64>,
    ) -> Result<Self, Obstacle> {
        let original = request;
        let mut request = parse(original)?;
        let answer = match endpoint {
            Endpoint::SglangGenerate => answer_so_far(events)?,
            Endpoint::Messages | Endpoint::Responses => {
                return Err("its API does not support continuation");
            }
            _ => answer_from_parts(endpoint, events)?,
        };
        check_tools(&request, engine, &answer.text)?;
        let has_ids = answer.has_ids && !answer.ids.is_empty();
        if endpoint != Endpoint::SglangGenerate && has_stops(&request) {
            // The engine holds back text of counted tokens.
            return Err("stop");
        }
        let by_ids = extend_prompt(&mut request, endpoint, engine, &answer)?;
        let seen = match (answer.ids.len() as u64, answer.logprobs) {
            (ids, _) if by_ids || has_ids => ids,
            // Unsent output is generated again.
            (_, 0) if answer.text.is_empty() => 0,
            (_, 0) => counted.ok_or("its engine does not count tokens while it streams")?,
            (_, logprobs) => logprobs,
        };
        lower_limits(&mut request, endpoint, engine, seen)?;
        Ok(Self {
            body: body_of(&request, original)?,
            seen,
            names: names(events),
            so_far: answer,
        })
    }
}

/// Parses a request; fails for one with obstacles.
pub(super) fn parse(request: &[u8]) -> Result<Map<String, Value>, Obstacle> {
    let request: Map<String, Value> = serde_json::from_slice(request).map_err(|_| NO_OBJECT)?;
    check(&request)?;
    if let Some(Value::Object(sampling)) = request.get("sampling_params") {
        check(sampling)?;
    }
    Ok(request)
}

/// The changed request. Unchanged fields keep their bytes: engines show tools to the model in the
/// order of their fields.
pub(super) fn body_of(request: &Map<String, Value>, original: &[u8]) -> Result<Bytes, Obstacle> {
    let came: BTreeMap<String, &RawValue> =
        serde_json::from_slice(original).map_err(|_| NO_OBJECT)?;
    let mut fields = BTreeMap::new();
    for (name, value) in request {
        let as_it_came = came.get(name.as_str()).copied().filter(|came| {
            serde_json::from_str::<Value>(came.get()).is_ok_and(|came| came == *value)
        });
        let field = match as_it_came {
            Some(came) => came.to_owned(),
            None => to_raw_value(value).map_err(|_| NO_OBJECT)?,
        };
        fields.insert(name, field);
    }
    let body = serde_json::to_vec(&fields).map_err(|_| NO_OBJECT)?;
    Ok(body.into())
}

fn has_stops(request: &Map<String, Value>) -> bool {
    let sampling = request.get("sampling_params").and_then(Value::as_object);
    let all = [Some(request), sampling];
    all.into_iter()
        .flatten()
        .any(|options| !stops(options).is_empty())
}

/// OpenAI's events each add a part.
fn answer_from_parts(endpoint: Endpoint, events: &[Value]) -> Result<PartialAnswer, Obstacle> {
    let mut answer = PartialAnswer {
        has_ids: true,
        ..PartialAnswer::default()
    };
    let mut holds_back = false;
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        if !choice["finish_reason"].is_null() {
            return Err("it has ended");
        }
        let delta = &choice["delta"];
        for name in ["tool_calls", "reasoning_content", "reasoning", "refusal"] {
            if !is_empty(&delta[name]) {
                return Err("it calls a tool or reasons");
            }
        }
        let text = match endpoint {
            Endpoint::ChatCompletions => &delta["content"],
            _ => &choice["text"],
        };
        let has_text = text.is_string() || endpoint == Endpoint::ChatCompletions;
        let text = text.as_str().unwrap_or_default();
        if let Some(ids) = choice["token_ids"].as_array() {
            answer.ids.extend(ids.iter().cloned());
            holds_back = has_text && text.is_empty() && !ids.is_empty();
        } else {
            answer.has_ids &= text.is_empty();
            // The text of a counted token is held back, unless this is the opening event.
            holds_back = text.is_empty() && delta["role"].is_null();
        }
        if let Value::Array(ids) = &choice["prompt_token_ids"] {
            answer.prompt_ids = Some(ids.clone());
        }
        let logprobs = &choice["logprobs"];
        let logprobs = logprobs["content"]
            .as_array()
            .or(logprobs["tokens"].as_array());
        answer.logprobs += logprobs.map_or(0, |all| all.len() as u64);
        answer.text.push_str(text);
    }
    if holds_back {
        return Err(HELD_BACK);
    }
    Ok(answer)
}

/// SGLang's events each repeat all that was generated.
fn answer_so_far(events: &[Value]) -> Result<PartialAnswer, Obstacle> {
    let Some(last) = events.last() else {
        return Ok(PartialAnswer::default());
    };
    if !last["meta_info"]["finish_reason"].is_null() {
        return Err("it has ended");
    }
    let ids = last["output_ids"].as_array().cloned().unwrap_or_default();
    if last["meta_info"]["completion_tokens"].as_u64() != Some(ids.len() as u64) {
        return Err("its events do not contain all generated tokens");
    }
    let text = last["text"].as_str().unwrap_or_default();
    let before = events
        .iter()
        .rev()
        .nth(1)
        .and_then(|event| event["text"].as_str());
    let has_grown = before.is_none_or(|before| before.len() < text.len());
    if last["text"].is_string() && (!has_grown || text.ends_with(is_end_of_printable)) {
        return Err(HELD_BACK);
    }
    Ok(PartialAnswer {
        text: text.to_owned(),
        ids,
        has_ids: true,
        meta: last["meta_info"].as_object().cloned().unwrap_or_default(),
        ..PartialAnswer::default()
    })
}

/// If the last character is incomplete, SGLang returns text only up to one of these.
fn is_end_of_printable(last: char) -> bool {
    last == ' ' || matches!(last, '\u{2e80}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// Appends the answer so far to the prompt; true if as token ids.
pub(super) fn extend_prompt(
    request: &mut Map<String, Value>,
    endpoint: Endpoint,
    engine: EngineKind,
    answer: &PartialAnswer,
) -> Result<bool, Obstacle> {
    let ids_of = match endpoint {
        Endpoint::ChatCompletions => return extend_chat(request, engine, &answer.text),
        Endpoint::VllmGenerate => "token_ids",
        Endpoint::SglangGenerate => "input_ids",
        _ => "prompt",
    };
    let text_of = if endpoint == Endpoint::SglangGenerate {
        "text"
    } else {
        "prompt"
    };
    if let Some(Value::String(prompt)) = request.get_mut(text_of) {
        match &answer.prompt_ids {
            Some(ids) if answer.has_ids && ids_of == text_of => {
                request.insert(ids_of.into(), ids.clone().into());
            }
            _ => {
                prompt.push_str(&answer.text);
                return Ok(false);
            }
        }
    }
    match request.get_mut(ids_of) {
        Some(Value::Array(ids)) if ids.iter().all(Value::is_u64) => {
            if !answer.has_ids {
                return Err("its answer has no token ids; request them with `return_token_ids`");
            }
            ids.extend(answer.ids.iter().cloned());
            Ok(true)
        }
        _ => Err("it has several prompts"),
    }
}

fn extend_chat(
    request: &mut Map<String, Value>,
    engine: EngineKind,
    text: &str,
) -> Result<bool, Obstacle> {
    if text.is_empty() {
        return Ok(false);
    }
    // Templates trim messages: tokens would be lost.
    if text.trim() != text {
        return Err(WHITE_SPACE);
    }
    let Some(Value::Array(messages)) = request.get_mut("messages") else {
        return Err("its request has no messages");
    };
    if messages
        .last()
        .is_some_and(|last| last["role"] == "assistant")
    {
        return Err("it already continues a message");
    }
    messages.push(json!({"role": "assistant", "content": text}));
    // llama.cpp continues a trailing assistant message by itself.
    if engine != EngineKind::Llamacpp {
        request.insert("continue_final_message".into(), true.into());
        request.insert("add_generation_prompt".into(), false.into());
    }
    Ok(false)
}

pub(super) fn lower_limits(
    request: &mut Map<String, Value>,
    endpoint: Endpoint,
    engine: EngineKind,
    seen: u64,
) -> Result<(), Obstacle> {
    let in_sampling = matches!(endpoint, Endpoint::VllmGenerate | Endpoint::SglangGenerate);
    let options = if in_sampling {
        let sampling = request
            .entry("sampling_params")
            .or_insert_with(|| json!({}));
        sampling.as_object_mut().ok_or("it has several prompts")?
    } else {
        request
    };
    for least in ["min_tokens", "min_new_tokens"] {
        if let Some(tokens) = options.get(least).and_then(Value::as_u64) {
            options.insert(least.into(), tokens.saturating_sub(seen).into());
        }
    }
    let names = ["max_completion_tokens", "max_new_tokens", "max_tokens"];
    let names = names.into_iter().chain(["n_predict"]);
    let mut is_bounded = false;
    for name in names {
        if let Some(most) = options.get(name).and_then(Value::as_u64) {
            is_bounded = true;
            options.insert(name.into(), left(most, seen)?.into());
        }
    }
    let has_default = endpoint != Endpoint::ChatCompletions && engine != EngineKind::Llamacpp;
    if !is_bounded && has_default {
        // Elsewhere it depends on the engine's version.
        if endpoint != Endpoint::Completions {
            return Err("it has no limit on its tokens");
        }
        options.insert(
            "max_tokens".into(),
            left(OUTPUT_TOKENS_DEFAULT, seen)?.into(),
        );
    }
    Ok(())
}

fn left(most: u64, seen: u64) -> Result<u64, Obstacle> {
    let left = most.checked_sub(seen).filter(|left| *left > 0);
    left.ok_or(ABOUT_TO_END)
}

fn names(events: &[Value]) -> Map<String, Value> {
    let mut names = Map::new();
    for event in events.first().into_iter().chain(events.get(1)) {
        for name in NAMES {
            if let (Some(value), false) = (event.get(name), names.contains_key(name)) {
                names.insert(name.to_owned(), value.clone());
            }
        }
        if let Some(id) = event["meta_info"].get("id") {
            names.insert("meta_info.id".into(), id.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests;
