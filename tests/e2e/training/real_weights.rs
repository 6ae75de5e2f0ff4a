//! Weights of real engines, which treadle loads from disk while they answer: each token is that of
//! the version on record for it, computed without any cache of another version.

use std::path::PathBuf;

use http::Method;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::metrics::Metrics;

use super::native::spans;
use super::real::{Engine, Kind, MEMBER, numbers};
use super::weights::{ended, serving, train};
use super::{declare, get, post, submit};
use crate::conversation::ids;
use crate::offload::moves::strangers;

/// The folder with checkpoints `1` and `2` of the engines' model, each with weights of its own.
const VARIABLE: &str = "TREADLE_TEST_WEIGHTS";
/// Tokens of an answer, whose generation takes longer than it takes to begin an update.
const TOKENS: usize = 500;
/// Events of an answer before the update.
const BEFORE: usize = 20;

/// A run that has trained as many batches as there are versions.
pub(crate) struct Run<'a> {
    client: &'a Client,
    folder: PathBuf,
}

impl<'a> Run<'a> {
    /// Declares it once both engines answer; `None` if there are no checkpoints.
    pub(crate) async fn begin(client: &'a Client) -> Option<Self> {
        let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            eprintln!("SKIPPED: {VARIABLE} names no folder with weights to load");
            return None;
        };
        let healthy = "treadle_worker_healthy";
        let both = |metrics: &Metrics| metrics.has(healthy) && metrics.count(healthy) == 2;
        client.until("both engines answer", both).await;
        let settings = json!({"group_size": 1, "batch_groups": 1, "capture": "tokens",
            "rewarded": false, "lag_max": 5});
        declare(client, settings).await;
        for number in 1..=2 {
            train(client, number).await;
        }
        Some(Self { client, folder })
    }

    /// Begins to load a version.
    pub(crate) async fn publish(&self, version: u64) {
        let folder = self.folder.join(version.to_string());
        let body = json!({"version": version, "folder": folder});
        post(self.client, "/weights", body).await.ok();
    }

    /// Checks that an update ended with this number of engines that serve the version.
    pub(crate) async fn ended(&self, version: u64, held: u64) {
        let view = ended(self.client).await;
        assert_eq!(view["last"]["held"], held, "{view}");
        assert_eq!(view["serving"]["version"], version, "{view}");
    }

    /// Waits until all engines serve a version.
    pub(crate) async fn serving(&self, version: u64) {
        serving(self.client, version).await;
    }

    /// What an engine has, by its id.
    pub(crate) async fn holding(&self, worker: u64) -> Value {
        let view = get(self.client, "/weights").await.ok();
        let mut rows = view["workers"].as_array().expect("a list").iter();
        let row = rows.find(|row| row["worker"] == worker);
        row.expect("it is there").clone()
    }
}

impl Engine {
    /// Its own path for tokens in and out.
    const fn path(&self) -> &'static str {
        match self.kind {
            Kind::Vllm => "/inference/v1/generate",
            Kind::Sglang => "/generate",
        }
    }

    /// A request for the likeliest tokens after these.
    fn request(&self, prompt: &[i64], tokens: usize) -> Value {
        let mut sampling = json!({"temperature": 0, "ignore_eos": true});
        match self.kind {
            Kind::Vllm => {
                sampling["max_tokens"] = json!(tokens);
                json!({"model": self.model, "token_ids": prompt, "sampling_params": sampling})
            }
            Kind::Sglang => {
                sampling["max_new_tokens"] = json!(tokens);
                json!({"input_ids": prompt, "sampling_params": sampling})
            }
        }
    }

    /// The likeliest tokens after these, when it is asked without treadle and has cached none.
    async fn likeliest(&self, prompt: &[i64], tokens: usize) -> Vec<i64> {
        let mut request = self.request(prompt, tokens);
        request["cache_salt"] = json!(format!("calm-{}", strangers(1)));
        let answer = self.client.post(self.path(), &request).await.ok();
        let (output, cached) = match self.kind {
            Kind::Vllm => (
                &answer["choices"][0]["token_ids"],
                &answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            ),
            Kind::Sglang => (&answer["output_ids"], &answer["meta_info"]["cached_tokens"]),
        };
        assert_eq!(cached.as_u64().unwrap_or(0), 0, "no cache has this salt");
        numbers(output)
    }
}

/// What both engines answer, which is the same.
async fn likeliest(engines: &[Engine; 2], prompt: &[i64], tokens: usize) -> Vec<i64> {
    let [first, second] = engines;
    let output = first.likeliest(prompt, tokens).await;
    assert_eq!(second.likeliest(prompt, tokens).await, output);
    output
}

/// The weights of both engines change while one of them streams the answer of a member.
pub(crate) async fn change_in_mid_stream(client: &Client, engines: &[Engine; 2]) {
    let Some(run) = Run::begin(client).await else {
        return;
    };
    submit(client, &["a"]).await;
    run.publish(1).await;
    run.ended(1, 2).await;
    let prompt = ids(strangers(1), 0, 100).into_iter();
    let prompt: Vec<i64> = prompt.map(i64::from).collect();
    let old = likeliest(engines, &prompt, TOKENS).await;

    let mut body = engines[0].request(&prompt, TOKENS);
    body["stream"] = json!(true);
    let path = engines[0].path();
    let answer = client.open(Method::POST, path, &MEMBER, body.to_string());
    let mut events = client.events(answer.await.expect("an answer"));
    for _ in 0..BEFORE {
        events.piece().await.expect("an event").expect("no break");
    }
    run.publish(2).await;
    let streamed = events.finish().await;
    assert!(streamed.is_done() && !streamed.broken);
    run.ended(2, 2).await;

    let found = get(client, "/members/agent/steps").await.ok();
    let step = &found["steps"][0];
    assert_eq!(numbers(&step["prompt"]), prompt);
    let output = numbers(&step["output"]);
    // The last number but one is 1 if the answer ended before version 2 was in service.
    let spans = spans(step);
    let [[0, changed, 1, 1], [from, end, _, 2]] = spans[..] else {
        panic!("{spans:?}");
    };
    assert_eq!((from, end), (changed, TOKENS as u64));
    let changed = changed as usize;
    assert_eq!(output[..changed], old[..changed]);
    assert_ne!(output[changed..], old[changed..], "the weights are others");
    // The engine has computed the caches of all tokens before it again.
    let context = [&prompt[..], &output[..changed]].concat();
    let new = likeliest(engines, &context, TOKENS - changed).await;
    assert_eq!(output[changed..], new);
}
