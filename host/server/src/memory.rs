//! What KV memory was used for, per worker and job: the core's accounts as
//! Prometheus' text and as JSON.

use serde_json::{Map, Value, json};
use std::fmt::Write;
use treadle_auth::Principal;
use treadle_core::accounts::{Account, TokenTime, Use};
use treadle_http::escape;
use treadle_model::tenant::{DEFAULT_TENANT, MARK};
use treadle_scheduler::View;

/// The accounts at one time.
pub(crate) struct MemoryUses {
    workers: Vec<WorkerUses>,
    jobs: Vec<JobUses>,
}

struct WorkerUses {
    id: String,
    url: Box<str>,
    sums: TokenTime,
    now: Account,
}

struct JobUses {
    /// As the core knows it, tenant included.
    name: Box<str>,
    sums: TokenTime,
    now: Account,
}

impl MemoryUses {
    /// Reads them up to now.
    pub(crate) fn read(view: &View<'_>) -> Self {
        let state = view.core.state();
        let worker = |w: &treadle_core::worker::Worker| WorkerUses {
            id: w.id.0.to_string(),
            url: w.url.clone(),
            sums: w.account.at(view.now),
            now: w.account,
        };
        let jobs = state.job_accounts.iter().map(|(name, account)| JobUses {
            name: name.into(),
            sums: account.at(view.now),
            now: *account,
        });
        Self {
            workers: state.workers.values().map(worker).collect(),
            jobs: jobs.collect(),
        }
    }

    /// Leaves out what the caller may not see: jobs of other tenants.
    pub(crate) fn shown_to(mut self, principal: &Principal) -> Self {
        let shown = |job: &JobUses| principal.root || principal.outside(&job.name).is_some();
        self.jobs.retain(shown);
        self
    }

    /// Prometheus' text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let name = "treadle_kv_token_seconds_total";
        let help = "KV memory of a worker times the time, by what it was used for.";
        head(&mut text, name, help);
        for worker in &self.workers {
            let label = format!("worker=\"{}\"", escape(&worker.url));
            rows(&mut text, name, &label, &worker.sums);
        }
        let name = "treadle_kv_over_token_seconds_total";
        head(
            &mut text,
            name,
            "Of these, charged above the worker's capacity.",
        );
        for worker in &self.workers {
            let (url, over) = (escape(&worker.url), seconds(worker.sums.over));
            let _ = writeln!(text, "{name}{{worker=\"{url}\"}} {over}");
        }
        let name = "treadle_kv_job_token_seconds_total";
        let help = "KV memory charged to a job times the time, by what it was used for.";
        head(&mut text, name, help);
        for job in &self.jobs {
            let (tenant, job_name) = split(&job.name);
            let (tenant, job_name) = (escape(tenant), escape(job_name));
            let label = format!("tenant=\"{tenant}\",job=\"{job_name}\"");
            rows(&mut text, name, &label, &job.sums);
        }
        text
    }

    /// The body of `GET /v1/memory`.
    pub(crate) fn to_json(&self) -> Value {
        let worker = |w: &WorkerUses| {
            json!({
                "id": w.id,
                "url": w.url,
                "token_seconds": by_use(&w.sums),
                "tokens_now": in_use(&w.now),
                "undivided_token_seconds": seconds(w.sums.undivided),
                "over_token_seconds": seconds(w.sums.over),
            })
        };
        let job = |j: &JobUses| {
            let (tenant, job) = split(&j.name);
            json!({
                "tenant": tenant,
                "job": job,
                "token_seconds": by_use(&j.sums),
                "tokens_now": in_use(&j.now),
                "undivided_token_seconds": seconds(j.sums.undivided),
            })
        };
        json!({
            "workers": self.workers.iter().map(worker).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        })
    }
}

fn by_use(sums: &TokenTime) -> Map<String, Value> {
    let entry = |what: Use| (what.as_str().into(), seconds(sums.of(what)).into());
    Use::ALL.into_iter().map(entry).collect()
}

/// Tokens in each use now; those before their first token are under `prefill`.
fn in_use(account: &Account) -> Map<String, Value> {
    let entry = |what: Use| (what.as_str().into(), account.tokens(what).into());
    Use::ALL.into_iter().map(entry).collect()
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

/// Uses that there were; most jobs have few of them.
fn rows(text: &mut String, name: &str, label: &str, sums: &TokenTime) {
    for what in Use::ALL {
        let token_ms = sums.of(what);
        if token_ms > 0 {
            let (what, value) = (what.as_str(), seconds(token_ms));
            let _ = writeln!(text, "{name}{{{label},use=\"{what}\"}} {value}");
        }
    }
}
