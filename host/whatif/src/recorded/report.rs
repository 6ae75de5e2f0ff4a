//! Compares sets of policies.

use super::divergence::{Choices, Difference};
use super::replay::{Outcome, PolicyRecord};
use super::statistics::Estimate;
use super::workload::{Cuts, Recorded, RecordedWorker, Workload};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Maximum number of jobs reported for each of the many outcomes.
const JOBS_REPORTED_MAX: usize = 200;

/// Mean and confidence interval of a figure under one set.
pub type Interval = Estimate;

/// A set's figures divided by the first set's, seed by seed.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfChange)]
pub struct Change {
    /// Ratio of makespans; below 1 is faster.
    pub makespan_ratio: Estimate,
    /// Ratio of throughputs.
    pub steps_per_min_ratio: Estimate,
    /// Ratio of the steps' 99th percentiles.
    pub step_p99_ratio: Estimate,
    /// Number of programs with differing decisions, under the first seed.
    pub programs_decided_otherwise: usize,
    /// The first differing decisions, by time.
    pub differences: Vec<Difference>,
}

/// A policy that a set calls.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WhatIfPolicy {
    /// Its world.
    pub world: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its configuration.
    #[schema(value_type = Object)]
    pub config: Value,
    /// Whether it is a default, of the set's settings or of the mode, rather than chosen.
    pub is_default: bool,
}

/// The results of one set over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfSet)]
pub struct SetReport {
    /// The set's name.
    pub name: String,
    /// Makespan in seconds.
    pub makespan_s: Estimate,
    /// Answered steps per minute.
    pub steps_per_min: Estimate,
    /// Share of prompt tokens found in caches.
    pub hit_rate: Estimate,
    /// Median time of a step, in seconds.
    pub step_p50_s: Estimate,
    /// 95th percentile of the steps' times.
    pub step_p95_s: Estimate,
    /// 99th percentile of the steps' times.
    pub step_p99_s: Estimate,
    /// Jain's index of the programs' slowdowns.
    pub fairness: Estimate,
    /// Jain's index of the jobs' mean slowdowns.
    pub job_fairness: Estimate,
    /// Number of pauses.
    pub pauses: Estimate,
    /// Number of paused programs restored on another engine.
    pub moves: Estimate,
    /// Number of requests that engines preempted.
    pub preemptions: Estimate,
    /// Number of caches offloaded to host memory.
    pub offloads: Estimate,
    /// Number of caches moved to another engine.
    pub migrations: Estimate,
    /// Number of steps without an answer, over all seeds.
    pub refused: u64,
    /// Number of seeds whose replay was cancelled at its timeout: the figures are too good.
    pub given_up: u64,
    /// The policies that the set calls; empty if it only has built-in ones.
    pub asked: Vec<WhatIfPolicy>,
    /// Statistics of the calls to its policies, over all seeds. After a rollback the figures are
    /// those of the built-in default, not of the set.
    pub policies: PolicyRecord,
    /// Comparison with the first set; absent for the first set itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_first: Option<Change>,
    /// The outcomes, seed by seed.
    pub seeds: Vec<Outcome>,
}

/// The report of a what-if run.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfComparison)]
pub struct Comparison {
    /// Number of programs replayed.
    pub programs: u64,
    /// Number of their steps.
    pub steps: u64,
    /// Number of programs that took the slot of one that ended.
    pub seat_takers: u64,
    /// Number of waves of programs.
    pub waves: u64,
    /// Number of jobs; each outcome lists those with the most programs.
    pub jobs: u64,
    /// What the replay leaves out or changes.
    pub cuts: Cuts,
    /// The recorded outcome of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// The engines of the window.
    pub workers: Vec<RecordedWorker>,
    /// One report for each set, in their order.
    pub sets: Vec<SetReport>,
}

