//! Uses of KV memory per worker and job: the core's accounts as Prometheus' text and as JSON.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use treadle_auth::Principal;
use treadle_core::memory::{Account, TokenTime, Use};
use treadle_http::escape;
use treadle_model::tenant::{DEFAULT_TENANT, MARK};
use treadle_scheduler::{JobAccount, MemoryAccounts, WorkerAccount};
use utoipa::ToSchema;

/// The accounts at one time.
pub(crate) struct MemoryUses(MemoryAccounts);

impl MemoryUses {
    /// Removes jobs of other tenants, which the caller may not see.
    pub(crate) fn shown_to(mut accounts: MemoryAccounts, principal: &Principal) -> Self {
        let shown = |job: &JobAccount| principal.root || principal.outside(&job.job).is_some();
        accounts.jobs.retain(shown);
        Self(accounts)
    }

    /// All accounts, for the daemon itself.
    pub(crate) const fn of_all(accounts: MemoryAccounts) -> Self {
        Self(accounts)
    }

    /// Renders Prometheus' text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let name = "treadle_kv_token_seconds_total";
        let help = "KV memory of a worker multiplied by time, by use.";
        head(&mut text, name, help);
        for worker in &self.0.workers {
            let label = format!("worker=\"{}\"", escape(&worker.url));
            rows(&mut text, name, &label, &worker.sums);
        }
        let name = "treadle_kv_over_token_seconds_total";
        head(
            &mut text,
            name,
            "KV memory charged above the worker's capacity, multiplied by time.",
        );
        for worker in &self.0.workers {
            let (url, over) = (escape(&worker.url), seconds(worker.sums.over));
            let _ = writeln!(text, "{name}{{worker=\"{url}\"}} {over}");
        }
        let name = "treadle_kv_job_token_seconds_total";
        let help = "KV memory charged to a job multiplied by time, by use.";
        head(&mut text, name, help);
        for job in &self.0.jobs {
            let (tenant, job_name) = split(&job.job);
            let (tenant, job_name) = (escape(tenant), escape(job_name));
            let label = format!("tenant=\"{tenant}\",job=\"{job_name}\"");
            rows(&mut text, name, &label, &job.sums);
        }
        text
    }

    /// The answer of `GET /api/v1/memory`.
    pub(crate) fn report(&self) -> MemoryReport {
        let worker = |w: &WorkerAccount| WorkerMemory {
            id: w.worker.0.to_string(),
            url: w.url.clone(),
            over_token_seconds: seconds(w.sums.over),
            uses: UsesReport::of(&w.sums, &w.account),
        };
        let job = |j: &JobAccount| {
            let (tenant, job) = split(&j.job);
            JobMemory {
                tenant: tenant.to_owned(),
                job: job.to_owned(),
                uses: UsesReport::of(&j.sums, &j.account),
            }
        };
        MemoryReport {
            workers: self.0.workers.iter().map(worker).collect(),
            jobs: self.0.jobs.iter().map(job).collect(),
        }
    }
}

/// Uses of KV memory.
#[derive(Serialize, ToSchema)]
pub(crate) struct MemoryReport {
    /// Uses per engine.
    workers: Vec<WorkerMemory>,
    /// Uses per job of the caller's tenant.
    jobs: Vec<JobMemory>,
}

#[derive(Serialize, ToSchema)]
struct WorkerMemory {
    /// The worker's id.
    id: String,
    /// Its URL.
    url: Box<str>,
    /// KV memory charged above its capacity, in token-seconds.
    over_token_seconds: f64,
    #[serde(flatten)]
    uses: UsesReport,
}

#[derive(Serialize, ToSchema)]
struct JobMemory {
    /// The job's tenant.
    tenant: String,
    /// Its name.
    job: String,
    #[serde(flatten)]
    uses: UsesReport,
}

#[derive(Serialize, ToSchema)]
struct UsesReport {
    /// KV memory multiplied by time, by use, in token-seconds.
    token_seconds: BTreeMap<String, f64>,
    /// Tokens in each use now; those before their first token are under `prefill`.
    tokens_now: BTreeMap<String, u64>,
    /// KV memory not yet assigned to a use, in token-seconds.
    undivided_token_seconds: f64,
}

impl UsesReport {
    fn of(sums: &TokenTime, now: &Account) -> Self {
        let spent = |what: Use| (what.as_str().to_owned(), seconds(sums.of(what)));
        let held = |what: Use| (what.as_str().to_owned(), now.tokens(what));
        Self {
            token_seconds: Use::ALL.into_iter().map(spent).collect(),
            tokens_now: Use::ALL.into_iter().map(held).collect(),
            undivided_token_seconds: seconds(sums.undivided),
        }
    }
}

fn seconds(token_ms: u64) -> f64 {
    token_ms as f64 / 1e3
}

/// Tenant and job of a name inside the daemon.
fn split(inside: &str) -> (&str, &str) {
    let marked = inside.strip_prefix(MARK);
    let parts = marked.and_then(|rest| rest.split_once(MARK));
    parts.unwrap_or((DEFAULT_TENANT, inside))
}

fn head(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
}

/// One row per use that occurred; most jobs have few.
fn rows(text: &mut String, name: &str, label: &str, sums: &TokenTime) {
    for what in Use::ALL {
        let token_ms = sums.of(what);
        if token_ms > 0 {
            let (what, value) = (what.as_str(), seconds(token_ms));
            let _ = writeln!(text, "{name}{{{label},use=\"{what}\"}} {value}");
        }
    }
}
