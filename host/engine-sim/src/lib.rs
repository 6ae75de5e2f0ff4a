//! `treadle engine-sim`: an HTTP server that behaves like an inference engine, over the models
//! of `treadle-engine-model`. The demo, benchmarks and tests run against it.
//!
//! Model time is real time multiplied by `time_scale`. One task owns the model; requests reach it
//! through a channel, and a client that disconnects removes its request from the model at once. All
//! responses are marked as simulated: by the header `x-engine`, and by `owned_by` in `/v1/models`.
//!
//! It serves vLLM's API (`/v1/chat/completions`, `/v1/completions`, `/v1/responses`,
//! `/v1/messages`, `/inference/v1/generate`, `/v1/models`, `/tokenize`, `/detokenize`,
//! `/abort_requests`, `/reset_prefix_cache`, `/health`, `/metrics`) and a part of SGLang's
//! (`/generate`, `/abort_request`, `/flush_cache`, `/server_info`). `/sim/faults` injects faults of
//! generation, `/sim/load-fault` one of the next load of weights, and `/kv` exports and imports KV
//! caches.
//! `kv_transfer_params` hands the cache of a prompt over to another engine, as vLLM's `NixlConnector`
//! does.

mod answer;
mod anthropic;
mod args;
mod caches;
mod driver;
mod error;
mod faults;
mod frames;
mod handover;
mod instant;
mod kv_params;
mod kv_routes;
mod load_record;
mod metrics;
mod request;
mod routes;
mod shape;
#[cfg(test)]
mod tests;
mod tokens;
mod tools;
mod transfers;
mod translated;
mod translation;
mod weights;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_engine_model::engine::{EngineProfile, EngineSnapshot, Ranks};

use caches::CopyLimits;
use driver::{EngineClient, Switches};
use error::ApiError;
use faults::FaultSwitch;
use load_record::LoadRecord;

pub use args::EngineSimArgs;
pub use faults::{Faults, UnknownFault};
pub use tokens::generated;
pub use weights::LoadFault;

/// How long a shutdown waits for connections to end.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// Qwen3-32B in 16 bits: keys and values of 64 layers with 8 heads of dimension 128.
const KV_BYTES_PER_TOKEN: u64 = 64 * 8 * 128 * 2 * 2;
/// Default host memory for copies: 256 GiB.
const HOST_BYTES_MAX: u64 = 256 << 30;

/// Default speed at which an engine loads blocks from its own host memory, in tokens per second.
pub const HOST_TOKENS_PER_S: u64 = 200_000;
/// Most ranks of one engine.
pub const RANKS_MAX: i64 = 64;
/// Maximum length of a chat template, in tokens.
const TEMPLATE_TOKENS_MAX: i64 = 65_536;

/// Options of a simulated engine.
#[derive(Clone, Debug)]
pub struct EngineSimOptions {
    /// Speeds and limits.
    pub profile: EngineProfile,
    /// KV memory in tokens, instead of the profile's.
    pub kv_tokens: Option<u64>,
    /// Ranks of data parallelism that step together, each of the profile, with its own KV memory
    /// and cache; at least 1.
    pub ranks: u32,
    /// Tokens that a chat template adds in front of every chat, invisible to clients.
    pub template_tokens: u32,
    /// Virtual seconds per real second, above 0.
    pub time_scale: f64,
    /// Name of the model served; requests for another are refused.
    pub model: String,
    /// Names of its adapters (LoRA), which are served too.
    pub adapters: Vec<String>,
    /// Seed of the generated text.
    pub seed: u64,
    /// Answer at once without simulating the engine, as cheaply as possible.
    pub instant: bool,
    /// Tokens per event of a stream, at least 1; the first token comes by itself.
    pub tokens_per_event: u32,
    /// Maximum number of requests in the engine, running and waiting; further ones get 503.
    pub requests_max: usize,
    /// KV memory of one token in bytes, which determines how long transfers of caches take.
    pub kv_bytes_per_token: u64,
    /// Host memory for copies of caches, in bytes.
    pub host_bytes_max: u64,
    /// Faults from the start.
    pub faults: Faults,
    /// Speed at which weights are loaded from a folder, in bytes per virtual second; a pause then
    /// stops generation, too. 0: a load takes no time, and a pause only keeps new requests back.
    pub load_bytes_per_s: u64,
    /// File that loads of weights, and steps that begin, are added to.
    pub weights_record: Option<PathBuf>,
}

