//! Tokens that go to trainers while their members run: each message once and in order, wherever a
//! client or the daemon breaks off.

mod kills;
mod stage;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{MODEL, chat, endpoint, engine};
use treadle_tests::support::policy::root;
use treadle_tests::support::process::DaemonProcess;
use treadle_tests::support::raw_engine::RawEngine;

use super::tokens::{answer, gateway, release, step, vllm};
use super::{JOB, batch, declare, get, on_disk, post, submit};
use crate::clients::python;
use crate::restart::DAEMON;
use crate::tenancy::{client_of, make_tenant};
use stage::{Message, Stream};

/// A step of a program of group `a` with these tokens, from an engine that is asked for them.
async fn talk(client: &Client, engine: &mut RawEngine, program: &str, reply: &Value) {
    let sent = step(client, program, chat(program, "hello", 5));
    answer(engine.request().await, reply).await;
    sent.await.expect("it ends").ok();
}

/// Steps of a member that runs, and what a stream says of them as they come.
async fn streamed_steps(
    client: &Client,
    engine: &mut RawEngine,
    stream: &mut Stream,
) -> Vec<Message> {
    let begins = |why: &str, sequence: usize| json!({"why": why, "sequence": sequence});
    let talks = [
        (vec![1, 2, 3], vec![4, 5], Some(begins("first", 0)), 0),
        (vec![1, 2, 3, 4, 5, 6], vec![7], None, 5),
        // Its prompt has the answer in other tokens.
        (
            vec![1, 2, 3, 45, 6],
            vec![9, 2],
            Some(begins("break", 1)),
            0,
        ),
        // It goes on where the second step went on.
        (
            vec![1, 2, 3, 4, 5, 8],
            vec![6],
            Some(begins("branch", 2)),
            5,
        ),
    ];
    let mut seen = Vec::new();
    for (prompt, output, begins, start) in &talks {
        talk(client, engine, "p", &vllm(prompt, output)).await;
        let mut sequence = 0;
        if let Some(expected) = begins {
            let begun = stream.next().await;
            assert_eq!(begun.kind, "sequence");
            for field in ["why", "sequence"] {
                assert_eq!(begun.data[field], expected[field], "{begun:?}");
            }
            sequence = expected["sequence"].as_u64().expect("a number");
            seen.push(begun);
        }
        let chunk = stream.next().await;
        assert_eq!(chunk.kind, "chunk", "it came while the member runs");
        let whole = [&prompt[..], output].concat();
        let end = whole.len();
        let logprobs: Vec<f64> = (0..output.len()).map(|n| -0.5 - n as f64).collect();
        let versions = json!([[prompt.len(), end, 0, 0]]);
        let expected = json!({"program": "p", "group": "a", "step": chunk.data["step"], "output": 0,
            "sequence": sequence, "start": start, "ids": whole[*start..],
            "sampled": [prompt.len(), end], "logprobs": logprobs, "versions": versions,
            "last": true});
        assert_eq!(chunk.data, expected);
        seen.push(chunk);
        let steps = get(client, "/members/p/steps").await.ok();
        assert_eq!(steps["end"], Value::Null, "{steps}");
    }
    seen
}

