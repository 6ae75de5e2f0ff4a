//! What sandboxes are for: commands, files, pauses, forks, ends.

use std::time::Instant;

use treadle_sandbox::End;

use crate::stage::{Stage, sh};

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_apart_from_the_machine() {
    let stage = Stage::new().await;
    let began = Instant::now();
    let sandbox = stage.sandbox().await;
    let (output, end) = sh(
        &sandbox,
        "id -u; echo $$; hostname; pwd; cat /proc/1/comm; ls /proc | grep -c '^[0-9]'",
    )
    .await;
    eprintln!("{:?}\n{output}", began.elapsed());
    assert_eq!(end, End::Exited(0), "{output}");
    for _ in 0..3 {
        let began = Instant::now();
        let sandbox = stage.sandbox().await;
        sh(&sandbox, "true").await;
        let made = began.elapsed();
        let began = Instant::now();
        sh(&sandbox, "true").await;
        let ran = began.elapsed();
        let began = Instant::now();
        let child = stage.sandboxes.fork(&sandbox, 1).await.unwrap();
        sh(&child[0], "true").await;
        let forked = began.elapsed();
        let began = Instant::now();
        stage.sandboxes.remove(sandbox.id()).await;
        eprintln!(
            "made {made:?} ran {ran:?} forked {forked:?} removed {:?}",
            began.elapsed()
        );
    }
}
