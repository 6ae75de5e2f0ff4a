//! Events out and commands in, over a real RabbitMQ.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use treadle_broker::{Queue, header};
use treadle_tests::support::broker::{Peer, amqp_url, next};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{CHAT, Fixture, chat};
use treadle_tests::support::metrics::Metrics;

#[allow(dead_code, reason = "these tests need no TLS and no alarms")]
#[path = "../../host/broker/tests/broker/server.rs"]
pub(crate) mod server;

use server::Server;

/// A daemon with one engine, connected to a broker.
async fn fixture_at(url: &str, prefix: &str) -> Fixture {
    Fixture::tuned(1, 100_000, |config| {
        config.broker.url = url.into();
        prefix.clone_into(&mut config.broker.prefix);
    })
    .await
}

async fn complete_step(client: &Client, program: &str) -> Value {
    client.post(CHAT, &chat(program, "hello", 4)).await.ok()
}

async fn release(client: &Client, program: &str) -> Value {
    let body = json!({"program_id": program});
    client.post("/programs/release", &body).await.ok()
}

/// Whether this is the release of a program.
fn is_release(event: &treadle_tests::support::broker::Event, program: &str) -> bool {
    event.key.ends_with(".program.released") && event.body["program"] == program
}

/// Waits until the given number of commands has reached this status.
async fn until_commands(client: &Client, outcome: &str, count: u64) {
    let name = format!("treadle_broker_commands_total{{outcome=\"{outcome}\"}}");
    client
        .until(&name, |metrics| metrics.count(&name) == count)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_a_consumer_in_order_with_keys_and_headers() {
    let Some(url) = amqp_url() else {
        return;
    };
    let mut peer = Peer::connect(&url, "events").await;
    let fixture = fixture_at(&url, &peer.prefix).await;
    for round in 0..5 {
        for program in ["p-1", "p-2", "p-3"] {
            complete_step(&fixture.client, program).await;
        }
        if round == 2 {
            release(&fixture.client, "p-2").await;
        }
    }
    release(&fixture.client, "p-1").await;
    let mut seen = BTreeMap::new();
    peer.events_until(&mut seen, |event| is_release(event, "p-1"))
        .await;

    // The journal from its first event on, without a gap.
    let numbers: Vec<u64> = seen.keys().copied().collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
    let finished = seen
        .values()
        .filter(|event| event.key == "default.default.step.finished");
    let of_program = |program: &str| {
        let own = finished.clone().filter(|e| e.body["program"] == program);
        own.count()
    };
    assert_eq!(of_program("p-1"), 5);
    let event = finished.clone().next().expect("a step was finished");
    assert_eq!(event.body["data"]["event"], "step_finished");
    assert_eq!(event.body["seq"], event.seq);
    let program = event.body["program"].as_str().expect("a program");
    for (name, value) in [
        (header::SCHEMA_VERSION, "1"),
        (header::SPEC_VERSION, "1.0"),
        (header::ID, event.seq.to_string().as_str()),
        (header::SOURCE, "/treadle/default/default"),
        (header::KIND, "treadle.step.finished"),
        (header::SUBJECT, program),
    ] {
        assert_eq!(event.headers.get(name).map(String::as_str), Some(value));
    }
    assert!(event.headers[header::TIME].ends_with('Z'));
    fixture.finish().await;
    peer.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_stops_nothing_and_gets_everything_afterwards() {
    if amqp_url().is_none() {
        return;
    }
    let server = tokio::task::spawn_blocking(|| Server::start(|_, _| String::new()));
    let mut server = server.await.expect("a server");
    let mut peer = Peer::connect(&server.url(), "kill").await;
    let fixture = fixture_at(&server.url(), &peer.prefix).await;
    let client = &fixture.client;
    complete_step(client, "before").await;
    release(client, "before").await;
    let mut seen = BTreeMap::new();
    peer.events_until(&mut seen, |event| is_release(event, "before"))
        .await;
    peer.broker_is_killed();
    let killed = tokio::task::spawn_blocking(move || {
        server.settle();
        server.kill();
        server
    });
    let mut server = killed.await.expect("no panic");

    for round in 0..20 {
        complete_step(client, &format!("during-{}", round % 4)).await;
    }
    let is_behind = |metrics: &Metrics| {
        metrics.count("treadle_broker_connected") == 0
            && metrics.count("treadle_broker_lag_events") >= 40
    };
    client.until("behind", is_behind).await;
    let health = client.get("/health").await;
    assert_eq!(health.status, 200);
    let broker = &health.json()["broker"];
    assert_eq!(broker["state"], "disconnected", "{broker}");
    assert_eq!(broker["degraded"], true, "{broker}");
    assert!(broker["lag_events"].as_u64() >= Some(40), "{broker}");
    for program in 0..4 {
        release(client, &format!("during-{program}")).await;
    }
    let restarted = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let server = restarted.await.expect("no panic");
    let is_last = |event: &_| is_release(event, "during-3");
    let arriving = peer.events_until(&mut seen, is_last);
    tokio::time::timeout(Duration::from_mins(1), arriving)
        .await
        .expect("all that happened meanwhile arrives");
    let numbers: Vec<u64> = seen.keys().copied().collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "events are missing");
    client
        .until("caught up", |metrics| {
            metrics.count("treadle_broker_connected") == 1
        })
        .await;
    fixture.finish().await;
    peer.clean_up().await;
    let end = tokio::task::spawn_blocking(move || drop(server));
    end.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_command_is_a_dead_letter_with_a_reason() {
    let Some(url) = amqp_url() else {
        return;
    };
    let peer = Peer::connect(&url, "poison").await;
    let fixture = fixture_at(&url, &peer.prefix).await;
    let mut dead = peer.dead_letters();
    for (queue, body, words) in [
        (Queue::Commands, "no json", "not a JSON object"),
        (
            Queue::Commands,
            r#"{"command":"dance"}"#,
            "unknown variant `dance`",
        ),
        (
            Queue::Commands,
            r#"{"command":"release_program","tenant":"nobody","program":"p"}"#,
            "no tenant `nobody`",
        ),
        (
            Queue::Commands,
            r#"{"command":"add_worker","url":"ftp://e"}"#,
            "http://host:port",
        ),
        (
            Queue::Commands,
            r#"{"command":"add_worker","url":"http://e","capacity_tokens":18446744073709551615}"#,
            "`capacity_tokens` must be a whole number from 1 to",
        ),
        (
            Queue::Actions,
            r#"{"event":"started"}"#,
            "`program` is empty",
        ),
        (
            Queue::Commands,
            r#"{"command":"release_program","program":"\u001facme\u001fp"}"#,
            "`program` holds the control character U+001F",
        ),
        (
            Queue::Commands,
            r#"{"command":"release_job","job":"\u001facme\u001fj"}"#,
            "`job` holds the control character U+001F",
        ),
        (
            Queue::Actions,
            r#"{"event":"finished","program":"\u001facme\u001fp","action_id":"a"}"#,
            "`program` holds the control character U+001F",
        ),
        (
            Queue::Actions,
            r#"{"event":"finished","program":"p","action_id":"a\u0000"}"#,
            "`action_id` holds the control character U+0000",
        ),
    ] {
        peer.send(queue, "poison-1", body).await;
        let letter = next(&mut dead).await;
        let reason = letter.reason().unwrap_or_default().to_owned();
        assert!(reason.contains(words), "{body}: {reason}");
        assert_eq!(letter.body, body.as_bytes());
        letter.ack().await.expect("it is settled");
    }
    until_commands(&fixture.client, "refused", 10).await;
    fixture.finish().await;
    peer.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_releases_a_program_once_though_it_comes_twice() {
    let Some(url) = amqp_url() else {
        return;
    };
    let mut peer = Peer::connect(&url, "command").await;
    let fixture = fixture_at(&url, &peer.prefix).await;
    let client = &fixture.client;
    complete_step(client, "p").await;
    let started = r#"{"event":"started","program":"p","action_id":"a","tool":"sh"}"#;
    peer.send(Queue::Actions, "", started).await;
    let mut seen = BTreeMap::new();
    let is_action = |event: &treadle_tests::support::broker::Event| {
        event.key == "default.default.action.started" && event.body["program"] == "p"
    };
    peer.events_until(&mut seen, is_action).await;

    let other_job = r#"{"command":"release_program","job":"other","program":"p"}"#;
    peer.send(Queue::Commands, "c-0", other_job).await;
    until_commands(client, "refused", 1).await;
    let command = r#"{"command":"release_program","program":"p"}"#;
    peer.send(Queue::Commands, "c-1", command).await;
    peer.send(Queue::Commands, "c-1", command).await;
    until_commands(client, "repeated", 1).await;
    let programs = client.get("/programs").await.ok();
    assert!(programs.get("p").is_none(), "{programs}");

    let reward = r#"{"command":"reward_program","program":"p","reward":-0.5}"#;
    peer.send(Queue::Commands, "c-2", reward).await;
    // The action's notice, the release and the reward.
    until_commands(client, "done", 3).await;
    let ended = client.get("/api/v1/programs/p").await.ok();
    assert_eq!(ended["reward"], -0.5);

    // The command does not apply to a later program of the same name.
    complete_step(client, "p").await;
    peer.send(Queue::Commands, "c-1", command).await;
    until_commands(client, "repeated", 2).await;
    let programs = client.get("/programs").await.ok();
    assert!(programs.get("p").is_some(), "{programs}");
    release(client, "p").await;
    complete_step(client, "end").await;
    release(client, "end").await;
    peer.events_until(&mut seen, |event| is_release(event, "end"))
        .await;
    let releases = seen.values().filter(|event| is_release(event, "p"));
    assert_eq!(releases.count(), 2);
    let mut dead_letters = peer.dead_letters();
    let dead = next(&mut dead_letters).await;
    assert!(
        dead.reason()
            .is_some_and(|reason| reason.contains("does not belong to job `other`"))
    );
    dead.ack().await.expect("it is settled");
    fixture.finish().await;
    peer.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_come_and_go_by_command() {
    let Some(url) = amqp_url() else {
        return;
    };
    let peer = Peer::connect(&url, "workers").await;
    let fixture = fixture_at(&url, &peer.prefix).await;
    let client = &fixture.client;
    let engine = treadle_tests::support::fixture::engine(50_000).await;
    let add = json!({"command": "add_worker", "url": engine.url(), "kind": "vllm"});
    peer.send(Queue::Commands, "w-1", &add.to_string()).await;
    until_commands(client, "done", 1).await;
    let workers = client.get("/workers").await.ok();
    assert_eq!(workers["total"], 2, "{workers}");
    let remove = json!({"command": "remove_worker", "worker": engine.url(), "id": "w-2"});
    peer.send(Queue::Commands, "", &remove.to_string()).await;
    until_commands(client, "done", 2).await;
    let workers = client.get("/workers").await.ok();
    assert_eq!(workers["total"], 1, "{workers}");
    engine.shutdown().await;
    fixture.finish().await;
    peer.clean_up().await;
}
