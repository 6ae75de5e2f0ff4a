//! Processes: what they are given, how they end, and that nothing of them stays.

use std::collections::BTreeSet;

use serde_json::json;
use treadle_actions::{ExecutorEvent, StartError, SupervisorCommand};
use treadle_core::actions::Outcome;
use treadle_model::ActionId;

use crate::stage::{PROBE, Stage, cause, devices, exited, grant, is_there, request};

#[tokio::test]
async fn an_action_gets_its_input_its_surroundings_and_nothing_else() {
    let mut stage = Stage::with(|config| config.inherit = vec!["PATH".to_owned()]);
    std::fs::create_dir(stage.path().join("sub")).unwrap();
    let script = "cat; pwd; env | cut -d= -f1 | sort | tr '\\n' ' '; \
                  echo $A $TREADLE_ACTION_ID $TREADLE_ATTEMPT $TREADLE_PARALLELISM \
                  $TREADLE_DEVICES $CUDA_VISIBLE_DEVICES >&2; exit 7";
    let body = json!({ "shell": script, "stdin": "in\n", "env": { "A": "b" }, "cwd": "sub" });
    stage.start(&body, vec![grant("cpu", 3), devices(2, 2)], 60_000);
    let (outcome, output) = stage.end().await;
    assert_eq!(outcome, exited(7));
    let sub = std::fs::canonicalize(stage.path().join("sub")).unwrap();
    let wanted = format!(
        "in\n{}\nA CUDA_VISIBLE_DEVICES PATH PWD TREADLE_ACTION_ID TREADLE_ATTEMPT \
         TREADLE_DEVICES TREADLE_MARK TREADLE_PARALLELISM b x1 1 3 2,3 2,3\n",
        sub.display()
    );
    assert_eq!(output.replace(" _ ", " "), wanted);
}

#[tokio::test]
async fn an_input_of_a_megabyte_is_read() {
    let mut stage = Stage::new();
    let stdin = "x".repeat(1 << 20);
    let ended = stage.run(json!({ "shell": "wc -c", "stdin": stdin }));
    assert_eq!(ended.await, (exited(0), "1048576\n".to_owned()));
    let ended = stage.run(json!({ "shell": "exit 0", "stdin": stdin }));
    assert_eq!(ended.await, (exited(0), String::new()), "nobody reads it");
}

#[tokio::test]
async fn ends_have_their_kinds() {
    let mut stage = Stage::new();
    assert_eq!(
        stage.shell("kill -SEGV $$").await.0,
        Outcome::Killed { signal: 11 }
    );
    let (outcome, output) = stage.run(json!({ "command": ["no-such-program"] })).await;
    assert_eq!(outcome, exited(127));
    assert_eq!(output, "treadle: no-such-program: not found\n");
    let (outcome, output) = stage.run(json!({ "command": ["/"] })).await;
    assert_eq!(outcome, exited(126));
    assert!(output.starts_with("treadle: /: "), "{output}");
    let (outcome, output) = stage
        .run(json!({ "command": ["true"], "cwd": "absent" }))
        .await;
    assert_eq!(outcome, exited(127));
    assert!(output.ends_with("absent is no folder\n"), "{output}");
}

