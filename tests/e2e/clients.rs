//! LLM client packages that agents use, with only their URL changed.

use std::path::PathBuf;
use std::process::Command;

use treadle_engine_sim::{EngineSim, EngineSimOptions, Faults};
use treadle_tests::support::fixture::{Fixture, MODEL, SPEED};
use treadle_tests::support::policy::root;

/// Skips the tests with third-party packages.
const SKIP_VARIABLE: &str = "TREADLE_SKIP_CLIENT_TESTS";

/// Python with the packages; `None` if tests with them are skipped.
pub(crate) fn python() -> Option<PathBuf> {
    if std::env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty()) {
        eprintln!("SKIPPED: {SKIP_VARIABLE} is set, so no packages of clients were tested");
        return None;
    }
    let python = root().join(".treadle/llm-clients/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run `scripts/llm-clients.sh`, or set {SKIP_VARIABLE}=1",
        python.display()
    );
    Some(python)
}

/// Runs the script against a daemon.
async fn passes(fixture: &Fixture, part: &'static str) {
    let Some(python) = python() else { return };
    let url = fixture.daemon.url().clone();
    let output = tokio::task::spawn_blocking(move || {
        Command::new(python)
            .arg(root().join("tests/e2e/clients/clients.py"))
            .args([&url, MODEL, part])
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .output()
    });
    let output = output.await.expect("no panic").expect("it runs");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let is_fine = output.status.success() && out.contains("ALL PASSED");
    assert!(is_fine, "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_anthropic_and_litellm_work_with_simulated_engines() {
    let fixture = Fixture::start(2, 200_000).await;
    passes(&fixture, "all").await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_work_with_engines_that_have_no_such_path() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let options = EngineSimOptions {
        kv_tokens: Some(200_000),
        time_scale: SPEED,
        model: MODEL.to_owned(),
        faults: Faults {
            no_responses: true,
            ..Faults::default()
        },
        ..EngineSimOptions::default()
    };
    let engine = EngineSim::serve(listener.expect("a free port"), options).expect("good options");
    let fixture = Fixture::around(vec![engine], |_| ()).await;
    passes(&fixture, "responses").await;
    fixture.finish().await;
}
