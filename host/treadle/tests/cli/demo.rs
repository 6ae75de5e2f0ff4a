//! The bar of `treadle demo` on a terminal.

use std::process::Stdio;

use tokio::process::Command;

use crate::cluster::TIMEOUT;

/// The percentages that a bar showed, in order.
fn percentages(output: &str) -> Vec<u64> {
    let shown = output.split('%').filter_map(|part| part.rsplit_once(']'));
    shown
        .filter_map(|(_, number)| number.trim().parse().ok())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bar_of_a_demo_never_goes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_treadle");
    // Four seconds after the start of its daemons.
    let demo = "demo --json --programs 6 --minutes 3 --warmup-minutes 0.5 --time-scale 50";
    let line = format!("stty rows 24 cols 200 && exec {program} {demo}");
    let mut script = Command::new("script");
    // It gives the demo a terminal.
    script.args(["-qec", &line, "/dev/null"]);
    script.env_clear().env("TERM", "xterm").stdin(Stdio::null());
    let ended = script
        .current_dir(folder.path())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TIMEOUT, ended).await;
    let output = output.expect("it ends").expect("script is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let shown = percentages(&text);
    assert!(shown.len() > 5 && shown.last() > shown.first(), "{text}");
    assert!(shown.is_sorted(), "{shown:?}");
}
