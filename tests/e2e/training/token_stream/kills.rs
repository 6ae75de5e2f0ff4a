//! A stream whose daemon is killed: its client gets everything once.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{CHAT, MODEL, endpoint, engine};
use treadle_tests::support::process::DaemonProcess;

use super::super::captured_kills::insist;
use super::super::{JOB, on_disk, payload};
use super::stage::{Message, Stream};
use crate::restart::DAEMON;

/// An agent of two for each group: it talks in turns, and begins again if it was dropped.
async fn agent(client: Client, number: u32, groups: u32) {
    for group in 0..groups {
        let group = format!("g{group}");
        for attempt in 0.. {
            let program = format!("{group}-{number}-{attempt}");
            let headers = [
                ("x-treadle-job", "math"),
                ("x-treadle-group", &*group),
                ("x-program-id", &*program),
            ];
            let mut messages = vec![json!({"role": "user", "content": format!("task {group}")})];
            for _ in 0..3 {
                let body = json!({"model": MODEL, "messages": messages, "max_tokens": 12});
                let answer = insist(&client, Method::POST, CHAT, &headers, &body).await;
                let Some(message) = answer["choices"][0].get("message") else {
                    break;
                };
                messages.push(message.clone());
                messages.push(json!({"role": "user", "content": "go on"}));
            }
            let path = format!("/api/v1/programs/{program}");
            insist(&client, Method::DELETE, &path, &[], &Value::Null).await;
            if is_kept(&client, &group, &program).await {
                break;
            }
        }
    }
}

