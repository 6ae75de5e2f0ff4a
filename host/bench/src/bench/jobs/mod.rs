//! `treadle-bench jobs`: jobs of several hundred agents over HTTP on simulated engines of two kinds
//! that nobody calibrated, under plain routing, the defaults, and Heddle's policies with and without
//! a calibration written by hand; and what was learnt of the engines beside the truth.

mod run;

use super::figures::{Figure, Report};
use super::{BenchError, report_progress};
use clap::Args;
use run::{Ended, Learnt};
use serde_json::{Value, json};
use treadle_core::Mode;
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::workload::{AgentModel, AgentRun, AgentTask, RolloutWorkload};

/// Engines of each kind.
const ENGINES: usize = 2;
/// The kinds: presets whose tokens take different times.
const KINDS: [&str; 2] = ["qwen3-8b-h100", "qwen3-32b-h100"];
/// Programs of a prompt.
const SAMPLES: u32 = 8;

const NOTE: &str = "Simulated engines, two of each of two kinds, and agents over HTTP. makespan.* \
    and p99.* are in scaled seconds; over_least_load.* is least load's makespan over that of the \
    system, of the same job. learnt.* is the time of a token alone over the truth, near.* the steps \
    that the job had finished when it was first within a tenth (0: measured at registration).";

/// Arguments of `treadle-bench jobs`.
#[derive(Args, Clone, Debug)]
pub(super) struct JobsArgs {
    /// How much faster than real time all clocks run.
    #[arg(long, default_value_t = 40.0)]
    pub(super) time_scale: f64,
    /// Programs of a job.
    #[arg(long, default_value_t = 320, value_parser = clap::value_parser!(u32).range(8..=10_000))]
    programs: u32,
    /// What the agents do: coding, search, math.
    #[arg(long, value_delimiter = ',', value_parser = task, default_values_t = ["coding".to_owned(), "search".to_owned()])]
    tasks: Vec<String>,
    /// Seed of the job.
    #[arg(long, default_value_t = 31)]
    pub(super) seed: u64,
}

fn task(name: &str) -> Result<String, String> {
    let known = AgentTask::named(name).map(|_| name.to_owned());
    known.ok_or_else(|| "give coding, search or math".to_owned())
}

/// What schedules.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum System {
    LeastLoad,
    Sticky,
    Treadle,
    Heddle,
    Calibrated,
}

impl System {
    const ALL: [Self; 5] = [
        Self::LeastLoad,
        Self::Sticky,
        Self::Treadle,
        Self::Heddle,
        Self::Calibrated,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LeastLoad => "least-load",
            Self::Sticky => "sticky",
            Self::Treadle => "treadle",
            Self::Heddle => "heddle",
            Self::Calibrated => "heddle-calibrated",
        }
    }

    pub(super) const fn mode(self) -> Mode {
        match self {
            Self::LeastLoad => Mode::LeastLoad,
            Self::Sticky => Mode::Sticky,
            _ => Mode::ProgramAware,
        }
    }

    /// World, policy and configuration of what is bound.
    pub(super) fn policies(self, profiles: &[EngineProfile]) -> Vec<(&'static str, String, Value)> {
        let placement = match self {
            Self::LeastLoad | Self::Sticky | Self::Treadle => return Vec::new(),
            Self::Heddle => json!({}),
            Self::Calibrated => json!({"classes": classes(profiles)}),
        };
        [
            ("prediction", json!({})),
            ("priority", json!({})),
            ("placement", placement),
        ]
        .into_iter()
        .map(|(world, config)| (world, format!("heddle-{world}"), config))
        .collect()
    }
}

/// A calibration by hand, which knows the truth.
fn classes(profiles: &[EngineProfile]) -> Vec<Value> {
    let mut kinds: Vec<&EngineProfile> = profiles.iter().collect();
    kinds.dedup_by_key(|profile| profile.kv_tokens());
    let class = |profile: &&EngineProfile| {
        let token_us = |batch: u64| profile.ideal_step_us(1, 1, 0, batch);
        let slowdown = |batch| json!([batch, token_us(batch) as f64 / token_us(1) as f64]);
        json!({
            "capacity_tokens": profile.kv_tokens(),
            "token_us": token_us(1),
            "interference": [slowdown(8), slowdown(32), slowdown(128)],
        })
    };
    kinds.iter().map(class).collect()
}

