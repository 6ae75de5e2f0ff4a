//! Metrics of training runs, for Prometheus.

use crate::app::TrainingApp;
use std::time::Duration;
use tokio::time::timeout;
use treadle_auth::Principal;
use treadle_core::training::Job;
use treadle_http::{Exposition, escape};
use treadle_model::tenant::split;

/// Longest wait for the scheduler.
const READ_MAX: Duration = Duration::from_secs(1);

/// A metric of a job: its name, its help text, and its value.
type Metric = (&'static str, &'static str, fn(&Job) -> u64);

const GAUGES: [Metric; 8] = [
    (
        "treadle_training_groups_queued",
        "Groups that have not begun.",
        |job| (job.groups.len() - job.begun.len()) as u64,
    ),
    (
        "treadle_training_groups_running",
        "Groups that have begun and are not ready.",
        |job| (job.begun.len() - job.ready.len()) as u64,
    ),
    (
        "treadle_training_groups_ready",
        "Groups that can be put into a batch.",
        |job| job.ready.len() as u64,
    ),
    (
        "treadle_training_programs_held",
        "Programs that wait to begin.",
        |job| job.held.values().map(|queue| queue.len() as u64).sum(),
    ),
    (
        "treadle_training_trainer_waits",
        "1 while the trainer waits for a batch.",
        |job| u64::from(job.requested == job.next_batch),
    ),
    (
        "treadle_training_waits_for_weights",
        "1 while no program begins because engines have too old a version.",
        |job| u64::from(job.waits_for_weights().is_some()),
    ),
    (
        "treadle_training_version",
        "Version of the weights that engines have.",
        |job| job.version.unwrap_or_default(),
    ),
    (
        "treadle_training_lag",
        "Largest lag of a group in a batch, in training steps.",
        |job| job.account.lag,
    ),
];

const COUNTERS: [Metric; 3] = [
    ("treadle_training_batches_total", "Batches cut.", |job| {
        job.next_batch - 1
    }),
    (
        "treadle_training_members_served_total",
        "Members in batches.",
        |job| job.account.all.served.members,
    ),
    (
        "treadle_training_members_lost_total",
        "Members that failed or were cut.",
        |job| {
            let lost = job.account.all.lost.values();
            lost.map(|tally| tally.members).sum()
        },
    ),
];

const BREAKS: &str = "treadle_training_breaks_total";

/// What a job's metrics are made of.
struct Row {
    labels: String,
    /// One for each gauge and counter.
    values: Vec<u64>,
    breaks: Vec<(Box<str>, u64)>,
}

impl Row {
    fn of(name: &str, job: &Job) -> Self {
        let metrics = GAUGES.iter().chain(&COUNTERS);
        let breaks = job.account.breaks.iter();
        Self {
            labels: labels(name),
            values: metrics.map(|(_, _, value)| value(job)).collect(),
            breaks: breaks.map(|(kind, steps)| (kind.clone(), *steps)).collect(),
        }
    }
}

impl TrainingApp {
    /// Metrics of the jobs that a caller may see, in Prometheus' text format.
    pub async fn metrics(&self, principal: &Principal) -> String {
        let tenant = principal.tenant.tenant.clone();
        let all = principal.root;
        let rows = self.driver.training(move |state| {
            let jobs = state.jobs.iter();
            let shown = jobs.filter(|(name, _)| all || tenant.outside(name).is_some());
            let rows = shown.map(|(name, job)| Row::of(name, job));
            rows.collect::<Vec<Row>>()
        });
        // A driver that stopped, or that waits for the store, has no metrics.
        let rows = timeout(READ_MAX, rows).await;
        let rows = rows.ok().and_then(Result::ok).unwrap_or_default();
        let mut text = Exposition::default();
        for (index, (name, help, _)) in GAUGES.iter().chain(&COUNTERS).enumerate() {
            let kind = if index < GAUGES.len() {
                "gauge"
            } else {
                "counter"
            };
            text.head(name, kind, help);
            for row in &rows {
                text.row(name, &row.labels, row.values[index]);
            }
        }
        let help = "Steps of samples that continue no earlier one of their member.";
        text.head(BREAKS, "counter", help);
        for row in &rows {
            for (kind, steps) in &row.breaks {
                let labels = format!("{},kind=\"{}\"", row.labels, escape(kind));
                text.row(BREAKS, &labels, *steps);
            }
        }
        text.into_string()
    }
}

fn labels(name: &str) -> String {
    let (tenant, job) = split(name);
    format!("tenant=\"{}\",job=\"{}\"", escape(tenant), escape(job))
}
