//! A daemon with simulated engines, and the checks after the work.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use treadle_config::{Config, Endpoint, EngineChoice};
use treadle_engine_sim::{EngineSim, EngineSimHandle, EngineSimOptions};
use treadle_server::start::Daemon;

use super::client::{Client, TIMEOUT};

/// The model that simulated engines serve.
pub const MODEL: &str = "treadle-sim";
/// How much faster than the wall clock simulated engines run in tests.
pub const SPEED: f64 = 50.0;

/// A daemon and its engines.
pub struct Fixture {
    /// The daemon.
    pub daemon: Daemon,
    /// Its simulated engines, in order of their registration.
    pub engines: Vec<EngineSimHandle>,
    /// A client of the daemon.
    pub client: Client,
}

/// A configuration for tests: everything in memory, any free port, frequent probes of engines, long
/// deadlines for policies.
pub fn config() -> Config {
    let mut config = Config::default();
    config.server.listen = ([127, 0, 0, 1], 0).into();
    "memory".clone_into(&mut config.store.path);
    config.scheduler.tick_ms = 20;
    config.engines.probe_interval_ms = 50;
    config.engines.connect_timeout_ms = 1_000;
    // Tests count the requests to their engines.
    config.engines.measure = false;
    config.server.shutdown_grace_s = 1;
    // A busy machine must not cut off good calls of policies, nor end a canary.
    config.plugins.hot_deadline_ms = 200;
    // Compiled by the first test that needs them.
    concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tests-policies")
        .clone_into(&mut config.plugins.artifacts_folder);
    config.plugins.background_deadline_ms = 20_000;
    config.plugins.canary_regret_max_percent = 100_000;
    config
}

/// A simulated engine with this much KV memory.
pub async fn engine(kv_tokens: u64) -> EngineSimHandle {
    engine_at("127.0.0.1:0", kv_tokens, SPEED).await
}

/// A simulated engine at an address, this much faster than the wall clock.
pub async fn engine_at(address: &str, kv_tokens: u64, speed: f64) -> EngineSimHandle {
    let listener = TcpListener::bind(address).await.expect("a free port");
    let options = EngineSimOptions {
        kv_tokens: Some(kv_tokens),
        time_scale: speed,
        model: MODEL.to_owned(),
        ..EngineSimOptions::default()
    };
    EngineSim::serve(listener, options).expect("good options")
}

/// An entry for an engine that is declared as vLLM.
pub fn endpoint(url: impl Into<String>) -> Endpoint {
    Endpoint {
        kind: Some(EngineChoice::Vllm),
        ..Endpoint::at(url)
    }
}

/// An entry for an engine of unknown make with this much KV memory.
pub fn plain_endpoint(url: impl Into<String>, capacity_tokens: u64) -> Endpoint {
    Endpoint {
        kind: Some(EngineChoice::Openai),
        capacity_tokens: Some(capacity_tokens),
        ..Endpoint::at(url)
    }
}

impl Fixture {
    /// A daemon with `engines` engines of `kv_tokens` each.
    pub async fn start(engines: usize, kv_tokens: u64) -> Self {
        Self::tuned(engines, kv_tokens, |_| ()).await
    }

    /// A daemon with engines and a changed configuration.
    pub async fn tuned(engines: usize, kv_tokens: u64, tune: impl FnOnce(&mut Config)) -> Self {
        let mut started = Vec::new();
        for _ in 0..engines {
            started.push(engine(kv_tokens).await);
        }
        Self::around(started, tune).await
    }

    /// A daemon around engines that run already.
    pub async fn around(engines: Vec<EngineSimHandle>, tune: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        config.engines.endpoints = engines.iter().map(|e| endpoint(e.url())).collect();
        tune(&mut config);
        let daemon = Daemon::start(&config).await.expect("the daemon starts");
        let client = Client::trusting(daemon.url(), config.tls.trust());
        // The owner of the daemon may do everything.
        let client = match &daemon.first_token {
            Some(first) => client.with_token(&first.secret),
            None => client,
        };
        Self {
            daemon,
            engines,
            client,
        }
    }

    /// Requests that run at the engines.
    pub async fn engine_requests(&self) -> usize {
        let mut requests = 0;
        for engine in &self.engines {
            let snapshot = engine.snapshot().await;
            requests += snapshot.running as usize + snapshot.waiting as usize;
        }
        requests
    }

    /// Requests that the engines have answered to their end.
    pub async fn engines_finished(&self) -> u64 {
        let mut finished = 0;
        for engine in &self.engines {
            finished += engine.snapshot().await.counters.finished_requests;
        }
        finished
    }

    /// Waits until no engine runs anything.
    pub async fn until_engines_idle(&self) {
        let idle = async {
            while self.engine_requests().await > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, idle).await;
        assert!(waited.is_ok(), "engines still run requests");
    }

    /// Ends the test: checks that no work is left, releases all programs, checks again, stops.
    pub async fn finish(self) {
        settled(&self.client).await;
        release_all(&self.client).await;
        self.stop().await;
    }

    /// Ends a test in which other tenants have programs too: each client releases its own.
    pub async fn finish_all(self, clients: &[&Client]) {
        settled(&self.client).await;
        for client in clients {
            release_own(client).await;
        }
        release_all(&self.client).await;
        self.stop().await;
    }

    /// Stops everything without a check.
    pub async fn stop(self) {
        self.daemon.stop().await;
        for engine in self.engines {
            engine.shutdown().await;
        }
    }
}

/// Checks that no step is left anywhere.
pub async fn settled(client: &Client) {
    let names = [
        "treadle_steps_running",
        "treadle_queue_steps",
        "treadle_asks_open",
    ];
    let quiet = |m: &super::metrics::Metrics| names.iter().all(|name| m.count(name) == 0);
    client.until("without steps", quiet).await;
}

async fn release_own(client: &Client) {
    let programs = client.get("/programs").await.ok();
    for program in programs.as_object().expect("an object").keys() {
        let release = json!({"program_id": program});
        let released = client.post("/programs/release", &release).await.ok();
        assert_eq!(released["released"], true, "{program}");
    }
}

/// Releases all programs and checks that they held nothing else.
pub async fn release_all(client: &Client) {
    release_own(client).await;
    let metrics = client.metrics().await;
    assert_eq!(metrics.count("treadle_programs"), 0);
    for name in [
        "treadle_worker_used_tokens",
        "treadle_worker_shared_tokens",
        "treadle_worker_slots_taken",
    ] {
        if metrics.has(name) {
            assert_eq!(metrics.count(name), 0, "{name} after all were released");
        }
    }
}

/// A chat of one message.
pub fn chat(program: &str, text: &str, max_tokens: u32) -> Value {
    json!({
        "model": MODEL,
        "program_id": program,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
    })
}

/// The request with `stream` and a final usage event.
pub fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    body
}

/// The path of chats.
pub const CHAT: &str = "/v1/chat/completions";
/// The path of completions.
pub const COMPLETIONS: &str = "/v1/completions";