/// What a stream says of the member's end, and of the batch that it is in.
async fn streamed_end(client: &Client, stream: &mut Stream) -> [Message; 2] {
    release(client, "p").await;
    batch(client, 1).await;
    let ended = stream.next().await;
    assert_eq!(
        (&*ended.kind, &ended.data["end"]),
        ("ended", &json!("completed"))
    );
    let steps = get(client, "/members/p/steps").await.ok();
    assert_eq!(ended.data["sample"], steps["sample"]);
    let places = ended.data["sequences"].as_array().expect("a layout").iter();
    let places: Vec<_> = places
        .map(|s| json!([s["sequence"], s["tokens"]]))
        .collect();
    assert_eq!(
        places,
        [json!([0, 7]), json!([1, 7]), json!([2, 7])],
        "{ended:?}"
    );
    let served = stream.next().await;
    let expected = json!({"batch": 1, "group": "a", "programs": ["p"], "groups": 1});
    assert_eq!((&*served.kind, &served.data), ("batch", &expected));
    [ended, served]
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_a_member_come_before_its_end_and_resume_at_every_offset() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let mut stream = Stream::open(client, "").await;
    let mut seen = streamed_steps(client, &mut engine, &mut stream).await;
    seen.extend(streamed_end(client, &mut stream).await);

    assert!(seen.is_sorted_by_key(Message::place));
    for (at, message) in seen.iter().enumerate() {
        let after = format!("?after={}", message.id);
        let mut again = Stream::open(client, &after).await;
        assert_eq!(again.take(seen.len() - at - 1).await, seen[at + 1..]);
    }
    let header = [("last-event-id", &*seen[2].id)];
    let events = client
        .follow(&format!("{JOB}/stream?after=0"), &header)
        .await;
    let mut again = Stream::of(events);
    assert_eq!(again.next().await, seen[3], "the header takes precedence");
    for (bad, what) in [
        ("x", "no offset"),
        ("1.x", "no offset"),
        ("999999", "last event"),
    ] {
        let refused = get(client, &format!("/stream?after={bad}")).await;
        let message = refused.refused(400, "invalid_field");
        assert!(message.contains(what), "{message}");
    }
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_dropped_is_told_and_why() {
    let mut engine = RawEngine::start().await;
    let fixture = gateway(&engine, EngineChoice::Vllm).await;
    let client = &fixture.client;
    let mut stream = Stream::open(client, "").await;
    let mut lacking = vllm(&[1, 2], &[3]);
    lacking["choices"][0]["token_ids"] = Value::Null;
    talk(client, &mut engine, "spoilt", &lacking).await;
    let incomplete = stream.next().await;
    assert_eq!(incomplete.kind, "incomplete");
    release(client, "spoilt").await;
    let dropped = stream.next().await;
    let what = (
        &*dropped.kind,
        &dropped.data["program"],
        &dropped.data["end"],
    );
    assert_eq!(
        what,
        ("dropped", &json!("spoilt"), &json!("capture_failed"))
    );
    assert_eq!(dropped.data["cause"], incomplete.data["cause"]);
    assert!(dropped.data["cause"].is_string(), "{dropped:?}");

    let rewarded = json!({"group_size": 1, "batch_groups": 1, "capture": "tokens"});
    declare(client, rewarded).await;
    talk(client, &mut engine, "good", &vllm(&[1, 2], &[3])).await;
    release(client, "good").await;
    let kinds: Vec<String> = stream.take(3).await.into_iter().map(|m| m.kind).collect();
    assert_eq!(kinds, ["sequence", "chunk", "ended"]);
    let reward = json!({"reward": 0.3}).to_string().into_bytes();
    let path = "/api/v1/programs/good/reward";
    client.send(Method::PUT, path, &[], reward).await.ok();
    let reward = stream.next().await;
    let expected = json!({"program": "good", "reward": 0.3});
    assert_eq!((&*reward.kind, &reward.data), ("reward", &expected));

    make_tenant(&fixture, "acme", json!({})).await;
    let acme = client_of(&fixture, "acme", "job").await;
    get(&acme, "/stream").await.refused(404, "job_unknown");
    declare(&acme, json!({"group_size": 1})).await;
    let mut others = Stream::open(&acme, "?after=0").await;
    client.delete(&format!("{JOB}?forget=true")).await.ok();
    acme.delete(&format!("{JOB}?forget=true")).await.ok();
    let gone = others.next().await;
    assert_eq!(
        gone.data["what"], "job",
        "it is the first that a tenant sees"
    );
    assert_eq!(others.try_next().await, None);
    let gone = stream.next().await;
    assert_eq!((&*gone.kind, &gone.data["what"]), ("gone", &json!("job")));
    assert_eq!(stream.try_next().await, None, "it is the last");
    declare(client, json!({"group_size": 1})).await;
    let old = get(client, &format!("/stream?after={}", reward.id)).await;
    let message = old.refused(410, "stream_gone");
    assert!(message.contains("connect without an offset"), "{message}");
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(Stream::open(client, "").await);
    }
    let full = get(client, "/stream").await;
    full.refused(429, "streams_full");
    drop(open);
    fixture.finish().await;
}

