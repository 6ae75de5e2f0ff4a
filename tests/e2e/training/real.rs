//! Agents whose tokens are captured at real engines: what is stored is what the engine answers when
//! it is asked without treadle, its scores of whole sequences agree, and clients see nothing of it.

use super::{declare, get, payload, proven, submit};
use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Client, Ended};
use treadle_tests::support::fixture::{CHAT, COMPLETIONS};

const PROGRAM: &str = "agent";
const OUTPUT_MAX: u64 = 16;
/// How far a log-probability may be from the engine's score of the same token in a prompt, which it
/// computes in other shapes: 3e-7 of vLLM and 3e-6 of SGLang at float32 on a processor.
const SCORE_OFF_MAX: f64 = 1e-4;

/// An engine, asked directly.
pub(crate) struct Engine {
    pub(crate) client: Client,
    pub(crate) model: String,
    pub(crate) kind: Kind,
}

/// How an engine is asked for scores.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// With `prompt_logprobs`.
    Vllm,
    /// At its path `/generate`.
    Sglang,
}

/// What a turn sends.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// All messages so far.
    Messages,
    /// A text.
    Text,
    /// All tokens so far.
    Ids,
}

/// A turn of the agent: what it sends, with which further fields.
struct Turn {
    form: Form,
    fields: Value,
    /// Whether a stop sequence ends it at once.
    stops: bool,
}

/// What an engine sampled after a prompt.
struct Sampled {
    prompt: Vec<i64>,
    output: Vec<i64>,
    text: String,
}

fn turns() -> Vec<Turn> {
    let usage = json!({"include_usage": true});
    let turn = |form, fields: Value| Turn {
        form,
        fields,
        stops: false,
    };
    let stopping = |fields: Value| Turn {
        form: Form::Messages,
        fields,
        stops: true,
    };
    vec![
        turn(Form::Messages, json!({})),
        turn(Form::Messages, json!({"stream": true})),
        turn(Form::Messages, json!({"logprobs": true, "top_logprobs": 2})),
        turn(
            Form::Messages,
            json!({"stream": true, "stream_options": usage, "logprobs": true}),
        ),
        stopping(json!({"n": 1})),
        stopping(json!({"n": 1, "stream": true})),
        turn(Form::Text, json!({})),
        turn(Form::Ids, json!({})),
        turn(Form::Ids, json!({"stream": true})),
        turn(
            Form::Ids,
            json!({"stream": true, "stream_options": usage, "logprobs": 1}),
        ),
        turn(Form::Ids, json!({"return_token_ids": true})),
    ]
}

pub(super) fn numbers(value: &Value) -> Vec<i64> {
    let numbers = value.as_array().expect("a list").iter();
    numbers.map(|n| n.as_i64().expect("a number")).collect()
}

/// The first of these fields that has a value.
fn one_of<'a>(fields: &[&'a Value]) -> &'a Value {
    let found = fields.iter().find(|field| !field.is_null());
    found.expect("one of them is there")
}

impl Engine {
    /// What it samples for a request, in one piece.
    async fn samples(&self, path: &str, body: &Value) -> Sampled {
        let mut body = body.clone();
        let fields = body.as_object_mut().expect("an object");
        fields.retain(|name, _| !name.starts_with("stream"));
        fields.insert("return_token_ids".into(), json!(true));
        let answer = self.client.post(path, &body).await.ok();
        let choice = &answer["choices"][0];
        let prompt = one_of(&[&answer["prompt_token_ids"], &choice["prompt_token_ids"]]);
        let output = one_of(&[&choice["token_ids"], &choice["response_token_ids"]]);
        let text = one_of(&[&choice["message"]["content"], &choice["text"]]);
        Sampled {
            prompt: numbers(prompt),
            output: numbers(output),
            text: text.as_str().expect("a text").to_owned(),
        }
    }

