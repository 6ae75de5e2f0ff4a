//! The default prediction: the mean of what finished programs still needed at the same stage.
//!
//! A stage is a range of finished LLM calls. For each stage the policy has a running mean and 90th
//! percentile of the remaining tokens, and the mean of the remaining time in tools, for each prompt
//! (group) and for the whole job. A group's figures are weighted by its number of programs; the
//! job's figures count as `job_weight` further programs, and the configured guess as one.
//!
//! The groups that were updated last are stored, up to `groups_max`; a snapshot contains the whole
//! learnt state.

mod config;

pub use config::Config;

use treadle_plugin::running::{JobFigures, Running};
use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

/// What a snapshot begins with.
const MARK: [u8; 8] = *b"treadle1";
/// Stages of a program by its finished LLM calls: 0, 1 to 3, 4 to 15, 16 and more.
const STAGES: usize = 4;

/// Figures of what remained at each stage.
type Stages = [Running; STAGES];

/// The stage of a program.
fn stage(steps: u32) -> usize {
    // Without branches, which would be mispredicted.
    usize::from(steps >= 1) + usize::from(steps >= 4) + usize::from(steps >= 16)
}

/// The policy and what it has learnt.
#[derive(Debug, Clone)]
pub struct DefaultPrediction {
    config: Config,
    learnt: JobFigures<STAGES>,
}

impl Default for DefaultPrediction {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl DefaultPrediction {
    /// A policy that has learnt nothing.
    pub fn new(config: Config) -> Self {
        let learnt = JobFigures::new(config.groups_max as usize);
        Self { config, learnt }
    }

    /// Figures of the whole job, completed with the configured guess.
    fn job(&self) -> Stages {
        let guess = Running::guess(
            self.config.remaining_tokens,
            self.config.remaining_tool_s * 1_000.0,
        );
        let job = self.learnt.job();
        job.map(|stage| stage.filled_with(&guess, 1.0))
    }

    /// Figures of a group, completed with those of the job.
    fn group(&self, group: u64, job: &Stages) -> Stages {
        let Some(of_group) = self.learnt.group(group) else {
            return *job;
        };
        let weight = self.config.job_weight;
        std::array::from_fn(|stage| of_group[stage].filled_with(&job[stage], weight))
    }
}

impl Policy for DefaultPrediction {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(self.learnt.snapshot(MARK))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        self.learnt.restore(MARK, snapshot)
    }
}

impl PredictionPolicy for DefaultPrediction {
    const FUNCTIONS: &'static [&'static str] = &["predict", "learn"];

    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        let column = || Vec::with_capacity(programs.len());
        let mut estimates = Estimates {
            remaining_tokens: column(),
            remaining_tokens_p90: column(),
            remaining_tool_s: column(),
        };
        let job = self.job();
        // Programs of a group mostly are consecutive.
        let mut present = (None, job);
        for (&group, &steps) in programs.group.iter().zip(programs.steps) {
            if present.0 != Some(group) {
                present = (Some(group), self.group(group, &job));
            }
            let expected = &present.1[stage(steps)];
            estimates.remaining_tokens.push(expected.tokens);
            // Not `max`, which in WebAssembly is a call of a function.
            let p90 = if expected.tokens_p90 > expected.tokens {
                expected.tokens_p90
            } else {
                expected.tokens
            };
            estimates.remaining_tokens_p90.push(p90);
            estimates.remaining_tool_s.push(expected.tool_ms / 1_000.0);
        }
        Ok(estimates)
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        let memory = f64::from(self.config.memory);
        for row in 0..programs.len() {
            let stage = stage(programs.steps[row]);
            let tokens = programs.remaining_tokens[row] as f64;
            let tool_ms = programs.remaining_tool_ms[row] as f64;
            let group = programs.group[row];
            self.learnt.add(group, stage, tokens, tool_ms, memory);
        }
        Ok(())
    }
}

treadle_plugin::prediction_policy!(DefaultPrediction);

#[cfg(test)]
mod tests;
