//! One tenant takes as much as it can of each shared resource, and a later tenant still gets its
//! share.

use serde_json::{Value, json};
use std::time::Duration;
use treadle_config::Config;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

use super::stage::with_sandboxes;
use crate::tenancy::{client_of, make_tenant};

const SANDBOXES: &str = "/api/v1/sandboxes";
const ACTIONS: &str = "/api/v1/actions";
const DAY_S: u64 = 86_400;
const MEBIBYTE: u64 = 1 << 20;

/// A daemon with two tenants beside the default one: each has a third of everything.
async fn fixture(
    folder: &std::path::Path,
    tune: impl FnOnce(&mut Config),
) -> (Fixture, [Client; 2]) {
    let fixture = Fixture::tuned(0, 0, |config| {
        with_sandboxes(config, folder);
        config.actions.cores = 3;
        config.actions.memory_bytes = 3 << 30;
        tune(config);
    })
    .await;
    for tenant in ["red", "blue"] {
        make_tenant(&fixture, tenant, json!({})).await;
    }
    let clients = [
        client_of(&fixture, "red", "job").await,
        client_of(&fixture, "blue", "job").await,
    ];
    (fixture, clients)
}

async fn made(client: &Client) -> String {
    let made = client
        .post(SANDBOXES, &json!({"ttl_s": 31_536_000}))
        .await
        .ok();
    made["id"].as_str().expect("a name").to_owned()
}

fn command(sandbox: &str, line: &str) -> Value {
    let run = json!({"sandbox": {"id": sandbox, "command": ["sh", "-c", line]}});
    json!({"kind": "sh", "run": run, "run_s_max": DAY_S})
}

async fn submit(client: &Client, body: &Value) -> String {
    let action = client.post(ACTIONS, body).await.ok();
    format!("{ACTIONS}/{}", action["action"])
}

async fn ended(client: &Client, path: &str) -> Value {
    client.get(&format!("{path}?wait_s=60")).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_cores_and_memory_are_left_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let tune = |config: &mut Config| {
        config.sandboxes.sandboxes_max = 6;
        config.actions.waiters_max = 6;
    };
    let (fixture, [red, blue]) = fixture(folder.path(), tune).await;
    let mine = made(&blue).await;
    let ids = [made(&red).await, made(&red).await];
    let refused = red.post(SANDBOXES, &json!({})).await;
    let message = refused.refused(429, "tenant_busy");
    assert!(message.contains("--limit sandboxes="), "{message}");
    let path = format!("{SANDBOXES}/{}/fork", ids[0]);
    red.post(&path, &json!({"count": 5}))
        .await
        .refused(429, "tenant_busy");
    made(&blue).await;

    let mut held = Vec::new();
    for (what, most) in [("cpu", 1_u64), ("memory", 1 << 30)] {
        let mut body = command(&ids[0], "sleep 86400");
        body["cost"] = json!({what: most * 2});
        let message = red.post(ACTIONS, &body).await.refused(403, "tenant_limit");
        assert!(message.contains(&format!("cost.{what}")), "{message}");
        body["cost"] = json!({what: most});
        for _ in 0..3 {
            held.push(submit(&red, &body).await);
        }
    }
    let path = submit(&blue, &command(&mine, "echo hi")).await;
    let view = ended(&blue, &path).await;
    assert_eq!(
        view["outcome"],
        json!({"outcome": "exited", "code": 0}),
        "{view}"
    );

    // Clients that wait for the maximum time.
    let wait = |client: &Client, path: &str| {
        let (client, path) = (client.clone(), format!("{path}?wait_s=3600"));
        tokio::spawn(async move {
            // Refused while the request below has its place.
            loop {
                let answer = client.get(&path).await;
                if answer.status.is_success() {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    };
    let waiting = [wait(&red, &held[0]), wait(&red, &held[0])];
    let refused = loop {
        // They may not have arrived yet.
        let answer = red.get(&format!("{}?wait_s=1", held[0])).await;
        if !answer.status.is_success() {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    refused.refused(429, "tenant_busy");
    let path = submit(&blue, &command(&mine, "echo hi")).await;
    assert_eq!(ended(&blue, &path).await["outcome"]["outcome"], "exited");
    for path in &held {
        red.delete(path).await.ok();
    }
    for waiting in waiting {
        waiting.await.expect("no panic").ok();
    }
    fixture.finish_all(&[&red, &blue]).await;
}

/// A share of memory has 1 GiB.
async fn refuses_more_memory_than_a_share(client: &Client) {
    let body = json!({"memory_bytes": (1_u64 << 30) + 1});
    let refused = client.post(SANDBOXES, &body).await;
    let message = refused.refused(403, "tenant_limit");
    assert!(message.contains("--limit action_percent="), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_and_snapshots_are_bounded_in_bytes_and_others_keep_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let tune = |config: &mut Config| {
        config.sandboxes.disk_bytes_max = 8_000_000;
        config.sandboxes.copies_bytes_max = 12_000_000;
        config.payloads.bytes_max = 12 * MEBIBYTE;
    };
    let (fixture, [red, blue]) = fixture(folder.path(), tune).await;
    let noise = "head -c 1000000 /dev/urandom";
    let theirs = made(&blue).await;
    refuses_more_memory_than_a_share(&blue).await;
    let first_of_blue = submit(&blue, &command(&theirs, noise)).await;
    ended(&blue, &first_of_blue).await;
    let sandbox = made(&red).await;
    let mut paths = Vec::new();
    for _ in 0..8 {
        let path = submit(&red, &command(&sandbox, noise)).await;
        assert!(
            ended(&red, &path).await["output"]["bytes"].is_u64(),
            "it is read when it ends"
        );
        paths.push(path);
    }
    // The oldest are removed asynchronously.
    let mut view = ended(&red, &paths[0]).await;
    while view["output"].is_object() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        view = ended(&red, &paths[0]).await;
    }
    assert!(
        view["output_digest"].is_string(),
        "it is told that there was one: {view}"
    );
    assert!(ended(&red, &paths[7]).await["output"].is_object());
    assert!(ended(&blue, &first_of_blue).await["output"].is_object());

    let path = submit(
        &red,
        &command(&sandbox, "head -c 1500000 /dev/urandom > /root/x"),
    )
    .await;
    ended(&red, &path).await;
    let snapshot = |sandbox: &str| format!("{SANDBOXES}/{sandbox}/snapshot");
    let mut count = 0;
    let refused = loop {
        let answer = red.post(&snapshot(&sandbox), &json!({})).await;
        if !answer.status.is_success() {
            break answer;
        }
        count += 1;
    };
    let message = refused.refused(403, "tenant_limit");
    assert!((1..=2).contains(&count), "{count}: {message}");
    blue.post(&snapshot(&theirs), &json!({})).await.ok();
    fixture.finish_all(&[&red, &blue]).await;
}
