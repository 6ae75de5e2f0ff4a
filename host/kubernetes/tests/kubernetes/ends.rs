//! Pods that end while something runs in them.

use std::sync::Arc;

use treadle_sandbox::{End, Event, Sandbox, SandboxError, State};

use crate::stage::{LONG, Stage, lists, pod, run, script, until};
use crate::stand_in::StandIn;

/// How a command ends whose pod comes to this end.
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
async fn a_sandbox_whose_pod_is_gone_says_so_and_is_no_new_one() {
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
async fn what_a_watch_missed_is_found_by_the_next_list() {
    let stage = Stage::new().await;
    // The API server has forgotten what it would tell: 410.
    let (end, _) = end_of(&stage, |stand_in, pod| stand_in.state.forget(Some(pod))).await;
    assert_eq!(end, End::Gone);
    // And follows what comes later.
    let (end, _) = end_of(&stage, |stand_in, pod| {
        stand_in.state.end(pod, "pod_oom_killed");
    })
    .await;
    assert_eq!(end, End::OutOfMemory);
    // One of the start, one of the watch, and one after it had to begin anew.
    until("lists", || lists(&stage, false) >= 3).await;
}

#[tokio::test]
async fn a_pod_that_comes_while_pods_are_listed_is_there() {
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
