//! The agents' runs, and the engines' memory relative to them.

use super::DemoError;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use treadle_engine_model::engine::EngineProfile;
use treadle_engine_sim::HOST_TOKENS_PER_S;
use treadle_simulator::workload::{
    AgentRun, LognormalAgents, TraceOptions, load_trace, peak_demand_tokens,
};

/// Runs per slot, enough for the whole window in almost all cases.
const RUNS_PER_SLOT: usize = 12;

/// Runs for `slots` slots: recorded ones from a file, or generated ones.
pub fn runs(trace: Option<&Path>, slots: usize, seed: u64) -> Result<Vec<AgentRun>, DemoError> {
    let programs = slots * RUNS_PER_SLOT;
    let Some(path) = trace else {
        let workload = LognormalAgents {
            programs,
            seed,
            ..LognormalAgents::default()
        };
        return Ok(workload.generate()?);
    };
    let file = File::open(path).map_err(|cause| DemoError::TraceFile {
        path: path.to_owned(),
        cause,
    })?;
    let options = TraceOptions {
        programs,
        seed,
        ..TraceOptions::default()
    };
    Ok(load_trace(BufReader::new(file), &options)?.runs)
}

/// Description of the runs, as text.
pub fn name(trace: Option<&Path>) -> String {
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

/// The profile of engines: a preset by its name, or a file that `treadle calibrate` wrote.
pub fn profile(named: &str) -> Result<EngineProfile, String> {
    if let Some(profile) = EngineProfile::named(named) {
        return Ok(profile);
    }
    let text = std::fs::read_to_string(named).map_err(|error| {
        let presets = EngineProfile::NAMES.join(", ");
        format!("{error}; give a file that `treadle calibrate` wrote, or one of {presets}")
    })?;
    EngineProfile::from_json(&text).map_err(|error| error.to_string())
}

/// The number and the memory of engines.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Number of engines.
    pub engines: u32,
    /// Total KV memory, as a share of the live programs' peak demand.
    pub kv_share: f64,
    /// Host memory to which they offload themselves, as a share of the same demand.
    pub host_share: f64,
    /// Tokens that their chat template adds to each prompt.
    pub template_tokens: u32,
}

/// Runs, with engines sized for them.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The runs, cut to what an engine can hold; at least one.
    pub runs: Arc<[AgentRun]>,
    /// Number of runs that end early because of that.
    pub cut_runs: usize,
    /// The engines' profile, with their memory.
    pub profile: EngineProfile,
}

/// Sizes the engines to a share of the runs' peak demand, and cuts the runs to fit.
pub fn fit(
    mut runs: Vec<AgentRun>,
    slots: usize,
    profile: &EngineProfile,
    memory: &Memory,
) -> Result<Fitted, DemoError> {
    let peak = peak_demand_tokens(&runs, slots, profile) as f64;
    let each = |share: f64| (peak * share / f64::from(memory.engines)) as u64;
    let profile = profile.clone().with_kv_tokens(each(memory.kv_share));
    let profile = profile.with_host_tokens(each(memory.host_share), HOST_TOKENS_PER_S);
    let limit_tokens = profile.sequence_limit_tokens();
    let limit_tokens = limit_tokens.saturating_sub(memory.template_tokens);
    let cut = runs.iter_mut().map(|run| run.truncate_at(limit_tokens));
    let cut_runs = cut.filter(|cut| *cut).count();
    runs.retain(|run| !run.steps.is_empty());
    if runs.is_empty() {
        return Err(DemoError::NoRuns);
    }
    Ok(Fitted {
        runs: runs.into(),
        cut_runs,
        profile,
    })
}
