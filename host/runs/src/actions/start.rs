//! Starting to run actions: resources, recovery of what the last daemon left, and the executor.

use super::blobs::Blobs;
use super::counts::Times;
use super::shares::ShareSender;
use super::waiters::Waiters;
use super::{Actions, Running};
use crate::machine;
use crate::nodes::{Nodes, node_of};
use crate::proxy::{Proxy, connector};
use crate::start_error::StartError;
use crate::storage_quotas::StorageQuotas;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, channel};
use treadle_actions::{
    Executor, ExecutorConfig, Gpus, Recovery, ServiceSpec, SupervisorCommand, recover,
};
use treadle_auth::{Auth, Scope};
use treadle_config::{Config, Role};
use treadle_core::actions::{ActionEvent, Load, Resource};
use treadle_model::{ActionId, Span, Tenant};
use treadle_sandbox::Sandboxes;
use treadle_scheduler::{ActionInstruction, ActionStart, DriverHandle};
use treadle_store::{Location, ServiceRow, Store};

/// The subcommand that makes the daemon's binary a supervisor of actions.
pub const SUPERVISE_SUBCOMMAND: &str = "supervise-actions";
/// Most reports that wait for the driver.
const REPORTS_MAX: usize = 1_024;
/// Most attempts that run or whose ends are not recorded, for each that the core starts.
const ATTEMPTS_FACTOR: u64 = 2;

/// What running actions get from the rest of a daemon.
pub struct RunningInputs {
    /// The scheduler's instructions.
    pub instructions: UnboundedReceiver<ActionInstruction>,
    /// Sandboxes of this machine, if they are enabled.
    pub sandboxes: Option<Sandboxes>,
    /// The tenants and their shares.
    pub auth: Arc<Auth>,
    /// Counts stored payloads.
    pub quotas: Arc<StorageQuotas>,
}

impl Running {
    /// Continues from what is on record; `None` if actions are disabled. `epoch` is this daemon's
    /// term as leader of its store: attempts of other terms have an unknown outcome.
    pub async fn start(
        config: &Config,
        driver: &DriverHandle,
        store: &Arc<dyn Store>,
        epoch: u64,
        inputs: RunningInputs,
    ) -> Result<Option<Self>, StartError> {
        let RunningInputs {
            instructions,
            sandboxes,
            auth,
            quotas,
        } = inputs;
        if !config.actions.enabled {
            give_up(driver).await;
            return Ok(None);
        }
        if !config.sandboxes.required && auth.directory().anonymous().scope >= Some(Scope::Job) {
            tracing::warn!(
                "callers without a token may run commands as this daemon's user (actions.enabled); \
                 set auth.anonymous_scope to viewer or none, or sandboxes.required"
            );
        }
        let gpus = Gpus::find(&config.actions.gpus)?;
        let gpu_count = gpus.names().len();
        let own = config.actions.resources(machine::measure(), gpu_count)?;
        let settings = ExecutorConfig {
            sandboxes,
            gpus,
            ..settings(config, epoch)
        };
        let recovery = recover(&settings).await?;
        let services = declared(store.services().await?, config.sandboxes.required);
        let nodes = nodes(config, driver, own.clone()).await;
        let again = restore(driver, nodes.as_deref(), own, &recovery, &services).await;
        let stale = stale(driver, &recovery).await;
        let blobs = Blobs::new(store.clone(), quotas.clone());
        let (reporter, reports) = channel(REPORTS_MAX);
        let outputs = Arc::new(blobs.clone());
        let executor = Executor::start(settings, recovery, outputs, reporter).await?;
        for (row, spec) in services {
            if !executor.declare(&row.tenant, spec, 1) {
                tracing::warn!(
                    service = row.service,
                    "service limit reached; a stored service was not declared"
                );
            }
        }
        for (action, attempt) in stale {
            executor.acknowledge(action, attempt);
        }
        let actions = Arc::new(Actions {
            driver: driver.clone(),
            store: store.clone(),
            blobs,
            quotas,
            shares: ShareSender::new(auth),
            times: Times::default(),
            waiters: Waiters::new(config.actions.waiters_max),
            executor,
            declaring: tokio::sync::Mutex::default(),
            nodes: nodes.clone(),
            sandboxes_only: config.sandboxes.required,
        });
        actions.shares.tell(driver);
        for start in again {
            actions.execute(start).await;
        }
        if let Some(nodes) = nodes {
            nodes.expect_known();
        }
        Ok(Some(Self::new(actions, instructions, reports)))
    }
}