/// Whether a program that ended has its sample, or its group is in a batch.
async fn is_kept(client: &Client, group: &str, program: &str) -> bool {
    let path = format!("{JOB}/groups?group={group}");
    loop {
        let page = insist(client, Method::GET, &path, &[], &Value::Null).await;
        let Some(members) = page["groups"][0]["members"].as_array() else {
            return true;
        };
        match members.iter().find(|member| member["program"] == program) {
            None => return false,
            Some(member) if member["sample"].is_string() => return true,
            Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Follows the stream over all connections until a batch has come.
async fn follow(client: Client, last: u64) -> Vec<Message> {
    let mut seen: Vec<Message> = Vec::new();
    loop {
        let after = seen.last().map_or_else(|| "0".to_owned(), |m| m.id.clone());
        let path = format!("{JOB}/stream?after={after}");
        let opened = client.open(Method::GET, &path, &[], "").await;
        let Some(response) = opened.ok().filter(|answer| answer.status().is_success()) else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut stream = Stream::of(client.events(response));
        while let Some(message) = stream.try_next().await {
            let is_last = message.data["batch"] == last;
            seen.push(message);
            if is_last {
                return seen;
            }
        }
    }
}

/// Sequences of each program as chunks join: ids by program and number.
fn joined(messages: &[Message]) -> BTreeMap<String, Vec<Vec<i64>>> {
    let mut programs: BTreeMap<String, Vec<Vec<i64>>> = BTreeMap::new();
    let number = |value: &Value| value.as_u64().expect("a number") as usize;
    for Message { kind, data, .. } in messages {
        let program = data["program"].as_str().unwrap_or_default();
        let sequences = programs.entry(program.to_owned()).or_default();
        if kind == "sequence" {
            assert_eq!(number(&data["sequence"]), sequences.len());
            let first = data["from"]
                .as_u64()
                .map(|from| sequences[from as usize].clone());
            let mut first = first.unwrap_or_default();
            first.truncate(number(&data["start"]));
            sequences.push(first);
        } else if kind == "chunk" {
            let sequence = &mut sequences[number(&data["sequence"])];
            assert_eq!(number(&data["start"]), sequence.len(), "{data}");
            let ids = data["ids"].as_array().expect("a list").iter();
            sequence.extend(ids.map(|id| id.as_i64().expect("an id")));
        }
    }
    programs
}

/// Ids of the sequences of each program in a batch.
fn of_payload(bytes: &[u8]) -> BTreeMap<String, Vec<Vec<i64>>> {
    let file = safetensors::SafeTensors::deserialize(bytes).expect("a payload");
    let tensor = |name: &str| file.tensor(name).expect("it is there");
    let wide = |name: &str| {
        let words = tensor(name).data().as_chunks().0.iter();
        words
            .map(|w| i64::from_le_bytes(*w) as usize)
            .collect::<Vec<_>>()
    };
    let ids = tensor("ids").data().as_chunks().0.iter();
    let ids: Vec<i64> = ids.map(|w| i64::from(i32::from_le_bytes(*w))).collect();
    let meta: Value = serde_json::from_slice(tensor("meta").data()).expect("JSON");
    let mut programs: BTreeMap<String, Vec<Vec<i64>>> = BTreeMap::new();
    let owners = wide("owner");
    for (bounds, owner) in wide("sequence_start").windows(2).zip(owners.chunks(3)) {
        let program = meta["members"][owner[1]]["program"]
            .as_str()
            .expect("a name");
        let sequences = programs.entry(program.to_owned()).or_default();
        sequences.push(ids[bounds[0]..bounds[1]].to_vec());
    }
    programs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_everything_once_while_the_daemon_is_killed() {
    const BATCHES: u64 = 6;
    let folder = tempfile::tempdir().expect("a folder");
    let engines = [engine(100_000).await, engine(100_000).await];
    let mut config = on_disk(folder.path());
    config.engines.endpoints = engines.iter().map(|e| endpoint(e.url())).collect();
    let mut daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let client = daemon.client.clone();
    let port = client.base().rsplit(':').next();
    let port = port.and_then(|port| port.parse().ok());
    config.server.listen.set_port(port.expect("a port"));
    let settings = json!({"group_size": 2, "batch_groups": 2, "capture": "tokens",
        "rewarded": false, "failures_max": 100, "lag_max": 100});
    insist(&client, Method::PUT, JOB, &[], &settings).await;
    let groups = 2 * BATCHES as u32;
    let agents = [0, 1].map(|number| tokio::spawn(agent(client.clone(), number, groups)));
    let followed = tokio::spawn(follow(client.clone(), BATCHES));
    let trained = tokio::spawn({
        let client = client.clone();
        async move {
            for number in 1..=BATCHES {
                let path = format!("{JOB}/batches/{number}?wait_s=2");
                while insist(&client, Method::GET, &path, &[], &Value::Null).await["ready"] != true
                {
                }
                let version = json!({"version": number});
                let path = format!("{JOB}/versions");
                insist(&client, Method::POST, &path, &[], &version).await;
            }
        }
    });
    for kill in 0..4_u64 {
        // Other points of the run each time, the same in each run of the test.
        tokio::time::sleep(Duration::from_millis(150 + kill * 7_919 % 300)).await;
        daemon.kill();
        daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    }
    let followed = tokio::time::timeout(2 * TIMEOUT, followed).await;
    let followed = followed.expect("it comes in time").expect("no panic");
    trained.await.expect("no panic");
    for agent in agents {
        agent.await.expect("no panic");
    }
    let mut whole = Stream::open(&client, "?after=0").await;
    let whole = whole.take(followed.len()).await;
    assert!(whole.is_sorted_by(|a, b| a.place() < b.place()));
    assert_eq!(followed, whole);
    let joined = joined(&whole);
    for number in 1..=BATCHES {
        for (program, sequences) in of_payload(&payload(&client, number, "").await) {
            let ended = |m: &&Message| m.kind == "ended" && m.data["program"] == *program;
            let ended = whole.iter().rfind(ended).expect("it ended");
            let layout = ended.data["sequences"].as_array().expect("a layout");
            assert_eq!(layout.len(), sequences.len(), "{program}");
            for (place, ids) in layout.iter().zip(sequences) {
                let [of, tokens] = ["sequence", "tokens"].map(|f| place[f].as_u64());
                let streamed = &joined[&program][of.expect("a number") as usize];
                assert_eq!(
                    streamed[..tokens.expect("a number") as usize],
                    ids,
                    "{program}"
                );
            }
        }
    }
    drop(daemon);
}
