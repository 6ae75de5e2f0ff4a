//! Chats that continue an answer by its tokens (`history` is `as_sampled`), or are sent as their
//! client sent them, with the reason. The engines are scripted after vLLM's and SGLang's paths, and
//! have a template that drops the thinking of earlier answers.

use super::tokens::{asked, gateway, release};
use super::{batch, declare, get, payload, proven, submit};
use http::Method;
use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::CHAT;
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

const START: i32 = 200_001;
const STOP: i32 = 200_002;
const JSON: &str = "application/json";

/// An engine. Each letter is a token.
#[derive(Clone, Copy)]
struct Toy {
    kind: EngineChoice,
    /// A path that it does not have.
    lacks: &'static str,
    /// Its template writes the number of messages first.
    counts: bool,
    /// It takes no notice of `input_ids`.
    ignores: bool,
    /// How its answers end.
    end: &'static str,
}

const VLLM: Toy = Toy {
    kind: EngineChoice::Vllm,
    lacks: "",
    counts: false,
    ignores: false,
    end: "stop",
};
const SGLANG: Toy = Toy {
    kind: EngineChoice::Sglang,
    ..VLLM
};

fn letters(text: &str) -> Vec<i32> {
    text.chars().map(|letter| letter as i32).collect()
}

fn text_of(ids: &[i32]) -> String {
    let letters = ids
        .iter()
        .filter_map(|id| char::from_u32(id.cast_unsigned()));
    letters.filter(|letter| *letter != '\u{30d42}').collect()
}

impl Toy {
    fn template(self, request: &Value) -> Vec<i32> {
        let messages = request["messages"].as_array().expect("messages");
        let mut ids = Vec::new();
        if self.counts {
            ids.push(i32::try_from(messages.len()).expect("a few"));
        }
        for message in messages {
            let role = message["role"].as_str().expect("a role");
            ids.push(START);
            ids.extend(letters(&format!("{role}\n")));
            ids.extend(letters(message["content"].as_str().unwrap_or_default()));
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let arguments = call["function"]["arguments"].as_str().expect("text");
                ids.extend(letters(&format!("CALL {arguments}")));
            }
            ids.push(STOP);
            ids.extend(letters("\n"));
        }
        if request.get("add_generation_prompt") != Some(&json!(false)) {
            ids.push(START);
            ids.extend(letters("assistant\n"));
        }
        ids
    }

    /// The message that its parser makes of a text.
    fn message(self, text: &str) -> Value {
        let (thought, said) = text.split_once("</think>").unwrap_or(("", text));
        let thought = thought.trim_start_matches("<think>");
        let name = match self.kind {
            EngineChoice::Sglang => "reasoning_content",
            _ => "reasoning",
        };
        let mut message = json!({"role": "assistant", "content": said, name: thought});
        if let Some(arguments) = said.strip_prefix("CALL ") {
            message["content"] = Value::Null;
            message["tool_calls"] = json!([{"id": "call-1", "type": "function",
                "function": {"name": "f", "arguments": arguments}}]);
        }
        message
    }

    fn chat(self, asked: &Value, output: &[i32]) -> Value {
        let own: Option<Vec<i32>> = serde_json::from_value(asked["input_ids"].clone()).ok();
        let own = own.filter(|_| !self.ignores);
        let prompt = own.unwrap_or_else(|| self.template(asked));
        let message = self.message(&text_of(output));
        let end = match message.get("tool_calls") {
            Some(_) => "tool_calls",
            None => self.end,
        };
        let scores: Vec<Value> = output.iter().map(|_| json!({"logprob": -0.5})).collect();
        let mut choice = json!({"index": 0, "finish_reason": end, "message": message,
            "logprobs": {"content": scores}});
        let mut answer = json!({"id": "c", "model": "m", "usage": usage(&prompt, output)});
        if self.kind == EngineChoice::Sglang {
            choice["prompt_token_ids"] = json!(prompt);
            choice["response_token_ids"] = json!(output);
        } else {
            choice["token_ids"] = json!(output);
            answer["prompt_token_ids"] = json!(prompt);
        }
        answer["choices"] = json!([choice]);
        answer
    }

    /// Answers a request; the next answer of its model is `output`.
    async fn answer(self, request: RawRequest, output: &str) {
        let body = asked(&request);
        let path = request.line.split(' ').nth(1).expect("a path").to_owned();
        let output = [letters(output), vec![STOP]].concat();
        let answer = match &*path {
            path if path == self.lacks => {
                return request.answer("404 Not Found", JSON, "{}").await;
            }
            "/tokenize" => json!({"tokens": self.template(&body), "max_model_len": 10_000}),
            "/v1/chat/completions/render" => json!({"request_id": "chatcmpl-1", "priority": 0,
                "token_ids": self.template(&body), "cache_salt": null, "stream": false,
                "sampling_params": {"max_tokens": body["max_tokens"], "logprobs": 0}}),
            "/inference/v1/generate" => {
                let prompt: Vec<i32> =
                    serde_json::from_value(body["token_ids"].clone()).expect("ids");
                let scores = output
                    .iter()
                    .map(|id| json!({"token_id": id, "logprob": -0.5}));
                let versions = json!([{"start": 0, "end": output.len(), "version": "default"}]);
                json!({"request_id": body["request_id"], "usage": usage(&prompt, &output),
                    "choices": [{"index": 0, "finish_reason": "stop", "token_ids": output,
                        "weight_versions": versions, "logprobs": {"content": scores.collect::<Vec<_>>()}}]})
            }
            "/v1/chat/completions/derender" => {
                let own = &body["generate_response"];
                let ids: Vec<i32> =
                    serde_json::from_value(own["choices"][0]["token_ids"].clone()).expect("ids");
                // It writes what it gets, the stop token too.
                assert!(!ids.contains(&STOP));
                json!({"id": own["request_id"], "object": "chat.completion", "model": "m",
                    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": null,
                        "message": self.message(&text_of(&ids))}], "usage": {"prompt_tokens": 0}})
            }
            CHAT => self.chat(&body, &output),
            other => panic!("a request to {other}"),
        };
        request.answer("200 OK", JSON, &answer.to_string()).await;
    }
}

