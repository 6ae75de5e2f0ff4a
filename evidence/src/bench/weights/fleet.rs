//! Simulated engines behind a daemon, programs that keep them busy, and when engines give no tokens.

use super::super::BenchError;
use super::super::simulated::daemon_config;
use super::{MB, WeightsArgs, failed};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use treadle_config::{AnonymousScope, Config, EngineChoice};
use treadle_demo::exchange::{get, post, put, release, step};
use treadle_demo::naming::Naming;
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};
use treadle_http::Upstream;
use treadle_server::start::Daemon;
use treadle_weight_store::Places;

/// The job whose weights are updated.
pub(super) const JOB: &str = "bench";
/// For a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Steps of a program.
const TURNS: u32 = 6;
/// Bytes that each step adds to its prompt, four for a token.
const TURN_BYTES: usize = 800;
/// Tokens of an answer.
const ANSWER_TOKENS: u32 = 128;
/// How long a tool takes.
const TOOL: Duration = Duration::from_millis(50);
/// Between two looks at what engines have generated.
const LOOK: Duration = Duration::from_millis(5);
/// Between two looks at whether a step still runs.
const DRAIN_LOOK: Duration = Duration::from_millis(1);
/// Shorter times between two tokens count as generation.
const SILENCE_MIN: Duration = Duration::from_millis(250);

/// Whether programs may begin steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gate {
    Open,
    Closed,
    /// All programs end.
    Over,
}

/// Engines, a daemon and programs at work.
pub(super) struct Fleet {
    pub(super) upstream: Upstream,
    engines: Arc<Vec<EngineSimHandle>>,
    daemon: Daemon,
    load: Arc<Load>,
    gate: watch::Sender<Gate>,
    programs: JoinSet<Result<(), String>>,
}

/// What programs share.
struct Load {
    upstream: Upstream,
    url: String,
    model: String,
    /// Steps that run.
    steps: AtomicU64,
}

/// What was seen of engines for a while.
pub(super) struct Seen {
    pub(super) took_s: f64,
    pub(super) tokens: u64,
    /// Seconds without tokens, of all engines together.
    pub(super) silent_s: f64,
}

/// Engines that are watched.
pub(super) struct Watch {
    over: watch::Sender<bool>,
    seen: JoinHandle<Seen>,
}

impl Watch {
    pub(super) async fn end(self) -> Result<Seen, BenchError> {
        let _ = self.over.send(true);
        let seen = self.seen.await;
        seen.map_err(|error| failed(error.to_string()))
    }
}

impl Fleet {
    /// Starts all of it; programs begin at once.
    pub(super) async fn start(args: &WeightsArgs, places: &Places) -> Result<Self, BenchError> {
        let mut engines = Vec::new();
        for number in 0..args.engines {
            engines.push(engine(args, number.into()).await?);
        }
        let daemon = Daemon::start(&config(&engines, places)).await;
        let daemon = daemon.map_err(|error| failed(error.to_string()))?;
        let upstream = Upstream::new(CONNECT_TIMEOUT);
        let load = Arc::new(Load {
            upstream: upstream.clone(),
            url: daemon.url(),
            model: EngineSimOptions::default().model,
            steps: AtomicU64::new(0),
        });
        let (gate, _) = watch::channel(Gate::Open);
        let mut programs = JoinSet::new();
        for number in 0..args.programs {
            programs.spawn(load.clone().work(number, gate.subscribe()));
        }
        Ok(Self {
            upstream,
            engines: Arc::new(engines),
            daemon,
            load,
            gate,
            programs,
        })
    }

    /// Base URLs of the engines.
    pub(super) fn engines(&self) -> Vec<String> {
        self.engines.iter().map(EngineSimHandle::url).collect()
    }

    /// Lets no step begin, and waits until none runs.
    pub(super) async fn drain(&self) {
        self.gate.send_replace(Gate::Closed);
        while self.load.steps.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Lets steps begin again.
    pub(super) fn open(&self) {
        self.gate.send_replace(Gate::Open);
    }

    /// Watches the engines from now on.
    pub(super) fn watch(&self) -> Watch {
        let (over, ends) = watch::channel(false);
        let seen = tokio::spawn(see(self.engines.clone(), ends));
        Watch { over, seen }
    }

    /// Declares the job.
    pub(super) async fn declare(&self) -> Result<(), BenchError> {
        let settings = json!({"group_size": 1, "batch_groups": 1, "rewarded": false, "lag_max": 3});
        self.put("", &settings).await.map(drop)
    }

    /// Trains on a batch, so that the version after it may be published.
    pub(super) async fn train(&self, batch: u64) -> Result<(), BenchError> {
        let (group, program) = (format!("group-{batch}"), format!("member-{batch}"));
        let groups = json!({"groups": [{"group": group, "content": {"prompt": group}}]});
        self.post("/groups", &groups).await?;
        let member = json!({"program": program, "group": group});
        self.post("/members", &member).await?;
        let sample = json!({"steps": [{"prompt": [1], "output": [2], "logprobs": [-0.5]}]});
        let end = json!({"end": "completed", "reward": 1.0, "sample": sample});
        self.put(&format!("/members/{program}"), &end).await?;
        let found = self.get(&format!("/batches/{batch}?wait_s=10")).await?;
        if found["ready"] != true {
            return Err(failed(format!("batch {batch} is not ready: {found}")));
        }
        self.post(&format!("/batches/{batch}/trained"), &json!({}))
            .await
            .map(drop)
    }

    /// Asks the daemon about the job.
    pub(super) async fn get(&self, path: &str) -> Result<Value, BenchError> {
        let path = format!("/api/v1/jobs/{JOB}{path}");
        answer(get(&self.upstream, &self.load.url, &path).await)
    }

    /// Tells the daemon about the job.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, BenchError> {
        let path = format!("/api/v1/jobs/{JOB}{path}");
        let (headers, body) = (http::HeaderMap::new(), body.to_string());
        answer(post(&self.upstream, &self.load.url, &path, &headers, body).await)
    }

