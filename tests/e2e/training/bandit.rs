//! The examples of the Python package as their user runs them: under a shaping policy, with a daemon
//! that they start themselves, and at two engines whose weights really change while one is killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use treadle_config::{Config, Endpoint, EngineChoice};
use treadle_tests::support::client::{Client, TIMEOUT};
use treadle_tests::support::policy::root;
use treadle_tests::support::process::{DaemonProcess, binary};

use super::on_disk;
use crate::clients::python;
use crate::restart::DAEMON;

const ENGINES_JOB: &str = "bandit-engines";

fn module(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", &format!("treadle_rl.examples.{name}")])
        .env("PYTHONPATH", root().join("sdk/python/treadle_rl/src"));
    command
}

/// The bandit, and the daemon that it reports to.
pub(super) struct Bandit<'a> {
    pub(super) python: PathBuf,
    pub(super) folder: &'a Path,
    pub(super) url: String,
    pub(super) token: String,
    pub(super) job: &'a str,
}

impl Bandit<'_> {
    /// Starts it; its output goes to [`Self::log`].
    pub(super) fn start(&self, arguments: &[&str]) -> Child {
        let log = |name: &str| {
            let mut options = std::fs::OpenOptions::new();
            let path = self.folder.join(name);
            let file = options.create(true).append(true).open(path);
            file.expect("a log")
        };
        module(&self.python, "bandit")
            .args(arguments)
            .args(["--job", self.job, "--out", "run"])
            .current_dir(self.folder)
            .env("TREADLE_URL", &self.url)
            .env("TREADLE_TOKEN", &self.token)
            .stdout(log("bandit.log"))
            .stderr(log("bandit.log"))
            .spawn()
            .expect("Python runs")
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("bandit.log")).unwrap_or_default()
    }

    /// Waits for its end, as long as it goes on: on a busy machine it takes long.
    pub(super) async fn ends(&self, mut child: Child) {
        let mut ended = tokio::task::spawn_blocking(move || child.wait());
        let mut log = self.log();
        let ended = loop {
            if let Ok(ended) = tokio::time::timeout(2 * TIMEOUT, &mut ended).await {
                break ended;
            }
            let now = self.log();
            assert_ne!(now, log, "it does not go on");
            log = now;
        };
        let status = ended.expect("no panic").expect("its status");
        assert!(status.success(), "{}", self.log());
    }

    /// What `treadle training check` reports.
    pub(super) fn check(&self) -> Value {
        let output = Command::new(binary())
            .args(["training", "check", "--json", "--job", self.job])
            .arg("--batches")
            .arg(self.folder.join("run"))
            .args(["--url", &self.url, "--token", &self.token])
            .output()
            .expect("it runs");
        let [out, err] = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t));
        assert!(output.status.success(), "{out}{err}{}", self.log());
        serde_json::from_str(&out).expect("a report")
    }
}

/// One command starts a daemon, binds DARTS, trains, and proves the run.
#[test]
fn a_shaped_loop_runs_in_one_command() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", free.local_addr().expect("its address"));
    drop(free);
    let output = module(&python, "bandit")
        .args(["--shaping", "darts", "--steps", "3", "--url", &url])
        .current_dir(folder.path())
        .env("TREADLE", binary())
        .env_remove("TREADLE_TOKEN")
        .output()
        .expect("Python runs");
    let [out, err] = [&output.stdout, &output.stderr].map(|t| String::from_utf8_lossy(t));
    assert!(output.status.success(), "{out}{err}");
    for said in [
        "3 batches, 24 groups, 192 members, 192 samples checked",
        "; 0 violations",
        "  short  sampled ",
        "  long   sampled ",
        "in all, darts-shaping: ",
    ] {
        assert!(out.contains(said), "`{said}` is missing: {out}");
    }
    // Of the first groups nothing is known, so each samples twelve, and eight are trained. One that
    // came later, and samples fewer, may be ready before the last of them.
    let first = out.split("batch ").nth(1).expect("the first batch");
    let unselected = first.split("  unselected: ").nth(1);
    let unselected = unselected.and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(unselected.is_some_and(|n| (16..=32).contains(&n)), "{out}");
    let log = folder.path().join("bandit-darts-run/daemon.log");
    assert!(log.exists(), "the daemon that it started says something");
    let connected = std::net::TcpStream::connect(url.trim_start_matches("http://"));
    assert!(connected.is_err(), "the daemon ended with it");
}

