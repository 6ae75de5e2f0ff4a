//! Scheduling under pressure: programs release memory and get it back, none fails, every decision
//! has its reason, and the ledger equals the engines' counts.

use std::time::Duration;

use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture, MODEL, streamed};
use treadle_tests::support::metrics::Metrics;

const PROGRAMS: usize = 12;
const STEPS: usize = 5;

/// The usage that engines reported to a program, summed over its steps.
#[derive(Default)]
struct UsageTotals {
    prompt: u64,
    output: u64,
    cached: u64,
}

impl UsageTotals {
    fn add(&mut self, usage: &Value) {
        self.prompt += usage["prompt_tokens"].as_u64().expect("prompt tokens");
        self.output += usage["completion_tokens"].as_u64().expect("output tokens");
        let cached = &usage["prompt_tokens_details"]["cached_tokens"];
        self.cached += cached.as_u64().expect("cached tokens");
    }
}

/// An agent: its context grows with each step, and a tool runs between two.
async fn agent(client: Client, program: String, context_tokens: u32) -> UsageTotals {
    let seed = program.bytes().map(u32::from).sum::<u32>() << 16;
    let mut prompt: Vec<u32> = (seed..seed + context_tokens).collect();
    let mut told = UsageTotals::default();
    for step in 0..STEPS {
        let body = json!({
            "model": MODEL, "prompt": prompt, "max_tokens": 60,
            "program_id": program, "return_token_ids": true,
        });
        if step % 2 == 0 {
            let answer = client.post(COMPLETIONS, &body).await.ok();
            told.add(&answer["usage"]);
        } else {
            let ended = client
                .stream(COMPLETIONS, &streamed(body))
                .await
                .finish()
                .await;
            assert!(ended.is_done() && !ended.broken, "{:?}", ended.payloads());
            told.add(&ended.usage().expect("usage"));
        }
        let result = seed + 100_000 + step as u32 * 1_000;
        prompt.extend(result..result + 400);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let release = json!({"program_id": program});
    client.post("/programs/release", &release).await.ok();
    told
}

/// Two engines on which half of the agents fit, with turns of a tenth of a second. With `retention`
/// they are given more if they keep more than their KV memory, or may.
async fn narrow(retention: bool) -> Fixture {
    Fixture::tuned(2, 8_192, |config| {
        config.kv.retention = retention;
        config.scheduler.time_scale = 10.0;
        config.scheduler.starvation_s_max = 1;
        config.scheduler.quantum_share = 0.0;
    })
    .await
}

/// Runs a dozen agents with memory for half of them.
async fn crowded() -> (Fixture, UsageTotals) {
    let fixture = narrow(true).await;
    let agents: Vec<_> = (0..PROGRAMS)
        .map(|p| tokio::spawn(agent(fixture.client.clone(), format!("agent-{p}"), 2_000)))
        .collect();
    let mut sum = UsageTotals::default();
    for agent in agents {
        let told = agent.await.expect("no program fails");
        sum.prompt += told.prompt;
        sum.output += told.output;
        sum.cached += told.cached;
    }
    (fixture, sum)
}

/// Decisions about a program.
async fn decisions(client: &Client, program: &str) -> Vec<Value> {
    let path = format!("/api/v1/programs/{program}/decisions");
    let page = client.get(&path).await.ok();
    page["decisions"].as_array().expect("a list").clone()
}

/// The value of an engine's own counter.
async fn engines_own(fixture: &Fixture, name: &str) -> u64 {
    let mut sum = 0;
    for engine in &fixture.engines {
        sum += Client::new(engine.url()).metrics().await.count(name);
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_paused_and_restored_elsewhere_and_none_fails() {
    let (fixture, told) = crowded().await;
    let metrics = fixture.client.metrics().await;
    for name in [
        "treadle_pauses_total",
        "treadle_restores_total",
        "treadle_moves_total",
    ] {
        assert!(metrics.count(name) > 0, "{name}");
    }
    for name in ["treadle_steps_failed_total", "treadle_steps_refused_total"] {
        assert_eq!(metrics.count(name), 0, "{name}");
    }
    let steps = (PROGRAMS * STEPS) as u64;
    assert_eq!(metrics.count("treadle_steps_finished_total"), steps);
    ledger_is_the_engines(&fixture, &metrics, &told).await;
    every_decision_has_a_why(&fixture).await;
    fixture.finish().await;
}

async fn ledger_is_the_engines(fixture: &Fixture, metrics: &Metrics, told: &UsageTotals) {
    assert_eq!(metrics.count("treadle_prompt_tokens_total"), told.prompt);
    assert_eq!(metrics.count("treadle_output_tokens_total"), told.output);
    assert_eq!(metrics.count("treadle_cached_tokens_total"), told.cached);
    assert_eq!(
        engines_own(fixture, "vllm:prompt_tokens_total").await,
        told.prompt
    );
    assert_eq!(
        engines_own(fixture, "vllm:generation_tokens_total").await,
        told.output
    );
    let (mut prompt, mut output) = (0, 0);
    for program in 0..PROGRAMS {
        let path = format!("/api/v1/programs/agent-{program}/steps");
        let page = fixture.client.get(&path).await.ok();
        for step in page["steps"].as_array().expect("a list") {
            prompt += step["prompt_tokens"].as_u64().expect("tokens");
            output += step["output_tokens"].as_u64().expect("tokens");
        }
    }
    assert_eq!((prompt, output), (told.prompt, told.output));
}

async fn every_decision_has_a_why(fixture: &Fixture) {
    let mut kinds = std::collections::BTreeSet::new();
    for program in 0..PROGRAMS {
        let key = format!("agent-{program}");
        let decisions = decisions(&fixture.client, &key).await;
        assert_eq!(decisions[0]["kind"], "place", "{key}");
        let mut placed = false;
        for decision in &decisions {
            let why = &decision["why"];
            let kind = decision["kind"].as_str().expect("a kind").to_owned();
            // Placements and releases alternate.
            assert_eq!(kind == "pause", placed, "{key}: {decisions:#?}");
            placed = !placed;
            assert_eq!(why["key"], *key);
            assert!(why["because"].is_string(), "{decision}");
            assert!(why["capacity_tokens"] == 8_192, "{decision}");
            assert!(
                why["need_tokens"].as_u64().is_some_and(|tokens| tokens > 0),
                "{decision}"
            );
            assert!(
                decision["policy"]
                    .as_str()
                    .is_some_and(|policy| !policy.is_empty())
            );
            kinds.insert(kind);
        }
    }
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["pause", "place", "restore"]
    );
}

/// Programs that are paused now. Each live program is counted as one thing.
async fn counted_once(client: &Client) -> u64 {
    let health = client.get("/health").await.ok();
    let count = |name: &str| health[name].as_u64().expect("a count");
    let kinds = ["reasoning_count", "acting_count", "paused_count"];
    assert_eq!(
        kinds.map(count).iter().sum::<u64>(),
        count("programs_count"),
        "{health}"
    );
    count("paused_count")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_is_given_more_than_it_holds() {
    let fixture = narrow(false).await;
    let agents: Vec<_> = (0..PROGRAMS)
        .map(|p| tokio::spawn(agent(fixture.client.clone(), format!("agent-{p}"), 2_000)))
        .collect();
    let (mut looks, mut paused) = (0, 0);
    while !agents.iter().all(tokio::task::JoinHandle::is_finished) {
        let page = fixture.client.get("/workers").await.ok();
        for worker in page["workers"].as_array().expect("a list") {
            let count = |field: &str| worker[field].as_u64().expect("a count");
            // Running steps are never interrupted, so there can be as much in excess as they grow,
            // and what an engine with one step at most held when it was given another.
            let all_run = count("programs") == count("load");
            let was_idle = count("load") <= 2;
            assert!(
                count("used_tokens") <= 8_192 || all_run || was_idle,
                "{worker}"
            );
            looks += 1;
        }
        paused += counted_once(&fixture.client).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(looks > 20 && paused > 0, "{looks} looks, {paused} paused");
    for agent in agents {
        agent.await.expect("no program fails");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_beginning_is_counted_once() {
    let fixture = Fixture::start(1, 100_000).await;
    let system = "You are a careful engineer. ".repeat(100);
    for program in 0..10 {
        let body = json!({
            "model": MODEL, "program_id": format!("p{program}"), "max_tokens": 10,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": format!("task number {program}")},
            ],
        });
        fixture.client.post(CHAT, &body).await.ok();
    }
    let metrics = fixture.client.metrics().await;
    let shared = metrics.count("treadle_worker_shared_tokens");
    let used = metrics.count("treadle_worker_used_tokens");
    let system_tokens = system.len() as u64 / 4;
    assert!(
        (system_tokens..system_tokens * 3 / 2).contains(&shared),
        "{shared} shared"
    );
    // Ten times the first value would be 7,000.
    assert!(used < system_tokens * 2, "{used} in use");
    let programs = fixture.client.get("/programs").await.ok();
    assert!(
        programs["p3"]["context_len"]
            .as_u64()
            .is_some_and(|tokens| tokens > system_tokens)
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_uses_are_reported() {
    let fixture = Fixture::start(1, 100_000).await;
    let agents = (0..3).map(|p| agent(fixture.client.clone(), format!("agent-{p}"), 2_000));
    for agent in agents {
        agent.await;
    }
    let memory = fixture.client.get("/api/v1/memory").await.ok();
    let worker = &memory["workers"][0]["token_seconds"];
    let of = |uses: &Value, what: &str| uses[what].as_f64().expect("token-seconds");
    assert!(of(worker, "unused") > 0.0, "{memory}");
    let job = &memory["jobs"][0];
    assert_eq!(
        (&job["tenant"], &job["job"]),
        (&json!("default"), &json!("default"))
    );
    for what in ["decode", "prefill", "caching"] {
        let (worker, job) = (of(worker, what), of(&job["token_seconds"], what));
        assert!(worker > 0.0, "{what}: {memory}");
        assert!(
            (worker - job).abs() < 0.01,
            "{what} of the only job: {memory}"
        );
    }
    let metrics = fixture.client.metrics().await;
    let (all, of_jobs) = (
        metrics.value("treadle_kv_token_seconds_total"),
        metrics.value("treadle_kv_job_token_seconds_total"),
    );
    assert!(
        all > of_jobs && of_jobs > 0.0,
        "{all} of workers, {of_jobs} of jobs"
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_routing_places_without_looking_at_memory() {
    for mode in ["sticky", "least-load"] {
        let fixture = Fixture::tuned(2, 8_192, |config| {
            config.scheduler.mode = serde_json::from_value(json!(mode)).expect("a mode");
        })
        .await;
        let agents: Vec<_> = (0..4)
            .map(|p| tokio::spawn(agent(fixture.client.clone(), format!("agent-{p}"), 500)))
            .collect();
        for agent in agents {
            agent.await.expect("no program fails");
        }
        let metrics = fixture.client.metrics().await;
        assert_eq!(metrics.count("treadle_pauses_total"), 0);
        assert_eq!(
            metrics.count("treadle_steps_finished_total"),
            4 * STEPS as u64
        );
        assert_eq!(
            fixture.client.get("/health").await.ok()["router_mode"],
            "default"
        );
        fixture.finish().await;
    }
}
