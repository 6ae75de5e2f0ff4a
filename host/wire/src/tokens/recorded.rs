//! Answers of real engines, recorded with and without what treadle asks for: `recorded/README.md`.

use super::{AnswerTokens, Shown, TokenReader, TokenRequest};
use crate::Endpoint;
use serde::Deserialize;
use serde_json::{Value, json};
use treadle_model::EngineKind;

/// The stop token of the model.
const STOP: i32 = 2;

#[derive(Deserialize)]
struct Case {
    name: String,
    path: String,
    /// The client's request.
    asked: Value,
    /// The request that was sent to the engine.
    sent: Value,
    /// What it answered: one body, or events.
    answer: Vec<Value>,
    /// What it answers to the client's own request.
    without: Vec<Value>,
}

impl Case {
    fn streams(&self) -> bool {
        self.asked["stream"] == true
    }

    fn request(&self, engine: EngineKind) -> TokenRequest {
        let endpoint = match &*self.path {
            "/v1/chat/completions" => Endpoint::ChatCompletions,
            _ => Endpoint::Completions,
        };
        let asked = self.asked.to_string();
        let request = TokenRequest::ask(endpoint, engine, asked.as_bytes(), self.streams());
        request.expect("it can be captured")
    }

    /// What the client gets.
    fn shown(&self, reader: &mut TokenReader, is_played: bool) -> Vec<Value> {
        let read = |body: &[u8]| serde_json::from_slice(body).expect("JSON");
        if self.streams() && !is_played {
            let shown = self.answer.iter().filter_map(|event| {
                match reader.event(event.to_string().as_bytes()) {
                    Shown::All => Some(event.clone()),
                    Shown::Part(part) => Some(read(&part)),
                    Shown::Nothing => None,
                }
            });
            return shown.collect();
        }
        let body = self.answer[0].to_string().into_bytes();
        let part = reader.whole(&body).unwrap_or(body);
        if !is_played {
            return vec![read(&part)];
        }
        let events = reader.played(&part).expect("it is an answer");
        let events = String::from_utf8(events).expect("text");
        let events = events.split_terminator("\n\n");
        let events = events.filter_map(|event| event.strip_prefix("data: {"));
        events
            .map(|event| read(format!("{{{event}").as_bytes()))
            .collect()
    }
}

/// Texts, log-probabilities and ends in events: what is left of a stream that was asked for in one
/// piece.
fn gist(events: &[Value]) -> Value {
    let list = |pointer: &str| -> Vec<&Value> {
        let found = events.iter().filter_map(|event| event.pointer(pointer));
        found.filter(|value| !value.is_null()).collect()
    };
    let texts = list("/choices/0/delta/content");
    let text: String = texts.into_iter().filter_map(Value::as_str).collect();
    let scores = list("/choices/0/logprobs/content").into_iter();
    let scores: Vec<_> = scores.filter_map(Value::as_array).flatten().collect();
    json!({"text": text, "scores": scores, "end": list("/choices/0/finish_reason"),
           "usage": list("/usage")})
}

/// vLLM moves this to the event with the usage, which it was asked for.
fn without_fingerprint(mut events: Vec<Value>) -> Vec<Value> {
    for event in &mut events {
        event
            .as_object_mut()
            .expect("an object")
            .remove("system_fingerprint");
    }
    events
}

fn check(engine: EngineKind, cases: &str) {
    let cases: Vec<Case> = serde_json::from_str(cases).expect("a list of cases");
    for case in cases {
        let name = &case.name;
        let request = case.request(engine);
        let sent: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(sent, case.sent, "{name}");
        let mut reader = request.reader;
        let shown = case.shown(&mut reader, request.is_played);
        if request.is_played {
            assert_eq!(gist(&shown), gist(&case.without), "{name}");
        } else {
            let [shown, without] = [shown, case.without.clone()].map(without_fingerprint);
            assert_eq!(shown, without, "{name}");
        }
        let tokens = reader.finish().expect("they can be read");
        is_complete(&tokens, name);
        if case.asked.get("logit_bias").is_some() {
            assert_eq!(tokens.choices[&0].ids, [STOP], "{name}");
        }
    }
}

/// Ids and log-probabilities are as many as the engine counted.
fn is_complete(tokens: &AnswerTokens, name: &str) {
    let choice = &tokens.choices[&0];
    let [prompt, ids, logprobs] = [
        &tokens.prompt.len(),
        &choice.ids.len(),
        &choice.logprobs.len(),
    ]
    .map(|n| Some(*n as u64));
    assert_eq!(prompt, tokens.prompt_tokens, "{name}");
    assert_eq!(ids, tokens.output_tokens, "{name}");
    assert_eq!(logprobs, tokens.output_tokens, "{name}");
    assert!(choice.logprobs.iter().all(|p| *p <= 0.0), "{name}");
}

#[test]
fn vllm_answers_as_read_here() {
    check(EngineKind::Vllm, include_str!("recorded/vllm-0.32.0.json"));
}

#[test]
fn sglang_answers_as_read_here() {
    check(
        EngineKind::Sglang,
        include_str!("recorded/sglang-0.5.23.json"),
    );
}