impl Comparison {
    /// Combines outcomes: for each set its name and one outcome per seed, the same seeds for all
    /// sets. At most `differences_max` differing decisions are reported.
    pub fn of(
        workload: &Workload,
        outcomes: Vec<(String, Vec<Outcome>)>,
        differences_max: usize,
    ) -> Self {
        let (first, others) = outcomes.split_first().unzip();
        let changes = others.into_iter().flatten().map(|(_, own)| {
            let (_, first) = first?;
            Some(Change::of(first, own, differences_max))
        });
        let changes: Vec<Option<Change>> = std::iter::once(None).chain(changes).collect();
        let sets = outcomes.into_iter().zip(changes);
        let sets = sets.map(|((name, mut own), change)| {
            // Decisions take much memory and are not needed after the comparison.
            for outcome in &mut own {
                outcome.choices = Choices::default();
                if outcome.jobs.len() > JOBS_REPORTED_MAX {
                    outcome
                        .jobs
                        .sort_by_key(|job| std::cmp::Reverse(job.programs));
                    outcome.jobs.truncate(JOBS_REPORTED_MAX);
                }
            }
            SetReport::of(name, own, change)
        });
        let sets = sets.collect();
        let takes_slot = |start: &&treadle_simulator::cluster::RunStart| {
            matches!(start.begin, treadle_simulator::cluster::Begin::Slot { .. })
        };
        Self {
            programs: workload.runs.len() as u64,
            steps: workload.steps(),
            seat_takers: workload.schedule.runs.iter().filter(takes_slot).count() as u64,
            waves: workload.schedule.waves.len() as u64,
            jobs: workload.schedule.jobs.len() as u64,
            cuts: workload.cuts,
            recorded: workload.recorded,
            workers: workload.workers.clone(),
            sets,
        }
    }
}

impl SetReport {
    fn of(name: String, seeds: Vec<Outcome>, against_first: Option<Change>) -> Self {
        let estimate = |figure: fn(&Outcome) -> f64| {
            Estimate::of(&seeds.iter().map(figure).collect::<Vec<_>>())
        };
        Self {
            name,
            makespan_s: estimate(|seed| seed.makespan_s),
            steps_per_min: estimate(|seed| seed.steps_per_min),
            hit_rate: estimate(|seed| seed.hit_rate),
            step_p50_s: estimate(|seed| seed.step_p50_s),
            step_p95_s: estimate(|seed| seed.step_p95_s),
            step_p99_s: estimate(|seed| seed.step_p99_s),
            fairness: estimate(|seed| seed.fairness),
            job_fairness: estimate(|seed| seed.job_fairness),
            pauses: estimate(|seed| seed.pauses as f64),
            moves: estimate(|seed| seed.moves as f64),
            preemptions: estimate(|seed| seed.preemptions as f64),
            offloads: estimate(|seed| seed.offloads as f64),
            migrations: estimate(|seed| seed.migrations as f64),
            refused: seeds.iter().map(|seed| seed.refused).sum(),
            // The plan sets it.
            asked: Vec::new(),
            given_up: seeds.iter().filter(|seed| !seed.whole).count() as u64,
            policies: seeds.iter().fold(PolicyRecord::default(), |all, seed| {
                all.plus(&seed.policies)
            }),
            against_first,
            seeds,
        }
    }
}

impl Change {
    fn of(first: &[Outcome], own: &[Outcome], differences_max: usize) -> Self {
        let ratio = |figure: fn(&Outcome) -> f64| {
            let pairs = first.iter().zip(own);
            let ratios = pairs.map(|(first, own)| figure(own) / figure(first).max(1e-9));
            Estimate::of(&ratios.collect::<Vec<_>>())
        };
        let pair = first.first().zip(own.first());
        let (programs_decided_otherwise, differences) = pair.map_or((0, Vec::new()), |(a, b)| {
            a.choices.differences(&b.choices, differences_max)
        });
        Self {
            makespan_ratio: ratio(|seed| seed.makespan_s),
            steps_per_min_ratio: ratio(|seed| seed.steps_per_min),
            step_p99_ratio: ratio(|seed| seed.step_p99_s),
            programs_decided_otherwise,
            differences,
        }
    }
}
