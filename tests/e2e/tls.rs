//! TLS for every connection: clients, engines, an identity provider's keys, between daemons.

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use treadle_config::{Config, Role};
use treadle_server::start::Daemon;
use treadle_tests::support::certificates::Certificates;
use treadle_tests::support::client::Client;
use treadle_tests::support::cluster::{Cluster, until_scheduled};
use treadle_tests::support::fixture::{
    CHAT, COMPLETIONS, Fixture, MODEL, chat, config, endpoint, engine, release_all, settled,
};
use treadle_tests::support::process::run_if_asked;
use treadle_tests::support::raw_client::RawClient;

/// The test that is a daemon when a test of this module starts it.
const DAEMON: &str = "tls::daemon_of_the_other_tests";

#[test]
fn daemon_of_the_other_tests() {
    run_if_asked();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_speaks_tls_with_its_clients_and_with_engines() {
    let certificates = Certificates::new();
    let engine = engine(100_000).await;
    let url = certificates.before(&engine.url()).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        certificates.used_by(config);
        config.engines.endpoints = vec![endpoint(&url)];
    })
    .await;
    assert!(fixture.daemon.url().starts_with("https://127.0.0.1:"));
    let workers = fixture.client.get("/workers").await.ok();
    assert_eq!(workers["workers"][0]["url"], json!(url));
    assert_eq!(workers["workers"][0]["is_healthy"], true);
    fixture.client.post(CHAT, &chat("p", "hello", 4)).await.ok();
    // Plain HTTP is refused.
    let mut plain = TcpStream::connect(fixture.daemon.addr).await.unwrap();
    let asked = plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    asked.await.unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said).await;
    assert!(!said.starts_with(b"HTTP/"), "{said:?}");
    fixture.finish().await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_begin_with_tls_is_closed() {
    let certificates = Certificates::new();
    let fixture = Fixture::tuned(1, 100_000, |config| {
        certificates.used_by(config);
        config.server.first_head_timeout_s = 1;
    })
    .await;
    let mut silent = RawClient::connect(&fixture.daemon.addr.to_string()).await;
    assert_eq!(silent.until_closed().await, "");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_does_not_prove_itself_gets_nothing() {
    let (own, other) = (Certificates::new(), Certificates::new());
    let engine = engine(100_000).await;
    let url = other.before(&engine.url()).await;
    let fixture = Fixture::tuned(0, 0, |config| {
        own.trusted_by(config);
        config.engines.endpoints = vec![endpoint(&url)];
        config.engines.response_timeout_s = 5;
    })
    .await;
    let workers = fixture.client.get("/workers").await.ok();
    assert_eq!(workers["workers"][0]["is_healthy"], false);
    assert_eq!(fixture.engines_finished().await, 0);
    fixture.daemon.stop().await;
    engine.shutdown().await;
}

#[tokio::test]
async fn a_daemon_without_usable_files_does_not_start() {
    let certificates = Certificates::new();
    let started = |tune: &dyn Fn(&mut Config)| {
        let mut config = config();
        certificates.used_by(&mut config);
        tune(&mut config);
        async move {
            Daemon::start(&config)
                .await
                .err()
                .map(|error| error.to_string())
        }
    };
    let absent = started(&|config| config.tls.key = "/nowhere/key.pem".to_owned()).await;
    assert!(absent.is_some_and(|said| said.contains("/nowhere/key.pem")));
    let absent = started(&|config| config.tls.ca = "/nowhere/ca.pem".to_owned()).await;
    assert!(absent.is_some_and(|said| said.contains("/nowhere/ca.pem")));
}

/// The client addresses of an engine's changes in the audit log.
async fn audited(client: &Client, target: &str) -> Vec<Value> {
    let audit = client.get("/api/v1/audit?action=worker.added").await.ok();
    let changes = audit["changes"].as_array().expect("a list").clone();
    let of_target = changes
        .into_iter()
        .filter(|change| change["target"] == target);
    of_target.map(|change| change["address"].clone()).collect()
}

/// Sends a request without TLS from another address of this machine; returns the whole answer.
async fn post_from(local: &str, daemon: &str, token: &str, body: &str) -> String {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind(local.parse().expect("an address"))
        .expect("it is this machine's");
    let stream = socket.connect(daemon.parse().expect("an address")).await;
    let mut stream = stream.expect("a connection");
    let request = format!(
        "POST /workers HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\nx-treadle-client: 6.6.6.6:6\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_the_client_s_address_through_another_daemon() {
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |_, _| ());
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let gateway = cluster.start(Role::Gateway).await;
    let token = std::fs::read_to_string(cluster.token_file()).expect("a token");
    let daemon = gateway.client.base().trim_start_matches("http://");
    let body = json!({"url": engine.url(), "kind": "vllm"}).to_string();
    let answer = post_from("127.0.0.2:0", daemon, token.trim(), &body).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let addresses = audited(&gateway.client, &engine.url()).await;
    let is_client = |address: &Value| {
        address
            .as_str()
            .is_some_and(|a| a.starts_with("127.0.0.2:"))
    };
    assert!(
        addresses.len() == 1 && is_client(&addresses[0]),
        "{addresses:?}"
    );
    // A process that only pretends to be a daemon is refused.
    let forged = [
        ("x-treadle-passed-on", "1"),
        ("x-treadle-client", "6.6.6.6:6"),
    ];
    let refused = scheduler.client.send(Method::GET, "/programs", &forged, "");
    refused.await.refused(403, "forbidden");
    gateway.kill();
    scheduler.kill();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_speak_tls_with_each_other() {
    let certificates = Certificates::new();
    let engine = engine(100_000).await;
    let mut cluster = Cluster::new(DAEMON, |config, _| certificates.used_by(config));
    let scheduler = cluster.start(Role::All).await;
    until_scheduled(&[&scheduler], 0).await;
    let gateway = cluster.start(Role::Gateway).await;
    let client = &gateway.client;
    assert!(client.base().starts_with("https://"));
    // A request that is forwarded to the scheduler, and a step over the link.
    let worker = json!({"url": engine.url(), "kind": "vllm"});
    client.post("/workers", &worker).await.ok();
    let body = json!({"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 5, "program_id": "p"});
    client.post(COMPLETIONS, &body).await.ok();
    for each in [client, &scheduler.client] {
        assert_eq!(each.get("/programs").await.ok()["p"]["step_count"], 1);
    }
    settled(client).await;
    release_all(client).await;
    gateway.kill();
    scheduler.kill();
    engine.shutdown().await;
}
