//! Messages about reached limits, with the remedy.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::cluster::{TIMEOUT, failure};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_of_an_address_are_told_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    // Of 264 files 256 are the daemon's own, and a connection takes two, so four connections fit.
    let program = env!("CARGO_BIN_EXE_treadle");
    let serve = "serve --json --listen 127.0.0.1:0 --set store.path=memory";
    let script = format!("ulimit -n 264 && exec {program} {serve}");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).env_clear().kill_on_drop(true);
    let command = command.current_dir(folder.path());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
    let started = tokio::time::timeout(TIMEOUT, out.next_line()).await;
    let started = started.expect("it listens").expect("text").expect("a line");
    let said: serde_json::Value = serde_json::from_str(&started).expect("JSON");
    let address = said["url"]
        .as_str()
        .and_then(|url| url.strip_prefix("http://"));
    let address = address.expect("its address").to_owned();
    // One address may have three of the four.
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(TcpStream::connect(&address).await.expect("a connection"));
    }
    let told = async {
        loop {
            let line = log.next_line().await.expect("text").expect("it runs");
            if line.contains("connection limit of an address reached") {
                return line;
            }
        }
    };
    let told = tokio::time::timeout(TIMEOUT, told)
        .await
        .expect("it is told");
    for part in ["WARN", "limit=3", "ulimit -n"] {
        assert!(told.contains(part), "{told}");
    }
    child.kill().await.expect("it runs");
}

#[tokio::test]
async fn a_demo_that_needs_more_files_than_there_may_be_says_so() {
    let program = env!("CARGO_BIN_EXE_treadle");
    let script = format!("ulimit -n 1200 && exec {program} demo --programs 2048");
    let demo = Command::new("bash").args(["-c", &script]).output();
    let output = tokio::time::timeout(TIMEOUT, demo).await;
    let output = output.expect("it ends").expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in [
        "2048 programs",
        "1200",
        "--programs 14",
        "ulimit -n",
        "--simulate",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let (_, text) = failure("http://127.0.0.1:1", "demo --programs 10001").await;
    assert!(text.contains("10001"), "{text}");
}