#[tokio::test]
async fn what_the_machine_lacks_is_no_fault_of_the_action() {
    let supervisor = |program: &str, args: &[&str]| SupervisorCommand {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
    };
    let mut stage = Stage::with(|config| config.supervisor = supervisor("/absent", &[]));
    let (outcome, _) = stage.shell("true").await;
    assert!(
        cause(&outcome).starts_with("no supervisor: /absent"),
        "{outcome:?}"
    );
    // Too few files for a process to be started.
    for files in 4..=5 {
        let script = format!("ulimit -n {files}; exec {PROBE} supervise");
        let starved = supervisor("/bin/sh", &["-c", &script]);
        let mut stage = Stage::with(|config| config.supervisor = starved);
        let (outcome, _) = stage.shell("true").await;
        assert!(cause(&outcome).contains("os error 24"), "{outcome:?}");
    }
    let mut stage = Stage::new();
    std::fs::remove_dir_all(stage.path().join("markers")).unwrap();
    let (outcome, _) = stage.shell("true").await;
    assert!(
        cause(&outcome).starts_with("it can't be put on record"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_timeout_ends_all_that_descends_from_the_action() {
    let mut stage = Stage::with(|config| config.grace = std::time::Duration::from_millis(50));
    let script = "trap 'echo asked' TERM; sleep 1000 & echo $!; env -i setsid sleep 1000 & echo $!; \
                  sh -c 'trap \"\" TERM; sleep 1000 & echo $!; exec setsid sleep 1000 & echo $!'; \
                  while :; do sleep 1000; done";
    let (outcome, output) = stage.shell_with(script, Vec::new(), 300).await;
    assert_eq!(outcome, Outcome::TimedOut);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 5, "{output}");
    assert!(lines.contains(&"asked"), "{output}");
    for pid in lines.iter().filter(|line| **line != "asked") {
        assert!(!is_there(pid), "{pid} of {output}");
    }
}

#[tokio::test]
async fn what_an_action_leaves_behind_ends_with_it() {
    let mut stage = Stage::new();
    let script = "setsid sleep 1000 & echo $!; (sleep 1000 & echo $!); exit 5";
    let (outcome, output) = stage.shell(script).await;
    assert_eq!(outcome, exited(5));
    assert_eq!(output.lines().count(), 2);
    assert!(output.lines().all(|pid| !is_there(pid)), "{output}");
}

#[tokio::test]
async fn orphans_are_reaped_while_the_action_runs() {
    let mut stage = Stage::new();
    // A zombie would be there for as long as the action is.
    let script = "pid=$(sh -c 'true & echo $!'); while [ -e /proc/$pid ]; do :; done; echo gone";
    assert_eq!(stage.shell(script).await, (exited(0), "gone\n".to_owned()));
}

#[tokio::test]
async fn an_action_that_kills_its_supervisor_leaves_nothing_either() {
    let mut stage = Stage::new();
    let script = "echo $$; setsid sleep 1000 & echo $!; kill -9 $PPID; sleep 1000";
    let (outcome, output) = stage.shell(script).await;
    assert!(cause(&outcome).contains("ended by another"), "{outcome:?}");
    assert_eq!(output.lines().count(), 2, "{output}");
    for pid in output.lines() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // Whoever takes orphans in may not have reaped it yet.
        assert!(
            status.is_empty() || status.contains("State:\tZ"),
            "{status}"
        );
    }
}

#[tokio::test]
async fn an_output_keeps_head_and_tail() {
    let mut stage = Stage::with(|config| config.output_bytes_max = 64);
    let (outcome, output) = stage.shell("echo first; seq 100000; echo last >&2").await;
    assert_eq!(outcome, exited(0));
    assert!(output.starts_with("first\n1\n2\n"), "{output}");
    assert!(output.ends_with("\n100000\nlast\n"), "{output}");
    let whole = "first\nlast\n".len()
        + (1..=100_000)
            .map(|n: u32| n.to_string().len() + 1)
            .sum::<usize>();
    let mark = format!("\n[treadle left out {} bytes here]\n", whole - 64);
    assert!(output.contains(&mark), "{output}");
    assert_eq!(output.len(), 64 + mark.len());
}

#[tokio::test]
async fn memory_beyond_the_grant_ends_an_action() {
    let mut stage = Stage::new();
    let grants = vec![grant("memory", 64 << 20)];
    // `tail` keeps a line, which has no end here.
    let ended = stage.shell_with("tail /dev/zero", grants.clone(), 60_000);
    assert_eq!(ended.await.0, Outcome::OutOfMemory);
    assert_eq!(
        stage.shell_with("echo small", grants, 60_000).await.0,
        exited(0)
    );
}

#[tokio::test]
async fn cores_are_distinct_while_there_are_enough() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut stage = Stage::new();
    let gate = stage.path().join("gate");
    let script = format!(
        "grep Cpus_allowed_list /proc/self/status; while [ ! -e {} ]; do :; done",
        gate.display()
    );
    let body = json!({ "shell": script });
    for _ in 0..cores {
        stage.start(&body, vec![grant("cpu", 1)], 60_000);
    }
    let mut began = 0;
    while began < cores {
        began += usize::from(matches!(stage.event().await, ExecutorEvent::Began { .. }));
    }
    std::fs::write(gate, "").unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..cores {
        let (outcome, output) = stage.end().await;
        assert_eq!(outcome, exited(0));
        assert!(seen.insert(output.clone()), "{output} twice");
    }
    assert_eq!(seen.len(), cores);
}

