//! Sandboxes of other machines: agents in processes of their own, and a daemon that has none itself.

mod faults;
mod shards;
mod snapshots;

use super::stage::{passes, python};
use http::Method;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::{CHAT, chat, engine};
use treadle_tests::support::process::{DaemonProcess, binary};

const SECRET: &str = "what a daemon and its nodes share";
const SANDBOXES: &str = "/api/v1/sandboxes";
const ACTIONS: &str = "/api/v1/actions";
const NODES: &str = "/api/v1/nodes";
/// Longest wait for a condition.
const SOON: Duration = Duration::from_secs(30);

/// A free address, known in advance so that a daemon can be started there again.
fn address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").to_string()
}

/// A daemon without sandboxes of its own.
async fn daemon(folder: &Path, listen: &str, more: &[&str]) -> DaemonProcess {
    let sets = [
        format!("store.path={}", folder.join("treadle.db").display()),
        "auth.anonymous_scope=admin".to_owned(),
        "actions.enabled=true".to_owned(),
        format!("cluster.secret={SECRET}"),
        image_folders(folder),
    ];
    let mut arguments = Vec::new();
    for set in &sets {
        arguments.extend(["--set", set]);
    }
    arguments.extend(more);
    DaemonProcess::run("serve", listen, &arguments).await
}

/// The setting that allows images to be imported from `image` in this folder.
fn image_folders(folder: &Path) -> String {
    format!(
        "sandboxes.image_folders=[\"{}\"]",
        folder.join("image").display()
    )
}

/// The agent of a node.
async fn agent(folder: &Path, name: &str, daemon: &str) -> DaemonProcess {
    let (url, secret) = (
        format!("http://{daemon}"),
        format!("cluster.secret={SECRET}"),
    );
    let images = image_folders(folder);
    let folder = folder.join(name).display().to_string();
    let arguments = [
        "--daemon", &url, "--name", name, "--folder", &folder, "--set", &secret, "--set", &images,
    ];
    DaemonProcess::run("node-agent", "127.0.0.1:0", &arguments).await
}

