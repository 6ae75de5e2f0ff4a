//! Engines of another machine: the agent of its node pulls versions there, and proves them.

use super::*;
use crate::actions::with_actions;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use treadle_tests::support::fixture::engine;
use treadle_tests::support::process::DaemonProcess;

const SECRET: &str = "what a daemon and its node share";
/// Stands in for another machine: this one's address, written such that nothing takes it for one.
const HOST: &str = "127.1";

/// The agent of the node that has the engines.
async fn agent(fixture: &Fixture, folder: &Path) -> DaemonProcess {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = listener.local_addr().expect("its address");
    drop(listener);
    let advertised = format!("http://{HOST}:{}", listen.port());
    let path = |name: &str| folder.join(name).display().to_string();
    let sets = [
        format!("cluster.secret={SECRET}"),
        format!("weights.store={}", path("store")),
        format!("weights.folder={}", path("local")),
    ];
    let (daemon, state) = (fixture.client.base(), path("node"));
    let mut arguments = vec!["--daemon", daemon, "--name", "gpu-1", "--folder", &state];
    arguments.extend(["--advertise", &advertised]);
    for set in &sets {
        arguments.extend(["--set", set]);
    }
    let agent = DaemonProcess::run("node-agent", &listen.to_string(), &arguments).await;
    for _ in 0..600 {
        let nodes = fixture.client.get("/api/v1/nodes").await.ok();
        if nodes["nodes"][0]["state"] == "ready" {
            return agent;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", fixture.client.get("/api/v1/nodes").await.ok());
}

/// Changes the last byte of the tensors in a folder.
fn flip(folder: &Path) {
    let files = std::fs::read_dir(folder).expect("a folder");
    let mut files = files.map(|entry| entry.expect("an entry").path());
    let tensors = |path: &PathBuf| path.extension().is_some_and(|end| end == "safetensors");
    let file = files.find(tensors).expect("tensors");
    let mut bytes = std::fs::read(&file).expect("a file");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&file, bytes).expect("it is written");
}

/// Why the last update left the engine behind.
async fn behind(client: &Client, version: u64) -> String {
    let last = ended(client).await["last"].clone();
    assert_eq!(last["weights"]["version"], version, "{last}");
    let cause = last["behind"][0]["cause"].as_str();
    cause.unwrap_or_else(|| panic!("{last}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_pulls_and_proves_versions_for_the_engines_of_its_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("UTF-8").to_owned();
    let fixture = Fixture::around(vec![engine(10_000).await], |config| {
        with_actions(config, folder.path(), 1);
        config.cluster.secret = SECRET.into();
        config.weights.store = text("store");
        config.weights.folder = text("local");
        let at_node = &mut config.engines.endpoints[0];
        at_node.url = at_node.url.replace("127.0.0.1", HOST);
        at_node.kind = Some(EngineChoice::Sglang);
    })
    .await;
    let client = &fixture.client;
    let settings = json!({"group_size": 1, "batch_groups": 1, "rewarded": false, "lag_max": 3});
    declare(client, settings).await;
    let node = agent(&fixture, folder.path()).await;
    let saved = text("saved");
    let of_engine = Client::new(fixture.engines[0].url());
    let mut loaded = PathBuf::new();
    for version in 1..=2_u64 {
        train(client, version).await;
        save(&path("saved"), [version as u8, 7, 9]);
        if version > 1 {
            // A byte that flips there is not taken over into the next version.
            flip(&loaded);
        }
        let number = version.to_string();
        let arguments = ["publish", &saved, "--version", &number, "--store"];
        weights(client, &arguments).await;
        serving(client, version).await;
        loaded = loaded_from(&of_engine).await.into();
        assert!(loaded.starts_with(path("local")), "{}", loaded.display());
        assert_eq!(tensors(&loaded), tensors(&path("saved")));
    }
    let history = weights(client, &["history"]).await;
    let second = &history["versions"][1];
    assert_eq!(
        (&second["base"], &second["tensors"]),
        (&json!(1), &json!(1))
    );

    // Nobody else pulls for them, and what does not prove is not loaded.
    node.kill();
    train(client, 3).await;
    save(&path("saved"), [3, 7, 9]);
    let arguments = ["publish", &saved, "--version", "3", "--store"];
    let published = run(client, &arguments).await;
    assert!(!published.status.success(), "no engine serves it");
    let cause = behind(client, 3).await;
    assert!(cause.contains("agent"), "{cause}");
    flip(&path("store/math/0/weight_v000003"));
    let node = agent(&fixture, folder.path()).await;
    super::super::post(client, "/weights", json!({"version": 3}))
        .await
        .ok();
    let cause = behind(client, 3).await;
    assert!(cause.contains("version 3 is damaged"), "{cause}");
    serving(client, 2).await;
    assert_eq!(Path::new(&loaded_from(&of_engine).await), loaded);
    node.kill();
    fixture.finish().await;
}
