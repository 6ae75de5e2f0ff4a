//! An address with data parallelism: each rank is a worker with its own memory, and a program's
//! turns go to the rank that has its cache.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::net::TcpListener;
use treadle_config::{Config, EngineChoice};
use treadle_engine_sim::{EngineSim, EngineSimOptions};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, MODEL, SPEED, chat, endpoint};
use treadle_tests::support::raw_engine::{RawEngine, RawRequest};

const RANK_HEADERS: [&str; 2] = ["x-data-parallel-rank", "x-override-routed-dp-rank"];

/// vLLM's metrics with two ranks.
const TWO_RANKS: &str = r#"
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="5000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="5000"} 1.0
vllm:num_requests_running{engine="0"} 0.0
vllm:num_requests_running{engine="1"} 0.0
"#;

/// The second of two vLLM servers with hybrid load balancing: metrics number its ranks among all.
const LATER_RANKS: &str = r#"
vllm:cache_config_info{engine="4",kv_cache_size_tokens="5000"} 1.0
vllm:cache_config_info{engine="5",kv_cache_size_tokens="6000"} 1.0
"#;

/// SGLang with parallel attention.
const SGLANG: &str =
    r#"{"max_total_num_tokens":6000,"tp_size":2,"dp_size":2,"enable_dp_attention":true}"#;
const SGLANG_LOADS: &str = r#"
sglang:num_used_tokens{dp_rank="0",engine_type="unified",pp_rank="0",tp_rank="0"} 10.0
sglang:num_used_tokens{dp_rank="1",engine_type="unified",pp_rank="0",tp_rank="1"} 20.0
"#;

async fn workers(client: &Client) -> Vec<Value> {
    let listed = client.get("/workers").await.ok();
    listed["workers"].as_array().expect("a list").clone()
}

/// The workers once there are this many that are as wanted.
async fn workers_that(client: &Client, count: usize, are: impl Fn(&Value) -> bool) -> Vec<Value> {
    for _ in 0..600 {
        let found = workers(client).await;
        if found.len() == count && found.iter().all(&are) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?}", workers(client).await);
}

async fn two_workers_that(client: &Client, are: impl Fn(&Value) -> bool) -> Vec<Value> {
    workers_that(client, 2, are).await
}

/// The two workers once they are healthy.
pub(crate) async fn two_workers(client: &Client) -> Vec<Value> {
    two_workers_that(client, |worker| worker["is_healthy"] == true).await
}

async fn around(engine: &RawEngine, tune: impl FnOnce(&mut Config)) -> Fixture {
    let url = engine.url().to_owned();
    Fixture::around(Vec::new(), |config| {
        config.engines.endpoints = vec![endpoint(url)];
        tune(config);
    })
    .await
}

/// The rank that a request names once in each header.
fn rank_of(request: &RawRequest) -> String {
    let headers = request.headers.iter();
    let headers = headers.filter_map(|line| line.split_once(':'));
    let is_rank = |name: &str| {
        RANK_HEADERS
            .iter()
            .any(|rank| rank.eq_ignore_ascii_case(name))
    };
    let ranks = headers.filter(|(name, _)| is_rank(name));
    let ranks: Vec<&str> = ranks.map(|(_, rank)| rank.trim()).collect();
    assert_eq!(ranks.len(), 2, "{:?}", request.headers);
    assert_eq!(ranks[0], ranks[1]);
    ranks[0].to_owned()
}

