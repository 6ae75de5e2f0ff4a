//! The speed of light: no schedule of a workload on a cluster is faster.

use super::cluster::Degrees;
use serde::Serialize;
use std::collections::BTreeMap;
use treadle_engine_model::engine::{EngineProfile, IterationLoad};
use treadle_simulator::workload::AgentRun;

/// What bounds a rollout from below, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpeedOfLight {
    /// The program that takes longest by itself on the fastest worker.
    pub longest_s: f64,
    /// All work on all GPUs at their best.
    pub work_s: f64,
}

impl SpeedOfLight {
    /// Of a workload on `gpus` GPUs.
    pub(super) fn of(runs: &[AgentRun], degrees: &Degrees, gpus: u32) -> Self {
        let alone = |run: &AgentRun| {
            let times = degrees.profile.iter().map(|profile| alone_us(run, profile));
            times.min().unwrap_or(0)
        };
        let longest_us = runs.iter().map(alone).max().unwrap_or(0);
        let works = degrees.degree.iter().zip(&degrees.profile);
        let works = works.map(|(degree, profile)| work_us(runs, profile) * f64::from(*degree));
        let work_us = works.fold(f64::INFINITY, f64::min) / f64::from(gpus.max(1));
        Self {
            longest_s: longest_us as f64 / 1e6,
            work_s: work_us / 1e6,
        }
    }

    /// The bound, in seconds.
    pub fn bound_s(&self) -> f64 {
        self.longest_s.max(self.work_s)
    }
}

/// Time of a program by itself, its cache never lost, tools included.
fn alone_us(run: &AgentRun, profile: &EngineProfile) -> u64 {
    let step_us = |step: &treadle_simulator::workload::AgentStep| {
        let context = u64::from(step.input_tokens) + u64::from(step.output_tokens) / 2;
        let fresh = u64::from(step.fresh_tokens());
        let compute_us =
            profile.ideal_step_us(fresh.max(1), u64::from(step.output_tokens), context, 1);
        compute_us + step.tool_us
    };
    let last_tool_us = run.steps.last().map_or(0, |step| step.tool_us);
    run.steps.iter().map(step_us).sum::<u64>() - last_tool_us
}

/// Time of one engine for all work, were it always as efficient as it can be: batches as large as
/// its slots and memory allow at the context of each token.
fn work_us(runs: &[AgentRun], profile: &EngineProfile) -> f64 {
    let (mut prefill_tokens, mut output_tokens) = (shared_tokens(runs), 0_u64);
    // Weighted by the answers: what is read, and what is held of it beside what programs share.
    let (mut read_tokens, mut held_tokens) = (0_f64, 0_f64);
    for run in runs {
        let shared = run.system_tokens + run.group_tokens;
        for (index, step) in run.steps.iter().enumerate() {
            let known = if index == 0 { shared } else { 0 };
            prefill_tokens += u64::from(step.fresh_tokens().saturating_sub(known));
            let output = f64::from(step.output_tokens);
            output_tokens += u64::from(step.output_tokens);
            read_tokens += (f64::from(step.input_tokens) + output / 2.0) * output;
            let own = step.input_tokens.saturating_sub(shared);
            held_tokens += (f64::from(own) + output / 2.0) * output;
        }
    }
    let prefill = IterationLoad {
        prefill_tokens: u64::from(profile.batched_tokens_max),
        ..IterationLoad::default()
    };
    let prefill_us = profile.iteration_us(prefill) as f64 / f64::from(profile.batched_tokens_max);
    // The context that a token reads takes its time however large the batch; weights
    // and overheads are shared by as many as fit.
    let output = output_tokens.max(1) as f64;
    let (mean_context, mean_held) = (read_tokens / output, held_tokens / output);
    let fit = profile.kv_tokens() as f64 / mean_held.max(1.0);
    let batch = fit.clamp(1.0, f64::from(profile.running_max)) as u64;
    let decode = IterationLoad {
        decode_sequences: batch,
        decode_context_tokens: (mean_context * batch as f64) as u64,
        ..IterationLoad::default()
    };
    let token_us = profile.iteration_us(decode) as f64 / batch as f64;
    prefill_tokens as f64 * prefill_us + output_tokens as f64 * token_us
}

/// Prompts that programs share, each computed once.
fn shared_tokens(runs: &[AgentRun]) -> u64 {
    let groups: BTreeMap<u32, u32> = runs
        .iter()
        .map(|run| (run.group, run.group_tokens))
        .collect();
    let system = runs.iter().map(|run| run.system_tokens).max().unwrap_or(0);
    let groups: u64 = groups.into_values().map(u64::from).sum();
    u64::from(system) + groups
}