    /// Its scores of all tokens but the first.
    async fn scores(&self, ids: &[i64]) -> Vec<f64> {
        if self.kind == Kind::Vllm {
            let body = json!({"model": self.model, "prompt": ids, "max_tokens": 1,
                "temperature": 0, "prompt_logprobs": 0});
            let answer = self.client.post(COMPLETIONS, &body).await.ok();
            let scores = answer["choices"][0]["prompt_logprobs"].as_array();
            let scores = scores.expect("a list").iter().zip(ids).skip(1);
            let scores = scores.map(|(scores, id)| &scores[id.to_string()]["logprob"]);
            return scores.map(|p| p.as_f64().expect("a number")).collect();
        }
        let body = json!({"input_ids": ids, "return_logprob": true, "logprob_start_len": 0,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0}});
        let answer = self.client.post("/generate", &body).await.ok();
        let scores = answer["meta_info"]["input_token_logprobs"].as_array();
        let scores = scores.expect("a list").iter().skip(1);
        scores.map(|p| p[0].as_f64().expect("a number")).collect()
    }
}

/// What a client sees of an answer: all of one piece; of a stream its text, log-probabilities, end and
/// usage, since an engine cuts it as its load has it.
fn seen(bytes: &[u8], streams: bool) -> Value {
    if !streams {
        let mut answer: Value = serde_json::from_slice(bytes).expect("JSON");
        let fields = answer.as_object_mut().expect("an object");
        fields.retain(|name, _| name != "id" && name != "created");
        // How much of the prompt was cached depends on who asked first.
        let usage = answer["usage"].as_object_mut().expect("an object");
        usage.remove("prompt_tokens_details");
        return answer;
    }
    let ended = Ended {
        bytes: bytes.to_vec(),
        broken: false,
    };
    assert!(ended.is_done(), "{:?}", ended.payloads());
    let events = ended.objects();
    let list = |pointer: &str| -> Vec<&Value> {
        let found = events.iter().filter_map(|event| event.pointer(pointer));
        found.filter(|value| !value.is_null()).collect()
    };
    let choice = |name: &str| list(&format!("/choices/0/{name}"));
    let texts = [choice("delta/content"), choice("text")].concat();
    let text: String = texts.into_iter().filter_map(Value::as_str).collect();
    // Lists of an event, one behind the other.
    let flat = |name: &str| -> Vec<&Value> {
        let lists = choice(name).into_iter().filter_map(Value::as_array);
        lists.flatten().collect()
    };
    json!({"text": text, "prompt": [list("/prompt_token_ids"), choice("prompt_token_ids")],
        "ids": flat("token_ids"), "chat scores": flat("logprobs/content"),
        "scores": flat("logprobs/token_logprobs"), "end": choice("finish_reason"),
        "usage": list("/usage/completion_tokens")})
}

/// Whether these are equal but for the last digits of numbers: an engine computes the same in other
/// shapes if more of the prompt is cached.
fn is_alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    other.get(name).is_some_and(|other| is_alike(value, other))
                })
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_alike(a, b))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let apart = one.as_f64().zip(other.as_f64()).map(|(a, b)| (a - b).abs());
            apart.is_some_and(|apart| apart <= SCORE_OFF_MAX)
        }
        _ => one == other,
    }
}

/// An agent: it has each turn answered by the engine and through treadle.
struct Agent<'a> {
    client: &'a Client,
    engine: &'a Engine,
    messages: Vec<Value>,
    ids: Vec<i64>,
}

impl Agent<'_> {
    /// Returns what the engine sampled when it was asked without treadle.
    async fn take(&mut self, turn: &Turn) -> Sampled {
        let mut body = turn.fields.clone();
        body["model"] = json!(self.engine.model);
        body["max_tokens"] = json!(OUTPUT_MAX);
        body["temperature"] = json!(0);
        let (path, field, prompt) = match turn.form {
            Form::Messages => (CHAT, "messages", json!(self.messages)),
            Form::Text => (COMPLETIONS, "prompt", json!("bado fego kimu lopa")),
            Form::Ids => (COMPLETIONS, "prompt", json!(self.ids)),
        };
        body[field] = prompt;
        if turn.stops {
            let text = self.engine.samples(path, &body).await.text;
            // From its start: the last token then has no text.
            let end: String = text.chars().take(3).collect();
            body["stop"] = json!([end]);
        }
        let streams = body["stream"] == true;
        let sent = body.to_string().into_bytes();
        let post = Method::POST;
        let own = self
            .engine
            .client
            .send(post.clone(), path, &JSON, sent.clone());
        let own = own.await;
        let through = self.client.send(post, path, &MEMBER, sent).await;
        assert_eq!(own.status, 200, "{:?}", own.body);
        let [through, own] = [through, own].map(|answer| seen(&answer.body, streams));
        assert!(is_alike(&through, &own), "{body}: {through} {own}");
        let sampled = self.engine.samples(path, &body).await;
        self.messages
            .push(json!({"role": "assistant", "content": sampled.text}));
        self.messages
            .push(json!({"role": "user", "content": "rate sova"}));
        self.ids = [&*sampled.prompt, &sampled.output, &[300, 301, 302]].concat();
        sampled
    }
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
pub(super) const MEMBER: [(&str, &str); 4] = [
    JSON[0],
    ("x-treadle-job", "math"),
    ("x-treadle-group", "a"),
    ("x-program-id", PROGRAM),
];

