//! The load: clients in a closed loop, each with a connection of its own, that
//! send the next request when the last is answered in full.

use crate::bench::BenchError;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use treadle_demo::naming::{Naming, Sender};
use treadle_report::latencies::Latencies;

const PATH: &str = "/v1/chat/completions";

/// What is sent.
#[derive(Clone)]
pub(super) struct Load {
    /// Clients at once.
    pub(super) concurrency: usize,
    /// A request of each program; they are sent in turn.
    requests: Arc<[Sent]>,
}

/// A request that is sent again and again.
struct Sent {
    headers: HeaderMap,
    body: Bytes,
}

impl Load {
    /// The same body from `programs` programs, which are named as a system is told of them.
    pub(super) fn new(concurrency: usize, programs: usize, body: &str, naming: &Naming) -> Self {
        let request = |program: usize| {
            let program = format!("bench-{program}");
            let sender = Sender::from(program.as_str());
            Sent {
                headers: naming.headers(sender),
                body: naming.body(body.to_owned(), sender, false).into(),
            }
        };
        Self {
            concurrency,
            requests: (0..programs).map(request).collect(),
        }
    }

    /// Each program is a member of a group of its own in a training job.
    pub(super) fn in_job(self, job: &'static str) -> Self {
        let requests = self.requests.iter().enumerate().map(|(program, sent)| {
            let mut headers = sent.headers.clone();
            headers.insert("x-treadle-job", HeaderValue::from_static(job));
            let group = HeaderValue::from(program);
            headers.insert("x-treadle-group", group);
            Sent {
                headers,
                body: sent.body.clone(),
            }
        });
        Self {
            concurrency: self.concurrency,
            requests: requests.collect(),
        }
    }

    /// How many programs send.
    pub(super) fn programs(&self) -> usize {
        self.requests.len()
    }
}

/// When the clients stop.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// After this number of requests of all together.
    Requests(usize),
}

/// What came back.
#[derive(Default)]
pub(super) struct Answers {
    /// Times of successful requests, by server.
    pub(super) latencies: Vec<Latencies>,
    failures: u64,
    first_failure: Option<String>,
}

impl Answers {
    /// All that succeeded.
    pub(super) fn count(&self) -> usize {
        self.latencies.iter().map(Latencies::count).sum()
    }

    /// The answers, unless any request failed.
    pub(super) fn checked(self, case: &str) -> Result<Self, BenchError> {
        match self.first_failure {
            Some(first) => Err(BenchError::Requests {
                case: case.to_owned(),
                count: self.failures,
                first,
            }),
            None => Ok(self),
        }
    }

