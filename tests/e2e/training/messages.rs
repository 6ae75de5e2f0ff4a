//! A training run over the message broker: only the tokens of its batches go over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use treadle_broker::{Deliveries, Queue};
use treadle_tests::support::broker::{Event, Peer, amqp_url, next};
use treadle_tests::support::client::Client;
use treadle_tests::support::process::DaemonProcess;

use super::{on_disk, sample};
use crate::restart::DAEMON;

/// A trainer and its rollouts, which speak AMQP only.
struct Run {
    peer: Peer,
    replies: Deliveries,
    commands: u64,
    answered: BTreeSet<String>,
}

impl Run {
    /// Sends a command about the job `math/1` with the next id, and returns the id.
    async fn send(&mut self, command: &str, mut fields: Value) -> String {
        self.commands += 1;
        fields["command"] = command.into();
        fields["job"] = "math/1".into();
        let id = format!("c-{}", self.commands);
        self.send_as(&id, &fields).await;
        id
    }

    async fn send_as(&self, id: &str, fields: &Value) {
        let body = fields.to_string();
        self.peer.ask(Queue::Training, id, id, &body).await;
    }

    async fn reply(&mut self, id: &str) -> Value {
        loop {
            let reply = next(&mut self.replies).await;
            let of = reply.correlation_id.clone().unwrap_or_default();
            let body = serde_json::from_slice(&reply.body).expect("JSON");
            reply.ack().await.expect("it is settled");
            if of == id {
                self.answered.insert(of);
                return body;
            }
            // Its daemon died before it could settle the command.
            assert!(self.answered.contains(&of), "{of} was answered before");
        }
    }

    async fn ask(&mut self, command: &str, fields: Value) -> Value {
        let id = self.send(command, fields).await;
        self.reply(&id).await
    }

    /// Begins and ends a member without its reward.
    async fn member(&mut self, program: &str, group: &str) {
        let wanted = json!({"program": program, "group": group, "wait_s": 30});
        let begun = self.ask("begin_member", wanted).await;
        assert_eq!(begun["content"], json!({"prompt": group}), "{begun}");
        let end = json!({"program": program, "end": "completed", "sample": sample(7)});
        let ended = self.ask("end_member", end).await;
        assert_eq!(ended["tokens"], 3, "{ended}");
    }

    async fn batch(&mut self, number: u64) -> Value {
        let asked = json!({"batch": number, "wait_s": 30});
        let batch = self.ask("get_batch", asked).await;
        assert_eq!(batch["ready"], true, "{batch}");
        batch
    }
}

/// Fetches what a batch refers to, and checks that it is that.
async fn fetched(client: &Client, batch: &Value) -> Vec<u8> {
    let payload = &batch["payload"];
    let path = payload["path"].as_str().expect("a path");
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}");
    let bytes = answer.body.to_vec();
    assert_eq!(payload["size_bytes"], bytes.len());
    let hash = digest(&SHA256, &bytes);
    let hex = hash.as_ref().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    assert_eq!(payload["digest"], format!("sha256:{hex}"));
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_run_goes_over_the_broker_and_a_killed_daemon_changes_nothing() {
    let Some(url) = amqp_url() else {
        return;
    };
    let peer = Peer::connect(&url, "training").await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = on_disk(folder.path());
    config.broker.url = url.as_str().into();
    config.broker.prefix.clone_from(&peer.prefix);
    let mut daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let replies = peer.replies().await;
    let mut run = Run {
        peer,
        replies,
        commands: 0,
        answered: BTreeSet::new(),
    };
    let settings = json!({"group_size": 2, "batch_groups": 1, "lag_max": 0, "capture": "tokens"});
    let declared = run.ask("declare_job", settings).await;
    assert_eq!(declared["settings"]["group_size"], 2, "{declared}");
    let groups = ["a", "b"].map(|key| json!({"group": key, "content": {"prompt": key}}));
    let submitted = run.ask("submit_groups", json!({"groups": groups})).await;
    assert_eq!(submitted["new"], 2, "{submitted}");
    run.member("p1", "a").await;
    run.member("p2", "a").await;

    // The next group waits for the trainer, who waits for rewards.
    let early = json!({"program": "p3", "group": "b"});
    let waits = run.ask("begin_member", early).await;
    assert_eq!(waits["waits"][0]["waits_for"], "trainer", "{waits}");
    let early = run.ask("get_batch", json!({"batch": 1})).await;
    assert_eq!(early["ready"], false, "{early}");
    let reward = json!({"program": "p1", "reward": 1.0});
    let first = run.ask("reward_member", reward).await;
    let first_id = format!("c-{}", run.commands);

    // A command that is sent while no daemon runs is executed by the next one.
    daemon.kill();
    let better = json!({"program": "p1", "reward": 2.0});
    let id = run.send("reward_member", better).await;
    daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    assert_eq!(run.reply(&id).await, first);
    // One that comes again after a restart has the same reply, and changes nothing.
    let again = json!({"command": "reward_member", "job": "math/1", "program": "p1",
        "reward": 1.0});
    run.send_as(&first_id, &again).await;
    assert_eq!(run.reply(&first_id).await, first);
    let last = json!({"program": "p2", "reward": 0.25});
    run.ask("reward_member", last).await;
    let batch = run.batch(1).await;
    let members = &batch["groups"][0]["members"];
    assert_eq!(members[0]["reward"], 2.0, "{batch}");
    assert_eq!(members[1]["reward"], 0.25, "{batch}");
    let bytes = fetched(&daemon.client, &batch).await;

    the_next_group_begins(&mut run).await;
    the_batch_comes_again(&mut run, &daemon.client, &batch, &bytes).await;
    let forget = json!({"command": "release_job", "job": "math/1", "forget": true});
    run.peer
        .send(Queue::Commands, "forget", &forget.to_string())
        .await;
    events_of_the_run(&mut run.peer).await;
    daemon.kill();
    run.peer.clean_up().await;
}

