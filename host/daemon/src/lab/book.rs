//! The lab runs of a daemon: one at work, few that wait, the latest kept.

use super::execute::{Control, Findings, Plan};
use super::request::LabRequest;
use super::sets::{PolicyBytes, ReadySet};
use super::{LabFailure, profile, window};
use crate::auth::Tenant;
use crate::gateway::Upstream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use treadle_core::CoreConfig;
use treadle_policy_runtime::PolicyEngine;
use treadle_simulator::lab::RecorderOptions;
use treadle_store::Store;
use treadle_wire::{ErrorBody, ErrorCode};

/// Runs that wait or are at work, all tenants together.
const OPEN_MAX: usize = 5;
/// The same of one tenant.
const OPEN_OF_TENANT_MAX: usize = 3;
/// Runs kept, open ones included; the oldest that has ended goes first.
const KEPT_MAX: usize = 32;

/// How a run stands.
#[derive(Clone, Debug)]
enum Standing {
    Queued,
    Running,
    Done(Box<Findings>),
    Failed(Box<ErrorBody>),
    Cancelled,
}

impl Standing {
    fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done(_) => "done",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

struct Run {
    id: String,
    tenant: Tenant,
    sets: Vec<String>,
    window: Value,
    created_at_us: u64,
    ended_at_us: Option<u64>,
    standing: Standing,
    control: Arc<Control>,
}

impl Run {
    /// What clients see; the findings only where one run is asked for.
    fn to_json(&self, whole: bool) -> Value {
        let (done, steps) = self.control.progress();
        let share = match self.standing {
            Standing::Done(_) => 1.0,
            _ => done as f64 / steps.max(1) as f64,
        };
        let mut json = json!({
            "run": self.id, "status": self.standing.name(), "sets": self.sets,
            "window": self.window, "created_at_us": self.created_at_us,
            "ended_at_us": self.ended_at_us,
            "progress": {"share": share, "steps_done": done, "steps": steps},
        });
        match &self.standing {
            Standing::Done(findings) if whole => {
                let report = serde_json::to_value(findings).unwrap_or(Value::Null);
                json["report"] = self.tenant.cleaned(report);
            }
            Standing::Failed(error) => {
                json["error"] = json!({
                    "code": error.code.as_str(), "message": error.message, "param": error.param,
                });
            }
            _ => {}
        }
        json
    }
}

#[derive(Default)]
struct Runs {
    kept: VecDeque<Run>,
    last_id: u64,
}

/// What runs need.
struct Bench {
    store: Arc<dyn Store>,
    upstream: Upstream,
    engine: PolicyEngine,
    /// Settings of the core, where the window says none.
    config: CoreConfig,
    /// Who may be at work.
    turn: Semaphore,
    runs: Mutex<Runs>,
}

/// The lab runs of a daemon.
#[derive(Clone)]
pub struct LabBook {
    bench: Arc<Bench>,
}

impl LabBook {
    /// A book without runs. The engine must be one that can be repeated.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        upstream: Upstream,
        engine: PolicyEngine,
        config: CoreConfig,
    ) -> Self {
        Self {
            bench: Arc::new(Bench {
                store,
                upstream,
                engine,
                config,
                turn: Semaphore::new(1),
                runs: Mutex::default(),
            }),
        }
    }

    /// Takes a run in; `policies` are those of its sets. It is at work when its turn comes.
    ///
    /// # Errors
    /// [`LabFailure::Full`] when as many wait as may.
    pub(crate) fn start(
        &self,
        tenant: &Tenant,
        request: LabRequest,
        policies: Vec<Vec<PolicyBytes>>,
    ) -> Result<Value, LabFailure> {
        let control = Arc::new(Control::default());
        let (id, shown) = {
            let mut runs = self.bench.lock();
            runs.check_room(tenant)?;
            let id = runs.next_id();
            let run = Run {
                id: id.clone(),
                tenant: tenant.clone(),
                sets: request.sets.iter().map(|set| set.name.clone()).collect(),
                window: serde_json::to_value(&request.window).unwrap_or(Value::Null),
                created_at_us: unix_us(),
                ended_at_us: None,
                standing: Standing::Queued,
                control: control.clone(),
            };
            let shown = run.to_json(false);
            runs.keep(run);
            (id, shown)
        };
        let (bench, tenant) = (self.bench.clone(), tenant.clone());
        tokio::spawn(async move {
            let turn = bench.turn.acquire().await;
            if control.is_cancelled() {
                return;
            }
            bench.stand(&id, Standing::Running);
            let ended = bench.work(&tenant, request, policies, control).await;
            drop(turn);
            bench.stand(
                &id,
                match ended {
                    Ok(findings) => Standing::Done(Box::new(findings)),
                    Err(LabFailure::Cancelled) => Standing::Cancelled,
                    Err(failure) => {
                        tracing::info!(run = id, %failure, "a lab run came to nothing");
                        Standing::Failed(Box::new(failure.body()))
                    }
                },
            );
        });
        Ok(shown)
    }

