//! How processes end, and that none of them is left.

use std::time::Duration;

use serde_json::json;
use treadle_actions::SupervisorCommand;
use treadle_core::actions::Outcome;
use treadle_model::{ActionId, Span};

use crate::stage::{PROBE, Stage, cause, exited, grant, is_there, order, shell};

#[tokio::test]
async fn an_action_that_did_not_run_has_no_exit_code() {
    let mut stage = Stage::new().await;
    for (body, told) in [
        (
            json!({ "command": ["no-such-program"] }),
            "no-such-program: not found",
        ),
        (json!({ "command": ["/"] }), "/: "),
        (json!({ "command": ["true"], "cwd": "absent" }), "cwd: "),
    ] {
        let (outcome, output) = stage.run(json!({ "process": body })).await;
        assert!(cause(&outcome).starts_with(told), "{outcome:?}");
        assert_eq!(output, "");
    }
    assert_eq!(stage.shell("exit 3").await.0, exited(3));
}

#[tokio::test]
async fn a_foreign_signal_is_reported() {
    let mut stage = Stage::new().await;
    let segv = stage.shell("kill -SEGV $$").await;
    assert_eq!(segv.0, Outcome::Killed { signal: 11 });
    stage.start(&shell("echo $$ > pid; mv pid there; exec sleep 1000"));
    let path = stage.path().join("there");
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(&path) {
            break pid;
        }
        tokio::task::yield_now().await;
    };
    let killed = std::process::Command::new("kill")
        .args(["-9", pid.trim()])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(stage.end().await.0, Outcome::Killed { signal: 9 });
}

