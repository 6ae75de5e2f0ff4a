//! Starts and stops actions, and reports their results.

mod attempt;
mod config;
mod process;
mod recovery;
mod sandbox;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use treadle_core::actions::{ActionEvent, Grant, Load};
use treadle_model::{ActionId, Span, Tenant};

pub use config::ExecutorConfig;
pub use recovery::{Recovery, recover};
pub use sandbox::{Expected, Hold, outcome};

use crate::body::ActionBody;
use crate::markers::{AttemptId, Markers};
use crate::outputs::Outputs;
use crate::process::{Cgroups, Cores, Stop, Supervisors};
use crate::requests::Requests;
use crate::services::{InstanceContext, ServiceHost, ServiceSpec};

/// Most supervisors that are started in advance.
const WARM_MAX: usize = 16;
/// Actions whose servers said when to ask again, that are remembered.
const PAUSES_MAX: usize = 1_024;

/// An attempt to execute, with its resources.
#[derive(Clone, Debug)]
pub struct ActionOrder {
    /// The action.
    pub action: ActionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Its resources until it ends.
    pub grants: Vec<Grant>,
    /// The service to load on its devices first.
    pub load: Option<Load>,
    /// What to run.
    pub body: Arc<ActionBody>,
    /// Time limit, without the time to load a service.
    pub run_max: Span,
    /// Whether it may be run again if its progress is unknown.
    pub idempotent: bool,
    /// The RL run it belongs to, which is passed to it.
    pub job: String,
    /// The tenant, which determines permitted destinations and available services.
    pub tenant: String,
}

/// Why an executor can't start.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The folder of markers is unusable.
    #[error("can't use {folder} for the markers of actions: {error}")]
    Markers {
        /// The folder.
        folder: String,
        /// The cause.
        error: io::Error,
    },
    /// The configured cgroup is unusable.
    #[error("can't use the cgroup {folder}: {error}; delegate it to the daemon")]
    Cgroup {
        /// The folder.
        folder: String,
        /// The cause.
        error: io::Error,
    },
    /// An egress list is invalid.
    #[error("egress: {0}")]
    Egress(io::Error),
}

/// Runs actions. Clones share the executor; methods may be called from any thread.
#[derive(Clone)]
pub struct Executor(Arc<Parts>);

struct Parts {
    config: ExecutorConfig,
    outputs: Arc<dyn Outputs>,
    markers: Arc<Markers>,
    cores: Cores,
    cgroups: Option<Cgroups>,
    supervisors: Arc<Supervisors>,
    requests: Arc<Requests>,
    services: Arc<ServiceHost>,
    reports: mpsc::Sender<ActionEvent>,
    runtime: Handle,
    state: Mutex<State>,
    /// Number of running attempts.
    running: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<AttemptId, watch::Sender<Stop>>,
    /// Handlers that wait for their resources, by token.
    expected: BTreeMap<String, oneshot::Sender<Hold>>,
    /// Attempts that have a marker or will have one.
    held: BTreeSet<AttemptId>,
    /// Actions whose servers said when to ask again, the latest last.
    pauses: VecDeque<(ActionId, Span)>,
    is_shut_down: bool,
}

impl State {
    fn pause(&mut self, action: ActionId, wait: Span) {
        if self.pauses.len() >= PAUSES_MAX {
            self.pauses.pop_front();
        }
        self.pauses.push_back((action, wait));
    }
}