    /// The runs of a tenant, newest first, without what they found.
    pub(crate) fn list(&self, tenant: &Tenant) -> Vec<Value> {
        let runs = self.bench.lock();
        let own = runs.kept.iter().rev().filter(|run| run.tenant == *tenant);
        own.map(|run| run.to_json(false)).collect()
    }

    /// One run of a tenant with what it found.
    pub(crate) fn show(&self, tenant: &Tenant, id: &str) -> Option<Value> {
        let runs = self.bench.lock();
        let run = runs.find(tenant, id)?;
        Some(run.to_json(true))
    }

    /// Cancels a run of a tenant, or leaves it as it has ended.
    pub(crate) fn cancel(&self, tenant: &Tenant, id: &str) -> Option<Value> {
        let mut runs = self.bench.lock();
        let found = |run: &&mut Run| run.tenant == *tenant && run.id == id;
        let run = runs.kept.iter_mut().find(found)?;
        if run.standing.is_open() {
            run.control.cancel();
            run.standing = Standing::Cancelled;
            run.ended_at_us = Some(unix_us());
        }
        Some(run.to_json(false))
    }

    /// Cancels all runs.
    pub(crate) fn stop(&self) {
        for run in &self.bench.lock().kept {
            run.control.cancel();
        }
    }
}

impl Bench {
    async fn work(
        self: &Arc<Self>,
        tenant: &Tenant,
        request: LabRequest,
        policies: Vec<Vec<PolicyBytes>>,
        control: Arc<Control>,
    ) -> Result<Findings, LabFailure> {
        let mut window = request.window.clone();
        window.job = window.job.map(|job| tenant.inside(&job).into_owned());
        let options = RecorderOptions {
            seat_lag_us: request.settings.seat_lag_us,
            ..RecorderOptions::default()
        };
        let goes_on = || !control.is_cancelled();
        let names = tenant.names();
        let workload = window::load(&*self.store, &window, &names, options, &goes_on).await?;
        let profile = match &request.profile {
            Some(value) => profile::of_value(value)?,
            None => profile::ask(&self.upstream, &workload.workers).await?,
        };
        let kv_tokens = Plan::kv_tokens_of(&workload, &profile, &request.settings)?;
        let bench = self.clone();
        let run = tokio::task::spawn_blocking(move || {
            let recorded = workload.config.clone().unwrap_or(bench.config.clone());
            let sets = request.sets.iter().zip(&policies);
            let sets: Result<Vec<ReadySet>, LabFailure> = sets
                .map(|(set, policies)| ReadySet::new(set, &recorded, policies, &bench.engine))
                .collect();
            let plan = Plan {
                workload,
                sets: sets?,
                profile,
                kv_tokens,
                settings: request.settings,
            };
            plan.run(&control)
        });
        run.await
            .map_err(|error| LabFailure::Ended(error.to_string()))?
    }

