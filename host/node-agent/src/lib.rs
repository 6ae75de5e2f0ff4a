//! The agent of a node (`treadle node-agent`): a machine that runs sandboxes for a daemon.
//!
//! It has sandboxes and an executor of actions, and makes no decisions. The daemon starts attempts
//! over the link that the agent opens ([`treadle_runs::nodes`] is the other end), and forwards requests
//! about sandboxes, vouching for their callers. While the daemon is unreachable, attempts continue,
//! their ends are stored, and nothing new starts.

mod identity;
mod link;
mod outputs;
mod routes;
mod turns;
mod upstream;

use identity::Identity;
use outputs::FileOutputs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::channel;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use treadle_actions::{Executor, ExecutorConfig, recover};
use treadle_config::Config;
use treadle_http::serve;
pub use treadle_runs::StartError;
use treadle_runs::actions::settings;
use treadle_runs::nodes::Hello;
use treadle_runs::proxy::connector;
use treadle_runs::sandboxes::{self, Host, SandboxApp, Tenants};
use treadle_runs::weights::Pulls;
use treadle_runs::{listen, machine, serve_limits};
use upstream::Upstream;

/// The default folder of an agent's state.
const FOLDER: &str = "/var/lib/treadle";
/// Most waiting reports of the executor.
const REPORTS_MAX: usize = 1_024;
/// Longest output of an attempt: it travels in one line.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// How long a stopping agent waits for the daemon to record the last ends.
const LAST_ENDS_MAX: Duration = Duration::from_secs(5);
/// The agent is the only owner of its markers, so that one epoch suffices.
const EPOCH: u64 = 1;

/// A running agent.
pub struct NodeAgent {
    /// Its listening address.
    pub addr: SocketAddr,
    /// Its name.
    pub name: String,
    host: Arc<Host>,
    executor: Executor,
    upstream: Arc<Upstream>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    tasks: JoinSet<()>,
}

/// The configuration with the listening address and with all paths in the agent's folder.
fn within(config: &Config, folder: &Path, addr: SocketAddr) -> Config {
    let in_folder = |name: &str| folder.join(name).display().to_string();
    let mut config = config.clone();
    config.server.listen = addr;
    config.sandboxes.folder = in_folder("sandboxes");
    config.actions.folder = in_folder("actions");
    config.nodes.folder = folder.display().to_string();
    config
}

impl NodeAgent {
    /// Recovers the state of an earlier agent from the folder, starts to listen, and keeps a
    /// connection to the daemon.
    ///
    /// # Errors
    /// The machine or the configuration lacks something.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        config.check_agent()?;
        let (listener, addr) = listen(config).await?;
        let folder = folder(config);
        let config = &within(config, &folder, addr);
        let identity = Identity::open(&folder).map_err(|error| no_folder(&folder, error))?;
        let tenants = Tenants::let_in();
        let sandboxes = sandboxes::start(config, identity.mark(), tenants.clone()).await?;
        let settings = settings(config, EPOCH);
        let settings = ExecutorConfig {
            sandboxes: Some(sandboxes.clone()),
            output_bytes_max: settings.output_bytes_max.min(OUTPUT_BYTES_MAX),
            ..settings
        };
        let recovery = recover(&settings).await?;
        let outputs = FileOutputs::open(&folder.join("outputs"));
        let outputs = Arc::new(outputs.map_err(|error| no_folder(&folder, error))?);
        let upstream = Upstream::new(&recovery, outputs.clone(), &folder);
        let upstream = Arc::new(upstream.map_err(|error| no_folder(&folder, error))?);
        let (reporter, reports) = channel(REPORTS_MAX);
        let executor = Executor::start(settings, recovery, outputs, reporter).await?;
        let turns = turns::OfDaemon::new(executor.clone(), upstream.clone());
        let host = Host::start(
            sandboxes.clone(),
            Arc::new(turns),
            config.sandboxes.memory_bytes,
        );
        let hello = hello(config, addr, &identity);
        let name = hello.name.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(upstream::report(upstream.clone(), reports));
        tasks.spawn(upstream::tell_load(upstream.clone(), sandboxes.clone()));
        tasks.spawn(link::keep_connected(link::Link {
            urls: config.nodes.daemons.clone(),
            secret: config.cluster.secret.clone(),
            connector: connector(config),
            hello,
            identity,
            upstream: upstream.clone(),
            executor: executor.clone(),
            sandboxes,
        }));
        let app = SandboxApp {
            host: Some(host.clone()),
            node: Some(name.clone()),
            nodes: None,
            tenants,
            bodies: (Arc::default(), config.server.bodies_bytes_max),
            body_timeout: Duration::from_secs(config.server.body_read_timeout_s),
        };
        let router = routes::router(app, config.cluster.secret.clone(), Pulls::new(config));
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, router, serve_limits(config), async {
            let _ = stopped.await;
        }));
        Ok(Self {
            addr,
            name,
            host,
            executor,
            upstream,
            stop: Some(stop),
            served,
            tasks,
        })
    }

    /// Ends all attempts, and reports that to the daemon; files of sandboxes stay.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.served).await;
        self.executor.shutdown().await;
        let _ = tokio::time::timeout(LAST_ENDS_MAX, self.upstream.all_on_record()).await;
        self.tasks.shutdown().await;
        self.host.stop().await;
    }
}

fn folder(config: &Config) -> PathBuf {
    match &*config.nodes.folder {
        "" => PathBuf::from(FOLDER).join(format!("node-{}", config.server.listen.port())),
        folder => PathBuf::from(folder),
    }
}

fn no_folder(folder: &Path, error: io::Error) -> StartError {
    let folder = folder.display().to_string();
    StartError::NodeFolder { folder, error }
}

fn hello(config: &Config, addr: SocketAddr, identity: &Identity) -> Hello {
    let cluster = &config.cluster;
    let or = |configured: u64, found: u64| if configured > 0 { configured } else { found };
    let memory_bytes = machine::memory_bytes() / 4 * 3;
    Hello {
        mark: identity.mark().to_owned(),
        name: match &*cluster.name {
            "" => machine::name(addr),
            name => name.to_owned(),
        },
        run: identity.run().to_owned(),
        url: match &*cluster.advertise {
            "" => format!("{}://{addr}", config.scheme()),
            url => url.trim_end_matches('/').to_owned(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cores: or(config.actions.cores, machine::cores()),
        memory_mib: or(config.actions.memory_bytes, memory_bytes) >> 20,
        sandboxes_max: config.sandboxes.sandboxes_max as u64,
        cordoned: false,
    }
}
