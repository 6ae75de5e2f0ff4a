//! What-if runs and their status: queued, running and ended ones.

use super::WhatIfError;
use super::execute::{Control, Findings};
use super::request::WindowSpec;
use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use treadle_model::Tenant;
use treadle_wire::ErrorBody;
use utoipa::ToSchema;

/// Limit on queued and running runs of all tenants; a tenant's first one is always accepted.
const OPEN_MAX: usize = 12;
/// Limit on queued and running runs of a tenant.
pub(super) const OPEN_OF_TENANT_MAX: usize = 3;
/// Limit on stored runs of a tenant, open ones included; the oldest ended one is removed first.
pub(super) const KEPT_OF_TENANT_MAX: usize = 16;
/// Limit on stored runs; beyond it one of the tenant with the most is removed.
const KEPT_MAX: usize = 128;
/// Limit on the size of all reports, in bytes; beyond it a run of the tenant with the most is
/// removed.
const REPORT_BYTES_MAX: usize = 128 << 20;

/// A run's status.
#[derive(Clone, Debug)]
pub(super) enum RunStatus {
    Queued,
    Running,
    /// The report as JSON, with names as the tenant knows them.
    Done(Arc<str>),
    Failed(Box<ErrorBody>),
    Cancelled,
}

impl RunStatus {
    fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done(_) => "done",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

/// A what-if run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunView {
    /// The run's ID.
    pub run: String,
    /// queued, running, done, failed or cancelled.
    pub status: String,
    /// Names of the sets to compare.
    pub sets: Vec<String>,
    /// The part of the journal to replay.
    #[schema(value_type = WindowSpec)]
    pub window: Value,
    /// Whether the run replays a trace from the request instead.
    pub trace: bool,
    /// When it was accepted, in microseconds since 1970.
    pub created_at_us: u64,
    /// When it ended, in microseconds since 1970.
    pub ended_at_us: Option<u64>,
    /// The run's progress.
    pub progress: RunProgress,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// The report; only in the response for a single run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Findings>)]
    pub report: Option<Value>,
}

/// The progress of a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunProgress {
    /// From 0 to 1.
    pub share: f64,
    /// Steps replayed so far.
    pub steps_done: u64,
    /// Steps of all replays; 0 until that is known.
    pub steps: u64,
}

/// Why a run failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunFailure {
    /// The stable error code.
    pub code: String,
    /// What is wrong, and the remedy.
    pub message: String,
    /// The invalid field, if any.
    pub param: Option<String>,
}

/// A stored run.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) tenant: Tenant,
    pub(super) sets: Vec<String>,
    pub(super) window: Value,
    pub(super) trace: bool,
    pub(super) created_at_us: u64,
    pub(super) ended_at_us: Option<u64>,
    pub(super) status: RunStatus,
    pub(super) control: Arc<Control>,
}

impl Run {
    /// The run as clients see it, without the report.
    pub(super) fn view(&self) -> RunView {
        let (done, steps) = self.control.progress();
        let share = match self.status {
            RunStatus::Done(_) => 1.0,
            _ => done as f64 / steps.max(1) as f64,
        };
        let error = match &self.status {
            RunStatus::Failed(error) => Some(RunFailure {
                code: error.code.as_str().to_owned(),
                message: error.message.clone(),
                param: error.param.clone(),
            }),
            _ => None,
        };
        RunView {
            run: self.id.clone(),
            status: self.status.name().to_owned(),
            sets: self.sets.clone(),
            window: self.window.clone(),
            trace: self.trace,
            created_at_us: self.created_at_us,
            ended_at_us: self.ended_at_us,
            progress: RunProgress {
                share,
                steps_done: done,
                steps,
            },
            error,
            report: None,
        }
    }

    /// The report as JSON, once the run is done.
    pub(super) fn report(&self) -> Option<Arc<str>> {
        match &self.status {
            RunStatus::Done(report) => Some(report.clone()),
            _ => None,
        }
    }

    fn report_bytes(&self) -> usize {
        match &self.status {
            RunStatus::Done(report) => report.len(),
            _ => 0,
        }
    }
}

/// The runs of all tenants.
#[derive(Default)]
pub(super) struct Runs {
    kept: VecDeque<Run>,
    last_id: u64,
}

impl Runs {
    /// Fails if the limit on open runs of the tenant, or of all tenants, is reached.
    pub(super) fn check_room(&self, tenant: &Tenant) -> Result<(), WhatIfError> {
        let open = || self.kept.iter().filter(|run| run.status.is_open());
        let of_tenant = open().filter(|run| run.tenant == *tenant).count();
        let (count, max, whose) = if of_tenant >= OPEN_OF_TENANT_MAX {
            (of_tenant, OPEN_OF_TENANT_MAX, "the tenant has")
        } else {
            (open().count(), OPEN_MAX, "there are")
        };
        // The first run of each tenant is always accepted; tenants take turns.
        if count < max || of_tenant == 0 {
            return Ok(());
        }
        Err(WhatIfError::Full(format!(
            "{whose} {count} what-if runs queued or running, which is the limit; wait for one, or cancel one with DELETE /api/v1/what-if/runs/RUN"
        )))
    }

    /// A new ID, unique across restarts too.
    pub(super) fn next_id(&mut self) -> String {
        self.last_id = unix_us().max(self.last_id + 1);
        format!("whatif-{:x}", self.last_id)
    }

