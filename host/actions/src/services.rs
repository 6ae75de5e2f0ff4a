//! Services on devices: rewards and judges that are too large for every action to start its own.
//! What is on which devices is brought about here; who decides it is elsewhere.

mod devices;
mod instance;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use treadle_http::Upstream;

pub(crate) use devices::Devices;
use devices::Locks;
use instance::{Instance, Surroundings};

use crate::markers::Markers;
use crate::process::SupervisorCommand;

/// Between two looks whether a service is ready.
const READY_LOOK: Duration = Duration::from_millis(50);

/// A service as the operator or a job describes it.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// Its name: letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// How it comes and goes.
    pub lifecycle: Lifecycle,
    /// Where it answers; `{port}` stands for the port of its devices.
    pub url: String,
    /// The port on the first device of the first node; each device has the next one.
    pub port_first: u16,
    /// The path that answers 2xx once it is ready.
    pub ready_path: String,
    /// How long it may take to get ready, or to go.
    pub ready_max: Duration,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
}

/// How a service comes and goes.
#[derive(Clone, Debug)]
pub enum Lifecycle {
    /// A process that is the service, and ends with it.
    Process {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// Commands that bring it and take it away, and end by themselves.
    Commands {
        /// Brings it the first time.
        start: Vec<String>,
        /// Takes it away.
        stop: Vec<String>,
        /// Brings it again; `start` where there is none.
        restore: Option<Vec<String>>,
    },
    /// A server that takes `POST` of `start`, `stop` and `restore` below this URL, with the service
    /// and its devices.
    Control {
        /// Scheme, host and port.
        url: String,
    },
}

/// What a host of services needs of its daemon.
pub(crate) struct ServiceConfig {
    pub(crate) services: Vec<ServiceSpec>,
    pub(crate) supervisor: SupervisorCommand,
    pub(crate) inherit: Vec<String>,
    pub(crate) workdir: PathBuf,
    pub(crate) grace: Duration,
}

/// All services of a daemon.
pub(crate) struct ServiceHost {
    specs: BTreeMap<String, ServiceSpec>,
    surroundings: Surroundings,
    locks: Locks,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// What is on which devices.
    instances: BTreeMap<Devices, Instance>,
    /// What was there before, and is restored and not started.
    known: BTreeSet<(String, Devices)>,
}

impl ServiceHost {
    pub(crate) fn new(config: ServiceConfig, markers: Arc<Markers>, upstream: Upstream) -> Self {
        let specs = config
            .services
            .into_iter()
            .map(|spec| (spec.name.clone(), spec));
        Self {
            specs: specs.collect(),
            surroundings: Surroundings {
                supervisor: config.supervisor,
                inherit: config.inherit,
                workdir: config.workdir,
                grace: config.grace,
                markers,
                upstream,
            },
            locks: Locks::default(),
            held: Mutex::default(),
        }
    }

    /// Has a service on some devices, in the place of all others there; gives where it answers.
    ///
    /// # Errors
    /// Why it is not there, for people.
    pub(crate) async fn ensure(&self, name: &str, devices: &Devices) -> Result<String, String> {
        let Some(spec) = self.specs.get(name) else {
            return Err(format!("there is no service {name}; declare it"));
        };
        let devices = devices.of(name);
        let _locked = self.locks.lock(&devices).await;
        let url = spec
            .url
            .replace("{port}", &devices.port(spec.port_first).to_string());
        if self.is_there(name, &devices) {
            return Ok(url);
        }
        for instance in self.take_overlapping(&devices) {
            instance.stop(&self.surroundings).await?;
        }
        let key = (name.to_owned(), devices.clone());
        let restores = self.lock().known.contains(&key);
        let mut instance = Instance::start(spec, &devices, restores, &self.surroundings).await?;
        if let Err(cause) = self.wait_until_ready(spec, &url, &mut instance).await {
            let stopped = instance.stop(&self.surroundings).await;
            let more = stopped
                .err()
                .map_or(String::new(), |error| format!("; {error}"));
            return Err(format!("{name} did not get ready: {cause}{more}"));
        }
        let mut held = self.lock();
        held.known.insert(key);
        held.instances.insert(devices, instance);
        Ok(url)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_there(&self, name: &str, devices: &Devices) -> bool {
        let mut held = self.lock();
        let instance = held.instances.get_mut(devices);
        instance.is_some_and(|instance| instance.name() == name && !instance.has_ended())
    }

    fn take_overlapping(&self, devices: &Devices) -> Vec<Instance> {
        let mut held = self.lock();
        let taken = held.instances.extract_if(.., |of, _| of.overlap(devices));
        taken.map(|(_, instance)| instance).collect()
    }

    async fn wait_until_ready(
        &self,
        spec: &ServiceSpec,
        url: &str,
        instance: &mut Instance,
    ) -> Result<(), String> {
        let until = Instant::now() + spec.ready_max;
        let mut last = "nothing answered".to_owned();
        loop {
            if instance.has_ended() {
                return Err(instance.last_words().await);
            }
            let asked = self.surroundings.upstream.get(url, &spec.ready_path);
            match tokio::time::timeout_at(until, asked).await {
                Ok(Ok(answer)) if answer.status().is_success() => return Ok(()),
                Ok(Ok(answer)) => last = told(answer.status()),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => {}
            }
            let next = Instant::now() + READY_LOOK;
            if next >= until {
                let s = spec.ready_max.as_secs_f64();
                return Err(format!("{last}, for {s} s"));
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Takes all services away.
    pub(crate) async fn stop_all(&self) {
        let instances = std::mem::take(&mut self.lock().instances);
        let mut stops = tokio::task::JoinSet::new();
        for instance in instances.into_values() {
            let surroundings = self.surroundings.clone();
            stops.spawn(async move {
                if let Err(error) = instance.stop(&surroundings).await {
                    tracing::warn!(%error, "a service is left as it is");
                }
            });
        }
        while stops.join_next().await.is_some() {}
    }
}

fn told(status: StatusCode) -> String {
    format!("it answers {status}")
}
