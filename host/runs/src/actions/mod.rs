//! Actions that treadle runs: submitted over REST or the broker, scheduled by the core, and run by
//! this machine's executor once their start is on record.

mod at_nodes;
mod blobs;
mod counts;
mod devices;
mod handler;
mod refusal;
mod running;
mod shares;
mod start;
mod submission;
mod view;
mod waiters;

pub use running::Running;
pub use start::{RunningInputs, SUPERVISE_SUBCOMMAND, actions_folder, settings};
pub use submission::Submission;
pub use view::{ActionView, OutputView};

use crate::nodes::{Nodes, draw_from, mark_of_sandbox};
use crate::storage_quotas::StorageQuotas;
use blobs::Blobs;
use counts::Times;
use shares::ShareSender;
use std::sync::Arc;
use std::time::Duration;
use submission::Submitted;
use treadle_core::actions::{ActionEvent, ActionSpec, Admission};
use treadle_model::{ActionId, ClientName, Tenant};
use treadle_scheduler::{DriverHandle, NotRecorded};
use treadle_store::{ActionRow, ServiceRow, Store, StoreError};
use treadle_wire::{ErrorBody, ErrorCode};
use waiters::Waiters;

/// Actions, for REST handlers and the broker's consumers.
pub struct Actions {
    driver: DriverHandle,
    store: Arc<dyn Store>,
    blobs: Blobs,
    quotas: Arc<StorageQuotas>,
    shares: ShareSender,
    waiters: Waiters,
    times: Times,
    executor: treadle_actions::Executor,
    /// Held while a service is declared.
    declaring: tokio::sync::Mutex<()>,
    /// The nodes, if the daemon accepts any.
    nodes: Option<Arc<Nodes>>,
    /// Whether processes may only run in sandboxes.
    sandboxes_only: bool,
}

/// An action that is on record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admitted {
    /// Its number.
    pub action: ActionId,
    /// Whether it was already on record.
    pub repeated: bool,
}

/// Why an operation failed.
#[derive(Debug)]
pub enum Failure {
    /// The request is refused.
    Refused(ErrorBody),
    /// The scheduler has stopped.
    Stopped,
    /// The store failed.
    Store(StoreError),
}

impl Failure {
    /// The refusal for the client.
    pub fn into_refusal(self) -> ErrorBody {
        match self {
            Self::Refused(error) => error,
            Self::Stopped => ErrorBody::new(ErrorCode::Overloaded, "treadle is shutting down"),
            Self::Store(error) => {
                tracing::error!(%error, "the store failed");
                ErrorBody::new(ErrorCode::Internal, "the store failed; see the log")
            }
        }
    }
}

