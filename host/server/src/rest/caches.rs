//! Locations of programs' KV caches.

use serde::Serialize;
use std::collections::BTreeMap;
use treadle_core::programs::Counters;
use treadle_core::programs::{CacheLocation, CacheTotals};
use treadle_http::{counter, gauge};
use treadle_model::WorkerId;
use utoipa::ToSchema;

/// Location of a program's cache, as the scheduler knows it.
#[derive(Serialize, ToSchema)]
#[serde(tag = "at", rename_all = "snake_case")]
pub(crate) enum CachePlace {
    /// At an engine.
    Worker {
        /// Its URL.
        worker: Option<Box<str>>,
        /// Its length.
        tokens: u64,
    },
    /// In host memory.
    Host {
        /// Its length.
        tokens: u64,
        /// Its size in bytes, if the engine reports it.
        bytes: u64,
    },
    /// In transfer from an engine to host memory.
    ToHost {
        /// The engine's URL.
        worker: Option<Box<str>>,
        /// Its length.
        tokens: u64,
    },
    /// In transfer from host memory back to an engine.
    ToWorker {
        /// The engine's URL.
        worker: Option<Box<str>>,
        /// Its length.
        tokens: u64,
    },
    /// In transfer between two engines.
    BetweenWorkers {
        /// URL of the engine that it goes to.
        worker: Option<Box<str>>,
        /// URL of the engine that it comes from.
        from: Option<Box<str>>,
        /// Its length.
        tokens: u64,
    },
}

impl CachePlace {
    /// Converts a location, with the engines' URLs.
    pub(crate) fn of(location: CacheLocation, urls: &BTreeMap<WorkerId, Box<str>>) -> Self {
        let url = |worker: WorkerId| urls.get(&worker).cloned();
        match location {
            CacheLocation::Worker { worker, tokens } => Self::Worker {
                worker: url(worker),
                tokens,
            },
            CacheLocation::Host { tokens, bytes } => Self::Host { tokens, bytes },
            CacheLocation::ToHost { worker, tokens } => Self::ToHost {
                worker: url(worker),
                tokens,
            },
            CacheLocation::ToWorker { worker, tokens } => Self::ToWorker {
                worker: url(worker),
                tokens,
            },
            CacheLocation::BetweenWorkers { from, to, tokens } => Self::BetweenWorkers {
                worker: url(to),
                from: url(from),
                tokens,
            },
        }
    }
}

/// Sums over the caches that are not at an engine.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(super) struct HostTotals {
    /// Programs whose cache is in host memory.
    held_programs: usize,
    /// Their context, in tokens.
    held_tokens: u64,
    /// Their context in bytes, as far as engines report it.
    held_bytes: u64,
    /// Caches in transfer.
    in_transfer: usize,
}

impl HostTotals {
    pub(super) fn of(totals: CacheTotals) -> Self {
        Self {
            held_programs: totals.held_programs,
            held_tokens: totals.held_tokens,
            held_bytes: totals.held_bytes,
            in_transfer: totals.in_transfer,
        }
    }

    /// Renders the sums and the counters as metrics.
    pub(super) fn render(self, counters: &Counters) -> String {
        let gauges = [
            (
                "treadle_kv_held_programs",
                "Programs whose KV cache is in host memory.",
                self.held_programs as u64,
            ),
            (
                "treadle_kv_held_tokens",
                "Context in host memory, in tokens.",
                self.held_tokens,
            ),
            (
                "treadle_kv_held_bytes",
                "Context in host memory, in bytes, as far as engines report it.",
                self.held_bytes,
            ),
            (
                "treadle_kv_in_transfer",
                "KV caches being transferred.",
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
            "KV caches offloaded to host memory.",
            c.offloads,
        ),
        (
            "treadle_kv_loads_total",
            "KV caches loaded back from host memory.",
            c.loads,
        ),
        (
            "treadle_kv_prefetches_total",
            "Loads that began before the step arrived.",
            c.prefetches,
        ),
        (
            "treadle_kv_migrations_total",
            "KV caches moved between workers.",
            c.migrations,
        ),
        (
            "treadle_kv_transfers_failed_total",
            "Offloads and loads that failed, so that the context is recomputed.",
            c.transfers_failed,
        ),
        (
            "treadle_kv_copies_lost_total",
            "Copies in host memory that were lost before they were used.",
            c.copies_lost,
        ),
    ]
}