/// Stored services. If commands of jobs may only run in sandboxes, services with commands that no
/// operator declared are left out: they may be older than that setting.
fn declared(mut rows: Vec<ServiceRow>, sandboxes_only: bool) -> Vec<(ServiceRow, ServiceSpec)> {
    // Rows of earlier versions have names without their tenants; the latest one of a service wins.
    rows.sort_by_key(|row| row.declared_at_us);
    let specs = rows.into_iter().filter_map(|row| {
        let spec = ServiceSpec::parse(row.spec.as_bytes()).ok()?;
        if sandboxes_only && spec.has_commands() && !spec.by_operator {
            tracing::warn!(
                service = row.service,
                tenant = row.tenant,
                "a service with commands is not available: commands run only in sandboxes \
                 (sandboxes.required), and no operator declared it; have an operator declare it"
            );
            return None;
        }
        Some((row, spec))
    });
    specs.collect()
}

/// The nodes, if the daemon accepts any; those known before a restart are expected to reconnect.
async fn nodes(config: &Config, driver: &DriverHandle, own: Vec<Resource>) -> Option<Arc<Nodes>> {
    if !config.takes_nodes() {
        return None;
    }
    let overview = driver.actions_overview().await;
    let pools = overview.map_or_else(|_| Vec::new(), |overview| overview.pools);
    let known = pools.into_iter().map(|pool| pool.resource).collect();
    Some(Nodes::new(
        driver.clone(),
        Proxy::new(connector(config)),
        config.cluster.secret.clone(),
        Duration::from_secs(config.nodes.away_s_max),
        own,
        known,
    ))
}

/// Ends the actions of an earlier configuration.
async fn give_up(driver: &DriverHandle) {
    let Ok(overview) = driver.actions_overview().await else {
        return;
    };
    if overview.pools.is_empty() && overview.waiting + overview.started == 0 {
        return;
    }
    let resources = Vec::new();
    driver.event(ActionEvent::ResourcesSet { resources }.into());
    driver.event(ActionEvent::ActionsRecovered.into());
}

/// The settings of an executor of actions, as the configuration has them.
pub fn settings(config: &Config, epoch: u64) -> ExecutorConfig {
    let actions = &config.actions;
    let own = || std::env::current_exe().unwrap_or_else(|_| "treadle".into());
    let supervisor = SupervisorCommand {
        program: machine::path(&actions.supervisor).unwrap_or_else(own),
        args: vec![SUPERVISE_SUBCOMMAND.into()],
    };
    let markers = actions_folder(config);
    let started_max = config.core().actions.started_max;
    let attempts_max = started_max.saturating_mul(ATTEMPTS_FACTOR);
    let defaults = ExecutorConfig::new(supervisor, markers, config.server.listen);
    ExecutorConfig {
        epoch,
        workdir: machine::folder(&actions.workdir).unwrap_or_else(|| defaults.workdir.clone()),
        attempts_max: usize::try_from(attempts_max).unwrap_or(usize::MAX),
        output_bytes_max: actions.output_bytes_max,
        cgroup: machine::folder(&actions.cgroup),
        egress: actions.egress(),
        trust: config.tls.trust(),
        ..defaults
    }
}

/// The folder in which a daemon notes which actions started.
pub fn actions_folder(config: &Config) -> PathBuf {
    if !config.actions.folder.is_empty() {
        return PathBuf::from(&config.actions.folder);
    }
    let port = config.server.listen.port();
    let is_alone = config.cluster.role == Role::Single;
    match config.store.location() {
        Location::File(path) if is_alone => {
            let mut name = path.into_os_string();
            name.push(".actions");
            name.into()
        }
        Location::File(_) | Location::Memory | Location::Postgres(_) => {
            std::env::temp_dir().join(format!("treadle-actions-{port}"))
        }
    }
}

