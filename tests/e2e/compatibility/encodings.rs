//! Compressed request bodies.

use bytes::Bytes;
use http::Method;
use serde_json::json;
use treadle_tests::support::fixture::{CHAT, COMPLETIONS, Fixture, MODEL, chat};

/// A body as one stored block of raw deflate, without the zlib header and checksum.
fn deflated(body: &str) -> Bytes {
    let length = u16::try_from(body.len()).expect("a short body");
    let mut coded = vec![1];
    coded.extend_from_slice(&length.to_le_bytes());
    coded.extend_from_slice(&(!length).to_le_bytes());
    coded.extend_from_slice(body.as_bytes());
    coded.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_taken_on_every_path() {
    let fixture = Fixture::start(1, 100_000).await;
    let completion = json!({"model": MODEL, "prompt": "x", "max_tokens": 2, "program_id": "p"});
    for (path, body) in [
        (CHAT, chat("p", "x", 2)),
        ("/sessions/s/v1/chat/completions", chat("p", "x", 2)),
        (COMPLETIONS, completion),
        ("/tokenize", json!({"prompt": "abcdefgh"})),
        ("/programs/release", json!({"program_id": "p"})),
    ] {
        let body = body.to_string();
        let send = async |coding: &str, body: Bytes| {
            let headers = [
                ("content-encoding", coding),
                ("content-type", "application/json"),
            ];
            fixture
                .client
                .send(Method::POST, path, &headers, body)
                .await
        };
        send("deflate", deflated(&body)).await.ok();
        send("identity", body.clone().into()).await.ok();
        let answer = send("br", body.clone().into()).await;
        let message = answer.refused(415, "unsupported_encoding");
        assert!(message.contains("Content-Encoding"), "{message}");
        assert_eq!(answer.headers["accept-encoding"], "gzip, deflate, zstd");
        send("gzip", body.into())
            .await
            .refused(400, "invalid_field");
    }
    fixture.finish().await;
}
