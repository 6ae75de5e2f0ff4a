//! The whole command against engines over HTTP. Times are the machine's, so what is asserted is
//! what was measured and what limits were read, not how fast anything is.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use clap::Parser;
use tokio::net::TcpListener;
use treadle_engine_model::engine::EngineProfile;

use super::{CalibrateArgs, Measured, Outcome};
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: CalibrateArgs,
}

fn args(url: &str, more: &str) -> CalibrateArgs {
    let line = format!("x --url {url} {more}");
    let parsed = CommandLine::try_parse_from(line.split_whitespace());
    parsed.expect("good arguments").args
}

async fn outcome(url: &str, more: &str) -> Result<Outcome, String> {
    let outcome = args(url, more).outcome().await;
    outcome.map_err(|error| error.to_string())
}

async fn refused(url: &str, more: &str) -> String {
    outcome(url, more).await.err().expect("an error")
}

async fn engine() -> EngineSimHandle {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = EngineSimOptions {
        profile: EngineProfile {
            running_max: 4,
            context_limit_tokens: 2_048,
            // Slow enough that a prompt takes longer than its request does.
            prefill_tokens_per_s: 10_000,
            decode_base_us: 1_000,
            ..EngineProfile::qwen3_8b_h100()
        },
        kv_tokens: Some(8_192),
        ..EngineSimOptions::default()
    };
    EngineSim::serve(listener, options).unwrap()
}

const QUICK: &str = "--repeats 1 --output-tokens 8 --context-max 300 --batch-max 4";

#[tokio::test(flavor = "multi_thread")]
async fn a_simulated_engine_becomes_a_profile_that_is_read_again_and_run() {
    let engine = engine().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let file = file.to_str().unwrap();
    let more = format!("{QUICK} --out {file} --name mine --running-max 4 --batched-tokens-max 128");
    let told = outcome(&engine.url(), &more).await.unwrap();
    let profile = &told.profile;
    assert_eq!((&*profile.name, profile.running_max), ("mine", 4));
    assert_eq!(
        (profile.kv_tokens(), profile.context_limit_tokens),
        (8_192, 2_048)
    );
    assert_eq!(profile.batched_tokens_max, 128);
    assert!(profile.prefill_tokens_per_s > 1);
    let fit = told.fit().expect("it was measured");
    let what: Vec<Measured> = fit.residuals.iter().map(|each| each.sample.what).collect();
    for prompt_tokens in [32, 64, 128, 256, 300] {
        let cached_tokens = 0;
        assert!(
            what.contains(&Measured::Prefill {
                cached_tokens,
                prompt_tokens
            }),
            "{what:?}"
        );
    }
    // Continued prompts found what was computed before, in whole blocks.
    let (cached_tokens, prompt_tokens) = (256, 256 + 64);
    assert!(
        what.contains(&Measured::Prefill {
            cached_tokens,
            prompt_tokens
        }),
        "{what:?}"
    );
    let text = told.text();
    assert!(
        text.contains("median error") && text.contains("tokens per iteration"),
        "{text}"
    );
    let read = EngineProfile::from_json(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(read, *profile);

    let again = outcome(&engine.url(), &format!("--from {file} --validate 2"))
        .await
        .unwrap();
    assert_eq!((&again.profile, again.validations.len()), (&read, 2));
    for validation in &again.validations {
        assert_eq!((validation.programs, validation.lanes), (12, 4));
        assert!(validation.makespan_ratio > 0.0 && validation.makespan_ratio.is_finite());
    }
    // Each run reports whether it was disturbed; how many were depends on the machine.
    let runs = again.validations.iter().chain(&again.discarded);
    for run in runs {
        assert_eq!(
            run.is_disturbed,
            run.waited_share.is_some_and(|it| it > 0.1)
        );
    }
    assert!(again.discarded.iter().all(|run| run.is_disturbed));
    assert!(again.text().contains("ratio") && again.text().contains("processor"));
    assert_eq!(again.json()["validations"][1]["seed"], 2);
    engine.shutdown().await;
}

#[tokio::test]
async fn errors_name_the_problem_and_the_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let told = refused(&nobody, QUICK).await;
    assert!(
        told.contains("no engine answers") && told.contains("--url"),
        "{told}"
    );

    let engine = engine().await;
    let told = refused(&engine.url(), &format!("{QUICK} --model other")).await;
    assert!(told.contains("404") && told.contains("--model"), "{told}");
    let told = refused(&engine.url(), "--from /nonexistent/p.json").await;
    assert!(told.contains("/nonexistent/p.json"), "{told}");
    let slow = args(&engine.url(), "--timeout-s 1 --repeats 100")
        .run()
        .await;
    let told = slow.unwrap_err().to_string();
    assert!(told.contains("not done after 1 s"), "{told}");
    engine.shutdown().await;

    let (url, _) = bare_engine("").await;
    let told = refused(&url, QUICK).await;
    assert!(told.contains("--kv-tokens"), "{told}");
    let told = refused(&url, &format!("{QUICK} --kv-tokens 4096")).await;
    assert!(told.contains("lack usage.prompt_tokens"), "{told}");
}

#[tokio::test]
async fn an_engine_that_stops_at_once_gives_no_decode_speed() {
    let usage = r#","usage":{"prompt_tokens":64,"completion_tokens":1}"#;
    let (url, requests) = bare_engine(usage).await;
    let told = refused(&url, &format!("{QUICK} --kv-tokens 4096")).await;
    assert!(told.contains("end after 1 tokens"), "{told}");
    assert!(requests.load(Ordering::Relaxed) > 5);
}

/// A server of completions that always gives the same token, and reports nothing else.
async fn bare_engine(usage: &str) -> (String, &'static AtomicU64) {
    let requests: &'static AtomicU64 = Box::leak(Box::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let event = format!("data: {{\"choices\":[{{\"text\":\"a\"}}]{usage}}}\n\ndata: [DONE]\n\n");
    let complete = move || async move {
        requests.fetch_add(1, Ordering::Relaxed);
        ([("content-type", "text/event-stream")], event).into_response()
    };
    let router = Router::new()
        .route(
            "/v1/models",
            get(|| async { r#"{"data":[{"id":"bare"}]}"# }),
        )
        .route("/v1/completions", post(complete));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}
