//! The commands of docs/rollouts.md run as they are written there, on a fresh daemon.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::process::binary;

const ROLLOUTS: &str = include_str!("../../docs/rollouts.md");
/// What starts a daemon in a guide.
const SERVES: [&str; 2] = ["treadle up", "treadle serve"];
/// Commands that need a model and GPUs are not run.
const NEEDS_GPUS: &str = "vllm serve";

/// The fenced blocks of a page that have commands of treadle.
fn commands(page: &str) -> Vec<&str> {
    let fenced = page.split("```").skip(1).step_by(2);
    let commands = fenced.filter(|block| block.lines().any(|line| line.starts_with("treadle ")));
    commands.map(str::trim).collect()
}

/// A command line in a folder, where `treadle` is the built one.
fn shell(script: &str, folder: &Path) -> Command {
    let programs = binary().parent().expect("a folder").to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env_remove("TREADLE_TOKEN");
    command
}

/// A daemon that a command of a guide started. Dropping it kills it.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    async fn by(script: &str, folder: &Path) -> Self {
        let script = format!("exec {script} --listen 127.0.0.1:0 --json");
        let mut command = shell(&script, folder);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash runs");
        let output = child.stdout.take().expect("its output");
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = tokio::time::timeout(TIMEOUT, line).await;
        let line = line.expect("it listens in time").expect("no panic");
        let said: Value = serde_json::from_str(&line.expect("a line")).expect("one line of JSON");
        let url = said["url"].as_str().expect("its URL").to_owned();
        Self { child, url }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_rollouts_works_as_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = commands(ROLLOUTS);
    let starts = |block: &&&str| SERVES.iter().any(|serves| block.starts_with(serves));
    let start = blocks.iter().find(starts);
    let daemon = Served::by(start.expect("the guide starts a daemon"), folder.path()).await;
    let left_out = blocks.iter().filter(|block| block.contains(NEEDS_GPUS));
    assert_eq!(left_out.count(), 1, "what is not run is one block");
    let run = blocks
        .iter()
        .filter(|block| !starts(block) && !block.contains(NEEDS_GPUS));
    for block in run {
        let mut command = shell(block, folder.path());
        let output = command.env("TREADLE_URL", &daemon.url).output();
        let output = output.expect("bash runs");
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{block}\n{out}{err}");
    }

    let token = std::fs::read_to_string(folder.path().join(".treadle/admin-token"));
    let client = Client::new(&daemon.url).with_token(token.expect("it is beside the store").trim());
    let bindings = client.get("/api/v1/bindings").await.ok();
    let bound = bindings["bindings"].as_array().expect("a list").iter();
    let policies: Vec<&str> = bound.filter_map(|each| each["policy"].as_str()).collect();
    for world in ["prediction", "priority", "placement", "allocation"] {
        let name = format!("heddle-{world}@");
        let is_bound = policies.iter().any(|policy| policy.starts_with(&name));
        assert!(is_bound, "{name}: {policies:?}");
    }
}
