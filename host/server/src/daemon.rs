//! Starting and stopping a daemon: the order in which its parts come up, and
//! the reverse in which they go down.

use crate::app::App;
use crate::leading::{GatewayBooks, Leading};
use crate::rest;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use treadle_auth::{Auth, FirstToken};
use treadle_config::Config;
use treadle_engines::transfers::{Node, NodeError};
use treadle_http::{ServeLimits, serve};
use treadle_registry as policies;
use treadle_scheduler::recovery;
use treadle_store::{Candidate, Store};

/// How long a daemon waits for the store's last leader to be gone.
const LEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts to lead.
const LEAD_PAUSE: Duration = Duration::from_millis(100);

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
    /// The host tier of KV caches does not open.
    #[error("{0}")]
    Node(#[from] NodeError),
    /// Nobody can be let in.
    #[error("{0}")]
    Auth(#[from] treadle_auth::AuthError),
    /// The broker's URL or prefix can't be used.
    #[error("{0}")]
    Broker(#[from] treadle_broker::BrokerError),
    /// The bound policy does not load.
    #[error("the eviction policy could not be bound: {0}")]
    Policy(#[from] treadle_registry::ShelfError),
    /// Another daemon schedules on this store.
    #[error(
        "the daemon {name} at {url} schedules on this store; stop it, name another store, or let several daemons share one with cluster.role"
    )]
    Held {
        /// Its name.
        name: String,
        /// Where it is reached.
        url: String,
    },
    /// There have been as many gateways as there are ids for.
    #[error(
        "the store has handed out every gateway's id; begin a new one with store.url or store.schema"
    )]
    Gateways,
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
    leading: Leading,
}

impl Daemon {
    /// Opens the store, replays the journal, binds policies, registers the
    /// configured engines and starts to listen.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let (listener, addr) = listen(config).await?;
        let store =
            treadle_store::open_with(&config.store.location(), &config.store_options()).await?;
        lead_alone(&*store, addr).await?;
        let (auth, first_token) = Auth::open(config, store.clone()).await?;
        let books = GatewayBooks::new(Node::open(config).await?);
        let leading = Leading::start(config, store, auth, books).await?;
        let (stop, stopped) = oneshot::channel();
        let router = rest::router(leading.app.clone());
        let served = tokio::spawn(serve(listener, router, serve_limits(config), async {
            let _ = stopped.await;
        }));
        Ok(Self {
            addr,
            app: leading.app.clone(),
            first_token,
            stop: Some(stop),
            served,
            leading,
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
        self.leading.stop().await;
        self.app.auth.close().await;
        let _ = self.app.store.close().await;
    }
}

/// Takes the configured port; gives its address, which the system chooses for port 0.
pub(crate) async fn listen(config: &Config) -> Result<(TcpListener, SocketAddr), StartError> {
    let addr = config.server.listen;
    let listener = TcpListener::bind(addr)
        .await
        .map_err(|error| StartError::Listen { addr, error })?;
    let addr = listener.local_addr().unwrap_or(addr);
    Ok((listener, addr))
}

/// Bounds on connections.
pub(crate) fn serve_limits(config: &Config) -> ServeLimits {
    ServeLimits {
        connections_max: config.server.connections_max,
        header_read_timeout: Duration::from_secs(config.server.header_read_timeout_s),
        shutdown_grace: Duration::from_secs(config.server.shutdown_grace_s),
    }
}

/// Leads the store, or says who does. The leader that was killed a moment ago
/// is given time to be found dead.
async fn lead_alone(store: &dyn Store, addr: SocketAddr) -> Result<(), StartError> {
    let url = format!("http://{addr}");
    let candidate = Candidate {
        name: addr.to_string(),
        url,
    };
    let began = Instant::now();
    while store.campaign(&candidate).await?.is_none() {
        if began.elapsed() >= LEAD_PATIENCE {
            let leader = store.leader().await?;
            let (name, url) = leader.map_or_else(Default::default, |l| (l.name, l.url));
            return Err(StartError::Held { name, url });
        }
        tokio::time::sleep(LEAD_PAUSE).await;
    }
    Ok(())
}
