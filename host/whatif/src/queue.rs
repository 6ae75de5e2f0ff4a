//! The what-if runs of a daemon: one runs at a time, few are queued, the latest are stored.

use super::execute::{Control, Findings, Plan};
use super::fair_queue::Turns;
use super::policies::{self, PolicyBytes, PolicyFound};
use super::request::WhatIfRequest;
use super::runs::{Run, RunStatus, RunView, Runs, unix_us};
use super::sets::ReadySet;
use super::{WhatIfError, profile, window};
use crate::recorded::{RecorderOptions, Workload};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use treadle_core::CoreConfig;
use treadle_engine_model::engine::EngineProfile;
use treadle_http::Upstream;
use treadle_model::Tenant;
use treadle_policy_runtime::PolicyEngine;
use treadle_store::Store;
use treadle_wire::{ErrorBody, ErrorCode, without_tenant};

/// The niceness of replays relative to the daemon's own threads.
const NICENESS: i32 = 10;

/// Shared state of the queue, and what runs need.
struct QueueState {
    store: Arc<dyn Store>,
    upstream: Upstream,
    engine: PolicyEngine,
    /// Settings of the core for windows that have none.
    config: CoreConfig,
    turns: Turns,
    runs: Mutex<Runs>,
}

/// The what-if runs of a daemon.
#[derive(Clone)]
pub struct WhatIfQueue {
    state: Arc<QueueState>,
}

impl WhatIfQueue {
    /// An empty queue. The engine must be a repeatable one.
    pub fn new(
        store: Arc<dyn Store>,
        upstream: Upstream,
        engine: PolicyEngine,
        config: CoreConfig,
    ) -> Self {
        Self {
            state: Arc::new(QueueState {
                store,
                upstream,
                engine,
                config,
                turns: Turns::default(),
                runs: Mutex::default(),
            }),
        }
    }

    /// Fails if the queue is full. Call it before looking anything up for a run.
    pub fn check_room(&self, tenant: &Tenant) -> Result<(), WhatIfError> {
        self.state.lock().check_room(tenant)
    }

    /// Queues a run; `policies` are those of its sets.
    ///
    /// # Errors
    /// [`WhatIfError::Full`] if the limit on queued and running runs is reached.
    pub fn start(
        &self,
        tenant: &Tenant,
        request: WhatIfRequest,
        policies: Vec<Vec<PolicyFound>>,
    ) -> Result<RunView, WhatIfError> {
        let control = Arc::new(Control::default());
        let (id, shown) = {
            let mut runs = self.state.lock();
            runs.check_room(tenant)?;
            let id = runs.next_id();
            let run = Run {
                id: id.clone(),
                tenant: tenant.clone(),
                sets: request.sets.iter().map(|set| set.name.clone()).collect(),
                window: serde_json::to_value(&request.window).unwrap_or(Value::Null),
                trace: request.trace.is_some(),
                created_at_us: unix_us(),
                ended_at_us: None,
                status: RunStatus::Queued,
                control: control.clone(),
            };
            let shown = run.view();
            runs.keep(run);
            (id, shown)
        };
        let state = self.state.clone();
        let job = Job {
            tenant: tenant.clone(),
            request,
            policies,
            control,
        };
        tokio::spawn(state.run_to_end(id, job));
        Ok(shown)
    }

    /// The runs of a tenant, newest first, without their reports.
    pub fn list(&self, tenant: &Tenant) -> Vec<RunView> {
        let runs = self.state.lock();
        let own = runs.iter().rev().filter(|run| run.tenant == *tenant);
        own.map(Run::view).collect()
    }

    /// A run of a tenant with its report, as the text of a JSON object.
    pub fn show(&self, tenant: &Tenant, id: &str) -> Option<String> {
        let (head, report) = {
            let runs = self.state.lock();
            let run = runs.find(tenant, id)?;
            (run.view(), run.report())
        };
        // Serialising only text and numbers can't fail.
        let mut text = serde_json::to_string(&head).unwrap_or_default();
        if let Some(report) = report {
            // The report is spliced in as text: it may be long, and is serialised already.
            text.truncate(text.len().saturating_sub(1));
            text.reserve(report.len() + 12);
            text.push_str(",\"report\":");
            text.push_str(&report);
            text.push('}');
        }
        Some(text)
    }

    /// Cancels a run of a tenant, unless it has ended.
    pub fn cancel(&self, tenant: &Tenant, id: &str) -> Option<RunView> {
        let mut runs = self.state.lock();
        let run = runs.find_mut(tenant, id)?;
        if run.status.is_open() {
            run.control.cancel();
            run.status = RunStatus::Cancelled;
            run.ended_at_us = Some(unix_us());
        }
        Some(run.view())
    }

    /// Cancels all runs.
    pub fn stop(&self) {
        for run in self.state.lock().iter() {
            run.control.cancel();
        }
    }
}

/// The input of a run.
struct Job {
    tenant: Tenant,
    request: WhatIfRequest,
    policies: Vec<Vec<PolicyFound>>,
    control: Arc<Control>,
}

