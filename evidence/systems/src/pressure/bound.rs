//! What memory allows at most: a batch is as large as the contexts that fit, so that
//! even a schedule that never computes anything twice, and has every byte at work, is
//! bound by it.

use treadle_engine_model::engine::{EngineProfile, IterationLoad};
use treadle_simulator::workload::AgentRun;

/// Means over all steps of a workload.
struct Mean {
    /// Tokens of a prompt that are new, without what programs share: that is computed once, which is
    /// nothing beside the rest.
    fresh: f64,
    /// Tokens of an answer.
    output: f64,
    /// Context of a running step, halfway through its answer, without what all share.
    context: f64,
    /// Time of a tool call, in microseconds.
    tool_us: f64,
}

impl Mean {
    fn of(runs: &[AgentRun]) -> Self {
        let steps = || {
            runs.iter()
                .flat_map(|run| run.steps.iter().map(move |step| (run, step)))
        };
        let count = (steps().count() as f64).max(1.0);
        let sum = |of: &dyn Fn(&AgentRun, &treadle_simulator::workload::AgentStep) -> f64| {
            steps().map(|(run, step)| of(run, step)).sum::<f64>() / count
        };
        // A context is in memory for as long as its answer is long.
        let output = sum(&|_, step| step.output_tokens.into()).max(1.0);
        let shared = |run: &AgentRun| f64::from(run.system_tokens + run.group_tokens);
        let held = sum(&|run, step| {
            let half = f64::from(step.output_tokens) / 2.0;
            let own = (f64::from(step.input_tokens) - shared(run)).max(0.0) + half;
            own * f64::from(step.output_tokens)
        });
        Self {
            fresh: sum(&|run, step| {
                let is_first = std::ptr::eq(step, &raw const run.steps[0]);
                let known = if is_first { shared(run) } else { 0.0 };
                (f64::from(step.fresh_tokens()) - known).max(0.0)
            }),
            output,
            context: (held / output).max(1.0),
            tool_us: sum(&|_, step| step.tool_us as f64),
        }
    }
}

/// Steps a minute that engines of this memory can make of a workload, by its means. No schedule of
/// the whole workload passes it, were prompts that programs share free; a window whose steps happen
/// to be shorter than the others can.
pub fn steps_per_min_bound(
    runs: &[AgentRun],
    live: usize,
    engines: u32,
    profile: &EngineProfile,
) -> f64 {
    let mean = Mean::of(runs);
    // What all share is there once, on each engine.
    let system = runs.iter().map(|run| run.system_tokens).min().unwrap_or(0);
    let room = profile.kv_tokens().saturating_sub(system.into());
    let most = (room as f64 / mean.context).max(1.0);
    let most = most.min(live as f64 / f64::from(engines)) as u64;
    let rate = (1..=most.max(1)).map(|batch| {
        // A step in a batch that stays as large: its prefill, and its part of iterations.
        let iteration_us = profile.iteration_us(IterationLoad {
            decode_sequences: batch,
            decode_context_tokens: (batch as f64 * mean.context) as u64,
            ..IterationLoad::default()
        }) as f64;
        let prefill_us = mean.fresh / profile.prefill_tokens_per_s.max(1) as f64 * 1e6;
        let engine_us = prefill_us + mean.output * iteration_us / batch as f64;
        let by_engines = f64::from(engines) / engine_us;
        // No program is faster than its own steps and tools.
        let own_us = batch as f64 * prefill_us + mean.output * iteration_us + mean.tool_us;
        by_engines.min(live as f64 / own_us)
    });
    rate.fold(0.0, f64::max) * 60e6
}
