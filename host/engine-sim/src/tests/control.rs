//! Disconnects, aborts, faults, refusals and shutdown.

use super::*;

#[tokio::test]
async fn a_client_that_goes_away_frees_its_blocks() {
    let bench = Bench::start(EngineSimOptions::default()).await;
    for stream in [true, false] {
        let body = chat(&"word".repeat(300), 10_000, stream).to_string();
        let uri = format!("{}{CHAT}", bench.engine.url());
        let request = Request::post(uri)
            .body(Body::from(body))
            .expect("a request");
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let pending = tokio::spawn(async move {
            let response = client.request(request).await.expect("a response");
            let mut body = response.into_body();
            while body.frame().await.is_some() {}
        });
        let started = async {
            while bench.engine.snapshot().await.used_blocks < 19 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, started)
            .await
            .expect("it starts");
        pending.abort();
        bench.until_empty().await;
    }
    let snapshot = bench.engine.snapshot().await;
    assert_eq!(
        (
            snapshot.counters.aborted_requests,
            snapshot.counters.finished_requests
        ),
        (2, 0)
    );
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn requests_are_aborted_by_name() {
    let bench = Bench::start(EngineSimOptions::default()).await;
    let mut body = chat("long", 10_000, true);
    body["request_id"] = "mine".into();
    let mut response = bench.post(CHAT, &body).await;
    let frame = response
        .body_mut()
        .frame()
        .await
        .expect("an event")
        .expect("no error");
    assert!(frame.is_data());
    // As in vLLM, the request's own id refers to nothing.
    bench
        .post("/abort_requests", &json!({ "request_ids": ["mine"] }))
        .await;
    assert_eq!(bench.engine.snapshot().await.running, 1);
    bench
        .post(
            "/abort_requests",
            &json!({ "request_ids": ["chatcmpl-mine"] }),
        )
        .await;
    let stream = payloads(&whole(response).await.expect("a whole stream"));
    let last: Value = serde_json::from_str(&stream[stream.len() - 3]).expect("JSON");
    assert_eq!(last["choices"][0]["finish_reason"], "abort");
    bench.until_empty().await;
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_with_a_reason() {
    let profile = EngineProfile::instant();
    let options = EngineSimOptions {
        profile,
        kv_tokens: Some(64),
        ..EngineSimOptions::default()
    };
    let bench = Bench::start(options).await;
    let mut other = chat("x", 4, false);
    other["model"] = "gpt-9".into();
    for (body, status, reason) in [
        (
            chat("x", 100, false),
            StatusCode::BAD_REQUEST,
            "holds 64 per sequence",
        ),
        (chat("x", 0, false), StatusCode::BAD_REQUEST, "max_tokens"),
        (other, StatusCode::NOT_FOUND, "gpt-9"),
        (json!({ "messages": 5 }), StatusCode::BAD_REQUEST, "body:"),
    ] {
        let response = bench.post(CHAT, &body).await;
        assert_eq!(response.status(), status);
        let error: Value =
            serde_json::from_slice(&whole(response).await.expect("a body")).expect("JSON");
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(message.contains(reason), "{message}");
    }
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn faults_happen_when_asked_for() {
    for instant in [false, true] {
        let profile = EngineProfile::instant();
        let options = EngineSimOptions {
            profile,
            instant,
            ..EngineSimOptions::default()
        };
        let bench = Bench::start(options).await;
        let body = chat("x", 8, true);

        bench.engine.set_faults(Faults {
            close_after_events: Some(3),
            ..Faults::default()
        });
        let mut cut = bench.post(CHAT, &body).await.into_body();
        let mut seen = Vec::new();
        let failed = loop {
            match cut.frame().await {
                Some(Ok(frame)) => seen.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        assert!(failed && payloads(&seen.into()).len() == 3);

        bench.engine.set_faults(Faults {
            garbage_sse: true,
            ..Faults::default()
        });
        let garbage = whole(bench.post(CHAT, &body).await)
            .await
            .expect("a whole stream");
        assert!(std::str::from_utf8(&garbage).is_err());

        let once = json!({ "error_status": 500, "requests": 1 }).to_string();
        bench.send(Method::PUT, "/sim/faults", once).await;
        assert_eq!(
            bench.post(CHAT, &body).await.status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
        assert_eq!(bench.post(CHAT, &body).await.status(), StatusCode::OK);

        bench.engine.set_faults(Faults {
            never_answer: true,
            ..Faults::default()
        });
        let silent = tokio::time::timeout(Duration::from_millis(50), bench.post(CHAT, &body));
        assert!(silent.await.is_err());
        bench
            .send(Method::DELETE, "/sim/faults", String::new())
            .await;
        assert_eq!(bench.post(CHAT, &body).await.status(), StatusCode::OK);
        bench.engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_load_fails_when_asked_for_and_what_was_done_is_on_record() {
    let name = format!("treadle-engine-sim-{}.jsonl", std::process::id());
    let path = std::env::temp_dir().join(name);
    let bench = Bench::start(EngineSimOptions {
        profile: EngineProfile::instant(),
        weights_record: Some(path.clone()),
        ..EngineSimOptions::default()
    })
    .await;
    let ask = async |method: Method, fault: &str| {
        let body = json!({"fault": fault}).to_string();
        let answer = bench.send(method, "/sim/load-fault", body).await;
        answer.status()
    };
    let load = async || {
        let body = json!({"model_path": "/weights/1", "weight_version": "1"});
        let answer = bench.post("/update_weights_from_disk", &body).await;
        answer.status()
    };
    assert_eq!(
        ask(Method::PUT, "explode").await,
        StatusCode::BAD_REQUEST,
        "it is no fault"
    );
    assert_eq!(ask(Method::PUT, "lie").await, StatusCode::NO_CONTENT);
    assert_eq!(load().await, StatusCode::OK);
    let (_, shown) = bench.get_text("/sim/load-fault").await;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown, json!({"fault": "none", "whole": false}));
    ask(Method::PUT, "tear").await;
    ask(Method::DELETE, "").await;
    assert_eq!(load().await, StatusCode::OK);
    bench.post(CHAT, &chat("x", 4, false)).await;
    ask(Method::PUT, "tear").await;
    assert_eq!(load().await, StatusCode::BAD_REQUEST);
    bench.engine.shutdown().await;
    let record = std::fs::read_to_string(&path).expect("a record");
    std::fs::remove_file(&path).expect("it is there");
    let done = record.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        json!([line["did"], line["fault"], line["whole"]])
    });
    let done: Vec<Value> = done.collect();
    let expected = [
        json!(["start", "none", true]),
        json!(["load", "lie", false]),
        json!(["load", "none", true]),
        json!(["step", "none", true]),
        json!(["load", "tear", false]),
    ];
    assert_eq!(done, expected);
}

#[tokio::test]
async fn it_identifies_itself() {
    let bench = Bench::quick().await;
    let (headers, models) = bench.get_text("/v1/models").await;
    assert_eq!(headers["x-engine"], "treadle-engine-sim (simulated)");
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!(models["data"][0]["id"], "treadle-sim");
    assert_eq!(
        models["data"][0]["owned_by"],
        "treadle-engine-sim (simulated)"
    );
    let (_, info) = bench.get_text("/server_info").await;
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(
        (&info["simulated"], &info["max_total_num_tokens"]),
        (&true.into(), &131_072.into())
    );
    assert_eq!(info["enable_hierarchical_cache"], false);
    let (_, metrics) = bench.get_text("/metrics").await;
    assert!(metrics.contains("block_size=\"16\",num_gpu_blocks=\"8192\""));
    let (_, health) = bench.get_text("/health").await;
    assert_eq!(health, "");
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_cuts_what_is_under_way() {
    let bench = Bench::start(EngineSimOptions::default()).await;
    let mut response = bench.post(CHAT, &chat("x", 10_000, true)).await;
    response
        .body_mut()
        .frame()
        .await
        .expect("an event")
        .expect("no error");
    bench.engine.shutdown().await;
    assert!(whole(response).await.is_err());
}

#[tokio::test]
async fn a_pause_stops_an_engine_whose_loads_take_time() {
    let folder = format!("treadle-engine-sim-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("model.safetensors"), [0; 100]).expect("a file");
    let bench = Bench::start(EngineSimOptions {
        load_bytes_per_s: 2_000,
        ..EngineSimOptions::default()
    })
    .await;
    let mut response = bench.post(CHAT, &chat("x", 10_000, true)).await;
    let first = response.body_mut().frame().await.expect("an event");
    assert!(first.is_ok());
    bench.post("/pause_generation", &json!({})).await;
    let tokens = async || bench.engine.snapshot().await.counters.generation_tokens;
    // What was under way when it was paused.
    let paused = tokens().await;
    let began = std::time::Instant::now();
    let load = json!({"model_path": folder, "weight_version": "1"});
    bench.post("/update_weights_from_disk", &load).await;
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(tokens().await, paused);
    bench.post("/continue_generation", &json!({})).await;
    let goes_on = async {
        while tokens().await == paused {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, goes_on)
        .await
        .expect("it generates");
    bench.engine.shutdown().await;
    std::fs::remove_dir_all(&folder).expect("it is there");
}
