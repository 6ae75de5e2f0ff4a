//! Recognition of servers that are configured only with a URL.

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;

use super::{client_of, count, gateway, gateway_tuned, pair, workers};
use crate::offload::stage;

/// Maximum number of registrations until a speed is measured: the machine may be busy.
const REGISTRATIONS_MAX: u32 = 10;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_is_recognised_with_what_it_can_hold() {
    let fixture = gateway().await;
    let found = workers(&fixture.client).await;
    for (worker, url) in found.iter().zip(pair()) {
        assert_eq!(worker["url"], url, "{worker}");
        assert_eq!(worker["engine"], "sglang", "{worker}");
        let own = client_of(&url).get("/server_info").await.ok();
        let capacity = own["max_total_num_tokens"].as_u64();
        assert!(capacity > Some(0), "{own}");
        assert_eq!(worker["capacity_tokens"].as_u64(), capacity, "{worker}");
        let counted = count(&url, "sglang:max_total_num_tokens").await;
        assert_eq!(Some(counted), capacity);
    }
    let client = &fixture.client;
    let read = async || {
        let figures = ["running", "waiting", "used_tokens"];
        let idle = |worker: &Value| figures.iter().all(|name| worker["engine_load"][*name] == 0);
        workers(client).await.iter().all(idle)
    };
    stage::until("its load is read from its metrics", read).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two SGLang servers at TREADLE_TEST_SGLANG_URL"]
async fn sglang_is_measured_when_it_is_registered() {
    let fixture = gateway_tuned(|config| config.engines.measure = true).await;
    for url in pair() {
        let speed = speed_of(&fixture.client, &url).await;
        assert!(speed > 0, "{url}: {speed} tokens/s");
        println!("{url}: {speed} tokens/s");
    }
    fixture.finish().await;
}

/// A server's speed, measured again if the machine was too busy.
async fn speed_of(client: &Client, url: &str) -> u64 {
    for _ in 0..REGISTRATIONS_MAX {
        let workers = workers(client).await;
        let worker = workers.iter().find(|worker| worker["url"] == url);
        let worker = worker.expect("it is registered");
        if let Some(speed) = worker["prefill_tokens_per_s"].as_u64() {
            return speed;
        }
        let id = worker["id"].as_str().expect("an id");
        let path = format!("/api/v1/workers/{id}");
        client.send(Method::DELETE, &path, &[], "").await.ok();
        let again = json!({"url": url});
        client.post("/api/v1/workers", &again).await.ok();
    }
    panic!("{url} was never measured");
}
