//! Commands: streams, ends, and how they are ended.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use treadle_sandbox::{End, Event, Exec, Input, SandboxError};

use crate::stage::{LONG, Stage, run, script, until};

/// Whether a process runs.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn commands_report_their_output_and_their_end() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    for (text, output, errors, end) in [
        ("true", "", "", End::Exited(0)),
        (
            "echo out; echo err >&2; exit 7",
            "out\n",
            "err\n",
            End::Exited(7),
        ),
        (
            "printf 'no end of line'",
            "no end of line",
            "",
            End::Exited(0),
        ),
        // These two can't be distinguished.
        ("exit 130", "", "", End::Exited(130)),
        ("kill -2 $$", "", "", End::Exited(130)),
    ] {
        let ran = run(&sandbox, script(text)).await.expect(text);
        assert_eq!(ran, (output.to_owned(), errors.to_owned(), end), "{text}");
    }
    let mut exec = script("pwd; echo $A; echo err >&2");
    exec.cwd = stage.stand_in.inside();
    exec.env.insert("A".to_owned(), "b c".to_owned());
    exec.merged = true;
    let (output, errors, _) = run(&sandbox, exec).await.expect("it runs");
    assert_eq!(output, format!("{}\nb c\nerr\n", stage.stand_in.inside()));
    assert_eq!(errors, "");
}

#[tokio::test]
async fn a_failed_start_is_reported() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let missing = run(&sandbox, Exec::new(["no-such-program"]))
        .await
        .expect_err("none");
    assert_eq!(missing.to_string(), "no-such-program: not found");
    let mut exec = script("true");
    exec.cwd = "/no/where".to_owned();
    let nowhere = run(&sandbox, exec).await.expect_err("no folder");
    assert_eq!(nowhere.to_string(), "cwd: /no/where is not a folder");
    stage.stand_in.state.without_shell();
    let without = run(&sandbox, script("true")).await.expect_err("no shell");
    let told = without.to_string();
    assert!(matches!(without, SandboxError::Command(_)), "{told}");
    assert!(
        told.contains("executable file not found") && told.contains("use an image with `sh`"),
        "{told}"
    );
}

#[tokio::test]
async fn large_input_and_output_flow_at_the_same_time() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let bytes: Vec<u8> = (0_u32..2 << 20).map(|n| (n % 251) as u8).collect();
    let mut exec = Exec::new(["cat"]);
    exec.input = Input::Bytes(bytes.clone());
    let mut running = sandbox.run(exec).await.expect("it runs");
    let mut output: Vec<u8> = Vec::new();
    let taken = running.follow(LONG, |event| {
        if let Event::Output(bytes) = event {
            output.extend(bytes);
        }
    });
    assert_eq!(taken.await, (End::Exited(0), false));
    assert!(output == bytes, "{} bytes", output.len());
}

#[tokio::test]
async fn input_is_streamed_and_closed() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let mut exec = script("read a; echo got $a; cat; echo over");
    exec.input = Input::Piped;
    let mut running = sandbox.run(exec).await.expect("it runs");
    let mut stdin = running.stdin.take().expect("piped");
    stdin.write_all(b"one\n").await.expect("written");
    let first = running.next().await;
    assert_eq!(first, Event::Output(b"got one\n".to_vec()));
    stdin.write_all(b"two\n").await.expect("written");
    drop(stdin);
    let mut rest: Vec<u8> = Vec::new();
    let end = running.follow(LONG, |event| {
        if let Event::Output(bytes) = event {
            rest.extend(bytes);
        }
    });
    assert_eq!(end.await, (End::Exited(0), false));
    assert_eq!(rest, b"two\nover\n");
}

#[tokio::test]
async fn an_api_server_that_can_not_end_input_is_named() {
    let stage = Stage::new().await;
    stage.stand_in.state.is_old();
    let sandbox = stage.sandbox().await;
    let (output, ..) = run(&sandbox, script("cat; echo over"))
        .await
        .expect("it reads nothing");
    assert_eq!(output, "over\n");
    let path = format!("{}/file", stage.stand_in.inside());
    sandbox
        .write(&path, b"bytes".to_vec())
        .await
        .expect("files have a length");
    assert_eq!(sandbox.read(&path, 5).await.expect("it is there"), b"bytes");
    let mut exec = Exec::new(["cat"]);
    exec.input = Input::Bytes(b"some".to_vec());
    let refused = run(&sandbox, exec).await.expect_err("no end of input");
    assert!(refused.to_string().contains("Kubernetes 1.30"), "{refused}");
}

#[tokio::test]
async fn a_timeout_ends_a_command_and_all_its_descendants() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let text =
        "sleep 300 & echo $!; setsid sleep 300 & echo $!; sh -c 'sleep 300 & echo $!; wait' & wait";
    let mut running = sandbox.run(script(text)).await.expect("it runs");
    let first = running.pid.to_string();
    let mut output = String::new();
    while output.lines().count() < 3 {
        let Event::Output(bytes) = running.next().await else {
            panic!("it has ended");
        };
        output += std::str::from_utf8(&bytes).expect("numbers");
    }
    let pids: Vec<&str> = output.lines().chain([first.as_str()]).collect();
    assert!(pids.iter().all(|pid| runs(pid)), "{pids:?}");
    let ended = running.follow(Duration::from_millis(50), |_| {}).await;
    assert_eq!(ended, (End::Killed(9), true));
    until("all have ended", || !pids.iter().any(|pid| runs(pid))).await;
}

#[tokio::test]
async fn a_signal_gets_to_a_command() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let text = "trap 'echo told; exit 3' USR1; echo ready; while :; do sleep 0.01; done";
    let mut running = sandbox.run(script(text)).await.expect("it runs");
    assert_eq!(running.next().await, Event::Output(b"ready\n".to_vec()));
    running.stopper().signal(10).await.expect("sent");
    assert_eq!(running.next().await, Event::Output(b"told\n".to_vec()));
    assert_eq!(running.next().await, Event::Ended(End::Exited(3)));

    let mut running = sandbox
        .run(Exec::new(["sleep", "300"]))
        .await
        .expect("it runs");
    running.stopper().signal(15).await.expect("sent");
    assert_eq!(running.follow(LONG, |_| {}).await, (End::Killed(15), false));
}

#[tokio::test]
async fn endless_output_blocks_a_command_until_it_is_ended() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let mut running = sandbox.run(Exec::new(["yes"])).await.expect("it runs");
    let (pid, mut taken) = (running.pid, 0);
    while taken < 1 << 20 {
        let Event::Output(bytes) = running.next().await else {
            panic!("it has ended");
        };
        taken += bytes.len();
    }
    // Nobody reads, so it blocks when the buffers are full.
    let done = || std::fs::read_to_string(format!("/proc/{pid}/io")).expect("it runs");
    let mut before = done();
    let rests = tokio::time::timeout(LONG, async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = done();
            if now == before {
                return;
            }
            before = now;
        }
    });
    rests.await.expect("it waits");
    running.stopper().kill().await.expect("sent");
    assert_eq!(running.follow(LONG, |_| {}).await, (End::Killed(9), false));
}

#[tokio::test]
async fn a_command_ends_even_if_nobody_reads_its_output() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let end = format!("{}/end", stage.stand_in.inside());
    let much = "head -c 24000000 /dev/zero";
    let text = format!("{much}; {much} >&2; : >'{end}'");
    drop(sandbox.run(script(&text)).await.expect("it runs"));
    until("its end", || std::path::Path::new(&end).exists()).await;
}
