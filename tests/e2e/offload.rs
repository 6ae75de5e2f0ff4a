//! KV caches that outlive a pause: two real llama.cpp servers whose slots go to files and come back,
//! what happens when something breaks meanwhile, and the same with simulated engines.

mod faults;
pub(crate) mod moves;
mod simulated;
pub(crate) mod stage;

use serde_json::Value;
use stage::{Engines, Talk};

use crate::restart::DAEMON;
use treadle_tests::support::process::DaemonProcess;

/// Context of a program, in tokens.
const SHORT: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_comes_back_to_its_server() {
    Box::pin(comes_back(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_comes_back_to_the_other_server() {
    Box::pin(comes_back(true)).await;
}

/// Offloads a program's cache under pressure and restores it, on the same server or on the other.
async fn comes_back(to_other: bool) {
    let Some(engines) = Engines::start(SHORT).await else {
        return;
    };
    let fixture = engines.gateway(|_| ()).await;
    let client = &fixture.client;
    let mut talks = Talk::pair(SHORT);
    let mut gone = stage::press(client, &mut talks, SHORT).await;
    // The two programs have swapped servers.
    let leaves = if to_other { gone.other.as_str() } else { "c" };
    stage::release(client, leaves).await;
    let talk = &mut gone.talk;
    let answer = talk.step(client).await;
    let history = talk.prompts[0].len() + talk.answers[0].len();
    assert!(
        answer.cached >= history - 2,
        "{} of {history}",
        answer.cached
    );
    let workers = stage::workers_of(client, &talk.name).await;
    assert_eq!(workers[0] != workers[1], to_other, "{workers:?}");
    let metrics = client.metrics().await;
    assert!(metrics.count("treadle_kv_offloads_total") >= 1);
    assert!(metrics.count("treadle_kv_loads_total") >= 1);
    assert_eq!(metrics.count("treadle_kv_transfers_failed_total"), 0);
    engines.same_as_undisturbed(talk).await;
    stage::release_everyone(client).await;
    let mut stranger = Talk::new("cold", 77, talk.prompts[1].len());
    let cold = stranger.step(client).await;
    assert!(cold.cached < SHORT / 10, "nobody knew these tokens");
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foresight_has_caches_of_real_servers_leave_and_come_back() {
    let Some(engines) = Engines::start(SHORT).await else {
        return;
    };
    let fixture = engines.gateway(|config| config.kv.retention = true).await;
    let client = &fixture.client;
    let mut talks = Talk::pair(SHORT);
    let mut gone = stage::press(client, &mut talks, SHORT).await;
    let path = format!("/api/v1/programs/{}/decisions", gone.talk.name);
    let page = client.get(&path).await.ok();
    let decisions = page["decisions"].as_array().expect("a list");
    let by_foresight = |decision: &Value| {
        let policy = decision["policy"].as_str().unwrap_or_default();
        decision["kind"] == "offload" && policy.starts_with("foresight-eviction@")
    };
    assert!(decisions.iter().any(by_foresight), "{page}");
    stage::release(client, "c").await;
    let talk = &mut gone.talk;
    let answer = talk.step(client).await;
    let history = talk.prompts[0].len() + talk.answers[0].len();
    let cached = answer.cached;
    assert!(cached >= history - 2, "{cached} of {history}");
    engines.same_as_undisturbed(talk).await;
    stage::release_everyone(client).await;
    fixture.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_outlive_the_daemon() {
    let Some(engines) = Engines::start(SHORT).await else {
        return;
    };
    let mut config = engines.config();
    let folder = engines.folder();
    config.store.path = folder.join("treadle.db").to_string_lossy().into_owned();
    let daemon = DaemonProcess::start(DAEMON, &config, folder).await;
    let mut talks = Talk::pair(SHORT);
    let mut gone = stage::press(&daemon.client, &mut talks, SHORT).await;
    let journaled = async || {
        let path = "/api/v1/events?kind=program_offloaded";
        let events = daemon.client.get(path).await.ok();
        !events["events"].as_array().expect("a list").is_empty()
    };
    stage::until("the offload is on record", journaled).await;
    daemon.kill();
    // This one is unknown.
    let stray = folder.join("tier").join("notes.txt");
    std::fs::write(&stray, "mine").expect("a file");
    let daemon = DaemonProcess::start(DAEMON, &config, folder).await;
    stage::release(&daemon.client, "c").await;
    let talk = &mut gone.talk;
    let answer = talk.step(&daemon.client).await;
    let history = talk.prompts[0].len() + talk.answers[0].len();
    assert!(
        answer.cached >= history - 2,
        "{} of {history}",
        answer.cached
    );
    let metrics = daemon.client.metrics().await;
    assert_eq!(metrics.count("treadle_kv_copies_lost_total"), 0);
    assert!(metrics.count("treadle_kv_loads_total") >= 1);
    assert!(stray.exists(), "what is not the tier's stays");
    engines.same_as_undisturbed(talk).await;
    daemon.kill();
}