    /// Notes how a run stands, unless it was cancelled.
    fn stand(&self, id: &str, standing: Standing) {
        let mut runs = self.lock();
        let Some(run) = runs.kept.iter_mut().find(|run| run.id == id) else {
            return;
        };
        if run.standing.is_open() {
            run.ended_at_us = (!standing.is_open()).then(unix_us);
            run.standing = standing;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    fn check_room(&self, tenant: &Tenant) -> Result<(), LabFailure> {
        let open = || self.kept.iter().filter(|run| run.standing.is_open());
        let of_tenant = open().filter(|run| run.tenant == *tenant).count();
        let (count, max, whose) = if of_tenant >= OPEN_OF_TENANT_MAX {
            (of_tenant, OPEN_OF_TENANT_MAX, "the tenant has")
        } else {
            (open().count(), OPEN_MAX, "there are")
        };
        if count < max {
            return Ok(());
        }
        Err(LabFailure::Full(format!(
            "{whose} {count} lab runs waiting or at work, which is the most; wait for one, or cancel one with DELETE /v1/lab/runs/RUN"
        )))
    }

    /// Names of runs tell them apart across restarts too.
    fn next_id(&mut self) -> String {
        self.last_id = unix_us().max(self.last_id + 1);
        format!("lab-{:x}", self.last_id)
    }

    fn keep(&mut self, run: Run) {
        if self.kept.len() >= KEPT_MAX
            && let Some(oldest) = self.kept.iter().position(|run| !run.standing.is_open())
        {
            self.kept.remove(oldest);
        }
        self.kept.push_back(run);
    }

    fn find(&self, tenant: &Tenant, id: &str) -> Option<&Run> {
        let found = |run: &&Run| run.tenant == *tenant && run.id == id;
        self.kept.iter().find(found)
    }
}

/// What a client is told of a run that is not there.
pub(crate) fn unknown(id: &str) -> ErrorBody {
    let message = format!("there is no lab run `{id}`; GET /v1/lab/runs lists those that are kept");
    ErrorBody::new(ErrorCode::LabRunUnknown, message)
}

fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::sets::deterministic;
    use serde_json::Map;
    use std::time::Duration;
    use treadle_policy_runtime::Limits;
    use treadle_store::{Location, open};

    async fn book() -> LabBook {
        let store = open(&Location::Memory).await.expect("it opens");
        let upstream = Upstream::new(Duration::from_secs(1));
        let engine = deterministic(Limits::default()).expect("it starts");
        LabBook::new(store, upstream, engine, CoreConfig::default())
    }

    fn start(book: &LabBook, tenant: &Tenant) -> Result<String, String> {
        let body = json!({"sets": ["sticky"]});
        let body: Map<String, Value> = body.as_object().cloned().unwrap_or_default();
        let request = LabRequest::of(body).expect("a request");
        let run = book.start(tenant, request, vec![Vec::new()]);
        run.map(|run| run["run"].as_str().unwrap_or_default().to_owned())
            .map_err(|failure| failure.to_string())
    }

    async fn until_ended(book: &LabBook, tenant: &Tenant, run: &str) -> Value {
        loop {
            let shown = book.show(tenant, run).expect("it is kept");
            if !matches!(shown["status"].as_str(), Some("queued" | "running")) {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn runs_wait_within_bounds_can_be_cancelled_and_are_their_tenants() {
        let book = book().await;
        let [acme, beta] = ["acme", "beta"].map(Tenant::new);
        // Somebody is at work.
        let turn = book.bench.turn.acquire().await.expect("a turn");
        let mut runs = Vec::new();
        for _ in 0..OPEN_OF_TENANT_MAX {
            runs.push(start(&book, &acme).expect("there is room"));
        }
        let full = start(&book, &acme).unwrap_err();
        assert!(full.contains("the tenant has 3 lab runs"), "{full}");
        let others: Vec<String> = (0..2).filter_map(|_| start(&book, &beta).ok()).collect();
        assert_eq!(others.len(), 2);
        let full = start(&book, &beta).unwrap_err();
        assert!(full.contains("there are 5 lab runs"), "{full}");

        assert!(book.show(&beta, &runs[0]).is_none());
        assert!(book.cancel(&beta, &runs[0]).is_none());
        let cancelled = book.cancel(&acme, &runs[0]).expect("it is his");
        assert_eq!(cancelled["status"], "cancelled");
        assert_eq!(book.list(&acme).len(), 3);
        drop(turn);
        for run in &runs[1..] {
            let ended = until_ended(&book, &acme, run).await;
            assert_eq!(ended["status"], "failed");
            assert_eq!(ended["error"]["code"], "lab_window");
        }
        let cancelled = book.show(&acme, &runs[0]).expect("it is kept");
        assert_eq!(cancelled["status"], "cancelled");
        assert!(start(&book, &acme).is_ok());
    }

    #[tokio::test]
    async fn the_oldest_that_has_ended_goes_first() {
        let book = book().await;
        let acme = Tenant::new("acme");
        let first = start(&book, &acme).expect("there is room");
        until_ended(&book, &acme, &first).await;
        for _ in 0..KEPT_MAX {
            let run = start(&book, &acme).expect("there is room");
            until_ended(&book, &acme, &run).await;
        }
        assert!(book.show(&acme, &first).is_none());
        assert_eq!(book.list(&acme).len(), KEPT_MAX);
    }
}
