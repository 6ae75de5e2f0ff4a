//! Traces (docs/traces.md) as workloads, on simulated engines.

use super::WhatIfError;
use crate::recorded::{RecordedWorker, Workload};
use serde::Deserialize;
use std::io::BufRead;
use treadle_core::{CoreConfig, KvConfig};
use treadle_engine_model::engine::EngineProfile;
use treadle_simulator::cluster::TransferOptions;
use treadle_simulator::workload::{AgentRun, TraceOptions, load_trace, peak_demand_tokens};
use utoipa::ToSchema;

/// Default profile of a trace's engines.
pub const PROFILE: &str = "glm-4.6-8xh100";
/// Default number of a trace's programs for each slot.
const RUNS_PER_SLOT: usize = 4;
/// Limit on live programs.
pub const LIVE_MAX: u32 = 10_000;
/// Limit on programs taken from a trace.
pub const RUNS_MAX: u32 = 100_000;
/// Limit on engines.
pub const ENGINES_MAX: u32 = 64;
/// Largest speed that a configuration can have, in tokens per second.
const TOKENS_PER_S_MAX: u64 = 1_000_000_000;

/// How a trace becomes a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceShape {
    /// Maximum number of live programs; one that ends is replaced by the next.
    pub live: u32,
    /// Programs taken from the trace; by default four per live program.
    pub runs: Option<u32>,
    /// Divisor of its token counts.
    pub token_divisor: u32,
    /// Number of engines.
    pub engines: u32,
    /// Total KV memory of the engines, as a share of the programs' peak demand.
    pub kv_fraction: f64,
}

impl Default for TraceShape {
    fn default() -> Self {
        Self {
            live: 64,
            runs: None,
            token_divisor: 4,
            engines: 2,
            kv_fraction: 0.33,
        }
    }
}

/// A trace, ready to be replayed.
#[derive(Clone, Debug)]
pub struct TraceWork {
    /// The workload, with its engines.
    pub workload: Workload,
    /// Description of how it was made, as text.
    pub scenario: String,
}

/// A trace in the body of a request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceBody {
    /// Recorded programs in the format of docs/traces.md: one JSON object per line.
    text: String,
    /// Maximum number of live programs, 1 to 10,000; one that ends is replaced by the next. By
    /// default 64.
    #[serde(default)]
    programs: Option<u32>,
    /// Programs taken from the trace, 1 to 100,000; by default four per live program.
    #[serde(default)]
    runs: Option<u32>,
    /// Divisor of its token counts; by default 4.
    #[serde(default)]
    token_divisor: Option<u32>,
    /// Number of engines, 1 to 64; by default 2.
    #[serde(default)]
    engines: Option<u32>,
    /// Total KV memory of the engines, as a share of the programs' peak demand, above 0 and at most
    /// 100; by default 0.33. `kv_tokens` sets it in tokens per engine.
    #[serde(default)]
    kv_fraction: Option<f64>,
}

impl TraceBody {
    /// The workload, on engines with this profile.
    ///
    /// # Errors
    /// The invalid field; for a trace that can't be read, with the line.
    pub(crate) fn work(
        &self,
        profile: &EngineProfile,
        kv_tokens: Option<u64>,
    ) -> Result<TraceWork, WhatIfError> {
        let within = |field: &str, value: Option<u32>, default: u32, max: u32| {
            let value = value.unwrap_or(default);
            if (1..=max).contains(&value) {
                return Ok(value);
            }
            let problem = format!("is {value}; give 1 to {max}");
            Err(WhatIfError::field(format!("trace.{field}"), problem))
        };
        if self.kv_fraction.is_some() && kv_tokens.is_some() {
            let problem = "has no effect beside `kv_tokens`; give only one of them";
            return Err(WhatIfError::field("trace.kv_fraction", problem));
        }
        let default = TraceShape::default();
        let runs = self
            .runs
            .map(|runs| within("runs", Some(runs), 1, RUNS_MAX));
        let shape = TraceShape {
            live: within("programs", self.programs, default.live, LIVE_MAX)?,
            runs: runs.transpose()?,
            token_divisor: within(
                "token_divisor",
                self.token_divisor,
                default.token_divisor,
                u32::MAX,
            )?,
            engines: within("engines", self.engines, default.engines, ENGINES_MAX)?,
            kv_fraction: self.kv_fraction.unwrap_or(default.kv_fraction),
        };
        work(self.text.as_bytes(), &shape, profile, kv_tokens).map_err(in_body)
    }
}

