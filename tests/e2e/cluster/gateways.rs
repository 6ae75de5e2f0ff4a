//! Daemons that do not schedule accept requests and forward others; their steps end with them.

use serde_json::{Value, json};
use treadle_config::Role;
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::cluster::{Cluster, cluster_of, until_scheduled};
use treadle_tests::support::command_line::treadle;
use treadle_tests::support::fixture::{
    COMPLETIONS, MODEL, endpoint, engine, release_all, settled, streamed,
};

use super::DAEMON;

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_serves_and_passes_on_what_it_cannot_answer() {
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |_, _| ());
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let gateway = cluster.start(Role::Gateway).await;
    let client = &gateway.client;
    let worker = json!({"url": engine.url(), "kind": "vllm"});
    client.post("/workers", &worker).await.ok();
    let body = json!({"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 5, "program_id": "p"});
    let answer = client.post(COMPLETIONS, &body).await;
    assert_eq!(answer.headers["x-treadle-program"], "p");
    answer.ok();
    for each in [client, &scheduler.client] {
        assert_eq!(each.get("/programs").await.ok()["p"]["step_count"], 1);
        let models = each.get("/v1/models").await.ok();
        assert_eq!(models["data"][0]["id"], MODEL);
    }
    let told = cluster_of(client).await;
    assert_eq!(
        (&told["role"], &told["name"]),
        (&json!("gateway"), &json!("d2"))
    );
    assert_eq!(told["shards"][0]["scheduler"]["name"], "d1");
    assert_eq!(told["shards"][0]["here"], false);

    // A token made through one daemon is valid at the other after its refresh.
    let made = json!({"name": "n", "scope": "job", "tenant": "default"});
    let made = client.post("/api/v1/tokens", &made).await.ok();
    let fresh = client.with_token(made["secret"].as_str().expect("a secret"));
    let began = std::time::Instant::now();
    while !fresh.post(COMPLETIONS, &body).await.status.is_success() {
        assert!(began.elapsed() < TIMEOUT, "the token is never good");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let refused = client
        .with_token("tr_nonsense")
        .post(COMPLETIONS, &body)
        .await;
    refused.refused(401, "token_invalid");
    let refused = client.with_token("tr_nonsense").get("/programs").await;
    refused.refused(401, "token_invalid");
    let headers = [("x-treadle-shard", "nowhere")];
    let refused = client
        .send(http::Method::GET, "/programs", &headers, "")
        .await;
    assert!(refused.refused(400, "invalid_field").contains("main"));

    settled(client).await;
    release_all(client).await;
    gateway.kill();
    scheduler.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_end_with_their_gateway_and_programs_go_on() {
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.engines.endpoints = vec![endpoint(engine.url())];
        config.cluster.gateway_timeout_s = 3;
    });
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let gateway = cluster.start(Role::Gateway).await;
    let prompt: Vec<u32> = (0..100).collect();
    let body = json!({
        "model": MODEL, "prompt": prompt, "max_tokens": 50_000, "program_id": "p", "stream": true,
    });
    let stream = gateway.client.stream(COMPLETIONS, &body).await;
    let client = &scheduler.client;
    client
        .until("running", |m| m.count("treadle_steps_running") == 1)
        .await;
    gateway.kill();
    assert!(
        stream.finish().await.broken,
        "the client must see the break"
    );
    settled(client).await;
    let steps = client.get("/api/v1/programs/p/steps").await.ok();
    assert_eq!(steps["steps"][0]["outcome"], "interrupted", "{steps}");
    let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 5, "program_id": "p"});
    client.post(COMPLETIONS, &body).await.ok();
    assert_eq!(client.get("/programs").await.ok()["p"]["step_count"], 1);
    release_all(client).await;
    scheduler.kill();
    engine.shutdown().await;
}

/// A step of one program, told from its others by the length of its prompt.
fn ask(prompt_tokens: u32, max_tokens: u32) -> Value {
    let prompt: Vec<u32> = (0..prompt_tokens).collect();
    json!({"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "program_id": "p"})
}

/// The lengths of the prompts of a page of steps.
fn prompts(page: &Value) -> Vec<u64> {
    let steps = page["steps"].as_array().expect("a list").iter();
    let prompts = steps.map(|step| step["prompt_tokens"].as_u64().expect("a count"));
    prompts.collect()
}

async fn steps_of(client: &Client, query: &str) -> Value {
    let path = format!("/api/v1/programs/p/steps?{query}");
    client.get(&path).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_two_gateways_are_listed_in_the_order_of_their_arrival() {
    let engine = engine(200_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| {
        config.engines.endpoints = vec![endpoint(engine.url())];
    });
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let gateway = cluster.start(Role::Gateway).await;
    let (here, there) = (&scheduler.client, &gateway.client);
    // Each daemon has its own numbers, and the first and the last step are still open.
    let open = streamed(ask(100, 50_000));
    let first = there.stream(COMPLETIONS, &open).await;
    here.post(COMPLETIONS, &ask(110, 5)).await.ok();
    there.post(COMPLETIONS, &ask(120, 5)).await.ok();
    let open = streamed(ask(130, 50_000));
    let last = here.stream(COMPLETIONS, &open).await;

    for client in [here, there] {
        let page = steps_of(client, "limit=10").await;
        assert_eq!(prompts(&page), [100, 110, 120, 130], "{page}");
        let is_open = |at: usize| page["steps"][at]["outcome"].is_null();
        assert_eq!([0, 1, 2, 3].map(is_open), [true, false, false, true]);
        let page = steps_of(client, "limit=2").await;
        assert_eq!(prompts(&page), [100, 110], "{page}");
        let after = &page["steps"][1]["step"];
        let page = steps_of(client, &format!("after={after}")).await;
        assert_eq!(prompts(&page), [120, 130], "{page}");
    }
    let token = std::fs::read_to_string(cluster.token_file()).expect("a token");
    let daemon = ["--url", there.base(), "--token", token.trim()];
    let shown = treadle(&[&["programs", "p", "--steps", "--json"], &daemon[..]].concat());
    assert_eq!(prompts(&shown.ok()), [100, 110, 120, 130]);

    drop((first, last));
    settled(here).await;
    release_all(here).await;
    gateway.kill();
    scheduler.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_takes_the_shared_secret_alone() {
    let mut cluster = Cluster::new(DAEMON, |_, _| ());
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let client = scheduler.client.without_token();
    let upgrade = [("connection", "upgrade"), ("upgrade", "treadle-link/1")];
    let path = "/internal/link/main";
    let refused = client.send(http::Method::GET, path, &upgrade, "").await;
    refused.refused(403, "forbidden");
    let wrong = [upgrade[0], upgrade[1], ("authorization", "Bearer a guess")];
    let refused = client.send(http::Method::GET, path, &wrong, "").await;
    refused.refused(403, "forbidden");
    let secret = format!("Bearer {}", cluster.config().cluster.secret.reveal());
    let old = [
        upgrade[0],
        ("upgrade", "treadle-link/0"),
        ("authorization", secret.as_str()),
    ];
    let refused = client.send(http::Method::GET, path, &old, "").await;
    assert!(
        refused
            .refused(400, "invalid_field")
            .contains("treadle-link/1")
    );
    scheduler.kill();
}
