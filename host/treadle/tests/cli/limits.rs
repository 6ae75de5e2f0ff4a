//! Messages about reached limits, with the remedy.

use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinSet;
use treadle_engine_sim::{EngineSim, EngineSimOptions};

use crate::cluster::{TIMEOUT, failure, step};

/// A daemon whose log is read.
struct Logged {
    child: Child,
    url: String,
    log: Lines<BufReader<ChildStderr>>,
    _folder: TempDir,
}

impl Logged {
    /// Starts `treadle serve` with further arguments, after a command of the shell.
    async fn start(before: &str, arguments: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = env!("CARGO_BIN_EXE_treadle");
        let serve = "serve --json --listen 127.0.0.1:0 --set store.path=memory";
        let script = format!("{before} && exec {program} {serve} {arguments}");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env_clear().kill_on_drop(true);
        let command = command.current_dir(folder.path());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let started = tokio::time::timeout(TIMEOUT, out.next_line()).await;
        let started = started.expect("it listens").expect("text").expect("a line");
        let said: Value = serde_json::from_str(&started).expect("JSON");
        let url = said["url"].as_str().expect("its URL").to_owned();
        Self {
            child,
            url,
            log,
            _folder: folder,
        }
    }

    async fn connect(&self) -> TcpStream {
        let address = self.url.strip_prefix("http://").expect("its address");
        TcpStream::connect(address).await.expect("a connection")
    }

    /// The next line of its log with these words.
    async fn logged(&mut self, words: &str) -> String {
        let line = async {
            loop {
                let line = self.log.next_line().await.expect("text").expect("it runs");
                if line.contains(words) {
                    return line;
                }
            }
        };
        let line = tokio::time::timeout(TIMEOUT, line).await;
        line.expect("it is told")
    }

    /// Limits the files that it may have open; those that are open stay so.
    fn limit_files(&self, current: Option<u64>) {
        let id = i32::try_from(self.child.id().expect("it runs")).expect("an id");
        let pid = Pid::from_raw(id).expect("no id is 0");
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current, maximum };
        prlimit(Some(pid), Resource::Nofile, limit).expect("its limit can be set");
    }
}

/// Sends a request over an open connection; returns the whole response.
async fn exchange(stream: &mut TcpStream, request: &str) -> String {
    let written = stream.write_all(request.as_bytes()).await;
    written.expect("the daemon reads");
    let mut bytes = Vec::new();
    loop {
        let count = stream.read_buf(&mut bytes).await.expect("a response");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_ne!(count, 0, "the connection ended: {text}");
        if is_whole(&text) {
            return text;
        }
    }
}

/// Whether a response has as many bytes as its head says.
fn is_whole(response: &str) -> bool {
    let Some((head, body)) = response.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse::<usize>().ok()) == Some(body.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_of_an_address_are_told_in_the_log() {
    // Of 264 files 256 are the daemon's own, and a connection takes two, so four connections fit.
    let mut daemon = Logged::start("ulimit -n 264", "").await;
    // One address may have three of the four.
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(daemon.connect().await);
    }
    let told = daemon
        .logged("connection limit of an address reached")
        .await;
    for part in ["WARN", "limit=3", "ulimit -n"] {
        assert!(told.contains(part), "{told}");
    }
    daemon.child.kill().await.expect("it runs");
}

/// More than the daemon keeps open to an engine without steps.
const CLIENTS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_without_a_free_file_says_so_in_its_log_and_to_its_clients() {
    // Its steps take minutes.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let engine = EngineSim::serve(listener, EngineSimOptions::default()).expect("good options");
    let arguments = format!(
        "--engine {} --set engines.measure=false --set engines.retry_max=0",
        engine.url()
    );
    let mut daemon = Logged::start("true", &arguments).await;
    step(&daemon.url, "before").await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = daemon.connect().await;
        let request = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let answer = exchange(&mut client, request).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        clients.push(client);
    }

    daemon.limit_files(Some(8));
    let _unaccepted = daemon.connect().await;
    let told = daemon.logged("reached its limit on open files").await;
    for part in ["WARN", "limit=8", "ulimit -n"] {
        assert!(told.contains(part), "{told}");
    }
    let mut asking = JoinSet::new();
    for (number, mut client) in clients.into_iter().enumerate() {
        let body = json!({"model": "treadle-sim", "program_id": number.to_string(),
            "max_tokens": 8_000, "messages": [{"role": "user", "content": "A long story"}]});
        let body = body.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        asking.spawn(async move { exchange(&mut client, &request).await });
    }
    let first = tokio::time::timeout(TIMEOUT, asking.join_next()).await;
    let first = first.expect("one is refused").expect("there are some");
    let first = first.expect("no panic");
    assert!(first.starts_with("HTTP/1.1 502"), "{first}");
    assert!(first.contains("Too many open files"), "{first}");

    // With room again it goes on by itself.
    drop(asking);
    daemon.limit_files(getrlimit(Resource::Nofile).maximum);
    step(&daemon.url, "after").await;
    daemon.child.kill().await.expect("it runs");
    engine.shutdown().await;
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
