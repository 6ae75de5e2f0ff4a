//! Metrics of transfers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use treadle_scheduler::orders::Kind;
use treadle_transfer::TierUsage;

type Reading = fn(&Row) -> f64;

const KINDS: [(Kind, &str); 3] = [
    (Kind::Offload, "offload"),
    (Kind::Load, "load"),
    (Kind::Migrate, "migrate"),
];

/// Counters of transfers.
#[derive(Default)]
pub struct TransferStats {
    done: [Row; KINDS.len()],
    /// By error code, so their number is bounded.
    failures: Mutex<BTreeMap<&'static str, u64>>,
    cancelled: AtomicU64,
}

#[derive(Default)]
struct Row {
    transfers: AtomicU64,
    took_us: AtomicU64,
    bytes: AtomicU64,
}

impl TransferStats {
    pub(super) fn done(&self, kind: Kind, bytes: u64, took: Duration) {
        for (row, (of, _)) in self.done.iter().zip(KINDS) {
            if of == kind {
                row.transfers.fetch_add(1, Ordering::Relaxed);
                row.took_us
                    .fetch_add(took.as_micros() as u64, Ordering::Relaxed);
                row.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn failed(&self, code: &'static str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry(code).or_default() += 1;
    }

    pub(super) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything in Prometheus' text format.
    pub(super) fn render(&self, tier: Option<&TierUsage>) -> String {
        let mut text = String::new();
        let families: [(&str, &str, Reading); 3] = [
            (
                "treadle_kv_transfers_total",
                "Transfers of KV caches that succeeded.",
                |row| row.transfers.load(Ordering::Relaxed) as f64,
            ),
            (
                "treadle_kv_transfer_seconds_total",
                "Time that they took.",
                |row| row.took_us.load(Ordering::Relaxed) as f64 / 1e6,
            ),
            (
                "treadle_kv_transfer_bytes_total",
                "Bytes that they moved, where the engine reports it.",
                |row| row.bytes.load(Ordering::Relaxed) as f64,
            ),
        ];
        for (name, help, reading) in families {
            head(&mut text, name, "counter", help);
            for (row, (_, kind)) in self.done.iter().zip(KINDS) {
                // Writing to a string can't fail.
                let _ = writeln!(text, "{name}{{kind=\"{kind}\"}} {}", reading(row));
            }
        }
        let name = "treadle_kv_transfer_failures_total";
        head(
            &mut text,
            name,
            "counter",
            "Transfers that failed, by cause.",
        );
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        for (code, count) in &*failures {
            let _ = writeln!(text, "{name}{{cause=\"{code}\"}} {count}");
        }
        let name = "treadle_kv_transfers_cancelled_total";
        head(&mut text, name, "counter", "Transfers that were cancelled.");
        let _ = writeln!(text, "{name} {}", self.cancelled.load(Ordering::Relaxed));
        if let Some(tier) = tier {
            for (name, help, value) in [
                (
                    "treadle_kv_tier_bytes",
                    "Bytes in this node's host tier.",
                    tier.bytes,
                ),
                ("treadle_kv_tier_bytes_max", "Its bound.", tier.bytes_max),
                (
                    "treadle_kv_tier_copies",
                    "Copies in it.",
                    tier.copies as u64,
                ),
            ] {
                head(&mut text, name, "gauge", help);
                let _ = writeln!(text, "{name} {value}");
            }
        }
        text
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