/// Runs SQL on the database of a daemon that does not run.
fn sql(python: &Path, folder: &Path, text: &str) {
    let script = "import sqlite3, sys\n\
                  with sqlite3.connect(sys.argv[1]) as db: db.execute(sys.argv[2])";
    let file = folder.join("treadle.db");
    let ran = Command::new(python)
        .args(["-c", script])
        .arg(file)
        .arg(text)
        .status();
    assert!(ran.expect("Python runs").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_stored_any_more_is_told() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let mut config = on_disk(folder.path());
    config.engines.endpoints = vec![endpoint(engine.url())];
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let settings =
        json!({"group_size": 1, "batch_groups": 1, "capture": "tokens", "rewarded": false});
    declare(&daemon.client, settings).await;
    submit(&daemon.client, &["a"]).await;
    for _ in 0..2 {
        super::step(&daemon.client, "p", "a").await.ok();
    }
    release(&daemon.client, "p").await;
    batch(&daemon.client, 1).await;
    let mut stream = Stream::open(&daemon.client, "?after=0").await;
    let mut seen = vec![stream.next().await];
    while seen.last().is_some_and(|last| last.kind != "batch") {
        seen.push(stream.next().await);
    }
    daemon.kill();
    sql(
        &python,
        folder.path(),
        "DELETE FROM training_payloads WHERE name LIKE 'step/p/%'",
    );
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let mut stream = Stream::open(&daemon.client, "?after=0").await;
    for _ in 0..2 {
        let gone = stream.next().await;
        let what = (&*gone.kind, &gone.data["what"], &gone.data["program"]);
        assert_eq!(what, ("gone", &json!("step"), &json!("p")));
    }
    let ended = stream.next().await;
    assert_eq!(
        (&*ended.kind, &ended.data["sequences"]),
        ("ended", &Value::Null)
    );
    assert_eq!(Some(&stream.next().await), seen.last());
    post(&daemon.client, "/batches/1/trained", json!({}))
        .await
        .ok();
    post(&daemon.client, "/checkpoints", json!({"batch": 1}))
        .await
        .ok();
    let after = format!("?after={}", ended.id);
    let mut stream = Stream::open(&daemon.client, &after).await;
    let gone = stream.next().await;
    assert_eq!((&*gone.kind, &gone.data["what"]), ("gone", &json!("batch")));
    daemon.kill();
    let seq = seen[0].place().0;
    sql(
        &python,
        folder.path(),
        &format!("DELETE FROM events WHERE seq <= {seq}"),
    );
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let old = get(&daemon.client, "/stream?after=0").await;
    let message = old.refused(410, "stream_gone");
    assert!(message.contains("store.keep_events"), "{message}");
    drop(daemon);
}

/// The example of the Python package: what it computes from the stream, while its daemon is killed,
/// has the same bits as what it computes from whole batches.
#[tokio::test(flavor = "multi_thread")]
async fn a_trainer_that_computes_on_prefixes_gets_the_same_bits() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(100_000).await;
    let mut config = on_disk(folder.path());
    config.engines.endpoints = vec![endpoint(engine.url())];
    let mut daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let url = daemon.client.base().to_owned();
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    config.server.listen.set_port(port.expect("a port"));
    let trainer = Command::new(&python)
        .args([
            "-m",
            "treadle_rl.examples.streaming",
            "--steps",
            "4",
            "--model",
            MODEL,
        ])
        .current_dir(folder.path())
        .env("PYTHONPATH", root().join("sdk/python/treadle_rl/src"))
        .env("TREADLE_URL", &url)
        .env("TREADLE_TOKEN", daemon.client.token().unwrap_or_default())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python runs");
    for kill in 0..2_u64 {
        tokio::time::sleep(Duration::from_millis(700 + kill * 200)).await;
        daemon.kill();
        daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    }
    let ended = tokio::task::spawn_blocking(move || trainer.wait_with_output());
    let ended = tokio::time::timeout(2 * TIMEOUT, ended).await;
    let output = ended
        .expect("it ends in time")
        .expect("no panic")
        .expect("its output");
    let [out, err] = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(
        out.matches("sequences have the same bits").count(),
        4,
        "{out}"
    );
    let share = out.lines().last().unwrap_or_default();
    assert!(!share.contains(" 0% "), "{share}");
    drop(daemon);
}