impl Default for EngineSimOptions {
    fn default() -> Self {
        Self {
            profile: EngineProfile::qwen3_32b_h100(),
            kv_tokens: None,
            ranks: 1,
            template_tokens: 0,
            time_scale: 1.0,
            model: "treadle-sim".to_owned(),
            adapters: Vec::new(),
            seed: 1,
            instant: false,
            tokens_per_event: 1,
            requests_max: 16_384,
            kv_bytes_per_token: KV_BYTES_PER_TOKEN,
            host_bytes_max: HOST_BYTES_MAX,
            faults: Faults::default(),
            load_bytes_per_s: 0,
            weights_record: None,
        }
    }
}

impl EngineSimOptions {
    fn is_adapter(&self, name: &str) -> bool {
        self.adapters.iter().any(|adapter| adapter == name)
    }

    /// Fails if a request names a model that is not served.
    fn check_model(&self, named: Option<&str>) -> Result<(), ApiError> {
        match named {
            Some(name) if name != self.model && !self.is_adapter(name) => {
                let message = format!(
                    "The model `{name}` does not exist: this engine has `{}`",
                    self.model
                );
                Err(ApiError::new(StatusCode::NOT_FOUND, message))
            }
            _ => Ok(()),
        }
    }

    /// The salt of a request's blocks: as in vLLM, an adapter has caches of its own.
    fn salt(&self, named: Option<&str>, salt: Option<&str>) -> Option<String> {
        match named.filter(|name| self.is_adapter(name)) {
            Some(adapter) => Some(format!("{adapter}\n{}", salt.unwrap_or_default())),
            None => salt.map(str::to_owned),
        }
    }
}

