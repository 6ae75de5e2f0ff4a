//! Statistics of questions, in total and per version of a policy.

use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use treadle_model::{PolicyRef, World};
use treadle_policy_runtime::PolicyFault;
use utoipa::ToSchema;

/// Maximum number of versions; the one asked least recently is dropped.
const VERSIONS_MAX: usize = 256;

/// Upper bounds of the latency buckets, in microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 12] =
    [1, 2, 5, 10, 20, 50, 100, 250, 1_000, 2_500, 10_000, 100_000];

/// Number of latest answers of a version whose times are kept.
const TIMES_MAX: usize = 512;

/// Outcomes of the questions to all policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = PolicyTotals)]
pub struct PolicyStatistics {
    /// Questions answered by bound policies.
    pub answered: u64,
    /// Questions that a built-in default answered instead.
    pub fallbacks: u64,
    /// Faults of bound policies.
    pub faults: u64,
    /// The latest fault, as readable text.
    pub latest_fault: Option<String>,
    /// Time spent on answers, in microseconds.
    pub asked_us: u64,
    /// The slowest answer, in microseconds.
    pub slowest_us: u64,
    /// Fuel used on answers, about one unit per instruction; 0 unless policies are limited by fuel
    /// instead of time, as in replays. Clients are not shown it.
    #[serde(skip)]
    pub fuel: u64,
    /// How often another policy was bound.
    pub swaps: u64,
    /// How often a binding was rolled back, after repeated faults or because of its regret.
    pub rollbacks: u64,
    /// The longest delay of decisions by a change of bindings, in microseconds.
    pub slowest_swap_us: u64,
}

/// Statistics of the questions to one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VersionStatistics {
    /// Number of questions.
    pub calls: u64,
    /// Number of rows in them.
    pub rows: u64,
    /// Questions that a built-in default had to answer instead.
    pub fallbacks: u64,
    /// Questions that it left to the built-in default.
    pub not_supported: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Its latest fault.
    pub latest_fault: Option<String>,
    /// Computing time, in microseconds.
    pub compute_us: u64,
    /// Its slowest answer, in microseconds.
    pub slowest_us: u64,
    /// Answers by latency: one entry per bound, and one beyond them.
    pub latency_counts: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Times of its latest answers, in microseconds.
    #[serde(skip)]
    times_us: VecDeque<u32>,
    /// Linear memory after its latest answer.
    pub memory_bytes: usize,
    /// Number of restarts.
    pub restarts: u64,
}

impl VersionStatistics {
    /// Records a call and its duration.
    pub fn record_call(&mut self, rows: usize, took: Duration) {
        let us = took.as_micros() as u64;
        self.calls += 1;
        self.rows += rows as u64;
        self.compute_us += us;
        self.slowest_us = self.slowest_us.max(us);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.latency_counts[bucket] += 1;
        if self.times_us.len() == TIMES_MAX {
            self.times_us.pop_front();
        }
        self.times_us.push_back(us.try_into().unwrap_or(u32::MAX));
    }

    /// The given percentile of the times of its latest 512 answers, in microseconds; `None` before
    /// its first.
    pub fn latest_percentile_us(&self, share: f64) -> Option<u64> {
        let mut times: Vec<u32> = self.times_us.iter().copied().collect();
        times.sort_unstable();
        let rank = (share * times.len() as f64).ceil() as usize;
        times.get(rank.saturating_sub(1)).map(|us| (*us).into())
    }

    /// Records a fault.
    pub fn record_fault(&mut self, fault: &PolicyFault) {
        *self.faults.entry(fault.cause()).or_default() += 1;
        self.latest_fault = Some(fault.to_string());
    }

    /// Number of faults of all kinds.
    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Share of its questions that a built-in default answered.
    pub fn fallback_share(&self) -> f64 {
        let questions = self.calls.max(self.fallbacks).max(1);
        self.fallbacks as f64 / questions as f64
    }
}

/// One version's statistics.
#[derive(Clone, Debug)]
pub struct VersionRow {
    /// Its world.
    pub world: World,
    /// The version.
    pub policy: PolicyRef,
    /// The name prefix of the tenant in whose bindings it is asked; empty for the default tenant
    /// and for everyone.
    pub tenant: Box<str>,
    /// Its statistics.
    pub statistics: VersionStatistics,
}

/// World, version and tenant.
type Key = (World, PolicyRef, Box<str>);

/// Statistics of all versions that were asked recently.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    by_version: BTreeMap<Key, (u64, VersionStatistics)>,
    asked: u64,
}

impl Versions {
    /// The statistics of a version in the bindings of a tenant.
    pub(super) fn of(
        &mut self,
        world: World,
        policy: &PolicyRef,
        tenant: &str,
    ) -> &mut VersionStatistics {
        self.asked += 1;
        let key = (world, policy.clone(), tenant.into());
        if self.by_version.len() >= VERSIONS_MAX && !self.by_version.contains_key(&key) {
            let stale = self.by_version.iter().min_by_key(|(_, (asked, _))| *asked);
            if let Some(stale) = stale.map(|(key, _)| key.clone()) {
                self.by_version.remove(&stale);
            }
        }
        let entry = self.by_version.entry(key).or_default();
        entry.0 = self.asked;
        &mut entry.1
    }

    /// All statistics, by world, version and tenant.
    pub(super) fn rows(&self) -> Vec<VersionRow> {
        let entries = self.by_version.iter();
        let row =
            |((world, policy, tenant), (_, statistics)): (&Key, &(u64, VersionStatistics))| {
                VersionRow {
                    world: *world,
                    policy: policy.clone(),
                    tenant: tenant.clone(),
                    statistics: statistics.clone(),
                }
            };
        entries.map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let mut version = VersionStatistics::default();
        for us in [0, 1, 2, 3, 250, 251, 1_000_000] {
            version.record_call(10, Duration::from_micros(us));
        }
        assert_eq!(
            version.latency_counts,
            [2, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1]
        );
        assert_eq!((version.calls, version.rows), (7, 70));
        assert_eq!(version.slowest_us, 1_000_000);
    }

    #[test]
    fn percentiles_are_those_of_the_latest_answers() {
        let mut version = VersionStatistics::default();
        assert_eq!(version.latest_percentile_us(0.5), None);
        version.record_call(1, Duration::from_micros(7));
        assert_eq!(version.latest_percentile_us(0.99), Some(7));
        // Slow answers; the last 112 are among the latest.
        for _ in 0..400 {
            version.record_call(1, Duration::from_millis(9));
        }
        for us in 1..=400 {
            version.record_call(1, Duration::from_micros(us));
        }
        assert_eq!(version.times_us.len(), TIMES_MAX);
        assert_eq!(version.latest_percentile_us(0.5), Some(256));
        assert_eq!(version.latest_percentile_us(0.78), Some(400));
        assert_eq!(version.latest_percentile_us(0.99), Some(9_000));
        assert_eq!(version.latest_percentile_us(0.0), Some(1));
    }

    #[test]
    fn the_version_asked_longest_ago_is_forgotten_first() {
        let mut versions = Versions::default();
        let name = |n: usize| PolicyRef(format!("p@{n}"));
        for n in 0..VERSIONS_MAX {
            versions.of(World::Eviction, &name(n), "");
        }
        versions.of(World::Eviction, &name(0), "");
        versions.of(World::Priority, &name(0), "");
        assert_eq!(versions.rows().len(), VERSIONS_MAX);
        let kept = |n: usize| {
            let mut all = versions.rows().into_iter();
            all.any(|v| v.world == World::Eviction && v.policy == name(n))
        };
        assert!(kept(0) && !kept(1) && kept(2));
    }
}
