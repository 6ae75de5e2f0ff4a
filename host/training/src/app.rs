//! What the handlers share, and what they all do.

use crate::breakers::Breakers;
use crate::refusal::{not_recorded, refused};
use crate::room::{LargeAnswers, Room};
use crate::waits::{Waiting, waits};
use axum::response::Response;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use treadle_auth::{Auth, Caller};
use treadle_core::programs;
use treadle_core::training::{Job, State, TrainingEvent};
use treadle_http::{OpenStreams, refuse};
use treadle_model::ClientName;
use treadle_model::tenant::split;
use treadle_scheduler::{DriverHandle, DriverStopped};
use treadle_store::{NoRoom, PayloadRoom, Store, StoreError};
use treadle_weight_store::Places;
use treadle_wire::ErrorCode;

/// Longest wait of a request.
const WAIT_S_MAX: u64 = 60;
/// Longest wait until what was read is on record.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(5);
/// Training jobs of all tenants.
const JOBS_MAX: u64 = 1_024;

/// What the handlers share.
#[derive(Clone)]
pub struct TrainingApp {
    /// The scheduler.
    pub driver: DriverHandle,
    /// Durable state.
    pub store: Arc<dyn Store>,
    /// Authentication, and the audit log.
    pub auth: Arc<Auth>,
    /// Whether this daemon runs actions, which compute rewards.
    pub runs_actions: bool,
    /// Whether actions run commands only in sandboxes.
    pub sandboxes_only: bool,
    /// Limit on stored payloads; each tenant has a share.
    pub room: Arc<PayloadRoom>,
    /// The store of weights, if there is one.
    pub weights: Option<Places>,
    /// Open event streams.
    pub streams: Arc<OpenStreams>,
    /// Memory of answers with the tokens of many members.
    pub large: Arc<LargeAnswers>,
    /// The last event that is on disk.
    pub committed: watch::Receiver<u64>,
    /// Held while a job is declared: what comes into being by its name must not replace settings
    /// that come at the same time.
    pub declaring: Arc<Mutex<()>>,
    /// Judges that failed lately.
    pub judges: Arc<Breakers>,
}

impl TrainingApp {
    /// Handles an event; it is on record when this completes.
    pub(crate) async fn train(&self, event: TrainingEvent) -> Result<(), Response> {
        let handled = self.driver.train(event).await.map_err(not_recorded)?;
        handled.map_err(|error| refused(&error))
    }

