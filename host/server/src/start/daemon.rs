//! Starting and stopping a daemon: the order in which its parts come up, and
//! the reverse in which they go down.

use super::relay_ports::RelayPorts;
use super::{EndCause, GatewayContext, Leading, StartError, keep_hash_key};
use crate::app::App;
use crate::rest;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use treadle_auth::{Auth, FirstToken};
use treadle_config::Config;
use treadle_engines::transfers::Node;
use treadle_http::serve;
use treadle_runs::{listen, serve_limits};
use treadle_store::{Candidate, Cluster};

/// How long a daemon waits for the store's last leader to go.
const LEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to lead.
const LEAD_PAUSE: Duration = Duration::from_millis(100);

/// A running daemon.
pub struct Daemon {
    /// Its listening address.
    pub addr: SocketAddr,
    scheme: &'static str,
    /// The handlers' shared state, for code in the same process.
    pub app: App,
    /// The secret of an admin, if one was created because there was none.
    pub first_token: Option<FirstToken>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    relay_ports: RelayPorts,
    leading: Leading,
}

impl Daemon {
    /// Opens the store, replays the journal, binds policies, registers the
    /// configured engines and starts to listen.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let (listener, addr) = listen(config).await?;
        let mut config = config.clone();
        // No engine may use the port that the system has chosen.
        config.server.listen = addr;
        let config = &config;
        let store =
            treadle_store::open_with(&config.store.location(), &config.store_options()).await?;
        let epoch = lead_alone(&*store, addr, config.scheme()).await?;
        keep_hash_key(config, &*store).await?;
        let (auth, first_token) = Auth::open(config, store.clone()).await?;
        let context = GatewayContext::new(config, Node::open(config).await?)?;
        let leading = Leading::start(config, store, auth, context, epoch).await?;
        let relay_ports = RelayPorts::start(config, &leading.app).await?;
        let (stop, stopped) = oneshot::channel();
        let router = rest::router(leading.app.clone());
        let router = treadle_http::open_to(&config.server.cors_origins, router);
        let served = tokio::spawn(serve(listener, router, serve_limits(config), async {
            let _ = stopped.await;
        }));
        Ok(Self {
            addr,
            scheme: config.scheme(),
            app: leading.app.clone(),
            first_token,
            stop: Some(stop),
            served,
            relay_ports,
            leading,
        })
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addr)
    }

    /// Completes when the daemon can't go on, with the reason.
    pub async fn ended(&self) -> EndCause {
        let mut lost = self.app.store.lost();
        tokio::select! {
            _ = lost.wait_for(Option::is_some) => {}
            () = self.app.driver.stopped() => {}
        }
        let why = lost.borrow().clone();
        why.map_or(EndCause::Superseded, |why| {
            EndCause::StoreLost(why.to_string())
        })
    }

    /// Lets requests in flight end, then writes all state to the store.
    pub async fn stop(mut self) {
        self.app.streams.stop();
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.served).await;
        self.relay_ports.stop().await;
        self.leading.stop().await;
        self.app.auth.close().await;
        let _ = self.app.store.close().await;
    }
}

/// Leads the store, or reports which daemon does. A leader that was killed a moment ago is given
/// time to be detected as dead.
async fn lead_alone(
    store: &dyn Cluster,
    addr: SocketAddr,
    scheme: &str,
) -> Result<u64, StartError> {
    let url = format!("{scheme}://{addr}");
    let candidate = Candidate {
        name: addr.to_string(),
        url,
    };
    let began = Instant::now();
    loop {
        if let Some(epoch) = store.campaign(&candidate).await? {
            return Ok(epoch);
        }
        if began.elapsed() >= LEAD_TIMEOUT {
            let leader = store.leader().await?;
            let (name, url) = leader.map_or_else(Default::default, |l| (l.name, l.url));
            return Err(StartError::Held { name, url });
        }
        tokio::time::sleep(LEAD_PAUSE).await;
    }
}
