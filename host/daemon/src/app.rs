//! What REST handlers share.

use crate::auth::Auth;
use crate::driver::DriverHandle;
use crate::engines::EngineWatch;
use crate::gateway::GatewayState;
use crate::lab::LabBook;
use crate::messaging::Messaging;
use crate::policies::PolicyShelf;
use crate::transfers::Node;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use treadle_store::Store;

/// What REST handlers share.
#[derive(Clone)]
pub struct App {
    /// The gateway's part.
    pub gateway: Arc<GatewayState>,
    /// Who may do what.
    pub auth: Arc<Auth>,
    /// The scheduler.
    pub driver: DriverHandle,
    /// Durable state.
    pub store: Arc<dyn Store>,
    /// Engines under watch.
    pub engines: Arc<EngineWatch>,
    /// Uploaded policies.
    pub policies: Arc<PolicyShelf>,
    /// Recorded work under other policies.
    pub lab: LabBook,
    /// Events out and commands in, where there is a broker.
    pub messaging: Option<Arc<Messaging>>,
    /// Who moves KV caches, and what is kept of them here.
    pub node: Arc<Node>,
    /// The next worker's id.
    pub next_worker: Arc<AtomicU32>,
}