    /// Stores a run. Beyond a limit an ended run is removed: of this tenant, or of the one with the
    /// most.
    pub(super) fn keep(&mut self, run: Run) {
        let own = self.kept.iter().filter(|kept| kept.tenant == run.tenant);
        if own.count() >= KEPT_OF_TENANT_MAX {
            let tenant = run.tenant.clone();
            self.drop_oldest_of(&tenant);
        }
        if self.kept.len() >= KEPT_MAX {
            self.drop_of_greatest(|_| 1);
        }
        self.kept.push_back(run);
    }

    /// Sets a run's status, unless it has ended.
    pub(super) fn set_status(&mut self, id: &str, status: RunStatus) {
        let Some(run) = self.kept.iter_mut().find(|run| run.id == id) else {
            return;
        };
        if run.status.is_open() {
            run.ended_at_us = (!status.is_open()).then(unix_us);
            run.status = status;
        }
        while self.kept.iter().map(Run::report_bytes).sum::<usize>() > REPORT_BYTES_MAX
            && self.drop_of_greatest(Run::report_bytes)
        {}
    }

    /// A tenant's run by ID.
    pub(super) fn find(&self, tenant: &Tenant, id: &str) -> Option<&Run> {
        let found = |run: &&Run| run.tenant == *tenant && run.id == id;
        self.kept.iter().find(found)
    }

    /// A tenant's run by ID, mutably.
    pub(super) fn find_mut(&mut self, tenant: &Tenant, id: &str) -> Option<&mut Run> {
        let found = |run: &&mut Run| run.tenant == *tenant && run.id == id;
        self.kept.iter_mut().find(found)
    }

    /// All runs, the oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.kept.iter()
    }

    fn drop_oldest_of(&mut self, tenant: &Tenant) -> bool {
        let mut ended = self.kept.iter();
        let oldest = ended.position(|run| run.tenant == *tenant && !run.status.is_open());
        oldest.is_some_and(|oldest| self.kept.remove(oldest).is_some())
    }

    /// Removes the oldest ended run of the tenant with the greatest total weight; false if none has
    /// ended.
    fn drop_of_greatest(&mut self, weight: fn(&Run) -> usize) -> bool {
        let ended = || self.kept.iter().filter(|run| !run.status.is_open());
        let of_tenant = |tenant: &Tenant| -> usize {
            let own = ended().filter(|run| run.tenant == *tenant);
            own.map(weight).sum()
        };
        let greatest = ended().max_by_key(|run| of_tenant(&run.tenant));
        let greatest = greatest.map(|run| run.tenant.clone());
        greatest.is_some_and(|tenant| self.drop_oldest_of(&tenant))
    }
}

/// The time now, in microseconds since 1970.
pub(super) fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(runs: &mut Runs, tenant: &str, status: RunStatus) -> String {
        let id = runs.next_id();
        runs.keep(Run {
            id: id.clone(),
            tenant: Tenant::new(tenant),
            sets: Vec::new(),
            window: Value::Null,
            trace: false,
            created_at_us: 1,
            ended_at_us: None,
            status,
            control: Arc::default(),
        });
        id
    }

    fn of(runs: &Runs, tenant: &str) -> usize {
        let tenant = Tenant::new(tenant);
        runs.iter().filter(|run| run.tenant == tenant).count()
    }

    #[test]
    fn a_tenant_with_many_runs_loses_its_own_first() {
        let mut runs = Runs::default();
        let others = run(&mut runs, "beta", RunStatus::Cancelled);
        let first = run(&mut runs, "acme", RunStatus::Cancelled);
        for _ in 0..1_000 {
            run(&mut runs, "acme", RunStatus::Cancelled);
        }
        assert_eq!(of(&runs, "acme"), KEPT_OF_TENANT_MAX);
        assert!(runs.find(&Tenant::new("acme"), &first).is_none());
        assert!(runs.find(&Tenant::new("beta"), &others).is_some());
        for tenant in 0..100 {
            for _ in 0..2 {
                run(&mut runs, &format!("t{tenant}"), RunStatus::Cancelled);
            }
        }
        assert_eq!(runs.kept.len(), KEPT_MAX);
        assert!(runs.find(&Tenant::new("beta"), &others).is_some());
        assert!(of(&runs, "acme") <= 2, "those who have most go first");
    }

    #[test]
    fn those_who_fill_the_queue_leave_each_tenant_a_place() {
        let mut runs = Runs::default();
        for tenant in ["a", "b", "c", "d"] {
            for _ in 0..OPEN_OF_TENANT_MAX {
                assert!(runs.check_room(&Tenant::new(tenant)).is_ok());
                run(&mut runs, tenant, RunStatus::Queued);
            }
        }
        assert!(runs.check_room(&Tenant::new("a")).is_err());
        assert!(runs.check_room(&Tenant::new("e")).is_ok());
        run(&mut runs, "e", RunStatus::Queued);
        assert!(runs.check_room(&Tenant::new("e")).is_err());
    }

    #[test]
    fn large_reports_are_bounded_all_together() {
        let mut runs = Runs::default();
        let small = run(&mut runs, "beta", RunStatus::Running);
        runs.set_status(&small, RunStatus::Done("{}".into()));
        let report: Arc<str> = "x".repeat(REPORT_BYTES_MAX / 4).into();
        for _ in 0..10 {
            let id = run(&mut runs, "acme", RunStatus::Running);
            runs.set_status(&id, RunStatus::Done(report.clone()));
        }
        assert_eq!((of(&runs, "acme"), of(&runs, "beta")), (3, 1));
    }
}
