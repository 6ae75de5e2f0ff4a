//! Events and bodies of each API's answers, serialised by hand: when a benchmark uses this engine,
//! the engine must not be the bottleneck.

mod logprobs;

use std::fmt::Write as _;

use super::frames::json_string;
use super::tokens::{self, TOKEN_BYTES};
use super::tools::Call;
use bytes::Bytes;

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// `/inference/v1/generate`.
    Tokens,
    /// `/generate`.
    Sglang,
}

impl Shape {
    /// The answer's id for a request's id, as vLLM derives it; vLLM's abort endpoint expects it.
    pub(super) fn response_id(self, request: &str) -> String {
        match self {
            Self::Chat => format!("chatcmpl-{request}"),
            Self::Completion => format!("cmpl-{request}-0"),
            Self::Tokens => format!("generate-tokens-{request}"),
            Self::Sglang => request.to_owned(),
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The requested number of tokens is reached.
    Length,
    /// The engine chose to stop.
    Stop,
    /// The answer is a tool call.
    ToolCalls,
    /// The request was aborted.
    Abort,
}

impl End {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Abort => "abort",
        }
    }
}

/// Serialises one answer.
#[allow(clippy::struct_excessive_bools, reason = "as the APIs have them")]
pub(super) struct Encoder {
    pub(super) shape: Shape,
    /// The id as JSON, with quotes.
    pub(super) id: String,
    /// The model's name as JSON, with quotes.
    pub(super) model: String,
    /// Versions of the weights so far: the name as JSON, with quotes, and the last token's end.
    pub(super) versions: Vec<(String, usize)>,
    /// Creation time, in seconds since 1970.
    pub(super) created_s: u64,
    pub(super) prompt_tokens: usize,
    /// Prompt ids for the first event or the body, if requested.
    pub(super) prompt_ids: Option<Vec<u32>>,
    pub(super) return_token_ids: bool,
    pub(super) return_logprobs: bool,
    /// Number of alternative tokens for each token.
    pub(super) top_logprobs: usize,
    pub(super) include_usage: bool,
    /// Whether each event of OpenAI's APIs contains the usage so far.
    pub(super) continuous_usage: bool,
    /// The whole text: ASCII without characters that JSON escapes.
    pub(super) output: Bytes,
    pub(super) cached_tokens: u32,
    /// Tokens written so far.
    pub(super) written_tokens: usize,
    /// Index among the choices.
    pub(super) choice: usize,
    /// Number of tokens of the other choices.
    pub(super) other_tokens: usize,
    /// The tool call; `None` for text.
    pub(super) call: Option<Call>,
}

impl Encoder {
    /// Notes the version that samples the next tokens.
    pub(super) fn sampled(&mut self, version: String, count: usize) {
        let start = self.versions.last().map_or(0, |(_, end)| *end);
        match self.versions.last_mut() {
            Some((last, end)) if *last == version => *end += count,
            _ => self.versions.push((version, start + count)),
        }
    }

