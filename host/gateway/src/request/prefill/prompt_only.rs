//! The request by which vLLM computes a prompt for another engine: the client's, for one token.

use bytes::Bytes;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use treadle_wire::Endpoint;

/// Fields that no answer of two engines can have, or that the other engine would not know of.
const OBSTACLES: [&str; 7] = [
    "best_of",
    "echo",
    "kv_transfer_params",
    "n",
    "prompt_embeds",
    "prompt_logprobs",
    "use_beam_search",
];
/// Values of those fields that ask for nothing.
const NOTHING: [&str; 5] = ["null", "false", "0", "1", "[]"];
/// Has the engine keep the prompt's cache for another one.
const KEEP: &str = r#"{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#;

/// A JSON object whose values stay as they were sent: another order of a tool's fields would be
/// another prompt.
type Fields = BTreeMap<String, Box<RawValue>>;

/// The request for one token of the answer. Fails with the obstacle.
pub(super) fn request(endpoint: Endpoint, request: &[u8]) -> Result<Bytes, String> {
    let mut fields = object(request)?;
    check(&fields)?;
    match endpoint {
        Endpoint::ChatCompletions => one_token(&mut fields)?,
        Endpoint::Completions => {
            let prompt = fields.get("prompt").map(|prompt| prompt.get());
            if prompt.is_some_and(has_several) {
                return Err("it has several prompts".to_owned());
            }
            one_token(&mut fields)?;
        }
        Endpoint::VllmGenerate => {
            let sampling = fields.get("sampling_params").map_or("{}", |own| own.get());
            let mut sampling = object(sampling.as_bytes())?;
            check(&sampling)?;
            one_token(&mut sampling)?;
            let sampling = serde_json::to_string(&sampling).map_err(|error| error.to_string())?;
            set(&mut fields, "sampling_params", &sampling)?;
        }
        Endpoint::SglangGenerate | Endpoint::Messages | Endpoint::Responses => {
            return Err(format!("{} can't hand caches over", endpoint.path()));
        }
    }
    fields.remove("stream_options");
    set(&mut fields, "stream", "false")?;
    set(&mut fields, "kv_transfer_params", KEEP)?;
    let body = serde_json::to_vec(&fields).map_err(|error| error.to_string())?;
    Ok(body.into())
}

fn object(text: &[u8]) -> Result<Fields, String> {
    serde_json::from_slice(text).map_err(|error| format!("the request can't be read: {error}"))
}

fn check(fields: &Fields) -> Result<(), String> {
    let is_set = |name: &&str| {
        let value = fields.get(*name).map(|value| value.get());
        // 0 is a valid request for a prompt's log-probabilities.
        let counts = *name == "prompt_logprobs" && value.is_some_and(|value| value != "null");
        counts || value.is_some_and(|value| !NOTHING.contains(&value))
    };
    match OBSTACLES.iter().find(|name| is_set(name)) {
        Some(name) => Err(format!("the request has `{name}`")),
        None => Ok(()),
    }
}

/// Limits the answer to one token.
fn one_token(fields: &mut Fields) -> Result<(), String> {
    fields.remove("min_tokens");
    if fields.contains_key("max_completion_tokens") {
        set(fields, "max_completion_tokens", "1")?;
    }
    set(fields, "max_tokens", "1")
}

fn set(fields: &mut Fields, name: &str, value: &str) -> Result<(), String> {
    let value = RawValue::from_string(value.to_owned()).map_err(|error| error.to_string())?;
    fields.insert(name.to_owned(), value);
    Ok(())
}

/// Whether a prompt is a list of prompts, rather than a text or a list of tokens.
fn has_several(prompt: &str) -> bool {
    let inner = prompt.strip_prefix('[').map(str::trim_start);
    inner.is_some_and(|inner| inner.starts_with(['"', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(endpoint: Endpoint, body: &str) -> Result<String, String> {
        let asked = request(endpoint, body.as_bytes())?;
        Ok(String::from_utf8(asked.to_vec()).expect("it is text"))
    }

    #[test]
    fn one_token_is_asked_for_and_the_prompt_stays_as_it_was() {
        let tools = r#"[{"z":1.50,"a":{"y":2,"b":[ ]}}]"#;
        let body = format!(
            r#"{{"model":"m","messages":[],"tools":{tools},"stream":true,"min_tokens":5,
                "stream_options":{{"include_usage":true}},"max_completion_tokens":99,"n":1}}"#
        );
        let asked = asked(Endpoint::ChatCompletions, &body).expect("no obstacle");
        assert!(asked.contains(&format!(r#""tools":{tools}"#)), "{asked}");
        let asked: Value = serde_json::from_str(&asked).expect("it is JSON");
        assert_eq!(asked["stream"], false);
        assert_eq!(asked["max_tokens"], 1);
        assert_eq!(asked["max_completion_tokens"], 1);
        assert_eq!(asked["kv_transfer_params"]["do_remote_decode"], true);
        assert_eq!(asked["kv_transfer_params"]["remote_host"], Value::Null);
        assert!(asked.get("stream_options").is_none() && asked.get("min_tokens").is_none());
    }

    #[test]
    fn the_limit_of_tokens_in_and_out_is_among_its_sampling_parameters() {
        let body = json!({"token_ids": [1, 2], "sampling_params": {"max_tokens": 9, "seed": 3}});
        let asked = asked(Endpoint::VllmGenerate, &body.to_string()).expect("no obstacle");
        let asked: Value = serde_json::from_str(&asked).expect("it is JSON");
        let sampling = json!({"max_tokens": 1, "seed": 3});
        assert_eq!(asked["sampling_params"], sampling);
    }

    #[test]
    fn what_two_engines_cannot_answer_is_an_obstacle() {
        for (endpoint, body, named) in [
            (Endpoint::ChatCompletions, r#"{"n":2}"#, "`n`"),
            (Endpoint::Completions, r#"{"echo":true}"#, "`echo`"),
            (
                Endpoint::Completions,
                r#"{"prompt_logprobs":0}"#,
                "`prompt_logprobs`",
            ),
            (
                Endpoint::Completions,
                r#"{"prompt":["a","b"]}"#,
                "several prompts",
            ),
            (
                Endpoint::Completions,
                r#"{"prompt":[ [1],[2]]}"#,
                "several prompts",
            ),
            (
                Endpoint::ChatCompletions,
                r#"{"kv_transfer_params":{}}"#,
                "`kv_transfer_params`",
            ),
            (
                Endpoint::VllmGenerate,
                r#"{"sampling_params":{"n":3}}"#,
                "`n`",
            ),
            (Endpoint::Messages, "{}", "/v1/messages"),
            (Endpoint::ChatCompletions, "[]", "can't be read"),
        ] {
            let cause = asked(endpoint, body).expect_err(body);
            assert!(cause.contains(named), "{body}: {cause}");
        }
        assert!(asked(Endpoint::Completions, r#"{"prompt":[1,2],"n":null}"#).is_ok());
    }
}
