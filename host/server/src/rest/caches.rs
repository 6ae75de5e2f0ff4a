//! Where the KV caches of programs are.

use serde_json::{Value, json};
use treadle_core::State;
use treadle_core::offload::Direction;
use treadle_core::program::Program;
use treadle_core::state::Counters;
use treadle_http::{counter, gauge};
use treadle_model::WorkerId;

/// Where a program's cache is, as far as the scheduler knows; nothing if it is to be computed again.
pub(super) fn of_program(state: &State, p: &Program) -> Value {
    let url = |worker: WorkerId| state.workers.get(&worker).map(|w| &w.url);
    if let Some(transfer) = state.offloads.moving.get(&p.id) {
        let at = match transfer.direction {
            Direction::Out => "to_host",
            Direction::Back => "to_worker",
        };
        return json!({"at": at, "worker": url(transfer.worker), "tokens": transfer.tokens});
    }
    if let Some(moving) = state.migrations.moving.get(&p.id) {
        let (from, to) = (url(moving.from), url(moving.to));
        return json!({
            "at": "between_workers", "worker": to, "from": from, "tokens": moving.tokens,
        });
    }
    if let Some(held) = state.offloads.held.get(&p.id) {
        return json!({"at": "host", "tokens": held.tokens, "bytes": held.bytes});
    }
    match p.place {
        Some(place) if p.steps_finished > 0 => {
            json!({"at": "worker", "worker": url(place.worker), "tokens": p.context_tokens})
        }
        _ => Value::Null,
    }
}

/// Sums over the caches that are not at an engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostTotals {
    programs: usize,
    tokens: u64,
    bytes: u64,
    in_transfer: usize,
}

impl HostTotals {
    pub(super) fn of(state: &State) -> Self {
        let offloads = &state.offloads;
        Self {
            programs: offloads.held.len(),
            tokens: offloads.held_tokens,
            bytes: offloads.held.values().map(|held| held.bytes).sum(),
            in_transfer: offloads.moving.len() + state.migrations.moving.len(),
        }
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "held_programs": self.programs,
            "held_tokens": self.tokens,
            "held_bytes": self.bytes,
            "in_transfer": self.in_transfer,
        })
    }

    /// The same as metrics, with what was counted.
    pub(super) fn render(self, counters: &Counters) -> String {
        let gauges = [
            (
                "treadle_kv_held_programs",
                "Programs whose KV cache is in host memory.",
                self.programs as u64,
            ),
            (
                "treadle_kv_held_tokens",
                "Context in host memory, in tokens.",
                self.tokens,
            ),
            (
                "treadle_kv_held_bytes",
                "The same in bytes, where engines report it.",
                self.bytes,
            ),
            (
                "treadle_kv_in_transfer",
                "KV caches on their way.",
                self.in_transfer as u64,
            ),
        ];
        let gauges = gauges.map(|(name, help, value)| gauge(name, help, value));
        let counters = counted(counters).map(|(name, help, value)| counter(name, help, value));
        gauges.concat() + &counters.concat()
    }
}

fn counted(c: &Counters) -> [(&'static str, &'static str, u64); 6] {
    [
        (
            "treadle_kv_offloads_total",
            "KV caches brought to host memory.",
            c.offloads,
        ),
        (
            "treadle_kv_loads_total",
            "KV caches brought back from there.",
            c.loads,
        ),
        (
            "treadle_kv_prefetches_total",
            "Of these, begun before the step came.",
            c.prefetches,
        ),
        (
            "treadle_kv_migrations_total",
            "KV caches moved between workers.",
            c.migrations,
        ),
        (
            "treadle_kv_transfers_failed_total",
            "Offloads and loads after which the context is computed again.",
            c.transfers_failed,
        ),
        (
            "treadle_kv_copies_lost_total",
            "Copies in host memory that were gone before they were needed.",
            c.copies_lost,
        ),
    ]
}