    async fn put(&self, path: &str, body: &Value) -> Result<Value, BenchError> {
        let path = format!("/api/v1/jobs/{JOB}{path}");
        answer(put(&self.upstream, &self.load.url, &path, body.to_string()).await)
    }

    /// Ends the programs, then everything. A step that failed is an error.
    pub(super) async fn stop(mut self) -> Result<(), BenchError> {
        self.gate.send_replace(Gate::Over);
        let (mut count, mut first) = (0, None);
        while let Some(ended) = self.programs.join_next().await {
            let ended = ended.map_err(|error| error.to_string()).flatten();
            if let Err(cause) = ended {
                count += 1;
                first.get_or_insert(cause);
            }
        }
        self.daemon.stop().await;
        match first {
            None => Ok(()),
            Some(first) => Err(BenchError::Requests {
                case: "weights".to_owned(),
                count,
                first,
            }),
        }
    }
}

impl Load {
    /// One program after another, until all end.
    async fn work(
        self: Arc<Self>,
        number: u32,
        mut gate: watch::Receiver<Gate>,
    ) -> Result<(), String> {
        let naming = Naming::default();
        for run in 0.. {
            let program = format!("load-{number}-{run}");
            let headers = naming.headers(program.as_str().into());
            let mut messages = Vec::new();
            for turn in 0..TURNS {
                let text = format!("{program}, turn {turn}. ").repeat(TURN_BYTES / 20);
                messages.push(json!({"role": "user", "content": text}));
                if !self.begins(&mut gate).await {
                    return Ok(());
                }
                let body = json!({"model": self.model, "messages": messages,
                    "max_tokens": ANSWER_TOKENS});
                let answer = step(&self.upstream, &self.url, &headers, body.to_string()).await;
                self.steps.fetch_sub(1, Ordering::SeqCst);
                let text = answer?.text;
                messages.push(json!({"role": "assistant", "content": text}));
                tokio::time::sleep(TOOL).await;
            }
            release(&self.upstream, &self.url, &naming, program.as_str().into()).await?;
        }
        Ok(())
    }

    /// Whether a step may begin: then it counts as running. Waits while none may.
    async fn begins(&self, gate: &mut watch::Receiver<Gate>) -> bool {
        loop {
            let may_look = gate.wait_for(|gate| *gate != Gate::Closed).await.is_ok();
            if !may_look {
                return false;
            }
            // It counts before it looks, so that whoever closes the gate sees it.
            self.steps.fetch_add(1, Ordering::SeqCst);
            let found = *gate.borrow();
            if found == Gate::Open {
                return true;
            }
            self.steps.fetch_sub(1, Ordering::SeqCst);
            if found == Gate::Over {
                return false;
            }
        }
    }
}

/// Looks at what engines generate until it is over.
async fn see(engines: Arc<Vec<EngineSimHandle>>, mut over: watch::Receiver<bool>) -> Seen {
    let began = Instant::now();
    let mut last: Vec<Option<LastToken>> = vec![None; engines.len()];
    let (mut tokens, mut silent) = (0, Duration::ZERO);
    loop {
        // Or nobody waits for it any more.
        let is_over = *over.borrow() || over.has_changed().is_err();
        for (engine, last) in engines.iter().zip(&mut last) {
            let generated = engine.snapshot().await.counters.generation_tokens;
            let now = Instant::now();
            let before = last.get_or_insert(LastToken { generated, at: now });
            if generated > before.generated || is_over {
                let gap = now - before.at;
                silent += if gap >= SILENCE_MIN {
                    gap
                } else {
                    Duration::ZERO
                };
                tokens += generated - before.generated;
                *before = LastToken { generated, at: now };
            }
        }
        if is_over {
            return Seen {
                took_s: began.elapsed().as_secs_f64(),
                tokens,
                silent_s: silent.as_secs_f64(),
            };
        }
        let _ = tokio::time::timeout(LOOK, over.changed()).await;
    }
}

/// The newest tokens of an engine that were seen.
#[derive(Clone, Copy)]
struct LastToken {
    generated: u64,
    at: Instant,
}

async fn engine(args: &WeightsArgs, seed: u64) -> Result<EngineSimHandle, BenchError> {
    let options = EngineSimOptions {
        profile: EngineProfile::qwen3_8b_h100(),
        seed,
        load_bytes_per_s: (f64::from(args.load_mb_per_s) * MB) as u64,
        ..EngineSimOptions::default()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    EngineSim::serve(listener, options).map_err(|error| failed(error.to_string()))
}

/// The daemon's defaults, except for its engines, the places of state and of weights, and that
/// nobody needs a token.
fn config(engines: &[EngineSimHandle], places: &Places) -> Config {
    let urls: Vec<String> = engines.iter().map(EngineSimHandle::url).collect();
    let mut config = daemon_config(1.0, &urls);
    for endpoint in &mut config.engines.endpoints {
        endpoint.kind = Some(EngineChoice::Sglang);
    }
    config.weights.store = places.store.display().to_string();
    config.weights.folder = places.folder.display().to_string();
    config.auth.anonymous_scope = AnonymousScope::Admin;
    config
}

fn answer(body: Result<bytes::Bytes, String>) -> Result<Value, BenchError> {
    let body = body.map_err(failed)?;
    serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
}
