//! The result of a simulated run.

use super::Cluster;
use serde::Serialize;
use treadle_core::memory::{TokenTime, Use};
use treadle_core::programs::Worker;
use treadle_engine_model::engine::Ranks;
use treadle_model::{Span, Timestamp};

/// Use of the engines' KV memory, by the core's ledger: shares of what was charged or unused
/// (`ThunderAgent` §4.2). All zero in the mode without a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KvShares {
    /// Generating programs.
    pub decode: f64,
    /// Prefill of new prompt tokens.
    pub prefill: f64,
    /// Recomputation of history.
    pub recompute: f64,
    /// Programs between steps.
    pub caching: f64,
    /// Caches in transfer.
    pub transfer: f64,
    /// Prefixes shared by several programs.
    pub shared: f64,
    /// Unused memory.
    pub unused: f64,
}

impl KvShares {
    /// Converts sums to shares.
    pub fn of(sums: &TokenTime) -> Self {
        let mut shares = Self::default();
        for (what, share) in sums.shares() {
            let field = match what {
                Use::Decode => &mut shares.decode,
                Use::Prefill => &mut shares.prefill,
                Use::Recompute => &mut shares.recompute,
                Use::Caching => &mut shares.caching,
                Use::Transfer => &mut shares.transfer,
                Use::Shared => &mut shares.shared,
                Use::Unused => &mut shares.unused,
            };
            *field = share;
        }
        shares
    }
}

/// An engine's speed as measured by the core; `None` if there were too few samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredSpeed {
    /// Prompt tokens computed per second.
    pub prefill_tokens_per_s: Option<u64>,
    /// Time per token of a step that runs by itself, in microseconds.
    pub token_us: Option<u64>,
    /// Additional time for each further step, in microseconds.
    pub step_us: Option<u64>,
}

/// Figures of a simulated run. Times are virtual.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Number of answered steps.
    pub steps: u64,
    /// Number of steps without an answer.
    pub refused: u64,
    /// The time that the figures cover, in seconds.
    pub makespan_s: f64,
    /// Steps answered per minute.
    pub steps_per_min: f64,
    /// Median time from sending a step to its answer, in seconds.
    pub step_p50_s: f64,
    /// 95th percentile of that time.
    pub step_p95_s: f64,
    /// 99th percentile of that time.
    pub step_p99_s: f64,
    /// Share of prompt tokens found in caches.
    pub hit_rate: f64,
    /// Tokens computed other than by decoding.
    pub prefilled_tokens: u64,
    /// Number of requests that engines preempted.
    pub preemptions: u64,
    /// Number of pauses.
    pub pauses: u64,
    /// Number of paused programs restored on another engine.
    pub moves: u64,
    /// Number of caches offloaded to host memory.
    pub offloads: u64,
    /// Number of caches loaded back.
    pub loads: u64,
    /// Number of caches moved to another engine.
    pub migrations: u64,
    /// Use of KV memory.
    pub kv: KvShares,
    /// Number of events that the core handled.
    pub core_events: u64,
    /// Speed of each engine as measured by the core.
    pub speeds: Vec<MeasuredSpeed>,
}

impl Cluster<'_> {
    pub(super) fn report(&self) -> Report {
        let mut latencies = self.latencies_us.clone();
        // Open steps count with their ages: a scheduler must not look good by never answering some.
        let open = self
            .steps
            .values()
            .map(|s| self.now - self.agents.sent_at(s.agent));
        latencies.extend(open);
        latencies.sort_unstable();
        let at = |share: f64| percentile(&latencies, share) as f64 / 1e6;
        let steps = self.latencies_us.len() as u64;
        let makespan_s = (self.now - self.options.count_from_us.min(self.now)) as f64 / 1e6;
        let counters = self.core.programs().counters;
        let ranks = self.engines.iter().flat_map(Ranks::snapshots);
        let engines = ranks.map(|rank| rank.counters);
        let prefilled_tokens = engines.clone().map(|c| c.prefilled_tokens).sum();
        let preemptions = engines.map(|c| c.preemptions).sum();

        Report {
            steps,
            refused: self.refused,
            makespan_s,
            steps_per_min: steps as f64 / makespan_s.max(1e-9) * 60.0,
            step_p50_s: at(0.50),
            step_p95_s: at(0.95),
            step_p99_s: at(0.99),
            hit_rate: self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64,
            prefilled_tokens,
            preemptions,
            pauses: counters.pauses,
            moves: counters.moves,
            offloads: counters.offloads,
            loads: counters.loads,
            migrations: counters.migrations,
            kv: KvShares::of(&self.kv_uses(self.now).since(&self.kv_before)),
            core_events: self.events,
            speeds: self.speeds(),
        }
    }

    fn speeds(&self) -> Vec<MeasuredSpeed> {
        let workers = self.core.programs().workers.values();
        let seen = |w: &Worker| {
            let decode = w.speeds.decode_time();
            MeasuredSpeed {
                prefill_tokens_per_s: w.speeds.prefill_tokens_per_s(),
                token_us: decode.map(|time| time.alone.micros()),
                step_us: decode.and_then(|time| time.further).map(Span::micros),
            }
        };
        workers.map(seen).collect()
    }

    /// Use of all engines' memory up to a time.
    pub(super) fn kv_uses(&self, at_us: u64) -> TokenTime {
        let workers = self.core.programs().workers.values();
        let sums = workers.map(|w| w.ledger.account().at(Timestamp(at_us)));
        sums.fold(TokenTime::default(), |all, one| all.plus(&one))
    }
}

/// The value below which `share` of the sorted values lie (nearest rank).
pub fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .or(sorted.last())
        .copied()
        .unwrap_or(0)
}
