//! Starts actions, stops them, and tells what became of them.

mod attempt;
mod config;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use treadle_core::actions::{Grant, Load, Outcome};
use treadle_http::Upstream;
use treadle_model::{ActionId, Span};

pub use config::ExecutorConfig;

use crate::body::ActionBody;
use crate::markers::{AttemptId, Markers, Recovery};
use crate::outputs::Outputs;
use crate::process::{Cgroups, Cores, Stop};
use crate::requests::HttpExecutor;
use crate::services::{ServiceConfig, ServiceHost};

/// What to start.
#[derive(Clone, Debug)]
pub struct StartRequest {
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
    /// Whose action it is: decides what requests may reach.
    pub tenant: String,
}

/// What became of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ExecutorEvent {
    /// Its process or request begins, which is on the disk.
    Began {
        /// The action.
        action: ActionId,
        /// Which attempt.
        attempt: u32,
    },
    /// It is over. It is kept on the disk until [`Executor::acknowledge`].
    Ended {
        /// The action.
        action: ActionId,
        /// Which attempt.
        attempt: u32,
        /// How.
        outcome: Outcome,
        /// Digest of its output, where it has any.
        output: Option<Box<str>>,
    },
    /// A server refused its request for a time. The attempt is as if it had never begun, and may be
    /// started again.
    QuotaRefused {
        /// The action.
        action: ActionId,
        /// Which attempt.
        attempt: u32,
        /// How long nothing more is asked of that server.
        retry_after: Span,
    },
}

/// Why nothing was started.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StartError {
    /// As many run as may.
    #[error("{running_max} actions run already; start it when one has ended")]
    Busy {
        /// The bound.
        running_max: usize,
    },
    /// As many ends wait to be acknowledged as may.
    #[error("{attempts_max} attempts are on record; acknowledge those that ended")]
    Unacknowledged {
        /// The bound.
        attempts_max: usize,
    },
    /// It was started before.
    #[error("{0} was started before; give another attempt its own number")]
    Duplicate(AttemptId),
    /// The daemon stops.
    #[error("the executor is shut down")]
    ShutDown,
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The folder of markers can't be used.
    #[error("{folder} can't be used: {error}")]
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

/// Runs actions. Clones are the same executor.
#[derive(Clone)]
pub struct Executor(Arc<Parts>);

struct Parts {
    config: ExecutorConfig,
    outputs: Arc<dyn Outputs>,
    markers: Arc<Markers>,
    cores: Cores,
    cgroups: Option<Cgroups>,
    requests: HttpExecutor,
    services: Arc<ServiceHost>,
    /// To services: their addresses are the operator's.
    upstream: Upstream,
    events: mpsc::Sender<ExecutorEvent>,
    state: Mutex<State>,
    /// How many run.
    running: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<AttemptId, watch::Sender<Stop>>,
    /// Attempts that have a marker or are about to.
    held: BTreeSet<AttemptId>,
    is_shut_down: bool,
}

impl Executor {
    /// An executor, and its events. They must be taken: an attempt ends for good once its end is
    /// taken.
    ///
    /// # Errors
    /// What of the configuration can't be used.
    pub fn new(
        config: ExecutorConfig,
        outputs: Arc<dyn Outputs>,
    ) -> Result<(Self, mpsc::Receiver<ExecutorEvent>), ExecutorError> {
        let folder = &config.markers;
        let markers = Markers::open(folder).map_err(|error| ExecutorError::Markers {
            folder: folder.display().to_string(),
            error,
        })?;
        let markers = Arc::new(markers);
        let cgroups = config.cgroup.as_ref().map(|folder| {
            Cgroups::open(folder).map_err(|error| ExecutorError::Cgroup {
                folder: folder.display().to_string(),
                error,
            })
        });
        let requests = HttpExecutor::new(
            config.own,
            &config.egress,
            &config.trust,
            config.connect_timeout,
            config.output_bytes_max,
        );
        let upstream = Upstream::new(config.connect_timeout);
        let (events, taken) = mpsc::channel(config.events_max.max(1));
        let service_config = ServiceConfig {
            services: config.services.clone(),
            supervisor: config.supervisor.clone(),
            inherit: config.inherit.clone(),
            workdir: config.workdir.clone(),
            grace: config.grace,
        };
        let services = ServiceHost::new(service_config, markers.clone(), upstream.clone());
        let parts = Parts {
            cgroups: cgroups.transpose()?,
            requests: requests.map_err(ExecutorError::Egress)?,
            cores: Cores::of_this_process(),
            services: Arc::new(services),
            state: Mutex::default(),
            running: watch::Sender::new(0),
            config,
            outputs,
            markers,
            upstream,
            events,
        };
        Ok((Self(Arc::new(parts)), taken))
    }

