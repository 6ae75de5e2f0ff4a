//! Metrics of the gateway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use treadle_http::{Exposition, Histogram};
use treadle_scheduler::JournalStatistics;
use treadle_wire::Endpoint;

const ENDPOINTS: usize = Endpoint::ALL.len();

/// Counters that the gateway keeps itself.
#[derive(Default)]
pub struct Metrics {
    by_class: [[AtomicU64; 6]; ENDPOINTS],
    latency: Histogram,
    attempts_failed: AtomicU64,
    interruptions: AtomicU64,
    /// Steps of jobs whose history is `as_sampled`, by how they were sent.
    histories: Mutex<BTreeMap<&'static str, u64>>,
    /// Statistics of the journal's rows.
    pub journal: Arc<JournalStatistics>,
}

impl Metrics {
    /// Counts an answered generation request.
    pub fn answered(&self, endpoint: Endpoint, status: axum::http::StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).min(5);
        let row = Endpoint::ALL
            .iter()
            .position(|e| *e == endpoint)
            .unwrap_or(0);
        self.by_class[row][class].fetch_add(1, Ordering::Relaxed);
        self.latency.observe(took);
    }

    /// Counts a failed attempt that may be repeated.
    pub fn attempt_failed(&self) {
        self.attempts_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a step that was interrupted to be resumed later.
    pub fn step_interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a captured step of a job whose history is `as_sampled`, if it has one: `how` it was
    /// sent.
    pub fn continued(&self, how: &'static str) {
        if !how.is_empty() {
            let histories = self.histories.lock();
            *histories
                .unwrap_or_else(PoisonError::into_inner)
                .entry(how)
                .or_default() += 1;
        }
    }

    /// Renders the metrics in Prometheus' text format.
    pub fn render(&self, text: &mut Exposition) {
        let name = "treadle_requests_total";
        text.head(
            name,
            "counter",
            "Generation requests answered, by endpoint and status class.",
        );
        for (endpoint, row) in Endpoint::ALL.iter().zip(&self.by_class) {
            for (class, count) in row.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("endpoint=\"{}\",status=\"{class}xx\"", endpoint.path());
                    text.row(name, &labels, count);
                }
            }
        }
        let name = "treadle_request_seconds";
        text.head(
            name,
            "histogram",
            "Time until a response began, including the wait for placement.",
        );
        self.latency.render(text, name, "");
        let failed = self.attempts_failed.load(Ordering::Relaxed);
        text.counter(
            "treadle_attempts_failed_total",
            "Attempts at engines that failed.",
            failed,
        );
        text.counter(
            "treadle_interruptions_total",
            "Steps that were interrupted at their engines to be resumed later.",
            self.interruptions.load(Ordering::Relaxed),
        );
        let name = "treadle_training_history_total";
        text.head(
            name,
            "counter",
            "Captured steps of jobs with `history` as_sampled that continue an answer, by how they \
             were sent: as_sampled, or why not.",
        );
        let histories = self.histories.lock();
        for (how, steps) in &*histories.unwrap_or_else(PoisonError::into_inner) {
            text.row(name, &format!("history=\"{how}\""), *steps);
        }
        text.counter(
            "treadle_journal_refused_records_total",
            "Rows that were dropped because the store could not hold them; the log names them.",
            self.journal.refused(),
        );
    }
}