#[tokio::test]
async fn a_stop_is_a_cancellation_and_a_shutdown_is_not() {
    let mut stage = Stage::new();
    let sleeps = json!({ "shell": "echo up; exec sleep 1000" });
    let first = stage.start(&sleeps, Vec::new(), 600_000);
    assert!(matches!(stage.event().await, ExecutorEvent::Began { .. }));
    stage.executor.stop(first, 2);
    stage.executor.stop(first, 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled);
    let second = stage.start(&sleeps, Vec::new(), 600_000);
    stage.executor.stop(second, 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled, "before it began");
    stage.start(&sleeps, Vec::new(), 600_000);
    assert!(matches!(stage.event().await, ExecutorEvent::Began { .. }));
    stage.executor.shutdown().await;
    assert_eq!(stage.executor.running(), 0);
    assert_eq!(
        cause(&stage.end().await.0),
        "the daemon stopped while it ran"
    );
    let refused = stage.executor.start(request(ActionId(9), &sleeps));
    assert_eq!(refused, Err(StartError::ShutDown));
}

#[tokio::test]
async fn starts_are_bounded_and_no_attempt_begins_twice() {
    let mut stage = Stage::with(|config| {
        config.running_max = 2;
        config.attempts_max = 3;
    });
    let body = json!({ "shell": "exec sleep 1000" });
    let start = |stage: &Stage, action| stage.executor.start(request(ActionId(action), &body));
    start(&stage, 1).unwrap();
    assert!(matches!(start(&stage, 1), Err(StartError::Duplicate(_))));
    start(&stage, 2).unwrap();
    assert_eq!(start(&stage, 3), Err(StartError::Busy { running_max: 2 }));
    stage.executor.stop(ActionId(1), 1);
    assert_eq!(stage.end().await.0, Outcome::Cancelled);
    assert!(
        matches!(start(&stage, 1), Err(StartError::Duplicate(_))),
        "its end is on record"
    );
    start(&stage, 3).unwrap();
    stage.executor.stop(ActionId(2), 1);
    stage.end().await;
    let full = Err(StartError::Unacknowledged { attempts_max: 3 });
    assert_eq!(start(&stage, 4), full);
    stage.executor.acknowledge(ActionId(1), 1).await.unwrap();
    assert!(
        stage.executor.acknowledge(ActionId(3), 1).await.is_err(),
        "it runs"
    );
    start(&stage, 4).unwrap();
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn two_hundred_run_at_once() {
    const COUNT: u64 = 200;
    let mut stage = Stage::new();
    let gate = stage.path().join("gate");
    let fifo = std::process::Command::new("mkfifo").arg(&gate).status();
    assert!(fifo.unwrap().success());
    for number in 1..=COUNT {
        // Each waits until the gate has a writer.
        let script = format!("read line < {}; echo {number} $line", gate.display());
        stage.start(&json!({ "shell": script }), Vec::new(), 60_000);
    }
    let mut began = 0;
    while began < COUNT {
        let event = stage.event().await;
        assert!(matches!(event, ExecutorEvent::Began { .. }), "{event:?}");
        began += 1;
    }
    assert_eq!(stage.executor.running() as u64, COUNT);
    let writer = std::thread::spawn(move || {
        use std::io::Write as _;
        // Held open for as long as any of them may come to read.
        let mut gate = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(gate)
            .unwrap();
        gate.write_all("open\n".repeat(COUNT as usize).as_bytes())
            .unwrap();
        gate
    });
    let gate = writer.join().unwrap();
    let mut seen = BTreeSet::new();
    while (seen.len() as u64) < COUNT {
        let (outcome, output) = stage.end().await;
        assert_eq!(outcome, exited(0), "{output}");
        assert!(seen.insert(output));
    }
    drop(gate);
}
