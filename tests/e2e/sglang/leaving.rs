//! Clients that disconnect in the middle of an answer.

use serde_json::{Value, json};
use treadle_tests::support::fixture::{CHAT, streamed};

use super::{ENDLESS, GENERATE, client_of, fresh, gateway, generation, pair, sum, until_running};
use crate::offload::stage;

/// Requests that the servers aborted.
const ABORTED: &str = "sglang:num_aborted_requests_total";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_hears_of_clients_that_leave_a_chat() {
    let [first, _] = pair();
    let model = client_of(&first).get("/v1/models").await.ok();
    let chat = json!({
        "model": model["data"][0]["id"], "max_tokens": ENDLESS, "ignore_eos": true, "program_id": "p",
        "messages": [{"role": "user", "content": "Tell a long story."}],
    });
    leaves(CHAT, streamed(chat)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_hears_of_clients_that_leave_a_generation() {
    let mut request = generation(&fresh(50), ENDLESS);
    request["stream"] = json!(true);
    // Each event repeats the text so far.
    request["return_logprob"] = json!(false);
    leaves(GENERATE, request).await;
}

async fn leaves(path: &str, request: Value) {
    let fixture = gateway().await;
    let before = sum(ABORTED).await;
    let mut events = fixture.client.stream(path, &request).await;
    events.piece().await.expect("an event").expect("no break");
    until_running(1).await;
    drop(events);
    until_running(0).await;
    let given_up = async || sum(ABORTED).await == before + 1;
    stage::until("the server has given it up", given_up).await;
    fixture.finish().await;
}
