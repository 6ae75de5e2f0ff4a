//! `treadle calibrate` against llama.cpp: what it reads, measures, writes and compares. How near
//! the comparison comes is the machine's business: `docs/calibration.md` has figures.

use serde_json::Value;
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::llama_server::{LlamaServer, python, tiny_model};

const SLOTS: u32 = 2;
const SLOT_TOKENS: u32 = 1_024;

async fn calibrate(arguments: Vec<String>) -> Value {
    let ended = tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        treadle(&arguments).ok()
    });
    ended.await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn llamacpp_becomes_a_profile_and_runs_beside_its_model() {
    let Some(python) = python() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny_model(&python, folder.path());
    let server = LlamaServer::start(&python, &model, SLOTS, SLOT_TOKENS).await;
    let file = folder.path().join("profile.json");
    let file = file.to_str().expect("a path in UTF-8");
    let line = format!(
        "calibrate --url {} --json --out {file} --context-max 256 --output-tokens 16 --repeats 1 \
         --validate",
        server.url()
    );
    let told = calibrate(line.split_whitespace().map(str::to_owned).collect()).await;
    let profile = &told["profile"];
    assert_eq!(profile["running_max"], SLOTS, "{told}");
    assert_eq!(profile["context_limit_tokens"], SLOT_TOKENS);
    assert_eq!(profile["block_tokens"], 1);
    assert_eq!(profile["kv_blocks"], SLOTS * SLOT_TOKENS);
    assert!(profile["prefill_tokens_per_s"].as_u64() > Some(1));
    assert_eq!(told["calibration"]["engine"], "llamacpp");
    let measured = told["calibration"]["fit"]["residuals"]
        .as_array()
        .expect("a list");
    let has = |kind: &str| measured.iter().any(|each| each["what"]["kind"] == kind);
    assert!(has("prefill") && has("decode"), "{measured:?}");
    // A continued prompt found its cache, to the token.
    let continued = |each: &&Value| each["what"]["cached_tokens"].as_u64() >= Some(255);
    assert!(measured.iter().any(|each| continued(&each)), "{measured:?}");

    let written = std::fs::read_to_string(file).expect("the profile was written");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["profile"], *profile);
    let compared = &told["validations"][0];
    assert_eq!(
        (&compared["programs"], &compared["lanes"]),
        (&12.into(), &SLOTS.into())
    );
    for field in [
        "measured_makespan_s",
        "predicted_makespan_s",
        "makespan_ratio",
    ] {
        assert!(compared[field].as_f64() > Some(0.0), "{field}: {compared}");
    }
}
