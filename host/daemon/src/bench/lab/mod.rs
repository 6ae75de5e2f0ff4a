//! `treadle bench lab`: does the lab predict? Each workload is run to its end in real time under each
//! set of policies. Then every recording is replayed under every other set, and the change in
//! makespan that the replay predicts is compared with the one that really came about.

mod cases;
mod real;

use super::figures::{Figure, Report, Target};
use super::{BenchError, tell};
use crate::lab::execute::{Control, Plan};
use crate::lab::request::Settings;
use crate::lab::sets::{ReadySet, SetSpec, deterministic};
use cases::{Case, NAMES, Set, cases};
use clap::Args;
use clap::builder::PossibleValuesParser;
use real::RealRun;
use serde_json::{Value, json};
use treadle_core::CoreConfig;
use treadle_policy_runtime::Limits;

/// Arguments of `treadle bench lab`.
#[derive(Args, Clone, Debug)]
pub(super) struct LabArgs {
    /// How much faster than real time the clocks of daemon, engines and agents run.
    #[arg(long, default_value_t = 30.0)]
    time_scale: f64,
    /// Seeds of each prediction.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=32))]
    seeds: u32,
    /// These workloads alone.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(NAMES))]
    workloads: Vec<String>,
}

impl Default for LabArgs {
    fn default() -> Self {
        Self {
            time_scale: 30.0,
            seeds: 5,
            workloads: Vec::new(),
        }
    }
}

/// A prediction and what came of it. Changes are shares of the first set's makespan.
struct Pair {
    case: &'static str,
    from: &'static str,
    to: &'static str,
    predicted: f64,
    real: f64,
}

impl Pair {
    fn agrees(&self) -> bool {
        (self.predicted < 0.0) == (self.real < 0.0)
    }

    /// Of the predicted change, as a share of the real one.
    fn error(&self) -> f64 {
        (self.predicted - self.real).abs() / self.real.abs().max(1e-9)
    }

    /// Of the predicted makespan, as a share of the real one.
    fn makespan_error(&self) -> f64 {
        (self.predicted - self.real).abs() / (1.0 + self.real)
    }
}

/// What one recording gave.
struct Forecast {
    /// Mean makespan of its replays under each set, in seconds.
    makespans_s: Vec<f64>,
    speed: f64,
}

impl LabArgs {
    /// Runs, records, replays, compares.
    pub(super) async fn run(&self, quick: bool) -> Result<Report, BenchError> {
        let mut report = Report::new("lab");
        let seeds = if quick { 1 } else { self.seeds };
        report.setting("time_scale", self.time_scale);
        report.setting("seeds", seeds);
        let (mut pairs, mut runs, mut replay_speeds) = (Vec::new(), Vec::new(), Vec::new());
        let mut own_errors = Vec::new();
        for case in cases(quick, &self.workloads)? {
            let mut recordings = Vec::new();
            for set in case.sets {
                tell(&format!("{}: under {} in real time", case.name, set.name));
                let real = Box::pin(real::run(&case, set, self.time_scale)).await?;
                recordings.push(real);
            }
            let mut forecasts = Vec::new();
            for recording in &recordings {
                forecasts.push(forecast(&case, recording, seeds)?);
            }
            for (place, set) in case.sets.iter().enumerate() {
                let (recording, forecast) = (&recordings[place], &forecasts[place]);
                runs.push(described(&case, set, recording, forecast));
                replay_speeds.push(forecast.speed);
                let real_s = makespan_s(recording);
                own_errors.push((forecast.makespans_s[place] - real_s).abs() / real_s);
            }
            pairs.extend(compared(&case, &recordings, &forecasts));
        }
        push_figures(&mut report, &pairs, &replay_speeds, &own_errors);
        report.detail("pairs", pairs.iter().map(shown).collect());
        report.detail("runs", runs.into());
        report.note(
            "A change is that of the makespan, from one set of policies to another, as a share of the first one's. Engines are simulated.",
        );
        Ok(report)
    }
}