/// Prefixes the field of an error with its place in the request's body.
fn in_body(error: WhatIfError) -> WhatIfError {
    match error {
        WhatIfError::Field { field, problem } => {
            let field = match field.as_str() {
                "trace" => "trace.text",
                "kv_fraction" => "trace.kv_fraction",
                other => other,
            };
            WhatIfError::field(field, problem)
        }
        other => other,
    }
}

/// Makes a workload from a trace.
///
/// # Errors
/// The invalid field: `trace` if it can't be read, or `kv_fraction`.
pub fn work(
    trace: impl BufRead,
    shape: &TraceShape,
    profile: &EngineProfile,
    kv_tokens: Option<u64>,
) -> Result<TraceWork, WhatIfError> {
    let live = shape.live as usize;
    let options = TraceOptions {
        programs: shape
            .runs
            .map_or(live * RUNS_PER_SLOT, |runs| runs as usize),
        token_divisor: shape.token_divisor,
        context_limit_tokens: profile.context_limit_tokens,
        ..TraceOptions::default()
    };
    let sample = load_trace(trace, &options)
        .map_err(|error| WhatIfError::field("trace", error.to_string()))?;
    let fraction = shape.kv_fraction;
    if !(fraction > 0.0 && fraction <= 100.0) {
        let problem = format!("is {fraction}; give a number above 0, at most 100");
        return Err(WhatIfError::field("kv_fraction", problem));
    }
    let mut runs = sample.runs;
    let peak = peak_demand_tokens(&runs, live, profile) as f64;
    let given = (peak * fraction / f64::from(shape.engines)) as u64;
    let kv_tokens = kv_tokens.unwrap_or(given);
    let limit = profile
        .clone()
        .with_kv_tokens(kv_tokens)
        .sequence_limit_tokens();
    // Runs that fit no engine would be refused under every policy.
    runs.retain_mut(|run| {
        run.truncate_at(limit);
        !run.steps.is_empty()
    });
    if runs.is_empty() {
        return Err(WhatIfError::field(
            "trace",
            "none of its runs fits the engines; give them more memory with `kv_fraction`",
        ));
    }
    Ok(work_of(runs, shape, profile, kv_tokens, peak))
}

/// A workload of a trace's runs, with engines whose memory is a share of the peak demand.
fn work_of(
    runs: Vec<AgentRun>,
    shape: &TraceShape,
    profile: &EngineProfile,
    kv_tokens: u64,
    peak: f64,
) -> TraceWork {
    let mut workload = Workload::of_runs(runs, shape.live as usize);
    let worker = |number| RecordedWorker {
        url: format!("trace-engine-{number}").into(),
        kv_tokens: Some(kv_tokens),
        class: None,
    };
    workload.workers = (0..shape.engines).map(worker).collect();
    workload.config = Some(CoreConfig {
        kv: kv_speeds(profile),
        ..CoreConfig::default()
    });
    let all = kv_tokens as f64 * f64::from(shape.engines);
    let scenario = format!(
        "a trace with its token counts divided by {}, {} programs live at once, KV memory of {kv_tokens} tokens for each engine ({:.2} of the peak demand in all)",
        shape.token_divisor,
        shape.live,
        all / peak.max(1.0),
    );
    TraceWork { workload, scenario }
}

/// Speeds of moving and recomputing caches on such engines; the settings decide whether caches are
/// moved.
fn kv_speeds(profile: &EngineProfile) -> KvConfig {
    let speed = |tokens_per_s: u64| tokens_per_s.clamp(1, TOKENS_PER_S_MAX);
    KvConfig {
        prefill_tokens_per_s: speed(profile.prefill_tokens_per_s),
        host_tokens_per_s: speed(TransferOptions::default().host_tokens_per_s()),
        ..KvConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_knows_how_fast_its_engines_compute() {
        let profile = EngineProfile::qwen3_8b_h100();
        let kv = kv_speeds(&profile);
        assert_eq!(kv.prefill_tokens_per_s, profile.prefill_tokens_per_s);
        assert_eq!(
            kv_speeds(&EngineProfile::instant()).prefill_tokens_per_s,
            TOKENS_PER_S_MAX
        );
        let core = CoreConfig {
            kv,
            ..CoreConfig::default()
        };
        assert_eq!(treadle_config::out_of_bounds(&core), None);
    }
}
