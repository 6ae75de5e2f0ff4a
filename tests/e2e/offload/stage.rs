//! Two llama.cpp servers with room for one program each, and programs that are too many for them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use treadle_config::{Config, Endpoint, EngineChoice};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::fixture::{COMPLETIONS, Fixture, config, streamed};
use treadle_tests::support::llama_server::{LlamaServer, python, tiny_model};

use crate::conversation::{answer_ids, ids, usage};

/// Slots of a server; programs get the first ones.
const SLOTS: u32 = 4;
/// The slot for undisturbed runs.
const CALM_SLOT: u32 = SLOTS - 1;
/// Tokens of an answer.
const ANSWER_TOKENS: usize = 8;
/// Tokens that a tool adds.
const TOOL_TOKENS: usize = 60;

/// The servers, and the folder of all state.
pub(super) struct Engines {
    pub(super) servers: Vec<LlamaServer>,
    folder: tempfile::TempDir,
    /// KV memory that each server is declared to have: more than one program's, less than two.
    capacity_tokens: u64,
}

impl Engines {
    /// Two servers for programs of `tokens` tokens; `None` if these tests are skipped.
    pub(super) async fn start(tokens: usize) -> Option<Self> {
        let python: PathBuf = python()?;
        let folder = tempfile::tempdir().expect("a folder");
        let model = tiny_model(&python, folder.path());
        let slots = folder.path().join("slots");
        std::fs::create_dir(&slots).expect("a folder");
        let mut servers = Vec::new();
        for _ in 0..2 {
            let shape = (SLOTS, tokens as u32 + 1_024);
            servers.push(LlamaServer::saving(&python, &model, shape, &slots).await);
        }
        Some(Self {
            servers,
            folder,
            capacity_tokens: tokens as u64 * 17 / 10,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A daemon's configuration with a host tier.
    pub(super) fn config(&self) -> Config {
        let mut config = config();
        let endpoint = |server: &LlamaServer| Endpoint {
            url: server.url().to_owned(),
            kind: Some(EngineChoice::Llamacpp),
            capacity_tokens: Some(self.capacity_tokens),
            class: None,
            role: None,
            profile: None,
        };
        config.engines.endpoints = self.servers.iter().map(endpoint).collect();
        config.scheduler.time_scale = 10.0;
        config.scheduler.starvation_s_max = 1;
        config.scheduler.quantum_share = 0.0;
        config.kv.host_bytes_max = 1 << 30;
        config.kv.host_tokens_max = 1_000_000;
        config.kv.transfer_s_max = 300;
        let path = |name: &str| self.folder().join(name).to_string_lossy().into_owned();
        config.kv.folder = path("tier");
        config.kv.slots_folder = path("slots");
        config
    }

    /// A daemon in front of the servers.
    pub(super) async fn gateway(&self, tune: impl FnOnce(&mut Config)) -> Fixture {
        let own = self.config();
        Fixture::tuned(0, 0, |config| {
            *config = own;
            tune(config);
        })
        .await
    }

    /// The server at a URL.
    pub(super) fn server(&self, url: &str) -> &LlamaServer {
        let found = self.servers.iter().find(|server| server.url() == url);
        found.expect("one of the two")
    }

    /// Compares a program's answers with those in an undisturbed slot, token for token.
    pub(super) async fn same_as_undisturbed(&self, talk: &Talk) {
        for (prompt, answer) in talk.prompts.iter().zip(&talk.answers) {
            let mut body = request(prompt);
            body["id_slot"] = json!(CALM_SLOT);
            let mut servers = self.servers.iter();
            let server = servers.find(|server| server.is_there());
            let server = server.expect("one of them lives");
            let calm = server.client.post(COMPLETIONS, &body).await.ok();
            assert_eq!(*answer, answer_ids(&calm["choices"][0]), "{}", talk.name);
        }
    }
}

fn request(prompt: &[u32]) -> Value {
    json!({
        "model": "tiny", "prompt": prompt, "max_tokens": ANSWER_TOKENS, "ignore_eos": true,
        "temperature": 0, "logprobs": 1,
    })
}

/// A program: its requests and answers.
#[derive(Clone)]
pub(super) struct Talk {
    pub(super) name: String,
    number: u32,
    tokens: usize,
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) answers: Vec<Vec<u32>>,
}

/// The result of a step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) cached: usize,
}

impl Talk {
    pub(super) fn new(name: &str, number: u32, tokens: usize) -> Self {
        Self {
            name: name.to_owned(),
            number,
            tokens,
            prompts: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Two programs, each for its own server. The first is shorter, so its server lacks less memory.
    pub(super) fn pair(tokens: usize) -> Vec<Self> {
        let shorter = tokens - tokens / 10;
        vec![Self::new("a", 1, shorter), Self::new("b", 2, tokens)]
    }

    /// Requests the next answer, with the whole conversation so far.
    pub(super) async fn step(&mut self, client: &Client) -> Step {
        let nth = self.prompts.len();
        let prompt = match (self.prompts.last(), self.answers.last()) {
            (Some(prompt), Some(answer)) => {
                let tool = ids(self.number, nth, TOOL_TOKENS);
                [&prompt[..], &answer[..], &tool[..]].concat()
            }
            _ => ids(self.number, 0, self.tokens),
        };
        let mut body = request(&prompt);
        body["program_id"] = json!(self.name);
        let mut events = client.stream(COMPLETIONS, &streamed(body)).await;
        events.piece().await.expect("an event").expect("no break");
        let ended = events.finish().await;
        assert!(ended.is_done() && !ended.broken, "{}", self.name);
        let events = ended.objects();
        let answer = events.iter().flat_map(|e| answer_ids(&e["choices"][0]));
        self.answers.push(answer.collect());
        self.prompts.push(prompt);
        assert_eq!(self.answers[nth].len(), ANSWER_TOKENS);
        Step {
            cached: usage(&events).cached as usize,
        }
    }
}

/// A program whose cache is in host memory, and the one that stays placed beside it.
pub(super) struct Gone {
    pub(super) talk: Talk,
    pub(super) other: String,
}

/// Two programs act, one at each server; then a third comes, `c`, and one of them has to go.
pub(super) async fn press(client: &Client, talks: &mut [Talk], tokens: usize) -> Gone {
    for talk in talks.iter_mut() {
        talk.step(client).await;
    }
    Talk::new("c", 3, tokens).step(client).await;
    let at_host = async || {
        let places = caches(client).await;
        talks
            .iter()
            .any(|talk| places[&talk.name]["cache"]["at"] == "host")
    };
    until("a cache is in host memory", at_host).await;
    let places = caches(client).await;
    let is_gone = |talk: &&Talk| places[&talk.name]["cache"]["at"] == "host";
    let gone = talks.iter().find(is_gone).expect("one of them");
    let other = talks.iter().find(|talk| talk.name != gone.name);
    Gone {
        talk: gone.clone(),
        other: other.expect("the other one").name.clone(),
    }
}

/// The live programs.
pub(crate) async fn caches(client: &Client) -> Value {
    client.get("/programs").await.ok()
}

/// Waits until a program's cache is somewhere.
pub(super) async fn until_at(client: &Client, program: &str, place: &str) {
    let is_there = async || caches(client).await[program]["cache"]["at"] == place;
    until(place, is_there).await;
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < TIMEOUT, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The servers of a program's steps.
pub(super) async fn workers_of(client: &Client, program: &str) -> Vec<Value> {
    let path = format!("/api/v1/programs/{program}/steps");
    let both = async || {
        let page = client.get(&path).await.ok();
        let steps = page["steps"].as_array();
        let ended = steps.map_or(0, |steps| {
            steps
                .iter()
                .filter(|step| step["outcome"].is_string())
                .count()
        });
        ended == 2
    };
    until("both steps are on record", both).await;
    let page = client.get(&path).await.ok();
    let steps = page["steps"].as_array().expect("a list").iter();
    steps.map(|step| step["worker"].clone()).collect()
}

pub(super) async fn release(client: &Client, program: &str) {
    let body = json!({"program_id": program});
    client.post("/programs/release", &body).await.ok();
}

pub(super) async fn release_everyone(client: &Client) {
    let programs = caches(client).await;
    for program in programs.as_object().expect("an object").keys() {
        release(client, program).await;
    }
}
