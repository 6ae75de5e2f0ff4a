//! Turns a program's last request into one that makes an engine process its prompt again: the same
//! request with an answer of one token.

use serde_json::Value;

use crate::{Prompt, TransferError};

/// Fields that affect only the form of the output, not the prompt.
const OF_THE_OUTPUT: [&str; 17] = [
    "best_of",
    "echo",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "min_new_tokens",
    "min_tokens",
    "n",
    "prompt_logprobs",
    "response_format",
    "stop",
    "stop_token_ids",
    "stream",
    "stream_options",
    "structured_outputs",
    "top_logprobs",
    "use_beam_search",
];

/// The prompt, which is required by engines that find KV by tokens.
pub(crate) fn needed(prompt: Option<&Prompt>) -> Result<&Prompt, TransferError> {
    prompt.ok_or(TransferError::Incomplete {
        field: "prompt",
        why: "the engine finds KV by its tokens",
    })
}

/// A request's body, as JSON.
pub(crate) fn parsed(body: &[u8]) -> Result<Value, TransferError> {
    serde_json::from_slice(body)
        .map_err(|error| TransferError::internal("the program's last request", error))
}

/// The request with an answer of exactly one token, not streamed. End-of-sequence tokens do not end
/// the answer, so that only its length does.
pub(crate) fn one_token(mut body: Value) -> Result<Value, TransferError> {
    let Some(fields) = body.as_object_mut() else {
        return Err(TransferError::internal(
            "the program's last request",
            "it is not a JSON object",
        ));
    };
    fields.retain(|name, _| !OF_THE_OUTPUT.contains(&&**name));
    fields.insert("stream".into(), false.into());
    let sampling = fields
        .get_mut("sampling_params")
        .and_then(Value::as_object_mut);
    let (place, longest) = match sampling {
        Some(sampling) => {
            // SGLang uses this name, vLLM the other one.
            let longest = if sampling.contains_key("max_new_tokens") {
                "max_new_tokens"
            } else {
                "max_tokens"
            };
            sampling.retain(|name, _| !OF_THE_OUTPUT.contains(&&**name));
            sampling.remove("max_new_tokens");
            (sampling, longest)
        }
        None => (fields, "max_tokens"),
    };
    place.insert(longest.into(), 1.into());
    place.insert("ignore_eos".into(), true.into());
    Ok(body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_request_can_be_reduced_to_one_token() {
        let chat = json!({
            "messages": [], "stream": true, "stream_options": {}, "n": 3, "stop": ["x"],
            "max_completion_tokens": 50, "prompt_logprobs": 1,
        });
        assert_eq!(
            one_token(chat).unwrap(),
            json!({ "messages": [], "stream": false, "max_tokens": 1, "ignore_eos": true })
        );
        let tokens = json!({
            "token_ids": [1],
            "sampling_params": { "min_tokens": 3, "max_tokens": 9, "stop_token_ids": [4] },
        });
        assert_eq!(
            one_token(tokens).unwrap(),
            json!({
                "token_ids": [1], "stream": false,
                "sampling_params": { "max_tokens": 1, "ignore_eos": true },
            })
        );
        let sglang = json!({ "input_ids": [1], "sampling_params": { "max_new_tokens": 9 } });
        assert_eq!(
            one_token(sglang).unwrap()["sampling_params"],
            json!({ "max_new_tokens": 1, "ignore_eos": true })
        );
        assert!(one_token(json!([])).is_err());
    }
}
