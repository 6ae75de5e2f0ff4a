//! The gateway in front of two llama.cpp servers: real slots, real caches, real token counts.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use treadle_config::{Endpoint, EngineChoice};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, streamed};
use treadle_tests::support::llama_server::{LlamaServer, python, tiny_model};

use crate::conversation::{Conversation, Form, STEPS, Usage};
use crate::rollouts::{one_slot, text_of, until_begun};

const PROGRAMS: u32 = 20;
const SLOTS: u32 = 4;
/// KV memory that each server is declared to have: room for two or three conversations at their
/// end.
const KV_TOKENS: u64 = 1_200;

/// Time within which a slot is free after its client has left, on a busy machine. The answer would
/// take minutes.
const FREED_MAX: Duration = Duration::from_secs(15);

struct Engines {
    servers: Vec<LlamaServer>,
    _folder: tempfile::TempDir,
}

/// Two servers; `None` if these tests are skipped.
async fn engines(slot_tokens: u32) -> Option<Engines> {
    let python: PathBuf = python()?;
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny_model(&python, folder.path());
    let mut servers = Vec::new();
    for _ in 0..2 {
        servers.push(LlamaServer::start(&python, &model, SLOTS, slot_tokens).await);
    }
    Some(Engines {
        servers,
        _folder: folder,
    })
}

async fn gateway(engines: &Engines, kv_tokens: Option<u64>) -> Fixture {
    let endpoint = |server: &LlamaServer| Endpoint {
        kind: Some(EngineChoice::Auto),
        capacity_tokens: kv_tokens,
        ..Endpoint::at(server.url())
    };
    let endpoints = engines.servers.iter().map(endpoint).collect();
    Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = endpoints;
        config.scheduler.time_scale = 10.0;
        // The tiny model computes a context faster than most tools run; a lower assumed speed
        // makes holding a slot worthwhile.
        config.engines.measure = false;
        config.kv.prefill_tokens_per_s = 1_000;
        config.scheduler.starvation_s_max = 2;
        config.scheduler.quantum_share = 0.0;
    })
    .await
}