    /// Versions of ranges of tokens, as vLLM and SGLang name them.
    fn weight_versions(&self) -> String {
        let mut start = 0;
        let spans = self.versions.iter().map(|(version, end)| {
            let start = std::mem::replace(&mut start, *end);
            format!(r#"{{"version":{version},"start":{start},"end":{end}}}"#)
        });
        format!("[{}]", spans.collect::<Vec<_>>().join(","))
    }

    /// The event before the first token, if the API has one.
    pub(super) fn opening(&mut self) -> Option<Bytes> {
        if self.shape != Shape::Chat {
            return None;
        }
        let mut event = self.event_head("chat.completion.chunk");
        let choice = self.choice;
        let _ = write!(
            event,
            r#""choices":[{{"index":{choice},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]"#
        );
        self.write_prompt_ids(&mut event);
        event.push_str("}\n\n");
        Some(event.into())
    }

    /// The event for the next `count` tokens, including the end if they are the last.
    pub(super) fn tokens(&mut self, count: usize, end: Option<End>) -> Bytes {
        let from = self.written_tokens;
        self.written_tokens = (from + count).min(self.output.len() / TOKEN_BYTES);
        let fresh = self
            .output
            .slice(from * TOKEN_BYTES..self.written_tokens * TOKEN_BYTES);
        let text = std::str::from_utf8(&fresh).unwrap_or_default();
        let is_last = end.is_some();
        let end = end.map_or_else(|| "null".to_owned(), |end| format!("\"{}\"", end.name()));
        let (logprobs, choice) = (self.logprobs(text, from), self.choice);
        let mut event = match self.shape {
            Shape::Chat => {
                let mut event = self.event_head("chat.completion.chunk");
                let delta = self.delta(text, from);
                let _ = write!(
                    event,
                    r#""choices":[{{"index":{choice},"delta":{delta},"logprobs":{logprobs},"finish_reason":{end}"#
                );
                event
            }
            Shape::Completion => {
                let mut event = self.event_head("text_completion");
                let _ = write!(
                    event,
                    r#""choices":[{{"index":{choice},"text":"{text}","logprobs":{logprobs},"finish_reason":{end},"stop_reason":null"#
                );
                event
            }
            Shape::Tokens => format!(
                r#"data: {{"request_id":{},"choices":[{{"index":0,"logprobs":{logprobs},"finish_reason":{end}"#,
                self.id
            ),
            Shape::Sglang => {
                // SGLang's streams repeat the whole text so far.
                let end = if end == "null" {
                    end
                } else {
                    self.sglang_end(&end)
                };
                let body = self.sglang_body(&end);
                return format!("data: {body}\n\n").into();
            }
        };
        if self.return_token_ids || self.shape == Shape::Tokens {
            write_ids(&mut event, ",\"token_ids\":", &tokens::ids(&fresh));
        }
        if is_last && self.shape == Shape::Tokens {
            let _ = write!(event, r#","weight_versions":{}"#, self.weight_versions());
        }
        event.push_str("}]");
        if self.shape == Shape::Completion && from == 0 {
            self.write_prompt_ids(&mut event);
        }
        if self.continuous_usage {
            let _ = write!(event, r#","usage":{}"#, self.usage());
        }
        event.push_str("}\n\n");
        event.into()
    }

    /// What follows the last token: the usage, if requested, and the end of the stream.
    pub(super) fn closing(&self) -> Bytes {
        let mut events = String::new();
        if self.include_usage && self.shape != Shape::Sglang {
            events = match self.shape {
                Shape::Chat => self.event_head("chat.completion.chunk"),
                Shape::Completion => self.event_head("text_completion"),
                _ => format!(r#"data: {{"request_id":{},"#, self.id),
            };
            let _ = write!(events, r#""choices":[],"usage":{}}}"#, self.usage());
            events.push_str("\n\n");
        }
        events.push_str("data: [DONE]\n\n");
        events.into()
    }

    /// The delta of a chat's event.
    fn delta(&self, text: &str, from: usize) -> String {
        let Some(Call { id, name, .. }) = &self.call else {
            return format!(r#"{{"content":"{text}"}}"#);
        };
        let text = json_string(text);
        if from > 0 {
            return format!(
                r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{text}}}}}]}}"#
            );
        }
        format!(
            r#"{{"tool_calls":[{{"index":0,"id":{id},"type":"function","function":{{"name":{name},"arguments":{text}}}}}]}}"#
        )
    }

    /// One choice of a whole answer, with all tokens written so far.
    pub(super) fn choice_json(&self, end: End) -> String {
        let text = self.written_text();
        let (choice, end_name) = (self.choice, end.name());
        let logprobs = self.logprobs(text, 0);
        let mut json = match self.shape {
            Shape::Chat => {
                let message = self.message(text);
                format!(
                    r#"{{"index":{choice},"message":{message},"logprobs":{logprobs},"finish_reason":"{end_name}","stop_reason":null"#
                )
            }
            Shape::Completion => format!(
                r#"{{"index":{choice},"text":"{text}","logprobs":{logprobs},"finish_reason":"{end_name}","stop_reason":null"#
            ),
            Shape::Tokens | Shape::Sglang => format!(
                r#"{{"index":0,"logprobs":{logprobs},"finish_reason":"{end_name}","weight_versions":{}"#,
                self.weight_versions()
            ),
        };
        if self.return_token_ids || self.shape == Shape::Tokens {
            write_ids(&mut json, ",\"token_ids\":", &tokens::ids(text.as_bytes()));
        }
        json.push('}');
        json
    }

    fn message(&self, text: &str) -> String {
        let Some(Call { id, name, .. }) = &self.call else {
            return format!(r#"{{"role":"assistant","content":"{text}","tool_calls":[]}}"#);
        };
        let arguments = json_string(text);
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}]}}"#
        )
    }

    /// The body of a whole answer with these choices. SGLang's has only this one.
    pub(super) fn body(&self, choices: &[String], end: End) -> Bytes {
        let mut body = match self.shape {
            Shape::Chat => self.head("{", "chat.completion"),
            Shape::Completion => self.head("{", "text_completion"),
            Shape::Tokens => format!(r#"{{"request_id":{},"#, self.id),
            Shape::Sglang => {
                let end = self.sglang_end(&format!("\"{}\"", end.name()));
                return self.sglang_body(&end).into();
            }
        };
        let _ = write!(body, r#""choices":[{}]"#, choices.join(","));
        if let Some(ids) = &self.prompt_ids {
            write_ids(&mut body, ",\"prompt_token_ids\":", ids);
        }
        let _ = write!(body, r#","usage":{}}}"#, self.usage());
        body.into()
    }

    /// Log-probabilities of a text that begins after `from` tokens, if requested.
    fn logprobs(&self, text: &str, from: usize) -> String {
        if self.return_logprobs {
            logprobs::of(self.shape, text, from, self.top_logprobs)
        } else {
            "null".to_owned()
        }
    }

    fn written_text(&self) -> &str {
        let written = &self.output[..self.written_tokens * TOKEN_BYTES];
        std::str::from_utf8(written).unwrap_or_default()
    }

    fn event_head(&self, object: &str) -> String {
        self.head("data: {", object)
    }

    fn head(&self, start: &str, object: &str) -> String {
        let Self {
            id,
            model,
            created_s,
            ..
        } = self;
        format!(r#"{start}"id":{id},"object":"{object}","created":{created_s},"model":{model},"#)
    }

    /// Number of tokens written in all choices.
    pub(super) const fn all_tokens(&self) -> usize {
        self.written_tokens + self.other_tokens
    }

    fn usage(&self) -> String {
        let (prompt, written) = (self.prompt_tokens, self.all_tokens());
        let (total, cached) = (prompt + written, self.cached_tokens);
        format!(
            r#"{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{written},"prompt_tokens_details":{{"cached_tokens":{cached}}}}}"#
        )
    }

    fn write_prompt_ids(&mut self, event: &mut String) {
        if let Some(ids) = self.prompt_ids.take() {
            write_ids(event, ",\"prompt_token_ids\":", &ids);
        }
    }

    fn sglang_end(&self, name: &str) -> String {
        match name {
            r#""length""# => format!(r#"{{"type":"length","length":{}}}"#, self.written_tokens),
            r#""abort""# => r#"{"type":"abort","message":"aborted"}"#.to_owned(),
            _ => r#"{"type":"stop","matched":null}"#.to_owned(),
        }
    }

    fn sglang_body(&self, end: &str) -> String {
        let text = self.written_text();
        let ids = tokens::ids(text.as_bytes());
        let mut body = format!(r#"{{"text":"{text}""#);
        write_ids(&mut body, ",\"output_ids\":", &ids);
        let _ = write!(
            body,
            r#","meta_info":{{"id":{},"finish_reason":{end},"prompt_tokens":{},"weight_version":{},"weight_versions":{},"completion_tokens":{},"cached_tokens":{}"#,
            self.id,
            self.prompt_tokens,
            self.versions.last().map_or("null", |(version, _)| version),
            self.weight_versions(),
            self.written_tokens,
            self.cached_tokens
        );
        if self.return_logprobs {
            let all = logprobs::of(self.shape, text, 0, 0);
            let _ = write!(body, ",\"output_token_logprobs\":{all}");
        }
        body.push_str("}}");
        body
    }
}

fn write_ids(text: &mut String, key: &str, ids: &[u32]) {
    text.push_str(key);
    text.push('[');
    for (place, id) in ids.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{id}");
    }
    text.push(']');
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn encoder(shape: Shape) -> Encoder {
        Encoder {
            shape,
            id: "\"x\"".to_owned(),
            model: "\"m\"".to_owned(),
            versions: vec![("\"default\"".to_owned(), 6)],
            created_s: 5,
            prompt_tokens: 10,
            prompt_ids: Some(vec![1, 2]),
            return_token_ids: true,
            return_logprobs: true,
            top_logprobs: 2,
            include_usage: true,
            continuous_usage: false,
            output: tokens::generated(1, 0, 6).into(),
            cached_tokens: 4,
            written_tokens: 0,
            choice: 0,
            other_tokens: 0,
            call: None,
        }
    }

    fn body(encoder: &Encoder, end: End) -> Bytes {
        encoder.body(&[encoder.choice_json(end)], end)
    }

    fn events(bytes: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).unwrap();
        let payloads = text
            .split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap());
        payloads
            .filter(|each| *each != "[DONE]")
            .map(|each| serde_json::from_str(each).unwrap())
            .collect()
    }

    #[test]
    fn each_event_has_the_usage_so_far_if_asked_for() {
        for shape in [Shape::Chat, Shape::Completion] {
            let mut encoder = encoder(shape);
            encoder.continuous_usage = true;
            let mut counted = Vec::new();
            for tokens in [2, 4] {
                let event = &events(&encoder.tokens(tokens, None))[0];
                counted.push(event["usage"]["completion_tokens"].as_u64());
            }
            assert_eq!(counted, [Some(2), Some(6)]);
        }
    }

    #[test]
    fn every_event_of_every_api_is_json_and_the_parts_make_the_whole() {
        for shape in [Shape::Chat, Shape::Completion, Shape::Tokens, Shape::Sglang] {
            let mut encoder = encoder(shape);
            let mut stream = encoder
                .opening()
                .map_or_else(Vec::new, |bytes| bytes.to_vec());
            stream.extend_from_slice(&encoder.tokens(2, None));
            stream.extend_from_slice(&encoder.tokens(4, Some(End::Length)));
            stream.extend_from_slice(&encoder.closing());
            let events = events(&stream);
            let body: Value = serde_json::from_slice(&body(&encoder, End::Length)).unwrap();
            let joined = |pointer: &str| {
                events
                    .iter()
                    .filter_map(|event| event.pointer(pointer)?.as_str())
                    .collect::<String>()
            };
            match shape {
                Shape::Chat => {
                    assert_eq!(
                        joined("/choices/0/delta/content"),
                        body["choices"][0]["message"]["content"]
                    );
                    assert_eq!(events[0]["prompt_token_ids"][1], 2);
                }
                Shape::Completion => {
                    assert_eq!(joined("/choices/0/text"), body["choices"][0]["text"]);
                    let all = &body["choices"][0]["logprobs"];
                    let last = &events[1]["choices"][0]["logprobs"];
                    for list in ["text_offset", "token_logprobs", "tokens", "top_logprobs"] {
                        assert_eq!(
                            (&all[list][2], &all[list][5]),
                            (&last[list][0], &last[list][3])
                        );
                    }
                }
                Shape::Tokens => {
                    let all = &body["choices"][0]["logprobs"]["content"];
                    let last = &events[1]["choices"][0]["logprobs"]["content"][3];
                    assert_eq!((&all[5], all[0]["rank"].as_u64()), (last, Some(1)));
                    let ids = body["choices"][0]["token_ids"].as_array().unwrap();
                    assert_eq!(ids.len(), 6);
                    assert_eq!(
                        events[1]["choices"][0]["token_ids"],
                        Value::from(ids[2..].to_vec())
                    );
                }
                Shape::Sglang => {
                    assert_eq!(events[1], body);
                    assert_eq!(body["meta_info"]["finish_reason"]["length"], 6);
                    assert_eq!(
                        body["meta_info"]["output_token_logprobs"]
                            .as_array()
                            .unwrap()
                            .len(),
                        6
                    );
                }
            }
            if shape != Shape::Sglang {
                let usage = &events.last().unwrap()["usage"];
                assert_eq!(usage, &body["usage"]);
                assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 4);
                assert_eq!(usage["total_tokens"], 16);
                let last = &events[events.len() - 2];
                assert_eq!(last["choices"][0]["finish_reason"], "length");
            }
        }
    }
}
