//! What is found after the executor's process was killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use treadle_actions::{AttemptId, Executor, Found, MemoryOutputs, StartError};
use treadle_model::ActionId;

use crate::stage::{PROBE, config, exited, is_there, request};

fn attempt(action: u64) -> AttemptId {
    AttemptId {
        action: ActionId(action),
        attempt: 1,
    }
}

/// The pids that the action shows once all its processes are there.
fn shown(path: &Path) -> String {
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_killed_executor_leaves_no_process_and_no_doubt_about_what_began() {
    let folder = tempfile::tempdir().unwrap();
    let mut held = Command::new(PROBE)
        .arg("hold")
        .arg(folder.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pids = shown(&folder.path().join("shown"));
    assert!(pids.split_whitespace().all(is_there), "{pids}");
    let outputs = Arc::new(MemoryOutputs::default());
    let taken = Executor::new(config(folder.path().to_owned()), outputs.clone());
    assert!(taken.is_err(), "its folder is its own while it lives");
    held.kill().unwrap();
    held.wait().unwrap();
    let (executor, _events) = Executor::new(config(folder.path().to_owned()), outputs).unwrap();
    let recovery = executor.recover().await.unwrap();
    let Found::Ended { outcome, output } = recovery.of(attempt(1)) else {
        panic!("{recovery:?}");
    };
    assert_eq!(outcome, exited(4));
    assert!(output.is_some());
    assert_eq!(recovery.of(attempt(2)), Found::Unknown { was_alive: true });
    assert_eq!(recovery.of(attempt(3)), Found::NeverBegan);
    assert!(!pids.split_whitespace().any(is_there), "{pids}");
    let body = serde_json::json!({ "shell": "true" });
    let again = executor.start(request(ActionId(2), &body));
    assert_eq!(again, Err(StartError::Duplicate(attempt(2))));
    for action in 1..=2 {
        executor.acknowledge(ActionId(action), 1).await.unwrap();
    }
    let recovery = executor.recover().await.unwrap();
    assert_eq!(recovery.all().count(), 0);
}
