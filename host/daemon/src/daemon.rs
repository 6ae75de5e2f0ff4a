//! Starting and stopping a daemon: the order in which its parts come up, and
//! the reverse in which they go down.

use crate::app::App;
use crate::auth::{Auth, FirstToken};
use crate::config::{self, Config};
use crate::driver::{
    Clock, DriverHandle, DriverOptions, Notice, PolicyDesk, spawn_driver, spawn_journal,
};
use crate::engines::{Declared, EngineWatch, WatchOptions};
use crate::gateway::{
    GatewayState, Identities, RequestIds, ServeLimits, TokenEstimator, Upstream, serve,
};
use crate::metrics::Metrics;
use crate::policies::{self, PolicyShelf, keep_up};
use crate::recovery;
use crate::rest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use treadle_core::Event;
use treadle_model::WorkerId;
use treadle_store::{Retention, Store};

/// Unnamed programs that the gateway recognises.
const UNNAMED_PROGRAMS_MAX: usize = 100_000;
/// Pause between two removals of old rows.
const PRUNE_PAUSE: Duration = Duration::from_mins(1);
/// Largest answer of an engine that is not a stream.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or not ours to take.
    #[error("{addr} cannot be listened on: {error}; choose another with --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The store does not open.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// The journal does not replay.
    #[error("{0}")]
    Recovery(#[from] recovery::RecoveryError),
    /// The plugin runtime does not start.
    #[error("{0}")]
    Runtime(#[from] policies::EngineError),
    /// Nobody can be let in.
    #[error("{0}")]
    Auth(#[from] crate::auth::AuthError),
    /// The bound policy does not load.
    #[error("the eviction policy could not be bound: {0}")]
    Policy(#[from] crate::policies::ShelfError),
    /// No thread could be started.
    #[error("the scheduler's thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// A running daemon.
pub struct Daemon {
    /// Where it listens.
    pub addr: SocketAddr,
    /// What handlers share, for those who run in the same process.
    pub app: App,
    /// The secret of an admin, if one was made because there was none.
    pub first_token: Option<FirstToken>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    upkeep: JoinHandle<()>,
}

impl Daemon {
    /// Opens the store, replays the journal, binds policies, registers the
    /// configured engines and starts to listen.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let addr = config.server.listen;
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|error| StartError::Listen { addr, error })?;
        let addr = listener.local_addr().unwrap_or(addr);
        let store = treadle_store::open(&config.store.location()).await?;
        let (auth, first_token) = Auth::open(config, store.clone()).await?;
        let (notices, noticed) = unbounded_channel();
        let driver = start_driver(config, &store, notices.clone()).await?;
        let app = assemble(config, driver, store, auth).await?;
        app.policies.tell(notices);
        let policy = app.policies.restore().await?;
        tracing::info!(%policy, "the eviction policy is bound");
        register_engines(config, &app).await;
        let (stop, stopped) = oneshot::channel();
        let router = rest::router(app.clone());
        let limits = ServeLimits {
            connections_max: config.server.connections_max,
            header_read_timeout: Duration::from_secs(config.server.header_read_timeout_s),
            shutdown_grace: Duration::from_secs(config.server.shutdown_grace_s),
        };
        let served = tokio::spawn(serve(listener, router, limits, async {
            let _ = stopped.await;
        }));
        let policies = keep_up(app.policies.clone(), app.auth.clone(), noticed);
        let pruning = prune_forever(config.clone(), app.clone());
        let upkeep = tokio::spawn(async { tokio::join!(pruning, policies).1 });
        Ok(Self {
            addr,
            app,
            first_token,
            stop: Some(stop),
            served,
            upkeep,
        })
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Lets requests in flight end, then writes everything down.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.served).await;
        self.upkeep.abort();
        if let Err(error) = self.app.policies.save_states().await {
            tracing::warn!(%error, "what policies have stored could not be saved");
        }
        self.app.driver.stop().await;
        self.app.auth.close().await;
        let _ = self.app.store.close().await;
    }
}

async fn start_driver(
    config: &Config,
    store: &Arc<dyn Store>,
    notices: UnboundedSender<Notice>,
) -> Result<DriverHandle, StartError> {
    let recovered = recovery::recover(&**store, config.core()).await?;
    let clock = Clock::start(recovered.core.state().now, config.scheduler.time_scale);
    let journal = spawn_journal(store.clone());
    let restarted = recovered.seq > 0;
    let mut policies = PolicyDesk::new(config.plugins.desk());
    policies.tell(notices);
    let driver = spawn_driver(DriverOptions {
        core: recovered.core,
        seq: recovered.seq,
        clock,
        policies,
        journal: Some(journal),
        snapshot_events: config.store.snapshot_events,
    })
    .map_err(StartError::Thread)?;
    if restarted {
        driver.event(Event::DaemonRestarted);
    }
    Ok(driver)
}

async fn assemble(
    config: &Config,
    driver: DriverHandle,
    store: Arc<dyn Store>,
    auth: Arc<Auth>,
) -> Result<App, StartError> {
    let upstream = Upstream::new(Duration::from_millis(config.engines.connect_timeout_ms));
    let gateway = Arc::new(GatewayState {
        driver: driver.clone(),
        upstream: upstream.clone(),
        identities: Identities::new(UNNAMED_PROGRAMS_MAX),
        estimator: TokenEstimator::default(),
        requests: Arc::new(RequestIds::default()),
        metrics: Arc::new(Metrics::default()),
        body_bytes_max: usize::try_from(config.server.body_bytes_max).unwrap_or(usize::MAX),
        answer_bytes_max: ANSWER_BYTES_MAX,
        body_patience: Duration::from_secs(config.server.body_read_timeout_s),
        response_timeout: Duration::from_secs(config.engines.response_timeout_s),
    });
    let interval = Duration::from_millis(config.engines.probe_interval_ms);
    let engines = EngineWatch::new(driver.clone(), upstream, WatchOptions { interval });
    let policies = Arc::new(PolicyShelf::new(
        policies::engine(config)?,
        store.clone(),
        driver.clone(),
        config.plugins.desk(),
        policies::signing(config)?,
    )?);
    let last = driver
        .read(|view| view.core.state().workers.keys().last().copied())
        .await;
    let next_worker = last.ok().flatten().map_or(0, |worker| worker.0 + 1);
    let next_worker = Arc::new(AtomicU32::new(next_worker));
    Ok(App {
        gateway,
        auth,
        driver,
        store,
        engines,
        policies,
        next_worker,
    })
}

/// Engines of the configuration, and those that were registered before a
/// restart.
async fn register_engines(config: &Config, app: &App) {
    let known = app.driver.read(|view| {
        let workers = view.core.state().workers.values();
        workers
            .map(|w| (w.id, w.url.to_string()))
            .collect::<Vec<_>>()
    });
    let known = known.await.unwrap_or_default();
    let configured = |url: &str| config.engines.endpoints.iter().find(|e| e.url == url);
    for (worker, url) in &known {
        let declared = configured(url).map_or_else(Declared::default, |e| declared(config, e));
        app.engines.register(*worker, url, declared).await;
    }
    for endpoint in &config.engines.endpoints {
        if known.iter().all(|(_, url)| *url != endpoint.url) {
            let id = app
                .next_worker
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            app.engines
                .register(WorkerId(id), &endpoint.url, declared(config, endpoint))
                .await;
        }
    }
}

fn declared(config: &Config, endpoint: &config::Endpoint) -> Declared {
    Declared {
        kind: config.engines.kind_of(endpoint),
        capacity_tokens: endpoint.capacity_tokens,
    }
}

async fn prune_forever(config: Config, app: App) {
    let pause = PRUNE_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        app.auth.tidy().await;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let kept_us = config.store.keep_ended_s.saturating_mul(1_000_000);
        let retention = Retention {
            keep_events: config.store.keep_events,
            ended_before_us: (now.unwrap_or_default().as_micros() as u64).saturating_sub(kept_us),
        };
        loop {
            match app.store.prune(&retention).await {
                Ok(pruned) if pruned.more => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old rows could not be removed");
                    break;
                }
            }
        }
    }
}
