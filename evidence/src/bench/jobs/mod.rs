//! `treadle-bench jobs`: jobs of several hundred agents over HTTP on engines that nobody
//! calibrated, under plain routing, pinning, the defaults, and Heddle's policies with and without
//! a calibration written by hand; and what was learnt of the engines beside the truth.

mod engines;
mod run;
mod systems;

use super::figures::{Figure, Report};
use super::real_engines::RealEnginesArgs;
use super::{BenchError, report_progress};
use clap::Args;
use engines::Engines;
use run::{Ended, Job};
use serde_json::json;
use systems::System;
use treadle_simulator::workload::{AgentModel, AgentRun, AgentTask, RolloutWorkload};

/// Programs of a prompt.
const SAMPLES: u32 = 8;

const NOTE: &str = "Agents over HTTP on simulated engines, two of each of two kinds, or on those of \
    --engines. makespan.* and p99.* are in scaled seconds; over_least_load.* is least load's makespan \
    over that of the system, of the same job; means over seeds; each seed is under details. \
    learnt.* is the time of a token alone over the truth, near.* the most steps that a job had finished \
    when it was first within a tenth (0: measured at registration; -1: never).";

/// Arguments of `treadle-bench jobs`.
#[derive(Args, Clone, Debug)]
pub(super) struct JobsArgs {
    /// How much faster than real time all clocks run.
    #[arg(long, default_value_t = 40.0)]
    time_scale: f64,
    /// Programs of a job.
    #[arg(long, default_value_t = 320, value_parser = clap::value_parser!(u32).range(8..=10_000))]
    programs: u32,
    /// What the agents do: coding, search, math.
    #[arg(long, value_delimiter = ',', value_parser = task, default_values_t = ["coding".to_owned(), "search".to_owned()])]
    tasks: Vec<String>,
    /// First seed of the jobs.
    #[arg(long, default_value_t = 31)]
    seed: u64,
    /// Seeds from that one on.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=32))]
    seeds: u64,
    #[command(flatten)]
    real_engines: RealEnginesArgs,
}

fn task(name: &str) -> Result<String, String> {
    let known = AgentTask::named(name).map(|_| name.to_owned());
    known.ok_or_else(|| "give coding, search or math".to_owned())
}

impl JobsArgs {
    /// Runs each job under each system.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let engines = Engines::meet(self).await?;
        let mut report = Report::new("jobs");
        report.setting("time_scale", self.time_scale);
        report.setting("programs", self.programs);
        report.setting("seed", self.seed);
        report.setting("seeds", self.seeds);
        report.setting("engines", engines.names());
        report.setting("engines_simulated", engines.are_simulated());
        report.note(NOTE);
        let mut details = Vec::new();
        for name in &self.tasks {
            let mut cases = [Case::default(), Case::default()];
            for seed in self.seed..self.seed + self.seeds {
                let mut runs = self.runs(name, seed, quick)?;
                engines.fit(&mut runs);
                let count = runs.len();
                let mut job = Job {
                    args: self,
                    engines: &engines,
                    seed,
                    begins_s: vec![0.0; count],
                    runs,
                };
                let makespan_s = cases[0].add(&format!("{name}.together"), &job).await?;
                // Spread over half of the time that they take under least load when all come at once.
                let every_s = makespan_s / 2.0 / count as f64;
                job.begins_s = (0..count).map(|n| n as f64 * every_s).collect();
                if !quick {
                    cases[1].add(&format!("{name}.trickling"), &job).await?;
                }
            }
            for (case, arrival) in cases.iter().zip(["together", "trickling"]) {
                case.push(&mut report, &format!("{name}.{arrival}"));
                details.extend(case.details(&format!("{name}.{arrival}")));
            }
        }
        report.detail("runs", details.into());
        Ok(report)
    }

    fn runs(&self, task: &str, seed: u64, quick: bool) -> Result<Vec<AgentRun>, BenchError> {
        let programs = if quick { 16 } else { self.programs };
        let workload = RolloutWorkload {
            task: AgentTask::named(task).unwrap_or(AgentTask::Coding),
            model: AgentModel::Qwen3Of14B,
            prompts: programs.div_ceil(SAMPLES),
            samples: SAMPLES,
            seed,
            ..RolloutWorkload::default()
        };
        Ok(workload.generate()?)
    }
}

/// The runs of a job that arrives in one way: of each seed, under each system.
#[derive(Default)]
struct Case {
    runs: Vec<(System, u64, Ended)>,
}

impl Case {
    /// Runs a job under each system; gives least load's makespan.
    async fn add(&mut self, name: &str, job: &Job<'_>) -> Result<f64, BenchError> {
        let mut least_load_s = 0.0;
        for system in System::ALL {
            report_progress(&format!(
                "jobs: {}.{name}, seed {} ...",
                system.name(),
                job.seed
            ));
            let ended = job.run(system).await?;
            if system == System::LeastLoad {
                least_load_s = ended.makespan_s;
            }
            self.runs.push((system, job.seed, ended));
        }
        Ok(least_load_s)
    }

    fn of(&self, system: System) -> impl Iterator<Item = &Ended> {
        let is_of = move |run: &&(System, u64, Ended)| run.0 == system;
        self.runs.iter().filter(is_of).map(|run| &run.2)
    }

    fn push(&self, report: &mut Report, of_job: &str) {
        for system in System::ALL {
            let name = format!("{}.{of_job}", system.name());
            let least_load = self.of(System::LeastLoad);
            let pairs = self.of(system).zip(least_load);
            let over = mean(pairs.map(|(run, least)| least.makespan_s / run.makespan_s));
            let makespan_s = mean(self.of(system).map(|run| run.makespan_s));
            let p99_s = mean(self.of(system).map(|run| run.p99_s));
            for (figure, value, unit) in [
                ("makespan", makespan_s, "s"),
                ("p99", p99_s, "s"),
                ("over_least_load", over, "times"),
            ] {
                if let Some(value) = value {
                    report.push(Figure::new(format!("{figure}.{name}"), value, unit));
                }
            }
        }
        self.push_learnt(report, of_job);
    }

    /// What was learnt of each engine under Heddle's policies.
    fn push_learnt(&self, report: &mut Report, of_job: &str) {
        let engines = self.of(System::Heddle).next();
        for engine in 0..engines.map_or(0, |run| run.learnt.len()) {
            let known = || self.of(System::Heddle).map(|run| &run.learnt[engine]);
            let share = mean(known().map(|one| one.token_us as f64 / one.truth_us as f64));
            let near = known().map(|one| one.near_after.map_or(-1.0, |steps| steps as f64));
            // One that never was is worse than any.
            let worst = near.reduce(|one, other| {
                if one < 0.0 || other < 0.0 {
                    -1.0
                } else {
                    one.max(other)
                }
            });
            for (figure, value, unit) in
                [("learnt", share, "of the truth"), ("near", worst, "steps")]
            {
                if let Some(value) = value {
                    let name = format!("{figure}.{of_job}.{engine}");
                    report.push(Figure::new(name, value, unit));
                }
            }
        }
    }

    fn details(&self, of_job: &str) -> Vec<serde_json::Value> {
        let detail = |(system, seed, ended): &(System, u64, Ended)| {
            json!({
                "job": of_job, "system": system.name(), "seed": seed,
                "makespan_s": ended.makespan_s, "p99_s": ended.p99_s,
            })
        };
        self.runs.iter().map(detail).collect()
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
