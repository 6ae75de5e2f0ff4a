//! An engine written by hand: it keeps each generation request as it came and hands the
//! connection to the test, which answers byte by byte.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use super::client::TIMEOUT;
use treadle_wire::KIND_PROMPT;

/// The engine. It is healthy as long as it exists: it answers probes itself.
pub struct RawEngine {
    url: String,
    requests: UnboundedReceiver<RawRequest>,
    server: JoinHandle<()>,
    state: Arc<State>,
}

/// The state that its pages report.
struct State {
    is_well: AtomicBool,
    is_asleep: AtomicBool,
    tells_kind: AtomicBool,
    metrics: Mutex<String>,
    info: Mutex<String>,
}

/// A generation request, and the connection that waits for its answer and ends with it.
pub struct RawRequest {
    /// Method, path and query, version.
    pub line: String,
    /// Header lines.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
    stream: TcpStream,
}

impl RawEngine {
    /// Starts to listen.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, requests) = unbounded_channel();
        let state = Arc::new(State {
            is_well: AtomicBool::new(true),
            is_asleep: AtomicBool::new(false),
            tells_kind: AtomicBool::new(false),
            metrics: Mutex::new("{}".to_owned()),
            info: Mutex::new("{}".to_owned()),
        });
        let shared = state.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, state) = (sender.clone(), shared.clone());
                tokio::spawn(async move {
                    let mut stream = Some(stream);
                    while let Some(request) = read_request(stream.take()).await {
                        if request.line.starts_with("POST") {
                            if state.tells_kind.load(Relaxed) || !request.asks_for_kind() {
                                let _ = sender.send(request);
                            } else {
                                request.answer("404 Not Found", "text/plain", "").await;
                            }
                            return;
                        }
                        stream = request.answer_probe(&state).await;
                    }
                });
            }
        });
        Self {
            url,
            requests,
            server,
            state,
        }
    }

    /// Sets whether it is healthy from now on; while it is not, probes are answered with 503.
    pub fn set_well(&self, is_well: bool) {
        self.state.is_well.store(is_well, Relaxed);
    }

    /// Sets whether it reports that it is asleep, as vLLM does.
    pub fn set_asleep(&self, is_asleep: bool) {
        self.state.is_asleep.store(is_asleep, Relaxed);
    }

    /// Hands requests for the kind of its log-probabilities to the test, too.
    pub fn tell_kind(&self) {
        self.state.tells_kind.store(true, Relaxed);
    }

    /// Sets its page of metrics.
    pub fn set_metrics(&self, page: &str) {
        let mut metrics = self.state.metrics.lock().expect("unpoisoned");
        page.clone_into(&mut metrics);
    }

    /// Sets its page `/server_info`.
    pub fn set_info(&self, page: &str) {
        let mut info = self.state.info.lock().expect("unpoisoned");
        page.clone_into(&mut info);
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether no generation request waits to be answered.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// The next generation request.
    pub async fn request(&mut self) -> RawRequest {
        let request = tokio::time::timeout(TIMEOUT, self.requests.recv()).await;
        request.expect("a request in time").expect("a request")
    }
}

impl Drop for RawEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn read_request(stream: Option<TcpStream>) -> Option<RawRequest> {
    let mut stream = stream?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 16_384];
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut piece).await {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return None,
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n").map(str::to_owned);
    let line = lines.next()?;
    let headers: Vec<String> = lines.collect();
    let length = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length.unwrap_or(0) {
        match stream.read(&mut piece).await {
            Ok(count) if count > 0 => body.extend_from_slice(&piece[..count]),
            _ => return None,
        }
    }
    Some(RawRequest {
        line,
        headers,
        body,
        stream,
    })
}

impl RawRequest {
    async fn answer_probe(mut self, state: &State) -> Option<TcpStream> {
        let is_well = state.is_well.load(Relaxed);
        let status = if is_well { "200 OK" } else { "503 Loading" };
        let body = match self.line.split(' ').nth(1) {
            Some("/is_sleeping") => {
                format!("{{\"is_sleeping\":{}}}", state.is_asleep.load(Relaxed))
            }
            Some("/metrics") => state.metrics.lock().expect("unpoisoned").clone(),
            Some("/server_info") => state.info.lock().expect("unpoisoned").clone(),
            _ => "{}".to_owned(),
        };
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.stream.write_all(answer.as_bytes()).await.ok()?;
        Some(self.stream)
    }

    /// Whether it asks for the kind of the engine's log-probabilities.
    pub fn asks_for_kind(&self) -> bool {
        String::from_utf8_lossy(&self.body).contains(KIND_PROMPT)
    }

    /// Writes bytes of the answer.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let written = self.stream.write_all(bytes.as_ref()).await;
        written.expect("the gateway still reads");
    }

    /// Answers in one piece.
    pub async fn answer(mut self, status: &str, kind: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n"
        );
        self.write(format!("{head}{body}")).await;
    }

    /// Answers a chat with one word.
    pub async fn answer_chat(self) {
        self.answer("200 OK", "application/json", CHAT_ANSWER).await;
    }

    /// Begins an event stream of unknown length.
    pub async fn begin_events(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
             transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        )
        .await;
    }

    /// Sends bytes as one chunk of the stream.
    pub async fn chunk(&mut self, bytes: &[u8]) {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.write(chunk).await;
    }

    /// Ends the stream in order.
    pub async fn end(mut self) {
        self.write("0\r\n\r\n").await;
    }

    /// Sends a chunk repeatedly until the gateway closes the request.
    pub async fn flood(mut self, bytes: &[u8]) {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        let flooding = async { while self.stream.write_all(&chunk).await.is_ok() {} };
        let ended = tokio::time::timeout(TIMEOUT, flooding).await;
        assert!(ended.is_ok(), "the gateway still waits");
    }

    /// Waits until the gateway closes the request.
    pub async fn until_given_up(mut self) {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(TIMEOUT, self.stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the gateway still waits");
    }
}

/// An answer to a chat: 5 tokens of prompt, 1 of output.
pub const CHAT_ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;
