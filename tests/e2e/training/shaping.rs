//! Shaping policies: groups sample more members than are trained, some are cut, and batches have
//! those that were selected.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;
use treadle_tests::support::policy::guest;

use super::{batch, declare, get, on_disk, payload, post, proven, put, step};
use crate::plugins::crowd::{put_binding, upload};

async fn bind(client: &Client, policy: &str, config: Value) {
    upload(client, "/api/v1/plugins", guest(policy)).await.ok();
    let binding = json!({"world": "shaping", "policy": policy, "job": "math", "config": config});
    put_binding(client, &binding).await.ok();
}

async fn submit(client: &Client, keys: [&str; 2], prompts: [&str; 2]) {
    let groups = keys.iter().zip(prompts);
    let groups = groups.map(|(key, prompt)| json!({"group": key, "content": {"prompt": prompt}}));
    let groups: Vec<Value> = groups.collect();
    post(client, "/groups", json!({"groups": groups}))
        .await
        .ok();
}

/// Begins members until no group needs another one; returns the programs of each group.
async fn begin_all(client: &Client, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0.. {
        let program = format!("{prefix}{number}");
        let begun = post(client, "/members", json!({"program": program})).await;
        if begun.status == 202 {
            break;
        }
        let group = begun.ok()["group"].as_str().expect("a group").to_owned();
        groups.entry(group).or_default().push(program);
    }
    groups
}

/// A member ends that has sampled this many tokens.
async fn end(client: &Client, program: &str, tokens: usize) -> u16 {
    let sample = json!({"steps": [
        {"prompt": [1, 2], "output": vec![3; tokens], "logprobs": vec![-0.5; tokens]},
    ]});
    let report = json!({"end": "completed", "reward": 1.0, "sample": sample});
    let ended = put(client, &format!("/members/{program}"), &report).await;
    ended.status.as_u16()
}

/// The trainer takes a batch and keeps it; returns the lengths of each group's members.
async fn train(client: &Client, folder: &Path, number: u64) -> BTreeMap<String, Vec<u64>> {
    let (view, _) = batch(client, number).await;
    let whole = get(client, &format!("/batches/{number}")).await.ok();
    let file = |ending: &str| folder.join(format!("batch-{number}.{ending}"));
    std::fs::write(file("json"), whole.to_string()).expect("it is written");
    let tokens = payload(client, number, "").await;
    std::fs::write(file("safetensors"), tokens).expect("it is written");
    let trained = format!("/batches/{number}/trained");
    post(client, &trained, json!({})).await.ok();
    post(client, "/versions", json!({"version": number}))
        .await
        .ok();
    let groups = view["groups"].as_array().expect("groups").iter();
    let of_group = |group: &Value| {
        let members = group["members"].as_array().expect("members").iter();
        let lengths = members.map(|member| member["tokens"].as_u64().expect("a number"));
        let mut lengths: Vec<u64> = lengths.collect();
        lengths.sort_unstable();
        (group["group"].as_str().expect("a key").to_owned(), lengths)
    };
    groups.map(of_group).collect()
}

