//! A private real vLLM server, to be suspended and killed, run by the recipe in `tests/engines/`;
//! and a relay in front of it that can hold back answers.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::Client;
use super::policy::root;

/// The Python that has vLLM.
const PYTHON_VARIABLE: &str = "TREADLE_TEST_VLLM_PYTHON";
/// The folder of the model that the other servers have.
const MODEL_VARIABLE: &str = "TREADLE_TEST_VLLM_MODEL";
/// A server takes a minute or two to start, and its first requests are slow.
const START: Duration = Duration::from_mins(10);
/// Lines of the log of a server that did not start.
const LOG_LINES: usize = 40;

/// A server. Dropping it ends all of its processes.
pub struct VllmServer {
    child: Child,
    group: String,
    url: String,
    /// A client of the server itself.
    pub client: Client,
}

impl VllmServer {
    /// Starts a server with the model of the others; `None` if none is configured.
    pub async fn start(folder: &Path) -> Option<Self> {
        let started = Self::run(folder, None).await?;
        Some(started.unwrap_or_else(|log| panic!("vLLM did not start: {log}")))
    }

    /// Starts a server with ranks of data parallelism; `None` if none is configured, or if vLLM can't
    /// start with ranks here.
    pub async fn with_ranks(folder: &Path, count: u32) -> Option<Self> {
        let started = Self::run(folder, Some(format!("ranks={count}"))).await?;
        let started = started.inspect_err(|log| {
            // It logs its arguments first.
            assert!(log.contains("data_parallel_size"), "no vLLM ran: {log}");
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            eprintln!("SKIPPED: vLLM does not start with {count} ranks here:\n{last}");
        });
        started.ok()
    }

    /// Runs a server; if it does not start, the error is its log.
    async fn run(folder: &Path, how: Option<String>) -> Option<Result<Self, String>> {
        let path = |variable| std::env::var_os(variable).map(PathBuf::from);
        let (Some(python), Some(model)) = (path(PYTHON_VARIABLE), path(MODEL_VARIABLE)) else {
            eprintln!(
                "SKIPPED: {PYTHON_VARIABLE} and {MODEL_VARIABLE} don't configure how to start a vLLM \
                 server that may be killed"
            );
            return None;
        };
        let log = folder.join("vllm.log");
        let mut child = Command::new(python)
            .arg(root().join("tests/engines/vllm_server.py"))
            .args([&model, &log])
            .args(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs");
        let output = child.stdout.take().expect("its output");
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = tokio::time::timeout(START, line).await;
        let line = line.expect("it starts in time").expect("no panic");
        let said: Value = serde_json::from_str(&line.expect("a line")).unwrap_or_default();
        let (Some(url), Some(group)) = (said["url"].as_str(), said["group"].as_u64()) else {
            drop(child.stdin.take());
            let _ = child.wait();
            return Some(Err(std::fs::read_to_string(log).unwrap_or_default()));
        };
        Some(Ok(Self {
            child,
            group: format!("-{group}"),
            url: url.to_owned(),
            client: Client::new(url).with_timeout(START),
        }))
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Suspends all of its processes (SIGSTOP).
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Kills all of its processes at once (SIGKILL).
    pub fn kill(&self) {
        self.signal("-KILL");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, "--", &self.group])
            .status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for VllmServer {
    fn drop(&mut self) {
        // It ends its server, and then itself, when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The answer to an export or to a load of weights, which the relay holds until this is dropped.
pub struct HeldAnswer(oneshot::Sender<()>);

impl HeldAnswer {
    /// Forwards it.
    pub fn let_go(self) {
        let _ = self.0.send(());
    }
}

/// Forwards requests to a server, and answers in one piece back.
pub struct Relay {
    url: String,
    held: UnboundedReceiver<HeldAnswer>,
    target: Arc<Mutex<Client>>,
    server: JoinHandle<()>,
}

impl Relay {
    /// A relay before a server.
    pub async fn before(server: &VllmServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, held) = unbounded_channel();
        let target = Arc::new(Mutex::new(server.client.clone()));
        let shared = target.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (target, sender) = (shared.clone(), sender.clone());
                let service = service_fn(move |request| {
                    let client = target.lock().expect("no panic").clone();
                    let sender = sender.clone();
                    async move { Ok::<_, Infallible>(passed_on(&client, &sender, request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self {
            url,
            held,
            target,
            server,
        }
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The next answer to an export or to a load of weights.
    pub async fn held(&mut self) -> HeldAnswer {
        self.held.recv().await.expect("the relay runs")
    }

    /// Forwards to another server from now on, as if it came back at the same address.
    pub fn turn_to(&self, server: &VllmServer) {
        *self.target.lock().expect("no panic") = server.client.clone();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn passed_on(
    client: &Client,
    held: &UnboundedSender<HeldAnswer>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let headers = [("content-type", "application/json")];
    let path = parts.uri.to_string();
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let Ok(answer) = client.open(parts.method, &path, &headers, body).await else {
        return response;
    };
    let status = answer.status();
    let Ok(body) = answer.into_body().collect().await else {
        return response;
    };
    let is_export = asked["kv_transfer_params"]["do_remote_decode"] == true;
    if is_export || asked["method"] == "reload_weights" {
        let (sender, let_go) = oneshot::channel();
        let _ = held.send(HeldAnswer(sender));
        let _ = let_go.await;
    }
    *response.status_mut() = status;
    *response.body_mut() = Full::new(body.to_bytes());
    response
}
