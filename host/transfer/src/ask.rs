//! What has an engine see a prompt once more: a program's request, with an answer of one token.

use serde_json::Value;

use crate::{Prompt, TransferError};

/// Fields that set the form of the output. None of them changes the prompt.
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

/// The prompt, which an engine that finds KV by tokens can't do without.
pub(crate) fn needed(prompt: Option<&Prompt>) -> Result<&Prompt, TransferError> {
    prompt.ok_or(TransferError::Incomplete {
        field: "prompt",
        why: "the engine finds KV by the tokens it is of",
    })
}

/// A request's body, as JSON.
pub(crate) fn parsed(body: &[u8]) -> Result<Value, TransferError> {
    serde_json::from_slice(body)
        .map_err(|error| TransferError::internal("the program's last request", error))
}

/// A request like another one, but for its output: one token in one piece, whichever it is. An end
/// of the answer is a token like others, or it would be the engine that ends it, and not its length.
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
            // SGLang's own name; vLLM's is the other one.
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
    fn any_request_can_ask_for_one_token() {
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
