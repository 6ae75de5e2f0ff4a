//! Actions over the broker, answered to whoever asked.

use super::fixture;
use serde_json::{Value, json};
use treadle_broker::Queue;
use treadle_tests::support::broker::{Peer, amqp_url, next};

fn shell(script: &str) -> Value {
    json!({"kind": "sh", "run": {"process": {"command": ["sh", "-c", script]}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_run_once_and_answered_to_its_sender() {
    let Some(url) = amqp_url() else {
        return;
    };
    let peer = Peer::connect(&url, "runs").await;
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 2, |config| {
        config.broker.url = url.as_str().into();
        config.broker.prefix.clone_from(&peer.prefix);
    })
    .await;
    let mut replies = peer.replies().await;
    let body = shell("echo x >> count; echo out").to_string();
    for _ in 0..2 {
        peer.ask("m-1", "c-1", &body).await;
        let reply = next(&mut replies).await;
        assert_eq!(reply.correlation_id.as_deref(), Some("c-1"));
        let view: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 0}));
        assert_eq!(view["output"]["text"], "out\n");
        reply.ack().await.expect("it is settled");
    }
    let count = std::fs::read_to_string(folder.path().join("count"));
    assert_eq!(count.expect("it ran"), "x\n");

    // What is wrong is answered too, and to nobody it is a dead letter.
    let wrong = json!({"kind": "sh", "run": {"process": {"command": []}}}).to_string();
    peer.ask("m-2", "c-2", &wrong).await;
    let reply = next(&mut replies).await;
    let error: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(error["error"]["param"], "run.process.command");
    reply.ack().await.expect("it is settled");
    peer.send(Queue::Runs, "m-3", &wrong).await;
    let mut dead_letters = peer.dead_letters();
    let dead = next(&mut dead_letters).await;
    assert!(
        dead.reason()
            .is_some_and(|why| why.contains("name a program"))
    );
    dead.ack().await.expect("it is settled");
    fixture.stop().await;
    peer.clean_up().await;
}
