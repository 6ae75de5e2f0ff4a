//! The flows of clients of ThunderAgent, of slime over SGLang's router, and of SkyRL.

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use treadle_tests::support::fixture::{CHAT, Fixture, MODEL, chat, engine, streamed};

fn thunderagent_chat(program: &Value, field: &str, text: &str) -> Value {
    let mut body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 7,
    });
    match field {
        "extra_body" => body["extra_body"] = json!({"program_id": program}),
        _ => body["program_id"] = program.clone(),
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flow_of_thunderagents_clients() {
    let fixture = Fixture::start(2, 100_000).await;
    let client = &fixture.client;
    for _ in 0..3 {
        let body = thunderagent_chat(&json!("swe-7"), "program_id", &"fix the bug ".repeat(30));
        let answer = client.post(CHAT, &body).await.ok();
        assert_eq!(answer["usage"]["completion_tokens"], 7);
    }
    let body = thunderagent_chat(&json!(42), "extra_body", "another task");
    let ended = client.stream(CHAT, &streamed(body)).await.finish().await;
    assert_eq!(ended.usage().expect("usage")["completion_tokens"], 7);

    let programs = client.get("/programs").await.ok();
    let urls: Vec<_> = fixture.engines.iter().map(|e| json!(e.url())).collect();
    for (program, steps) in [("swe-7", 3), ("42", 1)] {
        let state = &programs[program];
        assert!(urls.contains(&state["backend"]), "{state}");
        assert_eq!(state["step_count"], steps, "{state}");
        assert!(
            state["context_len"]
                .as_u64()
                .is_some_and(|tokens| tokens > 7)
        );
        assert_eq!(state["total_tokens"], state["context_len"]);
        assert_eq!(state["status"], "acting");
        assert_eq!(state["state"], "active");
    }
    let profiles = client.get("/profiles").await.ok();
    assert_eq!(profiles["swe-7"]["step_count"], 3);
    let profile = client.get("/profiles/swe-7").await.ok();
    for field in [
        "avg_prefill_s",
        "avg_decode_s",
        "avg_pause_s",
        "avg_tool_call_s",
    ] {
        assert!(profile[field].is_number(), "{field}: {profile}");
    }
    assert!(
        profile["avg_kv_hit_rate"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
    client
        .get("/profiles/nobody")
        .await
        .refused(404, "program_unknown");
    thunderagent_pages(&fixture).await;

    let release = json!({"program_id": "swe-7"});
    let released = client.post("/programs/release", &release).await.ok();
    assert_eq!(released["released"], true);
    let again = client.post("/programs/release", &release).await.ok();
    assert_eq!(again["released"], false);
    client
        .post("/programs/release", &json!({}))
        .await
        .refused(400, "missing_field");
    fixture.finish().await;
}

/// `/health` and `/metrics` while two programs are between steps.
async fn thunderagent_pages(fixture: &Fixture) {
    let health = fixture.client.get("/health").await.ok();
    assert_eq!(health["status"], "ok");
    assert_eq!(health["programs_count"], 2);
    assert_eq!(
        (&health["reasoning_count"], &health["acting_count"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(health["backends"].as_array().map(Vec::len), Some(2));
    assert_eq!(health["router_mode"], "tr");
    let accept = [("accept", "application/json")];
    let metrics = fixture
        .client
        .send(Method::GET, "/metrics", &accept, "")
        .await
        .ok();
    let used = |url: &str| metrics["backends"][url]["active_program_tokens"].as_u64();
    let used: Option<u64> = fixture
        .engines
        .iter()
        .map(|engine| used(&engine.url()))
        .sum();
    assert!(used.is_some_and(|tokens| tokens > 0), "{metrics}");
    let one = &metrics["backends"][fixture.engines[0].url()];
    assert_eq!(one["healthy"], true);
    assert_eq!(one["cache_config"]["total_tokens_capacity"], 100_000);
    let text = fixture.client.get("/metrics").await;
    assert!(
        text.headers["content-type"]
            .to_str()
            .is_ok_and(|kind| kind.starts_with("text/plain"))
    );
}

fn percent_encoded(url: &str) -> String {
    url.replace(':', "%3A").replace('/', "%2F")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flow_of_slime_over_sglangs_router() {
    let fixture = Fixture::start(0, 0).await;
    let client = &fixture.client;
    let (first, second) = (engine(100_000).await, engine(100_000).await);
    // URLs are listed as they were registered: slime finds its engine by that.
    let (url_one, url_two) = (first.url(), format!("{}/", second.url()));
    for url in [&url_one, &url_two] {
        let registration = json!({"url": url, "worker_type": "regular"});
        client.post("/workers", &registration).await.ok();
    }
    let workers = client.get("/workers").await.ok();
    let urls: Vec<_> = workers["workers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|w| &w["url"])
        .collect();
    assert_eq!(urls, [&json!(url_one), &json!(url_two)]);
    assert!(
        workers["workers"]
            .as_array()
            .is_some_and(|all| all.iter().all(|w| w["is_healthy"] == true))
    );
    assert_eq!(
        client.get("/list_workers").await.ok()["urls"],
        json!([url_one, url_two])
    );

    for step in 0..4 {
        let ids: Vec<u32> = (0..100 + step * 20).collect();
        let body = json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 5}});
        for routing_key in ["trajectory-a", "trajectory-b"] {
            let headers = [("x-smg-routing-key", routing_key)];
            let answer = client
                .send(Method::POST, "/generate", &headers, body.to_string())
                .await;
            assert_eq!(answer.ok()["meta_info"]["completion_tokens"], 5);
        }
    }
    let programs = client.get("/programs").await.ok();
    assert_eq!(programs["trajectory-a"]["step_count"], 4);
    assert_eq!(programs["trajectory-b"]["step_count"], 4);

    let loads = client.get("/v1/loads").await.ok();
    assert_eq!(loads["aggregate"]["total_reqs"], 0);
    let load = client.get("/get_load").await.ok();
    assert_eq!(load.as_array().map(Vec::len), Some(2));
    let tokens: u64 = load
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|l| l["num_tokens"].as_u64())
        .sum();
    // Both share their first blocks if they are at one worker.
    assert!((165..=340).contains(&tokens), "{load}");

    let path = format!("/workers/{}", percent_encoded(&url_two));
    assert_eq!(
        client.delete(&path).await.ok()["worker_urls"],
        json!([url_one])
    );
    client.delete(&path).await.refused(404, "worker_unknown");
    let path = format!("/remove_worker?url={}", percent_encoded(&url_one));
    let removed = client.send(Method::POST, &path, &[], "").await.ok();
    assert_eq!(removed["worker_urls"], json!([]));
    fixture.finish().await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_no_engine_is_not_registered() {
    let fixture = Fixture::start(0, 0).await;
    let client = &fixture.client;
    let wrong = client
        .post("/workers", &json!({"url": "10.0.0.1:80"}))
        .await;
    let own = json!({"url": fixture.daemon.url()});
    let own = client
        .post("/workers", &own)
        .await
        .refused(400, "invalid_field");
    assert!(own.contains("the daemon itself"), "{own}");
    let metadata = json!({"url": "http://169.254.169.254"});
    client
        .post("/add_worker", &metadata)
        .await
        .refused(400, "invalid_field");
    assert!(
        wrong
            .refused(400, "invalid_field")
            .contains("http://host:port")
    );
    for url in [
        "http://u:p@10.0.0.1:80",
        "http://10.0.0.1:80/v1",
        "http://10.0.0.1/?a=b",
    ] {
        let wrong = client.post("/workers", &json!({"url": url})).await;
        wrong.refused(400, "invalid_field");
    }
    assert_eq!(client.get("/workers").await.ok()["total"], 0);
    fixture.finish().await;
}

/// A wrong port, with some other server behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_names_no_model_is_given_no_program() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let server = tokio::spawn(async move {
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 1_024];
            let _ = connection.read(&mut request).await;
            let _ = connection.write_all(answer).await;
        }
    });
    client.post("/workers", &json!({"url": url})).await;
    let workers = client.get("/api/v1/workers").await.ok();
    let mut all = workers["workers"].as_array().expect("a list").iter();
    let other = all.find(|worker| worker["url"] == url);
    assert_eq!(other.expect("it is registered")["is_healthy"], false);
    for program in 0..4 {
        let body = thunderagent_chat(&json!(format!("p-{program}")), "program_id", "hello");
        client.post(CHAT, &body).await.ok();
    }
    server.abort();
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flow_of_older_clients_of_sglangs_router() {
    let fixture = Fixture::start(0, 0).await;
    let engine = engine(100_000).await;
    let path = format!("/add_worker?url={}", percent_encoded(&engine.url()));
    fixture.client.send(Method::POST, &path, &[], "").await.ok();
    let again = fixture.client.send(Method::POST, &path, &[], "").await.ok();
    assert_eq!(again["worker_urls"], json!([engine.url()]));
    let info = fixture.client.get("/server_info").await.ok();
    assert_eq!(info["max_total_num_tokens"], 100_000);
    let body = json!({"text": "hello there", "sampling_params": {"max_new_tokens": 3}});
    fixture.client.post("/generate", &body).await.ok();
    fixture.finish().await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flow_of_skyrl() {
    let fixture = Fixture::start(2, 100_000).await;
    let mut tokens: Vec<u32> = (0..64).collect();
    for _ in 0..3 {
        let body = json!({
            "model": MODEL, "token_ids": tokens, "sampling_params": {"max_tokens": 6},
        });
        let headers = [("x-session-id", "session 1/é".trim_end_matches('é'))];
        let path = "/inference/v1/generate";
        let answer = fixture
            .client
            .send(Method::POST, path, &headers, body.to_string())
            .await
            .ok();
        let output = answer["choices"][0]["token_ids"]
            .as_array()
            .expect("ids")
            .clone();
        assert_eq!(output.len(), 6);
        tokens.extend(output.iter().filter_map(Value::as_u64).map(|id| id as u32));
    }
    let programs = fixture.client.get("/programs").await.ok();
    assert_eq!(programs["session 1/"]["step_count"], 3);
    assert_eq!(programs["session 1/"]["context_len"], 64 + 18);
    let path = "/finish_session?session_id=session%201%2F";
    let finished = fixture.client.send(Method::POST, path, &[], "").await.ok();
    assert_eq!(finished["released"], true);
    let path = "/finish_session";
    let wrong = fixture.client.send(Method::POST, path, &[], "").await;
    wrong.refused(400, "missing_field");
    assert_eq!(fixture.client.metrics().await.count("treadle_programs"), 0);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_released_as_a_whole() {
    let fixture = Fixture::start(1, 100_000).await;
    for program in 0..6 {
        let job = if program < 4 { "run-1" } else { "run-2" };
        let headers = [("x-treadle-job", job)];
        let body = chat(&format!("p{program}"), "x", 3).to_string();
        fixture
            .client
            .send(Method::POST, CHAT, &headers, body)
            .await
            .ok();
    }
    let released = fixture.client.delete("/api/v1/jobs/run-1").await.ok();
    assert_eq!(released["released"], 4);
    let left = |m: &treadle_tests::support::metrics::Metrics| m.count("treadle_programs") == 2;
    fixture.client.until("released", left).await;
    fixture.finish().await;
}
