//! Obstacles to continuing an answer faithfully, which prevent its interruption: several answers,
//! guided decoding, tools and reasoning, whose parsers in the engine would start in the middle,
//! sampling that depends on earlier tokens, and fields that only a whole answer has.

use serde_json::{Map, Value};
use treadle_model::EngineKind;

/// Why an answer is not interrupted.
pub(super) type Obstacle = &'static str;

/// A temporary obstacle: the answer ends at white space.
pub(super) const WHITE_SPACE: Obstacle = "it ends at white space";
/// A temporary obstacle: the engine holds back text until the next tokens.
pub(super) const HELD_BACK: Obstacle = "its engine holds text back";
/// Nothing is left to be generated.
pub(super) const ABOUT_TO_END: Obstacle = "it is about to end";

/// Fields of a request that are obstacles, unless they are empty.
const OBSTACLES: [&str; 36] = [
    "return_hidden_states",
    "return_routed_experts",
    "return_indexer_topk",
    "return_flat_raw_output_top_logprobs",
    "prompt_logprob_token_ids",
    "kv_transfer_params",
    "ec_transfer_params",
    "session_params",
    "echo",
    "suffix",
    "truncate_prompt_tokens",
    "use_beam_search",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "functions",
    "continue_final_message",
    // These depend on the output, which a continuation sees as its prompt.
    "presence_penalty",
    "frequency_penalty",
    "bad_words",
    "custom_logit_processor",
    "logits_processors",
    "vllm_xargs",
    "repetition_detection",
    "thinking_token_budget",
    "mirostat",
    "stop_regex",
    // 0 is a valid request for it.
    PROMPT_LOGPROBS,
];
/// Characters with which tool calls begin, for any model.
const CALLS_BEGIN_WITH: [char; 8] = ['<', '[', '{', '`', '|', '\u{3010}', '\u{ff1c}', '\u{ff5c}'];
const PROMPT_LOGPROBS: &str = "prompt_logprobs";

/// True for values that are equivalent to an absent field.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Fails if something in a request is an obstacle.
pub(super) fn check(options: &Map<String, Value>) -> Result<(), Obstacle> {
    let is_set = |name: &&&str| {
        let value = options.get(**name);
        value.is_some_and(|value| {
            !is_empty(value) || (**name == PROMPT_LOGPROBS && value.is_number())
        })
    };
    if let Some(name) = OBSTACLES.iter().find(is_set) {
        return Err(name);
    }
    let many = |name| options.get(name).and_then(Value::as_u64).unwrap_or(1) > 1;
    if many("n") || many("best_of") {
        return Err("it requests several answers");
    }
    match options.get("response_format").map(|format| &format["type"]) {
        None | Some(Value::Null) => Ok(()),
        Some(kind) if kind == "text" => Ok(()),
        Some(_) => Err("response_format"),
    }
}

/// Fails for a chat with tools, unless nothing in the answer so far can be the beginning of a tool
/// call: then the engine's parser, which starts anew with the rest, misses nothing.
pub(super) fn check_tools(
    request: &Map<String, Value>,
    engine: EngineKind,
    text: &str,
) -> Result<(), Obstacle> {
    if request.get("tools").is_none_or(is_empty) {
        return Ok(());
    }
    if !matches!(engine, EngineKind::Vllm | EngineKind::Sglang) {
        return Err("tools");
    }
    let is_free = |choice: &Value| choice.is_null() || choice == "auto" || choice == "none";
    if !request.get("tool_choice").is_none_or(is_free) {
        return Err("tool_choice");
    }
    if text.contains(CALLS_BEGIN_WITH) {
        return Err("it may be a tool call");
    }
    Ok(())
}

/// The sequences at which the engine ends the answer.
pub(super) fn stops(options: &Map<String, Value>) -> Vec<&str> {
    match options.get("stop") {
        Some(Value::String(stop)) => vec![stop],
        Some(Value::Array(stops)) => stops.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// True if a text ends in the middle of one of these.
pub(super) fn ends_within(text: &str, stops: &[&str]) -> bool {
    stops.iter().any(|stop| {
        let begins = stop.char_indices().skip(1).map(|(at, _)| &stop[..at]);
        begins.into_iter().any(|begin| text.ends_with(begin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_end_in_the_middle_of_a_stop_sequence() {
        assert!(ends_within("so e", &["end"]));
        assert!(ends_within("ü", &["üx", "y"]));
        assert!(!ends_within("so far", &["end", "y", ""]));
        assert!(!ends_within("the end", &["end"]), "that is all of it");
    }
}
