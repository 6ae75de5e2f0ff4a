//! The bundled policies are bound by their names; they need not be pushed.

use serde_json::{Value, json};
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::Fixture;

use super::crowd::put_binding;

/// All listed plugins of a name.
async fn listed(client: &Client, name: &str) -> Vec<Value> {
    let page = client.get("/api/v1/plugins").await.ok();
    let plugins = page["plugins"].as_array().expect("a list").iter();
    plugins.filter(|p| p["name"] == name).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bundled_policy_is_described_and_bound_as_listed() {
    let fixture = Fixture::start(1, 100_000).await;
    let client = &fixture.client;
    let bind = async |world: &str, policy: &str| {
        put_binding(client, &json!({"world": world, "policy": policy})).await
    };
    for (world, name) in [
        ("prediction", "heddle-prediction"),
        ("priority", "heddle-priority"),
        ("placement", "sticky-placement"),
        ("allocation", "heddle-allocation"),
        ("eviction", "thunderagent-eviction"),
        ("reward", "exact-match-reward"),
        ("shaping", "darts-shaping"),
    ] {
        let before = listed(client, name).await;
        assert_eq!(before.len(), 1, "{before:?}");
        assert_eq!(
            (&before[0]["world"], &before[0]["uploaded_at_us"]),
            (&json!(world), &Value::Null)
        );
        let (version, digest) = (&before[0]["version"], &before[0]["digest"]);
        let called = match world {
            "priority" => format!("{name}@{}", version.as_str().expect("a version")),
            "placement" => digest.as_str().expect("a digest")[..12].to_owned(),
            _ => name.to_owned(),
        };
        let bound = bind(world, &called).await.ok();
        let policy = bound["active"].as_str().expect("a name");
        assert!(policy.starts_with(&format!("{name}@")), "{bound}");
        let after = listed(client, name).await;
        assert_eq!(after.len(), 1, "{after:?}");
        assert_eq!(&after[0]["digest"], digest);
        assert!(after[0]["uploaded_at_us"].is_number(), "{after:?}");
    }
    // Each has its description before it is bound, and all can be bound.
    let page = client.get("/api/v1/plugins").await.ok();
    let plugins = page["plugins"].as_array().expect("a list");
    assert!(plugins.len() > 20, "{plugins:?}");
    for plugin in plugins {
        let name = plugin["name"].as_str().expect("a name");
        let shown = client.get(&format!("/api/v1/plugins/{name}")).await.ok();
        assert_eq!(shown["config_schema"]["type"], "object", "{shown}");
        let functions = shown["functions"].as_array().expect("a list");
        assert!(!functions.is_empty(), "{shown}");
        let world = plugin["world"].as_str().expect("a world");
        bind(world, name).await.ok();
    }
    let shown = client.get("/api/v1/plugins/foresight-eviction").await.ok();
    assert_eq!(shown["columns"][0], "price-ms", "{shown}");
    bind("eviction", "heddle-placement")
        .await
        .refused(400, "plugin_invalid");
    bind("priority", "heddle-priority@9.9.9")
        .await
        .refused(404, "plugin_unknown");
    fixture.finish().await;
}
