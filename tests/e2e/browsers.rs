//! Browsers get the console's pages and data, and no active content of engines.

use http::{HeaderMap, Method};
use treadle_tests::support::client::Answer;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, plain_endpoint, streamed};
use treadle_tests::support::raw_engine::{CHAT_ANSWER, RawEngine, RawRequest};

/// A malicious answer of an engine.
const EVIL: &str = "set-cookie: treadle_session=tr_x; Path=/\r\nclear-site-data: \"*\"\r\n\
    refresh: 0; url=https://evil.example\r\nlink: <https://evil.example/x>; rel=preload\r\n\
    access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\n\
    content-security-policy: script-src *\r\nx-content-type-options: sniff\r\n\
    www-authenticate: Basic realm=\"treadle\"\r\nlocation: https://evil.example\r\n\
    x-treadle-program: another\r\nserver: evil\r\nx-request-id: r7\r\nretry-after: 3\r\n";
const GONE: [&str; 9] = [
    "set-cookie",
    "clear-site-data",
    "refresh",
    "link",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "www-authenticate",
    "location",
    "server",
];

async fn answer(mut request: RawRequest, status: &str, kind: &str, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{EVIL}content-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    request.write(format!("{head}{body}")).await;
}

fn is_guarded(headers: &HeaderMap, what: &str) {
    assert_eq!(headers["x-content-type-options"], "nosniff", "{what}");
    let policies: Vec<_> = headers.get_all("content-security-policy").iter().collect();
    assert_eq!(policies.len(), 1, "{what}: {policies:?}");
    let policy = policies[0].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
}

fn is_clean(answer: &Answer, kind: &str, what: &str) {
    is_guarded(&answer.headers, what);
    for name in GONE {
        assert!(!answer.headers.contains_key(name), "{what}: {name}");
    }
    assert_eq!(answer.headers["content-type"], kind, "{what}");
    assert_eq!(answer.headers["x-request-id"], "r7", "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_s_answer_is_data_and_its_headers_are_a_list() {
    let mut engine = RawEngine::start().await;
    let url = engine.url().to_owned();
    let fixture = Fixture::tuned(0, 0, |config| {
        config.engines.endpoints = vec![plain_endpoint(url, 9_000)];
    })
    .await;
    let (json, page) = ("application/json", "<script>alert(1)</script>");
    let events = format!("data: {}\n\ndata: [DONE]\n\n", chunk());
    let streams = streamed(chat("q", "x", 4)).to_string();
    let whole = chat("p", "x", 4).to_string();
    let prompt = r#"{"prompt": "x"}"#.to_owned();
    for (path, body, status, kind, said, expected) in [
        (CHAT, &whole, "200 OK", json, CHAT_ANSWER, json),
        (
            CHAT,
            &streams,
            "200 OK",
            "text/event-stream",
            &*events,
            "text/event-stream",
        ),
        (
            CHAT,
            &whole,
            "400 Bad Request",
            "text/html",
            page,
            "text/plain; charset=utf-8",
        ),
        (
            "/tokenize",
            &prompt,
            "200 OK",
            "text/html",
            page,
            "text/plain; charset=utf-8",
        ),
        (
            "/tokenize",
            &prompt,
            "200 OK",
            "image/svg+xml",
            page,
            "application/octet-stream",
        ),
        ("/tokenize", &prompt, "401 Unauthorized", json, "{}", json),
    ] {
        let (client, body) = (fixture.client.clone(), body.clone());
        let headers = [("content-type", "application/json")];
        let asking =
            tokio::spawn(async move { client.send(Method::POST, path, &headers, body).await });
        answer(engine.request().await, status, kind, said).await;
        let answered = asking.await.expect("an answer");
        is_clean(&answered, expected, &format!("{path} {status} {kind}"));
        let own = answered.headers.get("x-treadle-program");
        assert!(own.is_none_or(|program| program != "another"), "{path}");
    }
    fixture.finish().await;
}

fn chunk() -> &'static str {
    r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}"#
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_the_daemon_s_own_is_guarded() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    for path in [
        "/",
        "/console/programs",
        "/health",
        "/metrics",
        "/openapi.json",
        "/v1/models",
        "/api/v1/programs",
        "/api/v1/programs/none",
        "/api/v1/session/callback",
        "/nowhere",
        "/files?path=/x",
    ] {
        let answer = client.get(path).await;
        is_guarded(&answer.headers, path);
    }
    let wrong = client.send(Method::PATCH, "/health", &[], "").await;
    is_guarded(&wrong.headers, "another method");
    let nobody = client.with_token("tr_x").get("/api/v1/programs").await;
    is_guarded(&nobody.headers, "a wrong token");
    fixture.finish().await;
}
