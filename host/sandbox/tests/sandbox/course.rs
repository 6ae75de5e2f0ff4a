//! What sandboxes are for: commands, files, pauses, forks, ends.

use std::time::{Duration, Instant};

use treadle_sandbox::{End, OnExpiry, SandboxSpec, State};

use crate::stage::{Stage, sh};

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_apart_from_the_machine() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let (output, end) = sh(
        &sandbox,
        "id -u; hostname; pwd; set -- /proc/[0-9]*; echo $#",
    )
    .await;
    // The first process and the shell.
    let told = format!("0\n{}\n/root\n2\n", sandbox.id());
    assert_eq!((output, end), (told, End::Exited(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_have_the_files_and_processes_go_on_after_a_pause() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let line = "echo one > /root/a; rm /etc/hosts; (while :; do date +%N > /root/tick; sleep 0.01; done) &";
    sh(&sandbox, line).await;
    let children = stage.sandboxes.fork(&sandbox, 2, |_| {}).await.unwrap();
    for child in &children {
        let (output, _) = sh(
            child,
            "cat /root/a; test ! -e /etc/hosts && echo gone; echo two > /root/a",
        )
        .await;
        assert_eq!(output, "one\ngone\n");
    }
    let grandchild = stage.sandboxes.fork(&children[0], 1, |_| {}).await.unwrap();
    assert_eq!(sh(&grandchild[0], "cat /root/a").await.0, "two\n");
    assert_eq!(sh(&sandbox, "cat /root/a").await.0, "one\n");

    sandbox.pause().await.unwrap();
    assert_eq!(sandbox.status().state, State::Paused);
    let first = sandbox.read("/root/tick", 100).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        sandbox.read("/root/tick", 100).await.unwrap(),
        first,
        "nothing runs"
    );
    sandbox.resume().await.unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while sandbox.read("/root/tick", 100).await.unwrap() == first {
        assert!(Instant::now() < until, "its processes go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_adds_programs_to_the_system_and_nobody_else_sees_them() {
    let stage = Stage::new().await;
    let (one, other) = (stage.sandbox().await, stage.sandbox().await);
    let line = "echo 'echo here' > /usr/local/bin/tool && chmod +x /usr/local/bin/tool \
                && mkdir /usr/share/of-mine && ln -s /usr/local/bin/tool /usr/bin/tool2 && tool2";
    let (output, end) = sh(&one, line).await;
    assert_eq!((output.as_str(), end), ("here\n", End::Exited(0)));
    let (output, _) = sh(
        &other,
        "for f in /usr/local/bin/tool /usr/bin/tool2 /usr/share/of-mine; do test -e $f && echo $f; done; echo none",
    )
    .await;
    assert_eq!(
        output,
        "none
"
    );
    assert!(!std::path::Path::new("/usr/local/bin/tool").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_time_is_over_is_paused_and_a_command_gives_it_as_much_again() {
    let stage = Stage::new().await;
    let spec = SandboxSpec {
        ttl: Some(Duration::from_secs(2)),
        on_expiry: OnExpiry::Pause,
        ..SandboxSpec::default()
    };
    let sandbox = stage.sandboxes.create(spec).await.unwrap();
    sh(&sandbox, "true").await;
    let until = Instant::now() + Duration::from_secs(10);
    while sandbox.status().state != State::Paused {
        assert!(Instant::now() < until, "{:?}", sandbox.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (output, end) = sh(&sandbox, "sleep 0.6; echo on").await;
    assert_eq!((output.as_str(), end), ("on\n", End::Exited(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_with_the_last_sandbox_over_them() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let children = stage
        .sandboxes
        .fork(&sandbox, 2, |spec| spec.labels.clear())
        .await
        .unwrap();
    sh(&children[0], "true").await;
    let layers = stage.folder.path().join("agent/layers");
    let count = || std::fs::read_dir(&layers).unwrap().count();
    assert_eq!(count(), 1, "one copy for both");
    for child in children {
        stage.sandboxes.remove(child.id()).await;
    }
    stage.sandboxes.collect_copies().await;
    assert_eq!(count(), 0);
}
