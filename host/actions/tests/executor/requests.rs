//! Requests: permitted destinations, and the meaning of responses.

use serde_json::{Value, json};
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::{ActionId, Span};

use crate::server::Server;
use crate::stage::{Stage, cause, exited};

async fn reaching(list: &[&str]) -> Stage {
    let list = list.iter().map(ToString::to_string).collect();
    Stage::with(|config| {
        config.output_bytes_max = 100;
        config.egress.insert("default".to_owned(), list);
    })
    .await
}

fn get(url: &str) -> Value {
    json!({ "http": { "url": url } })
}

#[tokio::test]
async fn a_response_is_reported_with_its_status() {
    let server = Server::answering("201 Created", "", "made").await;
    let mut stage = reaching(&[&server.address.to_string()]).await;
    let body = json!({ "http": {
        "method": "POST", "url": server.url("/a?b=c"), "headers": { "X-Key": "k" }, "body": "sent",
    } });
    assert_eq!(stage.run(body).await, (exited(201), "made".to_owned()));
    let asked = server.asked().concat();
    assert!(asked.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("x-key: k\r\n"), "{asked}");
    assert!(asked.contains("user-agent: treadle/"), "{asked}");
    assert!(asked.ends_with("\r\n\r\nsent"), "{asked}");
}

#[tokio::test]
async fn a_long_response_is_cut_and_an_error_status_is_a_result() {
    let server = Server::answering("503 Service Unavailable", "", &"x".repeat(100_000)).await;
    let mut stage = reaching(&[&server.address.to_string()]).await;
    let (outcome, output) = stage.run(get(&server.url("/"))).await;
    assert_eq!(outcome, exited(503));
    assert!(output.contains("left out 99900 bytes"), "{output}");
}

#[tokio::test]
async fn a_quota_refusal_does_not_end_an_action() {
    let server = Server::answering("429 Too Many Requests", "Retry-After: 7\r\n", "later").await;
    let mut stage = reaching(&[&server.address.to_string()]).await;
    let body = json!({ "http": { "url": server.url("/"), "quota": "search" } });
    let markers = stage.path().join("markers");
    for _ in 0..2 {
        // The same attempt may begin again.
        let action = ActionId(7);
        stage.start_with(&body, |order| order.action = action);
        stage.began().await;
        let wanted = ActionEvent::QuotaRefused {
            resource: "search".into(),
            retry_after: Span::from_secs(7),
            action: Some((action, 1)),
        };
        assert_eq!(stage.report().await, wanted);
        let files = std::fs::read_dir(&markers).unwrap().count();
        assert_eq!(files, 2, "the owner and the lock");
    }
    let ended = stage.run(get(&server.url("/"))).await;
    assert_eq!(ended, (exited(429), "later".to_owned()), "of no quota");
    let busy = Server::answering("503 Busy", "Retry-After: 9\r\n", "later").await;
    let mut stage = reaching(&[&busy.address.to_string()]).await;
    let body = json!({ "http": { "url": busy.url("/"), "quota": "search" } });
    stage.start_with(&body, |order| order.action = ActionId(8));
    let ended = stage.end().await;
    assert_eq!(ended, (exited(503), "later".to_owned()), "no quota says so");
    let told = stage.executor.retry_after(ActionId(8));
    assert_eq!(told, Some(Span::from_secs(9)));
    assert_eq!(stage.executor.retry_after(ActionId(7)), None);
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let location = "Location: http://169.254.169.254/latest/meta-data\r\n";
    let server = Server::answering("302 Found", location, "elsewhere").await;
    let mut stage = reaching(&["0.0.0.0/0"]).await;
    let ended = stage.run(get(&server.url("/"))).await;
    assert_eq!(ended, (exited(302), "elsewhere".to_owned()));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_tenant_reaches_only_listed_destinations() {
    let server = Server::answering("200 OK", "", "reached").await;
    let by_name = format!("http://localhost:{}/", server.address.port());
    let here = server.url("/");
    let metadata = "http://169.254.169.254/latest".to_owned();
    let own = "http://127.0.0.1:1/".to_owned();
    for (list, url, told) in [
        (vec![], &here, "tenant default may not reach any server"),
        (vec!["127.0.0.1:1"], &here, "is not in `actions.egress`"),
        (vec!["localhost"], &by_name, "is in a private network"),
        (vec!["0.0.0.0/0"], &metadata, "is never connected to"),
        (vec!["0.0.0.0/0"], &own, "is the daemon itself"),
    ] {
        let mut stage = reaching(&list).await;
        let (outcome, _) = stage.run(get(url)).await;
        assert!(cause(&outcome).contains(told), "{url}: {outcome:?}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn timeouts_and_refused_connections_are_distinguished() {
    let silent = Server::new("").await;
    let mut stage = reaching(&["127.0.0.0/8"]).await;
    let body = get(&silent.url("/"));
    stage.start_with(&body, |order| order.run_max = Span::from_millis(100));
    assert_eq!(stage.end().await.0, Outcome::TimedOut);
    let action = stage.start(&body);
    stage.began().await;
    stage.executor.stop(action, 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled);
    // Nobody else uses this port of this address.
    let free = std::net::TcpListener::bind("127.0.0.7:0").unwrap();
    let url = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    let (outcome, _) = stage.run(get(&url)).await;
    assert!(cause(&outcome).contains("refused"), "{outcome:?}");
}