impl Executor {
    /// Starts an executor after a recovery, whose results must be recorded by now. It reports
    /// `ActionBegan`, `ActionEnded` and `QuotaRefused`. The reports must be received: actions wait
    /// for that as they begin and end.
    ///
    /// # Errors
    /// If the configuration is unusable.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(
        config: ExecutorConfig,
        recovery: Recovery,
        outputs: Arc<dyn Outputs>,
        reports: mpsc::Sender<ActionEvent>,
    ) -> Result<Self, ExecutorError> {
        let (markers, epoch) = (Arc::new(recovery.markers), config.epoch);
        let owned = markers.clone();
        let begun = blocking(move || owned.begin(epoch)).await;
        begun.map_err(|error| ExecutorError::Markers {
            folder: config.markers.display().to_string(),
            error,
        })?;
        let requests = Requests::new(
            config.own,
            &config.egress,
            &config.trust,
            config.connect_timeout,
            config.output_bytes_max,
        );
        let requests = Arc::new(requests.map_err(ExecutorError::Egress)?);
        let supervisors = Arc::new(Supervisors::new(config.supervisor.clone(), recovery.pens));
        let services = ServiceHost::new(InstanceContext {
            supervisors: supervisors.clone(),
            markers: markers.clone(),
            requests: requests.clone(),
            inherit: config.inherit.clone(),
            workdir: config.workdir.clone(),
            grace: config.grace,
            gpus: config.gpus.clone(),
        });
        let cores = Cores::of_this_process();
        supervisors.warm(cores.count().min(WARM_MAX)).await;
        let state = State {
            held: recovery.found.attempts.into_keys().collect(),
            ..State::default()
        };
        Ok(Self(Arc::new(Parts {
            config,
            outputs,
            markers,
            cores,
            cgroups: recovery.cgroups,
            supervisors,
            requests,
            services: Arc::new(services),
            reports,
            runtime: Handle::current(),
            state: Mutex::new(state),
            running: watch::Sender::new(0),
        })))
    }

    /// Whether a tenant may declare a service of this name.
    pub fn has_room_for(&self, tenant: &Tenant, service: &str, tenants: usize) -> bool {
        self.0.services.has_room(tenant, service, tenants)
    }

    /// Declares a service for its tenant's actions, or replaces the one with its name. Returns
    /// false if there is no room for it.
    pub fn declare(&self, tenant: &str, service: ServiceSpec, tenants: usize) -> bool {
        self.0.services.declare(tenant, service, tenants)
    }

    /// The declaration of a tenant's service.
    pub fn declared(&self, tenant: &str, service: &str) -> Option<ServiceSpec> {
        self.0.services.declared(tenant, service)
    }

    /// Memory of the smallest GPU, if known.
    pub fn gpu_memory_bytes(&self) -> Option<u64> {
        self.0.config.gpus.memory_bytes()
    }

    /// Runs an attempt whose start is recorded. Its results are reported; if there is no room for
    /// it, a failure is reported. An attempt that has begun before is ignored.
    pub fn execute(&self, order: ActionOrder) {
        let parts = self.0.clone();
        let id = AttemptId {
            action: order.action,
            attempt: order.attempt,
        };
        let (stop, stopped) = watch::channel(Stop::Not);
        let mut state = parts.lock();
        if state.is_shut_down {
            return;
        }
        if state.held.contains(&id) {
            tracing::error!(%id, "refusing to execute an attempt twice");
            return;
        }
        if state.held.len() >= parts.config.attempts_max {
            drop(state);
            self.0.runtime.spawn(attempt::refuse(parts, id));
            return;
        }
        state.held.insert(id);
        state.running.insert(id, stop);
        parts.running.send_replace(state.running.len());
        drop(state);
        let slot = Slot { parts, id };
        let runtime = self.0.runtime.clone();
        runtime.spawn(attempt::run(slot, order, stopped));
    }

    /// Stops an attempt; its end is reported. One that is not running is ignored.
    pub fn stop(&self, action: ActionId, attempt: u32) {
        let id = AttemptId { action, attempt };
        if let Some(stop) = self.0.lock().running.get(&id) {
            stop.send_replace(Stop::Cancelled);
        }
    }

    /// Removes an attempt whose end is recorded elsewhere.
    pub fn acknowledge(&self, action: ActionId, attempt: u32) {
        let (parts, id) = (self.0.clone(), AttemptId { action, attempt });
        self.0.runtime.spawn_blocking(move || {
            if parts.lock().running.contains_key(&id) {
                tracing::error!(%id, "a running attempt was acknowledged");
                return;
            }
            match parts.markers.erase(id) {
                Ok(()) => {
                    parts.lock().held.remove(&id);
                }
                Err(error) => {
                    tracing::warn!(%id, %error, "could not remove the marker of an action");
                }
            }
        });
    }

    /// Ends all attempts and services, waits for them, and releases the folder of markers. Ends are
    /// still reported, and must be received meanwhile.
    pub async fn shutdown(&self) {
        {
            let mut state = self.0.lock();
            state.is_shut_down = true;
            for stop in state.running.values() {
                stop.send_if_modified(|stop| {
                    let goes_on = *stop == Stop::Not;
                    if goes_on {
                        *stop = Stop::Shutdown;
                    }
                    goes_on
                });
            }
        }
        let mut running = self.0.running.subscribe();
        // `self` holds the sender.
        let _ = running.wait_for(|running| *running == 0).await;
        self.0.services.stop_all().await;
        self.0.supervisors.close().await;
        self.0.markers.release();
    }

    /// After how long its server wants an action to be sent again, if it said so lately.
    pub fn retry_after(&self, action: ActionId) -> Option<Span> {
        let state = self.0.lock();
        let mut pauses = state.pauses.iter().rev();
        let told = pauses.find(|(of, _)| *of == action);
        told.map(|(_, wait)| *wait)
    }

    /// Number of running attempts.
    pub fn running(&self) -> usize {
        self.0.lock().running.len()
    }
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a running attempt; freed when this is dropped.
struct Slot {
    parts: Arc<Parts>,
    id: AttemptId,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.parts.lock();
        state.running.remove(&self.id);
        self.parts.running.send_replace(state.running.len());
    }
}

/// Runs blocking disk or kernel operations on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