#[tokio::test]
async fn missing_resources_are_infrastructure_failures() {
    let supervisor = |program: &str, args: &[&str]| SupervisorCommand {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
    };
    let mut stage = Stage::with(|config| config.supervisor = supervisor("/absent", &[])).await;
    let (outcome, _) = stage.shell("true").await;
    assert!(
        cause(&outcome).starts_with("no supervisor: /absent"),
        "{outcome:?}"
    );
    // Too few file descriptors to start a process.
    for files in 4..=6 {
        let script = format!("ulimit -n {files}; exec {PROBE} supervise");
        let starved = supervisor("/bin/sh", &["-c", &script]);
        let mut stage = Stage::with(|config| config.supervisor = starved).await;
        let (outcome, _) = stage.shell("true").await;
        assert!(cause(&outcome).contains("os error 24"), "{outcome:?}");
    }
    let mut stage = Stage::new().await;
    std::fs::remove_dir_all(stage.path().join("markers")).unwrap();
    let (outcome, _) = stage.shell("true").await;
    assert!(
        cause(&outcome).starts_with("could not record its start"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_timeout_ends_all_descendants_of_an_action() {
    let mut stage = Stage::with(|config| config.grace = Duration::from_millis(50)).await;
    let script = "trap 'echo asked' TERM; sleep 1000 & echo $!; env -i setsid sleep 1000 & echo $!; \
                  sh -c 'trap \"\" TERM; sleep 1000 & echo $!; exec setsid sleep 1000 & echo $!'; \
                  while :; do sleep 1000; done";
    stage.start_with(&shell(script), |order| {
        order.run_max = Span::from_millis(300);
    });
    let (outcome, output) = stage.end().await;
    assert_eq!(outcome, Outcome::TimedOut);
    assert!(output.lines().any(|line| line == "asked"), "{output}");
    // The shell may report terminated processes.
    let pids = output.lines().filter(|line| line.parse::<u32>().is_ok());
    let pids: Vec<&str> = pids.collect();
    assert_eq!(pids.len(), 4, "{output}");
    assert!(!pids.into_iter().any(is_there), "{output}");
}

#[tokio::test]
async fn background_processes_end_with_their_action() {
    let mut stage = Stage::new().await;
    let script = "setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); exit 5";
    let (outcome, output) = stage.shell(script).await;
    assert_eq!(outcome, exited(5));
    assert_eq!(output.lines().count(), 2);
    assert!(output.lines().all(|pid| !is_there(pid)), "{output}");
}

#[tokio::test]
async fn orphans_are_reaped_while_the_action_runs() {
    let mut stage = Stage::new().await;
    // Otherwise there would be a zombie until the action ends.
    let script = "pid=$(sh -c 'true & echo $!'); while [ -e /proc/$pid ]; do :; done; echo gone";
    assert_eq!(stage.shell(script).await, (exited(0), "gone\n".to_owned()));
}

#[tokio::test]
async fn an_action_that_kills_its_supervisor_leaves_no_process() {
    let mut stage = Stage::new().await;
    let script = "echo $$ > pids; setsid sleep 1000 & echo $! >> pids; kill -9 $PPID; sleep 1000";
    let (outcome, _) = stage.shell(script).await;
    assert_eq!(outcome, Outcome::Unknown);
    let pids = std::fs::read_to_string(stage.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2, "{pids}");
    for pid in pids.lines() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // Init may not have reaped it yet.
        let is_gone = status.is_empty() || status.contains("State:\tZ");
        assert!(is_gone, "{status}");
    }
    assert_eq!(stage.shell("exit 0").await.0, exited(0));
}

#[tokio::test]
async fn a_process_without_a_mark_ends_with_a_killed_supervisor() {
    for pens in [true, false] {
        let mut stage = Stage::with(|config| config.pens = pens).await;
        let script = "env -i setsid sleep 1000 > /dev/null 2>&1 & echo $! > pids; \
                      while grep -qa TREADLE_MARK /proc/$!/environ; do :; done; \
                      kill -9 $PPID; sleep 1000";
        let (outcome, _) = stage.shell(script).await;
        assert_eq!(outcome, Outcome::Unknown);
        let pid = std::fs::read_to_string(stage.path().join("pids")).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
        let status = status.unwrap_or_default();
        let is_gone = status.is_empty() || status.contains("State:\tZ");
        assert!(is_gone, "{pens}: {status}");
        assert_eq!(stage.shell("exit 0").await.0, exited(0));
        stage.executor.shutdown().await;
    }
}

#[tokio::test]
async fn memory_beyond_the_grant_ends_an_action() {
    let mut stage = Stage::new().await;
    // `tail` keeps the whole line, which never ends here.
    for (script, wanted) in [
        ("tail /dev/zero", Outcome::OutOfMemory),
        ("tail /dev/zero & wait; exit 0", Outcome::OutOfMemory),
        ("echo small", exited(0)),
    ] {
        stage.start_with(&shell(script), |order| {
            order.grants = vec![grant("memory", 64 << 20)];
        });
        assert_eq!(stage.end().await.0, wanted, "{script}");
    }
}

#[tokio::test]
async fn a_stop_is_a_cancellation_and_a_shutdown_is_not() {
    let mut stage = Stage::new().await;
    let sleeps = shell("echo up; exec sleep 1000");
    let first = stage.start(&sleeps);
    stage.began().await;
    stage.executor.stop(first, 2);
    stage.executor.stop(first, 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled);
    let second = stage.start(&sleeps);
    stage.executor.stop(second, 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled, "before it began");
    for idempotent in [false, true] {
        stage.start_with(&sleeps, |order| order.idempotent = idempotent);
        stage.began().await;
    }
    stage.executor.shutdown().await;
    assert_eq!(stage.executor.running(), 0);
    let ends = [stage.end().await.0, stage.end().await.0];
    let (again, over): (Vec<_>, Vec<_>) = ends.iter().partition(|end| **end == Outcome::Unknown);
    // The next daemon runs the idempotent one again.
    assert_eq!((again.len(), over.len()), (1, 1), "{ends:?}");
    assert_eq!(cause(over[0]), "the daemon stopped while it ran");
    stage.executor.execute(order(ActionId(9), &sleeps));
    assert_eq!(stage.executor.running(), 0, "nothing starts any more");
}
