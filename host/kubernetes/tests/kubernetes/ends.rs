//! Pods that end while a command runs in them.

use std::sync::Arc;

use treadle_sandbox::{End, Event, Sandbox, SandboxError, State};

use crate::stage::{LONG, Stage, lists, pod, run, script, until};
use crate::stand_in::StandIn;

/// The end of a command whose pod ends like this.
async fn end_of(stage: &Stage, ends: impl FnOnce(&StandIn, &str)) -> (End, Arc<Sandbox>) {
    let sandbox = stage.sandbox().await;
    let mut running = sandbox
        .run(script("echo begun; sleep 300"))
        .await
        .expect("it runs");
    assert_eq!(running.next().await, Event::Output(b"begun\n".to_vec()));
    ends(&stage.stand_in, &pod(&sandbox));
    let (end, is_late) = running.follow(LONG, |_| {}).await;
    assert!(!is_late);
    (end, sandbox)
}

#[tokio::test]
async fn a_command_ends_as_its_pod_did() {
    let stage = Stage::new().await;
    for (status, expected) in [
        ("pod_evicted", End::Gone),
        ("pod_evicted_disk", End::OutOfDisk),
        ("pod_oom_killed", End::OutOfMemory),
        ("pod_deadline", End::Gone),
    ] {
        let (end, sandbox) = end_of(&stage, |stand_in, pod| stand_in.state.end(pod, status)).await;
        assert_eq!(end, expected, "{status}");
        stage.sandboxes.remove(sandbox.id()).await;
    }
    assert!(stage.stand_in.state.pods().is_empty());
}

#[tokio::test]
async fn a_sandbox_without_its_pod_reports_that_and_is_not_recreated() {
    let stage = Stage::new().await;
    let (end, sandbox) = end_of(&stage, |stand_in, pod| stand_in.state.lose(pod)).await;
    assert_eq!(end, End::Gone);
    assert!(
        matches!(sandbox.status().state, State::Failed(_)),
        "it is told at once"
    );
    let next = run(&sandbox, script("true"))
        .await
        .expect_err("its files are gone");
    let told = next.to_string();
    assert!(
        told.contains("its files with it") && told.contains("make another"),
        "{told}"
    );
    assert!(matches!(next, SandboxError::Preparation(_)), "{told}");
    assert!(
        stage.stand_in.state.pods().is_empty(),
        "it was not made again"
    );
    let file = sandbox
        .read("/etc/hostname", 10)
        .await
        .expect_err("no files");
    assert!(file.to_string().contains("make another"), "{file}");
}

#[tokio::test]
async fn events_missed_by_a_watch_are_found_by_the_next_list() {
    let stage = Stage::new().await;
    // The API server has dropped the events: 410.
    let (end, _) = end_of(&stage, |stand_in, pod| stand_in.state.forget(Some(pod))).await;
    assert_eq!(end, End::Gone);
    // Later events are followed.
    let (end, _) = end_of(&stage, |stand_in, pod| {
        stand_in.state.end(pod, "pod_oom_killed");
    })
    .await;
    assert_eq!(end, End::OutOfMemory);
    // One at the start, one for the watch, and one after it had to begin again.
    until("lists", || lists(&stage, false) >= 3).await;
}

#[tokio::test]
async fn a_pod_created_during_a_list_is_found() {
    let stage = Stage::new().await;
    until("it watches", || lists(&stage, true) > 0).await;
    stage.stand_in.state.hold_lists(true);
    stage.stand_in.state.forget(None);
    until("a list is under way", || lists(&stage, false) >= 3).await;
    let (end, _) = end_of(&stage, |stand_in, pod| {
        stand_in.state.hold_lists(false);
        stand_in.state.end(pod, "pod_oom_killed");
    })
    .await;
    assert_eq!(end, End::OutOfMemory, "and not gone");
}

#[tokio::test]
async fn a_removal_ends_what_runs() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let mut running = sandbox.run(script("sleep 300")).await.expect("it runs");
    stage.sandboxes.remove(sandbox.id()).await;
    assert_eq!(running.follow(LONG, |_| {}).await, (End::Gone, false));
}
