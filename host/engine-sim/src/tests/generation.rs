//! Generated answers, and their cost in the model.

use treadle_simulator::workload::{AgentRun, AgentStep, ChatScript};

use super::*;

#[tokio::test]
async fn a_stream_and_a_body_have_the_same_content() {
    let bench = Bench::quick().await;
    let response = bench.post(CHAT, &chat("hello", 10, true)).await;
    assert_eq!(
        response.headers()["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert_eq!(
        response.headers()["x-engine"],
        "treadle-engine-sim (simulated)"
    );
    let stream = payloads(&whole(response).await.expect("a whole stream"));
    // Role, ten tokens, usage, end.
    assert_eq!(stream.len(), 13);
    assert_eq!(stream[12], "[DONE]");
    let events: Vec<Value> = stream[..12]
        .iter()
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[10]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[11]["usage"]["completion_tokens"], 10);
    let text: String = events[1..11]
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();

    let body = bench.post_json(CHAT, &chat("hello", 10, false)).await;
    assert_eq!(body["choices"][0]["message"]["content"], text);
    // "<|user|>hello\n<|assistant|>" is 27 bytes.
    assert_eq!(body["usage"]["prompt_tokens"], 7);
    assert_eq!(body["object"], "chat.completion");
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn the_next_step_finds_the_previous_context_in_the_cache() {
    let bench = Bench::quick().await;
    let lengths = [(400, 0, 50), (700, 450, 30), (900, 730, 20), (500, 300, 8)];
    let steps: Vec<AgentStep> = lengths
        .iter()
        .map(|&(input_tokens, reused_tokens, output_tokens)| AgentStep {
            input_tokens,
            reused_tokens,
            output_tokens,
            ..AgentStep::default()
        })
        .collect();
    let run = AgentRun {
        id: "r".to_owned(),
        group: 0,
        system_tokens: 100,
        group_tokens: 60,
        steps,
    };
    let mut script = ChatScript::new(&run, 3);
    let mut context_before = 0;
    while let Some(index) = script.next_step() {
        let step = run.steps[index];
        let body = serde_json::from_str(&script.body("treadle-sim", false)).expect("JSON");
        let answer = bench.post_json(CHAT, &body).await;
        let usage = &answer["usage"];
        assert_eq!(usage["prompt_tokens"], step.input_tokens);
        assert_eq!(usage["completion_tokens"], step.output_tokens);
        let found = step
            .reused_tokens
            .min(if index == 0 { 0 } else { context_before - 1 });
        assert_eq!(
            usage["prompt_tokens_details"]["cached_tokens"],
            found / 16 * 16
        );
        script.push_answer(
            answer["choices"][0]["message"]["content"]
                .as_str()
                .expect("text"),
        );
        context_before = step.context_tokens();
    }
    let (_, metrics) = bench.get_text("/metrics").await;
    let labels = "{engine=\"0\",model_name=\"treadle-sim\"}";
    assert!(metrics.contains(&format!("vllm:prefix_cache_queries_total{labels} 2500\n")));
    assert!(metrics.contains(&format!(
        "vllm:prefix_cache_hits_total{labels} {}\n",
        448 + 720 + 288
    )));
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn what_comes_back_from_host_memory_is_cached_and_counted_by_itself() {
    let profile = EngineProfile::instant();
    let profile = profile.with_host_tokens(4_096, HOST_TOKENS_PER_S);
    let bench = Bench::start(EngineSimOptions {
        profile: profile.with_kv_tokens(320),
        ..EngineSimOptions::default()
    })
    .await;
    let (_, info) = bench.get_text("/server_info").await;
    let info: Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["enable_hierarchical_cache"], true);
    let [one, other] = ["one ", "two "].map(|word| chat(&word.repeat(250), 1, false));
    for body in [&one, &other] {
        let answer = bench.post_json(CHAT, body).await;
        let details = &answer["usage"]["prompt_tokens_details"];
        assert_eq!(details["cached_tokens"].as_u64().unwrap_or(0), 0);
    }
    let again = bench.post_json(CHAT, &one).await;
    let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
    let cached = cached.as_u64().expect("cached tokens");
    assert!(cached >= 200, "{cached}");
    let (_, metrics) = bench.get_text("/metrics").await;
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.and_then(|value| value.parse::<u64>().ok())
    };
    let own = value("vllm:prefix_cache_hits_total{").expect("own hits");
    let host = value("vllm:external_prefix_cache_hits_total{").expect("host hits");
    assert!(host > 0 && own + host == cached, "{own} {host} {cached}");
    let asked = value("vllm:prefix_cache_queries_total{").expect("queries");
    let missed = value("vllm:external_prefix_cache_queries_total{");
    assert_eq!(missed, Some(asked - own));
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn tokens_in_and_out_share_the_cache_with_text() {
    let bench = Bench::quick().await;
    let text = "four".repeat(64);
    let ids = bench
        .post_json("/tokenize", &json!({ "prompt": text }))
        .await;
    assert_eq!(ids["count"], 64);
    let back = bench
        .post_json("/detokenize", &json!({ "tokens": ids["tokens"] }))
        .await;
    assert_eq!(back["prompt"], text.as_str());

    let body = json!({ "prompt": text, "max_tokens": 16, "return_token_ids": true });
    let first = bench.post_json("/v1/completions", &body).await;
    let output = first["choices"][0]["token_ids"]
        .as_array()
        .expect("ids")
        .clone();
    assert_eq!(output.len(), 16);
    let mut next = ids["tokens"].as_array().expect("ids").clone();
    next.extend(output);
    let sampling = json!({ "max_tokens": 4 });
    let body = json!({ "token_ids": next, "sampling_params": sampling });
    let second = bench.post_json("/inference/v1/generate", &body).await;
    assert_eq!(
        second["usage"]["prompt_tokens_details"]["cached_tokens"],
        64
    );
    assert_eq!(second["choices"][0]["weight_versions"][0]["end"], 4);

    let body = json!({ "input_ids": next, "sampling_params": { "max_new_tokens": 3 }, "rid": "r" });
    let third = bench.post_json("/generate", &body).await;
    assert_eq!(
        third["meta_info"]["finish_reason"],
        json!({ "type": "length", "length": 3 })
    );
    assert_eq!(third["meta_info"]["id"], "r");
    assert_eq!(third["output_ids"].as_array().map(Vec::len), Some(3));
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn an_adapter_answers_under_its_name_with_caches_of_its_own() {
    let bench = Bench::start(EngineSimOptions {
        profile: EngineProfile::instant(),
        adapters: vec!["pirate".to_owned()],
        ..EngineSimOptions::default()
    })
    .await;
    let (_, page) = bench.get_text("/v1/models").await;
    let models: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(models["data"][0]["parent"], Value::Null);
    assert_eq!(models["data"][1]["id"], "pirate");
    assert_eq!(models["data"][1]["parent"], "treadle-sim");
    let text = "four".repeat(64);
    for (model, cached) in [
        ("treadle-sim", false),
        ("treadle-sim", true),
        ("pirate", false),
        ("pirate", true),
    ] {
        let mut body = chat(&text, 4, false);
        body["model"] = model.into();
        let answer = bench.post_json(CHAT, &body).await;
        assert_eq!(answer["model"], model);
        let details = &answer["usage"]["prompt_tokens_details"];
        assert_eq!(details["cached_tokens"] != 0, cached, "{model}");
    }
    let mut other = chat("x", 4, false);
    other["model"] = "parrot".into();
    assert_eq!(
        bench.post(CHAT, &other).await.status(),
        StatusCode::NOT_FOUND
    );
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn time_is_scaled() {
    let options = EngineSimOptions {
        time_scale: 1_000.0,
        ..EngineSimOptions::default()
    };
    let bench = Bench::start(options).await;
    let start = std::time::Instant::now();
    // Forty seconds of virtual time: 1,600 iterations of 25 ms.
    bench.post_json(CHAT, &chat("x", 1_600, false)).await;
    let took = start.elapsed();
    assert!(
        (Duration::from_millis(40)..Duration::from_secs(20)).contains(&took),
        "{took:?}"
    );
    let busy_us = bench.engine.snapshot().await.counters.busy_us;
    assert!((40_000_000..41_000_000).contains(&busy_us), "{busy_us}");
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn without_a_length_the_prompt_decides() {
    let bench = Bench::quick().await;
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let first = bench.post_json(CHAT, &body).await;
    assert_eq!(first["choices"][0]["finish_reason"], "stop");
    let length = first["usage"]["completion_tokens"]
        .as_u64()
        .expect("a number");
    assert!((16..=256).contains(&length));
    let again = bench.post_json(CHAT, &body).await;
    assert_eq!(again["choices"], first["choices"]);
    bench.engine.shutdown().await;
}

#[tokio::test]
async fn instant_mode_streams_the_same_shape_without_the_model() {
    let options = EngineSimOptions {
        instant: true,
        ..EngineSimOptions::default()
    };
    let bench = Bench::start(options).await;
    for _ in 0..2 {
        let stream = whole(bench.post(CHAT, &chat("x", 64, true)).await)
            .await
            .expect("a stream");
        let stream = payloads(&stream);
        assert_eq!((stream.len(), stream[66].as_str()), (67, "[DONE]"));
        let usage: Value = serde_json::from_str(&stream[65]).expect("JSON");
        assert_eq!(usage["usage"]["completion_tokens"], 64);
    }
    let body = bench.post_json("/generate", &json!({ "text": "x" })).await;
    assert_eq!(body["meta_info"]["completion_tokens"], 64);
    let (_, metrics) = bench.get_text("/metrics").await;
    assert!(metrics.contains("model_name=\"treadle-sim\",finished_reason=\"length\"} 3\n"));
    assert!(
        metrics.contains(
            "vllm:generation_tokens_total{engine=\"0\",model_name=\"treadle-sim\"} 192\n"
        )
    );
    bench.engine.shutdown().await;
}