/// An engine of the package, in a process that is killed when this is dropped.
struct TinyEngine {
    child: Child,
    url: String,
}

impl TinyEngine {
    /// Starts one that loads weights slowly, so that it can be killed meanwhile.
    fn start(python: &Path, port: &str) -> Self {
        let mut child = module(python, "engine")
            .args(["--port", port, "--load-ms", "300"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        let read = BufReader::new(output).read_line(&mut line);
        read.expect("its URL");
        let url = line.trim().to_owned();
        Self { child, url }
    }

    /// Kills it, and starts another one in its place.
    fn restart(&mut self, python: &Path) {
        self.kill();
        let port = self.url.rsplit(':').next().expect("a port").to_owned();
        *self = Self::start(python, &port);
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for TinyEngine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The job's weights once they are as wanted.
async fn weights(client: &Client, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/api/v1/jobs/{ENGINES_JOB}/weights");
    let began = Instant::now();
    loop {
        let answer = client.get(&path).await;
        let view = answer.json();
        if answer.status == 200 && is_so(&view) {
            return view;
        }
        assert!(began.elapsed() < 2 * TIMEOUT, "{what}: {view}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn behind(engines: &[TinyEngine], folder: &Path) -> Config {
    let mut config = on_disk(folder);
    let endpoint = |engine: &TinyEngine| Endpoint {
        kind: Some(EngineChoice::Sglang),
        ..Endpoint::at(engine.url.clone())
    };
    config.engines.endpoints = engines.iter().map(endpoint).collect();
    config
}

/// Each token of a run has the log-probability of the version that is on record for it, bit by bit,
/// although an engine is killed in the middle of a load and another process takes its place.
#[tokio::test(flavor = "multi_thread")]
async fn each_token_has_the_probability_of_its_recorded_version() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut engines = [(); 2].map(|()| TinyEngine::start(&python, "0"));
    let config = behind(&engines, folder.path());
    let daemon = DaemonProcess::start(DAEMON, &config, folder.path()).await;
    let client = &daemon.client;
    let bandit = Bandit {
        python: python.clone(),
        folder: folder.path(),
        url: client.base().to_owned(),
        token: client.token().unwrap_or_default().to_owned(),
        job: ENGINES_JOB,
    };
    let trainer = bandit.start(&["--engines", "2", "--steps", "5"]);
    let loads = |view: &Value| {
        let number = view["update"]["weights"]["version"].as_u64();
        number >= Some(2) && view["workers"][1]["call"] == "apply"
    };
    let view = weights(client, "an engine loads", loads).await;
    let torn = view["update"]["weights"]["version"].clone();
    engines[1].kill();
    let has_ended = |view: &Value| view["last"]["weights"]["version"] == torn;
    let view = weights(client, "the update ends", has_ended).await;
    let last = &view["last"];
    assert_eq!(
        (&last["held"], &last["behind"][0]["worker"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        view["serving"]["version"], torn,
        "the other engine serves it"
    );
    assert_eq!(view["workers"][1]["fenced"], true, "{view}");
    weights(client, "the run goes on without it", |view| {
        view["serving"]["version"].as_u64() > torn.as_u64()
    })
    .await;
    engines[1].restart(&python);
    let serves_all = |view: &Value| {
        let serving = &view["serving"]["version"];
        let workers = view["workers"].as_array().expect("a list");
        let serves = |of: &Value| of["fenced"] == false && of["held"]["version"] == *serving;
        view["update"].is_null() && workers.iter().all(serves)
    };
    weights(client, "the engine is back", serves_all).await;
    bandit.ends(trainer).await;
    // A trainer that starts again goes on, with both engines.
    bandit
        .ends(bandit.start(&["--engines", "2", "--steps", "7"]))
        .await;
    let log = bandit.log();
    assert!(log.contains("resumed after batch 5"), "{log}");
    assert!(
        log.contains(" tokens of 224 answers have the log-"),
        "{log}"
    );
    let view = weights(client, "both serve the last version", serves_all).await;
    assert_eq!(view["serving"]["name"], "1.7");
    for engine in &engines {
        let page = Client::new(&*engine.url).get("/model_info").await.ok();
        assert_eq!(page["weight_version"], "1.7");
    }
    let report = bandit.check();
    assert_eq!(report["batches"], 7, "{report}");
    assert_eq!(report["samples_checked"], 7 * 32, "{report}");
    assert_eq!(report["violations"], json!([]));
    drop(daemon);
}