/// Reports resources and the outcomes of started attempts to the core; returns the attempts that
/// never started, to be run now. All of it is on record when this completes.
async fn restore(
    driver: &DriverHandle,
    nodes: Option<&Nodes>,
    own: Vec<Resource>,
    recovery: &Recovery,
    services: &[(ServiceRow, ServiceSpec)],
) -> Vec<ActionStart> {
    let resources = match nodes {
        Some(nodes) => nodes.resources(),
        None => own,
    };
    let left = driver.actions_left().await.unwrap_or_default();
    driver.event(ActionEvent::ResourcesSet { resources }.into());
    for (row, spec) in services {
        let (tenant, load) = (Tenant::new(&row.tenant), Span(row.load_us));
        let service = format!("{}{}", tenant.prefix(), spec.name).into();
        driver.event(ActionEvent::ServiceDeclared { service, load }.into());
    }
    let mut never_began = Vec::new();
    for (action, known) in left {
        let attempt = known.attempt;
        let grants = known.started().map(|started| &started.grants);
        if nodes.is_some() && grants.is_some_and(|grants| node_of(grants).is_some()) {
            // Its node knows its state, and reports it when it reconnects.
            driver.event(ActionEvent::ActionBegan { action, attempt }.into());
            continue;
        }
        let event = recovery.end(action, attempt).unwrap_or_else(|| {
            never_began.push((action, attempt));
            // From now on the core considers it alive.
            ActionEvent::ActionBegan { action, attempt }
        });
        driver.event(event.into());
    }
    driver.event(ActionEvent::ActionsRecovered.into());
    let _ = driver.recorded().await;
    let mut again = Vec::new();
    for (action, attempt) in never_began {
        again.extend(start_of(driver, action, attempt).await);
    }
    again
}

/// An attempt that was started and must still be run.
pub(super) async fn start_of(
    driver: &DriverHandle,
    action: ActionId,
    attempt: u32,
) -> Option<ActionStart> {
    let known = driver.action(action).await.ok().flatten()?;
    let started = known.started()?;
    if known.attempt != attempt || started.stopping.is_some() {
        return None;
    }
    let load = started.loads.clone().map(|instance| Load {
        service: Some(instance.service),
        evicted: Vec::new(),
    });
    Some(ActionStart {
        action,
        attempt,
        grants: started.grants.clone(),
        load,
        spec: known.spec.clone(),
    })
}

/// Attempts whose ends are on record, though the executor does not know it.
async fn stale(driver: &DriverHandle, recovery: &Recovery) -> Vec<(ActionId, u32)> {
    let mut stale = Vec::new();
    for (action, attempt) in recovery.attempts() {
        let known = driver.action(action).await.ok().flatten();
        let runs = known.is_some_and(|known| known.attempt == attempt && known.started().is_some());
        if !runs {
            stale.push((action, attempt));
        }
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_no_operator_declared_are_gone_once_sandboxes_are_required() {
        let row = |name: &str, lifecycle: &str, by_operator: bool| ServiceRow {
            service: name.to_owned(),
            tenant: "default".to_owned(),
            spec: format!(
                r#"{{"name":"{name}","lifecycle":{lifecycle},"ready_path":"/","ready_s_max":1,"by_operator":{by_operator}}}"#
            ),
            load_us: 0,
            declared_at_us: 0,
        };
        let process = r#"{"process":{"command":["serve"]}}"#;
        let commands = r#"{"commands":{"start":["a"],"stop":["b"]}}"#;
        let control = r#"{"control":{"url":"http://h"}}"#;
        let rows = || {
            vec![
                row("process", process, false),
                row("commands", commands, false),
                row("trusted", process, true),
                row("control", control, false),
            ]
        };
        let names = |sandboxes_only| {
            let declared = declared(rows(), sandboxes_only).into_iter();
            declared.map(|(row, _)| row.service).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["process", "commands", "trusted", "control"]);
        assert_eq!(names(true), ["trusted", "control"]);
    }
}