/// Why a simulated engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineSimError {
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {source}: choose another --listen address")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The record of its weights can't be written.
    #[error("{path}: {source}; name another file with --weights-record")]
    Record {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// An option is invalid.
    #[error("{0}")]
    Option(&'static str),
}

/// State that all handlers share.
struct Shared {
    addr: SocketAddr,
    options: EngineSimOptions,
    /// The profile with the options applied.
    profile: EngineProfile,
    /// `None` in instant mode.
    client: Option<EngineClient>,
    faults: FaultSwitch,
    weights: weights::Weights,
    totals: metrics::Totals,
    instant_events: instant::EventCache,
    next_id: AtomicU64,
    model_json: String,
    shutdown: watch::Receiver<bool>,
}

impl Shared {
    /// The state of each rank.
    async fn snapshots(&self) -> Vec<EngineSnapshot> {
        let idle = || {
            let rank = EngineSnapshot {
                total_blocks: self.profile.kv_blocks,
                ..EngineSnapshot::default()
            };
            vec![rank; self.options.ranks as usize]
        };
        match &self.client {
            Some(client) => client.snapshots().await.unwrap_or_else(idle),
            None => idle(),
        }
    }

    /// Completes when the server stops.
    async fn stopping(&self) {
        // An error means that the handle is gone, which also is a stop.
        let _ = self.shutdown.clone().wait_for(|stop| *stop).await;
    }
}

/// The simulated engine as a library function.
pub struct EngineSim;

impl EngineSim {
    /// Starts serving on a bound listener; must be called within a tokio runtime.
    pub fn serve(
        listener: TcpListener,
        options: EngineSimOptions,
    ) -> Result<EngineSimHandle, EngineSimError> {
        check(&options)?;
        let weights = weights::Weights::new(record_of(&options)?);
        let addr = listener
            .local_addr()
            .map_err(|source| EngineSimError::Listen {
                address: "the given socket".to_owned(),
                source,
            })?;
        let (stop, shutdown) = watch::channel(false);
        let mut profile = options.profile.clone();
        profile.stream_interval_tokens = options.tokens_per_event;
        if let Some(kv_tokens) = options.kv_tokens {
            profile = profile.with_kv_tokens(kv_tokens);
        }
        let (client, driver) = if options.instant {
            (None, None)
        } else {
            let engine = Ranks::new(&profile, options.ranks);
            let (scale, live_max) = (options.time_scale, options.requests_max);
            let limits = CopyLimits {
                bytes_per_token: options.kv_bytes_per_token,
                host_bytes_max: options.host_bytes_max,
            };
            let switches = Switches {
                shutdown: shutdown.clone(),
                stands: weights.stands(options.load_bytes_per_s > 0),
            };
            let (client, task) = EngineClient::start(engine, scale, live_max, limits, switches);
            (Some(client), Some(task))
        };
        let faults = FaultSwitch::default();
        faults.set(options.faults.clone());
        let shared = Arc::new(Shared {
            addr,
            model_json: frames::json_string(&options.model),
            options,
            profile,
            client,
            faults,
            weights,
            totals: metrics::Totals::default(),
            instant_events: instant::EventCache::default(),
            next_id: AtomicU64::new(1),
            shutdown,
        });
        let server = tokio::spawn(run_server(listener, Arc::clone(&shared)));
        Ok(EngineSimHandle {
            addr,
            stop,
            server,
            driver,
            shared,
        })
    }
}

fn record_of(options: &EngineSimOptions) -> Result<LoadRecord, EngineSimError> {
    let Some(path) = &options.weights_record else {
        return Ok(LoadRecord::default());
    };
    LoadRecord::append(path).map_err(|source| EngineSimError::Record {
        path: path.display().to_string(),
        source,
    })
}

async fn run_server(listener: TcpListener, shared: Arc<Shared>) {
    // Events are small, and Nagle's algorithm would distort their timing.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let router = routes::router(Arc::clone(&shared));
    let stopped = async move { shared.stopping().await };
    if let Err(error) = axum::serve(listener, router)
        .with_graceful_shutdown(stopped)
        .await
    {
        tracing::error!(%error, "the simulated engine's server failed");
    }
}

fn check(options: &EngineSimOptions) -> Result<(), EngineSimError> {
    if !(options.time_scale.is_finite() && options.time_scale > 0.0) {
        return Err(EngineSimError::Option(
            "time_scale must be a number above 0",
        ));
    }
    if options.tokens_per_event == 0 {
        return Err(EngineSimError::Option(
            "tokens_per_event must be at least 1",
        ));
    }
    if !(1..=RANKS_MAX).contains(&i64::from(options.ranks)) {
        return Err(EngineSimError::Option("ranks must be from 1 to 64"));
    }
    if options.model.is_empty() {
        return Err(EngineSimError::Option("model must not be empty"));
    }
    if options.is_adapter("") || options.is_adapter(&options.model) {
        return Err(EngineSimError::Option(
            "adapters must have names, other than the model's",
        ));
    }
    Ok(())
}

/// A running simulated engine. Dropping it stops the server too, without waiting.
pub struct EngineSimHandle {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    driver: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl EngineSimHandle {
    /// The listen address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The engine's state: of all its ranks together.
    pub async fn snapshot(&self) -> EngineSnapshot {
        let ranks = self.rank_snapshots().await.into_iter();
        ranks.reduce(EngineSnapshot::plus).unwrap_or_default()
    }

    /// The state of each of its ranks.
    pub async fn rank_snapshots(&self) -> Vec<EngineSnapshot> {
        self.shared.snapshots().await
    }

    /// The engine's worst delay behind its clock, in virtual microseconds; large if the machine is
    /// overloaded.
    pub fn late_us(&self) -> u64 {
        let client = self.shared.client.as_ref();
        client.map_or(0, EngineClient::late_us)
    }

    /// Replaces the active faults.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.faults.set(faults);
    }

    /// Sets what the next load of weights does instead of succeeding.
    pub fn set_load_fault(&self, fault: LoadFault) {
        self.shared.weights.set_fault(fault);
    }

    /// Process groups that it was asked to join, as it was asked.
    pub fn weight_groups(&self) -> Vec<serde_json::Value> {
        self.shared.weights.groups()
    }

    /// Whether its weights are a mixture of two versions.
    pub fn is_torn(&self) -> bool {
        self.shared.weights.is_torn()
    }

    /// Stops the engine first, which cuts open answers, then the connections. Waits until both have
    /// ended, at most five seconds.
    pub async fn shutdown(mut self) {
        let _ = self.stop.send(true);
        if let Some(driver) = self.driver.take() {
            let _ = driver.await;
        }
        if tokio::time::timeout(SHUTDOWN_MAX, &mut self.server)
            .await
            .is_err()
        {
            self.server.abort();
        }
    }
}
