//! The plan of the demo: workload, engine memory and window, the same for every scheduler.

use super::outcome::VARIANTS;
use super::run_counters::Window;
use super::workload::{self, Fitted, Memory};
use super::{DemoArgs, DemoError};
use std::path::PathBuf;
use std::sync::Arc;
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::workload::AgentRun;

/// The plan, which is the same for every scheduler.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) runs: Arc<[AgentRun]>,
    /// Number of runs that end early because an engine can't hold their later steps.
    pub(super) cut_runs: usize,
    /// Description of the workload, as text.
    pub(super) workload: String,
    pub(super) from_trace: bool,
    pub(super) programs: usize,
    pub(super) engines: u32,
    /// The engines' profile, with the memory of this plan.
    pub(super) profile: EngineProfile,
    pub(super) kv_fraction: f64,
    /// Host memory to which engines offload themselves, as a share of the peak demand.
    pub(super) engine_host: f64,
    pub(super) seed: u64,
    pub(super) window: Window,
    /// Scaled seconds per real second.
    pub(super) time_scale: f64,
    pub(super) stream: bool,
    /// Whether to use virtual time, without HTTP.
    pub(super) simulated_clock: bool,
    /// Policies for treadle; without any the built-in ones decide.
    pub(super) policies: Vec<PathBuf>,
}

/// Open files per program over HTTP, under each scheduler: both ends of the agent's connection to
/// the daemon and of the daemon's to an engine.
const FILES_PER_PROGRAM: u64 = 4 * VARIANTS.len() as u64;
/// Open files for the rest: daemons, engines, their probes.
const FILES_RESERVED: u64 = 1_024;

impl Plan {
    /// Fails if the process may not open enough files.
    pub(super) fn check_files(&self, files: u64) -> Result<(), DemoError> {
        let needed = self.programs as u64 * FILES_PER_PROGRAM + FILES_RESERVED;
        if self.simulated_clock || needed <= files {
            return Ok(());
        }
        Err(DemoError::Files {
            programs: self.programs,
            needed,
            files,
            fit: files.saturating_sub(FILES_RESERVED) / FILES_PER_PROGRAM,
        })
    }

    /// The plan of these arguments.
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
        let engine_host = args.engine_host;
        if engine_host != 0.0 {
            positive(
                "--engine-host",
                engine_host,
                100.0,
                "0, or a share up to 100",
            )?;
        }
        let programs = args.programs as usize;
        let trace = args.trace.as_deref();
        let memory = Memory {
            engines: args.engines,
            kv_share: kv_fraction,
            host_share: engine_host,
            template_tokens: 0,
        };
        let runs = workload::runs(trace, programs, args.seed)?;
        let Fitted {
            runs,
            cut_runs,
            profile,
        } = workload::fit(runs, programs, &args.profile, &memory)?;
        Ok(Self {
            workload: workload::name(trace),
            from_trace: trace.is_some(),
            runs,
            programs,
            engines: args.engines,
            profile,
            cut_runs,
            kv_fraction,
            engine_host,
            seed: args.seed,
            window: Window::new(warmup, length),
            time_scale,
            stream: args.stream,
            simulated_clock: args.simulate,
            policies: args.policy.clone(),
        })
    }
}
