//! Rollouts: Heddle's policies, as uploaded components, decide placements and priorities.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_config::{Config, Endpoint};
use treadle_tests::support::client::{Client, Ended, TIMEOUT};
use treadle_tests::support::fixture::{
    CHAT, COMPLETIONS, Fixture, MODEL, chat, endpoint, engine_at, streamed,
};
use treadle_tests::support::policy::guest;
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

use crate::offload::stage::until;
use crate::plugins::crowd::{put_binding, upload};

/// Prompts of programs that go on for long, and of those that don't.
const LONG: u32 = 900;
const SHORT: u32 = 90;
const LONGS: u32 = 2;
const SHORTS: u32 = 6;

fn rollout(config: &mut Config) {
    // Long enough for all to come, and for their predictions.
    config.rollout.gather_ms = 4_000;
}

/// A vLLM with room for all.
fn roomy(url: &str) -> Endpoint {
    Endpoint {
        capacity_tokens: Some(100_000),
        ..endpoint(url)
    }
}

/// Two engines written by hand, declared as vLLM.
async fn by_hand(tune: impl FnOnce(&mut Config)) -> (Fixture, [RawEngine; 2]) {
    let engines = [RawEngine::start().await, RawEngine::start().await];
    let endpoints = engines.iter().map(|engine| roomy(engine.url()));
    let endpoints = endpoints.collect();
    let fixture = Fixture::tuned(0, 0, |config| {
        rollout(config);
        config.engines.endpoints = endpoints;
        tune(config);
    })
    .await;
    (fixture, engines)
}

async fn bind(client: &Client, world: &str, policy: &str, config: Value) {
    upload(client, "/api/v1/plugins", guest(policy)).await.ok();
    let binding = json!({"world": world, "policy": policy, "config": config});
    put_binding(client, &binding).await.ok();
}

/// Binds Heddle's policies, and teaches that long prompts mean long programs.
async fn bind_heddle(client: &Client) {
    bind(client, "prediction", "heddle-prediction", json!({})).await;
    bind(client, "priority", "heddle-priority", json!({})).await;
    bind(client, "placement", "heddle-placement", json!({})).await;
    let prompts: Vec<u32> = (0..64)
        .map(|n| if n % 2 == 0 { LONG } else { SHORT })
        .collect();
    // Its six columns: only the prompts and the ends of the programs are known.
    let extra: Vec<i64> = prompts
        .iter()
        .map(|prompt| i64::from(*prompt))
        .chain([-1; 4 * 64])
        .chain([1; 64])
        .collect();
    let remaining = |prompt: &u32| if *prompt == LONG { 4_000 } else { 200 };
    let learn = json!({
        "world": "prediction", "function": "learn",
        "columns": {
            "group": (0..64).collect::<Vec<u32>>(),
            "tokens": prompts, "extra": extra,
            "output_tokens": vec![0; 64], "steps": vec![0; 64], "tool_ms": vec![0; 64],
            "remaining_tokens": prompts.iter().map(remaining).collect::<Vec<u32>>(),
            "remaining_tool_ms": vec![0; 64],
        },
    });
    for _ in 0..10 {
        client.post("/api/v1/ask", &learn).await.ok();
    }
}

fn body(name: &str, prompt_tokens: u32) -> Value {
    let seed = name.bytes().map(u32::from).sum::<u32>() << 16;
    json!({
        "model": MODEL, "program_id": name, "max_tokens": 20,
        "prompt": (seed..seed + prompt_tokens).collect::<Vec<u32>>(),
    })
}

/// Programs' names and prompts.
fn programs() -> Vec<(String, u32)> {
    let longs = (0..LONGS).map(|n| (format!("long-{n}"), LONG));
    let shorts = (0..SHORTS).map(|n| (format!("short-{n}"), SHORT));
    longs.chain(shorts).collect()
}

async fn next(engines: &mut [RawEngine; 2]) -> (usize, RawRequest) {
    let [first, second] = engines;
    tokio::select! {
        request = first.request() => (0, request),
        request = second.request() => (1, request),
    }
}

