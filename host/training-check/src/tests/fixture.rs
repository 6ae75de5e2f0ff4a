//! A good run, built by hand, into which tests inject bugs.

use crate::{Error, Received, Recorded, Report, check, read_batches, read_events};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// Tokens of a member: the first is its prompt, all others were sampled with one version.
#[derive(Clone)]
pub(super) struct Tokens {
    pub(super) group: i64,
    pub(super) program: &'static str,
    pub(super) ids: Vec<i32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) version: u64,
    pub(super) reward: f64,
    pub(super) sample: String,
}

/// What the journal and the trainer have of a run.
pub(super) struct Fixture {
    pub(super) events: Vec<Value>,
    /// By the stems of their files.
    pub(super) batches: BTreeMap<&'static str, Value>,
    pub(super) payloads: BTreeMap<&'static str, Vec<Tokens>>,
    pub(super) meta: Value,
}

pub(super) fn tokens(program: &'static str, version: u64, reward: f64) -> Tokens {
    let ids = vec![7, 1, i32::from(program.as_bytes()[1]), version as i32];
    let logprobs = vec![-0.5, -0.25, -1.0];
    let long = |numbers: [u64; 4]| numbers.map(u64::to_le_bytes).concat();
    let mut bytes = long([4, 0, 0, 0])[..8].to_vec();
    bytes.extend(ids.iter().flat_map(|id: &i32| id.to_le_bytes()));
    bytes.extend(&long([1, 1, 4, 0])[..24]);
    bytes.extend(logprobs.iter().flat_map(|p: &f32| p.to_le_bytes()));
    bytes.extend(long([1, 1, 4, version]));
    Tokens {
        group: 0,
        program,
        ids,
        logprobs,
        version,
        reward,
        sample: format!("sha256:{:x}", Sha256::digest(bytes)),
    }
}

fn member(event: &str, program: &str) -> Value {
    let group = program.split('-').next();
    json!({"event": event, "member": {"job": "math", "group": group, "program": program}})
}

fn with(mut event: Value, field: &str, value: Value) -> Value {
    event[field] = value;
    event
}

pub(super) fn arrived(program: &str) -> Value {
    member("member_arrived", program)
}

pub(super) fn ended(program: &str, end: &str) -> Value {
    let event = with(member("member_ended", program), "end", end.into());
    with(with(event, "tokens", 3.into()), "turns", 1.into())
}

/// `member_dropped`.
pub(super) fn dropped(program: &str, end: &str) -> Value {
    with(member("member_dropped", program), "end", end.into())
}

pub(super) fn rewarded(program: &str, reward: &str) -> Value {
    with(member("reward_given", program), "reward", reward.into())
}

pub(super) fn reward_failed(program: &str) -> Value {
    with(member("reward_failed", program), "cause", "late".into())
}

/// `step_captured` or `capture_failed`.
pub(super) fn captured(event: &str, program: &str) -> Value {
    let event = with(member(event, program), "step", 17.into());
    let event = with(event, "digest", "sha256:00".into());
    with(with(event, "tokens", 3.into()), "cause", "no ids".into())
}

/// The report of a member with its sample.
fn reported(tokens: &Tokens) -> Value {
    let event = ended(tokens.program, "completed");
    let event = with(event, "sample", tokens.sample.clone().into());
    with(event, "version", tokens.version.into())
}

pub(super) fn of_batch(event: &str, batch: u64) -> Value {
    json!({"event": event, "job": "math", "batch": batch})
}

pub(super) fn told(lineage: u32, version: u64) -> Value {
    json!({"event": "version_told", "job": "math", "lineage": lineage, "version": version})
}

pub(super) fn served(lineage: u32, version: u64) -> Value {
    json!({"event": "version_served", "job": "math", "lineage": lineage, "version": version})
}

fn submitted(group: &str, size: Option<u64>) -> Value {
    json!({"event": "group_submitted", "job": "math", "group": group, "size": size})
}

fn batch(number: u64, lineage: u64, version: u64, members: &[Tokens]) -> Value {
    let shown = |tokens: &Tokens| {
        json!({"program": tokens.program, "end": "completed",
        "reward": tokens.reward, "version": tokens.version, "tokens": 3, "turns": 1,
        "sample": tokens.sample, "info": null})
    };
    let members: Vec<Value> = members.iter().map(shown).collect();
    json!({"job": "math", "batch": number, "ready": true, "lineage": lineage, "trained": false,
        "trained_on": number - 1,
        "groups": [{"group": format!("p{number}"), "content": {"question": "17 * 23"},
            "version": version, "lag": number - 1 - version, "members": members}]})
}