    /// Handles events in this order; all are on record when this completes.
    pub(crate) async fn train_all(&self, events: Vec<TrainingEvent>) -> Result<(), Response> {
        let events = events.into_iter().map(|event| self.driver.train(event));
        for handled in join_all(events).await {
            let handled = handled.map_err(not_recorded)?;
            handled.map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    /// Reads the state of training runs; what was read is on record.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Response> {
        on_record(self.driver.training(read)).await
    }

    /// Reads the states of training runs and of programs; what was read is on record.
    pub(crate) async fn read_both<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State, &programs::State) -> T + Send + 'static,
    ) -> Result<T, Response> {
        on_record(self.driver.training_and_programs(read)).await
    }

    /// Reads a job.
    pub(crate) async fn read_job<T: Send + 'static>(
        &self,
        job: &JobName,
        read: impl FnOnce(&Job) -> T + Send + 'static,
    ) -> Result<T, Response> {
        let inside = job.inside.clone();
        let found = self.read(move |state| state.jobs.get(&*inside).map(read));
        found.await?.ok_or_else(|| job.unknown())
    }

    /// Everything that waits in a job.
    pub(crate) async fn waits(&self, job: &JobName) -> Result<Vec<Waiting>, Response> {
        let mut found = self.read_job(job, waits).await?;
        found.extend(self.judges.waiting(&job.inside, Instant::now()));
        Ok(found)
    }

    /// The lineage that a trainer named, or the job's.
    pub(crate) async fn lineage(&self, job: &JobName, named: Option<u32>) -> Result<u32, Response> {
        match named {
            Some(lineage) => Ok(lineage),
            None => self.read_job(job, |job| job.lineage).await,
        }
    }

    /// Checks that a tenant may declare another job.
    pub(crate) async fn check_jobs(&self, caller: &Caller, job: &JobName) -> Result<(), Response> {
        let tenant = caller.principal.tenant.tenant.clone();
        let inside = job.inside.clone();
        let read = self.read(move |state| {
            let names = state.jobs.keys();
            let own = names.filter(|name| tenant.outside(name).is_some());
            (state.jobs.contains_key(&inside), own.count() as u64)
        });
        let (is_known, count) = read.await?;
        let share = caller.principal.share(None, JOBS_MAX);
        if is_known || count < share {
            return Ok(());
        }
        let message = format!("the tenant has {count} training jobs, its share; forget one");
        Err(refuse(ErrorCode::TrainingFull, message))
    }

    /// Room for an answer to a caller.
    pub(crate) fn room_for(&self, caller: &Caller) -> Room {
        let share = caller.principal.share(None, self.large.bytes_max());
        let tenant = caller.principal.tenant.tenant.name();
        self.large.room(tenant, share)
    }

    /// Forgets how many bytes a tenant stored: some were removed.
    pub(crate) fn removed(&self, caller: &Caller) {
        self.room.removed(&caller.principal.tenant.tenant);
    }

    /// Counts bytes that a tenant is about to store.
    ///
    /// # Errors
    /// Its share is used up.
    pub(crate) async fn reserve(&self, caller: &Caller, bytes: u64) -> Result<(), Response> {
        let principal = &caller.principal;
        let share = principal.share(None, self.room.bytes_max());
        let reserved = self
            .room
            .reserve(&principal.tenant.tenant, share, bytes)
            .await;
        reserved.map_err(|error| match error {
            NoRoom::Store(error) => store_failed(&error),
            NoRoom::Full { .. } => refuse(ErrorCode::TenantBusy, error.to_string()),
        })
    }
}

/// A job's name as its client and as the core know it.
#[derive(Clone, Debug)]
pub(crate) struct JobName {
    /// The client's.
    pub own: ClientName,
    /// The core's.
    pub inside: Box<str>,
}

impl JobName {
    pub(crate) fn of(caller: &Caller, own: ClientName) -> Self {
        let inside = caller.principal.inside(&own).into();
        Self { own, inside }
    }

    /// A job by the name that the core knows.
    pub(crate) fn inside(name: &str) -> Option<Self> {
        let own = ClientName::parse("job", split(name).1.to_owned()).ok()?;
        Some(Self {
            own,
            inside: name.into(),
        })
    }

    pub(crate) fn unknown(&self) -> Response {
        let message = format!(
            "no job `{}` is declared; declare it with PUT /api/v1/jobs/{}",
            self.own, self.own
        );
        refuse(ErrorCode::JobUnknown, message)
    }
}

/// How long a request may wait.
pub(crate) fn wait_of(wait_s: Option<u64>) -> Duration {
    Duration::from_secs(wait_s.unwrap_or(0).min(WAIT_S_MAX))
}

/// What was read, once it is on record. While the store takes no writes it can't be shown: it may
/// never have happened.
pub(crate) async fn on_record<T>(
    read: impl Future<Output = Result<T, DriverStopped>>,
) -> Result<T, Response> {
    let read = tokio::time::timeout(RECORD_WAIT_MAX, read).await;
    let read = read.map_err(|_| {
        let message = format!(
            "the journal could not be written for {} s, and this shows only what is on record; try \
             again once the store takes writes (`treadle status` has its error)",
            RECORD_WAIT_MAX.as_secs()
        );
        refuse(ErrorCode::Overloaded, message)
    })?;
    read.map_err(|_| stopped())
}

/// The refusal while treadle shuts down.
pub(crate) fn stopped() -> Response {
    refuse(ErrorCode::Overloaded, "treadle is shutting down")
}

pub(crate) fn store_failed(error: &StoreError) -> Response {
    tracing::error!(%error, "the store failed");
    refuse(ErrorCode::Internal, "the store failed; see the log")
}
