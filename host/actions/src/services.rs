//! Services on devices: rewards and judges that are too large for every action to start its own.
//! This module loads and unloads them; the scheduler decides which service is on which devices.

mod devices;
mod instance;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use treadle_core::actions::Chunk;
use treadle_model::Tenant;

use crate::requests::{Answer, Message, Server};
use devices::Locks;
pub(crate) use devices::Place;
use instance::Instance;
pub(crate) use instance::InstanceContext;
pub use spec::{Lifecycle, ServiceSpec};

/// Maximum number of declared services.
const SERVICES_MAX: usize = 1_024;
/// Maximum number of services of one tenant.
const TENANT_SERVICES_MAX: usize = 256;

/// A declared service and its tenant.
#[derive(Debug, Eq, PartialEq)]
struct Declared {
    tenant: String,
    spec: ServiceSpec,
}

/// The name inside the daemon of a tenant's service.
fn inside(tenant: &Tenant, name: &str) -> String {
    format!("{}{name}", tenant.prefix())
}

/// All services of a daemon.
pub(crate) struct ServiceHost {
    context: InstanceContext,
    locks: Locks,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By their names inside the daemon.
    declared: BTreeMap<String, Arc<Declared>>,
    /// The running services by place.
    instances: BTreeMap<Place, Instance>,
    /// Services that were in a place before, and are restored rather than started.
    known: BTreeSet<(String, Place)>,
}

impl ServiceHost {
    pub(crate) fn new(context: InstanceContext) -> Self {
        Self {
            context,
            locks: Locks::default(),
            state: Mutex::default(),
        }
    }

    /// Whether a tenant may declare a service of this name.
    pub(crate) fn has_room(&self, tenant: &Tenant, name: &str, tenants: usize) -> bool {
        let own_max = TENANT_SERVICES_MAX.min(SERVICES_MAX / tenants.max(1));
        let state = self.lock();
        let declared = state.declared.values();
        let own = declared.filter(|declared| declared.tenant == tenant.name());
        state.declared.contains_key(&inside(tenant, name))
            || (own.count() < own_max && state.declared.len() < SERVICES_MAX)
    }

    /// Declares a tenant's service. It replaces the tenant's service with that name when that is
    /// next used. Returns false if there is no room.
    pub(crate) fn declare(&self, tenant: &str, spec: ServiceSpec, tenants: usize) -> bool {
        let known = Tenant::new(tenant);
        if !self.has_room(&known, &spec.name, tenants) {
            return false;
        }
        let (name, tenant) = (inside(&known, &spec.name), tenant.to_owned());
        let declared = Arc::new(Declared { tenant, spec });
        self.lock().declared.insert(name, declared);
        true
    }

    /// The declaration of a tenant's service.
    pub(crate) fn declared(&self, tenant: &str, name: &str) -> Option<ServiceSpec> {
        let state = self.lock();
        let declared = state.declared.get(&inside(&Tenant::new(tenant), name))?;
        Some(declared.spec.clone())
    }

    /// Loads a tenant's service on devices, replacing all others there; returns its address.
    ///
    /// # Errors
    /// The cause, as a message.
    pub(crate) async fn ensure(
        &self,
        tenant: &str,
        name: &str,
        chunk: Option<Chunk>,
    ) -> Result<Server, String> {
        let own = inside(&Tenant::new(tenant), name);
        let declared = self.lock().declared.get(&own).cloned();
        let declared = declared.ok_or_else(|| format!("there is no service {name}; declare it"))?;
        let place = Place::of(chunk, &own);
        let _locked = self.locks.lock(&place).await;
        if let Some(server) = self.serving(&declared, &place) {
            return Ok(server);
        }
        self.evict(&place).await?;
        let key = (own, place.clone());
        let restores = self.lock().known.contains(&key);
        let started = Instance::start(declared, &place, restores, &self.context).await;
        let mut instance = started?;
        if let Err(cause) = self.wait_until_ready(&mut instance).await {
            let stopped = instance.stop(&self.context).await;
            let more = stopped.err().map(|error| format!("; {error}"));
            let more = more.unwrap_or_default();
            return Err(format!("{name} did not get ready: {cause}{more}"));
        }
        let server = instance.server();
        let mut state = self.lock();
        state.known.insert(key);
        state.instances.insert(place, instance);
        Ok(server)
    }

    /// Unloads the service from devices.
    ///
    /// # Errors
    /// The cause, as a message.
    pub(crate) async fn vacate(&self, chunk: Chunk) -> Result<(), String> {
        let place = Place::Devices(chunk);
        let _locked = self.locks.lock(&place).await;
        self.evict(&place).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a service that is loaded and has the current declaration.
    fn serving(&self, declared: &Declared, place: &Place) -> Option<Server> {
        let state = self.lock();
        let instance = state.instances.get(place)?;
        let is_it = *instance.declared == *declared && !instance.has_ended();
        is_it.then(|| instance.server())
    }

    /// Unloads what is on some devices. What can't be unloaded still counts as loaded.
    async fn evict(&self, place: &Place) -> Result<(), String> {
        loop {
            let next = {
                let mut state = self.lock();
                let mut overlapping = state.instances.keys().filter(|at| at.overlaps(place));
                let at = overlapping.next().cloned();
                at.and_then(|at| state.instances.remove_entry(&at))
            };
            let Some((at, mut instance)) = next else {
                return Ok(());
            };
            if let Err(cause) = instance.stop(&self.context).await {
                self.lock().instances.insert(at, instance);
                return Err(cause);
            }
        }
    }

    async fn wait_until_ready(&self, instance: &mut Instance) -> Result<(), String> {
        let spec = &instance.declared.spec;
        let (limit, path) = (spec.ready_max(), spec.ready_path.clone());
        let (server, until) = (instance.server(), Instant::now() + limit);
        let mut last = "nothing answered".to_owned();
        loop {
            if instance.has_ended() {
                return Err(instance.last_words().await);
            }
            let left = until.saturating_duration_since(Instant::now());
            let requests = &self.context.requests;
            match requests.send(&server, Message::get(&path), left).await {
                Answer::Answered { status, .. } if status.is_success() => return Ok(()),
                Answer::Answered { status, .. } => last = format!("it answers {status}"),
                Answer::Failed(cause) => last = cause,
                Answer::TimedOut => {}
            }
            let next = Instant::now() + instance::READY_LOOK;
            if next >= until {
                return Err(format!("{last}, for {} s", limit.as_secs()));
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Unloads all services.
    pub(crate) async fn stop_all(&self) {
        let instances = std::mem::take(&mut self.lock().instances);
        let mut stops = tokio::task::JoinSet::new();
        for mut instance in instances.into_values() {
            let context = self.context.clone();
            stops.spawn(async move {
                if let Err(error) = instance.stop(&context).await {
                    tracing::warn!(%error, "could not stop a service");
                }
            });
        }
        while stops.join_next().await.is_some() {}
    }
}
