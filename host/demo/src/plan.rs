//! What is run: the workload, the engines' memory and the window, the same for
//! every scheduler.

use super::{DemoArgs, DemoError};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::workload::{
    AgentRun, LognormalAgents, TraceOptions, load_trace, peak_demand_tokens,
};

/// Runs for each slot, enough for the whole window in almost all cases.
const RUNS_PER_SLOT: usize = 12;
const MINUTE_US: f64 = 60e6;

/// The time that figures cover, since the beginning, in scaled microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

impl Window {
    /// Its length in minutes.
    pub(super) fn minutes(self) -> f64 {
        (self.to_us - self.from_us) as f64 / MINUTE_US
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) runs: Arc<[AgentRun]>,
    /// Runs that end early because an engine cannot hold their later steps.
    pub(super) cut_runs: usize,
    /// Where the runs come from, for people.
    pub(super) workload: String,
    pub(super) from_trace: bool,
    pub(super) programs: usize,
    pub(super) engines: u32,
    /// What each engine is like, its memory cut to what the plan gives it.
    pub(super) profile: EngineProfile,
    pub(super) kv_fraction: f64,
    pub(super) seed: u64,
    pub(super) window: Window,
    /// Scaled seconds in a real one.
    pub(super) time_scale: f64,
    pub(super) stream: bool,
    /// Virtual time, without HTTP.
    pub(super) simulated_clock: bool,
    /// Policies by which treadle decides; the built-in ones where there are none.
    pub(super) policies: Vec<PathBuf>,
}

impl Plan {
    /// The plan that the arguments make.
    pub(super) fn new(args: &DemoArgs) -> Result<Self, DemoError> {
        let positive = |option, value: f64, most: f64, remedy| {
            if value > 0.0 && value <= most {
                return Ok(value);
            }
            let value = value.to_string();
            Err(DemoError::Option {
                option,
                value,
                remedy,
            })
        };
        let minutes = "minutes above 0 and up to 10000";
        let length = positive("--minutes", args.minutes, 1e4, minutes)?;
        let share = "a share above 0 and up to 100";
        let kv_fraction = positive("--kv-fraction", args.kv_fraction, 100.0, share)?;
        let times = "a number above 0 and up to 1000";
        let time_scale = positive("--time-scale", args.time_scale, 1e3, times)?;
        let warmup = args.warmup_minutes;
        let none_or = "0, or minutes up to 10000";
        if warmup != 0.0 {
            positive("--warmup-minutes", warmup, 1e4, none_or)?;
        }
        let profile = EngineProfile::named(&args.profile).ok_or_else(|| DemoError::Option {
            option: "--profile",
            value: args.profile.clone(),
            remedy: "the name of a profile",
        })?;
        let programs = args.programs as usize;
        let mut runs = match &args.trace {
            Some(path) => recorded(path, programs, args.seed)?,
            None => generated(programs, args.seed)?,
        };
        let peak = peak_demand_tokens(&runs, programs, &profile) as f64;
        let kv_tokens = peak * kv_fraction / f64::from(args.engines);
        let profile = profile.with_kv_tokens(kv_tokens as u64);
        let limit_tokens = profile.sequence_limit_tokens();
        let cut = runs.iter_mut().map(|run| run.truncate_at(limit_tokens));
        let cut_runs = cut.filter(|cut| *cut).count();
        runs.retain(|run| !run.steps.is_empty());
        if runs.is_empty() {
            return Err(DemoError::NoRuns);
        }
        let from_us = (warmup * MINUTE_US) as u64;
        Ok(Self {
            workload: workload_name(args.trace.as_deref()),
            from_trace: args.trace.is_some(),
            runs: runs.into(),
            programs,
            engines: args.engines,
            profile,
            cut_runs,
            kv_fraction,
            seed: args.seed,
            window: Window {
                from_us,
                to_us: from_us + (length * MINUTE_US) as u64,
            },
            time_scale,
            stream: args.stream,
            simulated_clock: args.simulate,
            policies: args.policy.clone(),
        })
    }
}

fn workload_name(trace: Option<&Path>) -> String {
    let Some(path) = trace else {
        return "generated coding agents".to_owned();
    };
    let divisor = TraceOptions::default().token_divisor;
    let name = path.file_name().unwrap_or(path.as_os_str());
    format!(
        "recorded runs of {}, token counts divided by {divisor}",
        name.to_string_lossy()
    )
}

fn generated(programs: usize, seed: u64) -> Result<Vec<AgentRun>, DemoError> {
    let workload = LognormalAgents {
        programs: programs * RUNS_PER_SLOT,
        seed,
        ..LognormalAgents::default()
    };
    Ok(workload.generate()?)
}

fn recorded(path: &Path, programs: usize, seed: u64) -> Result<Vec<AgentRun>, DemoError> {
    let file = File::open(path).map_err(|cause| DemoError::TraceFile {
        path: path.to_owned(),
        cause,
    })?;
    let options = TraceOptions {
        programs: programs * RUNS_PER_SLOT,
        seed,
        ..TraceOptions::default()
    };
    Ok(load_trace(BufReader::new(file), &options)?.runs)
}
