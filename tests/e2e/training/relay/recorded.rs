//! The calls of slime and prime-rl, in their order, as their code makes them (slime `624b824a`,
//! prime-rl `005c286c`). Neither is on PyPI, so the calls are recorded here, not made by their code.

use super::*;
use tokio::net::TcpListener;
use treadle_tests::support::client::Answer;

/// The first of two ports that are free now.
async fn free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = first.local_addr().expect("bound").port();
        let next = ("127.0.0.1", port.saturating_add(1));
        if TcpListener::bind(next).await.is_ok() {
            return port;
        }
    }
}

/// A call to each engine at once, as `ray.get` of a list of calls does.
async fn each(engines: &[Client], path: &str, body: &Value) -> Vec<Answer> {
    let mut calls = tokio::task::JoinSet::new();
    for (at, engine) in engines.iter().cloned().enumerate() {
        let (path, body) = (path.to_owned(), body.clone());
        calls.spawn(async move { (at, engine.post(&path, &body).await) });
    }
    let mut answers = calls.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    let answers = answers.iter();
    answers.map(|answer| answer.status.as_u16()).collect()
}

async fn all_ok(engines: &[Client], path: &str, body: Value) {
    for answer in each(engines, path, &body).await {
        answer.ok();
    }
}

/// `pause_generation` and `flush_cache` of slime's engines.
async fn slime_pauses(engines: &[Client]) {
    all_ok(engines, "/pause_generation", json!({})).await;
    for engine in engines {
        assert_eq!(engine.get("/flush_cache").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slime_updates_engines_at_ports_of_their_own() {
    let first = free_ports().await;
    let fixture = Fixture::tuned(2, 10_000, |config| {
        for endpoint in &mut config.engines.endpoints {
            endpoint.kind = Some(EngineChoice::Sglang);
        }
        config.engines.relay = format!("math@127.0.0.1:{first}");
    })
    .await;
    let client = &fixture.client;
    let engines = [first, first + 1].map(|port| Client::new(format!("http://127.0.0.1:{port}")));
    // discover_external_engines, and _register_to_router.
    for engine in &engines {
        assert_eq!(engine.get("/server_info").await.ok()["simulated"], true);
        let body = json!({"url": engine.base(), "worker_type": "regular"});
        let registered = client.post("/workers", &body).await.ok();
        assert_eq!(registered["added"], false, "{registered}");
        assert_eq!(engine.get("/health_generate").await.status, 200);
    }
    // update_weight_from_disk_delta.py: the first pull only makes the base.
    let pull = |version: u64| json!({"target_version": version, "source_dir": "/d", "local_checkpoint_dir": "/l"});
    all_ok(&engines, "/pull_weights", pull(0)).await;
    all_ok(&engines, "/pull_weights", pull(1)).await;
    slime_pauses(&engines).await;
    let paused = until(client, |view| view["update"]["stage"] == "driven").await;
    let fenced = |view: &Value| {
        view["workers"]
            .as_array()
            .map(|all| all.iter().all(|w| w["fenced"] == true))
    };
    assert_eq!(fenced(&paused), Some(true), "{paused}");
    let step = {
        let client = client.clone();
        tokio::spawn(async move { named(&client).await })
    };
    let load = json!({"model_path": "/l", "weight_version": "1"});
    all_ok(&engines, "/update_weights_from_disk", load).await;
    assert!(!step.is_finished(), "steps wait for the resume");
    all_ok(&engines, "/continue_generation", json!({})).await;
    assert_eq!(step.await.expect("is answered"), "1");
    assert_eq!(held(client).await, vec![(true, json!("1")); 2]);
    // update_weight_from_distributed.py: all buckets name the version.
    for (offset, engine) in (1..).zip(&engines) {
        let group = json!({"master_address": "127.0.0.1", "master_port": 1, "rank_offset": offset,
            "world_size": 3, "group_name": "slime-pp_0", "backend": "nccl"});
        engine.post("/init_weights_update_group", &group).await.ok();
    }
    slime_pauses(&engines).await;
    for bucket in ["a", "b"] {
        let body = json!({"names": [bucket], "dtypes": ["bfloat16"], "shapes": [[1]],
            "group_name": "slime-pp_0", "flush_cache": false, "weight_version": "2"});
        all_ok(&engines, "/update_weights_from_distributed", body).await;
    }
    all_ok(&engines, "/continue_generation", json!({})).await;
    assert_eq!(held(client).await, vec![(true, json!("2")); 2]);
    // One fails in the middle: slime raises, and leaves both paused.
    slime_pauses(&engines).await;
    fixture.engines[0].set_load_fault(LoadFault::Tear);
    let load = json!({"model_path": "/l", "weight_version": "3"});
    let answers = each(&engines, "/update_weights_from_disk", &load).await;
    assert_eq!(statuses(&answers), [400, 200]);
    let answers = each(&engines, "/continue_generation", &json!({})).await;
    assert_eq!(statuses(&answers), [409, 200]);
    assert_eq!(
        held(client).await,
        [(false, json!("2")), (true, json!("3"))]
    );
    assert_eq!(named(client).await, "3");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prime_rl_resumes_all_and_only_the_whole_ones_do() {
    let fixture = fixture(EngineChoice::Vllm).await;
    let client = &fixture.client;
    let engines = [0, 1].map(|worker| Client::new(one(client, worker)));
    for (at, engine) in engines.iter().enumerate() {
        assert_eq!(engine.get("/health").await.status, 200);
        assert!(engine.get("/v1/models").await.ok()["data"].is_array());
        let group = json!({"host": "127.0.0.1", "port": 1, "rank_offset": at,
            "inference_world_size": 2, "timeout": 10, "quantize_in_weight_transfer": false});
        engine.post("/init_broadcaster", &group).await.ok();
    }
    let pause = "/pause?mode=keep&clear_cache=false";
    let load = |step: u64| json!({"weight_dir": format!("/weights/step_{step}")});
    for step in 1..3 {
        all_ok(&engines, pause, Value::Null).await;
        all_ok(&engines, "/update_weights", load(step)).await;
        all_ok(&engines, "/resume", Value::Null).await;
        let view = get(client, "/weights").await.ok();
        assert_eq!(
            (&view["serving"]["version"], &view["last"]["held"]),
            (&json!(step), &json!(2))
        );
    }
    all_ok(&engines, pause, Value::Null).await;
    fixture.engines[1].set_load_fault(LoadFault::Tear);
    let answers = each(&engines, "/update_weights", &load(3)).await;
    assert_eq!(statuses(&answers), [200, 400]);
    // It repeats calls that failed with 5xx, which would load a part on top of another.
    let again = engines[1].post("/update_weights", &load(3)).await;
    again.refused(409, "weights_conflict");
    // Its `finally` resumes all.
    let answers = each(&engines, "/resume", &Value::Null).await;
    assert_eq!(statuses(&answers), [200, 409]);
    let serves: Vec<bool> = held(client)
        .await
        .iter()
        .map(|(serves, _)| *serves)
        .collect();
    assert_eq!(serves, [true, false]);
    fixture.finish().await;
}
