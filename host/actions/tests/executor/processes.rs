//! Processes: their environment, and their captured output.

use std::collections::BTreeSet;

use serde_json::json;
use treadle_core::actions::ActionEvent;
use treadle_model::ActionId;

use crate::stage::{Stage, cause, devices, exited, grant, order, shell};

#[tokio::test]
async fn an_action_gets_only_its_input_and_its_environment() {
    let mut stage = Stage::with(|config| config.inherit = vec!["PATH".to_owned()]).await;
    std::fs::create_dir(stage.path().join("sub")).unwrap();
    let script = "cat; pwd; env | grep -v ^_= | cut -d= -f1 | sort | tr '\\n' ' '; \
                  echo $A $TREADLE_ACTION_ID $TREADLE_ATTEMPT $TREADLE_JOB $TREADLE_PARALLELISM \
                  $TREADLE_DEVICES $CUDA_VISIBLE_DEVICES >&2; exit 7";
    let mut body = shell(script);
    body["process"]["stdin"] = json!("in\n");
    body["process"]["env"] = json!({ "A": "b" });
    body["process"]["cwd"] = json!("sub");
    stage.start_with(&body, |order| {
        order.grants = vec![grant("cpu", 3), devices(2, 2)];
    });
    let (outcome, output) = stage.end().await;
    assert_eq!(outcome, exited(7));
    let sub = std::fs::canonicalize(stage.path().join("sub")).unwrap();
    let wanted = format!(
        "in\n{}\nA CUDA_DEVICE_ORDER CUDA_VISIBLE_DEVICES PATH PWD TREADLE_ACTION_ID TREADLE_ATTEMPT \
         TREADLE_DEVICES TREADLE_JOB TREADLE_MARK TREADLE_PARALLELISM b 1 1 run-1 3 2,3 2,3\n",
        sub.display()
    );
    assert_eq!(output, wanted);
}

#[tokio::test]
async fn an_input_of_a_megabyte_is_read() {
    let mut stage = Stage::new().await;
    for (script, wanted) in [("wc -c", "1048576\n"), ("exit 0", "")] {
        let mut body = shell(script);
        body["process"]["stdin"] = json!("x".repeat(1 << 20));
        assert_eq!(stage.run(body).await, (exited(0), wanted.to_owned()));
    }
}

#[tokio::test]
async fn an_output_keeps_head_and_tail_and_says_what_is_missing() {
    let mut stage = Stage::with(|config| config.output_bytes_max = 64).await;
    let (outcome, output) = stage.shell("echo first; seq 100000; echo last >&2").await;
    assert_eq!(outcome, exited(0));
    assert!(output.starts_with("first\n1\n2\n"), "{output}");
    assert!(output.ends_with("\n100000\nlast\n"), "{output}");
    let numbers = (1..=100_000).map(|n: u32| n.to_string().len() + 1);
    let whole = "first\nlast\n".len() + numbers.sum::<usize>();
    let mark = format!("\n[treadle left out {} bytes here]\n", whole - 64);
    assert!(output.contains(&mark), "{output}");
    assert_eq!(output.len(), 64 + mark.len());
}

#[tokio::test]
async fn granted_cores_are_the_visible_cores() {
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    let mut stage = Stage::new().await;
    for count in 1..=cores {
        let body = shell("nproc; echo $TREADLE_PARALLELISM");
        stage.start_with(&body, |order| order.grants = vec![grant("cpu", count)]);
        let wanted = (exited(0), format!("{count}\n{count}\n"));
        assert_eq!(stage.end().await, wanted);
    }
    // A supervisor that ran an action on few cores can use all of them again.
    let ended = stage.shell("nproc").await;
    assert_eq!(ended, (exited(0), format!("{cores}\n")));
}

#[tokio::test]
async fn cores_are_distinct_while_there_are_enough() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut stage = Stage::new().await;
    let gate = stage.path().join("gate");
    let script = format!(
        "grep Cpus_allowed_list /proc/self/status; while [ ! -e {} ]; do sleep 0.01; done",
        gate.display()
    );
    for _ in 0..cores {
        stage.start_with(&shell(&script), |order| {
            order.grants = vec![grant("cpu", 1)];
        });
    }
    for _ in 0..cores {
        stage.began().await;
    }
    std::fs::write(gate, "").unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..cores {
        let (outcome, output) = stage.end().await;
        assert_eq!(outcome, exited(0));
        assert!(seen.insert(output.clone()), "{output} twice");
    }
}

#[tokio::test]
async fn attempts_are_limited_and_none_runs_twice() {
    let mut stage = Stage::with(|config| config.attempts_max = 2).await;
    let sleeps = shell("exec sleep 1000");
    let execute = |stage: &Stage, action| stage.executor.execute(order(ActionId(action), &sleeps));
    execute(&stage, 1);
    assert_eq!(stage.began().await, ActionId(1));
    execute(&stage, 1);
    execute(&stage, 2);
    assert_eq!(stage.began().await, ActionId(2), "the first began once");
    execute(&stage, 3);
    let (action, outcome, _) = stage.end_of_any().await;
    assert_eq!(action, ActionId(3));
    assert!(
        cause(&outcome).starts_with("2 actions are running"),
        "{outcome:?}"
    );
    stage.executor.stop(ActionId(1), 1);
    assert_eq!(stage.end_of_any().await.0, ActionId(1));
    execute(&stage, 1);
    execute(&stage, 4);
    let (action, ..) = stage.end_of_any().await;
    assert_eq!(action, ActionId(4), "an end is not acknowledged");
    // Refused attempts take no slot, so the next one begins when the first is acknowledged.
    stage.executor.acknowledge(ActionId(1), 1);
    loop {
        execute(&stage, 5);
        if matches!(stage.report().await, ActionEvent::ActionBegan { .. }) {
            break;
        }
    }
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn two_hundred_run_at_once() {
    const COUNT: u64 = 200;
    let mut stage = Stage::new().await;
    let gate = stage.path().join("gate");
    let fifo = std::process::Command::new("mkfifo").arg(&gate).status();
    assert!(fifo.unwrap().success());
    for number in 1..=COUNT {
        // Each waits until the gate has a writer.
        let script = format!("read line < {}; echo {number} $line", gate.display());
        stage.start(&shell(&script));
    }
    for _ in 0..COUNT {
        stage.began().await;
    }
    assert_eq!(stage.executor.running() as u64, COUNT);
    let writer = std::thread::spawn(move || {
        use std::io::Write as _;
        // Held open for as long as any of them may come to read.
        let mut options = std::fs::OpenOptions::new();
        let mut gate = options.read(true).write(true).open(gate).unwrap();
        let lines = "open\n".repeat(COUNT as usize);
        gate.write_all(lines.as_bytes()).unwrap();
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
