//! Pods without a sandbox, and those that only seem to have none.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stage::{Stage, agent, pod, run, script, until};
use crate::stand_in::StandIn;

/// The labels of the agent that owns this pod.
fn labels(stand_in: &StandIn, pod: &str) -> Value {
    let labels = &stand_in.state.pod(pod)["metadata"]["labels"];
    json!({"treadle.dev/owner": labels["treadle.dev/owner"], "treadle.dev/sandbox": "orphan"})
}

/// The state that a crash leaves behind.
async fn crashed(stage: Stage) -> (StandIn, TempDir) {
    let (stand_in, folder) = (stage.stand_in, stage.folder);
    drop(stage.sandboxes);
    until("the agent is gone", || {
        let lock = std::fs::File::open(folder.path().join("lock")).expect("a lock");
        lock.try_lock().is_ok()
    })
    .await;
    (stand_in, folder)
}

#[tokio::test]
async fn a_pod_that_comes_late_is_deleted() {
    let stage = Stage::new().await;
    let own = pod(&*stage.sandbox().await);
    let server = &stage.stand_in.state;
    // It was requested, but no answer arrived in time.
    server.put("treadle-late", &labels(&stage.stand_in, &own));
    server.put("somebody-elses", &json!({"treadle.dev/owner": "them"}));
    until("it is deleted", || {
        server.pods() == ["somebody-elses", &own]
    })
    .await;
    // The watch that would report it has expired.
    server.put_unseen("treadle-unseen", &labels(&stage.stand_in, &own));
    until("it is deleted", || {
        server.pods() == ["somebody-elses", &own]
    })
    .await;
}

#[tokio::test]
async fn an_agent_starts_while_the_api_server_is_away_and_removes_orphans_later() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    run(&sandbox, script("true")).await.expect("it runs");
    let (id, own) = (sandbox.id().to_owned(), pod(&sandbox));
    drop(sandbox);
    let (stand_in, folder) = crashed(stage).await;
    stand_in
        .state
        .put("treadle-orphan", &labels(&stand_in, &own));
    stand_in.state.refuse("GET", "status_unavailable");
    let sandboxes = agent(&stand_in, folder.path()).await;
    until("the orphan is deleted", || {
        stand_in.state.pods() == [own.as_str()]
    })
    .await;
    let sandbox = sandboxes.get(&id).expect("it is on record");
    run(&sandbox, script("true")).await.expect("it has its pod");
}

#[tokio::test]
async fn a_sandbox_whose_record_can_not_be_read_keeps_its_pod() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    run(&sandbox, script("true")).await.expect("it runs");
    let (id, own) = (sandbox.id().to_owned(), pod(&sandbox));
    drop(sandbox);
    let (stand_in, folder) = crashed(stage).await;
    let record = folder
        .path()
        .join("sandboxes")
        .join(&id)
        .join("sandbox.json");
    std::fs::remove_file(&record).expect("a record");
    // A link to itself.
    std::os::unix::fs::symlink(Path::new("sandbox.json"), &record).expect("a link");
    // It is the last one to be deleted.
    stand_in
        .state
        .put("treadle-z-orphan", &labels(&stand_in, &own));
    let sandboxes = agent(&stand_in, folder.path()).await;
    until("the orphan is deleted", || {
        !stand_in
            .state
            .pods()
            .contains(&"treadle-z-orphan".to_owned())
    })
    .await;
    assert!(sandboxes.list().is_empty());
    assert_eq!(stand_in.state.pods(), [own]);
}
