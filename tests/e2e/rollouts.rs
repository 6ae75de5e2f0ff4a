//! Rollouts: Heddle's policies, as uploaded components, say where programs go and how urgent
//! their steps are.

use serde_json::{Value, json};
use treadle::config::Config;
use treadle_tests::support::client::Client;
use treadle_tests::support::policy::guest;
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};
use treadle_tests::support::stand::{COMPLETIONS, MODEL, Stand, endpoint};

use crate::plugins::crowd::{put_binding, upload};

/// Prompts of programs that go on for long, and of those that don't.
const LONG: u32 = 900;
const SHORT: u32 = 90;
const LONGS: u32 = 2;
const SHORTS: u32 = 6;

fn rollout(config: &mut Config) {
    config.scheduler.mode = serde_json::from_value(json!("rollout")).expect("a mode");
    // Long enough for all to come, and for their predictions.
    config.rollout.gather_ms = 1_500;
}

/// Two engines written by hand, declared as vLLM.
async fn by_hand(tune: impl FnOnce(&mut Config)) -> (Stand, [RawEngine; 2]) {
    let engines = [RawEngine::start().await, RawEngine::start().await];
    let endpoints = engines.iter().map(|engine| {
        let mut endpoint = endpoint(engine.url());
        endpoint.capacity_tokens = Some(100_000);
        endpoint
    });
    let endpoints = endpoints.collect();
    let stand = Stand::tuned(0, 0, |config| {
        rollout(config);
        config.engines.endpoints = endpoints;
        tune(config);
    })
    .await;
    (stand, engines)
}

async fn bind(client: &Client, world: &str, policy: &str, config: Value) {
    upload(client, "/v1/plugins", guest(policy)).await.ok();
    let binding = json!({"world": world, "policy": policy, "config": config});
    put_binding(client, &binding).await.ok();
}

/// Binds Heddle's policies, and teaches that long prompts mean long programs.
async fn bind_heddle(client: &Client) {
    let extra = json!({"extra": ["prompt-tokens"]});
    bind(client, "prediction", "heddle-prediction", extra).await;
    bind(client, "priority", "heddle-priority", json!({})).await;
    bind(client, "placement", "heddle-placement", json!({})).await;
    let prompts: Vec<u32> = (0..64)
        .map(|n| if n % 2 == 0 { LONG } else { SHORT })
        .collect();
    let remaining = |prompt: &u32| if *prompt == LONG { 4_000 } else { 200 };
    let learn = json!({
        "world": "prediction", "function": "learn",
        "columns": {
            "group": (0..64).collect::<Vec<u32>>(),
            "tokens": prompts, "extra": prompts,
            "output_tokens": vec![0; 64], "steps": vec![0; 64], "tool_ms": vec![0; 64],
            "remaining_tokens": prompts.iter().map(remaining).collect::<Vec<u32>>(),
            "remaining_tool_ms": vec![0; 64],
        },
    });
    for _ in 0..10 {
        client.post("/v1/ask", &learn).await.ok();
    }
}

fn body(name: &str, prompt_tokens: u32) -> Value {
    let seed = name
        .bytes()
        .fold(0, |seed, byte| seed * 31 + u32::from(byte))
        << 12;
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
    let (stand, mut engines) = by_hand(|_| ()).await;
    bind_heddle(&stand.client).await;
    let sent: Vec<_> = programs()
        .into_iter()
        .map(|(name, prompt)| {
            let client = stand.client.clone();
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
    let page = stand.client.get("/v1/programs/long-0/decisions").await.ok();
    let why = page["decisions"].to_string();
    assert!(
        why.contains("heddle-priority@") && why.contains("heddle-placement@"),
        "{why}"
    );
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_goes_to_its_program_and_a_client_may_say_itself_how_urgent_it_is() {
    let (stand, mut engines) = by_hand(|config| config.rollout.gather_ms = 10).await;
    bind(&stand.client, "priority", "heddle-priority", json!({})).await;
    let mut places = Vec::new();
    for own in [None, None, Some(7)] {
        let mut body = body("one", SHORT);
        if let Some(priority) = own {
            body["priority"] = json!(priority);
        }
        let client = stand.client.clone();
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
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_policies_a_rollout_serves_steps_as_they_come() {
    let (stand, mut engines) = by_hand(|config| {
        config.rollout.gather_ms = 10;
        // Asked at once and again, it has nobody to move.
        config.rollout.migration_interval_ms = 10;
    })
    .await;
    for name in ["one", "two", "one", "two"] {
        let client = stand.client.clone();
        let sent =
            tokio::spawn(async move { client.post(COMPLETIONS, &body(name, SHORT)).await.ok() });
        let (_, request) = next(&mut engines).await;
        assert_eq!(read(&request), body(name, SHORT), "the body is as it came");
        request.answer_chat().await;
        sent.await.expect("no step fails");
    }
    stand.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extra_column_that_no_program_has_is_refused_by_name() {
    let stand = Stand::start(1, 10_000).await;
    let client = &stand.client;
    for (world, policy, names) in [
        (
            "prediction",
            "heddle-prediction",
            "prompt-tokens, last-output-tokens",
        ),
        ("priority", "heddle-priority", "no extra columns"),
    ] {
        upload(client, "/v1/plugins", guest(policy)).await.ok();
        let config = json!({"extra": ["shoe-size"]});
        let binding = json!({"world": world, "policy": policy, "config": config});
        let message = put_binding(client, &binding)
            .await
            .refused(400, "plugin_invalid");
        assert!(
            message.contains("`shoe-size`") && message.contains(names),
            "{message}"
        );
    }
    stand.finish().await;
}