async fn rows(client: &Client, program: &str, what: &str) -> Vec<Value> {
    let path = format!("/api/v1/programs/{program}/{what}");
    let page = client.get(&path).await.ok();
    page[what].as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_keep_their_caches_until_they_are_paused() {
    let Some(engines) = engines(2_048).await else {
        return;
    };
    let fixture = gateway(&engines, Some(KV_TOKENS)).await;
    let workers = fixture.client.get("/workers").await.ok();
    assert_eq!(workers["workers"][0]["engine"], "llamacpp", "{workers}");
    let (_, moved) = converse(&fixture.client, 0..PROGRAMS).await;
    assert!(moved > 0, "no program went on at the other server");
    // Nobody waits for the memory of two conversations at two servers, however slow they are.
    let (kept, moved) = converse(&fixture.client, PROGRAMS..PROGRAMS + 2).await;
    assert_eq!((kept, moved), (2 * (STEPS as u32 - 1), 0));
    let metrics = fixture.client.metrics().await;
    for name in [
        "treadle_pauses_total",
        "treadle_restores_total",
        "treadle_moves_total",
    ] {
        assert!(metrics.count(name) > 0, "{name}");
    }
    let steps = (PROGRAMS as usize + 2) * STEPS;
    assert_eq!(metrics.count("treadle_steps_finished_total"), steps as u64);
    let events = fixture
        .client
        .get("/api/v1/events?kind=step_failed")
        .await
        .ok();
    assert_eq!(events["events"], json!([]), "attempts failed");
    counters_agree(&engines, &metrics).await;
    fixture.finish().await;
}

/// Holds these conversations at once and releases them; gives how many steps continued in their
/// slot and how many at the other server.
async fn converse(client: &Client, numbers: Range<u32>) -> (u32, u32) {
    let talks: Vec<_> = numbers
        .map(|number| {
            let talk = Conversation::plan(number);
            let held = talk.clone().hold(client.clone(), "tiny".to_owned());
            (talk, tokio::spawn(held))
        })
        .collect();
    let (mut kept, mut moved) = (0, 0);
    for (talk, held) in talks {
        let counted = held.await.expect("no step fails");
        let (stayed, went) = check(client, &talk, &counted).await;
        kept += stayed;
        moved += went;
        let release = json!({"program_id": talk.program});
        client.post("/programs/release", &release).await.ok();
    }
    (kept, moved)
}

/// Compares a program's steps with what the engine reported to its client; gives how many steps
/// continued in their slot and how many at the other server.
async fn check(client: &Client, talk: &Conversation, counted: &[Usage]) -> (u32, u32) {
    let steps = rows(client, &talk.program, "steps").await;
    let pauses: Vec<u64> = rows(client, &talk.program, "decisions")
        .await
        .iter()
        .filter(|decision| decision["kind"] == "pause")
        .filter_map(|decision| decision["at_us"].as_u64())
        .collect();
    let told = |step: &Value| Usage {
        prompt: step["prompt_tokens"].as_u64().expect("tokens"),
        output: step["output_tokens"].as_u64().expect("tokens"),
        cached: step["cached_tokens"].as_u64().expect("tokens"),
    };
    let ledger: Vec<_> = steps.iter().map(told).collect();
    assert_eq!(ledger, counted, "{}", talk.program);
    let (mut kept, mut moved) = (0, 0);
    for (at, pair) in steps.windows(2).enumerate() {
        let (before, after) = (
            pair[0]["finished_at_us"].as_u64(),
            pair[1]["dispatched_at_us"].as_u64(),
        );
        let between = |pause: &&u64| before <= Some(**pause) && Some(**pause) <= after;
        let gave_way = pauses.iter().any(|pause| between(&pause));
        moved += u32::from(pair[0]["worker"] != pair[1]["worker"]);
        if gave_way {
            continue;
        }
        assert_eq!(
            pair[0]["worker"], pair[1]["worker"],
            "moved without a pause: {pair:#?}"
        );
        let (last, now) = (counted[at], counted[at + 1]);
        // The last token of an answer is in no cache yet, and one more is computed again. How a
        // chat's answer reads as a message may differ from how it was generated.
        let cached_min = match talk.form {
            Form::Ids => last.prompt + last.output - 2,
            Form::Messages => last.prompt - 2,
        };
        assert!(
            now.cached >= cached_min,
            "{} step {at}: {last:?}, {now:?}",
            talk.program
        );
        kept += 1;
    }
    (kept, moved)
}

/// Compares the servers' counters with the ledger's sums.
async fn counters_agree(engines: &Engines, metrics: &treadle_tests::support::metrics::Metrics) {
    let (mut prompt, mut cached, mut output) = (0, 0, 0);
    for server in &engines.servers {
        let own = server.client.metrics().await;
        prompt += own.count("llamacpp:prompt_tokens_total");
        cached += own.count("llamacpp:prompt_tokens_cached_total");
        output += own.count("llamacpp:tokens_predicted_total");
    }
    assert_eq!(
        metrics.count("treadle_prompt_tokens_total"),
        prompt + cached
    );
    assert_eq!(metrics.count("treadle_cached_tokens_total"), cached);
    assert_eq!(metrics.count("treadle_output_tokens_total"), output);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_a_slot_of_its_own() {
    let Some(engines) = engines(2_048).await else {
        return;
    };
    let fixture = gateway(&engines, None).await;
    // As many programs as slots, in turns: each finds its own cache again.
    for step in 0..3_u64 {
        for program in 0..2 * SLOTS {
            let ids: Vec<u32> = (0..100 + step as u32 * 50)
                .map(|at| 10 + (at * 7 + program * 31) % 400)
                .collect();
            let body = json!({
                "prompt": ids, "max_tokens": 1, "program_id": format!("p{program}"),
            });
            let answer = fixture.client.post(COMPLETIONS, &body).await.ok();
            let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
            let least = if step == 0 {
                0
            } else {
                100 + (step - 1) * 50 - 1
            };
            assert!(
                cached >= Some(least),
                "p{program} step {step}: {cached:?} of {least}"
            );
        }
    }
    let metrics = fixture.client.metrics().await;
    assert_eq!(
        metrics.count("treadle_worker_slots_taken"),
        2 * u64::from(SLOTS)
    );
    assert_eq!(metrics.count("treadle_pauses_total"), 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_programs_than_slots_take_turns() {
    let Some(engines) = engines(2_048).await else {
        return;
    };
    let fixture = gateway(&engines, None).await;
    // No program is released: placed ones must be paused for those that wait.
    let asked: Vec<_> = (0..2 * SLOTS + 4)
        .map(|program| {
            let client = fixture.client.clone();
            let body = json!({
                "prompt": vec![10 + program; 50], "max_tokens": 4,
                "program_id": format!("p{program}"),
            });
            tokio::spawn(async move { client.post(COMPLETIONS, &body).await.ok() })
        })
        .collect();
    for answer in asked {
        let answer = tokio::time::timeout(TIMEOUT, answer).await;
        answer.expect("its turn comes").expect("no step fails");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_slot() {
    let Some(engines) = engines(16_384).await else {
        return;
    };
    let fixture = gateway(&engines, None).await;
    let body = json!({
        "prompt": [11, 12, 13], "max_tokens": 16_000, "ignore_eos": true, "program_id": "p",
    });
    // Only streams: llama.cpp does not detect a disconnect before an answer in one piece.
    for _ in 0..2 {
        let body = streamed(body.clone());
        let client = fixture.client.clone();
        let asking = tokio::spawn(async move {
            let headers = [("content-type", "application/json")];
            let open = client.open(http::Method::POST, COMPLETIONS, &headers, body.to_string());
            let _whole =
                http_body_util::BodyExt::collect(open.await.expect("an answer").into_body()).await;
        });
        let busy = async || {
            let mut busy = 0;
            for server in &engines.servers {
                busy += server.busy_slots().await;
            }
            busy
        };
        let began = std::time::Instant::now();
        while busy().await != 1 {
            assert!(began.elapsed() < TIMEOUT, "no slot is busy");
        }
        assert!(!asking.is_finished());
        asking.abort();
        let left = std::time::Instant::now();
        while busy().await > 0 {
            assert!(left.elapsed() < FREED_MAX, "still busy");
        }
    }
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_finished_total"), 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_gave_way_goes_on() {
    let Some(engines) = engines(2_048).await else {
        return;
    };
    let endpoint = Endpoint {
        kind: Some(EngineChoice::Auto),
        ..Endpoint::at(engines.servers[0].url())
    };
    let fixture = one_slot(endpoint).await;
    let body = |name: &str| {
        json!({
            "model": "tiny", "program_id": name, "prompt": "Once upon a time", "max_tokens": 200,
            "temperature": 0, "ignore_eos": true, "logprobs": 1,
        })
    };
    let whole = fixture.client.post(COMPLETIONS, &body("whole")).await.ok();
    let (client, calm) = (fixture.client.clone(), streamed(body("calm")));
    let calm = tokio::spawn(async move { client.stream(COMPLETIONS, &calm).await.finish().await });
    until_begun(&fixture.client, "calm").await;
    // This program has generated tokens, so it is more urgent.
    let mut urgent = body("whole");
    urgent["max_tokens"] = json!(5);
    fixture.client.post(COMPLETIONS, &urgent).await.ok();
    let ended = calm.await.expect("no step fails");
    assert!(ended.is_done() && !ended.broken, "{:?}", ended.payloads());
    // The model's tokens are random pieces, which read back as other pieces: what follows the break
    // is not what would have followed. What came before it is.
    let (text, all) = (text_of(&ended), whole["choices"][0]["text"].to_string());
    assert_eq!(text.get(..2), all.get(1..3), "{text} {all}");
    let usage = ended.usage().expect("usage");
    assert_eq!(usage["completion_tokens"], 200, "{usage}");
    let logprobs = |event: &Value| {
        event["choices"][0]["logprobs"]["content"]
            .as_array()
            .cloned()
    };
    let objects = ended.objects();
    let logprobs: Vec<Value> = objects.iter().filter_map(logprobs).flatten().collect();
    assert_eq!(logprobs.len(), 200);
    let all = &whole["choices"][0]["logprobs"]["content"];
    assert_eq!(all.as_array().map(Vec::len), Some(200), "in one piece too");
    assert_eq!(logprobs[0], all[0]);
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_interruptions_total"), 1);
    fixture.finish().await;
}
