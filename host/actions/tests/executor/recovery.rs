//! Recovery after the executor's process was killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::sync::mpsc::channel;
use treadle_actions::{Executor, MemoryOutputs, recover};
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;

use crate::stage::{Stage, config, exited, is_there, order, shell};

/// Environment variable with that daemon's folder.
const FOLDER: &str = "TREADLE_TEST_FOLDER";

/// The pids that the action writes when all its processes are running.
fn shown(path: &Path) -> String {
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        std::thread::yield_now();
    }
}

fn outcome(event: Option<ActionEvent>) -> (Outcome, bool) {
    match event {
        Some(ActionEvent::ActionEnded {
            outcome, output, ..
        }) => (outcome, output.is_some()),
        other => panic!("{other:?}"),
    }
}

/// One action ends, and one continues with hidden processes; then this waits to be killed.
#[tokio::test]
#[ignore = "runs as the child of another test"]
async fn a_daemon_that_is_killed() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let shown = folder.join("shown").display().to_string();
    let mut stage = Stage::with(|config| config.markers = folder).await;
    assert_eq!(stage.shell("echo done; exit 4").await.0, exited(4));
    let script = "trap '' TERM; env -i setsid sleep 1000 & echo $! $$ > $PIDS.partial; \
                  mv $PIDS.partial $PIDS; sleep 1000";
    let mut stays = shell(script);
    stays["process"]["env"] = serde_json::json!({ "PIDS": shown });
    stage.run(stays).await;
}

#[tokio::test]
async fn a_killed_executor_leaves_no_process_and_a_complete_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut held = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recovery::a_daemon_that_is_killed", "--ignored"])
        .env(FOLDER, folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pids = shown(&folder.path().join("shown"));
    assert!(pids.split_whitespace().all(is_there), "{pids}");
    let mut config = config(folder.path().to_owned());
    config.epoch += 1;
    let taken = recover(&config).await;
    assert!(taken.is_err(), "its folder is its own while it lives");
    held.kill().unwrap();
    held.wait().unwrap();
    let recovery = recover(&config).await.unwrap();
    assert!(!pids.split_whitespace().any(is_there), "{pids}");
    let began: Vec<_> = recovery.attempts().collect();
    assert_eq!(began, [(ActionId(1), 1), (ActionId(2), 1)]);
    assert_eq!(outcome(recovery.end(ActionId(1), 1)), (exited(4), true));
    let unknown = (Outcome::Unknown, false);
    assert_eq!(outcome(recovery.end(ActionId(2), 1)), unknown);
    assert_eq!(recovery.end(ActionId(3), 1), None, "it never began");
    let (sender, mut reports) = channel(16);
    let outputs = Arc::new(MemoryOutputs::default());
    let executor = Executor::start(config.clone(), recovery, outputs, sender);
    let executor = executor.await.unwrap();
    for action in [2, 3] {
        executor.execute(order(ActionId(action), &shell("true")));
    }
    let began = reports.recv().await.unwrap();
    let (action, attempt) = (ActionId(3), 1);
    assert_eq!(
        began,
        ActionEvent::ActionBegan { action, attempt },
        "the other did before"
    );
    executor.shutdown().await;
    // A daemon that led in between may have started unknown attempts.
    config.epoch += 2;
    let recovery = recover(&config).await.unwrap();
    assert_eq!(outcome(recovery.end(ActionId(4), 1)), unknown);
}
