//! Requests: where they may go, and what their answers mean.

use serde_json::json;
use treadle_actions::{ExecutorEvent, Found};
use treadle_core::actions::Outcome;
use treadle_model::Span;

use crate::server::Server;
use crate::stage::{Stage, cause, exited};

fn reaching(list: &[&str]) -> Stage {
    let list = list.iter().map(ToString::to_string).collect();
    Stage::with(|config| {
        config.egress.insert("default".to_owned(), list);
    })
}

fn get(url: &str) -> serde_json::Value {
    json!({ "http": { "url": url } })
}

#[tokio::test]
async fn an_answer_is_taken_with_its_status() {
    let server = Server::answering("201 Created", "", "made").await;
    let mut stage = reaching(&[&server.address.to_string()]);
    let body = json!({ "http": {
        "method": "POST", "url": server.url("/a?b=c"), "headers": { "X-Key": "k" }, "body": "sent",
    } });
    assert_eq!(stage.run(body).await, (exited(201), "made".to_owned()));
    let asked = server.asked().concat();
    assert!(asked.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{asked}");
    assert!(
        asked.contains("x-key: k\r\n") && asked.ends_with("\r\n\r\nsent"),
        "{asked}"
    );
    assert!(asked.contains("user-agent: treadle/"), "{asked}");
}

#[tokio::test]
async fn a_long_answer_is_cut_and_an_error_is_an_answer() {
    let server = Server::answering("503 Service Unavailable", "", &"x".repeat(100_000)).await;
    let list = vec![server.address.to_string()];
    let mut stage = Stage::with(|config| {
        config.output_bytes_max = 100;
        config.egress.insert("default".to_owned(), list);
    });
    let (outcome, output) = stage.run(get(&server.url("/"))).await;
    assert_eq!(outcome, exited(503));
    assert!(output.contains("left out 99900 bytes"), "{output}");
}

#[tokio::test]
async fn a_refusal_for_a_time_is_no_end() {
    let server = Server::answering("429 Too Many Requests", "Retry-After: 7\r\n", "later").await;
    let mut stage = reaching(&[&server.address.to_string()]);
    let action = stage.start(&get(&server.url("/")), Vec::new(), 60_000);
    for _ in 0..2 {
        let began = stage.event().await;
        assert_eq!(began, ExecutorEvent::Began { action, attempt: 1 });
        let refused = stage.event().await;
        let (attempt, retry_after) = (1, Span::from_secs(7));
        let wanted = ExecutorEvent::QuotaRefused {
            action,
            attempt,
            retry_after,
        };
        assert_eq!(refused, wanted);
        let recovery = stage.executor.recover().await.unwrap();
        assert_eq!(recovery.all().count(), 0);
        let id = treadle_actions::AttemptId { action, attempt };
        assert_eq!(recovery.of(id), Found::NeverBegan);
        // The same attempt may begin again.
        let again = crate::stage::request(action, &get(&server.url("/")));
        stage.executor.start(again).unwrap();
    }
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let location = "Location: http://169.254.169.254/latest/meta-data\r\n";
    let server = Server::answering("302 Found", location, "elsewhere").await;
    let mut stage = reaching(&["0.0.0.0/0"]);
    let ended = stage.run(get(&server.url("/"))).await;
    assert_eq!(ended, (exited(302), "elsewhere".to_owned()));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_tenant_reaches_what_is_listed_and_nothing_else() {
    let server = Server::answering("200 OK", "", "reached").await;
    let port = server.address.port();
    let by_name = format!("http://localhost:{port}/");
    for (list, url, told) in [
        (vec![], server.url("/"), "tenant default may reach nothing"),
        (
            vec!["127.0.0.1:1"],
            server.url("/"),
            "is not among `actions.egress`",
        ),
        (vec!["localhost"], by_name, "is in a private network"),
        (
            vec!["0.0.0.0/0"],
            "http://169.254.169.254/latest".to_owned(),
            "is never connected to",
        ),
        (
            vec!["0.0.0.0/0"],
            "http://127.0.0.1:1/".to_owned(),
            "is the daemon itself",
        ),
    ] {
        let mut stage = reaching(&list);
        let (outcome, output) = stage.run(get(&url)).await;
        assert_eq!(outcome, exited(126), "{url}: {output}");
        assert!(output.contains(told), "{url}: {output}");
    }
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn silence_and_absence_have_their_kinds() {
    let silent = Server::new("").await;
    let mut stage = reaching(&["127.0.0.0/8"]);
    stage.start(&get(&silent.url("/")), Vec::new(), 100);
    assert_eq!(stage.end().await.0, Outcome::TimedOut);
    let action = stage.start(&get(&silent.url("/")), Vec::new(), 60_000);
    assert!(matches!(stage.event().await, ExecutorEvent::Began { .. }));
    stage.executor.stop(action, 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled);
    // Nobody has this port of this address for long enough to be asked.
    let free = std::net::TcpListener::bind("127.0.0.7:0").unwrap();
    let url = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    let (outcome, _) = stage.run(get(&url)).await;
    assert!(cause(&outcome).contains("refused"), "{outcome:?}");
}