impl JobsArgs {
    /// Runs each job under each system.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut report = Report::new("jobs");
        report.setting("time_scale", self.time_scale);
        report.setting("programs", self.programs);
        report.setting("kinds", KINDS);
        report.note(NOTE);
        for name in &self.tasks {
            let runs = self.runs(name, quick)?;
            let together = vec![0.0; runs.len()];
            let of_job = format!("{name}.together");
            let makespan_s = self.compare(&mut report, &of_job, &runs, &together).await?;
            if quick {
                break;
            }
            // Spread over half of the time that they take under least load when all come at once.
            let every_s = makespan_s / 2.0 / runs.len() as f64;
            let trickling: Vec<f64> = (0..runs.len()).map(|n| n as f64 * every_s).collect();
            let of_job = format!("{name}.trickling");
            self.compare(&mut report, &of_job, &runs, &trickling)
                .await?;
        }
        Ok(report)
    }

    /// Runs a job under each system, each program from its time on; gives least load's makespan.
    async fn compare(
        &self,
        report: &mut Report,
        of_job: &str,
        runs: &[AgentRun],
        begins_s: &[f64],
    ) -> Result<f64, BenchError> {
        let mut least_load_s = 0.0;
        for system in System::ALL {
            let name = format!("{}.{of_job}", system.name());
            report_progress(&format!("jobs: {name} ..."));
            let ended = run::run(self, system, runs, begins_s).await?;
            if system == System::LeastLoad {
                least_load_s = ended.makespan_s;
            }
            add(report, &name, &ended, least_load_s);
            if system == System::Heddle {
                add_learnt(report, of_job, &ended.learnt);
            }
        }
        Ok(least_load_s)
    }

    fn runs(&self, task: &str, quick: bool) -> Result<Vec<AgentRun>, BenchError> {
        let programs = if quick { 16 } else { self.programs };
        let workload = RolloutWorkload {
            task: AgentTask::named(task).unwrap_or(AgentTask::Coding),
            model: AgentModel::Qwen3Of14B,
            prompts: programs.div_ceil(SAMPLES),
            samples: SAMPLES,
            seed: self.seed,
            ..RolloutWorkload::default()
        };
        Ok(workload.generate()?)
    }
}

/// The engines: those of one kind beside each other.
fn profiles() -> Vec<EngineProfile> {
    let kinds = KINDS.iter().filter_map(|name| EngineProfile::named(name));
    kinds
        .flat_map(|profile| std::iter::repeat_n(profile, ENGINES))
        .collect()
}

fn add(report: &mut Report, of_job: &str, ended: &Ended, least_load_s: f64) {
    let mut steps_s = ended.steps_s.clone();
    steps_s.sort_by(f64::total_cmp);
    let p99 = steps_s.get(steps_s.len() * 99 / 100).copied();
    report.push(Figure::new(
        format!("makespan.{of_job}"),
        ended.makespan_s,
        "s",
    ));
    report.push(Figure::new(
        format!("p99.{of_job}"),
        p99.unwrap_or(0.0),
        "s",
    ));
    report.push(Figure::new(
        format!("over_least_load.{of_job}"),
        least_load_s / ended.makespan_s,
        "times",
    ));
}

fn add_learnt(report: &mut Report, of_job: &str, learnt: &[Learnt]) {
    for (engine, known) in learnt.iter().enumerate() {
        let share = known.token_us.unwrap_or(0) as f64 / known.truth_us as f64;
        report.push(Figure::new(
            format!("learnt.{of_job}.{engine}"),
            share,
            "of the truth",
        ));
        let near = known.near_after.map_or(-1.0, |steps| steps as f64);
        report.push(Figure::new(
            format!("near.{of_job}.{engine}"),
            near,
            "steps",
        ));
    }
}