/// It does once the weights are new.
async fn the_next_group_begins(run: &mut Run) {
    let wanted = json!({"program": "p3", "group": "b", "wait_s": 60});
    let wanted = run.send("begin_member", wanted).await;
    for (command, fields) in [
        ("report_trained", json!({"batch": 1, "lineage": 0})),
        ("report_version", json!({"version": 1, "digest": "w1"})),
        ("report_checkpoint", json!({"batch": 0})),
    ] {
        run.send(command, fields).await;
    }
    let mut answers = BTreeMap::new();
    for _ in 0..4 {
        let reply = next(&mut run.replies).await;
        let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
        answers.insert(reply.correlation_id.clone().unwrap_or_default(), body);
        reply.ack().await.expect("it is settled");
    }
    assert_eq!(answers[&wanted]["version"], 1, "{answers:?}");
    let last = &answers[&format!("c-{}", run.commands)];
    assert_eq!(
        (&last["version"], &last["checkpoint"]),
        (&json!(1), &json!(0))
    );
}

/// Back to the beginning: the batch comes again, byte for byte.
async fn the_batch_comes_again(run: &mut Run, client: &Client, batch: &Value, bytes: &[u8]) {
    let resumed = run
        .ask("resume_job", json!({"batch": 0, "lineage": 0}))
        .await;
    assert_eq!(resumed["lineage"], 1, "{resumed}");
    let again = run.batch(1).await;
    assert_eq!(again["payload"], batch["payload"]);
    assert_eq!(fetched(client, &again).await, bytes);
    let old = json!({"version": 1, "lineage": 0});
    let old = run.ask("report_version", old).await;
    assert_eq!(old["error"]["code"], "version_conflict", "{old}");
    run.ask("report_version", json!({"version": 1, "lineage": 1}))
        .await;
    let saved = run.ask("report_checkpoint", json!({"batch": 1})).await;
    assert_eq!(saved["checkpoint"], 1, "{saved}");
    let gone = run.ask("get_batch", json!({"batch": 1})).await;
    assert_eq!(gone["error"]["code"], "batch_released", "{gone}");
    let job = run.ask("show_job", json!({})).await;
    assert_eq!(job["account"]["served"]["members"], 2, "{job}");
}

/// All that happened to the run was published, with keys that can be bound together.
async fn events_of_the_run(peer: &mut Peer) {
    let mut seen = BTreeMap::new();
    let key = |event: &str| format!("default.math/1.training.{event}");
    let is_end = |event: &Event| event.key == key("job_removed");
    peer.events_until(&mut seen, is_end).await;
    let count = |event: &str| {
        let own = seen.values().filter(|e| e.key == key(event));
        own.count()
    };
    for (event, times) in [
        ("job_declared", 1),
        ("group_submitted", 2),
        ("member_ended", 2),
        ("reward_given", 3),
        ("batch_trained", 1),
        ("version_told", 2),
        ("checkpointed", 2),
        ("rolled_back", 1),
    ] {
        assert_eq!(count(event), times, "{event}");
    }
}
