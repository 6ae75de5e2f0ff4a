//! Daemons and agents are killed while nodes run commands.

use super::{
    ACTIONS, NODES, SANDBOXES, SECRET, SOON, address, agent, create, daemon, ended, set_state, sh,
    start, until, until_runs,
};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use treadle_tests::support::cluster::until_scheduled;
use treadle_tests::support::process::DaemonProcess;

/// Waits until `/root/ran` is written in a sandbox of a node.
async fn until_written(folder: &Path, node: &str, sandbox: &str) {
    let path = format!("{node}/sandboxes/sandboxes/{sandbox}/0/files/root/ran");
    until_filled(&folder.join(path)).await;
}

/// Waits until a file of this machine has content.
async fn until_filled(path: &Path) {
    let began = Instant::now();
    while std::fs::read(path).map_or(true, |written| written.is_empty()) {
        assert!(began.elapsed() < SOON, "nothing is in {}", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One of several daemons on one store.
async fn member(folder: &Path, name: &str, listen: &str) -> DaemonProcess {
    let sets = [
        format!("store.path={}", folder.join("treadle.db").display()),
        "auth.anonymous_scope=admin".to_owned(),
        "actions.enabled=true".to_owned(),
        format!("actions.folder={}", folder.join(name).display()),
        format!("actions.workdir={}", folder.display()),
        "cluster.role=all".to_owned(),
        format!("cluster.name={name}"),
        format!("cluster.advertise=http://{listen}"),
        format!("cluster.secret={SECRET}"),
    ];
    let mut arguments = Vec::new();
    for set in &sets {
        arguments.extend(["--set", set]);
    }
    DaemonProcess::run("serve", listen, &arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_runs_goes_on_while_the_daemon_is_gone() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let _node = agent(folder.path(), "one", &listen).await;
    until(&served.client, "one", "ready").await;
    let sandbox = create(&served.client, &json!({})).await;
    let line = "echo x >> /root/ran; sleep 3; echo done";
    let runs = start(&served.client, &sandbox, line).await;
    until_written(folder.path(), "one", &sandbox).await;
    // Its time limit passes before the next daemon learns that it ended in time.
    let short = create(&served.client, &json!({})).await;
    let run =
        json!({"sandbox": {"id": short, "command": ["sh", "-c", "echo x > /root/ran; sleep 1"]}});
    let body = json!({"kind": "sh", "run": run, "run_s_max": 3});
    let in_time = served.client.post(ACTIONS, &body).await.ok()["action"]
        .as_u64()
        .expect("a number");
    until_written(folder.path(), "one", &short).await;
    let waits = start(&served.client, &sandbox, "echo y >> /root/ran").await;
    served.kill();
    tokio::time::sleep(Duration::from_secs(4)).await;

    let served = daemon(folder.path(), &listen, &[]).await;
    let client = &served.client;
    let view = ended(client, runs).await;
    assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 0}));
    assert_eq!(
        (&view["output"]["text"], &view["attempts"]),
        (&json!("done\n"), &json!(1))
    );
    for action in [in_time, waits] {
        assert_eq!(ended(client, action).await["outcome"]["outcome"], "exited");
    }
    let ran = sh(client, &sandbox, "sort /root/ran").await;
    assert_eq!(ran, "x\ny\n", "each ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_ran_on_a_node_whose_agent_was_killed_nobody_knows_the_end() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let client = &served.client;
    let node = agent(folder.path(), "one", &listen).await;
    let mark = until(client, "one", "ready").await["mark"].clone();
    let sandbox = create(client, &json!({})).await;
    let runs = start(client, &sandbox, "echo x >> /root/ran; sleep 60").await;
    until_written(folder.path(), "one", &sandbox).await;
    node.kill();
    until(client, "one", "away").await;
    let answer = client.get(&format!("{SANDBOXES}/{sandbox}")).await;
    assert_eq!(answer.status, 502, "its node is away");
    // An action that is submitted meanwhile waits for the node and begins once.
    let cordon = set_state(client, "one", "cordoned").await;
    assert_eq!(cordon.status, 409);
    let waits = start(client, &sandbox, "echo y >> /root/ran").await;

    let _node = agent(folder.path(), "one", &listen).await;
    assert_eq!(until(client, "one", "ready").await["mark"], mark);
    assert_eq!(ended(client, runs).await["outcome"]["outcome"], "unknown");
    assert_eq!(ended(client, waits).await["outcome"]["outcome"], "exited");
    assert_eq!(sh(client, &sandbox, "cat /root/ran").await, "x\ny\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stays_away_is_lost_with_its_sandboxes() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &["--set", "nodes.away_s_max=1"]).await;
    let client = &served.client;
    let node = agent(folder.path(), "one", &listen).await;
    let cores = until(client, "one", "ready").await["cores"]
        .as_u64()
        .expect("cores");
    let sandbox = create(client, &json!({})).await;
    let run = json!({"sandbox": {"id": sandbox, "command": ["sleep", "60"]}});
    let all = json!({"kind": "sh", "run": run, "cost": {"cpu": cores}});
    let mut actions = Vec::new();
    for _ in 0..2 {
        let answer = client.post(ACTIONS, &all).await.ok();
        actions.push(answer["action"].as_u64().expect("a number"));
    }
    until_runs(client, actions[0]).await;
    node.kill();
    until(client, "one", "gone").await;
    for (action, outcome) in actions
        .into_iter()
        .zip(["unknown", "infrastructure_failure"])
    {
        assert_eq!(ended(client, action).await["outcome"]["outcome"], outcome);
    }
    assert_eq!(client.get(SANDBOXES).await.ok()["sandboxes"], json!([]));
    assert_ne!(
        client.get(&format!("{SANDBOXES}/{sandbox}")).await.status,
        200
    );
    // The node may come back later with its sandboxes.
    let _node = agent(folder.path(), "one", &listen).await;
    until(client, "one", "ready").await;
    assert_eq!(sh(client, &sandbox, "echo here").await, "here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_what_they_run_follow_the_scheduler_to_another_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let addresses = [address(), address()];
    let mut daemons = Vec::new();
    for (name, listen) in ["one", "two"].into_iter().zip(&addresses) {
        daemons.push(member(folder.path(), name, listen).await);
    }
    let leader = until_scheduled(&daemons.iter().collect::<Vec<_>>(), 0).await;
    let all = addresses
        .map(|address| format!("http://{address}"))
        .join(",");
    let urls = all.trim_start_matches("http://");
    let _node = agent(folder.path(), "node", urls).await;
    let other = daemons.remove(1 - leader);
    let leader = daemons.remove(0);
    let client = &other.client;
    until(client, "node", "ready").await;

    let sandbox = create(client, &json!({})).await;
    assert_eq!(sh(client, &sandbox, "echo here").await, "here\n");
    let line = "echo x >> /root/ran; sleep 4; echo done";
    let goes_on = start(client, &sandbox, line).await;
    let run = json!({"process": {"command": ["sh", "-c", "echo x >> ran; sleep 60"]}});
    let body = json!({"kind": "sh", "run": run});
    let local = client.post(ACTIONS, &body).await.ok()["action"]
        .as_u64()
        .expect("a number");
    for action in [goes_on, local] {
        until_runs(client, action).await;
    }
    until_written(folder.path(), "node", &sandbox).await;
    until_filled(&folder.path().join("ran")).await;
    leader.kill();

    let began = Instant::now();
    while !client.get(NODES).await.status.is_success() {
        assert!(began.elapsed() < SOON, "nobody schedules");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let view = ended(client, goes_on).await;
    assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 0}));
    assert_eq!(
        (&view["output"]["text"], &view["attempts"]),
        (&json!("done\n"), &json!(1))
    );
    assert_eq!(sh(client, &sandbox, "cat /root/ran").await, "x\n");
    // The action on the daemon's own machine died with the daemon; its progress is unknown.
    assert_eq!(ended(client, local).await["outcome"]["outcome"], "unknown");
    let ran = std::fs::read_to_string(folder.path().join("ran"));
    assert_eq!(ran.expect("it ran"), "x\n");
}