/// How many sequences these steps form: each step continues the longest one that its prompt begins
/// with, and a sequence ends with a step that none continues.
fn sequences(steps: &[Sampled]) -> usize {
    let contexts: Vec<_> = steps
        .iter()
        .map(|s| [&*s.prompt, &s.output].concat())
        .collect();
    let continued = steps.iter().filter_map(|step| {
        let earlier = (0..steps.len()).filter(|at| step.prompt.starts_with(&contexts[*at]));
        earlier.max_by_key(|at| contexts[*at].len())
    });
    let continued: std::collections::BTreeSet<_> = continued.collect();
    steps.len() - continued.len()
}

/// Compares the sampled tokens of a sequence with the engine's scores; returns how far apart they are.
async fn rescored(engine: &Engine, sequence: &Value, steps: &Value) -> f64 {
    let scores = engine.scores(&numbers(&sequence["ids"])).await;
    let mut most = 0.0_f64;
    for range in sequence["sampled"].as_array().expect("a list") {
        let at = |name: &str| range[name].as_u64().expect("a number") as usize;
        let kept = steps[at("step")]["logprobs"].as_array().expect("a list");
        assert_eq!(kept.len(), at("end") - at("start"));
        for (kept, score) in kept.iter().zip(&scores[at("start") - 1..]) {
            most = most.max((kept.as_f64().expect("a number") - score).abs());
        }
    }
    most
}

/// Runs an agent through a daemon at the engine, and checks what was captured.
pub(crate) async fn is_captured(client: &Client, engine: &Engine) {
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    declare(client, settings).await;
    submit(client, &["a"]).await;
    let mut agent = Agent {
        client,
        engine,
        messages: vec![json!({"role": "user", "content": "kimu lopa nizu"})],
        ids: Vec::new(),
    };
    let mut own = Vec::new();
    for turn in &turns() {
        own.push(agent.take(turn).await);
    }
    let path = format!("/api/v1/programs/{PROGRAM}");
    client.delete(&path).await.ok();
    let view = get(client, "/batches/1?wait_s=10").await.ok();
    assert_eq!(view["ready"], true, "{view}");
    let found = get(client, &format!("/members/{PROGRAM}/steps")).await.ok();
    let steps = found["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), own.len());
    for (step, own) in steps.iter().zip(&own) {
        assert_eq!(numbers(&step["prompt"]), own.prompt);
        assert_eq!(numbers(&step["output"]), own.output);
    }
    let formed = found["sequences"].as_array().expect("a list");
    assert_eq!(formed.len(), sequences(&own), "{}", found["breaks"]);
    assert!(formed.len() < steps.len(), "some steps continue others");
    let mut most = 0.0_f64;
    for sequence in formed {
        most = most.max(rescored(engine, sequence, &found["steps"]).await);
    }
    eprintln!("log-probabilities are at most {most:.1e} from the engine's scores");
    assert!(most <= SCORE_OFF_MAX, "{most}");
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("batch-1.json"), view.to_string()).expect("a file");
    let tokens = payload(client, 1, "").await;
    std::fs::write(at("batch-1.safetensors"), tokens).expect("a file");
    assert_eq!(proven(client, folder.path())["samples_proven"], 1);
}