    fn absorb(&mut self, other: Self) {
        self.latencies
            .resize_with(other.latencies.len(), Latencies::default);
        for (mine, theirs) in self.latencies.iter_mut().zip(other.latencies) {
            mine.absorb(theirs);
        }
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

/// Sends the load to the servers; each client takes them in turn.
pub(super) async fn send(servers: &[&str], load: &Load, until: Until) -> Answers {
    let servers: Arc<[String]> = servers.iter().map(|url| host_of(url)).collect();
    let sent = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..load.concurrency {
        let client = Client {
            servers: servers.clone(),
            load: load.clone(),
            sent: sent.clone(),
            until,
            started: Instant::now(),
        };
        clients.spawn(client.run());
    }
    let mut answers = Answers::default();
    answers
        .latencies
        .resize_with(servers.len(), Latencies::default);
    while let Some(done) = clients.join_next().await {
        match done {
            Ok(one) => answers.absorb(one),
            Err(error) => {
                answers.failures += 1;
                answers.first_failure.get_or_insert(error.to_string());
            }
        }
    }
    answers
}

fn host_of(url: &str) -> String {
    url.trim_start_matches("http://")
        .trim_end_matches('/')
        .to_owned()
}

struct Client {
    servers: Arc<[String]>,
    load: Load,
    sent: Arc<AtomicUsize>,
    until: Until,
    started: Instant,
}

impl Client {
    async fn run(self) -> Answers {
        let mut answers = Answers::default();
        answers
            .latencies
            .resize_with(self.servers.len(), Latencies::default);
        if let Err(failure) = self.exchange_all(&mut answers).await {
            answers.failures += 1;
            answers.first_failure.get_or_insert(failure);
        }
        answers
    }

    /// Ends at the first failure: a benchmark with failures has no figures.
    async fn exchange_all(&self, answers: &mut Answers) -> Result<(), String> {
        let mut connections = Vec::new();
        for server in self.servers.iter() {
            connections.push(Connection::open(server).await?);
        }
        loop {
            for (connection, latencies) in connections.iter_mut().zip(&mut answers.latencies) {
                let number = self.sent.fetch_add(1, Ordering::Relaxed);
                let over = match self.until {
                    Until::Elapsed(time) => self.started.elapsed() >= time,
                    Until::Requests(count) => number >= count,
                };
                if over {
                    return Ok(());
                }
                let request = &self.load.requests[number % self.load.programs()];
                let began = Instant::now();
                connection.exchange(request).await?;
                latencies.push(began.elapsed());
            }
        }
    }
}

struct Connection {
    host: HeaderValue,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    async fn open(host: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(host).await.map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(text)?;
        // It ends with the sender; a failure shows in the exchange under way.
        tokio::spawn(connection);
        let host = HeaderValue::from_str(host).map_err(text)?;
        Ok(Self { host, sender })
    }

    /// One request and all of its answer; gives the bytes of the answer.
    async fn exchange(&mut self, sent: &Sent) -> Result<usize, String> {
        let mut request = Request::new(Full::new(sent.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(PATH);
        *request.headers_mut() = sent.headers.clone();
        request
            .headers_mut()
            .insert(header::HOST, self.host.clone());
        self.sender.ready().await.map_err(text)?;
        let response = self.sender.send_request(request).await.map_err(text)?;
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.map_err(text)?.data_ref().map_or(0, Bytes::len);
        }
        if status.is_success() && bytes > 0 {
            Ok(bytes)
        } else {
            Err(format!("status {status} and {bytes} bytes"))
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A body whose answer has `output_tokens`.
pub(super) fn chat_body(prompt_bytes: usize, output_tokens: u32, stream: bool) -> String {
    let content: String = "the agent looks at the result of its tool and goes on "
        .chars()
        .cycle()
        .take(prompt_bytes)
        .collect();
    let mut body = serde_json::json!({
        "model": "treadle-sim",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": output_tokens,
        "stream": stream,
    });
    if stream {
        body["stream_options"] = serde_json::json!({"include_usage": true});
    }
    body.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use treadle_engine_sim::{EngineSim, EngineSimOptions};

    async fn answers(concurrency: usize, body: &str, requests: usize) -> Answers {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = EngineSimOptions {
            instant: true,
            ..EngineSimOptions::default()
        };
        let engine = EngineSim::serve(listener, options).unwrap();
        let load = Load::new(concurrency, 3, body, &Naming::default());
        let url = engine.url();
        let answers = send(&[&url, &url], &load, Until::Requests(requests)).await;
        engine.shutdown().await;
        answers
    }

    #[tokio::test]
    async fn servers_are_taken_in_turn_and_every_request_is_timed() {
        let answers = answers(2, &chat_body(40, 5, true), 40).await;
        let answers = answers.checked("test").unwrap();
        assert_eq!(answers.count(), 40);
        let (one, other) = (answers.latencies[0].count(), answers.latencies[1].count());
        assert!(one.abs_diff(other) <= 2, "{one} and {other}");
    }

    #[tokio::test]
    async fn failures_leave_no_figures() {
        let answers = answers(2, "{", 10).await;
        let error = answers.checked("test").err().unwrap().to_string();
        assert!(
            error.contains("2 requests failed") && error.contains("400"),
            "{error}"
        );
    }
}
