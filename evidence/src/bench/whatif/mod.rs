//! `treadle-bench what-if`: does what-if replay predict? Each workload is run to its end in real time
//! under each set of policies, several times. Then every recording is replayed under every other
//! set, and the change in makespan that the replays predict is compared with the one that really came
//! about.

mod cases;
mod compared;
mod real;

use super::figures::{Figure, Report, Target};
use super::real_engines::RealEngines;
use super::{BenchError, report_progress};
use cases::{Case, NAMES, Set, cases, cases_on};
use clap::Args;
use clap::builder::PossibleValuesParser;
use compared::{Comparison, Pair, Tried, median};
use futures_util::future::try_join_all;
use real::RealRun;
use serde_json::{Value, json};
use treadle_core::CoreConfig;
use treadle_engine_model::engine::EngineProfile;
use treadle_policy_runtime::{Limits, PolicyEngine};
use treadle_whatif::execute::{Control, Plan};
use treadle_whatif::request::Settings;
use treadle_whatif::sets::{ReadySet, SetSpec};

const NOTE: &str = "A change is that of the makespan, from one set of policies to another, as a \
    share of the first one's: predicted as the mean over the recordings under the first, real \
    between the means of both. single.* compares single recordings with single runs, repetition.* \
    two real runs with two others.";

/// Arguments of `treadle-bench what-if`.
#[derive(Args, Clone, Debug)]
pub(super) struct WhatIfArgs {
    /// How much faster than real time the clocks of daemon, engines and agents run; beside engines
    /// that run already, only the tools of agents.
    #[arg(long, default_value_t = 30.0)]
    time_scale: f64,
    /// Real runs of each workload under each set: a single one means little for small changes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    repeats: u32,
    /// Seeds of each prediction.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=32))]
    seeds: u32,
    /// Only these workloads.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(NAMES))]
    workloads: Vec<String>,
    /// Engines that run already, instead of simulated ones: their URLs, with commas between. Half as
    /// many agents run, whose token counts are scaled to the engines' memory.
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires_all = ["engine_tokens", "profile"])]
    engines: Vec<String>,
    /// Tokens that the KV cache of one of those holds.
    #[arg(long, value_name = "TOKENS", requires = "engines",
        value_parser = clap::value_parser!(u64).range(64..))]
    engine_tokens: Option<u64>,
    /// Longest context that they take, in tokens; the whole cache by default.
    #[arg(long, value_name = "TOKENS", requires = "engines",
        value_parser = clap::value_parser!(u32).range(64..))]
    engine_context: Option<u32>,
    /// What `treadle calibrate` found out about one of them, which replays go by.
    #[arg(long, value_name = "FILE", requires = "engines",
        value_parser = treadle_demo::workload::profile)]
    profile: Option<EngineProfile>,
}

impl Default for WhatIfArgs {
    fn default() -> Self {
        Self {
            time_scale: 30.0,
            repeats: 3,
            seeds: 5,
            workloads: Vec::new(),
            engines: Vec::new(),
            engine_tokens: None,
            engine_context: None,
            profile: None,
        }
    }
}

/// What one recording gave.
struct Forecast {
    /// Mean makespan of its replays under each set, in seconds.
    makespans_s: Vec<f64>,
    speed: f64,
}

impl WhatIfArgs {
    /// Runs, records, replays, compares.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut report = Report::new("what-if");
        let (seeds, repeats) = if quick {
            (1, 1)
        } else {
            (self.seeds, self.repeats)
        };
        report.setting("time_scale", self.time_scale);
        report.setting("seeds", seeds);
        report.setting("repeats", repeats);
        let (mut comparison, mut runs) = (Comparison::default(), Vec::new());
        let mut replay_speeds = Vec::new();
        let cases = self.cases(quick).await?;
        report.setting("engines_simulated", self.engines.is_empty());
        for case in cases {
            let recordings = self.recordings(&case, repeats).await?;
            let mut tried = Vec::new();
            for (set, recordings) in case.sets.iter().zip(&recordings) {
                let forecasts = recordings
                    .iter()
                    .map(|recording| forecast(&case, recording, seeds));
                let forecasts: Vec<Forecast> = forecasts.collect::<Result<_, _>>()?;
                for (recording, forecast) in recordings.iter().zip(&forecasts) {
                    runs.push(described(&case, set, recording, forecast));
                    replay_speeds.push(forecast.speed);
                }
                tried.push(Tried {
                    set: set.name,
                    real_s: recordings.iter().map(makespan_s).collect(),
                    replayed_s: forecasts.into_iter().map(|f| f.makespans_s).collect(),
                });
            }
            comparison.add(case.name, &tried);
        }
        comparison.push(&mut report);
        report.push(
            Figure::new("replay_speed_median", median(&replay_speeds), "times")
                .target(Target::AtLeast(1_000.0)),
        );
        report.detail("pairs", comparison.pairs.iter().map(Pair::shown).collect());
        report.detail("runs", runs.into());
        report.note(NOTE);
        Ok(report)
    }

    async fn cases(&self, quick: bool) -> Result<Vec<Case>, BenchError> {
        let (Some(tokens), Some(profile)) = (self.engine_tokens, &self.profile) else {
            return cases(quick, &self.workloads);
        };
        let longest = self.engine_context.map_or(tokens, u64::from);
        let real_engines = RealEngines::meet(self.engines.clone(), tokens, longest, 1.0).await?;
        let mut cases = cases_on(&real_engines, profile, &self.workloads, self.time_scale)?;
        if quick {
            cases.truncate(1);
        }
        Ok(cases)
    }

    /// Real runs of a workload, by sets; those of one set at once, as each waits most of the time,
    /// if they have engines of their own.
    async fn recordings(&self, case: &Case, repeats: u32) -> Result<Vec<Vec<RealRun>>, BenchError> {
        let mut recordings = Vec::new();
        for set in case.sets {
            let times = if repeats == 1 { "" } else { ", several times" };
            report_progress(&format!(
                "{}: under {} in real time{times}",
                case.name, set.name
            ));
            let run = |number| Box::pin(real::run(case, set, self.time_scale, number));
            if case.real_engines.is_none() {
                recordings.push(try_join_all((0..repeats).map(run)).await?);
                continue;
            }
            let mut of_set = Vec::new();
            for number in 0..repeats {
                of_set.push(run(number).await?);
            }
            recordings.push(of_set);
        }
        Ok(recordings)
    }
}

