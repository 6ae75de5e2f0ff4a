//! Sets of policies side by side.

use super::divergence::{Choices, Difference};
use super::replay::{Outcome, PolicyRecord};
use super::statistics::Estimate;
use super::workload::{Cuts, Recorded, RecordedWorker, Workload};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Jobs reported for each outcome: a window may have as many as programs, and outcomes are many.
const JOBS_REPORTED_MAX: usize = 200;

/// A figure's mean and interval under one set.
pub type Interval = Estimate;

/// How a set compares with the first one: its figure over the first's, seed by seed.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfChange)]
pub struct Change {
    /// Makespan over makespan; below 1 is faster.
    pub makespan_ratio: Estimate,
    /// Throughput over throughput.
    pub steps_per_min_ratio: Estimate,
    /// 99th percentile of a step over that.
    pub step_p99_ratio: Estimate,
    /// Programs about which other things were decided, under the first seed.
    pub programs_decided_otherwise: usize,
    /// The first of those decisions, by time.
    pub differences: Vec<Difference>,
}

/// A policy that a set asked.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfPolicy)]
pub struct AskedPolicy {
    /// Its world.
    pub world: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it was configured with.
    #[schema(value_type = Object)]
    pub config: Value,
    /// Whether it was not chosen: it is the default of the set's settings, or what answers anyway.
    pub is_default: bool,
}

/// What one set came to over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfSet)]
pub struct SetReport {
    /// The set's name.
    pub name: String,
    /// Makespan in seconds.
    pub makespan_s: Estimate,
    /// Steps answered a minute.
    pub steps_per_min: Estimate,
    /// Share of prompt tokens found in caches.
    pub hit_rate: Estimate,
    /// Median time of a step, in seconds.
    pub step_p50_s: Estimate,
    /// 95th percentile.
    pub step_p95_s: Estimate,
    /// 99th percentile.
    pub step_p99_s: Estimate,
    /// Jain's index of the programs' slowdowns.
    pub fairness: Estimate,
    /// The same of the jobs'.
    pub job_fairness: Estimate,
    /// Programs paused.
    pub pauses: Estimate,
    /// Paused programs restored elsewhere.
    pub moves: Estimate,
    /// Requests that engines preempted.
    pub preemptions: Estimate,
    /// Caches that went to host memory.
    pub offloads: Estimate,
    /// Caches moved to another engine.
    pub migrations: Estimate,
    /// Steps that were not answered, all seeds together.
    pub refused: u64,
    /// Seeds under which it was cancelled before all programs had ended: its figures are too good.
    pub given_up: u64,
    /// The policies that it asked; none of a set that has only what is built in.
    pub asked: Vec<AskedPolicy>,
    /// Statistics of the questions to its policies, all seeds together. Where a policy was rolled
    /// back, the figures are those of the built-in default, not of the set.
    pub policies: PolicyRecord,
    /// Against the first set; nothing for that one itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_first: Option<Change>,
    /// The outcomes seed by seed.
    pub seeds: Vec<Outcome>,
}

/// The report of a what-if run.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfComparison)]
pub struct Comparison {
    /// Programs repeated.
    pub programs: u64,
    /// Their steps.
    pub steps: u64,
    /// Programs that took the slot of one that ended.
    pub seat_takers: u64,
    /// Waves of programs.
    pub waves: u64,
    /// Jobs in all; of each outcome those with the most programs are reported.
    pub jobs: u64,
    /// What is not as it was.
    pub cuts: Cuts,
    /// What the window itself came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// The engines of the window.
    pub workers: Vec<RecordedWorker>,
    /// One for each set, in their order.
    pub sets: Vec<SetReport>,
}

impl Comparison {
    /// Puts outcomes together: for each set its name and one outcome a seed, the same seeds for
    /// all. Of decisions that differ at most `differences_max` are reported.
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
            // They are many, and compared now.
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
            // The plan knows.
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