/// Marks a run as failed if its task ends early, so that it does not stay running forever.
struct Ending {
    state: Arc<QueueState>,
    id: String,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let failure = WhatIfError::Ended("its task stopped".to_owned());
        let status = RunStatus::Failed(Box::new(failure.body()));
        self.state.lock().set_status(&self.id, status);
    }
}

impl QueueState {
    /// Waits for the run's turn and executes it, unless it is cancelled while it waits.
    async fn run_to_end(self: Arc<Self>, id: String, job: Job) {
        let _ending = Ending {
            state: self.clone(),
            id: id.clone(),
        };
        let turn = tokio::select! {
            turn = self.turns.take(job.tenant.name()) => turn,
            () = job.control.cancelled() => {
                self.lock().set_status(&id, RunStatus::Cancelled);
                return;
            }
        };
        self.lock().set_status(&id, RunStatus::Running);
        let ended = self.work(job).await;
        drop(turn);
        let status = match ended {
            Ok(report) => RunStatus::Done(report),
            Err(WhatIfError::Cancelled) => RunStatus::Cancelled,
            Err(failure) => {
                tracing::info!(run = id, %failure, "a what-if run failed");
                RunStatus::Failed(Box::new(failure.body()))
            }
        };
        self.lock().set_status(&id, status);
    }

    /// Executes a run and returns its report as JSON.
    async fn work(self: &Arc<Self>, job: Job) -> Result<Arc<str>, WhatIfError> {
        let (mut request, control) = (job.request, job.control);
        let options = RecorderOptions {
            slot_lag_us: request.settings.slot_lag_us,
            ..RecorderOptions::default()
        };
        let policies = policies::read(&*self.store, &job.policies).await?;
        let (goes_on, tenant) = (|| !control.is_cancelled(), Some(&job.tenant));
        let (workload, scenario) = if let Some(trace) = request.trace.take() {
            (trace.workload, Some(trace.scenario))
        } else {
            let window = &request.window;
            let loaded = window::load(&*self.store, window, tenant, options, &goes_on);
            (loaded.await?, None)
        };
        let profile = match &request.profile {
            Some(profile) => profile.clone(),
            None => profile::ask(&self.upstream, &workload.workers).await?,
        };
        let (state, tenant) = (self.clone(), job.tenant);
        on_own_thread(move || {
            let mut findings = state.replay(&request, workload, profile, &policies, &control)?;
            findings.scenario = scenario;
            let report = serde_json::to_value(findings).unwrap_or(Value::Null);
            Ok(without_tenant(&tenant, report).to_string().into())
        })
        .await?
    }

