//! Bytes pass unchanged and without delay in both directions.

use http::Method;
use treadle_tests::support::client::TIMEOUT;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::raw_engine::{CHAT_ANSWER, RawEngine};

/// A daemon in front of one engine that the test plays itself.
async fn in_front_of(engine: &RawEngine) -> Fixture {
    let url = engine.url().to_owned();
    Fixture::tuned(0, 0, |config| {
        config.engines.pass_fields = vec!["unknown".to_owned()];
        config.engines.endpoints = vec![plain_endpoint(url, 100_000)];
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_arrives_as_it_was_sent() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine).await;
    let body = "{ \"messages\" : [{\"role\":\"user\",\"content\":\"\\u00e9 \u{1f600}\"}],\n\
        \"model\":\"m\", \"unknown\": {\"b\":1, \"a\":[1.0, 1e3, null]}, \"temperature\":0.70,\
        \"program_id\":\"p\", \"logit_bias\": {\"5\": -100}}  ";
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move {
        let headers = [
            ("content-type", "application/json; charset=utf-8"),
            ("authorization", "Bearer secret"),
            ("x-request-id", "r-1"),
        ];
        let path = format!("{CHAT}?autoload=true&api-version=2&empty=&chat_template=%20x");
        client.send(Method::POST, &path, &headers, body).await
    });
    let request = engine.request().await;
    let line = format!("POST {CHAT}?api-version=2 HTTP/1.1");
    assert_eq!(request.line, line);
    assert_eq!(String::from_utf8_lossy(&request.body), body);
    for header in [
        "content-type: application/json; charset=utf-8",
        "authorization: Bearer secret",
        "x-request-id: r-1",
    ] {
        assert!(
            request.headers.iter().any(|line| line == header),
            "{:?}",
            request.headers
        );
    }
    request.answer_chat().await;
    let answer = asking.await.expect("an answer");
    assert_eq!(answer.body, CHAT_ANSWER);
    assert_eq!(answer.headers["x-treadle-program"], "p");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_the_client_before_the_engine_sends_the_next() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine).await;
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move {
        let body = streamed(chat("p", "x", 5));
        client.stream(CHAT, &body).await
    });
    let mut request = engine.request().await;
    request.begin_events().await;
    let pieces: [&[u8]; 7] = [
        b"event: odd\r\nid: 7\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\r\n\r\n",
        b": a comment\n\n",
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\ndata: {\"cho",
        b"ices\":[{\"index\":0,\"delta\":{\"content\":\"\xc3\xa9\"},\"finish_reason\":\"stop\"}]}\n",
        b"\n",
        b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":3}}\n\n",
        b"data: [DONE]\n\n",
    ];
    request.chunk(pieces[0]).await;
    let mut events = asking.await.expect("the head of an answer");
    let mut seen = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            request.chunk(piece).await;
        }
        let expected: usize = pieces[..=number].iter().map(|p| p.len()).sum();
        while seen.len() < expected {
            let data = tokio::time::timeout(TIMEOUT, events.piece()).await;
            let data = data.unwrap_or_else(|_| panic!("piece {number} is held back"));
            seen.extend_from_slice(&data.expect("no end").expect("no break"));
        }
        assert_eq!(seen, pieces[..=number].concat());
    }
    request.end().await;
    assert!(events.piece().await.is_none(), "an end in order");
    let finished = |m: &treadle_tests::support::metrics::Metrics| {
        m.count("treadle_prompt_tokens_total") == 11 && m.count("treadle_output_tokens_total") == 3
    };
    fixture.client.until("counted", finished).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_many_pieces_is_whole() {
    let mut engine = RawEngine::start().await;
    let fixture = in_front_of(&engine).await;
    let client = fixture.client.clone();
    let asking = tokio::spawn(async move { client.post(CHAT, &chat("p", "x", 5)).await });
    let mut request = engine.request().await;
    let head = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nX-Request-Id: kept\r\n\
        Keep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n\r\n";
    request.write(head).await;
    for piece in CHAT_ANSWER.as_bytes().chunks(7) {
        request.chunk(piece).await;
    }
    request.end().await;
    let answer = asking.await.expect("an answer");
    assert_eq!(answer.status, 201);
    assert_eq!(answer.body, CHAT_ANSWER);
    assert_eq!(answer.headers["x-request-id"], "kept");
    assert!(!answer.headers.contains_key("keep-alive"));
    let programs = fixture.client.get("/programs").await.ok();
    assert_eq!(programs["p"]["context_len"], 6);
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_need_no_placement_are_forwarded_too() {
    let fixture = Fixture::start(1, 100_000).await;
    let models = fixture.client.get("/v1/models").await.ok();
    assert_eq!(models["data"][0]["id"], "treadle-sim");
    let body = serde_json::json!({"prompt": "abcdefgh"});
    let tokens = fixture.client.post("/tokenize", &body).await.ok();
    assert_eq!(tokens["count"], 2);
    let body = serde_json::json!({"tokens": tokens["tokens"]});
    let text = fixture.client.post("/detokenize", &body).await.ok();
    assert_eq!(text["prompt"], "abcdefgh");
    fixture.finish().await;
}