    /// Reads what earlier daemons left on the disk, and ends what still runs of it. Call it before
    /// anything is started. What it finds is to be acknowledged like any end.
    ///
    /// # Errors
    /// The folder can't be read.
    pub async fn recover(&self) -> io::Result<Recovery> {
        let parts = self.0.clone();
        let recovery = blocking(move || {
            let recovery = parts.markers.recover()?;
            if let Some(cgroups) = &parts.cgroups {
                for (attempt, _) in recovery.all() {
                    cgroups.clear(&attempt.to_string());
                }
            }
            Ok(recovery)
        });
        let recovery = recovery.await?;
        let mut state = self.0.lock();
        state
            .held
            .extend(recovery.all().map(|(attempt, _)| attempt));
        drop(state);
        Ok(recovery)
    }

    /// Starts an action. What becomes of it comes as events.
    ///
    /// # Errors
    /// Why it is not started; nothing is on record of it then.
    ///
    /// # Panics
    /// Outside a runtime of tokio.
    pub fn start(&self, request: StartRequest) -> Result<(), StartError> {
        let parts = self.0.clone();
        let id = AttemptId {
            action: request.action,
            attempt: request.attempt,
        };
        let (stop, stopped) = watch::channel(Stop::Not);
        let mut state = parts.lock();
        let (running_max, attempts_max) = (parts.config.running_max, parts.config.attempts_max);
        if state.is_shut_down {
            return Err(StartError::ShutDown);
        }
        if state.held.contains(&id) {
            return Err(StartError::Duplicate(id));
        }
        if state.running.len() >= running_max {
            return Err(StartError::Busy { running_max });
        }
        if state.held.len() >= attempts_max {
            return Err(StartError::Unacknowledged { attempts_max });
        }
        state.held.insert(id);
        state.running.insert(id, stop);
        parts.running.send_replace(state.running.len());
        drop(state);
        let slot = Slot { parts, id };
        tokio::spawn(attempt::run(slot, request, stopped));
        Ok(())
    }

    /// Ends an attempt; its end comes as an event. One that does not run is left as it is.
    pub fn stop(&self, action: ActionId, attempt: u32) {
        let id = AttemptId { action, attempt };
        if let Some(stop) = self.0.lock().running.get(&id) {
            stop.send_replace(Stop::Cancelled);
        }
    }

    /// Forgets an attempt whose end is on record elsewhere.
    ///
    /// # Errors
    /// Its files can't be removed; it would be found again.
    pub async fn acknowledge(&self, action: ActionId, attempt: u32) -> io::Result<()> {
        let id = AttemptId { action, attempt };
        if self.0.lock().running.contains_key(&id) {
            return Err(io::Error::other(format!("{id} runs; acknowledge its end")));
        }
        let markers = self.0.markers.clone();
        blocking(move || markers.erase(id)).await?;
        self.0.lock().held.remove(&id);
        Ok(())
    }

    /// Ends all that runs, services too, and waits for it. Events of the ends still come, and must
    /// be taken meanwhile.
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