impl From<ErrorBody> for Failure {
    fn from(error: ErrorBody) -> Self {
        Self::Refused(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<NotRecorded> for Failure {
    fn from(error: NotRecorded) -> Self {
        match error {
            NotRecorded::Stopped => Self::Stopped,
            NotRecorded::Refused => {
                ErrorBody::new(ErrorCode::InvalidField, error.to_string()).into()
            }
        }
    }
}

impl From<treadle_scheduler::DriverStopped> for Failure {
    fn from(_: treadle_scheduler::DriverStopped) -> Self {
        Self::Stopped
    }
}

impl Actions {
    /// Records a tenant's action.
    pub async fn submit(
        &self,
        tenant: &Tenant,
        submission: Submission,
        written: &serde_json::Value,
    ) -> Result<Admitted, Failure> {
        submission.check_client(self.sandboxes_only)?;
        self.put(tenant, submission, written).await
    }

    /// After how long the server of an action that ended lately wants to be asked again, if it said
    /// so.
    pub fn retry_after(&self, action: ActionId) -> Option<Duration> {
        let told = self.executor.retry_after(action)?;
        Some(Duration::from_micros(told.micros()))
    }

    /// The nodes, if the daemon accepts any.
    pub fn nodes(&self) -> Option<&Arc<Nodes>> {
        self.nodes.as_ref()
    }

    /// Whether processes may only run in sandboxes.
    pub fn runs_sandboxes_only(&self) -> bool {
        self.sandboxes_only
    }

    /// Whether a tenant's program is live.
    async fn is_live(&self, tenant: &Tenant, program: &str) -> Result<bool, Failure> {
        let Ok(name) = ClientName::parse("program_id", program) else {
            return Ok(false);
        };
        Ok(self.driver.program(&tenant.inside(&name)).await?.is_some())
    }

    /// Whether each program, by tenant and name, is live.
    pub(crate) async fn live_of(
        &self,
        programs: &[(String, String)],
    ) -> Result<Vec<bool>, Failure> {
        let mut live = Vec::with_capacity(programs.len());
        for (tenant, program) in programs {
            live.push(self.is_live(&Tenant::new(tenant), program).await?);
        }
        Ok(live)
    }

    async fn put(
        &self,
        tenant: &Tenant,
        submission: Submission,
        written: &serde_json::Value,
    ) -> Result<Admitted, Failure> {
        let Submitted {
            mut spec,
            job_named,
            start_max,
            body,
            devices,
        } = submission.read(tenant)?;
        let service = body
            .service()
            .and_then(|name| self.executor.declared(tenant.name(), name));
        let smallest = self.executor.gpu_memory_bytes();
        devices::fit(&mut spec, devices, service.as_ref(), smallest)?;
        if let Some(program) = spec.program.clone() {
            let live = self.driver.program(&program).await?;
            let live = live.ok_or_else(|| refusal::program_unknown(tenant, &program))?;
            if job_named && live.job != spec.job {
                return Err(refusal::of_another_job(tenant, &program, &live.job).into());
            }
            spec.job = live.job;
        }
        if let Some(sandbox) = body.sandbox() {
            self.place(&mut spec, sandbox);
        }
        let written = blobs::canonical(written);
        spec.body = blobs::digest(&written);
        self.shares.tell(&self.driver);
        // Checked first, so that a refused action leaves nothing behind.
        let checked = self.driver.check_action(spec.clone()).await?;
        if let Admission::New(_) = checked.map_err(|error| refusal::of(tenant, error))? {
            self.quotas
                .check(tenant.name(), written.len() as u64)
                .await?;
            self.blobs
                .keep(tenant, &spec.body, written, Some(body))
                .await?;
        }
        let admitted = self.driver.submit_action(spec, start_max).await?;
        Ok(
            match admitted.map_err(|error| refusal::of(tenant, error))? {
                Admission::New(action) => Admitted {
                    action,
                    repeated: false,
                },
                Admission::Known(action) => Admitted {
                    action,
                    repeated: true,
                },
            },
        )
    }

    /// Makes a command in a node's sandbox use the node's resources.
    fn place(&self, spec: &mut ActionSpec, sandbox: &str) {
        if let Some(nodes) = &self.nodes
            && let Some(mark) = mark_of_sandbox(sandbox)
            && nodes.has(mark)
        {
            draw_from(&mut spec.demands, mark);
        }
    }

    /// A tenant's action, once it has ended or the wait has timed out.
    pub async fn ended(
        &self,
        tenant: &Tenant,
        action: ActionId,
        wait: Duration,
    ) -> Result<ActionRow, Failure> {
        let waiting = if wait.is_zero() {
            None
        } else {
            let most = self.shares.waiters(tenant, self.waiters.most());
            Some(self.waiters.enter(tenant.name(), action, most)?)
        };
        let row = self.row(tenant, action).await?;
        match waiting {
            Some(waiting) if row.ended_at_us.is_none() => {
                waiting.told(wait).await;
                self.row(tenant, action).await
            }
            _ => Ok(row),
        }
    }

    async fn row(&self, tenant: &Tenant, action: ActionId) -> Result<ActionRow, Failure> {
        let row = self.store.action(action.0).await?;
        let own = row.filter(|row| tenant.outside(&row.job).is_some());
        own.ok_or_else(|| refusal::unknown(action).into())
    }

    /// Cancels a tenant's action; returns its new state.
    pub async fn cancel(&self, tenant: &Tenant, action: ActionId) -> Result<ActionRow, Failure> {
        let row = self.row(tenant, action).await?;
        if row.ended_at_us.is_some() {
            return Ok(row);
        }
        let event = ActionEvent::ActionCancelled { action };
        self.driver.event_committed(event.into()).await?;
        self.row(tenant, action).await
    }

    /// The output of a tenant's action, if it is still stored.
    pub async fn output(
        &self,
        tenant: &Tenant,
        digest: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.blobs.read(tenant, digest).await
    }

    /// The metrics in Prometheus' text format.
    pub async fn render(&self) -> Result<String, Failure> {
        let overview = self.driver.actions_overview().await?;
        Ok(counts::render(&overview, &self.times))
    }

    /// Whether a tenant's service runs commands on this machine.
    pub fn has_commands(&self, tenant: &Tenant, service: &str) -> bool {
        let declared = self.executor.declared(tenant.name(), service);
        declared.is_some_and(|service| service.has_commands())
    }

    /// Declares a service that can be loaded onto devices.
    pub async fn declare(
        &self,
        tenant: &Tenant,
        service: treadle_actions::ServiceSpec,
        load: treadle_model::Span,
    ) -> Result<(), Failure> {
        let inside = format!("{}{}", tenant.prefix(), service.name);
        let row = ServiceRow {
            service: inside.clone(),
            tenant: tenant.name().to_owned(),
            spec: serde_json::to_string(&service).unwrap_or_default(),
            load_us: load.micros(),
            declared_at_us: treadle_auth::now_us(),
        };
        let tenants = self.shares.tenants();
        // What is checked, recorded and used belongs together.
        let _declaring = self.declaring.lock().await;
        if !self.executor.has_room_for(tenant, &service.name, tenants) {
            return Err(refusal::services_full().into());
        }
        self.store.put_service(&row).await?;
        let event = ActionEvent::ServiceDeclared {
            service: inside.into(),
            load,
        };
        self.driver.event_committed(event.into()).await?;
        if !self.executor.declare(tenant.name(), service, tenants) {
            return Err(refusal::services_full().into());
        }
        Ok(())
    }
}
