//! Several shards share the machine, the quotas and the nodes.

use super::{ACTIONS, NODES, SANDBOXES, SOON, address, agent, daemon};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use treadle_tests::support::client::Client;
use treadle_tests::support::cluster::until_scheduled;

const SHARDS: [&str; 2] = ["north", "south"];

async fn get_of(client: &Client, path: &str, header: (&str, &str)) -> Value {
    client.send(Method::GET, path, &[header], "").await.ok()
}

/// Runs an action whose shard follows only from its job; returns its outcome.
async fn run(client: &Client, job: &str, run: Value) -> Value {
    let action = json!({"kind": "sh", "job": job, "run": run});
    let submitted = client.post(ACTIONS, &action).await.ok();
    let path = format!("{ACTIONS}/{}?wait_s=60", submitted["action"]);
    get_of(client, &path, ("x-treadle-job", job)).await
}

/// The shard that a node is assigned to.
async fn shard_of_node(client: &Client) -> &'static str {
    let began = Instant::now();
    loop {
        for shard in SHARDS {
            let nodes = get_of(client, NODES, ("x-treadle-shard", shard)).await;
            if nodes["nodes"][0]["state"] == "ready" && nodes["nodes"][0]["memory_free_bytes"] != 0
            {
                return shard;
            }
        }
        assert!(began.elapsed() < SOON, "no shard has the node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_have_a_part_of_what_actions_draw_from() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let mut more = Vec::new();
    for set in [
        "cluster.role=all",
        "cluster.shards=[\"north\",\"south\"]",
        "actions.cores=3",
        "actions.quotas=[\"search concurrent=5\"]",
    ] {
        more.extend(["--set", set]);
    }
    let served = daemon(folder.path(), &listen, &more).await;
    let client = &served.client;
    let mut parts = Vec::new();
    for (at, shard) in SHARDS.into_iter().enumerate() {
        until_scheduled(&[&served], at).await;
        let told = get_of(client, "/api/v1/resources", ("x-treadle-shard", shard)).await;
        let resources = told["resources"].as_array().expect("a list");
        let total = |name: &str| {
            let found = resources.iter().find(|resource| resource["name"] == name);
            found.expect("it is there")["total"]
                .as_u64()
                .expect("a number")
        };
        parts.push((total("cpu"), total("search")));
    }
    assert_eq!(parts, [(2, 3), (1, 2)]);
    for job in (0..6).map(|number| format!("job-{number}")) {
        let process = json!({"process": {"command": ["sh", "-c", "exit 3"]}});
        let view = run(client, &job, process).await;
        assert_eq!(view["outcome"], json!({"outcome": "exited", "code": 3}));
    }

    let _node = agent(folder.path(), "one", &listen).await;
    let of_node = shard_of_node(client).await;
    let (mut made, mut without) = (0, 0);
    for job in (0..8).map(|number| format!("job-{number}")) {
        let answer = client.post(SANDBOXES, &json!({"job": job})).await;
        if answer.status == 503 {
            without += 1;
            continue;
        }
        made += 1;
        let sandbox = answer.ok()["id"].as_str().expect("a name").to_owned();
        let command = json!({"id": sandbox, "command": ["sh", "-c", "echo here"]});
        let view = run(client, &job, json!({"sandbox": command})).await;
        assert_eq!(view["output"]["text"], "here\n", "{view}");
        // The request needs no job: the sandbox's name contains the mark of its node.
        let known = client.get(&format!("{SANDBOXES}/{sandbox}")).await.ok();
        assert_eq!(known["job"], json!(job));
    }
    assert!(made > 0 && without > 0, "{of_node}: {made}, {without}");
    assert!(served.terminate(), "it ended badly");
}
