//! Actions over the broker, answered to the client that asked.

use super::fixture;
use crate::messaging::server::Server;
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
        peer.ask(Queue::Runs, "m-1", "c-1", &body).await;
        let reply = next(&mut replies).await;
        assert_eq!(reply.correlation_id.as_deref(), Some("c-1"));
        let view: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 0}));
        assert_eq!(view["output"]["text"], "out\n");
        reply.ack().await.expect("it is settled");
    }
    let count = std::fs::read_to_string(folder.path().join("count"));
    assert_eq!(count.expect("it ran"), "x\n");

    // An invalid message gets an answer, or becomes a dead letter if it has no `reply_to`.
    let wrong = json!({"kind": "sh", "run": {"process": {"command": []}}}).to_string();
    peer.ask(Queue::Runs, "m-2", "c-2", &wrong).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_meanwhile_gets_the_answer_afterwards() {
    if amqp_url().is_none() {
        return;
    }
    let server = tokio::task::spawn_blocking(|| Server::start(|_, _| String::new()));
    let mut server = server.await.expect("a server");
    let peer = Peer::connect(&server.url(), "runs-kill").await;
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 2, |config| {
        config.broker.url = server.url().as_str().into();
        config.broker.prefix.clone_from(&peer.prefix);
    })
    .await;
    let mut replies = peer.replies().await;
    let script = "echo x >> count; while [ ! -e go ]; do sleep 0.02; done; echo out";
    peer.ask(Queue::Runs, "m-1", "c-1", &shell(script).to_string())
        .await;
    while !folder.path().join("count").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let killed = tokio::task::spawn_blocking(move || {
        server.settle();
        server.kill();
        server
    });
    let mut server = killed.await.expect("no panic");
    // It ends while no answer can be delivered.
    std::fs::write(folder.path().join("go"), "").expect("it is written");
    super::ended(&fixture.client, 1).await;
    let restarted = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let server = restarted.await.expect("no panic");
    let reply = tokio::time::timeout(std::time::Duration::from_mins(1), replies.next());
    let reply = reply.await.expect("it is answered").expect("it goes on");
    assert_eq!(reply.correlation_id.as_deref(), Some("c-1"));
    let view: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(view["output"]["text"], "out\n");
    reply.ack().await.expect("it is settled");
    let count = std::fs::read_to_string(folder.path().join("count"));
    assert_eq!(count.expect("it ran"), "x\n");
    fixture.stop().await;
    // Its queues go with the server.
    drop(peer);
    let end = tokio::task::spawn_blocking(move || drop(server));
    end.await.expect("no panic");
}
