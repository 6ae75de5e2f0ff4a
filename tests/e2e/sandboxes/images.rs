//! Images from files of the machine: permissions, allowed paths, visibility. And commands outside
//! of sandboxes while these are required.

use super::stage::with_sandboxes;
use crate::tenancy::{client_of, make_tenant};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use treadle_tests::support::client::{Answer, Client};
use treadle_tests::support::fixture::Fixture;

const IMAGES: &str = "/api/v1/images";

/// A daemon whose store is inside a folder that images may be imported from.
async fn stage(folder: &Path) -> Fixture {
    for made in ["images/own/etc", "state"] {
        std::fs::create_dir_all(folder.join(made)).expect("a folder");
    }
    std::fs::write(folder.join("images/own/etc/name"), "own").expect("a file");
    Fixture::tuned(0, 0, |config| {
        with_sandboxes(config, folder);
        config.store.path = folder.join("state/treadle.db").display().to_string();
        config.sandboxes.required = true;
        config.sandboxes.image_folders = vec![folder.display().to_string()];
    })
    .await
}

async fn import(client: &Client, image: &str, path: &Path, shared: bool) -> Answer {
    let body = json!({"path": path, "shared": shared}).to_string();
    let to = format!("{IMAGES}/{image}");
    client.send(Method::PUT, &to, &[], body).await
}

async fn images(client: &Client) -> Value {
    client.get(IMAGES).await.ok()["images"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_image_has_anything_of_the_daemon_s_and_each_is_its_tenant_s() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    let fixture = stage(folder.path()).await;
    let nobody = fixture.client.without_token();
    let own = import(&nobody, "own", &at("images/own"), false).await;
    own.refused(401, "token_missing");
    let gone = nobody.delete(&format!("{IMAGES}/own")).await;
    gone.refused(401, "token_missing");

    let operator = client_of(&fixture, "default", "operator").await;
    std::os::unix::fs::symlink(at("state"), at("images/link")).expect("a link");
    std::fs::hard_link(at("state/admin-token"), at("images/token.tar")).expect("a link");
    for path in [
        "",
        "state",
        "state/admin-token",
        "state/treadle.db",
        "images/link",
        "images/link/admin-token",
        "images/own/../../state",
        "images/token.tar",
        "images",
        "sandboxes",
    ] {
        let refused = import(&operator, "steal", &at(path), true).await;
        let told = refused.refused(400, "invalid_field");
        assert!(told.contains("the daemon's own"), "{path}: {told}");
    }
    for path in ["/", "/etc", "/proc/self", "/proc/self/environ", "/root"] {
        let refused = import(&operator, "steal", Path::new(path), true).await;
        refused.refused(400, "invalid_field");
    }
    import(&operator, "own", &at("images/own"), false)
        .await
        .ok();
    assert_eq!(images(&operator).await, json!(["own", "system"]));

    // A later tenant can't use it through any API.
    make_tenant(&fixture, "acme", json!({})).await;
    let job = client_of(&fixture, "acme", "job").await;
    assert_eq!(images(&job).await, json!(["system"]));
    let made = job
        .post("/api/v1/sandboxes", &json!({"image": "own"}))
        .await;
    made.refused(400, "invalid_field");
    let made = job.post("/sandboxes", &json!({"templateID": "own"})).await;
    assert_eq!(made.status, 404, "{:?}", made.body);
    let ran = json!({"code": "print(1)", "language": "python"});
    let ran = job.post("/run_code?image=own", &ran).await;
    assert_eq!(ran.ok()["status"], "SandboxError");
    // Tenants share the machine and the names of images.
    let theirs = client_of(&fixture, "acme", "operator").await;
    let refused = import(&theirs, "theirs", &at("images/own"), false).await;
    refused.refused(403, "forbidden");
    let all = import(&fixture.client, "all", &at("images/own"), true).await;
    all.ok();
    assert_eq!(images(&job).await, json!(["all", "system"]));
    let made = job
        .post("/api/v1/sandboxes", &json!({"image": "all"}))
        .await;
    made.ok();
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_caller_without_a_token_runs_anything_where_sandboxes_are_required() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = stage(folder.path()).await;
    let nobody = fixture.client.without_token();
    let operator = client_of(&fixture, "default", "operator").await;
    let ran = folder.path().join("ran");
    let command = json!(["touch", ran]);
    let service = |lifecycle: &Value| {
        let body = json!({"ready_path": "/", "ready_s_max": 1, "lifecycle": lifecycle});
        body.to_string()
    };
    for lifecycle in [
        json!({"process": {"command": command}}),
        json!({"commands": {"start": command, "stop": ["true"]}}),
        json!({"commands": {"start": ["true"], "stop": command}}),
        json!({"commands": {"start": ["true"], "stop": ["true"], "restore": command}}),
    ] {
        let path = "/api/v1/services/evil";
        let declared = nobody
            .send(Method::PUT, path, &[], service(&lifecycle))
            .await;
        declared.refused(403, "forbidden");
        let declared = operator.send(
            Method::PUT,
            "/api/v1/services/judge",
            &[],
            service(&lifecycle),
        );
        declared.await.ok();
        // Nor can it replace a service that has commands.
        let control = service(&json!({"control": {"url": "http://judge:1"}}));
        let taken = nobody
            .send(Method::PUT, "/api/v1/services/judge", &[], control)
            .await;
        taken.refused(403, "forbidden");
    }
    for run in [
        json!({"process": {"command": command}}),
        json!({"held": {"token": "x"}}),
        json!({"process": {"command": command}, "sandbox": {"id": "s", "command": command}}),
    ] {
        for caller in [&nobody, &operator] {
            let asked = caller
                .post("/api/v1/actions", &json!({"kind": "x", "run": run}))
                .await;
            asked.refused(400, "invalid_field");
        }
    }
    assert!(!ran.exists());
    fixture.stop().await;
}