/// Replays a recording under all sets.
fn forecast(case: &Case, recording: &RealRun, seeds: u32) -> Result<Forecast, BenchError> {
    let engine = treadle_policy::repeatable_engine(Limits::default()).map_err(|e| ended(&e))?;
    let workload = recording.workload.clone();
    let recorded = workload.config.clone().unwrap_or_default();
    let settings = Settings {
        seeds,
        differences: 0,
        ..Settings::default()
    };
    let kv_tokens =
        Plan::kv_tokens_of(&workload, &case.profile, &settings).map_err(|e| ended(&e))?;
    let ready = |set: &Set| ready(case, set, &recorded, &engine);
    let plan = Plan {
        workload,
        sets: case.sets.iter().map(ready).collect::<Result<_, _>>()?,
        profile: case.profile.clone(),
        kv_tokens,
        settings,
    };
    let findings = plan.run(&Control::default()).map_err(|e| ended(&e))?;
    let sets = findings.comparison.sets.iter();
    Ok(Forecast {
        makespans_s: sets.map(|set| set.makespan_s.mean).collect(),
        speed: findings.speed,
    })
}

fn ready(
    case: &Case,
    set: &Set,
    recorded: &CoreConfig,
    engine: &PolicyEngine,
) -> Result<ReadySet, BenchError> {
    let settings = json!({"kv": case.kv(set)});
    let spec = SetSpec {
        name: set.name.to_owned(),
        mode: Some(set.mode),
        settings: settings.as_object().cloned().unwrap_or_default(),
        ..SetSpec::named("recorded")
    };
    ReadySet::new(&spec, recorded, &[], engine).map_err(|e| ended(&e))
}

fn ended(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Ended(error.to_string())
}

fn makespan_s(run: &RealRun) -> f64 {
    run.workload.recorded.map_or(0.0, |was| was.makespan_s)
}

fn described(case: &Case, set: &Set, run: &RealRun, forecast: &Forecast) -> Value {
    let replays = case.sets.iter().zip(&forecast.makespans_s);
    let replays: serde_json::Map<String, Value> = replays
        .map(|(set, makespan_s)| (set.name.to_owned(), json!(makespan_s)))
        .collect();
    json!({
        "workload": case.name, "set": set.name, "real_s": run.took_s,
        "recorded": run.workload.recorded, "cuts": run.workload.cuts,
        "replayed_makespan_s": replays, "replay_speed": forecast.speed,
        "kv_tokens": case.kv_tokens(), "programs": case.runs.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_quick_benchmark_has_all_figures() {
        let args = WhatIfArgs {
            time_scale: 200.0,
            ..WhatIfArgs::default()
        };
        let json = Box::pin(args.run(true)).await.expect("it runs").to_json();
        for name in [
            "pairs",
            "sign_agreement",
            "median_error",
            "median_makespan_error",
            "median_own_error",
            "single.sign_agreement",
            "real_spread_median",
            "replay_speed_median",
        ] {
            assert!(json["figures"][name]["value"].is_number(), "{name}");
        }
        assert_eq!(json["figures"]["pairs"]["value"], 6.0);
        let runs = json["details"]["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 3);
        for run in runs {
            assert_eq!(run["cuts"]["programs_open_at_end"], 0, "{run}");
            assert_eq!(run["cuts"]["steps_without_answer"], 0, "{run}");
        }
    }
}
