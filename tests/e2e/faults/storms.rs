//! Clients that all leave at once.

use std::time::Duration;

use http::Method;
use treadle_tests::support::client::TIMEOUT;
use treadle_tests::support::fixture::{CHAT, Fixture, chat, streamed};

const CLIENTS: u64 = 100;

/// A hundred clients ask for long answers, then all leave.
async fn storm(fixture: &Fixture, streaming: bool) {
    let mut asking = Vec::new();
    for client in 0..CLIENTS {
        let body = chat(&format!("{streaming}-{client}"), "a long story", 20_000);
        let body = if streaming { streamed(body) } else { body };
        let client = fixture.client.clone();
        asking.push(tokio::spawn(async move {
            let headers = [("content-type", "application/json")];
            let open = client.open(Method::POST, CHAT, &headers, body.to_string());
            let response = open.await.expect("an answer");
            // A stream is left in the middle; an answer in one piece never comes.
            let _whole = http_body_util::BodyExt::collect(response.into_body()).await;
        }));
    }
    let all = CLIENTS;
    let running =
        |m: &treadle_tests::support::metrics::Metrics| m.count("treadle_steps_running") == all;
    fixture.client.until("all running", running).await;
    let engines_have_all = async {
        while (fixture.engine_requests().await as u64) < all {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, engines_have_all).await;
    waited.expect("the engines have all of them");
    for task in &asking {
        task.abort();
    }
    fixture.until_engines_idle().await;
    assert_eq!(
        fixture.engines_finished().await,
        0,
        "answers that nobody wants"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clients_leave_their_streams() {
    let fixture = Fixture::start(2, 4_000_000).await;
    storm(&fixture, true).await;
    let metrics = fixture.client.until("withdrawn", |m| {
        m.count("treadle_steps_cancelled_total") == CLIENTS
    });
    metrics.await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clients_leave_before_their_answers() {
    let fixture = Fixture::start(2, 4_000_000).await;
    storm(&fixture, false).await;
    let metrics = fixture.client.until("withdrawn", |m| {
        m.count("treadle_steps_cancelled_total") == CLIENTS
    });
    metrics.await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_the_queue_leave_nothing_there() {
    // Room for one of these programs only.
    let fixture = Fixture::start(1, 4_096).await;
    let mut asking = Vec::new();
    for client in 0..CLIENTS {
        let body = chat(&format!("q-{client}"), &"word ".repeat(1_500), 2_000);
        let client = fixture.client.clone();
        asking.push(tokio::spawn(async move { client.post(CHAT, &body).await }));
    }
    let arrived = |m: &treadle_tests::support::metrics::Metrics| {
        m.count("treadle_steps_arrived_total") == CLIENTS
            && m.count("treadle_queue_steps") > CLIENTS / 2
    };
    fixture.client.until("waiting", arrived).await;
    for task in &asking {
        task.abort();
    }
    fixture.until_engines_idle().await;
    fixture.finish().await;
}