/// DARTS: groups of two sample three before anything is known of lengths. Then the prompt whose
/// lengths spread gets four, the other one two, and of the four the first two to end are trained.
#[tokio::test(flavor = "multi_thread")]
async fn batches_have_the_members_that_darts_selects() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = on_disk(folder.path());
    let fixture = Fixture::tuned(1, 10_000, |config| config.store = disk.store).await;
    let client = &fixture.client;
    bind(client, "darts-shaping", json!({"early_stop": "first"})).await;
    let settings = json!({"group_size": 2, "batch_groups": 2, "capture": "tokens"});
    declare(client, settings).await;
    submit(client, ["a1", "b1"], ["a", "b"]).await;
    let groups = begin_all(client, "p").await;
    let lengths = BTreeMap::from([("a1", [2, 40, 6]), ("b1", [5, 5, 5])]);
    for (group, programs) in &groups {
        assert_eq!(programs.len(), 3, "{groups:?}");
        for (program, tokens) in programs.iter().zip(lengths[&**group]) {
            assert_eq!(end(client, program, tokens).await, 200);
        }
    }
    let trained = train(client, folder.path(), 1).await;
    assert_eq!(trained["a1"], [2, 40], "the shortest and the longest");
    assert_eq!(trained["b1"], [5, 5]);

    submit(client, ["a2", "b2"], ["a", "b"]).await;
    let groups = begin_all(client, "q").await;
    let (a, b) = (&groups["a2"], &groups["b2"]);
    assert_eq!((a.len(), b.len()), (4, 2), "{groups:?}");
    for program in b.iter().chain(&a[2..]) {
        assert_eq!(end(client, program, 7).await, 200);
    }
    assert_eq!(end(client, &a[0], 1).await, 404, "it was cut");
    let again = json!({"program": a[0], "group": "a2"});
    post(client, "/members", again)
        .await
        .refused(409, "member_dropped");
    let trained = train(client, folder.path(), 2).await;
    assert_eq!(trained["a2"], [7, 7]);

    let account = get(client, "").await.ok()["account"].clone();
    let counts = |field: &Value| (field["members"].clone(), field["tokens"].clone());
    assert_eq!(counts(&account["served"]), (json!(8), json!(80)));
    assert_eq!(counts(&account["finished"]), (json!(10), json!(91)));
    let lost = &account["lost"];
    assert_eq!(counts(&lost["unselected"]), (json!(2), json!(11)));
    assert_eq!(counts(&lost["curtailed"]), (json!(2), json!(0)));
    let report = proven(client, folder.path());
    assert_eq!(report["batches"], 2, "{report}");
    fixture.finish().await;
}

/// Redundant rollouts: a group of two begins three programs. An environment that fails needs no
/// replacement, and one that is slow holds nobody up: it ends once two are done.
#[tokio::test(flavor = "multi_thread")]
async fn failed_and_slow_environments_hold_no_group_up() {
    let fixture = Fixture::start(1, 10_000).await;
    let client = &fixture.client;
    bind(client, "uniform-shaping", json!({"ratio": 1.5})).await;
    let settings = json!({"group_size": 2, "batch_groups": 1, "rewarded": false});
    declare(client, settings).await;
    for program in ["p1", "p2", "failing"] {
        let begun = json!({"program": program, "group": "a"});
        let begun = post(client, "/members", begun).await.ok();
        assert_eq!(begun["surplus"], false, "{program}");
    }
    let failed = json!({"end": "environment_failed"});
    put(client, "/members/failing", &failed).await.ok();
    let spare = json!({"program": "spare", "group": "a"});
    let spare = post(client, "/members", spare).await.ok();
    assert_eq!(spare["surplus"], true, "two are left, which is enough");
    for program in ["p1", "p2"] {
        let ended = json!({"end": "completed", "tokens": 3});
        put(client, &format!("/members/{program}"), &ended)
            .await
            .ok();
    }
    batch(client, 1).await;
    post(client, "/versions", json!({"version": 1})).await.ok();

    for program in ["slow", "q1", "q2"] {
        step(client, program, "b").await.ok();
    }
    for program in ["q1", "q2"] {
        let path = format!("/api/v1/programs/{program}");
        client.delete(&path).await.ok();
    }
    let (view, _) = batch(client, 2).await;
    let members = view["groups"][0]["members"].as_array().expect("members");
    let programs: Vec<&str> = members
        .iter()
        .map(|member| member["program"].as_str().expect("a name"))
        .collect();
    assert_eq!(programs, ["q1", "q2"]);
    step(client, "slow", "b")
        .await
        .refused(409, "member_dropped");
    let account = get(client, "").await.ok()["account"].clone();
    let lost = &account["lost"];
    assert_eq!(lost["environment_failed"]["members"], 1);
    let slow = &lost["curtailed"];
    assert_eq!((&slow["members"], &slow["turns"]), (&json!(1), &json!(1)));
    assert!(slow["tokens"].as_u64() > Some(0), "{account}");
    fixture.finish().await;
}
