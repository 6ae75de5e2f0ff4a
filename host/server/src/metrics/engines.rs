//! Metrics of engines: their own reports, and the ledger's drift from them.

use super::{Exposition, escape};
use treadle_core::programs::Totals;
use treadle_engines::Drift;
use treadle_model::WorkerId;
use treadle_wire::EngineReading;

/// The engines' own reports, as last read.
pub(super) fn render(
    text: &mut Exposition,
    totals: &Totals,
    engine: &dyn Fn(WorkerId) -> Option<(EngineReading, Drift)>,
) {
    type Column = (
        &'static str,
        &'static str,
        &'static str,
        fn(&EngineReading) -> Option<u64>,
    );
    let columns: [Column; 5] = [
        (
            "treadle_engine_running",
            "gauge",
            "Requests running in the engine.",
            |e| e.running,
        ),
        (
            "treadle_engine_waiting",
            "gauge",
            "Requests waiting in the engine.",
            |e| e.waiting,
        ),
        (
            "treadle_engine_used_tokens",
            "gauge",
            "KV cache that the engine has in use.",
            |e| e.used_tokens,
        ),
        (
            "treadle_engine_prompt_tokens_total",
            "counter",
            "Prompt tokens that the engine looked up in its cache.",
            |e| e.prompt_tokens_total,
        ),
        (
            "treadle_engine_cached_tokens_total",
            "counter",
            "Prompt tokens that the engine found in its cache.",
            |e| e.cached_tokens_total,
        ),
    ];
    let read = |w: &treadle_core::programs::WorkerTotals| Some((w.url.clone(), engine(w.id)?));
    let readings: Vec<_> = totals.workers.iter().filter_map(read).collect();
    for (name, kind, help, value) in columns {
        text.head(name, kind, help);
        for (url, (reading, _)) in &readings {
            if let Some(value) = value(reading) {
                text.row(name, &format!("worker=\"{}\"", escape(url)), value);
            }
        }
    }
    render_drifts(text, &readings);
}

/// The ledger's drift from the engines' reports.
fn render_drifts(text: &mut Exposition, readings: &[(Box<str>, (EngineReading, Drift))]) {
    type Column = (&'static str, &'static str, fn(Drift) -> i64);
    let columns: [Column; 3] = [
        (
            "treadle_worker_ledger_drift_tokens",
            "KV memory that the engine's running requests hold beyond the ledger.",
            |drift| drift.tokens,
        ),
        (
            "treadle_worker_untracked_tokens",
            "KV memory in use by requests that treadle did not send.",
            |drift| drift.untracked_tokens.cast_signed(),
        ),
        (
            "treadle_worker_ledger_drift_alarm",
            "1 while the ledger differs from the engine by more than a tenth of its capacity.",
            |drift| i64::from(drift.alarm),
        ),
    ];
    for (name, help, value) in columns {
        text.head(name, "gauge", help);
        for (url, (_, drift)) in readings {
            text.row(name, &format!("worker=\"{}\"", escape(url)), value(*drift));
        }
    }
}
