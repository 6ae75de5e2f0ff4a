//! Trainers pause the servers themselves, for new weights; the daemon's clients wait meanwhile.

use serde_json::json;
use std::time::Duration;

use super::{GENERATE, client_of, fresh, gateway, generation, output, pair, until_running};

/// Longer than three health checks with their timeouts.
const PAUSE: Duration = Duration::from_secs(15);
/// Some seconds' worth.
const TOKENS: u32 = 1_200;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_goes_on_after_a_pause() {
    let request = generation(&fresh(50), TOKENS);
    // Before the daemon polls: other clients' requests at a server count as used memory.
    let [first, _] = pair();
    let undisturbed = client_of(&first).post(GENERATE, &request).await.ok();
    let fixture = gateway().await;
    let (client, body) = (fixture.client.clone(), request.clone());
    let asked = tokio::spawn(async move { client.post(GENERATE, &body).await.ok() });
    until_running(1).await;
    everywhere("/pause_generation").await;
    // A server whose /health generates is not lost by it.
    tokio::time::sleep(PAUSE).await;
    // A request that is paused in place keeps its placement.
    until_running(1).await;
    assert!(!asked.is_finished(), "it was done before the pause");
    everywhere("/continue_generation").await;
    let answer = asked.await.expect("an answer");
    assert_eq!(answer["meta_info"]["finish_reason"]["type"], "length");
    assert_eq!(output(&answer), output(&undisturbed));
    let lost = fixture.client.get("/api/v1/events?kind=worker_lost").await;
    assert_eq!(lost.ok()["events"].as_array().map(Vec::len), Some(0));
    fixture.finish().await;
}

async fn everywhere(path: &str) {
    for url in pair() {
        let mode = json!({"mode": "in_place"});
        client_of(&url).post(path, &mode).await.ok();
    }
}
