//! Prometheus metrics. The doc comment of each metric is its help text; gauges
//! are read from the scheduler's state when scraped, so they cannot drift.

mod engines;

use treadle_core::programs::Counters;
use treadle_core::programs::{Totals, WorkerTotals};
use treadle_model::WorkerId;
use treadle_wire::EngineReading;

use treadle_engines::Drift;
use treadle_gateway::Metrics;
use treadle_http::{Exposition, escape};
use treadle_policy::evaluator::PolicyStatistics;

/// Everything in Prometheus' text format.
pub(crate) fn render(
    gateway: &Metrics,
    totals: &Totals,
    counters: &Counters,
    policy: &PolicyStatistics,
    engine: &dyn Fn(WorkerId) -> Option<(EngineReading, Drift)>,
) -> String {
    let mut text = Exposition::default();
    gateway.render(&mut text);
    render_state(&mut text, totals);
    render_workers(&mut text, totals);
    engines::render(&mut text, totals, engine);
    render_counters(&mut text, counters, policy);
    text.into_string()
}

fn render_state(text: &mut Exposition, totals: &Totals) {
    text.gauge("treadle_programs", "Live programs.", totals.programs);
    text.gauge(
        "treadle_programs_reasoning",
        "Programs with a running step.",
        totals.reasoning,
    );
    text.gauge(
        "treadle_programs_acting",
        "Programs between steps.",
        totals.acting,
    );
    text.gauge("treadle_programs_paused", "Paused programs.", totals.paused);
    text.gauge(
        "treadle_queue_programs",
        "Programs waiting for placement.",
        totals.queued_programs,
    );
    text.gauge(
        "treadle_queue_steps",
        "Steps waiting for placement.",
        totals.waiting_steps,
    );
    text.gauge(
        "treadle_steps_running",
        "Steps at engines.",
        totals.running_steps,
    );
    text.gauge(
        "treadle_asks_open",
        "Unanswered questions to policies.",
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
    type Column = (&'static str, &'static str, fn(&WorkerTotals) -> Option<u64>);
    let columns: [Column; 12] = [
        ("treadle_worker_healthy", "1 if the engine responds.", |w| {
            Some(u64::from(w.healthy))
        }),
        (
            "treadle_worker_takes_programs",
            "1 if the engine accepts programs: it responds, is neither cordoned nor draining, and does \
             not only compute prompts.",
            |w| Some(u64::from(w.takes_programs)),
        ),
        (
            "treadle_worker_capacity_tokens",
            "KV cache capacity of the engine.",
            |w| w.capacity_tokens,
        ),
        (
            "treadle_worker_used_tokens",
            "KV cache in use according to the ledger.",
            |w| Some(w.used_tokens),
        ),
        (
            "treadle_worker_shared_tokens",
            "KV cache in use by shared prefixes according to the ledger.",
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
        (
            "treadle_worker_prefills_running",
            "Prompts that the engine computes for steps of decode workers.",
            |w| (!w.role.holds_programs()).then_some(w.prefills),
        ),
        ("treadle_worker_slots_taken", "Slots in use.", |w| {
            Some(w.slots_taken)
        }),
        (
            "treadle_worker_host_tokens",
            "Host memory to which the engine itself offloads, as measured.",
            |w| Some(w.host_tokens),
        ),
        (
            "treadle_worker_prefill_tokens_per_second",
            "Prompt tokens that the engine computes per second, as measured.",
            |w| w.prefill_tokens_per_s,
        ),
    ];
    for (name, help, value) in columns {
        text.head(name, "gauge", help);
        for worker in &totals.workers {
            if let Some(value) = value(worker) {
                text.row(name, &labels_of(worker), value);
            }
        }
    }
}

/// The labels of a worker's rows: its address, and its role if it has one.
fn labels_of(worker: &WorkerTotals) -> String {
    let url = escape(&worker.url);
    match worker.role.name_if_set() {
        Some(role) => format!("worker=\"{url}\",role=\"{role}\""),
        None => format!("worker=\"{url}\""),
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

fn step_counters(c: &Counters) -> [CounterRow; 10] {
    [
        (
            "treadle_steps_arrived_total",
            "Steps that arrived.",
            c.steps_arrived,
        ),
        (
            "treadle_steps_finished_total",
            "Steps with a complete response.",
            c.steps_finished,
        ),
        (
            "treadle_steps_refused_total",
            "Steps refused.",
            c.steps_refused,
        ),
        (
            "treadle_steps_cancelled_total",
            "Steps cancelled by clients.",
            c.steps_cancelled,
        ),
        (
            "treadle_steps_failed_total",
            "Steps that engines failed permanently.",
            c.steps_failed,
        ),
        (
            "treadle_steps_rejected_total",
            "Steps whose requests engines refused as wrong, with a status such as 400.",
            c.steps_rejected,
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
            "treadle_cache_reported_prompt_tokens_total",
            "Prompt tokens of finished steps whose engine reports its cache hits.",
            c.cache_reported_tokens,
        ),
        (
            "treadle_cached_tokens_total",
            "Prompt tokens of finished steps found in caches.",
            c.cached_tokens,
        ),
    ]
}

fn program_counters(c: &Counters) -> [CounterRow; 10] {
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
            "Abandoned moves of KV caches.",
            c.migrations_cancelled,
        ),
        (
            "treadle_preemptions_total",
            "Steps preempted for a more urgent one.",
            c.preemptions,
        ),
        (
            "treadle_prefills_total",
            "Steps whose prompt was sent to a prefill worker.",
            c.prefills,
        ),
        (
            "treadle_prefills_failed_total",
            "Those whose prefill worker failed, or could not be used.",
            c.prefills_failed,
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
            "Bindings ended after faults.",
            p.rollbacks,
        ),
    ]
}

/// Resident memory of this process, where the system reports it.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}
