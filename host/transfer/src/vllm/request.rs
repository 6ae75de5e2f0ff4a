//! Requests to vLLM. Both engines must process exactly the same tokens: the fetching one takes as
//! many blocks as its prompt has, from the end of those that the other one holds.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::prompt_request::{one_token, parsed};
use crate::{Prefix, Prompt, TransferError};

/// The endpoint for prompts as tokens.
const COMPLETIONS: &str = "/v1/completions";
/// Tool choices that change neither the prompt nor the handling of the answer.
const PLAIN_CHOICES: [&str; 2] = ["auto", "none"];

/// A prompt, and what else its KV depends on.
pub(super) struct PromptKey {
    pub(super) prompt: Prompt,
    pub(super) model: Box<str>,
    pub(super) cache_salt: Option<Box<str>>,
}

impl PromptKey {
    /// The path and body of a request for one token after the prompt.
    pub(super) fn request(&self) -> Result<(&str, Value), TransferError> {
        let (path, mut body) = match &self.prompt {
            Prompt::Ids(ids) => {
                let body = json!({ "model": &self.model, "prompt": **ids, "temperature": 0 });
                (COMPLETIONS, one_token(body)?)
            }
            Prompt::Body { path, body } => {
                let mut body = one_token(parsed(body)?)?;
                let choice = &body["tool_choice"];
                let is_plain = choice.as_str().is_some_and(|c| PLAIN_CHOICES.contains(&c));
                if !choice.is_null() && !is_plain {
                    // The tools stay in the prompt, but the single token is not parsed as a tool
                    // call.
                    body["tool_choice"] = "none".into();
                }
                body["return_token_ids"] = true.into();
                (&**path, body)
            }
        };
        if let Some(salt) = &self.cache_salt {
            body["cache_salt"] = (&**salt).into();
        }
        Ok((path, body))
    }

    /// This prompt by the tokens that an engine reports, so that the other one does not have to
    /// tokenize the text again. Prompts that are not only text are left unchanged.
    pub(super) fn in_tokens(self, answer: &Value) -> Self {
        let Prompt::Body { body, .. } = &self.prompt else {
            return self;
        };
        let (Some(ids), Ok(body)) = (ids_of(answer), parsed(body)) else {
            return self;
        };
        if !is_text(&body) {
            return self;
        }
        let text = |field: &str| body[field].as_str().map(Into::into);
        Self {
            prompt: Prompt::Ids(ids),
            model: text("model").unwrap_or(self.model),
            cache_salt: self.cache_salt.or_else(|| text("cache_salt")),
        }
    }

    /// The tokens, as far as they are known.
    pub(super) fn prefix(&self, answer: &Value, expected: u64) -> Prefix {
        let counted = answer["usage"]["prompt_tokens"].as_u64();
        self.prompt.ids().map_or_else(
            || Prefix {
                tokens: counted.unwrap_or(expected),
                hash: None,
            },
            Prefix::of,
        )
    }
}

/// The prompt's tokens in a response to `return_token_ids`.
fn ids_of(answer: &Value) -> Option<Arc<[u32]>> {
    let told = [answer, &answer["choices"][0]]
        .into_iter()
        .find_map(|place| place["prompt_token_ids"].as_array())?;
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    told.iter().map(id).collect()
}

/// Whether a prompt consists of text only, so that its tokens are complete.
fn is_text(body: &Value) -> bool {
    let is_part = |part: &Value| part["text"].is_string();
    let is_message = |message: &Value| match &message["content"] {
        Value::Array(parts) => parts.iter().all(is_part),
        content => content.is_string() || content.is_null(),
    };
    let messages = body["messages"].as_array();
    messages.is_none_or(|messages| messages.iter().all(is_message))
        && body["prompt_embeds"].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(body: &Value) -> PromptKey {
        PromptKey {
            prompt: Prompt::Body {
                path: "/v1/chat/completions".into(),
                body: body.to_string().into(),
            },
            model: "m".into(),
            cache_salt: None,
        }
    }

    #[test]
    fn the_other_engine_gets_the_tokens_of_the_first() {
        let chat = json!({
            "model": "adapter", "cache_salt": "s", "tools": [{}], "tool_choice": "required",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        });
        let seen = seen(&chat);
        let (path, body) = seen.request().unwrap();
        assert_eq!(path, "/v1/chat/completions");
        assert_eq!(body["tool_choice"], "none");
        assert_eq!(body["tools"], json!([{}]));
        assert_eq!(body["return_token_ids"], true);
        let told = seen.in_tokens(&json!({"prompt_token_ids": [7, 8, 9]}));
        let (path, body) = told.request().unwrap();
        assert_eq!(path, COMPLETIONS);
        let expected = json!({
            "model": "adapter", "prompt": [7, 8, 9], "cache_salt": "s", "temperature": 0,
            "max_tokens": 1, "ignore_eos": true, "stream": false,
        });
        assert_eq!(body, expected);
        assert_eq!(told.prefix(&json!({}), 5), Prefix::of(&[7, 8, 9]));
    }

    #[test]
    fn pictures_are_sent_again() {
        let chat = json!({
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        });
        let told = json!({"prompt_token_ids": [7], "usage": {"prompt_tokens": 1}});
        let seen = seen(&chat).in_tokens(&told);
        assert!(seen.prompt.ids().is_none());
        let uncertain = Prefix {
            tokens: 1,
            hash: None,
        };
        assert_eq!(seen.prefix(&told, 5), uncertain);
    }

    #[test]
    fn without_reported_tokens_the_request_is_repeated() {
        for told in [json!({}), json!({"prompt_token_ids": [-1]})] {
            let seen = seen(&json!({"messages": []})).in_tokens(&told);
            assert_eq!(seen.request().unwrap().0, "/v1/chat/completions");
        }
        let completion = json!({"choices": [{"prompt_token_ids": [5]}]});
        let told = seen(&json!({"prompt": "x"})).in_tokens(&completion);
        assert_eq!(told.prompt.ids(), Some(&[5][..]));
    }
}