    fn replay(
        &self,
        request: &WhatIfRequest,
        workload: Workload,
        profile: EngineProfile,
        policies: &[Vec<PolicyBytes>],
        control: &Control,
    ) -> Result<Findings, WhatIfError> {
        let kv_tokens = Plan::kv_tokens_of(&workload, &profile, &request.settings)?;
        let recorded = workload.config.clone().unwrap_or(self.config.clone());
        let sets = request.sets.iter().zip(policies);
        let sets: Result<Vec<ReadySet>, WhatIfError> = sets
            .map(|(set, policies)| ReadySet::new(set, &recorded, policies, &self.engine))
            .collect();
        let plan = Plan {
            workload,
            sets: sets?,
            profile,
            kv_tokens,
            settings: request.settings.clone(),
        };
        plan.run(control)
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a long computation on a thread with lower priority than the daemon's others.
async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WhatIfError> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("treadle-what-if".to_owned());
    let spawned = thread.spawn(move || {
        if let Err(error) = rustix::process::nice(NICENESS) {
            tracing::debug!(%error, "the priority of the what-if thread can't be lowered");
        }
        // The caller may be gone.
        let _ = sender.send(work());
    });
    spawned.map_err(|error| WhatIfError::Ended(format!("its thread can't be started: {error}")))?;
    let ended = receiver.await;
    ended.map_err(|_| WhatIfError::Ended("its thread ended early; see the log".to_owned()))
}

/// The error for a run that does not exist.
pub fn unknown(id: &str) -> ErrorBody {
    let message =
        format!("there is no what-if run `{id}`; GET /api/v1/what-if/runs lists the stored ones");
    ErrorBody::new(ErrorCode::WhatIfRunUnknown, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{KEPT_OF_TENANT_MAX, OPEN_OF_TENANT_MAX};
    use serde_json::json;
    use std::time::Duration;
    use treadle_policy_runtime::Limits;
    use treadle_store::{Location, open};

    async fn queue() -> WhatIfQueue {
        let store = open(&Location::Memory).await.expect("it opens");
        let upstream = Upstream::new(Duration::from_secs(1));
        let engine = treadle_policy::repeatable_engine(Limits::default()).expect("it starts");
        WhatIfQueue::new(store, upstream, engine, CoreConfig::default())
    }

    fn start(queue: &WhatIfQueue, tenant: &Tenant) -> Result<String, String> {
        let body = json!({"sets": ["sticky"]});
        let body = serde_json::from_value(body).expect("a body");
        let request = WhatIfRequest::of(body).expect("a request");
        let run = queue.start(tenant, request, vec![Vec::new()]);
        run.map(|run| run.run)
            .map_err(|failure| failure.to_string())
    }

    fn show(queue: &WhatIfQueue, tenant: &Tenant, run: &str) -> Option<Value> {
        let shown = queue.show(tenant, run)?;
        Some(serde_json::from_str(&shown).expect("it is JSON"))
    }

    async fn until_ended(queue: &WhatIfQueue, tenant: &Tenant, run: &str) -> Value {
        loop {
            let shown = show(queue, tenant, run).expect("it is kept");
            if !matches!(shown["status"].as_str(), Some("queued" | "running")) {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn runs_wait_within_bounds_can_be_cancelled_and_are_their_tenants() {
        let queue = queue().await;
        let [acme, beta] = ["acme", "beta"].map(Tenant::new);
        // A run is in progress.
        let turn = queue.state.turns.take("nobody").await;
        let mut runs = Vec::new();
        for _ in 0..OPEN_OF_TENANT_MAX {
            runs.push(start(&queue, &acme).expect("there is room"));
        }
        let full = start(&queue, &acme).unwrap_err();
        assert!(full.contains("the tenant has 3 what-if runs"), "{full}");
        for other in ["t0", "t1", "t2"].map(Tenant::new) {
            for _ in 0..OPEN_OF_TENANT_MAX {
                start(&queue, &other).expect("there is room");
            }
        }
        let late = Tenant::new("late");
        start(&queue, &late).expect("the first of each tenant has a place");
        let full = start(&queue, &late).unwrap_err();
        assert!(full.contains("there are 13 what-if runs"), "{full}");

        assert!(queue.show(&beta, &runs[0]).is_none());
        assert!(queue.cancel(&beta, &runs[0]).is_none());
        let cancelled = queue
            .cancel(&acme, &runs[0])
            .expect("it belongs to the tenant");
        assert_eq!(cancelled.status, "cancelled");
        assert_eq!(queue.list(&acme).len(), 3);
        drop(turn);
        for run in &runs[1..] {
            let ended = until_ended(&queue, &acme, run).await;
            assert_eq!(ended["status"], "failed");
            assert_eq!(ended["error"]["code"], "whatif_window");
        }
        let cancelled = show(&queue, &acme, &runs[0]).expect("it is kept");
        assert_eq!(cancelled["status"], "cancelled");
        assert!(start(&queue, &acme).is_ok());
    }

    #[tokio::test]
    async fn the_oldest_that_has_ended_goes_first() {
        let queue = queue().await;
        let acme = Tenant::new("acme");
        let first = start(&queue, &acme).expect("there is room");
        until_ended(&queue, &acme, &first).await;
        for _ in 0..KEPT_OF_TENANT_MAX {
            let run = start(&queue, &acme).expect("there is room");
            until_ended(&queue, &acme, &run).await;
        }
        assert!(queue.show(&acme, &first).is_none());
        assert_eq!(queue.list(&acme).len(), KEPT_OF_TENANT_MAX);
    }

    #[tokio::test]
    async fn a_cancelled_run_lets_go_of_what_it_holds_before_its_turn() {
        let queue = queue().await;
        let acme = Tenant::new("acme");
        let turn = queue.state.turns.take("nobody").await;
        let run = start(&queue, &acme).expect("there is room");
        let control = {
            let runs = queue.state.lock();
            let run = runs.find(&acme, &run).expect("it is kept");
            Arc::downgrade(&run.control)
        };
        // The run itself holds one reference; the waiting task has the others.
        while control.strong_count() < 2 {
            tokio::task::yield_now().await;
        }
        queue.cancel(&acme, &run);
        while control.strong_count() > 1 {
            tokio::task::yield_now().await;
        }
        drop(turn);
    }

    #[tokio::test]
    async fn a_run_whose_work_ends_early_does_not_stay_running() {
        let queue = queue().await;
        let acme = Tenant::new("acme");
        let turn = queue.state.turns.take("nobody").await;
        let run = start(&queue, &acme).expect("there is room");
        drop(Ending {
            state: queue.state.clone(),
            id: run.clone(),
        });
        let failed = show(&queue, &acme, &run).expect("it is kept");
        assert_eq!(failed["status"], "failed");
        assert_eq!(failed["error"]["code"], "internal");
        drop(turn);
        let panicked = on_own_thread(|| panic!("on purpose")).await;
        let panicked: Result<(), WhatIfError> = panicked;
        assert!(panicked.is_err());
    }

    #[tokio::test]
    async fn a_report_is_shown_as_it_was_written() {
        let queue = queue().await;
        let acme = Tenant::new("acme");
        let turn = queue.state.turns.take("nobody").await;
        let run = start(&queue, &acme).expect("there is room");
        let report = RunStatus::Done("{\"programs\":3}".into());
        queue.state.lock().set_status(&run, report);
        let shown = show(&queue, &acme, &run).expect("it is kept");
        assert_eq!(shown["report"], json!({"programs": 3}));
        assert_eq!(shown["progress"]["share"], 1.0);
        drop(turn);
    }
}
