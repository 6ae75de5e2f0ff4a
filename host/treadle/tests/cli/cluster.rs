//! Fixtures of the command line's tests: daemons with simulated engines, and the built binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use treadle_config::Config;
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};
use treadle_http::Upstream;
use treadle_server::start::Daemon;

/// Admin tokens of the daemons that tests have started, by URL.
static TOKENS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Timeout for anything that a test waits for, even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);

/// A daemon with two engines.
pub(crate) struct Cluster {
    pub(crate) daemon: Daemon,
    pub(crate) engines: Vec<EngineSimHandle>,
}

impl Cluster {
    pub(crate) async fn start(store: &str) -> Self {
        let engines = vec![engine().await, engine().await];
        let urls: Vec<String> = engines.iter().map(EngineSimHandle::url).collect();
        let sets = [
            "server.listen=127.0.0.1:0".to_owned(),
            format!("engines.endpoints={}", urls.join(",")),
            format!("store.path={store}"),
            "store.snapshot_events=100".to_owned(),
        ];
        let config = Config::load(None, [], &sets).expect("a good configuration");
        let daemon = Daemon::start(&config).await.expect("the daemon starts");
        let first = daemon.first_token.as_ref().expect("a new store");
        let mut tokens = TOKENS.lock().expect("no thread panicked");
        tokens.insert(daemon.url(), first.secret.clone());
        drop(tokens);
        Self { daemon, engines }
    }

    pub(crate) async fn stop(self) {
        self.daemon.stop().await;
        for engine in self.engines {
            engine.shutdown().await;
        }
    }

    /// Runs a command that succeeds and returns its output.
    pub(crate) async fn run_printed(&self, line: &str) -> String {
        stdout(&treadle(&self.daemon.url(), line).await, line)
    }

    pub(crate) async fn json(&self, line: &str) -> Value {
        let text = self.run_printed(&format!("{line} --json")).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }
}

pub(crate) async fn engine() -> EngineSimHandle {
    let options = EngineSimOptions {
        instant: true,
        ..EngineSimOptions::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    EngineSim::serve(listener, options).expect("good options")
}

/// The binary with an environment of its own.
pub(crate) fn binary(url: &str, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_treadle"));
    command
        .args(line.split_whitespace())
        .env_clear()
        .env("TREADLE_URL", url)
        .kill_on_drop(true);
    if let Some(token) = TOKENS.lock().expect("no thread panicked").get(url) {
        command.env("TREADLE_TOKEN", token);
    }
    command
}

pub(crate) async fn treadle(url: &str, line: &str) -> Output {
    let ended = tokio::time::timeout(TIMEOUT, binary(url, line).output());
    ended.await.expect("it ends").expect("it starts")
}

pub(crate) fn stdout(output: &Output, line: &str) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Exit code and message of a failing command.
pub(crate) async fn failure(url: &str, line: &str) -> (Option<i32>, String) {
    let output = treadle(url, line).await;
    let text = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), text)
}

/// Runs one step of a program.
pub(crate) async fn step(url: &str, program: &str) {
    let body = json!({"model": "treadle-sim", "program_id": program, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hello"}]});
    step_of(url, &body).await;
}

/// Runs one step with this body.
pub(crate) async fn step_of(url: &str, body: &Value) {
    let upstream = Upstream::new(TIMEOUT);
    let body = Bytes::from(body.to_string());
    let path = "/v1/chat/completions";
    let headers = HeaderMap::new();
    let sent = upstream.send(Method::POST, url, path, &headers, body);
    let answer = sent.await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.expect("a whole answer");
}

/// Polls until an answer is right, as the journal lags behind events.
pub(crate) async fn until<F: Future<Output = Option<T>>, T>(mut ask: impl FnMut() -> F) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asked)
        .await
        .expect("it comes to be so")
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn guest() -> String {
    let path = repository().join("target/guests/lru_eviction.wasm");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// A serving process, with its output.
pub(crate) struct Served {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Served {
    pub(crate) fn start(line: &str, folder: &Path) -> Self {
        Self::beside("http://127.0.0.1:1", line, folder)
    }

    /// Starts a process for a daemon.
    pub(crate) fn beside(url: &str, line: &str, folder: &Path) -> Self {
        let mut command = binary(url, line);
        let mut child = command
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        let lines = BufReader::new(stdout).lines();
        Self { child, lines }
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(TIMEOUT, self.lines.next_line());
        let line = line.await.expect("it prints soon").expect("text");
        line.expect("it prints before it ends")
    }

    /// Stops the process as a terminal or a supervisor does.
    pub(crate) async fn stop(self, signal: &str) -> Option<i32> {
        let id = self.child.id().expect("it runs").to_string();
        let told = Command::new("kill").args([signal, &id]).status().await;
        assert!(told.expect("kill is there").success());
        self.ended().await
    }

    /// Waits for the end and returns the exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        ended.expect("it stops").expect("it ran").code()
    }
}
