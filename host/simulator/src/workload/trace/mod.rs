//! Recorded agent runs: one JSON object per line, `{"id": "cc-0001-000", "steps": [[input_tokens,
//! reused_prefix_tokens, output_tokens, gap_s], ...]}`. `docs/traces.md` describes the format,
//! including optional fields.
//!
//! `reused_prefix_tokens` counts whole 64-token blocks that a prompt shares with the run's previous
//! prompt. If it covers that prompt to the block, the run kept its context, including the answer if
//! the new prompt is long enough for it. If it is smaller, the run dropped or compacted the rest.
//! What a first step shares with other runs is unknown, so it shares nothing here.

mod parse;
mod write;

pub use write::write_trace;

use std::collections::BTreeMap;
use std::io::BufRead;

use parse::read_runs;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{AgentRun, AgentStep, ToolResult};

/// Blocks in which the recorder counted reuse.
const RECORDED_BLOCK_TOKENS: u64 = 64;

/// Which runs to take from a trace, and how to scale them.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// Number of runs to sample; all, in the order of the file, if the trace has no more.
    pub programs: usize,
    /// Seed of the sample.
    pub seed: u64,
    /// Divisor of token counts: recorded contexts are long for small modelled memories.
    pub token_divisor: u32,
    /// Maximum time between two steps, in seconds: the tail is people, not tools.
    pub tool_cap_s: u64,
    /// Runs are cut before the step whose context, after division, exceeds this.
    pub context_limit_tokens: u32,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            programs: 96,
            seed: 1,
            token_divisor: 4,
            tool_cap_s: 300,
            context_limit_tokens: 131_072,
        }
    }
}

/// Sampled runs and what the options did to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSample {
    /// The runs.
    pub runs: Vec<AgentRun>,
    /// Runs in the trace.
    pub available_runs: usize,
    /// Number of sampled runs cut at the context limit, including dropped ones.
    pub truncated_runs: usize,
    /// Number of sampled runs left out because their first step exceeds the limit.
    pub dropped_runs: usize,
}

/// Why a trace could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The text could not be read.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// Line number, from 1.
        line: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// A field is invalid.
    #[error("line {line}: {field}: {problem}")]
    Field {
        /// Line number, from 1.
        line: usize,
        /// Path of the field, as `steps[3].gap_s`.
        field: String,
        /// The problem, and a valid value.
        problem: String,
    },
    /// An option is invalid.
    #[error("{field} must be at least 1")]
    Option {
        /// The option.
        field: &'static str,
    },
}

/// One recorded call.
#[derive(Clone, Copy)]
struct RecordedStep {
    input_tokens: u64,
    reused_tokens: u64,
    output_tokens: u64,
    gap_us: u64,
    tool_result: ToolResult,
}

struct RecordedRun {
    id: String,
    /// The trace's value, or else the id up to its last `-`.
    group: String,
    system_tokens: u64,
    group_tokens: u64,
    steps: Vec<RecordedStep>,
}

/// Reads a trace and samples runs from it. Runs form a group if they name the same one, or if they
/// name none and their ids agree up to the last `-`.
pub fn load_trace(reader: impl BufRead, options: &TraceOptions) -> Result<TraceSample, TraceError> {
    if options.token_divisor == 0 {
        return Err(TraceError::Option {
            field: "token_divisor",
        });
    }
    let recorded = read_runs(reader)?;
    let available_runs = recorded.len();
    let mut groups: BTreeMap<String, u32> = BTreeMap::new();
    let mut sample = TraceSample {
        runs: Vec::new(),
        available_runs,
        truncated_runs: 0,
        dropped_runs: 0,
    };
    for index in chosen(available_runs, options) {
        let run = &recorded[index];
        let next = groups.len() as u32;
        let group = *groups.entry(run.group.clone()).or_insert(next);
        let mut run = scaled(run, group, options);
        sample.truncated_runs += usize::from(run.truncate_at(options.context_limit_tokens));
        if run.steps.is_empty() {
            sample.dropped_runs += 1;
        } else {
            sample.runs.push(run);
        }
    }
    Ok(sample)
}

/// A seeded choice of a trace's positions, in the order of the draws.
fn chosen(available: usize, options: &TraceOptions) -> Vec<usize> {
    let mut places: Vec<usize> = (0..available).collect();
    if options.programs >= available {
        return places;
    }
    let mut stream = Pcg64Mcg::seed_from_u64(options.seed);
    for place in 0..options.programs {
        let other = stream.random_range(place..available);
        places.swap(place, other);
    }
    places.truncate(options.programs);
    places
}

fn scaled(recorded: &RecordedRun, group: u32, options: &TraceOptions) -> AgentRun {
    let divisor = u64::from(options.token_divisor);
    let scale = |tokens: u64| (tokens / divisor) as u32;
    let mut steps: Vec<AgentStep> = Vec::with_capacity(recorded.steps.len());
    let mut before: Option<RecordedStep> = None;
    for step in &recorded.steps {
        let input_tokens = scale(step.input_tokens).max(1);
        let reused_tokens = match (before, steps.last()) {
            (Some(recorded), Some(scaled)) => match context_reuse(recorded, *step) {
                ContextReuse::Everything => scaled.context_tokens(),
                ContextReuse::Prompt => scaled.input_tokens,
                ContextReuse::Part(tokens) => scale(tokens).min(scaled.context_tokens()),
            },
            _ => 0,
        };
        steps.push(AgentStep {
            input_tokens,
            reused_tokens: reused_tokens.min(input_tokens),
            output_tokens: scale(step.output_tokens).max(1),
            tool_us: step
                .gap_us
                .min(options.tool_cap_s.saturating_mul(1_000_000)),
            tool_result: step.tool_result,
        });
        before = Some(*step);
    }
    AgentRun {
        id: recorded.id.clone(),
        group,
        system_tokens: scale(recorded.system_tokens),
        group_tokens: scale(recorded.group_tokens),
        steps,
    }
}

/// The part of the previous context that a recorded step reused.
enum ContextReuse {
    Everything,
    Prompt,
    Part(u64),
}

fn context_reuse(before: RecordedStep, step: RecordedStep) -> ContextReuse {
    if step.reused_tokens + RECORDED_BLOCK_TOKENS <= before.input_tokens {
        ContextReuse::Part(step.reused_tokens)
    } else if step.input_tokens >= before.input_tokens + before.output_tokens {
        ContextReuse::Everything
    } else {
        ContextReuse::Prompt
    }
}

#[cfg(test)]
mod tests;
