//! The number of outputs that a request asks for: an answer is incomplete until all of them have
//! ended.

use super::RequestHead;
use crate::endpoint::Endpoint;
use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The fields that set the number of outputs. Unexpected values are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputFields {
    n: Value,
    sampling_params: Value,
}

/// The prompts of a batch.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Prompts {
    prompt: Vec<IgnoredAny>,
    text: Vec<IgnoredAny>,
    input_ids: Vec<IgnoredAny>,
}

impl RequestHead {
    /// How many outputs the body of this head asks for: prompts, times `n`.
    pub fn outputs(&self, endpoint: Endpoint, body: &[u8]) -> u64 {
        // Most requests ask for one, which shows without parsing them again.
        let has_n = memmem::find(body, b"\"n\"").is_some();
        let fields: OutputFields = if has_n {
            serde_json::from_slice(body).unwrap_or_default()
        } else {
            OutputFields::default()
        };
        let each = match endpoint {
            Endpoint::Messages => 1,
            Endpoint::SglangGenerate | Endpoint::VllmGenerate => {
                let sampling = &fields.sampling_params;
                sampling.get(0).unwrap_or(sampling)["n"]
                    .as_u64()
                    .unwrap_or(1)
            }
            _ => fields.n.as_u64().unwrap_or(1),
        };
        each.max(1).saturating_mul(self.prompts(endpoint, body))
    }

    fn prompts(&self, endpoint: Endpoint, body: &[u8]) -> u64 {
        let may_be_batch = matches!(endpoint, Endpoint::Completions | Endpoint::SglangGenerate);
        if self.whole.is_some() || !may_be_batch {
            return 1;
        }
        let prompts: Prompts = serde_json::from_slice(body).unwrap_or_default();
        let count = match endpoint {
            Endpoint::Completions => prompts.prompt.len(),
            _ => prompts.text.len().max(prompts.input_ids.len()),
        };
        count.max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Endpoint::{ChatCompletions, Completions, Messages, SglangGenerate};

    #[test]
    fn outputs_are_prompts_times_n() {
        let chat = |rest: &str| {
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"n"}}]{rest}}}"#)
        };
        for (endpoint, body, outputs) in [
            (ChatCompletions, chat(""), 1),
            (ChatCompletions, chat(r#","n":3"#), 3),
            (ChatCompletions, chat(r#","n":null"#), 1),
            (Messages, chat(r#","max_tokens":1,"n":3"#), 1),
            (Completions, r#"{"prompt":"a","n":2}"#.into(), 2),
            (Completions, r#"{"prompt":["a","b","c"],"n":2}"#.into(), 6),
            (Completions, r#"{"prompt":[1,2,3]}"#.into(), 1),
            (Completions, r#"{"prompt":[[1],[2]]}"#.into(), 2),
            (
                SglangGenerate,
                r#"{"text":"a","sampling_params":{"n":4}}"#.into(),
                4,
            ),
            (
                SglangGenerate,
                r#"{"input_ids":[[1],[2]],"sampling_params":[{"n":2},{"n":2}]}"#.into(),
                4,
            ),
            (SglangGenerate, r#"{"input_ids":[1,2]}"#.into(), 1),
        ] {
            let head = RequestHead::parse(endpoint, body.as_bytes()).expect(&body);
            assert_eq!(head.outputs(endpoint, body.as_bytes()), outputs, "{body}");
        }
    }
}