fn read(request: &RawRequest) -> Value {
    serde_json::from_slice(&request.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn long_programs_are_apart_from_short_ones_and_more_urgent() {
    let (fixture, mut engines) = by_hand(|_| ()).await;
    bind_heddle(&fixture.client).await;
    let sent: Vec<_> = programs()
        .into_iter()
        .map(|(name, prompt)| {
            let client = fixture.client.clone();
            tokio::spawn(async move { client.post(COMPLETIONS, &body(&name, prompt)).await.ok() })
        })
        .collect();
    let (mut longs, mut shorts) = (Vec::new(), Vec::new());
    for _ in 0..LONGS + SHORTS {
        let (engine, request) = next(&mut engines).await;
        let told = read(&request);
        let priority = told["priority"].as_i64().expect("a priority");
        let is_long = told["program_id"]
            .as_str()
            .expect("a name")
            .starts_with("long");
        if is_long { &mut longs } else { &mut shorts }.push((engine, priority));
        request.answer_chat().await;
    }
    for step in sent {
        step.await.expect("no step fails");
    }
    let at = longs[0].0;
    assert!(longs.iter().all(|(engine, _)| *engine == at), "{longs:?}");
    assert!(shorts.iter().all(|(engine, _)| *engine != at), "{shorts:?}");
    // vLLM serves the lowest first.
    let least_urgent = longs.iter().map(|(_, priority)| *priority).max();
    assert!(least_urgent < shorts.iter().map(|(_, priority)| *priority).min());
    let page = fixture
        .client
        .get("/api/v1/programs/long-0/decisions")
        .await
        .ok();
    let why = page["decisions"].to_string();
    assert!(
        why.contains("heddle-priority@") && why.contains("heddle-placement@"),
        "{why}"
    );
    let is_predicted = async || {
        let page = fixture.client.get("/api/v1/programs/long-0/steps").await;
        let step = &page.ok()["steps"][0];
        let [mean, p90] = ["predicted_tokens", "predicted_tokens_p90"].map(|f| step[f].as_u64());
        mean.is_some() && p90 >= mean
    };
    until("what is left after its step is predicted", is_predicted).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_goes_to_its_program_and_a_client_may_set_its_priority() {
    let (fixture, mut engines) = by_hand(|config| config.rollout.gather_ms = 10).await;
    bind(&fixture.client, "priority", "heddle-priority", json!({})).await;
    let mut places = Vec::new();
    for own in [None, None, Some(7)] {
        let mut body = body("one", SHORT);
        if let Some(priority) = own {
            body["priority"] = json!(priority);
        }
        let client = fixture.client.clone();
        let sent = tokio::spawn(async move { client.post(COMPLETIONS, &body).await.ok() });
        let (engine, request) = next(&mut engines).await;
        let text = String::from_utf8(request.body.clone()).expect("text");
        assert_eq!(text.matches("\"priority\"").count(), 1, "{text}");
        let priority = read(&request)["priority"].as_i64().expect("a priority");
        assert!(
            own.map_or(priority < 0, |own| priority == own),
            "{priority}"
        );
        places.push(engine);
        request.answer_chat().await;
        sent.await.expect("no step fails");
    }
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_policies_steps_are_served_as_they_come() {
    let (fixture, mut engines) = by_hand(|config| {
        config.rollout.gather_ms = 10;
        // Asked at once and again, it has no program to move.
        config.rollout.migration_interval_ms = 10;
    })
    .await;
    for name in ["one", "two", "one", "two"] {
        let client = fixture.client.clone();
        let sent =
            tokio::spawn(async move { client.post(COMPLETIONS, &body(name, SHORT)).await.ok() });
        let (_, request) = next(&mut engines).await;
        assert_eq!(read(&request), body(name, SHORT), "the body is as it came");
        request.answer_chat().await;
        sent.await.expect("no step fails");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_does_not_fit_the_schema_is_refused_by_name() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    for (config, named) in [
        (json!({"shoe-size": 1}), "the keys are default_tokens"),
        (
            json!({"default_tokens": -1}),
            "default_tokens is -1; give 0 to",
        ),
        (json!({"rank": "first"}), "\"remaining\" or \"total\""),
    ] {
        let binding = json!({"world": "priority", "policy": "heddle-priority", "config": config});
        let message = put_binding(client, &binding)
            .await
            .refused(400, "plugin_invalid");
        assert!(message.contains(named), "{message}");
    }
    fixture.finish().await;
}

/// A scheduler that runs one step at a time at an engine, first come, first served, but steps of
/// programs that have generated before those of new ones.
pub(crate) async fn one_slot(endpoint: Endpoint) -> Fixture {
    let fixture = Fixture::tuned(0, 0, |config| {
        rollout(config);
        config.engines.endpoints = vec![endpoint];
        config.rollout.gather_ms = 10;
        config.rollout.engine_steps_max = 1;
    })
    .await;
    // The order is the same with and without a prediction.
    let config = json!({"rank": "total", "default_tokens": 1000, "preempt_margin_tokens": 0});
    bind(&fixture.client, "priority", "heddle-priority", config).await;
    fixture
}

pub(crate) fn text_of(ended: &Ended) -> String {
    let parts = ended.objects().into_iter().filter_map(|event| {
        let choice = &event["choices"][0];
        let text = choice["text"]
            .as_str()
            .or(choice["delta"]["content"].as_str());
        text.map(str::to_owned)
    });
    parts.collect()
}

/// An event of a chat; the word in it is three tokens.
fn event(id: &str, delta: &Value, end: &Value) -> Vec<u8> {
    let tokens = if delta["content"] == "Hel" { 3 } else { 0 };
    let event = json!({
        "id": id, "object": "chat.completion.chunk", "created": 1, "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
        "usage": {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens},
    });
    format!("data: {event}\n\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_gives_way_and_goes_on_in_the_same_stream() {
    let mut engine = RawEngine::start().await;
    let fixture = one_slot(roomy(engine.url())).await;
    let post = |body: Value| {
        let client = fixture.client.clone();
        tokio::spawn(async move { client.post(CHAT, &body).await.ok() })
    };
    // This program has generated tokens, so its next step is more urgent.
    let first = post(chat("urgent", "one", 9));
    engine.request().await.answer_chat().await;
    first.await.expect("no step fails");

    let calm = streamed(chat("calm", "hi", 9));
    let client = fixture.client.clone();
    let seen = tokio::spawn(async move { client.stream(CHAT, &calm).await });
    let mut running = engine.request().await;
    let each = json!({"include_usage": true, "continuous_usage_stats": true});
    assert_eq!(read(&running)["stream_options"], each);
    running.begin_events().await;
    let opening = json!({"role": "assistant", "content": ""});
    running.chunk(&event("a", &opening, &Value::Null)).await;
    running
        .chunk(&event("a", &json!({"content": "Hel"}), &Value::Null))
        .await;
    let mut seen = seen.await.expect("an answer");
    while !String::from_utf8_lossy(&seen.piece().await.expect("a piece").expect("whole"))
        .contains("Hel")
    {}

    let second = post(chat("urgent", "two", 9));
    running.until_given_up().await;
    engine.request().await.answer_chat().await;
    second.await.expect("no step fails");

    let mut rest = engine.request().await;
    let asked = read(&rest);
    let messages =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}]);
    assert_eq!(asked["messages"], messages);
    assert_eq!(asked["continue_final_message"], true);
    assert_eq!(asked["add_generation_prompt"], false);
    assert_eq!(asked["max_tokens"], 6);
    rest.begin_events().await;
    rest.chunk(&event("b", &opening, &Value::Null)).await;
    rest.chunk(&event("b", &json!({"content": "lo"}), &json!("stop")))
        .await;
    let usage = json!({"id": "b", "choices": [], "usage":
        {"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": 9}});
    rest.chunk(format!("data: {usage}\n\ndata: [DONE]\n\n").as_bytes())
        .await;
    rest.end().await;
    let ended = seen.finish().await;
    assert!(ended.is_done() && !ended.broken, "{:?}", ended.payloads());
    assert_eq!(text_of(&ended), "Hello");
    assert!(
        ended.objects().iter().all(|event| event["id"] == "a"),
        "{:?}",
        ended.payloads()
    );
    let whole = json!({"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9});
    assert_eq!(ended.usage(), Some(whole));
    let objects = ended.objects();
    let (last, before) = objects.split_last().expect("events");
    assert!(
        before.iter().all(|event| event["usage"].is_null()),
        "{last}"
    );
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_interruptions_total"), 1);
    assert_eq!(metrics.count("treadle_preemptions_total"), 1);
    fixture.finish().await;
}

/// Waits until a program has been sent its first token.
pub(crate) async fn until_begun(client: &Client, program: &str) {
    let begun = async {
        let path = format!("/api/v1/events?kind=step_first_token&program={program}");
        while client.get(&path).await.ok()["events"] == json!([]) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, begun)
        .await
        .expect("a token in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_interrupted_is_the_answer_that_was_not() {
    for (ids, in_one_piece) in [(false, false), (true, false), (true, true)] {
        // Slow enough for another step to come while one runs.
        let engine = engine_at("127.0.0.1:0", 100_000, 4.0).await;
        let fixture = one_slot(roomy(&engine.url())).await;
        let body = |name: &str| {
            let prompt: Vec<u32> = (1..200).collect();
            let prompt = if ids {
                json!(prompt)
            } else {
                json!("word ".repeat(100))
            };
            json!({
                "model": MODEL, "program_id": name, "prompt": prompt, "max_tokens": 80,
                "return_token_ids": ids, "seed": 5,
            })
        };
        let whole = fixture.client.post(COMPLETIONS, &body("whole")).await.ok();
        let (client, calm) = (fixture.client.clone(), body("calm"));
        let calm = tokio::spawn(async move {
            if in_one_piece {
                return client.post(COMPLETIONS, &calm).await.ok();
            }
            let ended = client
                .stream(COMPLETIONS, &streamed(calm))
                .await
                .finish()
                .await;
            assert!(ended.is_done() && !ended.broken, "{:?}", ended.payloads());
            json!({"choices": [{"text": text_of(&ended)}], "usage": ended.usage()})
        });
        until_begun(&fixture.client, "calm").await;
        // This program has generated tokens, so it is more urgent.
        let mut urgent = body("whole");
        urgent["max_tokens"] = json!(5);
        fixture.client.post(COMPLETIONS, &urgent).await.ok();
        let calm = calm.await.expect("no step fails");
        let (text, all) = (&calm["choices"][0]["text"], &whole["choices"][0]["text"]);
        assert_eq!(text, all, "ids: {ids}, in one piece: {in_one_piece}");
        let usage = &calm["usage"];
        for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(usage[count], whole["usage"][count], "{count}, ids: {ids}");
        }
        let metrics = fixture.client.metrics().await;
        assert_eq!(metrics.count("treadle_interruptions_total"), 1);
        fixture.finish().await;
        engine.shutdown().await;
    }
}
