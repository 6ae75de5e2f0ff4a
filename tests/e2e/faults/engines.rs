//! One engine misbehaves in one answer.

use std::time::{Duration, Instant};

use serde_json::json;
use treadle_config::{Endpoint, EngineChoice};
use treadle_engine_sim::Faults;
use treadle_tests::support::client::TIMEOUT;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::raw_engine::{CHAT_ANSWER, RawEngine};

/// The latest step of a program, once the journal has it.
async fn latest_step(fixture: &Fixture, program: &str) -> serde_json::Value {
    let began = Instant::now();
    let path = format!("/api/v1/programs/{program}/steps");
    while began.elapsed() < TIMEOUT {
        let steps = fixture.client.get(&path).await.ok();
        let latest = steps["steps"].as_array().and_then(|s| s.last().cloned());
        if let Some(step) = latest.filter(|step| step["outcome"].is_string()) {
            return step;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no step of {program} was journaled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_in_the_middle_ends_with_an_error_and_a_broken_connection() {
    let fixture = Fixture::start(1, 100_000).await;
    fixture.engines[0].set_faults(Faults {
        close_after_events: Some(3),
        ..Faults::default()
    });
    let body = streamed(chat("p", "x", 50));
    let ended = fixture.client.stream(CHAT, &body).await.finish().await;
    assert!(ended.broken, "the connection ended in order");
    assert!(!ended.is_done());
    let last = ended.objects().pop().expect("an event");
    assert_eq!(last["error"]["code"], "engine_stream_broken", "{last}");
    let step = latest_step(&fixture, "p").await;
    assert_eq!(step["outcome"], "failed", "{step}");
    assert!(
        step["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("stream"))
    );
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_without_done_or_reason_is_a_broken_stream_too() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |c| {
        c.engines.endpoints = vec![plain_endpoint(url, 9_000)];
    })
    .await;
    let client = fixture.client.clone();
    let body = streamed(chat("p", "x", 50));
    let asking = tokio::spawn(async move { client.stream(CHAT, &body).await.finish().await });
    let mut request = engine.request().await;
    request.begin_events().await;
    request.chunk(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n").await;
    request.end().await;
    let ended = asking.await.expect("an end");
    assert!(ended.broken && !ended.is_done());
    assert_eq!(latest_step(&fixture, "p").await["outcome"], "failed");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_none_ends_with_an_error_and_a_broken_connection() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |c| {
        c.engines.endpoints = vec![plain_endpoint(url, 9_000)];
    })
    .await;
    let client = fixture.client.clone();
    let body = streamed(chat("p", "x", 50));
    let asking = tokio::spawn(async move { client.stream(CHAT, &body).await.finish().await });
    let mut request = engine.request().await;
    request.begin_events().await;
    request.chunk(b"\x00\x01 this is no event stream\n\n").await;
    let ended = asking.await.expect("an end");
    assert!(ended.broken && !ended.is_done());
    let last = ended.objects().pop().expect("an error event");
    assert_eq!(last["error"]["code"], "engine_stream_broken", "{last}");
    assert_eq!(latest_step(&fixture, "p").await["outcome"], "failed");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_no_json_passes_as_it_is() {
    let fixture = Fixture::start(1, 100_000).await;
    fixture.engines[0].set_faults(Faults {
        garbage_sse: true,
        ..Faults::default()
    });
    let body = streamed(chat("p", "x", 8));
    let ended = fixture.client.stream(CHAT, &body).await.finish().await;
    assert!(!ended.broken && ended.is_done());
    let garbage = b"\xff<<garbage";
    assert!(
        ended
            .bytes
            .windows(garbage.len())
            .any(|part| part == garbage)
    );
    assert_eq!(latest_step(&fixture, "p").await["output_tokens"], 8);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_never_answers_is_given_up() {
    let fixture = Fixture::tuned(1, 100_000, |config| {
        config.engines.response_timeout_s = 1;
        config.engines.retry_max = 0;
    })
    .await;
    fixture.engines[0].set_faults(Faults {
        never_answer: true,
        ..Faults::default()
    });
    let answer = fixture.client.post(CHAT, &chat("p", "x", 5)).await;
    assert!([502, 504].contains(&answer.status.as_u16()), "{answer:?}");
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("1 s"), "{message}");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stalls_in_its_answer_is_given_up() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 9_000)];
        // Time enough for the beginning of the answer on a busy machine.
        config.engines.response_timeout_s = 3;
        config.engines.retry_max = 0;
    })
    .await;
    for is_stream in [false, true] {
        let client = fixture.client.clone();
        let mut body = chat("p", "x", 50);
        body["stream"] = json!(is_stream);
        let headers = [("content-type", "application/json")];
        let asking = tokio::spawn(async move {
            let open = client.open(http::Method::POST, CHAT, &headers, body.to_string());
            let response = open.await.expect("an answer");
            let status = response.status().as_u16();
            let whole = http_body_util::BodyExt::collect(response.into_body());
            let whole = tokio::time::timeout(TIMEOUT, whole).await;
            (status, whole.expect("given up in time").is_err())
        });
        let mut request = engine.request().await;
        if is_stream {
            request.begin_events().await;
            request.chunk(b"data: {\"choices\":[]}\n\n").await;
        } else {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
            request.write(head).await;
        }
        let (status, broken) = asking.await.expect("no panic");
        assert!(
            broken || [502, 504].contains(&status),
            "{status}, stream: {is_stream}"
        );
        request.until_given_up().await;
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_engine_is_passed_on_as_it_is() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |c| {
        c.engines.endpoints = vec![plain_endpoint(url, 9_000)];
    })
    .await;
    for (status, body) in [
        (
            "500 Internal Server Error",
            r#"{"object":"error", "message":"CUDA error",  "code":500}"#,
        ),
        ("400 Bad Request", "this model is not served\n"),
        ("429 Too Many Requests", ""),
    ] {
        let client = fixture.client.clone();
        let asking = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 5)).await });
        engine
            .request()
            .await
            .answer(status, "text/x-odd", body)
            .await;
        let answer = asking.await.expect("an answer");
        assert_eq!(answer.status.as_str(), &status[..3]);
        assert_eq!(answer.body, body);
        // No type that a browser would take for more than text.
        let kind = &answer.headers["content-type"];
        assert_eq!(kind, "text/plain; charset=utf-8");
    }
    assert_eq!(latest_step(&fixture, "p").await["outcome"], "failed");
    // A request that the engine refuses as wrong is no failure of the engine.
    let metrics = fixture.client.metrics().await;
    assert_eq!(metrics.count("treadle_steps_failed_total"), 2);
    assert_eq!(metrics.count("treadle_steps_rejected_total"), 1);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn not_now_is_made_good_elsewhere() {
    let fixture = Fixture::tuned(2, 100_000, |config| config.engines.retry_max = 4).await;
    for status in [502, 503, 504] {
        for engine in &fixture.engines {
            engine.set_faults(Faults::default());
        }
        fixture.engines[0].set_faults(Faults {
            error_status: Some(status),
            ..Faults::default()
        });
        for program in 0..4 {
            let body = chat(&format!("p-{status}-{program}"), "x", 5);
            fixture.client.post(CHAT, &body).await.ok();
            let body = streamed(chat(&format!("s-{status}-{program}"), "x", 5));
            assert!(
                fixture
                    .client
                    .stream(CHAT, &body)
                    .await
                    .finish()
                    .await
                    .is_done()
            );
        }
    }
    let metrics = fixture.client.metrics().await;
    assert!(metrics.count("treadle_attempts_failed_total") > 0);
    assert_eq!(metrics.count("treadle_steps_finished_total"), 24);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_engine_refuses_ends_after_the_bound() {
    let fixture = Fixture::tuned(2, 100_000, |config| config.engines.retry_max = 2).await;
    for engine in &fixture.engines {
        engine.set_faults(Faults {
            error_status: Some(503),
            ..Faults::default()
        });
    }
    let answer = fixture.client.post(CHAT, &chat("p", "x", 5)).await;
    let message = answer.refused(502, "engine_unreachable");
    assert!(
        message.contains("3 times") && message.contains("503"),
        "{message}"
    );
    fixture.finish().await;
}

/// A daemon in front of this engine that bounds the buffered bytes of one answer or of all.
async fn bounded(engine: &RawEngine, is_one: bool, puts_together: bool) -> Fixture {
    let url = engine.url().to_owned();
    Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![Endpoint {
            kind: Some(EngineChoice::Vllm),
            ..plain_endpoint(url, 100_000)
        }];
        if is_one {
            config.engines.answer_bytes_max = 100_000;
        } else {
            config.engines.answers_bytes_max = 100_000;
        }
        if puts_together {
            config.rollout.engine_steps_max = 1;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_put_together_has_a_bound_and_is_not_generated_again() {
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(10_000)
    );
    for is_one in [true, false] {
        let mut engine = RawEngine::start().await;
        let fixture = bounded(&engine, is_one, true).await;
        let client = fixture.client.clone();
        let asking = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 50)).await });
        let mut request = engine.request().await;
        request.begin_events().await;
        request.flood(event.as_bytes()).await;
        let answer = asking.await.expect("an answer");
        let message = answer.refused(502, "answer_too_large");
        assert!(message.contains("engines.answer_bytes_max"), "{message}");
        assert!(engine.is_idle(), "it was generated again");
        fixture.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_beyond_what_is_gathered_passes_as_it_comes() {
    let long = "A".repeat(300_000);
    let body = CHAT_ANSWER.replace("\"yes\"", &format!("\"{long}\""));
    for is_one in [true, false] {
        let mut engine = RawEngine::start().await;
        let fixture = bounded(&engine, is_one, false).await;
        let client = fixture.client.clone();
        let asking = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 50)).await });
        let request = engine.request().await;
        request.answer("200 OK", "application/json", &body).await;
        let answer = asking.await.expect("an answer");
        assert_eq!(answer.ok()["choices"][0]["message"]["content"], long);
        assert!(engine.is_idle(), "it was generated again");
        let step = latest_step(&fixture, "p").await;
        assert_eq!(step["output_tokens"], 1, "its account was read: {step}");
        fixture.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_request_that_nobody_answers_is_given_up() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
        config.engines.forward_timeout_s = 1;
    })
    .await;
    let client = fixture.client.clone();
    let asking =
        tokio::spawn(async move { client.post("/tokenize", &json!({"prompt": "x"})).await });
    engine.request().await.until_given_up().await;
    let answer = asking.await.expect("an answer");
    answer.refused(504, "engine_timeout");
    fixture.finish().await;
}