impl Fixture {
    /// Three batches. `p1-a` has two rewards, and one of `p2-b` comes after the request. `p2-x`
    /// failed. `p3-a` arrived before the trainer went back to batch 1 and began after it.
    pub(super) fn good() -> Self {
        let first = [tokens("p1-a", 0, 1.0), tokens("p1-b", 0, 0.0)];
        let second = [tokens("p2-a", 0, 0.1 + 0.2), tokens("p2-b", 1, -1.0)];
        let third = [tokens("p3-a", 1, 0.5)];
        let settings =
            json!({"group_size": 2, "batch_groups": 1, "lag_max": 1, "capture": "tokens"});
        let events = vec![
            json!({"event": "worker_removed", "worker": 4}),
            json!({"event": "program_released", "program": "before"}),
            json!({"event": "job_declared", "job": "math", "settings": settings}),
            submitted("p1", None),
            submitted("p3", Some(1)),
            arrived("p1-a"),
            arrived("p1-b"),
            rewarded("p1-a", "0.25"),
            reported(&first[0]),
            rewarded("p1-a", "1"),
            rewarded("p1-b", "0"),
            reported(&first[1]),
            of_batch("batch_requested", 1),
            arrived("p2-a"),
            of_batch("batch_trained", 1),
            told(0, 1),
            of_batch("checkpointed", 1),
            arrived("p2-x"),
            ended("p2-x", "engine_failed"),
            arrived("p2-b"),
            with(reported(&second[0]), "reward", "0.30000000000000004".into()),
            reported(&second[1]),
            rewarded("p2-b", "2"),
            of_batch("batch_requested", 2),
            rewarded("p2-b", "-1"),
            of_batch("batch_trained", 2),
            told(0, 2),
            arrived("p3-a"),
            json!({"event": "rolled_back", "job": "math", "lineage": 0, "batch": 1}),
            told(1, 1),
            of_batch("batch_requested", 2),
            of_batch("batch_trained", 2),
            told(1, 2),
            reported(&third[0]),
            json!({"event": "program_rewarded", "program": "p3-a", "reward_millionths": 500_000}),
            of_batch("batch_requested", 3),
            of_batch("batch_trained", 3),
            told(1, 3),
        ];
        let batches = BTreeMap::from([
            ("batch-1", batch(1, 0, 0, &first)),
            ("batch-2", batch(2, 0, 0, &second)),
            ("batch-2.1", batch(2, 1, 0, &second)),
            ("batch-3", batch(3, 1, 1, &third)),
        ]);
        let payloads = BTreeMap::from([
            ("batch-1", first.to_vec()),
            ("batch-2", second.to_vec()),
            ("batch-2.1", second.to_vec()),
            ("batch-3", third.to_vec()),
        ]);
        Self {
            events,
            batches,
            payloads,
            meta: json!({"job": "math"}),
        }
    }

    /// Has a member of the first group end well before the batch was requested.
    pub(super) fn sample(&mut self, program: &'static str) {
        let tokens = tokens(program, 0, 0.0);
        let events = [arrived(program), rewarded(program, "0"), reported(&tokens)];
        let at = self.at("batch_requested", "\"batch\":1");
        self.events.splice(at..at, events);
    }

    /// The position of the last event of a kind that has this text.
    pub(super) fn at(&self, kind: &str, text: &str) -> usize {
        let is = |event: &Value| event["event"] == kind && event.to_string().contains(text);
        self.events.iter().rposition(is).expect("such an event")
    }

    /// The first group of a batch.
    pub(super) fn group(&mut self, stem: &str) -> &mut Value {
        &mut self.batches.get_mut(stem).expect("a batch")["groups"][0]
    }

    pub(super) fn payload(&mut self, stem: &str) -> &mut Vec<Tokens> {
        self.payloads.get_mut(stem).expect("a payload")
    }

