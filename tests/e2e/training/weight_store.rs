//! Versions that go through the store of weights: the command line publishes what changed, the
//! daemon pulls and proves it, and engines load from a local folder.

mod nodes;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize_to_file};
use serde_json::{Value, json};
use treadle_config::EngineChoice;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{Fixture, MODEL};
use treadle_tests::support::process::binary;

use super::weights::{ended, serving, train};
use super::{declare, get};

/// Bytes of a tensor.
const TENSOR_BYTES: usize = 64 << 10;

/// A checkpoint as a trainer saves it; each tensor's bytes follow from its number.
fn save(folder: &Path, tensors: [u8; 3]) {
    std::fs::create_dir_all(folder).expect("a folder");
    let bytes = tensors.map(|seed| {
        let byte = |n: usize| (n as u8).wrapping_mul(31) ^ seed;
        (0..TENSOR_BYTES).map(byte).collect::<Vec<u8>>()
    });
    let views = bytes.iter().enumerate().map(|(nth, bytes)| {
        let view = TensorView::new(Dtype::U8, vec![TENSOR_BYTES], bytes).expect("a tensor");
        (format!("layers.{nth}.weight"), view)
    });
    serialize_to_file(views, None, &folder.join("model.safetensors")).expect("it is written");
    std::fs::write(folder.join("config.json"), "{}").expect("it is written");
}

/// The tensors in a folder, whatever files they are in.
fn tensors(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            let bytes = std::fs::read(&path).expect("a file");
            let file = SafeTensors::deserialize(&bytes).expect("a checkpoint");
            let read = |(name, view): (String, TensorView<'_>)| (name, view.data().to_vec());
            all.extend(file.tensors().into_iter().map(read));
        }
    }
    all
}

/// Runs `treadle weights` against the daemon.
async fn run(client: &Client, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(binary());
    command.arg("weights").args(arguments);
    command.args(["--job", "math", "--json", "--url", client.base()]);
    command.output().await.expect("it runs")
}

/// What `treadle weights` prints, which succeeds.
async fn weights(client: &Client, arguments: &[&str]) -> Value {
    let output = run(client, arguments).await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// The folder that an engine loaded its weights from.
async fn loaded_from(engine: &Client) -> String {
    let page = engine.get("/model_info").await.ok();
    page["model_path"].as_str().expect("a path").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_is_published_pulled_proven_and_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("UTF-8").to_owned();
    let fixture = Fixture::tuned(2, 10_000, |config| {
        config.weights.store = text("store");
        config.weights.folder = text("local");
        for endpoint in &mut config.engines.endpoints {
            endpoint.kind = Some(EngineChoice::Sglang);
        }
    })
    .await;
    let client = &fixture.client;
    let settings = json!({"group_size": 1, "batch_groups": 1, "rewarded": false, "lag_max": 3});
    declare(client, settings).await;
    let saved = text("saved");
    for version in 1..=3_u64 {
        train(client, version).await;
        // One tensor of three changes from one version to the next.
        save(&path("saved"), [version as u8, 7, 9]);
        let number = version.to_string();
        weights(
            client,
            &["publish", &saved, "--version", &number, "--store"],
        )
        .await;
        ended(client).await;
        serving(client, version).await;
        for engine in &fixture.engines {
            let loaded = loaded_from(&Client::new(engine.url())).await;
            assert!(Path::new(&loaded).starts_with(path("local")), "{loaded}");
            assert_eq!(tensors(Path::new(&loaded)), tensors(&path("saved")));
        }
        weights(client, &["verify", "--version", &number]).await;
    }
    let history = weights(client, &["history"]).await;
    let of_each = |field: &str| {
        let versions = history["versions"].as_array().expect("a list");
        versions
            .iter()
            .map(|version| version[field].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of_each("base"),
        [json!(null), json!(1), json!(2)],
        "{history}"
    );
    assert_eq!(of_each("tensors"), [3, 1, 1], "{history}");

    // A byte that flips in the host's copy is found, and its tensor fetched again.
    let client_of_engine = Client::new(fixture.engines[0].url());
    let local = loaded_from(&client_of_engine).await;
    let file = Path::new(&local).join("model.safetensors");
    let mut bytes = std::fs::read(&file).expect("a file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).expect("it is written");
    weights(client, &["pull", "--version", "3"]).await;
    assert_eq!(tensors(Path::new(&local)), tensors(&path("saved")));

    // What was never stored is refused, and engines serve what they had.
    train(client, 4).await;
    let unknown = json!({"version": 4});
    let answer = super::post(client, "/weights", unknown).await;
    let refusal = answer.refused(404, "weights_unknown");
    assert!(refusal.contains("version 4 is not in "), "{refusal}");
    serving(client, 3).await;
    assert_eq!(get(client, "").await.ok()["version"], 3);
    let body = json!({"model": MODEL, "prompt": "hello", "max_tokens": 2});
    client.post("/v1/completions", &body).await.ok();
    fixture.finish().await;
}
