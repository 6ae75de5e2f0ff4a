//! What sandboxes are for: commands, files, pauses, forks, ends.

use std::time::{Duration, Instant};

use treadle_sandbox::{End, State};

use crate::stage::{Stage, sh};

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_apart_from_the_machine() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let (output, end) = sh(
        &sandbox,
        "id -u; hostname; pwd; ls /proc | grep -c '^[0-9]'",
    )
    .await;
    // The first process, the shell, `ls` and `grep`.
    let told = format!("0\n{}\n/root\n4\n", sandbox.id());
    assert_eq!((output, end), (told, End::Exited(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_have_the_files_and_processes_go_on_after_a_pause() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let line = "echo one > /root/a; rm /etc/hosts; (while :; do date +%N > /root/tick; sleep 0.01; done) &";
    sh(&sandbox, line).await;
    let children = stage.sandboxes.fork(&sandbox, 2).await.unwrap();
    for child in &children {
        let (output, _) = sh(
            child,
            "cat /root/a; ls /etc/hosts 2>&1 | wc -l; ls -d /etc/hosts; echo two > /root/a",
        )
        .await;
        assert!(output.starts_with("one\n1\n"), "{output}");
    }
    let grandchild = stage.sandboxes.fork(&children[0], 1).await.unwrap();
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
        "ls /usr/local/bin/tool /usr/share/of-mine 2>&1 | wc -l; ls -d /usr/bin",
    )
    .await;
    assert_eq!(output, "2\n/usr/bin\n");
    assert!(!std::path::Path::new("/usr/local/bin/tool").exists());
}
