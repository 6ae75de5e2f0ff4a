//! The process-wide part of KV transfers, shared by all shards: the host tier, its server for other
//! nodes, and the executors.

use super::prompts::Prompts;
use super::stats::TransferStats;
use super::tags::WorkerTags;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use treadle_config::{Config, ConfigError, Role};
use treadle_http::Upstream;
use treadle_model::EngineKind;
use treadle_transfer::{
    Evicted, Executors, KvExecutor, KvInterface, Limits, NodeTls, Settings, Support, Tier,
    TierServer, TierSettings, TransferError, WorkerRef,
};
use treadle_trust::{Connector, TlsError};

/// How long to wait for a previous process that still holds the tier.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two polls of another node for its evicted copies.
const HEAR_PAUSE: Duration = Duration::from_secs(10);
/// Pause between two scans for orphaned files.
const SWEEP_PAUSE: Duration = Duration::from_mins(1);
/// Pause between two attempts to open the tier.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// `engines.allowed` is invalid.
    #[error("{0}")]
    Engines(#[from] ConfigError),
    /// TLS files are invalid.
    #[error("{0}; see `[tls]` of the configuration")]
    Tls(#[from] TlsError),
    /// The tier's folder can't be opened.
    #[error("the host tier of KV caches can't be opened: {0}; see kv.folder and kv.slots_folder")]
    Tier(#[from] TransferError),
    /// The address for other nodes can't be bound.
    #[error("kv.tier_listen: can't listen on {address}: {error}; choose another address")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// What an engine can do with KV caches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Abilities {
    /// Whether caches can be offloaded from its memory.
    pub offload: bool,
    /// Whether caches can move to another engine of its kind.
    pub migrate: bool,
    /// The missing requirement, with the remedy; empty if nothing is missing.
    pub missing: Box<str>,
}

/// Receivers of evictions.
type Listeners = Arc<Mutex<Vec<UnboundedSender<Evicted>>>>;

/// The process-wide part of KV transfers.
pub struct Node {
    connector: Connector,
    pub(super) executors: Arc<Executors>,
    pub(super) tags: WorkerTags,
    pub(super) prompts: Arc<Prompts>,
    pub(super) stats: TransferStats,
    pub(super) tier: Option<Tier>,
    /// Timeout of one transfer, in real time.
    pub(super) transfer_max: Duration,
    /// Whether a single scheduler manages all copies in the tier.
    pub(super) alone: bool,
    /// Whether SGLang's storage may be used.
    sglang: bool,
    moves: bool,
    nodes: treadle_config::KvSection,
    /// The addresses of other nodes' tiers.
    pub(super) others: BTreeSet<Box<str>>,
    listeners: Listeners,
    _tasks: JoinSet<()>,
    _server: Option<TierServer>,
}

impl Node {
    /// Opens the tier if one is configured, and starts its server for other nodes.
    pub async fn open(config: &Config) -> Result<Arc<Self>, NodeError> {
        let kv = &config.kv;
        let scaled = kv.transfer_s_max as f64 / config.scheduler.time_scale;
        let transfer_max = Duration::from_secs_f64(scaled);
        let connector = config.engine_connector()?;
        let limits = Limits {
            export: transfer_max,
            import: transfer_max,
            engines: connector.clone(),
            tls: config.tls.acceptor()?.map(|acceptor| NodeTls {
                acceptor,
                trust: config.tls.trust(),
            }),
            ..Limits::default()
        };
        let tier = if kv.has_tier() {
            Some(open_tier(config).await?)
        } else {
            None
        };
        let secret: Option<Box<str>> = Some(config.cluster.secret.reveal())
            .filter(|secret| !secret.is_empty())
            .map(Into::into);
        let server = match &tier {
            Some(tier) if !kv.tier_listen.is_empty() => {
                Some(serve(&kv.tier_listen, tier, secret.clone(), limits.clone()).await?)
            }
            _ => None,
        };
        let listeners = Listeners::default();
        let executors = Arc::new(Executors::new(Settings {
            tier: tier.clone(),
            secret,
            limits,
        }));
        let mut tasks = JoinSet::new();
        if let Some(tier) = &tier {
            tasks.spawn(pump(tier.evictions().clone(), listeners.clone()));
            tasks.spawn(sweep(tier.clone()));
        }
        let others = kv.other_nodes();
        for node in &others {
            tasks.spawn(hear(executors.clone(), node.clone(), listeners.clone()));
        }
        Ok(Arc::new(Self {
            executors,
            tags: WorkerTags::new(Upstream::over(connector.clone())),
            connector,
            prompts: Arc::new(Prompts::new(kv.prompt_bytes_max)),
            stats: TransferStats::default(),
            tier,
            transfer_max,
            alone: config.cluster.role == Role::Single,
            sglang: kv.sglang,
            // A process that never schedules needs none.
            moves: config.cluster.role != Role::Gateway
                && (kv.host_tokens_max > 0 || kv.migration_tokens_per_s > 0),
            nodes: kv.clone(),
            others,
            listeners,
            _tasks: tasks,
            _server: server,
        }))
    }

    /// The connector for connections to engines.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// The last requests of programs, filled by the gateway; `None` if no caches are ever moved.
    pub fn prompts(&self) -> Option<Arc<Prompts>> {
        self.moves.then(|| self.prompts.clone())
    }

    /// Metrics in Prometheus' text format.
    pub fn render(&self) -> String {
        let usage = self.tier.as_ref().map(Tier::usage);
        self.stats.render(usage.as_ref())
    }

    /// Receives the copies that are evicted from now on.
    pub(super) fn evictions(&self) -> UnboundedReceiver<Evicted> {
        let (sender, received) = unbounded_channel();
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push(sender);
        received
    }

    /// Queries what an engine can do with its caches; `None` if it does not answer.
    pub async fn abilities(&self, url: &str, kind: EngineKind) -> Option<Abilities> {
        let worker = WorkerRef {
            url: url.into(),
            kind,
            node: self.nodes.node_of(url).map(Into::into),
        };
        let support = self.executors.support(worker).await.ok()?;
        Some(self.allowed(support))
    }

    /// An engine's abilities as far as the configuration allows them.
    pub(super) fn allowed(&self, support: Support) -> Abilities {
        if support.interface == KvInterface::HiCache && !self.sglang {
            let why = "SGLang's storage finds caches by their tokens only; set kv.sglang = true to use it";
            return Abilities {
                offload: false,
                migrate: false,
                missing: why.into(),
            };
        }
        Abilities {
            offload: support.offload,
            migrate: support.migrate,
            missing: support.why,
        }
    }

    /// The executors' description of a worker.
    pub(super) fn worker(&self, end: &treadle_scheduler::orders::End) -> WorkerRef {
        WorkerRef {
            url: end.url.clone(),
            kind: end.kind,
            node: self.nodes.node_of(&end.url).map(Into::into),
        }
    }
}

/// Notifies every scheduler in this process.
async fn pump(evictions: treadle_transfer::Evictions, listeners: Listeners) {
    loop {
        let evicted = evictions.next().await;
        let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.send(evicted).is_ok());
    }
}

/// Periodically removes orphaned files from the engines' folder.
async fn sweep(tier: Tier) {
    loop {
        tokio::time::sleep(SWEEP_PAUSE).await;
        let tier = tier.clone();
        let swept = tokio::task::spawn_blocking(move || tier.sweep());
        if let Err(error) = swept.await {
            tracing::warn!(%error, "orphaned files in the engines' folder could not be removed");
        }
    }
}

/// Polls another node for its evicted copies, for as long as there is a scheduler in this process.
async fn hear(executors: Arc<Executors>, node: Box<str>, listeners: Listeners) {
    loop {
        tokio::time::sleep(HEAR_PAUSE).await;
        let anybody = {
            let listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.iter().any(|listener| !listener.is_closed())
        };
        if anybody && let Err(error) = executors.hear(&node).await {
            tracing::debug!(%node, %error, "could not read the evictions of a node");
        }
    }
}

async fn serve(
    address: &str,
    tier: &Tier,
    secret: Option<Box<str>>,
    limits: Limits,
) -> Result<TierServer, NodeError> {
    let bound = TierServer::bind(address, tier.clone(), secret, limits).await;
    bound.map_err(|error| NodeError::Listen {
        address: address.to_owned(),
        error,
    })
}

async fn open_tier(config: &Config) -> Result<Tier, TransferError> {
    let kv = &config.kv;
    let settings = TierSettings {
        folder: kv.folder.clone().into(),
        slots_folder: kv.slots_folder.clone().into(),
        bytes_max: kv.host_bytes_max,
        node: kv.node_name().into(),
    };
    let began = tokio::time::Instant::now();
    loop {
        let settings = settings.clone();
        let opened = tokio::task::spawn_blocking(move || Tier::open(&settings)).await;
        match opened {
            Ok(Err(TransferError::File {
                what: "locking", ..
            })) if began.elapsed() < OPEN_TIMEOUT => tokio::time::sleep(OPEN_PAUSE).await,
            Ok(opened) => return opened,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
