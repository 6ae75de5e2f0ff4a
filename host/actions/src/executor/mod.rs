//! Starts actions, stops them, and tells what became of them.

mod attempt;
mod config;
mod process;
mod recovery;
mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use treadle_core::actions::{ActionEvent, Grant, Load};
use treadle_model::{ActionId, Span};

pub use config::ExecutorConfig;
pub use recovery::{Recovery, recover};
pub use sandbox::{Expected, Hold, outcome};

use crate::body::ActionBody;
use crate::markers::{AttemptId, Markers};
use crate::outputs::Outputs;
use crate::process::{Cgroups, Cores, Stop, Supervisors};
use crate::requests::Requests;
use crate::services::{ServiceHost, ServiceSpec, Surroundings};

/// Supervisors that wait from the beginning, at most.
const WARM_MAX: usize = 16;

/// What to run, and with what.
#[derive(Clone, Debug)]
pub struct ActionOrder {
    /// The action.
    pub action: ActionId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// What it has until it ends.
    pub grants: Vec<Grant>,
    /// What its devices must get first.
    pub load: Option<Load>,
    /// What to run.
    pub body: Arc<ActionBody>,
    /// After this it is stopped; loading a service does not count.
    pub run_max: Span,
    /// Whether it may be run again where nobody knows how far it came.
    pub idempotent: bool,
    /// The RL run it belongs to, which it is told.
    pub job: String,
    /// Whose action it is: decides what requests may reach and which services there are.
    pub tenant: String,
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The folder of markers can't be used.
    #[error("{folder} can't hold the markers of actions: {error}")]
    Markers {
        /// The folder.
        folder: String,
        /// Why.
        error: io::Error,
    },
    /// The cgroup that is configured can't be used.
    #[error("the cgroup {folder} can't be used: {error}; delegate it to the daemon")]
    Cgroup {
        /// The folder.
        folder: String,
        /// Why.
        error: io::Error,
    },
    /// A list of what a tenant may reach can't be read.
    #[error("egress: {0}")]
    Egress(io::Error),
}

/// Runs actions. Clones are the same executor; all may be called from any thread.
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
    /// How many run.
    running: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<AttemptId, watch::Sender<Stop>>,
    /// Handlers that wait for resources, by token.
    expected: BTreeMap<String, oneshot::Sender<Hold>>,
    /// Attempts that have a marker or are about to.
    held: BTreeSet<AttemptId>,
    is_shut_down: bool,
}

impl Executor {
    /// An executor that goes on from what was recovered, which must be on record by now. It reports
    /// `ActionBegan`, `ActionEnded` and `QuotaRefused`. Reports must be taken: actions wait for that
    /// as they begin and end.
    ///
    /// # Errors
    /// What of the configuration can't be used.
    ///
    /// # Panics
    /// Outside a runtime of tokio.
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
        let services = ServiceHost::new(Surroundings {
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

    /// Makes a service known to its tenant's actions, or replaces the one of its name. Gives whether
    /// there was room for it and the name is no other tenant's.
    pub fn declare(&self, tenant: &str, service: ServiceSpec, tenants: usize) -> bool {
        self.0.services.declare(tenant, service, tenants)
    }

    /// A tenant's service as it was declared.
    pub fn declared(&self, tenant: &str, service: &str) -> Option<ServiceSpec> {
        self.0.services.declared(tenant, service)
    }

    /// Memory of the smallest GPU, where that is known.
    pub fn gpu_memory_bytes(&self) -> Option<u64> {
        self.0.config.gpus.memory_bytes()
    }

    /// Runs an attempt whose start is on record. What becomes of it is reported; where there is no
    /// room for it, that it could not be run. One that began before is left as it is.
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
            tracing::error!(%id, "an attempt was to be executed twice");
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

    /// Ends an attempt; its end is reported. One that does not run is left as it is.
    pub fn stop(&self, action: ActionId, attempt: u32) {
        let id = AttemptId { action, attempt };
        if let Some(stop) = self.0.lock().running.get(&id) {
            stop.send_replace(Stop::Cancelled);
        }
    }

    /// Forgets an attempt whose end is on record elsewhere.
    pub fn acknowledge(&self, action: ActionId, attempt: u32) {
        let (parts, id) = (self.0.clone(), AttemptId { action, attempt });
        self.0.runtime.spawn_blocking(move || {
            if parts.lock().running.contains_key(&id) {
                tracing::error!(%id, "an attempt was acknowledged that runs");
                return;
            }
            match parts.markers.erase(id) {
                Ok(()) => {
                    parts.lock().held.remove(&id);
                }
                Err(error) => tracing::warn!(%id, %error, "the marker of an action stays"),
            }
        });
    }

    /// Ends all that runs, services too, waits for it, and lets go of the folder of markers. Ends are
    /// still reported, and must be taken meanwhile.
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
        // The sender is held by `self`.
        let _ = running.wait_for(|running| *running == 0).await;
        self.0.services.stop_all().await;
        self.0.supervisors.close().await;
        self.0.markers.release();
    }

    /// Attempts that run.
    pub fn running(&self) -> usize {
        self.0.lock().running.len()
    }
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a running attempt, free again once this is dropped.
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

/// Runs what waits for the disk or the kernel aside.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}