fn push_figures(report: &mut Report, pairs: &[Pair], replay_speeds: &[f64], own_errors: &[f64]) {
    let agreeing = pairs.iter().filter(|pair| pair.agrees()).count() as f64;
    let share = agreeing / pairs.len().max(1) as f64;
    let errors: Vec<f64> = pairs.iter().map(Pair::error).collect();
    let of_makespan: Vec<f64> = pairs.iter().map(Pair::makespan_error).collect();
    let figures = [
        Figure::new("pairs", pairs.len() as f64, "pairs").target(Target::AtLeast(20.0)),
        Figure::new("sign_agreement", share, "share").target(Target::AtLeast(0.95)),
        Figure::new("median_error", median(&errors), "share").target(Target::AtMost(0.15)),
        Figure::new("median_makespan_error", median(&of_makespan), "share"),
        Figure::new("median_own_error", median(own_errors), "share"),
        Figure::new("replay_speed_median", median(replay_speeds), "times")
            .target(Target::AtLeast(1_000.0)),
    ];
    for figure in figures {
        report.push(figure);
    }
}

/// Replays a recording under all sets.
fn forecast(case: &Case, recording: &RealRun, seeds: u32) -> Result<Forecast, BenchError> {
    let ended = |error: &dyn std::fmt::Display| BenchError::Ended(error.to_string());
    let engine = deterministic(Limits::default()).map_err(|e| ended(&e))?;
    let workload = recording.workload.clone();
    let recorded = workload.config.clone().unwrap_or_default();
    let ready = |set: &Set| ready(set, &recorded, &engine);
    let settings = Settings {
        seeds,
        differences: 0,
        ..Settings::default()
    };
    let kv_tokens =
        Plan::kv_tokens_of(&workload, &case.profile, &settings).map_err(|e| ended(&e))?;
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
    set: &Set,
    recorded: &CoreConfig,
    engine: &treadle_policy_runtime::PolicyEngine,
) -> Result<ReadySet, BenchError> {
    let settings = json!({"kv": {"host_tokens_max": set.host_tokens}});
    let spec = SetSpec {
        name: set.name.to_owned(),
        mode: Some(set.mode),
        settings: settings.as_object().cloned().unwrap_or_default(),
        ..SetSpec::named("recorded")
    };
    ReadySet::new(&spec, recorded, &[], engine)
        .map_err(|failure| BenchError::Ended(failure.to_string()))
}

/// Every recording against every other set.
fn compared(case: &Case, recordings: &[RealRun], forecasts: &[Forecast]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (from, forecast) in forecasts.iter().enumerate() {
        for to in (0..case.sets.len()).filter(|to| *to != from) {
            let change = |from: f64, to: f64| to / from.max(1e-9) - 1.0;
            let (predicted, real) = (
                change(forecast.makespans_s[from], forecast.makespans_s[to]),
                change(makespan_s(&recordings[from]), makespan_s(&recordings[to])),
            );
            pairs.push(Pair {
                case: case.name,
                from: case.sets[from].name,
                to: case.sets[to].name,
                predicted,
                real,
            });
        }
    }
    pairs
}

fn makespan_s(run: &RealRun) -> f64 {
    run.workload.recorded.map_or(0.0, |was| was.makespan_s)
}

fn shown(pair: &Pair) -> Value {
    json!({
        "workload": pair.case, "from": pair.from, "to": pair.to,
        "predicted_change": pair.predicted, "real_change": pair.real,
        "sign_agrees": pair.agrees(), "error": pair.error(),
    })
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
        "kv_tokens": case.profile.kv_tokens(), "programs": case.runs.len(),
    })
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_agrees_by_its_sign_and_errs_by_its_change() {
        let pair = |predicted, real| Pair {
            case: "c",
            from: "a",
            to: "b",
            predicted,
            real,
        };
        assert!(pair(-0.4, -0.5).agrees() && !pair(0.1, -0.1).agrees());
        assert!((pair(-0.4, -0.5).error() - 0.2).abs() < 1e-9);
        assert!((pair(-0.4, -0.5).makespan_error() - 0.2).abs() < 1e-9);
        let medians = (median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]));
        assert_eq!(medians, (2.0, 2.5));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_quick_benchmark_has_all_figures() {
        let args = LabArgs {
            time_scale: 200.0,
            ..LabArgs::default()
        };
        let json = Box::pin(args.run(true)).await.expect("it runs").to_json();
        for name in [
            "pairs",
            "sign_agreement",
            "median_error",
            "median_makespan_error",
            "median_own_error",
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
