//! Prometheus metrics. The doc comment of each metric is its help text; gauges
//! are read from the scheduler's state when scraped, so they cannot drift.

mod engines;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use treadle_core::Totals;
use treadle_core::state::Counters;
use treadle_model::WorkerId;
use treadle_wire::{Endpoint, EngineReading};

use crate::driver::{JournalStatistics, PolicyStatistics};
use crate::engines::Drift;
pub(crate) use treadle_http::{Exposition, counter, escape, gauge};

/// Upper bounds of the request histogram, in seconds.
const BUCKETS_S: [f64; 12] = [
    0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 3_600.0,
];
const ENDPOINTS: usize = Endpoint::ALL.len();

/// Counters that the gateway keeps itself.
#[derive(Default)]
pub struct Metrics {
    by_class: [[AtomicU64; 6]; ENDPOINTS],
    buckets: [AtomicU64; BUCKETS_S.len()],
    latency_us: AtomicU64,
    requests: AtomicU64,
    attempts_failed: AtomicU64,
    interruptions: AtomicU64,
    /// What became of the journal's rows.
    pub journal: Arc<JournalStatistics>,
}

impl Metrics {
    /// A generation request was answered.
    pub fn answered(&self, endpoint: Endpoint, status: http::StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).min(5);
        let row = Endpoint::ALL
            .iter()
            .position(|e| *e == endpoint)
            .unwrap_or(0);
        self.by_class[row][class].fetch_add(1, Ordering::Relaxed);
        let bucket = BUCKETS_S
            .iter()
            .position(|bound| took.as_secs_f64() <= *bound);
        if let Some(bucket) = bucket {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.latency_us
            .fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// An engine failed an attempt that may be repeated.
    pub fn attempt_failed(&self) {
        self.attempts_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// A step was taken back from its engine, to be gone on with later.
    pub fn step_interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything in Prometheus' text format.
    pub fn render(
        &self,
        totals: &Totals,
        counters: &Counters,
        policy: &PolicyStatistics,
        engine: &dyn Fn(WorkerId) -> Option<(EngineReading, Drift)>,
    ) -> String {
        let mut text = Exposition::default();
        self.render_requests(&mut text);
        render_state(&mut text, totals);
        render_workers(&mut text, totals);
        engines::render(&mut text, totals, engine);
        render_counters(&mut text, counters, policy);
        text.into_string()
    }

    fn render_requests(&self, text: &mut Exposition) {
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
            "Time until an answer began, waiting for a place included.",
        );
        let mut sum = 0;
        for (bound, count) in BUCKETS_S.iter().zip(&self.buckets) {
            sum += count.load(Ordering::Relaxed);
            text.row(
                "treadle_request_seconds_bucket",
                &format!("le=\"{bound}\""),
                sum,
            );
        }
        let requests = self.requests.load(Ordering::Relaxed);
        text.row("treadle_request_seconds_bucket", "le=\"+Inf\"", requests);
        let total_s = self.latency_us.load(Ordering::Relaxed) as f64 / 1e6;
        text.row("treadle_request_seconds_sum", "", total_s);
        text.row("treadle_request_seconds_count", "", requests);
        let failed = self.attempts_failed.load(Ordering::Relaxed);
        text.counter(
            "treadle_attempts_failed_total",
            "Attempts at engines that failed.",
            failed,
        );
        text.counter(
            "treadle_interruptions_total",
            "Steps that were taken back from their engines, to be gone on with later.",
            self.interruptions.load(Ordering::Relaxed),
        );
        text.counter(
            "treadle_journal_refused_records_total",
            "Rows that the store could not hold and that were left out; the log names them.",
            self.journal.refused(),
        );
    }
}

fn render_state(text: &mut Exposition, totals: &Totals) {
    text.gauge("treadle_programs", "Live programs.", totals.programs);
    text.gauge(
        "treadle_programs_reasoning",
        "Programs with a step.",
        totals.reasoning,
    );
    text.gauge(
        "treadle_programs_acting",
        "Programs between steps.",
        totals.acting,
    );
    text.gauge(
        "treadle_programs_paused",
        "Programs that gave up their place.",
        totals.paused,
    );
    text.gauge(
        "treadle_queue_programs",
        "Programs waiting for a place.",
        totals.queued_programs,
    );
    text.gauge(
        "treadle_queue_steps",
        "Steps waiting for a place.",
        totals.waiting_steps,
    );
    text.gauge(
        "treadle_steps_running",
        "Steps at engines.",
        totals.running_steps,
    );
    text.gauge(
        "treadle_asks_open",
        "Questions to policies without an answer.",
        totals.open_asks,
    );
    let resident = resident_bytes().unwrap_or(0);
    text.gauge(
        "treadle_resident_bytes",
        "Resident memory of the daemon.",
        resident,
    );
}

fn render_workers(text: &mut Exposition, totals: &Totals) {
    type Column = (
        &'static str,
        &'static str,
        fn(&treadle_core::WorkerTotals) -> Option<u64>,
    );
    let columns: [Column; 8] = [
        ("treadle_worker_healthy", "1 if the engine answers.", |w| {
            Some(u64::from(w.healthy))
        }),
        (
            "treadle_worker_capacity_tokens",
            "KV cache that the engine has.",
            |w| w.capacity_tokens,
        ),
        (
            "treadle_worker_used_tokens",
            "KV cache in use by the ledger.",
            |w| Some(w.used_tokens),
        ),
        (
            "treadle_worker_shared_tokens",
            "Shared prefixes among them.",
            |w| Some(w.shared_tokens),
        ),
        ("treadle_worker_programs", "Programs placed.", |w| {
            Some(w.programs)
        }),
        (
            "treadle_worker_programs_acting",
            "Placed programs between steps.",
            |w| Some(w.acting),
        ),
        (
            "treadle_worker_steps_running",
            "Steps at the engine.",
            |w| Some(w.running_steps),
        ),
        ("treadle_worker_slots_taken", "Seats in use.", |w| {
            Some(w.slots_taken)
        }),
    ];
    for (name, help, value) in columns {
        text.head(name, "gauge", help);
        for worker in &totals.workers {
            if let Some(value) = value(worker) {
                text.row(name, &format!("worker=\"{}\"", escape(&worker.url)), value);
            }
        }
    }
}

/// Name, help text and value of a counter.
type CounterRow = (&'static str, &'static str, u64);

fn render_counters(text: &mut Exposition, c: &Counters, policy: &PolicyStatistics) {
    let steps = step_counters(c).into_iter();
    for (name, help, value) in steps
        .chain(program_counters(c))
        .chain(policy_counters(policy))
    {
        text.counter(name, help, value);
    }
}

fn step_counters(c: &Counters) -> [CounterRow; 8] {
    [
        (
            "treadle_steps_arrived_total",
            "Steps that arrived.",
            c.steps_arrived,
        ),
        (
            "treadle_steps_finished_total",
            "Steps answered in full.",
            c.steps_finished,
        ),
        (
            "treadle_steps_refused_total",
            "Steps refused.",
            c.steps_refused,
        ),
        (
            "treadle_steps_cancelled_total",
            "Steps withdrawn by clients.",
            c.steps_cancelled,
        ),
        (
            "treadle_steps_failed_total",
            "Steps that engines failed for good.",
            c.steps_failed,
        ),
        (
            "treadle_prompt_tokens_total",
            "Prompt tokens of finished steps.",
            c.prompt_tokens,
        ),
        (
            "treadle_output_tokens_total",
            "Output tokens of finished steps.",
            c.output_tokens,
        ),
        (
            "treadle_cached_tokens_total",
            "Prompt tokens found in caches.",
            c.cached_tokens,
        ),
    ]
}

fn program_counters(c: &Counters) -> [CounterRow; 8] {
    [
        (
            "treadle_programs_opened_total",
            "Programs opened.",
            c.programs_opened,
        ),
        (
            "treadle_programs_closed_total",
            "Programs over.",
            c.programs_closed,
        ),
        ("treadle_pauses_total", "Programs paused.", c.pauses),
        (
            "treadle_restores_total",
            "Paused programs restored.",
            c.restores,
        ),
        (
            "treadle_moves_total",
            "Restores to another worker.",
            c.moves,
        ),
        (
            "treadle_migrations_total",
            "KV caches moved between workers.",
            c.migrations,
        ),
        (
            "treadle_migrations_cancelled_total",
            "Moves of KV caches given up.",
            c.migrations_cancelled,
        ),
        (
            "treadle_preemptions_total",
            "Steps taken back for a more urgent one.",
            c.preemptions,
        ),
    ]
}

fn policy_counters(p: &PolicyStatistics) -> [CounterRow; 5] {
    [
        (
            "treadle_policy_answers_total",
            "Questions the bound policy answered.",
            p.answered,
        ),
        (
            "treadle_policy_fallbacks_total",
            "Questions the default answered.",
            p.fallbacks,
        ),
        (
            "treadle_policy_faults_total",
            "Faults of bound policies.",
            p.faults,
        ),
        ("treadle_policy_swaps_total", "Bindings changed.", p.swaps),
        (
            "treadle_policy_rollbacks_total",
            "Bindings given up after faults.",
            p.rollbacks,
        ),
    ]
}

/// Resident memory of this process, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}
