//! What REST handlers share.

use crate::demo_comparison::DemoView;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;
use treadle_auth::Auth;
use treadle_config::RelayPort;
use treadle_engines::EngineWatch;
use treadle_engines::transfers::Node;
use treadle_gateway::GatewayState;
use treadle_http::OpenStreams;
use treadle_outbox::Status;
use treadle_registry::PluginRegistry;
use treadle_relay::RelayApp;
use treadle_runs::actions::Actions;
use treadle_runs::nodes::Nodes;
use treadle_runs::sandboxes::{Host, SandboxApp, Tenants};
use treadle_scheduler::DriverHandle;
use treadle_store::Store;
use treadle_training::TrainingApp;
use treadle_whatif::WhatIfQueue;

/// What REST handlers share.
#[derive(Clone)]
pub struct App {
    /// The gateway's part.
    pub gateway: Arc<GatewayState>,
    /// Authentication and authorisation.
    pub auth: Arc<Auth>,
    /// The scheduler.
    pub driver: DriverHandle,
    /// Durable state.
    pub store: Arc<dyn Store>,
    /// Training runs.
    pub training: TrainingApp,
    /// The watched engines.
    pub engines: Arc<EngineWatch>,
    /// Uploaded policies.
    pub policies: Arc<PluginRegistry>,
    /// What-if runs.
    pub whatif: WhatIfQueue,
    /// Runs actions, if they are enabled.
    pub(crate) actions: Option<Arc<Actions>>,
    /// The sandboxes, if they are enabled.
    pub(crate) sandboxes: Option<Arc<Host>>,
    /// The nodes, if the daemon accepts any.
    pub(crate) nodes: Option<Arc<Nodes>>,
    /// State of the broker connection, if a broker is configured.
    pub broker: Option<Arc<Status>>,
    /// The executor of KV transfers, and the host tier of this process.
    pub node: Arc<Node>,
    /// Open event streams.
    pub streams: Arc<OpenStreams>,
    /// Changes with each commit of the journal.
    pub committed: watch::Receiver<u64>,
    /// The next worker's id.
    pub next_worker: Arc<AtomicU32>,
    /// Ports at which a trainer controls single engines.
    pub(crate) relay_ports: Arc<[RelayPort]>,
    /// The demo that the daemon is part of, if any.
    pub demo: Arc<OnceLock<DemoView>>,
}

impl App {
    /// What handlers of trainers' calls to engines share.
    pub(crate) fn relay_app(&self) -> RelayApp {
        let upstream = self.gateway.upstream.clone();
        RelayApp::new(self.driver.clone(), upstream, self.auth.clone())
    }

    /// What handlers of requests about sandboxes share.
    pub(crate) fn sandbox_app(&self) -> SandboxApp {
        SandboxApp {
            host: self.sandboxes.clone(),
            node: None,
            nodes: self.nodes.clone(),
            tenants: Tenants::Known(self.auth.clone()),
            bodies: self.gateway.room.bodies.clone(),
            body_timeout: self.gateway.body_timeout,
        }
    }
}