/// Waits until a node is in a state and returns its view.
async fn until(client: &Client, name: &str, state: &str) -> Value {
    let began = Instant::now();
    loop {
        let nodes = client.get(NODES).await.ok();
        let all = nodes["nodes"].as_array().expect("a list");
        let found = all.iter().find(|node| node["name"] == name);
        match found {
            // Its memory is 0 until its first report.
            Some(node) if node["state"] == state && node["memory_free_bytes"] != 0 => {
                return node.clone();
            }
            None if state == "gone" => return Value::Null,
            _ => {}
        }
        assert!(began.elapsed() < SOON, "{name} is not {state}: {nodes}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn set_state(client: &Client, node: &str, state: &str) -> Answer {
    let (path, body) = (format!("{NODES}/{node}"), json!({"state": state}));
    client
        .send(Method::PATCH, &path, &[], body.to_string())
        .await
}

async fn create(client: &Client, body: &Value) -> String {
    let made = client.post(SANDBOXES, body).await.ok();
    made["id"].as_str().expect("a name").to_owned()
}

async fn start(client: &Client, sandbox: &str, line: &str) -> u64 {
    let run = json!({"sandbox": {"id": sandbox, "command": ["sh", "-c", line]}});
    let body = json!({"kind": "sh", "run": run});
    let answer = client.post(ACTIONS, &body).await.ok();
    answer["action"].as_u64().expect("a number")
}

async fn ended(client: &Client, action: u64) -> Value {
    let path = format!("{ACTIONS}/{action}?wait_s=60");
    let view = client.get(&path).await.ok();
    assert_eq!(view["status"], "ended", "{view}");
    view
}

async fn until_runs(client: &Client, action: u64) {
    let began = Instant::now();
    loop {
        let view = client.get(&format!("{ACTIONS}/{action}")).await.ok();
        if view["status"] == "running" {
            return;
        }
        assert!(began.elapsed() < SOON, "{view}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn sh(client: &Client, sandbox: &str, line: &str) -> String {
    let action = start(client, sandbox, line).await;
    let view = ended(client, action).await;
    assert_eq!(view["outcome"]["outcome"], "exited", "{view}");
    view["output"]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_without_sandboxes_has_those_of_its_nodes() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let engine = engine(100_000).await;
    let served = daemon(folder.path(), &listen, &["--engine", &engine.url()]).await;
    let client = &served.client;
    let body = json!({});
    assert_eq!(client.post(SANDBOXES, &body).await.status, 503, "no node");
    let _one = agent(folder.path(), "one", &listen).await;
    let _two = agent(folder.path(), "two", &listen).await;
    for name in ["one", "two"] {
        until(client, name, "ready").await;
    }

    // Each goes to the node with the most room, and is used like any other sandbox.
    let sandboxes = [create(client, &body).await, create(client, &body).await];
    let shown = client.get(SANDBOXES).await.ok();
    let shown = shown["sandboxes"].as_array().expect("a list");
    let mut nodes: Vec<_> = shown.iter().map(|one| one["node"].as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [Some("one"), Some("two")]);
    for sandbox in &sandboxes {
        assert_eq!(
            sh(client, sandbox, "echo $TREADLE_PARALLELISM | tee /root/a").await,
            "1\n"
        );
        let forks = client
            .post(&format!("{SANDBOXES}/{sandbox}/fork"), &json!({"count": 1}))
            .await
            .ok();
        let fork = forks["sandboxes"][0]["id"].as_str().expect("a name");
        assert_eq!(fork[16..], sandbox[16..], "it is where its files are");
        assert_eq!(sh(client, fork, "cat /root/a").await, "1\n");
    }
    // An idempotency key names one sandbox, on whichever node it was created.
    for key in ["a", "b", "c", "d"] {
        let head = [("idempotency-key", key)];
        let mut made = Vec::new();
        for _ in 0..2 {
            let body = json!({"templateID": "base"}).to_string();
            let answer = client
                .send(Method::POST, "/v2/sandboxes", &head, body)
                .await;
            made.push(answer.ok()["sandboxID"].clone());
        }
        assert_eq!(made[0], made[1], "{key}");
    }
    let [first, _] = &sandboxes;
    let path = format!("{SANDBOXES}/{first}/pause");
    assert_eq!(client.post(&path, &json!({})).await.ok()["state"], "paused");
    let path = format!("{SANDBOXES}/{first}/resume");
    assert_eq!(client.post(&path, &json!({})).await.ok()["state"], "ready");

    // The cores are those of the node, not of the daemon.
    let resources = client.get("/api/v1/resources").await.ok();
    let names = resources["resources"].as_array().expect("a list").iter();
    let of_nodes = names.filter(|one| one["name"].as_str().is_some_and(|n| n.starts_with("cpu@")));
    assert_eq!(of_nodes.count(), 2);
    let metrics = client.get("/metrics").await.body;
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(
        metrics.contains("treadle_nodes{state=\"ready\"} 2"),
        "{metrics}"
    );

    // They end with their program.
    client.post(CHAT, &chat("p", "hello", 4)).await.ok();
    let own = create(client, &json!({"program_id": "p"})).await;
    sh(client, &own, "true").await;
    client.delete("/api/v1/programs/p").await.ok();
    let began = Instant::now();
    while client.get(&format!("{SANDBOXES}/{own}")).await.status != 404 {
        assert!(began.elapsed() < SOON, "it outlives its program");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let removed = client.delete(&format!("{SANDBOXES}/{first}")).await.ok();
    assert_eq!(removed["state"], "removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_other_services_do_not_notice_that_there_are_nodes() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let client = &served.client;
    let _one = agent(folder.path(), "one", &listen).await;
    until(client, "one", "ready").await;
    super::e2b::packages_pass(client.base(), super::e2b::KEY).await;
    let run = json!({"code": "print(6 * 7)", "language": "python"});
    let answer = client.post("/run_code", &run).await.ok();
    assert_eq!(answer["run_result"]["stdout"], "42\n", "{answer}");
    if let Some(python) = python("newest") {
        let sandbox = create(client, &json!({})).await;
        let url = format!("{}/swerex/{sandbox}", client.base());
        let temporary = folder.path().display().to_string();
        let env = [("SWEREX_URL", url), ("SWEREX_TMP", temporary)];
        passes(&python, "swerex_client.py", &env).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_cordoned_and_strangers_are_kept_out() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let client = &served.client;
    let node = agent(folder.path(), "one", &listen).await;
    until(client, "one", "ready").await;
    let kept = create(client, &json!({})).await;
    let set = set_state(client, "one", "cordoned").await.ok();
    assert_eq!(set["state"], "cordoned");
    assert_eq!(client.post(SANDBOXES, &json!({})).await.status, 503);
    assert_eq!(
        sh(client, &kept, "echo on").await,
        "on\n",
        "what it has goes on"
    );
    assert!(node.terminate(), "it ended badly");
    let node = agent(folder.path(), "one", &listen).await;
    until(client, "one", "cordoned").await;
    set_state(client, "one", "ready").await.ok();
    assert_eq!(sh(client, &kept, "echo on").await, "on\n");
    assert_eq!(set_state(client, "nowhere", "ready").await.status, 404);

    // An agent answers only its daemon.
    let direct = &node.client;
    for path in [
        SANDBOXES,
        "/v2/sandboxes",
        "/internal/nodes/sandboxes",
        "/metrics",
    ] {
        assert_eq!(direct.get(path).await.status, 403, "{path}");
    }
    let forged = [
        ("x-treadle-vouched", "admin:default"),
        ("x-treadle-passed-on", "00"),
    ];
    let answer = direct
        .send(Method::GET, SANDBOXES, &forged, String::new())
        .await;
    assert_eq!(answer.status, 403);
    // The daemon refuses a node with a wrong secret, and a second node with the same name.
    let wrong = [
        ("upgrade", "treadle-node/1"),
        ("authorization", "Bearer another secret than theirs"),
    ];
    let link = "/internal/nodes/link";
    let answer = client.send(Method::GET, link, &wrong, String::new()).await;
    assert_eq!(answer.status, 403);
    let again = folder.path().join("again");
    let _again = agent(&again, "one", &listen).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let nodes = client.get(NODES).await.ok();
    assert_eq!(
        nodes["nodes"].as_array().expect("a list").len(),
        1,
        "{nodes}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_apart_on_nodes_and_nothing_but_sandboxes_is_there() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let client = &served.client;
    let _node = agent(folder.path(), "one", &listen).await;
    let mark = until(client, "one", "ready").await["mark"].clone();
    let mark = mark.as_str().expect("a mark");
    let own = create(client, &json!({})).await;
    client
        .post("/api/v1/tenants", &json!({"tenant": "acme"}))
        .await
        .ok();
    let acme = [("x-treadle-tenant", "acme")];
    let ask = async |method: Method, path: &str, body: &Value| {
        let answer = client.send(method, path, &acme, body.to_string());
        answer.await
    };
    let path = format!("{SANDBOXES}/{own}");
    assert_eq!(ask(Method::GET, &path, &json!({})).await.status, 404);
    assert_eq!(ask(Method::DELETE, &path, &json!({})).await.status, 404);
    let fork = format!("{path}/fork");
    assert_eq!(
        ask(Method::POST, &fork, &json!({"count": 1})).await.status,
        404
    );
    let alive = format!("/swerex/{own}/is_alive");
    assert_eq!(
        ask(Method::GET, &alive, &json!({})).await.json()["is_alive"],
        false
    );
    let shown = ask(Method::GET, SANDBOXES, &json!({})).await.ok();
    assert_eq!(shown["sandboxes"], json!([]));
    let run = json!({"sandbox": {"id": own, "command": ["true"]}});
    let body = json!({"kind": "sh", "run": run});
    let action = ask(Method::POST, ACTIONS, &body).await.ok()["action"].clone();
    let view = ask(Method::GET, &format!("{ACTIONS}/{action}?wait_s=60"), &body).await;
    let outcome = &view.ok()["outcome"];
    assert_eq!(outcome["outcome"], "infrastructure_failure", "{outcome}");

    // A node's cores are for commands in its sandboxes: nothing else gets there.
    for run in [
        json!({"process": {"command": ["true"]}}),
        json!({"sandbox": {"id": own, "command": ["true"]}}),
        json!({"http": {"url": "http://h/", "quota": format!("cpu@{mark}")}}),
    ] {
        let cost = json!({format!("cpu@{mark}"): 1});
        let body = json!({"kind": "sh", "run": run, "cost": cost});
        let refused = client.post(ACTIONS, &body).await;
        refused.refused(400, "invalid_field");
    }
    assert_eq!(sh(client, &own, "echo here").await, "here\n");

    // A job's token has its sandboxes there, and may change neither nodes nor images.
    let body = json!({"name": "job", "scope": "job", "tenant": "default"});
    let token = client.post("/api/v1/tokens", &body).await.ok();
    let job = client.with_token(token["secret"].as_str().expect("a secret"));
    let of_job = create(&job, &json!({})).await;
    assert_eq!(sh(&job, &of_job, "echo here").await, "here\n");
    assert_eq!(set_state(&job, "one", "cordoned").await.status, 403);
    let image = json!({"path": "/"}).to_string();
    let refused = job
        .send(Method::PUT, "/api/v1/images/all", &[], image)
        .await;
    assert_eq!(refused.status, 403);
    let removed = job.delete(&format!("{SANDBOXES}/{of_job}")).await.ok();
    assert_eq!(
        (&removed["state"], &removed["node"]),
        (&json!("removed"), &json!("one"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_come_later_get_images_and_drained_ones_have_no_sandboxes() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let client = &served.client;
    let _one = agent(folder.path(), "one", &listen).await;
    until(client, "one", "ready").await;
    let source = folder.path().join("image");
    std::fs::create_dir(&source).expect("a folder");
    std::fs::write(source.join("file"), "x").expect("a file");
    let body = json!({"path": source}).to_string();
    let import = async || {
        let path = "/api/v1/images/small";
        client.send(Method::PUT, path, &[], body.clone()).await
    };
    assert_eq!(import().await.status, 200);
    let _two = agent(folder.path(), "two", &listen).await;
    until(client, "two", "ready").await;
    until_images(client, "one", &json!(["small", "system"])).await;
    assert_eq!(import().await.status, 200, "the second one has it not yet");
    until_images(client, "two", &json!(["small", "system"])).await;
    assert_eq!(import().await.status, 400, "all have it");

    let sandboxes = [
        create(client, &json!({})).await,
        create(client, &json!({})).await,
    ];
    let on_one: Vec<_> = {
        let all = client.get(SANDBOXES).await.ok();
        let all = all["sandboxes"].as_array().expect("a list").clone();
        all.into_iter()
            .filter(|view| view["node"] == "one")
            .collect()
    };
    let drain = |timeout_s: &str| {
        let arguments = ["nodes", "drain", "one", "--timeout-s", timeout_s, "--url"];
        tokio::process::Command::new(binary())
            .args(arguments)
            .arg(client.base())
            .output()
    };
    let full = drain("3").await.expect("it runs");
    let message = String::from_utf8_lossy(&full.stderr);
    assert!(
        !full.status.success() && message.contains("sandbox"),
        "{message}; it has a sandbox: {on_one:?}"
    );
    let drained = tokio::spawn(drain("30"));
    for sandbox in sandboxes {
        client.delete(&format!("{SANDBOXES}/{sandbox}")).await.ok();
    }
    let drained = drained.await.expect("no panic").expect("it runs");
    assert!(drained.status.success(), "{drained:?}");
    until(client, "one", "cordoned").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_has_sandboxes_is_one_place_beside_its_nodes() {
    let (folder, listen) = (tempfile::tempdir().expect("a folder"), address());
    let served = daemon(folder.path(), &listen, &[]).await;
    let _node = agent(folder.path(), "one", &listen).await;
    until(&served.client, "one", "ready").await;
    let source = folder.path().join("image");
    std::fs::create_dir(&source).expect("a folder");
    let body = json!({"path": source}).to_string();
    let path = "/api/v1/images/small";
    let import = async |client: &Client| {
        let answer = client.send(Method::PUT, path, &[], body.clone()).await;
        answer.status
    };
    assert_eq!(import(&served.client).await, 200);
    served.kill();

    let own = format!("sandboxes.folder={}", folder.path().join("own").display());
    let more = ["--set", "sandboxes.enabled=true", "--set", &own];
    let served = daemon(folder.path(), &listen, &more).await;
    let client = &served.client;
    until_images(client, "one", &json!(["small", "system"])).await;
    assert_eq!(
        import(client).await,
        200,
        "the node has it, this machine has not"
    );
    for _ in 0..2 {
        create(client, &json!({})).await;
    }
    let all = all_of(client).await;
    let mut places: Vec<_> = all.iter().map(|view| view["node"].as_str()).collect();
    places.sort_unstable();
    assert_eq!(places, [None, Some("one")]);
    snapshots::are_where_their_sandboxes_were(client, &all).await;
    assert_eq!(client.delete(path).await.status, 200, "it goes everywhere");
    until_images(client, "one", &json!(["system"])).await;
    assert_eq!(
        client.get("/api/v1/images").await.ok()["images"],
        json!(["system"])
    );
}

async fn all_of(client: &Client) -> Vec<Value> {
    let all = client.get(SANDBOXES).await.ok();
    all["sandboxes"].as_array().expect("a list").clone()
}

async fn until_images(client: &Client, name: &str, images: &Value) {
    let began = Instant::now();
    loop {
        let nodes = client.get(NODES).await.ok();
        let mut all = nodes["nodes"].as_array().expect("a list").iter();
        if all.any(|node| node["name"] == name && node["images"] == *images) {
            return;
        }
        assert!(began.elapsed() < SOON, "{nodes}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