    /// The events as lines, each with its number.
    pub(super) fn lines(&self) -> String {
        let row = |(seq, event)| json!({"seq": seq, "at_us": 5, "event": event}).to_string() + "\n";
        (1..).zip(&self.events).map(row).collect()
    }

    pub(super) fn recorded(&self) -> Vec<Recorded> {
        read_events(self.lines().as_bytes()).expect("events")
    }

    pub(super) fn received(&self) -> Result<Vec<Received>, Error> {
        let folder = tempfile::tempdir().expect("a folder");
        self.write(folder.path());
        read_batches(folder.path(), "math")
    }

    pub(super) fn report(&self) -> Report {
        check(&self.recorded(), &self.received().expect("batches"))
    }

    pub(super) fn write(&self, folder: &Path) {
        for (stem, batch) in &self.batches {
            let path = folder.join(format!("{stem}.json"));
            std::fs::write(path, batch.to_string()).expect("written");
        }
        for (stem, members) in &self.payloads {
            let path = folder.join(format!("{stem}.safetensors"));
            let batch = &self.batches[stem];
            std::fs::write(path, encode(members, batch, &self.meta)).expect("written");
        }
    }
}

fn encode(members: &[Tokens], batch: &Value, meta: &Value) -> Vec<u8> {
    let named = |tokens: &Tokens| json!({"program": tokens.program, "sample": tokens.sample});
    let mut meta = meta.clone();
    meta["batch"] = batch["batch"].clone();
    meta["groups"] = json!([batch["groups"][0]["group"]]);
    meta["members"] = members.iter().map(named).collect();
    meta["versions"] = members.iter().map(|tokens| json!(tokens.version)).collect();
    let mut starts = vec![0];
    let (mut sampled, mut versions, mut owner) = (Vec::new(), Vec::new(), Vec::new());
    for (index, tokens) in (0_i64..).zip(members) {
        let length = i64::try_from(tokens.ids.len()).expect("few tokens");
        starts.push(starts.last().copied().unwrap_or(0) + length);
        sampled.extend([index, 1, length]);
        versions.extend([index, 1, length, index]);
        owner.extend([tokens.group, index, 0]);
    }
    let ids = members.iter().flat_map(|tokens| &tokens.ids);
    let logprobs = members.iter().flat_map(|tokens| &tokens.logprobs);
    Columns {
        ids: ids.copied().collect(),
        logprobs: logprobs.copied().collect(),
        starts,
        sampled,
        versions,
        owner,
        rewards: members.iter().map(|tokens| tokens.reward).collect(),
        meta: meta.to_string(),
    }
    .encode()
}

/// The tensors of a payload, as numbers.
pub(super) struct Columns {
    pub(super) ids: Vec<i32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) starts: Vec<i64>,
    pub(super) sampled: Vec<i64>,
    pub(super) versions: Vec<i64>,
    pub(super) owner: Vec<i64>,
    pub(super) rewards: Vec<f64>,
    pub(super) meta: String,
}

impl Columns {
    pub(super) fn encode(&self) -> Vec<u8> {
        let long =
            |numbers: &[i64]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
        let ids: Vec<u8> = self.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let logprobs: Vec<u8> = self.logprobs.iter().flat_map(|p| p.to_le_bytes()).collect();
        let rewards: Vec<u8> = self.rewards.iter().flat_map(|r| r.to_le_bytes()).collect();
        let rows = |numbers: &[i64], width: usize| vec![numbers.len() / width, width];
        let meta = self.meta.as_bytes();
        let tensors = [
            ("ids", Dtype::I32, vec![self.ids.len()], ids),
            ("logprobs", Dtype::F32, vec![self.logprobs.len()], logprobs),
            ("meta", Dtype::U8, vec![meta.len()], meta.to_vec()),
            ("owner", Dtype::I64, rows(&self.owner, 3), long(&self.owner)),
            ("reward", Dtype::F64, vec![self.rewards.len()], rewards),
            (
                "sampled",
                Dtype::I64,
                rows(&self.sampled, 3),
                long(&self.sampled),
            ),
            (
                "sequence_start",
                Dtype::I64,
                vec![self.starts.len()],
                long(&self.starts),
            ),
            (
                "versions",
                Dtype::I64,
                rows(&self.versions, 4),
                long(&self.versions),
            ),
        ];
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (
                *name,
                TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"),
            )
        });
        serialize(views, None).expect("a payload")
    }
}