fn usage(prompt: &[i32], output: &[i32]) -> Value {
    json!({"prompt_tokens": prompt.len(), "completion_tokens": output.len()})
}

/// A program and what it has said so far.
struct Talk<'a> {
    client: &'a Client,
    program: &'static str,
    request: Value,
}

impl<'a> Talk<'a> {
    fn new(client: &'a Client, program: &'static str) -> Self {
        let request = json!({"model": "m", "max_tokens": 50, "messages": [
            {"role": "system", "content": "be brief"}]});
        Self {
            client,
            program,
            request,
        }
    }

    fn add(&mut self, message: Value) {
        let messages = self.request["messages"].as_array_mut().expect("a list");
        messages.push(message);
    }

    /// Adds a message and what the model says to that, without its thinking.
    async fn turn(
        &mut self,
        engine: &mut RawEngine,
        toy: Toy,
        message: Value,
        output: &str,
    ) -> Answer {
        self.add(message);
        let (client, program) = (self.client.clone(), self.program);
        let body = self.request.to_string().into_bytes();
        let mut sent = tokio::spawn(async move {
            let headers = [
                ("x-treadle-job", "math"),
                ("x-treadle-group", program),
                ("x-program-id", program),
            ];
            client.send(Method::POST, CHAT, &headers, body).await
        });
        let answer = loop {
            tokio::select! {
                answer = &mut sent => break answer.expect("it ends"),
                request = engine.request() => toy.answer(request, output).await,
            }
        };
        let mut said = toy.message(output);
        for name in ["reasoning", "reasoning_content"] {
            said.as_object_mut().expect("an object").remove(name);
        }
        self.add(said);
        answer
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn with_history(client: &Client, history: &str) {
    let settings = json!({"group_size": 1, "batch_groups": 32, "capture": "tokens",
        "rewarded": false, "history": history});
    declare(client, settings).await;
}

/// Three turns, two of them calls, the last one a stream if `streams`. Each answer has thoughts that
/// the template drops.
async fn talk(engine: &mut RawEngine, toy: Toy, client: &Client, streams: bool) {
    let mut talk = Talk::new(client, "a");
    let call = "<think>so</think>CALL {\"x\": 1}";
    talk.turn(engine, toy, user("hi"), call).await.ok();
    let result = json!({"role": "tool", "tool_call_id": "call-1", "content": "7"});
    let call = "<think>hm</think>CALL {\"x\": 2}";
    let answer = talk.turn(engine, toy, result.clone(), call).await.ok();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let calls = &choice["message"]["tool_calls"];
    assert_eq!(calls[0]["function"]["arguments"], "{\"x\": 2}", "{answer}");
    for hidden in ["token_ids", "weight_versions", "logprob\""] {
        let shown = answer.to_string().replace("\"token_ids\":null", "");
        let shown = shown.replace("\"prompt_token_ids\":null", "");
        assert!(!shown.contains(hidden), "{shown}");
    }
    assert!(
        answer["usage"]["prompt_tokens"].as_u64() > Some(20),
        "{answer}"
    );
    talk.request["stream"] = json!(streams);
    let answer = talk.turn(engine, toy, result, "<think>x</think>done").await;
    let shown = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(shown.contains("\"content\":\"done\""), "{shown}");
    assert_eq!(shown.ends_with("data: [DONE]\n\n"), streams, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_thinking_is_dropped_is_continued_by_its_tokens() {
    for toy in [VLLM, SGLANG] {
        for (history, sequences) in [("as_sent", 3), ("as_sampled", 1)] {
            let mut engine = RawEngine::start().await;
            let fixture = gateway(&engine, toy.kind).await;
            let client = &fixture.client;
            let settings = json!({"group_size": 1, "batch_groups": 1, "capture": "tokens",
                "rewarded": false, "history": history});
            declare(client, settings).await;
            talk(&mut engine, toy, client, history == "as_sampled").await;
            release(client, "a").await;
            let (view, _) = batch(client, 1).await;
            assert_eq!(view["groups"][0]["members"][0]["turns"], 3, "{view}");
            let steps = get(client, "/members/a/steps").await.ok();
            let formed = steps["sequences"].as_array().expect("a list");
            assert_eq!(formed.len(), sequences, "{history}: {}", steps["breaks"]);
            let how: Vec<&Value> = (0..3).map(|n| &steps["steps"][n]["history"]).collect();
            let is_fed = history == "as_sampled";
            let fed = if is_fed {
                json!("as_sampled")
            } else {
                Value::Null
            };
            assert_eq!(how, [&Value::Null, &fed, &fed]);
            let folder = tempfile::tempdir().expect("a folder");
            let file = |ending: &str| folder.path().join(format!("batch-1.{ending}"));
            let whole = get(client, "/batches/1").await.ok();
            std::fs::write(file("json"), whole.to_string()).expect("a file");
            let tokens = payload(client, 1, "").await;
            std::fs::write(file("safetensors"), tokens).expect("a file");
            assert_eq!(proven(client, folder.path())["samples_proven"], 1);
            let page = client.get("/metrics").await;
            let page = String::from_utf8_lossy(&page.body).into_owned();
            let count = "treadle_training_history_total{history=\"as_sampled\"} 2";
            assert_eq!(page.contains(count), is_fed, "{page}");
            fixture.finish().await;
        }
    }
}

/// What a second request changes, or what its engine does in another way.
type Change = (&'static str, Toy, fn(&mut Value));

const fn toy(toy: Toy, lacks: &'static str) -> Toy {
    Toy { lacks, ..toy }
}

const CHANGES: [Change; 14] = [
    ("edited", VLLM, |r| {
        r["messages"][0]["content"] = "be long".into();
    }),
    ("not_held", VLLM, |r| {
        r["messages"][2]["content"] = "no".into();
    }),
    ("tools", VLLM, |r| {
        r["tools"] = json!([{"type": "function"}]);
    }),
    ("settings", VLLM, |r| r["reasoning_effort"] = "low".into()),
    ("several", VLLM, |r| r["n"] = 2.into()),
    ("field", VLLM, |r| r["logprobs"] = true.into()),
    ("media", VLLM, |r| {
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}});
        r["messages"][1]["content"] = json!([image]);
    }),
    ("tokenize", toy(VLLM, "/tokenize"), |_| ()),
    ("tokenize", toy(VLLM, "/v1/chat/completions/render"), |_| ()),
    ("refused", toy(VLLM, "/inference/v1/generate"), |_| ()),
    (
        "prefix",
        Toy {
            counts: true,
            ..SGLANG
        },
        |_| (),
    ),
    (
        "ignored",
        Toy {
            ignores: true,
            ..SGLANG
        },
        |_| (),
    ),
    (
        "cut",
        Toy {
            end: "length",
            ..SGLANG
        },
        |_| (),
    ),
    ("as_sampled", SGLANG, |_| ()),
];
const PROGRAMS: [&str; 14] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
];

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_not_as_it_has_to_be_is_sent_as_the_client_sent_it() {
    for kind in [EngineChoice::Vllm, EngineChoice::Sglang] {
        let mut engine = RawEngine::start().await;
        let fixture = gateway(&engine, kind).await;
        let client = &fixture.client;
        with_history(client, "as_sampled").await;
        submit(client, &PROGRAMS).await;
        for ((reason, toy, change), program) in CHANGES.into_iter().zip(PROGRAMS) {
            if toy.kind != kind {
                continue;
            }
            let mut talk = Talk::new(client, program);
            let thought = "<think>so</think>yes";
            talk.turn(&mut engine, toy, user("hi"), thought).await.ok();
            change(&mut talk.request);
            talk.turn(&mut engine, toy, user("more"), "ok").await.ok();
            let steps = get(client, &format!("/members/{program}/steps")).await.ok();
            assert_eq!(steps["steps"][1]["history"], reason, "{steps}");
            let is_fed = reason == "as_sampled";
            let sequences = steps["sequences"].as_array().map(Vec::len);
            assert_eq!(sequences == Some(1), is_fed, "{reason}: {steps}");
        }
        fixture.finish().await;
    }
}

/// The answer was sampled and can't be shown: its client gets another one, and the member is not
/// trained.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_its_engine_does_not_parse_spoils_its_member() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    with_history(client, "as_sampled").await;
    let toy = toy(VLLM, "/v1/chat/completions/derender");
    let mut talk = Talk::new(client, "a");
    talk.turn(&mut engine, toy, user("hi"), "<think>so</think>yes")
        .await
        .ok();
    let answer = talk.turn(&mut engine, toy, user("more"), "ok").await.ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "ok");
    let steps = get(client, "/members/a/steps").await.ok();
    assert_eq!(steps["steps"][1]["history"], "unparsed", "{steps}");
    let incomplete = steps["incomplete"].as_str().expect("a reason");
    assert!(incomplete.contains("derender"), "{steps}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_declares_its_history() {
    let engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let job = get(client, "").await.ok();
    assert_eq!(job["settings"]["history"], "as_sent");
    with_history(client, "as_sampled").await;
    let job = get(client, "").await.ok();
    assert_eq!(job["settings"]["history"], "as_sampled");
    for (settings, word) in [
        (json!({"history": "as_sampled"}), "needs captured tokens"),
        (
            json!({"history": "healed", "capture": "tokens"}),
            "as_sampled",
        ),
    ] {
        let refused = super::put(client, "", &settings).await;
        let text = refused.refused(400, "invalid_field");
        assert!(text.contains(word), "{text}");
    }
    fixture.finish().await;
}
