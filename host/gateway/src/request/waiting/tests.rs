//! Tests of keepalives of waiting streams.

use super::*;
use axum::http::StatusCode;
use tokio::sync::oneshot;
use treadle_http::refuse;

const SIGN: &str = ": keep-alive\n\n";

fn waits(endpoint: Endpoint, every: Duration) -> Waits {
    Waits {
        every,
        endpoint,
        headers: HeaderMap::new(),
    }
}

fn stream() -> Response {
    let mut response = Response::new(Body::from("data: 1\n\n"));
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The rest of a stream whose response arrives after the first keepalive, without keepalives, and
/// whether it broke.
async fn late(endpoint: Endpoint, answer: Response) -> (String, bool) {
    let (sender, receiver) = oneshot::channel();
    let waiting = async move { receiver.await.expect("an answer") };
    let response = answered(Some(waits(endpoint, Duration::from_millis(1))), waiting).await;
    assert_eq!(response.status(), StatusCode::OK);
    let (mut body, mut text, mut answer) =
        (response.into_body(), String::new(), Some((sender, answer)));
    let mut broke = false;
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => text.push_str(std::str::from_utf8(&data).unwrap()),
            Ok(Err(_)) => {}
            Err(_) => broke = true,
        }
        if let Some((sender, answer)) = answer.take() {
            assert_eq!(text, SIGN);
            sender.send(answer).expect("it waits");
        }
    }
    (text.replace(SIGN, ""), broke)
}

#[tokio::test]
async fn what_comes_soon_comes_as_it_is() {
    for waits in [
        Some(waits(Endpoint::ChatCompletions, Duration::from_hours(1))),
        None,
    ] {
        let busy = answered(waits, async { refuse(ErrorCode::QueueFull, "full") }).await;
        assert_eq!(busy.status(), 429);
        assert_eq!(busy.headers()["content-type"], "application/json");
    }
}

#[tokio::test]
async fn what_comes_late_comes_behind_signs_of_life() {
    let found = late(Endpoint::ChatCompletions, stream()).await;
    assert_eq!(found, ("data: 1\n\n".into(), false));
}

#[tokio::test]
async fn a_late_refusal_is_told_within_the_stream() {
    let refusal = || refuse(ErrorCode::QueueWaitExceeded, "it waited");
    let (event, broke) = late(Endpoint::Completions, refusal()).await;
    assert!(broke && event.starts_with("data: {\"error\":{"), "{event}");
    assert!(event.contains("queue_wait_exceeded") && event.ends_with("\n\n"));
    let (event, broke) = late(Endpoint::Messages, refusal()).await;
    assert!(
        broke && event.starts_with("event: error\ndata: {"),
        "{event}"
    );
    assert!(event.contains("\"type\":\"overloaded_error\""), "{event}");
}

#[tokio::test]
async fn an_answer_in_one_piece_becomes_an_event() {
    let whole = Response::new(Body::from("{\n \"a\": 1\r\n}"));
    let (text, broke) = late(Endpoint::SglangGenerate, whole).await;
    let expected = "data: {\ndata:  \"a\": 1\ndata: }\n\ndata: [DONE]\n\n";
    assert_eq!((text.as_str(), broke), (expected, false));
}