/// One turn of a program; returns the rank that it came to.
async fn turn(client: &Client, engine: &mut RawEngine, program: &str) -> String {
    let (client, body) = (client.clone(), chat(program, "go on", 4).to_string());
    let asked = tokio::spawn(async move {
        // A client does not choose its rank.
        let headers = RANK_HEADERS.map(|name| (name, "7"));
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
    let fixture = around(&engine, |_| ()).await;
    let client = &fixture.client;
    let found = two_workers(client).await;
    for (rank, worker) in found.iter().enumerate() {
        assert_eq!(worker["url"], format!("{}#{rank}", engine.url()));
        assert_eq!(worker["capacity_tokens"], 5_000, "of one rank");
    }
    stay_at_their_ranks(client, &mut engine).await;
    fixture.finish().await;
}

/// Of two programs, each has all its turns at a rank of its own.
async fn stay_at_their_ranks(client: &Client, engine: &mut RawEngine) {
    let mut ranks = BTreeSet::new();
    for program in ["a", "b"] {
        let first = turn(client, engine, program).await;
        for _ in 0..3 {
            assert_eq!(turn(client, engine, program).await, first, "{program}");
        }
        ranks.insert(first);
    }
    let both = BTreeSet::from(["0".to_owned(), "1".to_owned()]);
    assert_eq!(ranks, both, "the second has its room at the other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_hybrid_load_balancing_numbers_its_own_ranks() {
    let mut engine = RawEngine::start().await;
    engine.set_metrics(LATER_RANKS);
    let fixture = around(&engine, |_| ()).await;
    let client = &fixture.client;
    let found = two_workers(client).await;
    for (rank, tokens) in [5_000, 6_000].into_iter().enumerate() {
        assert_eq!(found[rank]["url"], format!("{}#{rank}", engine.url()));
        assert_eq!(found[rank]["capacity_tokens"], tokens);
    }
    stay_at_their_ranks(client, &mut engine).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_of_sglang_have_their_loads_and_clients_never_choose_one() {
    let mut engine = RawEngine::start().await;
    engine.set_info(SGLANG);
    engine.set_metrics(SGLANG_LOADS);
    let fixture = around(&engine, |config| {
        config.engines.endpoints[0].kind = Some(EngineChoice::Sglang);
        // For engines whose ranks are not workers.
        let passed = RANK_HEADERS.map(|name| format!("header:{name}"));
        config.engines.pass_fields = passed.to_vec();
    })
    .await;
    let client = &fixture.client;
    let has_load = |worker: &Value| !worker["engine_load"]["used_tokens"].is_null();
    let found = two_workers_that(client, has_load).await;
    for (rank, used) in [10, 20].into_iter().enumerate() {
        assert_eq!(found[rank]["url"], format!("{}#{rank}", engine.url()));
        assert_eq!(found[rank]["capacity_tokens"], 6_000, "of one rank");
        assert_eq!(found[rank]["engine_load"]["used_tokens"], used);
    }
    stay_at_their_ranks(client, &mut engine).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_of_an_engine_that_answers_later_are_found_and_removed_together() {
    let engine = RawEngine::start().await;
    engine.set_well(false);
    let fixture = around(&engine, |_| ()).await;
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

/// vLLM's metrics with this many ranks. A server without data parallelism has one row, too.
fn metrics_of(ranks: usize) -> String {
    let rows = (0..ranks).map(|rank| {
        format!(
            "vllm:cache_config_info{{engine=\"{rank}\",kv_cache_size_tokens=\"5000\"}} 1.0\n\
             vllm:num_requests_running{{engine=\"{rank}\"}} 0.0\n"
        )
    });
    rows.collect()
}

/// Waits until an engine's ranks are its workers, or the engine itself if it has one only.
async fn ranks_are(client: &Client, engine: &RawEngine, ranks: usize) {
    let is_healthy = |worker: &Value| worker["is_healthy"] == true;
    let found = workers_that(client, ranks, is_healthy).await;
    let urls = found.iter().filter_map(|worker| worker["url"].as_str());
    let urls: BTreeSet<String> = urls.map(str::to_owned).collect();
    let expected: BTreeSet<String> = match ranks {
        1 => BTreeSet::from([engine.url().to_owned()]),
        _ => (0..ranks)
            .map(|rank| format!("{}#{rank}", engine.url()))
            .collect(),
    };
    assert_eq!(urls, expected);
}

/// The process ends, and another one with this many ranks begins.
async fn restart(client: &Client, engine: &RawEngine, ranks: usize) {
    let before = workers(client).await.len();
    engine.set_well(false);
    workers_that(client, before, |worker| worker["is_healthy"] == false).await;
    engine.set_metrics(&metrics_of(ranks));
    engine.set_well(true);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_comes_back_with_other_ranks_has_other_workers() {
    let mut engine = RawEngine::start().await;
    engine.set_metrics(&metrics_of(4));
    let fixture = around(&engine, |_| ()).await;
    let client = &fixture.client;
    ranks_are(client, &engine, 4).await;
    let mut programs = ["a", "b", "c", "d"].map(String::from).to_vec();
    for ranks in [4, 2, 3, 1, 2] {
        if ranks != 4 {
            restart(client, &engine, ranks).await;
            ranks_are(client, &engine, ranks).await;
        }
        if ranks == 1 {
            continue;
        }
        // Programs that had their caches at ranks that are gone go on at others; those of ranks
        // that are left may stay, and a new one goes to an empty rank.
        programs.push(format!("new-{}", programs.len()));
        let mut placed = BTreeSet::new();
        for program in &programs {
            placed.insert(turn(client, &mut engine, program).await);
        }
        let all: BTreeSet<String> = (0..ranks).map(|rank| rank.to_string()).collect();
        assert_eq!(placed, all);
        let charged = |worker: &Value| worker["programs"].as_u64();
        let workers = workers(client).await;
        let placed: u64 = workers.iter().filter_map(charged).sum();
        assert_eq!(placed, programs.len() as u64, "each is charged once");
    }
    // What an operator said of the address holds for a rank that is new.
    let url =
        percent_encoding::utf8_percent_encode(engine.url(), percent_encoding::NON_ALPHANUMERIC);
    let path = format!("/api/v1/workers/{url}");
    let body = r#"{"state":"cordoned"}"#;
    client.send(Method::PATCH, &path, &[], body).await.ok();
    restart(client, &engine, 3).await;
    let is_cordoned = |worker: &Value| worker["state"] == "cordoned";
    workers_that(client, 3, is_cordoned).await;
    fixture.finish().await;
}

/// It restarted between two probes: only its page of metrics shows that.
#[tokio::test(flavor = "multi_thread")]
async fn steps_of_a_rank_that_is_gone_go_to_another() {
    let mut engine = RawEngine::start().await;
    engine.set_metrics(&metrics_of(3));
    let fixture = around(&engine, |_| ()).await;
    let client = fixture.client.clone();
    ranks_are(&client, &engine, 3).await;
    let mut program = "";
    for each in ["a", "b", "c"] {
        if turn(&client, &mut engine, each).await == "2" {
            program = each;
        }
    }
    let body = chat(program, "go on", 4);
    let asked = {
        let client = client.clone();
        tokio::spawn(async move { client.post(CHAT, &body).await })
    };
    let lost = engine.request().await;
    assert_eq!(rank_of(&lost), "2");
    engine.set_metrics(&metrics_of(2));
    let again = engine.request().await;
    assert_ne!(rank_of(&again), "2");
    again.answer_chat().await;
    asked.await.expect("it is answered").ok();
    ranks_are(&client, &engine, 2).await;
    drop(lost);
    fixture.finish().await;
}
