//! An address with data parallelism: each rank is a worker with its own memory, and a program's
//! turns go to the rank that has its cache.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::net::TcpListener;
use treadle_engine_sim::{EngineSim, EngineSimOptions};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, MODEL, SPEED, chat, endpoint};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

/// vLLM's metrics with two ranks.
const TWO_RANKS: &str = r#"
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="5000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="5000"} 1.0
vllm:num_requests_running{engine="0"} 0.0
vllm:num_requests_running{engine="1"} 0.0
"#;

async fn workers(client: &Client) -> Vec<Value> {
    let listed = client.get("/workers").await.ok();
    listed["workers"].as_array().expect("a list").clone()
}

/// The URLs once there are two workers.
async fn two_workers(client: &Client) -> Vec<Value> {
    for _ in 0..600 {
        let found = workers(client).await;
        let answer = |worker: &Value| worker["is_healthy"] == true;
        if found.len() == 2 && found.iter().all(answer) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?}", workers(client).await);
}

async fn around(engine: &RawEngine) -> Fixture {
    let url = engine.url().to_owned();
    Fixture::around(Vec::new(), |config| {
        config.engines.endpoints = vec![endpoint(url)];
    })
    .await
}

fn rank_of(request: &RawRequest) -> String {
    let mut headers = request
        .headers
        .iter()
        .filter_map(|line| line.split_once(':'));
    let ranks = headers.find(|(name, _)| name.eq_ignore_ascii_case("x-data-parallel-rank"));
    ranks.expect("it names its rank").1.trim().to_owned()
}

/// One turn of a program; returns the rank that it came to.
async fn turn(client: &Client, engine: &mut RawEngine, program: &str) -> String {
    let (client, body) = (client.clone(), chat(program, "go on", 4).to_string());
    let asked = tokio::spawn(async move {
        // A client does not choose its rank.
        let headers = [
            ("x-data-parallel-rank", "7"),
            ("x-override-routed-dp-rank", "7"),
        ];
        client
            .send(Method::POST, CHAT, &headers, body.into_bytes())
            .await
    });
    let request = engine.request().await;
    let rank = rank_of(&request);
    request.answer_chat().await;
    asked.await.expect("it is answered").ok();
    rank
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_stay_at_the_rank_that_has_their_caches() {
    let mut engine = RawEngine::start().await;
    engine.set_metrics(TWO_RANKS);
    let fixture = around(&engine).await;
    let client = &fixture.client;
    let found = two_workers(client).await;
    for (rank, worker) in found.iter().enumerate() {
        assert_eq!(worker["url"], format!("{}#{rank}", engine.url()));
        assert_eq!(worker["capacity_tokens"], 5_000, "of one rank");
    }
    let mut ranks = BTreeSet::new();
    for program in ["a", "b"] {
        let first = turn(client, &mut engine, program).await;
        for _ in 0..3 {
            assert_eq!(turn(client, &mut engine, program).await, first, "{program}");
        }
        ranks.insert(first);
    }
    let both = BTreeSet::from(["0".to_owned(), "1".to_owned()]);
    assert_eq!(ranks, both, "the second has its room at the other");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_of_an_engine_that_answers_later_are_found_and_removed_together() {
    let engine = RawEngine::start().await;
    engine.set_well(false);
    let fixture = around(&engine).await;
    let client = &fixture.client;
    assert_eq!(
        workers(client).await.len(),
        1,
        "its ranks are not known yet"
    );
    engine.set_metrics(TWO_RANKS);
    engine.set_well(true);
    two_workers(client).await;
    let url =
        percent_encoding::utf8_percent_encode(engine.url(), percent_encoding::NON_ALPHANUMERIC);
    client.delete(&format!("/api/v1/workers/{url}")).await.ok();
    assert!(workers(client).await.is_empty());
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_ranks_are_workers_and_find_their_programs_caches() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let options = EngineSimOptions {
        kv_tokens: Some(20_000),
        ranks: 2,
        time_scale: SPEED,
        model: MODEL.to_owned(),
        ..EngineSimOptions::default()
    };
    let engine = EngineSim::serve(listener, options).expect("good options");
    let fixture = Fixture::around(vec![engine], |_| ()).await;
    let client = &fixture.client;
    for worker in two_workers(client).await {
        assert_eq!(worker["capacity_tokens"], 20_000, "of one rank");
    }
    let text = "go on with the work ".repeat(80);
    for program in ["a", "b"] {
        for _ in 0..3 {
            client.post(CHAT, &chat(program, &text, 4)).await.ok();
        }
    }
    for rank in fixture.engines[0].rank_snapshots().await {
        let counters = rank.counters;
        assert_eq!(counters.finished_requests, 3, "{counters:?}");
        let third = counters.prefix_queries_tokens / 3;
        assert!(counters.prefix_hits_tokens > third, "{counters:?}");
    }
    fixture.finish().await;
}
